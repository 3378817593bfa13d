//! Having the kubelet try again at once, when what a pod failed for has just come back.
//!
//! Owns two facts of timing. The kubelet tries a pod whose sandbox could not be made (no pod network yet) again after
//! 10 to 15 s; a change of the manifest under the same UID makes it try at once. So when a daemon of this node has
//! become ready, or the API server answers again, the manifests of instances without a sandbox get one more annotation
//! for a moment.
//!
//! And a daemon that crashed for want of the API server waits out a back-off that outlasts the outage. The kubelet takes
//! it from the container that ended: with its sandbox removed the same instance starts at once. A new instance would not
//! do: its mirror pod, which flannel asks for, comes only when the kubelet has read from the API server, many seconds
//! later. In the same way the container of a pod that waits at its gate would be in back-off for a container of the
//! boot before: the pod's ended sandboxes are removed while it waits.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::record::DaemonRecord;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Link;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Request;

/// When to try again after a component came back: it needs a moment to set itself up.
const AFTER: [Span; 3] = [Span::from_millis(300), Span::from_millis(1_500), Span::from_secs(4)];
/// While the API server has just come back, it is tried again this often.
const EVERY: Span = Span::from_millis(1_500);
/// How long a manifest keeps the annotation: two changes too close together are one to the kubelet.
const FOR: Span = Span::from_secs(1);
/// How long the return of the API server counts as just now.
const BACK: Span = Span::from_secs(15);
/// A return sooner than this after another is none: a server that ends each connection restarts no sandbox again and again.
const RETURNS_APART: Span = Span::from_secs(30);

/// An API server that comes back refuses what it is asked for so long at most.
const REFUSES: Span = Span::from_secs(3);

/// What is to be tried again, and what has been.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct KubeletResync {
    due: BTreeSet<Timestamp>,
    touched: BTreeMap<String, Touched>,
    ready: BTreeSet<String>,
    /// Instances that were restarted since the API server came back.
    restarted: BTreeSet<String>,
    /// Instances that wait at their gates, each with whether its ended sandboxes have been removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    gated: BTreeMap<String, bool>,
    /// Instances whose gates are open and whose manifests have not been touched since: when that was last tried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    opened: BTreeMap<String, Timestamp>,
    link_was_down: bool,
    api_back: Option<Timestamp>,
}

/// A manifest with the annotation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Touched {
    until: Timestamp,
    /// Digest of the file with the annotation, and of the one without.
    written: String,
    meant: String,
}

/// An instance whose manifest is to be touched.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(in super::super) struct ToTouch {
    pub(in super::super) daemon: ObjectKey,
    pub(in super::super) pod: String,
    pub(in super::super) uid: String,
}

impl KubeletResync {
    /// Notes when the API server comes back after it was seen to be away.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        // A clock that was set back makes nothing wait longer.
        let now = observation.now;
        self.touched.values_mut().for_each(|touched| touched.until = touched.until.min(now + FOR));
        self.due = self.due.iter().map(|due| (*due).min(now + AFTER[AFTER.len() - 1])).collect();
        self.api_back = self.api_back.map(|back| back.min(now));
        let Some(api) = &observation.api else { return };
        match &api.link {
            Link::Down { .. } if self.link_was_down => {}
            Link::Down { failure, .. } => {
                self.link_was_down = true;
                log.warn(format!("the API server is unreachable: {failure}; what runs here goes on running"));
            }
            Link::Up if self.link_was_down && self.api_back.is_none_or(|back| now - back >= RETURNS_APART) => {
                self.link_was_down = false;
                log.info("the API server answers again");
                self.api_back = Some(observation.now);
                self.restarted.clear();
                self.schedule(observation.now);
            }
            Link::Up | Link::Connecting => {}
        }
    }

    /// When the API server came back, if that was just now.
    fn api_back(&self, now: Timestamp) -> Option<Timestamp> {
        self.api_back.filter(|back| now - *back < BACK)
    }

    /// Whether the pods of the runtime are wanted.
    pub(in super::super) fn asks_runtime(&self, now: Timestamp) -> bool {
        self.due.first().is_some_and(|due| *due <= now)
            || self.api_back(now).is_some()
            || self.gated.values().any(|is_cleared| !is_cleared)
    }

    /// When to look again.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        let restore = self.touched.values().map(|touched| touched.until).min();
        let again = self.opened.values().map(|tried| *tried + EVERY).min();
        self.due.first().copied().into_iter().chain(restore).chain(again).min()
    }

    /// The digest that a touched manifest is meant to have, while it is touched.
    pub(in super::super) fn meant(&self, uid: &str, on_disk: &str, now: Timestamp) -> Option<&str> {
        let touched = self.touched.get(uid).filter(|touched| touched.written == on_disk && now < touched.until);
        touched.map(|touched| touched.meant.as_str())
    }

    /// A manifest was touched at `now`: digests of the file with the annotation and without.
    pub(in super::super) fn was_touched(&mut self, uid: &str, written: String, meant: String, now: Timestamp) {
        self.opened.remove(uid);
        self.touched.insert(uid.to_owned(), Touched { until: now + FOR, written, meant });
    }

    fn schedule(&mut self, now: Timestamp) {
        self.due.extend(AFTER.iter().map(|after| now + *after));
    }

    /// The instances whose manifests are to be touched now: those whose gates open, and those without a sandbox.
    pub(in super::super) fn manifests_to_touch(
        &mut self,
        observation: &Observation,
        plan: &Plan,
        records: &Records,
    ) -> Vec<ToTouch> {
        let mut to_touch = self.at_open_gates(observation.now, plan);
        let closed = plan.daemons.iter().filter(|daemon| daemon.record.has_closed_gate(&observation.boot.id));
        let closed = closed.flat_map(|daemon| daemon.record.live()).map(|instance| instance.uid.clone());
        self.gated = closed.map(|uid| (uid.clone(), self.gated.get(&uid).is_some_and(|known| *known))).collect();
        let gates: BTreeSet<String> = to_touch.iter().map(|to_touch| to_touch.uid.clone()).collect();
        let others = self.without_sandbox(observation, plan, records).into_iter();
        to_touch.extend(others.filter(|other| !gates.contains(&other.uid)));
        to_touch
    }

    /// Where a gate opens now, or has opened and the manifest could not be touched.
    fn at_open_gates(&mut self, now: Timestamp, plan: &Plan) -> Vec<ToTouch> {
        let actions = plan.daemons.iter().flat_map(|daemon| &daemon.actions);
        let opens: BTreeSet<&str> = actions
            .filter_map(|action| match action {
                Action::OpenGate { uid, .. } => Some(uid.as_str()),
                _ => None,
            })
            .collect();
        if opens.is_empty() && self.opened.is_empty() {
            return Vec::new();
        }
        let instances = || plan.daemons.iter().flat_map(|d| d.record.live().map(|i| (&d.key, i)));
        let is_due = |tried: &Timestamp| !(*tried..*tried + EVERY).contains(&now);
        let is_wanted = |uid: &str| self.opened.get(uid).map_or_else(|| opens.contains(uid), is_due);
        let mut to_touch: Vec<ToTouch> = instances()
            .filter(|(_, instance)| is_wanted(&instance.uid))
            .map(|(key, i)| ToTouch { daemon: key.clone(), pod: i.pod_name.clone(), uid: i.uid.clone() })
            .collect();
        self.opened.retain(|uid, _| instances().any(|(_, instance)| instance.uid == *uid));
        self.opened.extend(to_touch.iter().map(|to_touch| (to_touch.uid.clone(), now)));
        to_touch.retain(|to_touch| self.touched.get(&to_touch.uid).is_none_or(|touched| now >= touched.until));
        to_touch
    }

    fn without_sandbox(&mut self, observation: &Observation, plan: &Plan, records: &Records) -> Vec<ToTouch> {
        let now = observation.now;
        let ready = self.seen_running(observation, plan);
        let news = !ready.is_subset(&self.ready);
        self.ready = ready;
        let waits = plan.daemons.iter().any(|d| !d.summary.state.runs() && d.record.live().next().is_some());
        if news && waits {
            self.schedule(now);
        }
        self.touched.retain(|_, touched| now < touched.until);
        if self.due.first().is_none_or(|due| *due > now) {
            return Vec::new();
        }
        self.due = self.due.split_off(&(now + Span::from_millis(1)));
        if self.api_back(now).is_some() && waits {
            self.due.insert(now + EVERY);
        }
        if observation.runtime.current().is_none() {
            return Vec::new();
        }
        let alive: BTreeSet<&str> =
            observation.runtime_pods().iter().filter(|p| p.alive).map(|p| p.uid.as_str()).collect();
        let instances = records.values().flat_map(|r| r.live().map(move |i| (r, i)));
        instances
            .filter(|(_, i)| !alive.contains(i.uid.as_str()) && now - i.created > FOR)
            .filter(|(_, i)| !self.touched.contains_key(&i.uid))
            .map(|(r, i)| ToTouch { daemon: r.key.clone(), pod: i.pod_name.clone(), uid: i.uid.clone() })
            .collect()
    }

    /// UIDs of instances that are ready, or have a running container while the API server is behind.
    fn seen_running(&self, observation: &Observation, plan: &Plan) -> BTreeSet<String> {
        let ready = plan.daemons.iter().filter(|d| d.summary.state.runs());
        let mut seen: BTreeSet<String> = ready.map(|d| d.summary.uid.clone()).collect();
        if self.api_back(observation.now).is_some() {
            let running = observation.runtime_pods().iter().filter(|p| p.running_since.is_some());
            seen.extend(running.map(|p| p.uid.clone()));
        }
        seen
    }

    /// Ends crash back-offs of an outage with the outage, and those of an earlier boot: once an instance.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        records: &Records,
        log: &mut Log,
    ) -> Vec<Request> {
        let mut requests = self.at_gates(observation, records);
        requests.extend(self.after_outage(observation, records, log));
        requests
    }

    fn at_gates(&mut self, observation: &Observation, records: &Records) -> Vec<Request> {
        let mut requests = Vec::new();
        for instance in records.values().flat_map(DaemonRecord::live) {
            let Some(is_cleared) = self.gated.get_mut(&instance.uid).filter(|is_cleared| !**is_cleared) else {
                continue;
            };
            let pods = observation.runtime.current().into_iter().flat_map(|pods| pods.iter());
            // The kubelet makes a new sandbox first.
            let pod = pods.into_iter().find(|pod| pod.uid == instance.uid && !pod.sandboxes.is_empty());
            let Some(pod) = pod else { continue };
            *is_cleared = true;
            if !pod.ended_sandboxes.is_empty() {
                let (pod, sandboxes) = (instance.pod_name.clone(), pod.ended_sandboxes.clone());
                requests.push(Request::RestartSandboxes { pod, sandboxes });
            }
        }
        requests
    }

    fn after_outage(&mut self, observation: &Observation, records: &Records, log: &mut Log) -> Vec<Request> {
        let Some(back) = self.api_back(observation.now) else { return Vec::new() };
        // The runtime's last list is old: during an outage it is not asked, and the pod may have started since.
        if observation.runtime_as_of < back {
            return Vec::new();
        }
        // One that has just started refuses for a moment, and a daemon that asks it would crash again.
        if !observation.api_answers() && observation.now - back < REFUSES {
            return Vec::new();
        }
        let mut requests = Vec::new();
        let live = records.values().flat_map(|record| record.live().map(move |instance| (&record.key, instance)));
        for (daemon, instance) in live.filter(|(_, instance)| instance.created < back) {
            let mut pods = observation.runtime_pods().iter();
            let crashed = pods.find(|p| p.uid == instance.uid && p.crashing && p.running_since.is_none());
            let Some(crashed) = crashed.filter(|_| self.restarted.insert(instance.uid.clone())) else { continue };
            let pod = instance.pod_name.clone();
            log.info(format!("restarting {pod}: it was in crash back-off when the API server came back"))
                .daemonset(daemon)
                .pod(&pod);
            requests.push(Request::RestartSandboxes { pod, sandboxes: crashed.sandboxes.clone() });
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use crate::core::plan::Reason;
    use std::sync::Arc;

    use crate::core::knowledge::Knowledge;
    use crate::core::plan::DaemonPlan;
    use crate::core::record::Instance;
    use crate::core::time::at;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::runtime_pods::RuntimePod;
    use crate::node::api::ApiFailure;
    use crate::node::api::FailureKind;
    use crate::node::api::Snapshot;

    use super::*;

    #[test]
    fn only_a_look_after_the_api_server_came_back_shows_who_waits_in_a_crash_back_off() {
        let mut resync = KubeletResync { api_back: Some(at(100)), ..KubeletResync::default() };
        let mut record = DaemonRecord::new(key(), 0);
        record.instances.push(Instance { started: true, ..Instance::new("u", "net-x", 0, "r", at(0)) });
        let records = Records::from([(key(), record)]);
        let crashed = RuntimePod { sandboxes: vec!["s".to_owned()], crashing: true, ..RuntimePod::test("u", true) };
        let runtime = Knowledge::Current(Arc::new(vec![crashed]));
        let mut restarts = |as_of, api: Option<Snapshot>, now| {
            let observation = Observation::of(api, runtime.clone(), now);
            let observation = Observation { runtime_as_of: as_of, ..observation };
            resync.requests(&observation, &records, &mut Log::default()).len()
        };
        let answers = || Some(Snapshot::default());
        assert_eq!(restarts(at(99), answers(), 101), 0, "it may have started since");
        assert_eq!(restarts(at(100), None, 101), 0, "it refuses for a moment");
        assert_eq!(restarts(at(100), answers(), 101), 1);
        assert_eq!(restarts(at(101), answers(), 101), 0, "once an instance");
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_wait_longer() {
        let mut resync = KubeletResync::default();
        resync.was_touched("u", "w".to_owned(), "m".to_owned(), at(5_000));
        resync.schedule(at(5_000));
        let runtime = Knowledge::Current(Arc::new(Vec::new()));
        resync.observe(&Observation::of(None, runtime, 1_000), &mut Log::default());
        assert!(resync.due() <= Some(at(1_000) + FOR), "{:?}", resync.due());
    }

    #[test]
    fn a_server_that_ends_each_connection_comes_back_once_in_a_while() {
        let mut resync = KubeletResync::default();
        let mut returns = |now: i64, is_up: bool| {
            let mut seen = Observation::of(Some(Snapshot::default()), Knowledge::NeverHeard, now);
            if let (Some(api), false) = (&mut seen.api, is_up) {
                let failure = ApiFailure::new(FailureKind::Unreachable, "closed");
                api.link = Link::Down { failure, since: at(now) };
            }
            let mut log = Log::default();
            resync.observe(&seen, &mut log);
            (log.0.len(), resync.api_back == Some(at(now)))
        };
        assert_eq!((returns(0, false), returns(1_000, true)), ((1, false), (1, true)));
        assert_eq!((returns(2_000, false), returns(3_000, true)), ((1, false), (0, false)));
        assert_eq!((returns(4_000, false), returns(30_000, true)), ((0, false), (0, false)));
        assert_eq!(returns(31_000, true), (1, true), "it stays");
    }

    #[test]
    fn a_manifest_that_could_not_be_touched_when_its_gate_opened_is_touched_later() {
        let mut record = DaemonRecord::new(key(), 0);
        record.instances.push(Instance::new("u", "net-x", 0, "r", at(0)));
        let actions = |actions: Vec<Action>| {
            let daemon = DaemonPlan { actions, ..DaemonPlan::new(record.clone()) };
            Plan { daemons: vec![daemon], ..Plan::default() }
        };
        let opens = Action::OpenGate { uid: "u".to_owned(), pod: "net-x".to_owned(), reason: Reason::AgentRestarted };
        let mut resync = KubeletResync::default();
        let touches = |resync: &mut KubeletResync, now: i64, plan: &Plan| {
            let observation = Observation::of(None, Knowledge::NeverHeard, now);
            resync.manifests_to_touch(&observation, plan, &Records::new()).len()
        };
        assert_eq!(touches(&mut resync, 10_000, &actions(vec![])), 0);
        assert_eq!(touches(&mut resync, 10_000, &actions(vec![opens])), 1);
        assert_eq!(touches(&mut resync, 11_000, &actions(vec![])), 0, "not at once");
        assert!(resync.due().is_some_and(|due| due <= at(12_000)));
        assert_eq!(touches(&mut resync, 12_000, &actions(vec![])), 1);
        resync.was_touched("u", "w".to_owned(), "m".to_owned(), at(12_000));
        assert_eq!(touches(&mut resync, 20_000, &actions(vec![])), 0);
    }

    #[test]
    fn what_ended_with_the_boot_before_is_removed_once_while_its_pod_waits_at_its_gate() {
        let mut record = DaemonRecord::new(key(), 0);
        record.instances.push(Instance::new("u", "net-x", 0, "r", at(0)));
        let records = Records::from([(key(), record)]);
        let mut resync = KubeletResync { gated: BTreeMap::from([("u".to_owned(), false)]), ..KubeletResync::default() };
        let mut removed = |standing: &[&str], ended: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (sandboxes, ended_sandboxes) = (names(standing), names(ended));
            let pod = RuntimePod { sandboxes, ended_sandboxes, ..RuntimePod::test("u", true) };
            let observation = Observation::of(None, Knowledge::Current(Arc::new(vec![pod])), 1);
            assert!(resync.asks_runtime(at(1)) || standing.is_empty() || ended.is_empty());
            match &resync.requests(&observation, &records, &mut Log::default())[..] {
                [Request::RestartSandboxes { sandboxes, .. }] => sandboxes.clone(),
                _ => Vec::new(),
            }
        };
        assert!(removed(&[], &["old"]).is_empty(), "the kubelet has not begun yet");
        assert_eq!(removed(&["new"], &["old"]), ["old"]);
        resync.gated.insert("u".to_owned(), true);
        assert!(!resync.asks_runtime(at(1)));
    }
}
