//! An API server whose history went back: etcd was restored from a backup, and what was made since is missing.
//!
//! Owns the doubt: until a second complete list shows the same, no missing object counts as gone, not even a single one.

use crate::core::pass::MaxRemovals;
use crate::core::status::Problem;
use crate::node::api;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct EtcdRollbackReport {
    seen: u64,
    back: Option<api::EtcdRollback>,
}

impl EtcdRollbackReport {
    /// Follows the API's view.
    pub(in super::super) fn observe(&mut self, api: &Snapshot) {
        if let Some(back) = api.etcd_rollback_detection.rollback.filter(|back| back.number != self.seen) {
            self.seen = back.number;
            self.back = Some(back);
        }
    }

    /// The resource version to remember: an agent that starts anew in the middle of it must doubt again.
    pub(in super::super) fn reached(&self, api: &Snapshot) -> u64 {
        self.back.map_or(api.etcd_rollback_detection.reached, |back| back.from)
    }

    /// How many absences may act in this pass: none while their list may be of a restored backup, unless
    /// nothing is to be held at all. `is_unknown`: what the API server had before is not known.
    pub(in super::super) fn max_removals(
        &self,
        api: Option<&Snapshot>,
        configured: MaxRemovals,
        is_unknown: bool,
    ) -> MaxRemovals {
        let open = |api: &Snapshot| {
            api.lists(&Scope::DaemonSets) > 0
                && !api.etcd_rollback_detection.is_known
                && api.etcd_rollback_detection.reached > 0
        };
        match configured {
            MaxRemovals::Off => MaxRemovals::Off,
            _ if self.back.is_some() || is_unknown || api.is_some_and(open) => MaxRemovals::Count(0),
            bound => bound,
        }
    }

    /// A pass was planned. The doubt `is_over` when nothing is missing any more.
    pub(in super::super) fn planned(&mut self, is_over: bool) {
        self.back = self.back.filter(|_| !is_over);
    }

    /// What to report about it.
    pub(in super::super) fn problem(&self) -> Option<Problem> {
        let api::EtcdRollback { from, to, .. } = self.back?;
        Some(Problem {
            object: "API".to_owned(),
            reason: format!(
                "its history went back (resource version {to} after {from}), as after a restored backup: what is \
                 missing there is kept until a second complete list agrees"
            ),
            hint: Some("apply what is still wanted again, before `removals-delay` is over".to_owned()),
        })
    }
}
