//! What a DaemonSet says of its rollouts: strategy and annotations.

use crate::core::annotations::int_or_percent;
use crate::core::cluster::rollout::Rules;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::duration;
use crate::core::labels;
use crate::core::labels::Selector;
use crate::core::model::CANARY;
use crate::core::model::CANARY_HOLD;
use crate::core::model::DaemonSet;
use crate::core::model::IntOrPercent;
use crate::core::model::MAX_FAILED;
use crate::core::model::PARTITION;
use crate::core::model::PAUSED;
use crate::core::model::ROLLBACK;
use crate::core::model::UpdateStrategy;

use super::Settings;

fn annotation<'a>(daemon_set: &'a DaemonSet, name: &str) -> Option<&'a str> {
    daemon_set.annotations.get(name).map(String::as_str)
}

/// What a rollout of the DaemonSet obeys.
pub(super) fn of(daemon: &WatchedDaemon, settings: &Settings) -> Rules {
    let daemon_set = &*daemon.daemon_set;
    let (max_unavailable, max_surge, on_delete) = match daemon_set.update_strategy {
        UpdateStrategy::RollingUpdate { max_unavailable, max_surge } => (max_unavailable, max_surge, false),
        UpdateStrategy::OnDelete => (IntOrPercent::Int(1), IntOrPercent::Int(0), true),
    };
    let hold = match annotation(daemon_set, PAUSED) {
        Some("true") => Some("paused".to_owned()),
        _ if on_delete => Some("the update strategy is OnDelete".to_owned()),
        _ => None,
    };
    let canary_hold = annotation(daemon_set, CANARY_HOLD).and_then(duration::parse).unwrap_or_default();
    // Upstream never halts.
    let max_failed = if settings.exact_rollouts { usize::MAX } else { 1 };
    Rules {
        wanted: daemon.wanted,
        max_unavailable,
        max_surge,
        hold,
        partition: annotation(daemon_set, PARTITION).and_then(int_or_percent).unwrap_or(IntOrPercent::Int(0)),
        canary_hold: canary(daemon_set).map(|_| canary_hold),
        max_failed: annotation(daemon_set, MAX_FAILED).and_then(|text| text.parse().ok()).unwrap_or(max_failed),
        exact: settings.exact_rollouts,
    }
}

/// The same budget for the way back, which nothing else holds up.
pub(super) fn unhindered(rules: &Rules) -> Rules {
    Rules { hold: None, partition: IntOrPercent::Int(0), canary_hold: None, max_failed: usize::MAX, ..rules.clone() }
}

/// Which nodes go first.
pub(super) fn canary(daemon_set: &DaemonSet) -> Option<Selector> {
    annotation(daemon_set, CANARY).and_then(|text| labels::parse(text).ok())
}

/// Whether a rollout that halts goes back.
pub(super) fn rolls_back(daemon_set: &DaemonSet) -> bool {
    annotation(daemon_set, ROLLBACK) == Some("auto")
}
