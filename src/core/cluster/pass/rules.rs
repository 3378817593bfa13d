//! What a DaemonSet says of its rollouts: strategy and annotations.

use crate::core::annotations;
use crate::core::annotations::first_install;
use crate::core::annotations::int_or_percent;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutHold;
use crate::core::cluster::rollout::RolloutRules;
use crate::core::cluster::rollout::resolve;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::duration;
use crate::core::labels::Selector;
use crate::core::model::ABORTED;
use crate::core::model::CANARY;
use crate::core::model::CANARY_HOLD;
use crate::core::model::DaemonSet;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::IntOrPercent;
use crate::core::model::MAX_FAILED;
use crate::core::model::MAX_UNREACHABLE;
use crate::core::model::PARTITION;
use crate::core::model::PAUSED;
use crate::core::model::PROMOTED;
use crate::core::model::ROLLBACK;
use crate::core::model::TOPOLOGY_KEY;
use crate::core::model::UPDATE;
use crate::core::model::UpdateStrategy;
use crate::core::model::WINDOW;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;
use crate::core::window::Window;

use super::Settings;
use super::stages::is_released;
use super::stages::promoted;

fn annotation<'a>(daemon_set: &'a DaemonSet, name: &str) -> Option<&'a str> {
    daemon_set.annotations.get(name).map(String::as_str)
}

/// See [`MAX_UNREACHABLE`].
const UNREACHABLE: IntOrPercent = IntOrPercent::Percent(33);

/// What a rollout of the DaemonSet obeys. `stopped`: why its `current` revision goes no further, if it does not. `now`: by
/// the wall clock.
pub(super) fn of(
    daemon: &WatchedDaemon,
    settings: &Settings,
    current: Option<(&str, i64)>,
    stopped: Option<RolloutHold>,
    now: Timestamp,
) -> RolloutRules {
    let daemon_set = &*daemon.daemon_set;
    let (max_unavailable, max_surge) = match daemon_set.update_strategy {
        UpdateStrategy::RollingUpdate { max_unavailable, max_surge } => (max_unavailable, max_surge),
        UpdateStrategy::OnDelete => (IntOrPercent::Int(1), IntOrPercent::Int(0)),
    };
    let is_new = RolloutStatus::of(&daemon.status, daemon.generation).released.is_none();
    let installs = annotation(daemon_set, FIRST_INSTALL).filter(|_| is_new);
    let is_on_delete = is_on_delete(daemon_set);
    let hold = match annotations::is_paused(daemon_set) {
        true if annotation(daemon_set, PAUSED) == Some("true") => Some(RolloutHold::Paused),
        true => annotations::not_understood(&daemon_set.annotations),
        _ if annotations::is_uncoordinated(daemon_set) => Some(RolloutHold::Uncoordinated),
        _ if is_on_delete && installs.is_none() => Some(RolloutHold::OnDelete),
        _ => stopped.or_else(|| not_now(daemon_set, installs, now)),
    };
    let partition = match is_on_delete {
        // First instances alone.
        true => IntOrPercent::Percent(100),
        false => annotation(daemon_set, PARTITION).and_then(int_or_percent).unwrap_or(IntOrPercent::Int(0)),
    };
    let is_promoted =
        annotation(daemon_set, PROMOTED).zip(current).and_then(|(text, (name, number))| promoted(text, name, number));
    let is_canary_promoted = is_promoted == Some("canary");
    let canary_hold = match is_canary_promoted {
        true => Span::ZERO,
        false => annotation(daemon_set, CANARY_HOLD).and_then(duration::parse).unwrap_or_default(),
    };
    let rules = RolloutRules {
        wanted: daemon.wanted,
        max_unavailable,
        max_surge,
        hold,
        partition,
        // An annotation that is not understood holds.
        first_install: installs.map(|text| first_install(text).unwrap_or(IntOrPercent::Int(0))),
        step: None,
        canary_hold: canary(daemon_set).map(|_| canary_hold),
        is_canary_promoted,
        is_released: is_released(daemon) && !is_on_delete,
        when: UpdateTrigger::of(daemon_set),
        max_unreachable: annotation(daemon_set, MAX_UNREACHABLE).and_then(int_or_percent).unwrap_or(UNREACHABLE),
        was_open: RolloutStatus::of(&daemon.status, daemon.generation).is_open(),
        exact: settings.exact_rollouts,
    };
    match annotations::is_uncoordinated(daemon_set) {
        // Nodes do not ask how far it goes.
        true => RolloutRules { hold: rules.hold.clone(), ..unhindered(&rules) },
        false => rules,
    }
}

/// The same budget for the way back, which nothing else holds up.
pub(super) fn unhindered(rules: &RolloutRules) -> RolloutRules {
    let max_unreachable = IntOrPercent::Int(u32::MAX);
    RolloutRules {
        hold: None,
        first_install: None,
        step: None,
        partition: IntOrPercent::Int(0),
        canary_hold: None,
        max_unreachable,
        ..rules.clone()
    }
}

/// As much of an annotation as a condition shows.
fn short(text: &str) -> String {
    text.chars().take(128).collect()
}

/// Why it is not known how far a rollout may go, if an annotation that bounds it is not understood.
pub(super) fn unbounded(daemon_set: &DaemonSet) -> Option<RolloutHold> {
    if annotations::is_uncoordinated(daemon_set) {
        return None;
    }
    annotations::unbounded(&daemon_set.annotations)
}

/// Why nothing is approved, if an annotation says so; one that is not understood holds, too. `installs`: how many nodes
/// at a time have first instances, if they wait for that.
fn not_now(daemon_set: &DaemonSet, installs: Option<&str>, now: Timestamp) -> Option<RolloutHold> {
    if let Some(hold) = unbounded(daemon_set) {
        return Some(hold);
    }
    let installs = installs.filter(|text| first_install(text).is_none()).map(|text| (FIRST_INSTALL, text));
    let update = || annotation(daemon_set, UPDATE).filter(|text| UpdateTrigger::parse(text).is_none());
    if let Some((annotation, text)) = installs.or_else(|| update().map(|text| (UPDATE, text))) {
        return Some(RolloutHold::Value { annotation, value: short(text) });
    }
    let text = annotation(daemon_set, WINDOW)?;
    match Window::parse(text) {
        Ok(window) if window.contains(now) => None,
        Ok(_) => Some(RolloutHold::OutsideWindow(short(text))),
        Err(why) => Some(RolloutHold::Window(short(&why))),
    }
}

/// Why nothing is approved where no node has the label by whose values zones are told apart: it may be misspelt.
pub(super) fn no_zone(daemon_set: &DaemonSet, facts: &[NodeFact<'_>]) -> Option<RolloutHold> {
    let key = annotation(daemon_set, TOPOLOGY_KEY).filter(|_| !annotations::is_uncoordinated(daemon_set))?;
    let mut nodes = facts.iter().filter(|node| node.belongs).peekable();
    nodes.peek()?;
    let is_nowhere = nodes.all(|node| node.zone.is_none_or(str::is_empty));
    is_nowhere.then(|| RolloutHold::NoZone(short(key)))
}

/// The next moment at which a window may open or close: a full minute.
pub(super) fn looks_again(daemon_set: &DaemonSet, now: Timestamp) -> Option<Timestamp> {
    annotation(daemon_set, WINDOW)?;
    Some(Timestamp::from_secs((now.as_millis().div_euclid(60_000) + 1) * 60))
}

/// The ControllerRevision whose rollout people have taken back.
pub(super) fn aborted(daemon_set: &DaemonSet) -> Option<&str> {
    annotation(daemon_set, ABORTED)
}

/// On how many of `desired` nodes a revision may fail before its rollout halts. Upstream's never does.
pub(super) fn max_failed(daemon_set: &DaemonSet, settings: &Settings, desired: usize) -> usize {
    let default = if settings.exact_rollouts { usize::MAX } else { 1 };
    annotation(daemon_set, MAX_FAILED).and_then(int_or_percent).map_or(default, |most| resolve(&most, desired))
}

/// Which nodes go first.
pub(super) fn canary(daemon_set: &DaemonSet) -> Option<Selector> {
    annotation(daemon_set, CANARY).and_then(annotations::canary)
}

/// Whether nodes change only when a pod is deleted.
pub(super) fn is_on_delete(daemon_set: &DaemonSet) -> bool {
    daemon_set.update_strategy == UpdateStrategy::OnDelete
}

/// Whether a rollout that halts goes back.
pub(super) fn rolls_back(daemon_set: &DaemonSet) -> bool {
    annotation(daemon_set, ROLLBACK) == Some("auto")
}
