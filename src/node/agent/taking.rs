//! Asking about instances that the kubelet may not have taken.
//!
//! Owns the questions: to the runtime, the kubelet, and the API's events, and only while an instance is
//! late. Must not judge: `crate::core::taken` does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use crate::core::model::ObjectKey;
use crate::core::plan::Taken;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Millis;
use crate::core::taken;
use crate::core::taken::LATE;
use crate::core::taken::Witnesses;
use crate::core::taken::Words;
use crate::node::api::PodEvent;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::cri::Cri;
use crate::node::cri::SandboxState;

use super::Agent;
use super::apply;
use super::evidence;
use super::evidence::Runtime;
use super::inbox::Inbox;
use super::now;

/// How soon the node's own witnesses are asked again about an instance that is still late; from the third time on
/// half as often. The API is asked when [`taken::ask_again`] says so.
const ASK_AGAIN: Millis = 5_000;
/// How long the kubelet may take to end lesser pods after it last said so.
const MAKES_ROOM: Millis = 120_000;
/// A Node turns NotReady at the latest so long after its kubelet went.
const NODE_LAGS: Millis = 60_000;
/// Where a kubelet says that it is at work (its default `healthzBindAddress` and `healthzPort`).
const HEALTHZ: &str = "127.0.0.1:10248";

/// What is known of instances that may not have been taken.
#[derive(Default)]
pub(super) struct Taking {
    /// Instances whose mirror pod or sandbox has been seen in this boot.
    seen: BTreeSet<String>,
    /// What follows, by pod UID, for this pass.
    words: BTreeMap<String, Taken>,
    /// When somebody was last asked, and how often by then.
    asked: Option<(Millis, u32)>,
    /// When the API was last asked about an instance, by pod UID.
    asked_api: BTreeMap<String, Millis>,
    /// What it last had as events of them.
    told: BTreeMap<String, Words>,
    answer: Option<Answer>,
    inbox: Inbox<Answer>,
    next: Option<Millis>,
    surroundings: String,
    /// Since when the kubelet has been seen at work, while somebody is late.
    at_work: Option<Millis>,
}

/// What everybody said.
#[derive(Default)]
struct Answer {
    /// Pods with a sandbox; or why nobody can say.
    sandboxes: Option<Result<BTreeSet<String>, String>>,
    network_ready: Option<bool>,
    kubelet_answers: bool,
    /// The kubelet's own words, by pod UID.
    words: BTreeMap<String, Words>,
    /// What the API has as events, of those that it was asked about this time; and those for which it gave no answer.
    told: BTreeMap<String, Option<Words>>,
    unanswered: BTreeSet<String>,
    /// The instances that were asked about.
    about: BTreeSet<String>,
}

impl Taking {
    /// Whether the kubelet has taken an instance.
    pub(super) fn word(&self, instance: &Instance) -> Taken {
        self.words.get(&instance.uid).cloned().unwrap_or(Taken::NotYet)
    }

    /// A fingerprint of what admission depends on; empty while nobody needs it.
    pub(super) fn surroundings(&self) -> &str {
        &self.surroundings
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Millis> {
        self.next
    }
}

/// An instance that is asked about.
struct Late {
    uid: String,
    namespace: String,
    pod: String,
    /// For how long the kubelet has had it.
    waited: Millis,
}

impl Agent {
    /// Follows whether instances have been taken; asks about those that are late.
    pub(super) fn follow_taking(&mut self, records: &BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) {
        let at = now();
        for mut answer in self.taking.inbox.take() {
            for (uid, words) in std::mem::take(&mut answer.told) {
                match words {
                    Some(words) => drop(self.taking.told.insert(uid, words)),
                    None => drop(self.taking.told.remove(&uid)),
                }
            }
            self.taking.asked_api.retain(|uid, _| !answer.unanswered.contains(uid));
            let since = self.taking.at_work.unwrap_or(at).min(at);
            self.taking.at_work = answer.kubelet_answers.then_some(since);
            self.taking.answer = Some(answer);
        }
        let booted = at - super::planning::uptime();
        let live: Vec<(&DaemonRecord, &Instance)> =
            records.values().flat_map(|r| r.live().filter(|i| !i.orphaned).map(move |i| (r, i))).collect();
        let uids: BTreeSet<&str> = live.iter().map(|(_, i)| i.uid.as_str()).collect();
        self.taking.seen.retain(|uid| uids.contains(uid.as_str()));
        let (mut words, mut late) = (BTreeMap::new(), Vec::new());
        self.taking.next = None;
        for (record, instance) in live {
            let since = instance.created.max(booted).max(self.started);
            let witnesses = self.witnesses(record, instance, (since, booted, at), api);
            if witnesses.seen {
                self.taking.seen.insert(instance.uid.clone());
            } else if at - since >= LATE {
                let (uid, namespace) = (instance.uid.clone(), record.key.namespace.clone());
                let waited = at - since.max(self.taking.at_work.unwrap_or(since));
                late.push(Late { uid, namespace, pod: instance.pod_name.clone(), waited });
            } else {
                self.look_at(since + LATE);
            }
            words.insert(instance.uid.clone(), taken::judge(at - since, &witnesses));
        }
        self.taking.words = words;
        let waits = |r: &DaemonRecord| r.backoff.is_some() || r.instances.iter().any(|i| i.noted.is_some());
        let wanted = !late.is_empty() || records.values().any(waits);
        self.taking.surroundings = if wanted { self.surroundings(api) } else { String::new() };
        if late.is_empty() {
            (self.taking.answer, self.taking.asked, self.taking.at_work) = (None, None, None);
            self.taking.asked_api.clear();
            self.taking.told.clear();
            return;
        }
        let times = self.taking.asked.map_or(0, |(_, times)| times);
        let pause = ASK_AGAIN * if times > 1 { 2 } else { 1 };
        let due = self.taking.asked.map_or(at, |(asked, _)| (asked + pause).min(at + pause));
        if due <= at {
            self.taking.asked = Some((at, times + 1));
            self.ask_about(late, times, api);
        }
        self.look_at(due.max(at) + ASK_AGAIN);
    }

    fn look_at(&mut self, at: Millis) {
        self.taking.next = Some(self.taking.next.map_or(at, |next| next.min(at)));
    }

    fn witnesses(
        &self,
        record: &DaemonRecord,
        instance: &Instance,
        (since, booted, at): (Millis, Millis, Millis),
        api: Option<&Snapshot>,
    ) -> Witnesses {
        let uid = &instance.uid;
        let namespace = &record.key.namespace;
        let answer = self.taking.answer.as_ref().filter(|answer| answer.about.contains(uid));
        let sandboxes = answer.and_then(|answer| answer.sandboxes.as_ref());
        let mirror = api.and_then(|api| evidence::mirror(api, namespace, instance, &self.config.node_name));
        let runs = matches!(&self.runtime, Runtime::Pods(pods) if pods.iter().any(|p| p.uid == *uid && p.alive));
        let api_answers = self.api_answers(api);
        let node_ready = api.is_some_and(|api| api.node.is_some() && evidence::node_ready(api));
        let at_work = match self.taking.at_work {
            Some(seen) => Some(at - seen.max(since)),
            // A Node stays Ready for a while without its kubelet.
            None if api_answers && node_ready => Some(at - since - NODE_LAGS).filter(|worked| *worked >= 0),
            None => None,
        };
        let spec = instance.daemon_set.as_ref().and_then(|d| d.pod_template().get("spec"));
        let host_network = spec.and_then(|s| s.get("hostNetwork")) == Some(&Value::Bool(true));
        Witnesses {
            seen: self.taking.seen.contains(uid)
                || (instance.started && instance.created >= booted)
                || mirror.is_some()
                || runs
                || matches!(sandboxes, Some(Ok(pods)) if pods.contains(uid)),
            asked: answer.is_some(),
            blind: match sandboxes {
                Some(Ok(_)) => None,
                Some(Err(why)) => Some(why.clone()),
                None => Some("nobody can say whether it has a sandbox".to_owned()),
            },
            words: answer.and_then(|answer| answer.words.get(uid).or_else(|| self.taking.told.get(uid)).cloned()),
            at_work,
            no_network: !host_network && answer.and_then(|answer| answer.network_ready) != Some(true),
            api_answers,
        }
    }

    /// What admission depends on beside the pod: the other pods, and what the Node is. Of what the API has
    /// listed once, and before that of the runtime's sandboxes.
    fn surroundings(&self, api: Option<&Snapshot>) -> String {
        let mut hasher = std::hash::DefaultHasher::new();
        match api.filter(|api| api.lists(&Scope::Pods) > 0) {
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
            }
            None => {
                let answer = self.taking.answer.as_ref().and_then(|answer| answer.sandboxes.as_ref());
                let Some(Ok(sandboxes)) = answer else { return String::new() };
                sandboxes.hash(&mut hasher);
            }
        }
        format!("{:016x}", hasher.finish())
    }

    /// Asks, after having asked `times` times.
    fn ask_about(&mut self, late: Vec<Late>, times: u32, api: Option<&Snapshot>) {
        let (cri, kubelet) = (self.cri.clone(), self.kubelet.clone());
        let api = self.api.clone().filter(|_| self.api_answers(api));
        let (node, inbox, wake) = (self.config.node_name.clone(), self.taking.inbox.clone(), Arc::clone(&self.wake));
        let at = now();
        let about: BTreeSet<String> = late.iter().map(|l| l.uid.clone()).collect();
        self.taking.told.retain(|uid, _| about.contains(uid));
        self.taking.asked_api.retain(|uid, _| about.contains(uid));
        let is_due = |l: &Late| {
            let asked = self.taking.asked_api.get(&l.uid);
            asked.is_none_or(|asked| !(0..taken::ask_again(l.waited)).contains(&(at - asked)))
        };
        let due: Vec<Late> = late.into_iter().filter(|l| api.is_some() && is_due(l)).collect();
        self.taking.asked_api.extend(due.iter().map(|l| (l.uid.clone(), at)));
        tokio::spawn(async move {
            let mut answer = Answer { about, ..Answer::default() };
            if let Some(cri) = &cri {
                answer.sandboxes = Some(sandboxes(cri).await);
                answer.network_ready = cri.network_ready().await.ok();
            }
            if let Some(Ok(reports)) = async { Some(kubelet.as_ref()?.pods().await) }.await {
                answer.kubelet_answers = true;
                for report in reports.iter().filter(|r| answer.about.contains(&r.uid)) {
                    let words = taken::report(&report.phase, &report.reason, &report.message);
                    answer.words.insert(report.uid.clone(), words);
                }
            } else {
                answer.kubelet_answers = is_healthy().await;
            }
            if let Some(api) = api {
                let makes_room = |event: &PodEvent| event.host == node && at - event.at < MAKES_ROOM;
                let mut silent = Vec::new();
                for instance in due.iter().filter(|l| !answer.words.contains_key(&l.uid)) {
                    match api.events_about(&instance.namespace, &instance.uid).await {
                        Ok(events) => {
                            let last = events.last().map(|e| taken::event(e.warning, &e.reason, &e.message));
                            if last.is_none() {
                                silent.push(instance.uid.clone());
                            }
                            answer.told.insert(instance.uid.clone(), last);
                        }
                        Err(failure) => {
                            tracing::debug!(pod = instance.pod, "no events about {}: {failure}", instance.pod);
                            answer.unanswered.insert(instance.uid.clone());
                        }
                    }
                }
                // That goes through the events of the whole cluster, and matters only to one that stays late.
                if times > 0
                    && !silent.is_empty()
                    && api.preemptions().await.is_ok_and(|events| events.iter().any(makes_room))
                {
                    answer.told.extend(silent.into_iter().map(|uid| (uid, Some(Words::MakesRoom))));
                }
            }
            inbox.put(answer, &wake);
        });
    }
}

/// UIDs of the pods whose sandboxes stand.
async fn sandboxes(cri: &Cri) -> Result<BTreeSet<String>, String> {
    let sandboxes = cri.sandboxes().await.map_err(|error| apply::failure(&error, None).message)?;
    Ok(sandboxes.into_iter().filter(|s| s.state == SandboxState::Ready).map(|s| s.uid).collect())
}

/// Whether a kubelet on this node says that it is well.
async fn is_healthy() -> bool {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(HEALTHZ).await?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut reply = Vec::new();
        stream.take(4_096).read_to_end(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = tokio::time::timeout(std::time::Duration::from_secs(2), ask).await;
    matches!(reply, Ok(Ok(reply)) if reply.split(|b| *b == b'\r').next().is_some_and(|line| line.ends_with(b" 200 OK")))
}
