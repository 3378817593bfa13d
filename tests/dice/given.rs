//! What a coordinator gives and writes must fit with what people have written and what is decided, as it sees that itself:
//! plainly looked at, for each approval that it gives and each status that it writes.

use serde_json::Value;

use daemonlet::core::cluster::conditions;
use daemonlet::core::cluster::history::RevisionFact;
use daemonlet::core::cluster::node_daemons::Approval;
use daemonlet::core::cluster::released;
use daemonlet::core::cluster::released::HALTED;
use daemonlet::core::cluster::released::RELEASED;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::requests::Call;
use daemonlet::core::cluster::requests::ClusterRequest;
use daemonlet::core::cluster::rollout;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::KnownRevision;
use daemonlet::core::cluster::snapshot::NodeEntry;
use daemonlet::core::cluster::snapshot::WatchedDaemon;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::steps;
use daemonlet::core::cluster::steps::STEP_ANNOTATION;
use daemonlet::core::cluster::steps::StepState;
use daemonlet::core::json::Json;
use daemonlet::core::model::ABORTED;
use daemonlet::core::model::CANARY;
use daemonlet::core::model::IntOrPercent;
use daemonlet::core::model::MODE_LABEL;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PARTITION;
use daemonlet::core::model::PAUSED;
use daemonlet::core::model::PROMOTED;
use daemonlet::core::model::ROLLBACK;
use daemonlet::core::model::STEPS;
use daemonlet::core::model::TOPOLOGY_KEY;
use daemonlet::core::model::WINDOW;
use daemonlet::core::time::Timestamp;
use daemonlet::core::window::Window;

use super::KEY;
use super::slots;

/// Agents that are dead at one time in a life, at the most: their nodes do not count for a release.
const DEAD: usize = 3;

fn zone(entry: &NodeEntry) -> &str {
    entry.node.as_ref().and_then(|node| node.view.labels.get("zone")).map_or("", String::as_str)
}

/// What is wrong with what `requests` give, if anything is.
pub(super) fn given_against(view: &ClusterSnapshot, requests: &[ClusterRequest], now: Timestamp) -> Option<String> {
    let daemon = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))?;
    let given: Vec<(&NodeEntry, Approval)> = slots::new(view, requests).collect();
    let annotation = |name: &str| daemon.daemon_set.annotations.get(name).map(String::as_str);
    let current = view.revisions.values().find(|known| known.revision.hash == daemon.hash);
    let is_aborted = is_aborted(daemon, current);
    let is_stopped = is_aborted || current.is_some_and(|current| current.revision.halted.is_some());
    let is_closed = annotation(WINDOW).is_some_and(|text| !Window::parse(text).unwrap().contains(now));
    // A halt is decided from what is seen before it is written.
    let may_go_back = is_aborted || annotation(ROLLBACK) == Some("auto");
    let mode = daemon.daemon_set.labels.get(MODE_LABEL).map(String::as_str);
    for (entry, new) in &given {
        let (runs, has) = (slots::running(view, entry).is_some(), |hash: &str| slots::has(view, entry, hash));
        let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
        let lacks =
            reported.and_then(|reported| reported.missing).is_some_and(|(revision, _)| revision == daemon.wanted);
        let is_tainted = entry.node.as_ref().is_none_or(|node| !node.view.taints.is_empty());
        let wrong = match (new.revision == daemon.hash, current) {
            _ if !slots::is_selected(entry) => "its Node is not selected",
            (true, _) if is_tainted => "its Node has a taint",
            _ if daemon.refused.is_some() => "its definition is refused",
            _ if mode == Some("bootstrap") => "it is let go",
            _ if annotation(PAUSED) == Some("true") => "it is paused",
            (true, _) if lacks => "its node lacks an object",
            (true, None) => "it has no ControllerRevision",
            (true, _) if is_stopped => "it is halted or aborted",
            (true, _) if annotation(PARTITION).is_some_and(|text| text.parse::<usize>().is_err()) => {
                "its partition is not understood"
            }
            (true, _) if is_closed => "it is outside its window",
            (false, _) if runs && !has(&daemon.hash) && !has(&new.revision) => "its node never had what is taken back",
            (false, _) if !may_go_back => "another revision is wanted, and no node goes back",
            _ => continue,
        };
        return Some(format!("approves {}, though {wrong}", new.revision));
    }
    let forward: Vec<&NodeEntry> = given
        .iter()
        .filter(|(entry, new)| new.revision == daemon.hash && slots::running(view, entry).is_some())
        .map(|(entry, _)| *entry)
        .collect();
    let first = forward.first()?;
    if annotation(TOPOLOGY_KEY).is_some() && forward.iter().any(|entry| zone(entry) != zone(first)) {
        return Some("approves nodes of two zones".to_owned());
    }
    // It works: neither canary nodes nor a partition keep a node on another.
    let released = RolloutStatus::of(&daemon.status, daemon.generation).released;
    if released.is_some_and(|released| released.hash == daemon.hash) {
        return None;
    }
    if annotation(CANARY).is_some() && forward.iter().any(|entry| zone(entry) != "a") && !have_canaries(view, daemon) {
        return Some("approves others before the canary nodes have it".to_owned());
    }
    let kept = annotation(PARTITION).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    let stays = view.nodes.values().filter(|entry| stays(view, entry, &daemon.hash)).count();
    (stays < kept + forward.len()).then(|| format!("approves {} of {stays} where {kept} are to stay", forward.len()))
}

/// Whether people have taken the rollout of the current revision back, while another one is the released one.
fn is_aborted(daemon: &WatchedDaemon, current: Option<&KnownRevision>) -> bool {
    let released = RolloutStatus::of(&daemon.status, 0).released;
    let named = daemon.daemon_set.annotations.get(ABORTED);
    released.is_none_or(|released| released.hash != daemon.hash)
        && (current.is_some_and(|current| named == Some(&current.revision.name))
            || named.is_some() && released::is_aborted(&daemon.status, &daemon.hash))
}

/// Whether all canary nodes have the wanted revision available.
fn have_canaries(view: &ClusterSnapshot, daemon: &WatchedDaemon) -> bool {
    let mut canaries = view.nodes.values().filter(|entry| slots::is_selected(entry) && zone(entry) == "a");
    canaries.all(|entry| slots::running(view, entry) == Some((daemon.hash.as_str(), true)))
}

/// Whether a canary node runs another revision: it has not tried the wanted one yet.
fn is_canary_phase(view: &ClusterSnapshot, daemon: &WatchedDaemon) -> bool {
    let mut canaries = view.nodes.values().filter(|entry| slots::is_selected(entry) && zone(entry) == "a");
    canaries.any(|entry| slots::running(view, entry).is_some_and(|(revision, _)| revision != daemon.hash))
}

/// Whether a revision is in a step before the last but one of `steps`: it may go on by one in this very pass.
fn is_early_step(current: &RevisionFact, steps: Option<&str>) -> bool {
    let Some((text, last)) = steps.and_then(|text| Some((text, steps::parse(text)?.len()))) else { return false };
    let state = StepState::of(current.step.as_deref(), current.number);
    state.is_some_and(|state| state.of == text && state.step + 1 < last)
}

/// Whether a node has an older revision, and nothing leads it to another.
fn stays(view: &ClusterSnapshot, entry: &NodeEntry, wanted: &str) -> bool {
    let Some(report) = entry.report.as_ref().filter(|_| entry.node.is_some()) else { return false };
    let runs = slots::running(view, entry).is_some_and(|(revision, _)| revision != wanted);
    runs && slots::approval(&report.spec.approvals).is_none()
}

/// What is wrong with the status that `requests` write, if anything is.
pub(super) fn status_against(
    view: &ClusterSnapshot,
    requests: &[ClusterRequest],
    is_dead: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<String> {
    let daemon = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))?;
    let status = requests.iter().find_map(|request| match &request.call {
        Call::PatchStatus(_, patch) => Some(&patch["status"]),
        _ => None,
    })?;
    let annotation = |name: &str| daemon.daemon_set.annotations.get(name).map(String::as_str);
    match daemon.daemon_set.labels.get(MODE_LABEL).map(String::as_str) {
        Some("bootstrap") => {
            let has_ours = status.list_at("conditions").iter().any(conditions::is_ours);
            return has_ours.then(|| "writes a condition of what is let go".to_owned());
        }
        None => return None,
        _ => {}
    }
    if daemon.refused.is_some() {
        let shows_halt = |status: &Value| RolloutStatus::of(status, 0).halted.is_some();
        let is_lost = status.get("conditions").is_some() && shows_halt(&daemon.status) && !shows_halt(status);
        return is_lost.then(|| "shows a halt no more because the definition is refused".to_owned());
    }
    let condition = |kind: &str| status.list_at("conditions").iter().find(|c| c.str_at("type") == kind);
    // Without a ControllerRevision, and without reports, the counters stay as they are.
    let stay = ["NoControllerRevision", "Unreadable"];
    let is_counted = condition("Degraded").is_none_or(|c| !stay.contains(&c.str_at("reason")));
    // What is not written stands.
    let stands = |field: &str| status.get(field).or_else(|| daemon.status.get(field).filter(|_| is_counted));
    let wrong = counts_against(view, daemon, stands, is_dead);
    if wrong.is_some() {
        return wrong;
    }
    let current = view.revisions.values().find(|known| known.revision.hash == daemon.hash);
    let is_aborted = is_aborted(daemon, current);
    let is_stopped = is_aborted || current.is_some_and(|current| current.revision.halted.is_some());
    // Of one that is released there is nothing to take back, and the condition that shows it may be lost.
    let is_free = RolloutStatus::of(status, 0).released.is_some_and(|released| released.hash == daemon.hash);
    let is_stopped = is_stopped && !(is_aborted && is_free);
    let is_shown = condition(HALTED).is_some_and(|c| c.str_at("status") == "True");
    if status.get("conditions").is_some() && is_stopped && !is_shown {
        return Some("does not show that it is halted or aborted".to_owned());
    }
    let reason = condition(RELEASED)?.str_at("reason");
    let released = RolloutStatus::of(status, 0).released?;
    let before = RolloutStatus::of(&daemon.status, 0).released;
    if released.hash != daemon.hash {
        let is_kept = annotation(PARTITION).is_some_and(|text| text != "0");
        let is_closed = annotation(WINDOW).is_some_and(|text| !Window::parse(text).unwrap().contains(now));
        let is_phase = annotation(CANARY).is_some() && is_canary_phase(view, daemon);
        let is_step = current.is_some_and(|current| is_early_step(&current.revision, annotation(STEPS)));
        let is_held = is_stopped || is_kept || is_closed || is_phase || is_step || annotation(PAUSED) == Some("true");
        return (is_held && reason != "Held").then(|| format!("shows nodes that join {reason}, though it is held"));
    }
    let lacks_it = |entry: &&NodeEntry| {
        // An agent that says nothing of it has left it alone.
        let is_reported = entry.report.as_ref().is_some_and(|report| report.daemon(daemon.key).is_some());
        let is_counted =
            is_reported && slots::is_selected(entry) && entry.node.as_ref().is_some_and(|node| node.reachable);
        is_counted && slots::running(view, entry).is_none_or(|(revision, _)| revision != daemon.hash)
    };
    let lacking = view.nodes.values().filter(lacks_it).count();
    // What was released before the status lost it is released again.
    let is_marked = before.is_none() && current.is_some_and(|current| current.revision.released.is_some());
    let is_new = !is_marked && before.is_none_or(|before| before.hash != released.hash);
    let may_lack = DEAD.max(view.nodes.len() / 3);
    (is_new && lacking > may_lack).then(|| format!("releases {} that {lacking} nodes do not have", released.hash))
}

/// Whether the DaemonSet should run on a Node: it tolerates no taint.
fn should_run(entry: &&NodeEntry) -> bool {
    slots::is_selected(entry) && entry.node.as_ref().is_some_and(|node| node.view.taints.is_empty())
}

/// What is wrong with the counters of a status, if anything is: the Nodes on which it should run are counted, no more of them
/// as ready or available than serve on a Node that is, without those that have claimed a replacement of what they run, and no
/// more as updated than have the wanted revision and have claimed no other. What a dead agent has claimed, and what fails, may
/// have ended or not.
fn counts_against<'v>(
    view: &ClusterSnapshot,
    daemon: &WatchedDaemon,
    stands: impl Fn(&str) -> Option<&'v Value>,
    is_dead: impl Fn(&str) -> bool,
) -> Option<String> {
    let count = |field: &str| stands(field)?.as_u64().and_then(|count| usize::try_from(count).ok());
    let nodes = || view.nodes.values().filter(should_run);
    let claim = |entry: &NodeEntry| {
        let is_told = entry.node.as_ref().is_some_and(|node| !is_dead(&node.view.name));
        let reported = entry.report.as_ref()?.daemon(daemon.key).filter(|reported| is_told && !reported.fails())?;
        reported.replacing.map(|(revision, _)| revision)
    };
    let has = |entry: &NodeEntry, revision| slots::has(view, entry, view.names.text(revision));
    let surges = daemon.daemon_set.allows_surge();
    let ends = |entry: &NodeEntry| !surges && claim(entry).is_some_and(|revision| !has(entry, revision));
    let serving = nodes().filter(|entry| slots::serves(daemon, entry) && !ends(entry)).count();
    let goes_on = |entry: &NodeEntry| claim(entry).is_some_and(|revision| revision != daemon.wanted);
    let has_it = |entry: &&NodeEntry| slots::ran(daemon, entry, daemon.wanted) && !goes_on(entry);
    let all = nodes().count();
    let bounds = [
        ("desiredNumberScheduled", all..=all),
        ("numberReady", 0..=serving),
        ("numberAvailable", 0..=serving),
        ("numberUnavailable", all - serving..=all),
        ("updatedNumberScheduled", 0..=nodes().filter(has_it).count()),
    ];
    let wrong = bounds.into_iter().find(|(field, most)| count(field).is_some_and(|count| !most.contains(&count)));
    wrong.map(|(field, most)| format!("counts {:?} as {field}, where that is {most:?}", count(field)))
}

/// What is wrong with the step that `requests` write, if anything is: the one before has to be done. `is_dead`: whether
/// the coordinator takes a node's agent for dead; a third of them does not make the others enough.
pub(super) fn stepped_against(
    view: &ClusterSnapshot,
    requests: &[ClusterRequest],
    is_dead: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<String> {
    let daemon = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))?;
    let text = daemon.daemon_set.annotations.get(STEPS)?;
    let current = view.revisions.values().find(|known| known.revision.hash == daemon.hash)?;
    let new = requests.iter().find_map(|request| match &request.call {
        Call::Patch(WatchedKind::Revisions, _, patch) => patch["metadata"]["annotations"][STEP_ANNOTATION].as_str(),
        _ => None,
    });
    let number = current.revision.number;
    let (new, before) = (StepState::of(new, number)?, StepState::of(current.revision.step.as_deref(), number)?);
    let nodes = || view.nodes.values().filter(should_run);
    let has_it = |entry: &&NodeEntry| slots::running(view, entry) == Some((daemon.hash.as_str(), true));
    let reachable = |entry: &NodeEntry| entry.node.as_ref().is_some_and(|node| node.reachable);
    let has_failed = |entry: &NodeEntry| {
        let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
        reported.and_then(|reported| reported.failed).is_some_and(|(revision, _)| revision == daemon.wanted)
    };
    let can = |entry: &&NodeEntry| entry.report.is_some() && reachable(entry) && !has_failed(entry);
    let size = rollout::resolve(&steps::parse(text)?.get(before.step - 1)?.nodes, nodes().count()).max(1);
    let (done, able) = (nodes().filter(has_it).count(), nodes().filter(can).count());
    let named = || view.nodes.iter().filter(|(_, entry)| should_run(entry));
    let dead = named().filter(|(name, entry)| reachable(entry) && is_dead(name)).count();
    let silent = dead + nodes().filter(|entry| !reachable(entry)).count();
    let is_silence = silent > 2 && silent >= rollout::resolve(&IntOrPercent::Percent(33), nodes().count());
    let enough = if is_silence { able } else { able.saturating_sub(dead) };
    let is_of_these = steps::parse(&before.of) == steps::parse(text);
    // A node on which it failed, or that has had its time with it, is waited for no more.
    let is_lost = |entry: &&NodeEntry| {
        let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
        let mut live = reported.iter().flat_map(|reported| &*reported.instances).filter(|i| !i.ending);
        let has_had_time = live.any(|i| i.revision == daemon.wanted && i.created + rollout::UNCLAIMED <= now);
        !has_it(entry)
            && slots::running(view, entry).is_some_and(|(hash, _)| hash == daemon.hash)
            && (has_failed(entry) || has_had_time)
    };
    let lost = nodes().filter(is_lost).count();
    let is_early = new.step > before.step && is_of_these && done + lost < size.min(enough + lost);
    if is_early {
        return Some(format!("goes to step {} with {done} nodes of {size}", new.step));
    }
    let step = *steps::parse(text)?.get(before.step - 1)?;
    let promoted = format!("{}/{number}/{}/{}", current.revision.name, before.step, step.size());
    let is_promoted = daemon.daemon_set.annotations.get(PROMOTED) == Some(&promoted);
    let may = is_promoted || before.since.is_some_and(|since| since + step.hold <= now);
    (new.step > before.step && is_of_these && !may).then(|| format!("goes to step {} in a hold", new.step))
}
