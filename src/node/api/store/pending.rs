//! Room for the pods that wait for this node.
//!
//! Owns how many of one daemon are kept: anyone who may create pods can have any number of them wait, and one of a DaemonSet
//! controller is enough to hand over to. The others are not known, which changes nothing for running pods.

use crate::core::bounds::PENDING_PODS;
use crate::core::model::ObjectKey;

use super::Scope;
use super::Store;

impl Store {
    /// Whether `key` is kept beside the others of its scope.
    pub(in crate::node::api) fn has_place(&self, scope: &Scope, key: &ObjectKey) -> bool {
        let Scope::Pending(daemon) = scope else { return true };
        let pending = &self.snapshot().pending;
        let kept = pending.range((daemon.clone(), ObjectKey::new("", ""))..).take_while(|((of, _), _)| of == daemon);
        pending.contains_key(&(daemon.clone(), key.clone())) || kept.count() < PENDING_PODS
    }
}
