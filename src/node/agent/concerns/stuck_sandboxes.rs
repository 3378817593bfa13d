//! Sandboxes of instances that have to end and that no kubelet ends.
//!
//! Owns when the agent stops a sandbox itself, and that it is never another's: only UIDs that the records name as ending
//! or ended count. A kubelet that was started without an API server removes nothing until it has read from one
//! (`deletePod`: "sources aren't ready yet"), and one that sees a manifest go at that time skips the deletion for good.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::health::ContainerFact;
use crate::core::health::Does;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::evidence;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;

/// An instance that is to end and of which no container runs is left to the kubelet for this long.
const EMPTY: Span = Span::from_secs(1);
/// So long after its grace period an instance still runs only if no kubelet ends it.
const AFTER_GRACE: Span = Span::from_secs(10);

/// What has been done about sandboxes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct StuckSandboxes {
    /// Sandboxes that are being stopped.
    stopping: BTreeSet<String>,
    /// When the API server was last known to answer.
    api_last_answer: Option<Timestamp>,
    api_answered: bool,
}

/// What is known of the kubelet while an instance is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KubeletView {
    /// It is at work and does not end the instance.
    forgot: bool,
    /// It was started after the API server last answered, and ends nothing before it has read from it.
    unsynced: bool,
    /// Whether the API server answers.
    api_answers: bool,
}

/// Why a sandbox is not left to the kubelet.
fn verdict(instance: &Instance, runs: bool, waited: Span, kubelet: KubeletView) -> Option<&'static str> {
    let grace = evidence::grace_period(instance);
    match () {
        () if waited < EMPTY => None,
        () if !runs => Some("none of its containers runs"),
        () if kubelet.forgot => Some("the kubelet does not end it"),
        () if kubelet.unsynced => Some("the kubelet ends nothing before it has read from the API server"),
        () if !kubelet.api_answers && waited >= grace + AFTER_GRACE => {
            Some("its grace period is over and the kubelet does not end it")
        }
        () => None,
    }
}

impl StuckSandboxes {
    /// Follows when the API server answers, and reports what failed.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records, log: &mut Log) {
        let answers = observation.api_answers();
        if answers || self.api_answered {
            // A kubelet may have read from the API server until the moment at which it was found to be away.
            self.api_last_answer = Some(observation.now);
        }
        self.api_answered = answers;
        for reply in &observation.replies {
            if let Reply::SandboxesNotStopped { pod, why } = reply {
                let is_it = |instance: &Instance| instance.pod_name == *pod;
                let has_it =
                    |record: &DaemonRecord| record.ended.contains_key(pod) || record.instances.iter().any(is_it);
                log.warn(format!("a sandbox of {pod} is not stopped: {why}")).daemonset_of(records, has_it).pod(pod);
            }
        }
    }

    /// Whether the start of the kubelet matters: an instance is to end, and the API server is away.
    pub(in super::super) fn asks_for_kubelet_start(&self, records: &Records) -> bool {
        !self.api_answered && records.values().any(|record| record.ending().next().is_some())
    }

    /// The sandboxes to stop: of instances that are to end, where the kubelet does not. `started`: when the agent was.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        plan: &Plan,
        records: &Records,
        started: Timestamp,
        log: &mut Log,
    ) -> Vec<Request> {
        let now = observation.now;
        let api = observation.snapshot().filter(|_| observation.api_answers());
        let answered = observation.boot.present(self.api_last_answer.map_or(started, |last| last.max(started)), now);
        let unsynced = api.is_none() && observation.kubelet_started.is_some_and(|kubelet| kubelet > answered);
        let mut requests = Vec::new();
        let mut standing = BTreeSet::new();
        let mut stop = |pod: &str, uid: &str, sandboxes: &[String], grace: Span| {
            let news = sandboxes.iter().any(|id| !self.stopping.contains(id));
            standing.extend(sandboxes.iter().cloned());
            if news {
                let (pod, uid, sandboxes) = (pod.to_owned(), uid.to_owned(), sandboxes.to_vec());
                requests.push(Request::StopSandboxes { pod, uid, sandboxes, grace });
            }
            news
        };
        for (daemon, instance) in plan.ended_manifests() {
            let waited = now - instance.phase.since().unwrap_or(now);
            let pods = observation.runtime_pods().iter();
            for pod in pods.filter(|p| p.uid == instance.uid && !p.sandboxes.is_empty()) {
                let forgot = evidence::is_forgotten(instance, api, waited);
                let kubelet = KubeletView { forgot, unsynced, api_answers: api.is_some() };
                let may_run = |container: &ContainerFact| matches!(container.does, Does::Runs | Does::Unknown);
                let runs = pod.running_since.is_some() || pod.fact.containers.iter().any(may_run);
                let Some(why) = verdict(instance, runs, waited, kubelet) else { continue };
                let grace = evidence::grace_period(instance).max(Span::from_secs(1));
                if stop(&instance.pod_name, &instance.uid, &pod.sandboxes, grace) {
                    let pod = &instance.pod_name;
                    log.info(format!("stopping the sandbox of {pod}: it is to end and {why}"))
                        .daemonset(&daemon.key)
                        .pod(pod);
                }
            }
        }
        let ended = records.values().flat_map(|r: &DaemonRecord| r.ended.keys().map(move |uid| (uid, &r.key)));
        let ended: BTreeMap<&String, &ObjectKey> = ended.collect();
        for pod in observation.runtime_pods().iter().filter(|p| !p.sandboxes.is_empty()) {
            let Some(daemon) = ended.get(&pod.uid) else { continue };
            if observation.manifests.current().is_some_and(|scan| scan.has(&pod.uid)) {
                continue;
            }
            if stop(&pod.uid, &pod.uid, &pod.sandboxes, Span::from_secs(1)) {
                log.warn(format!("stopping a sandbox of an instance that has ended (UID {})", pod.uid))
                    .daemonset(daemon);
            }
        }
        if observation.runtime.current().is_some() {
            self.stopping = standing;
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use crate::core::time::ms;

    use super::*;

    #[test]
    fn a_sandbox_is_left_to_the_kubelet_while_it_may_be_ending_it() {
        let instance = Instance::new("u", "p", 0, "", at(0));
        let grace = Span::from_secs(30);
        let stops = |runs, waited, kubelet| verdict(&instance, runs, waited, kubelet).is_some();
        let in_touch = KubeletView { api_answers: true, ..KubeletView::default() };
        let away = KubeletView::default();
        assert!(!stops(false, EMPTY - ms(1), in_touch), "it has only begun");
        assert!(stops(false, EMPTY, in_touch), "an empty sandbox");
        assert!(!stops(true, grace + AFTER_GRACE, in_touch), "the kubelet reads from the API server");
        assert!(stops(true, EMPTY, KubeletView { unsynced: true, ..away }), "a kubelet that has never read from it");
        assert!(!stops(true, grace + AFTER_GRACE - ms(1), away), "it may be ending it");
        assert!(stops(true, grace + AFTER_GRACE, away));
        assert!(stops(true, EMPTY, KubeletView { forgot: true, ..in_touch }));
    }
}
