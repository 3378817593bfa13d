//! Whether the kubelet has accepted instances.
//!
//! Owns the questions: to the runtime, the kubelet and the API server's events, and only while an instance is late; and
//! what shows that the kubelet is at work: that it answers, that it makes a sandbox. A Node that others report as Ready is
//! no such sign. `crate::core::acceptance` decides what follows.

mod tried;
mod unread;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::hash::Hasher;

use serde_json::Value;

use crate::config::Config;
use crate::core::acceptance;
use crate::core::acceptance::AcceptanceEvidence;
use crate::core::acceptance::KubeletReport;
use crate::core::acceptance::LATE;
use crate::core::acceptance::SOON;
use crate::core::insufficient::Lack;
use crate::core::plan::Accepted;
use crate::core::plan::Fingerprints;
use crate::core::plan::Unseen;
use crate::core::record::DaemonRecord;
use crate::core::record::Fingerprint;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::evidence;
use super::super::evidence::room::NodeRoom;
use super::super::evidence::this_boot;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Late;
use super::super::requests::LateAnswer;
use super::super::requests::Reply;
use super::super::requests::Request;
use super::super::runtime_pods::RuntimePod;

use tried::TriedSurroundings;

/// How soon the node's own components are asked again about an instance that is still late; from the third time on
/// half as often. The API server is asked when [`acceptance::ask_again`] says so.
const ASK_AGAIN: Span = Span::from_secs(5);

/// What is known of the container runtime that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum RuntimeChoice {
    /// It has listed a pod of ours, or the configuration names it.
    OfKubelet,
    /// Its socket was guessed, or it lists nothing of what it listed before: the kubelet may use another.
    Found,
}

impl RuntimeChoice {
    /// By what it `has_listed` for this process, and for those before it in this boot.
    pub(in super::super) fn of(has_listed: bool, records: &Records, config: &Config) -> Self {
        let listed = || records.values().flat_map(|record| &record.instances).any(|instance| instance.listed);
        if has_listed || !config.is_runtime_guessed() || listed() { Self::OfKubelet } else { Self::Found }
    }
}

/// What is known of instances that may not have been accepted.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Acceptance {
    /// Whether the runtime that is asked is the kubelet's.
    #[serde(default)]
    is_kubelets: bool,
    /// Instances whose mirror pod or sandbox has been seen in this boot.
    seen: BTreeSet<String>,
    /// What follows, by pod UID, for this pass.
    accepted: BTreeMap<String, Accepted>,
    /// When manifests of instances were last ones that the kubelet cannot read, by pod UID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unread: BTreeMap<String, Timestamp>,
    /// When a component was last asked, and how often by then.
    asked: Option<(Timestamp, u32)>,
    /// When the API server was last asked about an instance, by pod UID.
    asked_api: BTreeMap<String, Timestamp>,
    /// What it last had as events of them.
    events: BTreeMap<String, KubeletReport>,
    answer: Option<LateAnswer>,
    question: Option<Request>,
    next: Option<Timestamp>,
    #[serde(deserialize_with = "Fingerprint::or_unknown")]
    surroundings: Fingerprint,
    /// Instances that have not been accepted, by pod UID.
    #[serde(default)]
    tried: BTreeMap<String, TriedSurroundings>,
    /// Those of them that are asked about before they are late.
    #[serde(default)]
    early: BTreeSet<String>,
    /// Since when the kubelet has been seen at work, while an instance is late.
    at_work: Option<Span>,
    /// When it was last seen at work.
    #[serde(default)]
    last_at_work: Option<Span>,
    /// Whether it reported that itself.
    #[serde(default)]
    says_itself: bool,
    /// The last sign of life that it left: the sandboxes that it has made.
    #[serde(default)]
    sandboxes: Option<BTreeSet<String>>,
    /// Since when the API server has answered, if it does.
    #[serde(default)]
    answers_since: Option<Span>,
}

impl Acceptance {
    /// Whether the kubelet has accepted an instance.
    pub(in super::super) fn of(&self, instance: &Instance) -> Accepted {
        self.accepted.get(&instance.uid).cloned().unwrap_or(Accepted::NotYet)
    }

    /// A fingerprint of what the kubelet's admission depends on; unknown while it does not matter.
    pub(in super::super) fn surroundings(&self) -> &Fingerprint {
        &self.surroundings
    }

    /// What the kubelet's admission of `instance` depends on; unknown if it has accepted it.
    pub(in super::super) fn surroundings_of(&self, instance: &Instance) -> Fingerprints<'_> {
        self.tried.get(&instance.uid).map_or(Fingerprints::UNKNOWN, TriedSurroundings::fingerprints)
    }

    /// When to look again.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next
    }

    /// The question about instances that are late, if it is due.
    pub(in super::super) fn requests(&self) -> Vec<Request> {
        self.question.iter().cloned().collect()
    }

    /// Judges every live instance. `started`: when the agent was.
    pub(in super::super) fn observe(
        &mut self,
        observation: &Observation,
        records: &Records,
        started: Timestamp,
        runtime: RuntimeChoice,
        node: &str,
    ) {
        self.is_kubelets = runtime == RuntimeChoice::OfKubelet;
        let (now, booted) = (observation.now, observation.boot.at);
        let started = observation.boot.present(started, now);
        self.question = None;
        // A new connection may follow an outage that was too short to be noticed: the kubelet has lost its own, too.
        let answers = observation.api_answers() && !observation.api.as_ref().is_some_and(|api| api.is_former);
        self.answers_since = answers.then(|| self.answers_since.unwrap_or(observation.steady));
        self.take_answers(observation);
        let live: Vec<(&DaemonRecord, &Instance)> =
            records.values().flat_map(|r| r.live().filter(|i| !i.orphaned).map(move |i| (r, i))).collect();
        let uids: BTreeSet<&str> = live.iter().map(|(_, i)| i.uid.as_str()).collect();
        self.seen.retain(|uid| uids.contains(uid.as_str()));
        self.tried.retain(|uid, _| uids.contains(uid.as_str()));
        self.unread.retain(|uid, _| uids.contains(uid.as_str()));
        let (mut accepted, mut late) = (BTreeMap::new(), Vec::new());
        let mut pressing: Option<Span> = None;
        let mut room: Option<(Option<NodeRoom<'_>>, Fingerprint)> = None;
        self.next = None;
        for (record, instance) in live {
            let since = instance.created.max(booted).max(started).max(self.read_since(instance, observation));
            let age = now - since;
            let evidence = self.evidence(record, instance, since, observation, node);
            if evidence.seen {
                self.seen.insert(instance.uid.clone());
                self.tried.remove(&instance.uid);
                self.early.remove(&instance.uid);
            } else {
                // The view of an API server that does not answer now says nothing about what has ended since.
                let room_now = || NodeRoom::of(observation, node).filter(|_| observation.api_answers());
                let (room, others) = room.get_or_insert_with(|| (room_now(), self.fingerprint(observation)));
                let lacks = room.as_ref().map(|room| room.lacks(&record.key, instance));
                let pause = self.ask_early(record, instance, age, lacks.as_deref(), others);
                pressing = pressing.into_iter().chain(pause).min();
                if age >= LATE || self.early.contains(&instance.uid) {
                    let (uid, namespace) = (instance.uid.clone(), record.key.namespace.clone());
                    let begun = observation.steady - age;
                    let waited = observation.steady - begun.max(self.at_work.unwrap_or(begun));
                    late.push(Late { uid, namespace, pod: instance.pod_name.clone(), waited });
                } else {
                    let is_in_doubt = self.tried.get(&instance.uid).is_some_and(|tried| tried.is_in_doubt(record));
                    self.look_at(since + if is_in_doubt { SOON } else { LATE });
                }
            }
            accepted.insert(instance.uid.clone(), acceptance::judge(age, &evidence));
        }
        self.accepted = accepted;
        self.early.retain(|uid| self.tried.contains_key(uid));
        let waits = |r: &DaemonRecord| r.backoff.is_some() || r.instances.iter().any(|i| i.noted.is_some());
        let matters = !late.is_empty() || records.values().any(waits);
        self.surroundings = if matters { self.fingerprint(observation) } else { Fingerprint::Unknown };
        if late.is_empty() {
            (self.answer, self.asked) = (None, None);
            (self.at_work, self.last_at_work, self.says_itself) = (None, None, false);
            self.sandboxes = None;
            self.asked_api.clear();
            self.events.clear();
            return;
        }
        let times = self.asked.map_or(0, |(_, times)| times);
        let usual = ASK_AGAIN * if times > 1 { 2 } else { 1 };
        let pause = pressing.unwrap_or(usual);
        // A clock that was set back makes nothing wait longer.
        self.asked = self.asked.map(|(asked, times)| (asked.min(now), times));
        let due = self.asked.map_or(now, |(asked, _)| asked + pause);
        if due <= now {
            // An early question makes no other instance late.
            let is_late = late.iter().any(|late| !self.early.contains(&late.uid));
            self.asked = Some((now, times + u32::from(is_late)));
            self.question = Some(self.ask(late, times, observation));
        }
        match pressing {
            Some(pause) => self.look_at(if due <= now { now + pause } else { due }),
            None => self.look_at(due.max(now) + ASK_AGAIN),
        }
    }

    /// Notes the surroundings of an instance that shows no sign, and how soon it is asked about again because the
    /// node has, or had, too little of something for it.
    fn ask_early(
        &mut self,
        record: &DaemonRecord,
        instance: &Instance,
        age: Span,
        lacks: Option<&[Lack]>,
        others: &Fingerprint,
    ) -> Option<Span> {
        let tried = self.tried.entry(instance.uid.clone()).or_insert_with(|| TriedSurroundings::new(lacks, others));
        tried.update(lacks, others);
        let has_new_room = tried.has_new_room();
        if !has_new_room && (age < SOON || !tried.is_in_doubt(record)) {
            return None;
        }
        self.early.insert(instance.uid.clone());
        // Once a restart is ordered, the cause is known, and the rest is not urgent.
        if instance.restart.is_some() || age >= LATE {
            return None;
        }
        Some(if has_new_room { SOON } else { (age / 2).clamp(SOON, ASK_AGAIN) })
    }

    fn take_answers(&mut self, observation: &Observation) {
        for reply in &observation.replies {
            let Reply::LateAnswered(answer) = reply else { continue };
            for (uid, words) in &answer.events {
                match words {
                    Some(words) => drop(self.events.insert(uid.clone(), words.clone())),
                    None => drop(self.events.remove(uid)),
                }
            }
            self.asked_api.retain(|uid, _| !answer.unanswered.contains(uid));
            match answer.kubelet_answers {
                true => self.is_at_work(observation.steady),
                // It answered before and does not now: its answer may be outdated.
                false if self.says_itself => (self.at_work, self.last_at_work) = (None, None),
                false => {}
            }
            self.says_itself = answer.kubelet_answers;
            if let Some(Ok(sandboxes)) = &answer.sandboxes {
                let before = self.sandboxes.replace(sandboxes.clone());
                if before.is_some_and(|before| !sandboxes.is_subset(&before)) {
                    self.is_at_work(observation.steady);
                }
            }
            self.answer = Some(answer.clone());
        }
    }

    /// The kubelet is seen at work now, by the steady clock: one that is set makes it no longer.
    fn is_at_work(&mut self, now: Span) {
        self.at_work.get_or_insert(now);
        self.last_at_work = Some(now);
    }

    fn look_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn evidence(
        &self,
        record: &DaemonRecord,
        instance: &Instance,
        since: Timestamp,
        observation: &Observation,
        node: &str,
    ) -> AcceptanceEvidence {
        let uid = &instance.uid;
        let answer = self.answer.as_ref().filter(|answer| answer.about.contains(uid));
        let sandboxes = answer.and_then(|answer| answer.sandboxes.as_ref());
        let api = observation.snapshot();
        let mirror = api.and_then(|api| evidence::mirror(api, &record.key.namespace, instance, node));
        let begun = observation.steady - (observation.now - since);
        let at_work = self.at_work.zip(self.last_at_work).map(|(first, last)| last - first.max(begun));
        // The API server shows the mirror pod of an earlier boot until the kubelet changes it, and no new one appears.
        let is_new =
            |mirror: &Value| instance.created >= observation.boot.at || this_boot::shows_work(mirror, observation);
        // A sandbox of an earlier boot, or from before the manifest, is no evidence.
        let born = instance.created.max(observation.boot.at);
        let is_its = |made: Timestamp| observation.boot.present(made, observation.now) >= born;
        let made = |pod: &RuntimePod| pod.alive || pod.fact.sandboxes.iter().any(|sandbox| is_its(sandbox.made));
        let spec = instance.daemon_set.as_ref().and_then(|d| d.pod_template().get("spec"));
        let host_network = spec.and_then(|s| s.get("hostNetwork")) == Some(&Value::Bool(true));
        AcceptanceEvidence {
            seen: self.seen.contains(uid)
                || (instance.started && instance.created >= observation.boot.at)
                || mirror.is_some_and(is_new)
                || observation.runtime_pod(uid).is_some_and(made)
                || matches!(sandboxes, Some(Ok(pods)) if pods.contains(uid))
                || answer.and_then(|answer| answer.fallen.get(uid)).is_some_and(|made| is_its(*made)),
            asked: answer.is_some(),
            no_runtime_view: match sandboxes {
                Some(Ok(_)) if self.is_kubelets => None,
                // It has not accepted what it does not list.
                _ if answer.is_some_and(|answer| answer.lists_pods) => None,
                Some(Ok(_)) => Some(Unseen::AnotherRuntime),
                Some(Err(why)) => Some(Unseen::Unreadable(why.clone().into())),
                None => Some(Unseen::NoSandboxes),
            },
            report: answer.and_then(|answer| answer.words.get(uid).or_else(|| self.events.get(uid)).cloned()),
            at_work,
            no_network: !host_network && answer.and_then(|answer| answer.network_ready) != Some(true),
            api_answered: self.answers_since.filter(|_| mirror.is_none()).map(|since| observation.steady - since),
        }
    }

    /// What admission depends on beside the pod: the other pods, and what the Node is. Of what the API shows, and where
    /// that is not current of the runtime's sandboxes.
    fn fingerprint(&self, observation: &Observation) -> Fingerprint {
        let mut hasher = std::hash::DefaultHasher::new();
        match observation.snapshot().filter(|_| observation.api_answers()) {
            Some(api) => {
                for (key, entry) in &api.pods {
                    let text = |pointer: &str| entry.value.pointer(pointer).and_then(Value::as_str);
                    if !matches!(text("/status/phase"), Some("Failed" | "Succeeded")) {
                        (key, text("/metadata/uid")).hash(&mut hasher);
                    }
                }
                for pointer in ["/metadata/labels", "/spec/taints", "/status/allocatable"] {
                    let value = api.node.as_ref().and_then(|node| node.value.pointer(pointer));
                    value.map(Value::to_string).hash(&mut hasher);
                }
                Fingerprint::OfApi(hasher.finish())
            }
            None => {
                let answer = self.answer.as_ref().and_then(|answer| answer.sandboxes.as_ref());
                let Some(Ok(sandboxes)) = answer else { return Fingerprint::Unknown };
                sandboxes.hash(&mut hasher);
                Fingerprint::OfRuntime(hasher.finish())
            }
        }
    }

    /// The question, after `times` others.
    fn ask(&mut self, late: Vec<Late>, times: u32, observation: &Observation) -> Request {
        let now = observation.now;
        let is_late = |uid: &String| late.iter().any(|late| late.uid == *uid);
        self.events.retain(|uid, _| is_late(uid));
        self.asked_api.retain(|uid, _| is_late(uid));
        let is_due = |late: &&Late| {
            if self.early.contains(&late.uid) && late.waited < LATE {
                return true;
            }
            let asked = self.asked_api.get(&late.uid);
            let answered = self.answers_since.map_or(late.waited, |since| late.waited.min(observation.steady - since));
            asked.is_none_or(|asked| !(Span::ZERO..acceptance::ask_again(answered)).contains(&(now - *asked)))
        };
        // An API server that does not let pods be read may still have the kubelet's events.
        let is_linked = observation.is_linked();
        let ask_api: Vec<Late> = late.iter().filter(|late| is_linked && is_due(late)).cloned().collect();
        self.asked_api.extend(ask_api.iter().map(|late| (late.uid.clone(), now)));
        Request::AskAboutLate { late, ask_api, look_for_preemption: times > 0, at: now }
    }
}

#[cfg(test)]
mod tests;
