//! The data of good revisions, kept for a roll-back: it is there with no API and no network.
//!
//! Owns its form, and which objects count as they were then. Tokens and the cluster's certificate never do: they have to be
//! today's. Must not say what is kept: `super::objects::rollback` does.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::node::recording::marks;

use super::records::Records;
use super::versioned_objects::Versioned;

/// The ConfigMap with the cluster's certificate, which every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Kept objects by daemon.
pub(super) type RollbackDataOf = BTreeMap<ObjectKey, RollbackData>;

/// What is kept of one daemon.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct RollbackData {
    /// The revision that was good with it.
    pub(super) revision: String,
    /// The objects as they were then.
    #[serde(with = "marks::objects")]
    pub(super) objects: Versioned,
}

/// The revision whose data is kept of a daemon.
pub(super) fn revision(records: &Records, daemon: &ObjectKey) -> Option<String> {
    let good = records.get(daemon)?.good.as_ref().filter(|good| good.has_rollback_data)?;
    Some(good.revision.clone())
}

/// Whether the kept state of an object counts before today's.
pub(super) fn is_pinned(reference: &ObjectRef) -> bool {
    matches!(reference.kind.as_str(), "ConfigMap" | "Secret") && reference.key.name != ROOT_CA
}
