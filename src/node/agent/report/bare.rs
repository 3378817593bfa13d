//! The status of a DaemonSet of which nothing is here.
//!
//! Owns its status: nothing but the reason. Must not look for more.

use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::status::DaemonStatus;
use crate::core::status::State;

/// The status of a DaemonSet of which nothing is here.
pub(super) fn bare(key: &ObjectKey, source: Option<Source>, reason: &str) -> DaemonStatus {
    DaemonStatus {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        source,
        mode: None,
        revision: String::new(),
        pod: String::new(),
        uid: String::new(),
        state: State::NotSelected,
        ready: None,
        since: None,
        reason: reason.to_owned(),
        failed: None,
        pull: None,
        replacing: None,
        waiting_for: Vec::new(),
        stale_volumes: Vec::new(),
        waiting_containers: Vec::new(),
        keeps_workload_away: false,
        awaits_rollout: false,
        notes: Vec::new(),
        hints: Vec::new(),
        releasable: false,
        refused_field: None,
    }
}
