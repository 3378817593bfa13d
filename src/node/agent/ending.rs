//! Whether the end of an instance can be observed, and whether it has ended.
//!
//! Owns the order of evidence. The container runtime, or the kubelet in its place, comes first; the mirror pod comes last. A
//! runtime that does not list what the kubelet runs is another one, and its answers do not count.

use serde_json::Value;

use crate::core::acceptance;
use crate::core::knowledge::Knowledge;
use crate::core::plan::ApiGap;
use crate::core::plan::EndObservable;
use crate::core::plan::Evidence;
use crate::core::plan::GONE_AFTER;
use crate::core::plan::RuntimeGap;
use crate::core::plan::Unobservable;
use crate::core::plan::Unseen;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Span;
use crate::node::api::Scope;

use super::evidence;
use super::observation::Observation;
use super::runtime_pods::RuntimePod;

/// How long a mirror pod counts as evidence that the kubelet still works on a pod that ends.
const LETS_GO: Span = Span::from_secs(15);
/// How long after its grace period an instance counts as gone where time is the only evidence.
const BEYOND_GRACE: Span = Span::from_secs(30);
/// An older list does not show that the runtime can be asked now.
const RECENT: Span = Span::from_secs(10);
/// An older list may have been made before the instance that it lacks.
const FRESH: Span = Span::from_secs(3);

/// The evidence about one instance's end.
pub(super) struct Ends<'a> {
    pub(super) observation: &'a Observation,
    /// Its mirror pod.
    pub(super) mirror: Option<&'a Value>,
    /// Whether the runtime has listed any instance of ours: else it may be another than the kubelet's.
    pub(super) is_kubelets: bool,
    /// Whether the runtime lists none of our instances, though it listed one that is to run, or nothing at all, though it listed
    /// what others run: another one answers.
    pub(super) has_lost_all: bool,
    /// Whether the runtime was asked for this very pass.
    pub(super) has_asked: bool,
    /// How long this process has seen the instance end.
    pub(super) ended_for: Span,
    /// Whether what the API server shows is what the kubelet says now: after an outage it takes a while.
    pub(super) is_api_current: bool,
}

impl Ends<'_> {
    /// Whether an earlier report, or the kubelet, shows containers that the runtime does not list.
    fn is_contradicted(&self) -> bool {
        self.has_lost_all || self.observation.api_answers() && self.mirror.is_some_and(evidence::has_started)
    }

    /// Whether an API server that answers has never shown a mirror pod of an instance that the kubelet had time for.
    fn has_shown_nothing(&self, instance: &Instance) -> bool {
        let observation = self.observation;
        let is_listed = observation.snapshot().is_some_and(|api| api.lists(&Scope::Pods) > 0);
        let had_time = observation.now - instance.created >= acceptance::BOUND;
        let is_current = observation.api_answers() && self.is_api_current;
        is_current && is_listed && had_time && self.mirror.is_none() && !instance.started && !instance.listed
    }

    /// Whether the runtime can say of `instance` that nothing of it runs.
    fn believes_runtime(&self, instance: &Instance) -> bool {
        match instance.phase {
            _ if instance.listed => !self.has_lost_all,
            Phase::Ending { confirmed_by: EndConfirmation::NotAccepted, .. } => true,
            Phase::Ending { confirmed_by: EndConfirmation::ByRuntime, .. } => !self.is_contradicted(),
            // The kubelet has shown containers of it, and this runtime never has: what it lists proves nothing when the mirror pod goes.
            Phase::Ending { .. } if instance.started && instance.created >= self.observation.boot.at => false,
            _ => self.is_kubelets && !self.is_contradicted(),
        }
    }
}

/// Whether the runtime lists none of our `instances`, though it listed one that is to run, or was to run when it had
/// `before`.
pub(super) fn has_lost_all<'a>(
    observation: &Observation,
    mut instances: impl Iterator<Item = &'a Instance> + Clone,
    before: bool,
) -> bool {
    if !matches!(observation.runtime, Knowledge::Current(_)) {
        return before;
    }
    let has_listed = before || instances.clone().any(|instance| instance.listed && instance.phase == Phase::Live);
    has_listed && !instances.any(|instance| observation.runtime_pod(&instance.uid).is_some())
}

/// Whether the runtime has pods of others that run. `before`: whether it last had. An empty list says nothing: what has ended is
/// listed for some time, so another runtime made it.
pub(super) fn runs_others<'a>(
    observation: &Observation,
    instances: impl Iterator<Item = &'a Instance> + Clone,
    before: bool,
) -> bool {
    let is_other = |pod: &RuntimePod| pod.alive && !instances.clone().any(|instance| instance.uid == pod.uid);
    match observation.runtime_pods() {
        [] => before,
        pods => pods.iter().any(is_other),
    }
}

/// Whether the runtime lists no pod at all, though others ran when it last listed any: another one answers.
pub(super) fn has_lost_others(observation: &Observation, runs_others: bool) -> bool {
    runs_others && matches!(&observation.runtime, Knowledge::Current(pods) if pods.is_empty())
}

/// Whether it can be observed when `instance`, which runs, has ended. `not_accepted`: the kubelet did not accept it.
pub(super) fn end_observable(instance: &Instance, not_accepted: bool, ends: &Ends<'_>) -> EndObservable {
    let observation = ends.observation;
    if observation.is_before_kubelet && !observation.run_in_this_boot.contains(&instance.uid) {
        return EndObservable::By(EndConfirmation::NeverStarted);
    }
    if not_accepted {
        return EndObservable::By(EndConfirmation::NotAccepted);
    }
    let age = observation.now - observation.runtime_as_of;
    let is_old = match instance.listed {
        true => age > RECENT,
        false => age > FRESH || observation.runtime_as_of < instance.created,
    };
    let is_seen = observation.runtime_pod(&instance.uid).is_some() || instance.listed && !ends.is_contradicted();
    let runtime = match &observation.runtime {
        Knowledge::Current(_) if is_old && !ends.has_asked => return EndObservable::AskRuntime,
        Knowledge::Current(_) if is_seen => return EndObservable::By(EndConfirmation::Reported),
        Knowledge::Current(_) if ends.believes_runtime(instance) && !ends.is_contradicted() => {
            return EndObservable::By(EndConfirmation::ByRuntime);
        }
        Knowledge::Current(_) => RuntimeGap::NotListed,
        Knowledge::NeverHeard | Knowledge::Remembered(..) => return EndObservable::AskRuntime,
        Knowledge::Unreadable(_) => RuntimeGap::NoAnswer,
        Knowledge::Absent(_) => RuntimeGap::NotConfigured,
    };
    let api = match &observation.api {
        Some(_) if observation.api_answers() && ends.mirror.is_some() => {
            return EndObservable::By(EndConfirmation::Reported);
        }
        // What the kubelet runs it shows, or it has rejected it: what it may have begun has its grace period.
        Some(_) if ends.has_shown_nothing(instance) => return EndObservable::By(EndConfirmation::ByTime),
        Some(_) if observation.api_answers() => ApiGap::NoMirrorPod,
        Some(_) => ApiGap::NoAnswer,
        None => ApiGap::NotConfigured,
    };
    EndObservable::No(Unobservable { runtime, api })
}

/// Whether anything of an instance that ends still runs.
///
/// The mirror pod is the last evidence: gone for longer than the kubelet's housekeeping period, and for the pod's whole
/// grace period, as it is not known who deleted it.
pub(super) fn sandbox(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let Phase::Ending { since, boot, confirmed_by, .. } = &instance.phase else { return Evidence::Running };
    let today = &observation.boot.id;
    // Nothing outlives a boot.
    if *confirmed_by == EndConfirmation::NeverStarted || !boot.is_empty() && !today.is_empty() && boot != today {
        return Evidence::Gone;
    }
    let waited = observation.now - *since;
    match &observation.runtime {
        Knowledge::Current(_) if ends.believes_runtime(instance) => match observation.runtime_pod(&instance.uid) {
            Some(pod) if pod.alive => Evidence::Running,
            // A report from before its end may be older than its sandbox.
            _ if *since > observation.runtime_as_of => Evidence::Unknown(Unseen::OlderList),
            // A sandbox that is being made is in no list yet: the kubelet drops the mirror pod when it is done.
            _ if !instance.started && waited < LETS_GO && ends.mirror.is_some() => Evidence::Unknown(Unseen::MayStart),
            _ => Evidence::Gone,
        },
        Knowledge::NeverHeard | Knowledge::Remembered(..) => {
            Evidence::Unknown(evidence::why_unknown(&observation.runtime))
        }
        Knowledge::Current(_) | Knowledge::Unreadable(_) | Knowledge::Absent(_) => by_mirror(instance, ends),
    }
}

fn by_mirror(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let is_listed = observation.snapshot().is_some_and(|api| api.lists(&Scope::Pods) > 0);
    // An absent mirror pod is no evidence if the API server does not answer now, or if the runtime has listed the instance and
    // its mirror pod was never seen.
    let is_shown = instance.mirror.is_some() || !instance.listed;
    let absence_counts = observation.api_answers() && is_shown;
    // Counted over restarts of the agent, because the API server is the evidence.
    let waited = instance.phase.since().map_or(Span::ZERO, |since| observation.now - since);
    match (is_listed, ends.mirror) {
        (true, Some(_)) => Evidence::Running,
        (true, None) if absence_counts => waited_out(waited, evidence::grace_period(instance) + GONE_AFTER),
        _ => by_time(instance, ends),
    }
}

/// Where neither a runtime nor an API server is configured: the grace period and some more, by the steady clock. Else
/// the runtime or the API server is waited for.
fn by_time(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let is_alone = matches!(observation.runtime, Knowledge::Absent(_)) && observation.api.is_none();
    let is_timed = is_alone
        || matches!(
            instance.phase,
            Phase::Ending { confirmed_by: EndConfirmation::ByTime | EndConfirmation::NotAccepted, .. }
        );
    match (&observation.runtime, is_timed) {
        (_, true) => waited_out(ends.ended_for, evidence::grace_period(instance) + BEYOND_GRACE),
        (Knowledge::Unreadable(why), _) => Evidence::Unknown(Unseen::Unreadable(why.clone())),
        (Knowledge::Current(_), _) if ends.has_lost_all => Evidence::Unknown(Unseen::RuntimeLostAll),
        (Knowledge::Current(_), _) => Evidence::Unknown(Unseen::NeverListed),
        _ => Evidence::Unknown(Unseen::NoSource),
    }
}

fn waited_out(waited: Span, grace: Span) -> Evidence {
    match waited >= grace {
        true => Evidence::Gone,
        // In whole seconds: a plan that is the same but for a moment is the same.
        false => Evidence::Unknown(Unseen::GracePeriod(Span::from_secs((grace - waited).as_secs_ceil()))),
    }
}

#[cfg(test)]
mod tests;
