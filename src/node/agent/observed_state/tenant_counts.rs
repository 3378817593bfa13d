//! What is counted of daemons of namespaces that are not trusted.
//!
//! Owns that each is counted once in a pass. Must not count: `super::room` does.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::bounds::QuotaUse;
use crate::core::model::ObjectKey;
use crate::core::policy::Requester;

/// What is counted of daemons of namespaces that are not trusted, once it is asked for.
#[derive(Default)]
pub(in crate::node::agent) struct TenantCounts<'a> {
    /// What they request.
    pub(super) requesters: OnceCell<Vec<Requester<'a>>>,
    /// DaemonSets of which their namespaces have too many.
    pub(super) beyond: OnceCell<BTreeSet<&'a ObjectKey>>,
    /// How much memory the definitions take that they run with: each, and all together.
    pub(super) running_weights: OnceCell<(BTreeMap<&'a ObjectKey, usize>, QuotaUse)>,
}
