//! DaemonSets that no agent runs because their mode is misspelt.
//!
//! Owns that all of them are shown in one line: a tenant may write thousands.

use crate::core::model::ObjectKey;
use crate::core::policy;
use crate::core::status::LEFT_ALONE_NAMED;
use crate::core::status::LeftAlone;
use crate::core::status::LeftAloneCause;

use super::ClusterOverview;

impl ClusterOverview {
    /// Those that are not `ours`, of one namespace or of all.
    pub(super) fn left_alone(&self, ours: &[ObjectKey], namespace: Option<&str>) -> Vec<LeftAlone> {
        let mistyped = self.daemons.iter().filter(|(_, daemon)| policy::is_mistyped(&daemon.daemon_set.labels));
        let is_asked = |key: &&ObjectKey| namespace.is_none_or(|wanted| key.namespace == wanted);
        let keys: Vec<&ObjectKey> =
            mistyped.map(|(key, _)| key).filter(is_asked).filter(|key| ours.binary_search(key).is_err()).collect();
        let group = keys.first().map(|first| LeftAlone {
            cause: LeftAloneCause::UnknownMode,
            count: keys.len(),
            daemon_sets: keys.iter().take(LEFT_ALONE_NAMED).map(ToString::to_string).collect(),
            hint: policy::respelt(first),
        });
        group.into_iter().collect()
    }
}
