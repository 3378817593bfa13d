//! What a plan would change, in words.

use std::sync::Arc;

use crate::core::manifest;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::replies::HeldDaemon;
use crate::core::replies::PlannedChange;
use crate::core::status::State;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::folders::FileView;
use crate::node::images::PullProgress;

/// The daemons that do not run as they should, or not at the wanted revision, and for which a plan has nothing to do, and
/// all that are refused, lack something for their data, or have a file that does not count; `looked`: whether their state
/// was observed.
pub(super) fn held(plan: &Plan, looked: bool) -> Vec<HeldDaemon> {
    let does_nothing = |d: &DaemonPlan| of(d).next().is_none();
    let is_held = |d: &&DaemonPlan| match d.summary.state {
        _ if !d.summary.stale.is_empty() || d.summary.awaits_labels() => true,
        State::Refused | State::Held => true,
        State::Failing | State::NotAccepted => does_nothing(d),
        // Data alone may change while a new template waits, or while the runtime is to say when the old instance is gone.
        _ if awaited(d).is_some() || d.asks_runtime => !d.actions.iter().any(replaces),
        State::Unknown => does_nothing(d) && (looked || !d.summary.reasons.say_unseen_only()),
        // Its file does not count.
        State::NotSelected if d.record.ignored_file.is_some() && d.summary.source.is_some() => true,
        State::Waiting => does_nothing(d),
        _ => false,
    };
    plan.daemons.iter().filter(is_held).map(hold).collect()
}

/// Whether an action ends an instance or begins one.
fn replaces(action: &Action) -> bool {
    matches!(action, Action::End { .. } | Action::Start { .. } | Action::Finish { .. })
}

/// The revision that is to replace the instance as soon as it may; one that failed here is not tried again.
fn awaited(daemon: &DaemonPlan) -> Option<&String> {
    daemon.summary.wanted_revision.as_ref().filter(|_| daemon.summary.failed.is_none())
}

fn hold(daemon: &DaemonPlan) -> HeldDaemon {
    HeldDaemon {
        namespace: daemon.key.namespace.clone(),
        name: daemon.key.name.clone(),
        state: daemon.summary.state,
        reason: daemon.summary.reasons.to_string(),
        stale_volumes: daemon.summary.stale.clone(),
        wanted_revision: awaited(daemon).or(daemon.asks_runtime.then_some(&daemon.summary.revision)).cloned(),
        hint: Some(daemon.summary.hint_lines().join("; ")).filter(|hint| !hint.is_empty()),
    }
}

/// The daemons of which the pass has ended or replaced nothing, as there is no state folder or the disk takes no more.
pub(super) fn held_up(plan: &Plan, outcome: &EffectOutcome) -> Vec<HeldDaemon> {
    let wait = |daemon: &DaemonPlan| {
        let failure = outcome.failures.get(&daemon.key).filter(|_| outcome.held_up.contains(&daemon.key))?;
        let (held, reason) = (hold(daemon), failure.cause.to_string());
        Some(HeldDaemon { state: State::Waiting, reason, hint: failure.hint.clone().or(held.hint), ..held })
    };
    plan.daemons.iter().filter_map(wait).collect()
}

/// What a plan would change, in the order in which it would be done, but for what the disk holds up.
pub(super) fn changes(plan: &Plan, outcome: &EffectOutcome) -> Vec<PlannedChange> {
    let done = |daemon: &DaemonPlan| match outcome.held_up.contains(&daemon.key) {
        true => daemon.done_without_record().len(),
        false => daemon.actions.len(),
    };
    plan.daemons.iter().flat_map(|daemon| of_actions(daemon, &daemon.actions[..done(daemon)])).collect()
}

/// Tokens of instances that the API server is asked for anew as soon as it answers: until then the mounted ones are of no
/// use. A token that is missing altogether holds back its volume, which reports that.
pub(super) fn tokens(plan: &Plan, observation: &Observation, node_uid: Option<&str>) -> Vec<PlannedChange> {
    let runs = plan.daemons.iter().filter(|daemon| daemon.record.live().next().is_some());
    let wanted = runs.flat_map(|daemon| daemon.tokens.iter().map(move |request| (daemon, request)));
    let held = &observation.tokens.issued;
    wanted
        .filter_map(|(daemon, request)| {
            let exact = held.iter().find(|token| token.request == *request);
            let token = exact.or_else(|| held.iter().rfind(|token| token.request.is_alike(request)))?;
            let reason = if token.expires <= observation.now {
                format!("the one in use expired at {}", token.expires)
            } else if node_uid.is_some_and(|uid| uid != token.node_uid) {
                "the one in use is bound to a Node that is gone".to_owned()
            } else {
                return None;
            };
            Some(PlannedChange {
                namespace: daemon.key.namespace.clone(),
                name: daemon.key.name.clone(),
                action: match request.audience.as_str() {
                    "" => format!("request a token of ServiceAccount {}", request.service_account),
                    audience => format!("request a token of ServiceAccount {} for {audience}", request.service_account),
                },
                reason,
            })
        })
        .collect()
}

/// Images that are pulled for the next instance of a daemon, or cannot be.
pub(super) fn pulls(plan: &Plan, observation: &Observation) -> Vec<PlannedChange> {
    let progress = |daemon: &DaemonPlan| Some(&observation.pulls.progress.get(&daemon.pull.as_ref()?.identity.uid)?.0);
    let change = |daemon: &DaemonPlan| {
        let (action, reason) = pulling(progress(daemon)?)?;
        Some(PlannedChange { namespace: daemon.key.namespace.clone(), name: daemon.key.name.clone(), action, reason })
    };
    plan.daemons.iter().filter_map(change).collect()
}

/// What a pull still has to fetch, and why.
fn pulling(progress: &PullProgress) -> Option<(String, String)> {
    let images = || "pull images".to_owned();
    match progress {
        PullProgress::Pulling { image, number, count, since, .. } => {
            Some((format!("pull image {image}"), format!("{number} of {count} for its next instance, since {since}")))
        }
        PullProgress::Failed { words, .. } => Some((images(), format!("retried: {words}"))),
        PullProgress::Looking(Some(words)) => Some((images(), format!("tried again: {words}"))),
        PullProgress::Looking(None) => Some((images(), "the runtime is asked which ones are there".to_owned())),
        PullProgress::Done(_) => None,
    }
}

/// Files that have changed and do not rest yet, by what they define.
pub(super) fn files(observation: &Observation) -> Vec<PlannedChange> {
    let read = |file: &Arc<FileView>| {
        let daemon_sets = file.daemon_sets.iter().map(|daemon_set| &daemon_set.key);
        let mut keys = daemon_sets.chain(file.objects.iter().map(|(reference, _)| &reference.key));
        Some(keys.next()?.clone()).map(|key| PlannedChange {
            namespace: key.namespace,
            name: key.name,
            action: format!("read {} again", file.path.display()),
            reason: "it has changed, and counts once it is unchanged for one second".to_owned(),
        })
    };
    observation.folders.view.held().filter_map(read).collect()
}

/// What a plan would change for one daemon.
pub(in crate::node::agent) fn of(daemon: &DaemonPlan) -> impl Iterator<Item = PlannedChange> + '_ {
    of_actions(daemon, &daemon.actions)
}

fn of_actions<'a>(daemon: &'a DaemonPlan, actions: &'a [Action]) -> impl Iterator<Item = PlannedChange> + 'a {
    let change = move |action: &Action| {
        let (what, reason) = match action {
            Action::Verify { .. } => return None,
            Action::End { pod, reason, .. } => {
                let file = manifest::file_name(&daemon.key.namespace, pod);
                (format!("remove manifest {file}"), reason.to_string())
            }
            Action::Finish { pod, .. } => {
                (format!("forget instance {pod}"), "it has ended and nothing of it runs any more".to_owned())
            }
            Action::Start { rendering, reason } => {
                let file = manifest::file_name(&daemon.key.namespace, &rendering.identity.pod_name);
                (format!("write manifest {file}"), reason.to_string())
            }
            Action::Refresh { rendering, volumes, manifest, .. } => {
                let what = match (volumes, manifest) {
                    (true, true) => "its data and manifest on disk are out of date",
                    (true, false) => "its data on disk is out of date",
                    _ => "its manifest on disk is out of date",
                };
                (format!("update {} in place", rendering.identity.pod_name), what.to_owned())
            }
            Action::Keep { rendering } => (
                format!("keep the data of {} for a roll-back", rendering.identity.pod_name),
                "its revision is good".to_owned(),
            ),
            Action::CloseGate { pod, .. } => {
                (format!("let {pod} wait at its gate"), daemon.summary.reasons.to_string())
            }
            Action::OpenGate { pod, reason, .. } => (format!("open the gate of {pod}"), reason.to_string()),
            Action::Confirm { reason } => ("ask the API server".to_owned(), reason.to_string()),
        };
        Some(PlannedChange {
            namespace: daemon.key.namespace.clone(),
            name: daemon.key.name.clone(),
            action: what,
            reason,
        })
    };
    actions.iter().filter_map(change)
}

#[cfg(test)]
mod tests {
    use crate::core::identity::Identity;
    use crate::core::model::ObjectKey;
    use crate::core::model::TokenRequest;
    use crate::core::plan::Reason;
    use crate::core::plan::Unseen;
    use crate::core::plan::Withheld;
    use crate::core::record::DaemonRecord;
    use crate::core::record::Instance;
    use crate::core::render::Refused;
    use crate::core::rendering::DataDigests;
    use crate::core::rendering::RenderResult;
    use crate::core::sources::DesiredReason;
    use crate::core::time::at;
    use crate::node::agent::observation::ObservedTokens;
    use crate::node::api::IssuedToken;

    use super::*;

    #[test]
    fn a_token_that_has_expired_or_is_of_a_node_that_is_gone_is_a_change() {
        let request = |life| TokenRequest {
            service_account: ObjectKey::new("a", "sa"),
            audience: String::new(),
            expiration_seconds: life,
        };
        let mut record = DaemonRecord::new(ObjectKey::new("a", "net"), 0);
        record.instances.push(Instance::new("u", "net-x", 0, "r", at(0)));
        let mut daemon = DaemonPlan::new(record);
        daemon.tokens.insert(request(86_400));
        let plan = Plan { daemons: vec![daemon], removals_held: false, ..Plan::default() };
        let reasons = |life: i64, now: i64, node: Option<&str>| -> Vec<String> {
            let (token, node_uid) = ("t".to_owned(), "n".to_owned());
            let (issued, expires) = (at(0), at(60_000));
            let token = IssuedToken { request: request(life), token, issued, expires, node_uid, received: None };
            let tokens = ObservedTokens { issued: Arc::new(vec![token]), ..ObservedTokens::default() };
            let observation = Observation { now: at(now), tokens, ..Observation::default() };
            tokens_of(&plan, &observation, node)
        };
        assert!(reasons(86_400, 59_000, Some("n")).is_empty() && reasons(3607, 59_000, None).is_empty());
        assert_eq!(reasons(3607, 60_000, Some("n")), ["the one in use expired at 1970-01-01T00:01:00Z"]);
        assert_eq!(reasons(86_400, 59_000, Some("m")), ["the one in use is bound to a Node that is gone"]);
    }

    fn tokens_of(plan: &Plan, observation: &Observation, node: Option<&str>) -> Vec<String> {
        tokens(plan, observation, node).into_iter().map(|change| change.reason).collect()
    }

    #[test]
    fn a_revision_that_waits_while_another_runs_is_held() {
        let mut daemon = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", "net"), 0));
        (daemon.summary.state, daemon.summary.reasons) = (State::Running, [Reason::Withheld(Withheld::Paused)].into());
        let of = |daemon: &DaemonPlan| {
            let plan = Plan { daemons: vec![daemon.clone()], removals_held: false, ..Plan::default() };
            held(&plan, true).into_iter().map(|held| (held.reason, held.wanted_revision)).collect::<Vec<_>>()
        };
        assert_eq!(of(&daemon), []);
        daemon.summary.wanted_revision = Some("r2".to_owned());
        let paused = Withheld::Paused.words().to_owned();
        let expected = [(paused, Some("r2".to_owned()))];
        assert_eq!(of(&daemon), expected);
        // An agent that starts looks whether the data is there, which is no change.
        let identity = Identity { uid: "u".to_owned(), pod_name: "net-x".to_owned() };
        let (revision, data, result) = ("r".to_owned(), DataDigests::default(), Err(Refused::default()));
        let rendering = Arc::new(RenderResult { identity, revision, result, data });
        daemon.actions.push(Action::Verify { rendering, kept: Default::default() });
        assert_eq!(of(&daemon), expected);
        (daemon.summary.state, daemon.summary.wanted_revision) = (State::Waiting, None);
        assert_eq!(of(&daemon), [(Withheld::Paused.words().to_owned(), None)]);
        let reason = Reason::Desired(DesiredReason::LabelsIncomplete);
        (daemon.summary.state, daemon.summary.reasons) = (State::Running, [reason.clone()].into());
        assert_eq!(of(&daemon), [(reason.to_string(), None)], "which revision is to run is not known");
    }

    #[test]
    fn what_is_to_be_replaced_is_held_though_its_state_was_not_observed() {
        let mut daemon = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", "net"), 0));
        daemon.summary.state = State::Unknown;
        let is_held = |daemon: &DaemonPlan| {
            !held(&Plan { daemons: vec![daemon.clone()], removals_held: false, ..Plan::default() }, false).is_empty()
        };
        daemon.summary.reasons = [Reason::ReadinessUnknown(Unseen::NotAsked)].into();
        assert!(!is_held(&daemon));
        let mut refused = daemon.clone();
        refused.summary.reasons = [Reason::LabelsUnknown, Reason::ReadinessUnknown(Unseen::NotAsked)].into();
        assert!(is_held(&refused), "its own reason shows without an agent");
        assert!(is_held(&DaemonPlan { asks_runtime: true, ..daemon.clone() }), "such as with the node's former name");
        daemon.summary.wanted_revision = Some("r2".to_owned());
        assert!(is_held(&daemon));
    }

    #[test]
    fn a_pull_is_pending_until_it_is_done() {
        let [image, words] = ["r/a:1", "r/a:1: not found"].map(str::to_owned);
        let since = crate::core::time::Timestamp::default();
        let pending = PullProgress::Pulling { image, present: false, number: 1, count: 2, since };
        let (action, reason) = pulling(&pending).unwrap();
        assert_eq!(action, "pull image r/a:1");
        assert!(reason.starts_with("1 of 2 for its next instance, since "), "{reason}");
        let (_, reason) = pulling(&PullProgress::Looking(Some(words))).unwrap();
        assert_eq!(reason, "tried again: r/a:1: not found");
        assert_eq!(pulling(&PullProgress::Done(None)), None);
    }
}
