//! Asking about instances that the kubelet may not have accepted.
//!
//! Owns the questions: to the runtime, the kubelet, and the API's events, and only while an instance is
//! late. Must not judge: `crate::core::acceptance` does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use crate::core::acceptance;
use crate::core::acceptance::AcceptanceEvidence;
use crate::core::acceptance::KubeletReport;
use crate::core::acceptance::LATE;
use crate::core::model::ObjectKey;
use crate::core::plan::Accepted;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;
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

/// How soon the runtime and the kubelet are asked again about an instance that is still late; from the third time on
/// half as often. The API is asked when [`acceptance::ask_again`] says so.
const ASK_AGAIN: Span = Span::from_secs(5);
/// How long the kubelet may take to end lesser pods after it last said so.
const MAKES_ROOM: Span = Span::from_secs(120);
/// A Node turns NotReady at the latest so long after its kubelet went.
const NODE_LAGS: Span = Span::from_secs(60);
/// Where a kubelet says that it is at work (its default `healthzBindAddress` and `healthzPort`).
const HEALTHZ: &str = "127.0.0.1:10248";

/// What is known of instances that may not have been accepted.
#[derive(Default)]
pub(super) struct Acceptance {
    /// Instances whose mirror pod or sandbox has been seen in this boot.
    seen: BTreeSet<String>,
    /// What follows, by pod UID, for this pass.
    reports: BTreeMap<String, Accepted>,
    /// When somebody was last asked, and how often by then.
    asked: Option<(Timestamp, u32)>,
    /// When the API was last asked about an instance, by pod UID.
    asked_api: BTreeMap<String, Timestamp>,
    /// What it last had as events of them.
    api_reports: BTreeMap<String, KubeletReport>,
    answer: Option<Answer>,
    inbox: Inbox<Answer>,
    next: Option<Timestamp>,
    surroundings: String,
    /// Since when the kubelet has been seen at work, while somebody is late.
    at_work: Option<Timestamp>,
}

/// What everybody said.
#[derive(Default)]
struct Answer {
    /// Pods with a sandbox; or why nobody can say.
    sandboxes: Option<Result<BTreeSet<String>, String>>,
    network_ready: Option<bool>,
    kubelet_answers: bool,
    /// The kubelet's own words, by pod UID.
    reports: BTreeMap<String, KubeletReport>,
    /// What the API has as events, of those that it was asked about this time; and those for which it gave no answer.
    api_reports: BTreeMap<String, Option<KubeletReport>>,
    unanswered: BTreeSet<String>,
    /// The instances that were asked about.
    about: BTreeSet<String>,
}

impl Acceptance {
    /// Whether the kubelet has accepted an instance.
    pub(super) fn of(&self, instance: &Instance) -> Accepted {
        self.reports.get(&instance.uid).cloned().unwrap_or(Accepted::NotYet)
    }

    /// A fingerprint of what admission depends on; empty while nobody needs it.
    pub(super) fn surroundings(&self) -> &str {
        &self.surroundings
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }
}

/// An instance that is asked about.
struct Late {
    uid: String,
    namespace: String,
    pod: String,
    /// For how long the kubelet has had it.
    waited: Span,
}

impl Agent {
    /// Follows whether instances have been accepted; asks about those that are late.
    pub(super) fn follow_acceptance(&mut self, records: &BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) {
        let at = now();
        for mut answer in self.acceptance.inbox.take() {
            for (uid, reports) in std::mem::take(&mut answer.api_reports) {
                match reports {
                    Some(reports) => drop(self.acceptance.api_reports.insert(uid, reports)),
                    None => drop(self.acceptance.api_reports.remove(&uid)),
                }
            }
            self.acceptance.asked_api.retain(|uid, _| !answer.unanswered.contains(uid));
            let since = self.acceptance.at_work.unwrap_or(at).min(at);
            self.acceptance.at_work = answer.kubelet_answers.then_some(since);
            self.acceptance.answer = Some(answer);
        }
        let booted = at - super::planning::uptime();
        let live: Vec<(&DaemonRecord, &Instance)> =
            records.values().flat_map(|r| r.live().filter(|i| !i.orphaned).map(move |i| (r, i))).collect();
        let uids: BTreeSet<&str> = live.iter().map(|(_, i)| i.uid.as_str()).collect();
        self.acceptance.seen.retain(|uid| uids.contains(uid.as_str()));
        let (mut reports, mut late) = (BTreeMap::new(), Vec::new());
        self.acceptance.next = None;
        for (record, instance) in live {
            let since = instance.created.max(booted).max(self.started);
            let acceptance_evidence = self.acceptance_evidence(record, instance, (since, booted, at), api);
            if acceptance_evidence.seen {
                self.acceptance.seen.insert(instance.uid.clone());
            } else if at - since >= LATE {
                let (uid, namespace) = (instance.uid.clone(), record.key.namespace.clone());
                let waited = at - since.max(self.acceptance.at_work.unwrap_or(since));
                late.push(Late { uid, namespace, pod: instance.pod_name.clone(), waited });
            } else {
                self.look_at(since + LATE);
            }
            reports.insert(instance.uid.clone(), acceptance::judge(at - since, &acceptance_evidence));
        }
        self.acceptance.reports = reports;
        let waits = |r: &DaemonRecord| r.backoff.is_some() || r.instances.iter().any(|i| i.noted.is_some());
        let wanted = !late.is_empty() || records.values().any(waits);
        self.acceptance.surroundings = if wanted { self.surroundings(api) } else { String::new() };
        if late.is_empty() {
            (self.acceptance.answer, self.acceptance.asked, self.acceptance.at_work) = (None, None, None);
            self.acceptance.asked_api.clear();
            self.acceptance.api_reports.clear();
            return;
        }
        let times = self.acceptance.asked.map_or(0, |(_, times)| times);
        let pause = ASK_AGAIN * if times > 1 { 2 } else { 1 };
        let due = self.acceptance.asked.map_or(at, |(asked, _)| (asked + pause).min(at + pause));
        if due <= at {
            self.acceptance.asked = Some((at, times + 1));
            self.ask_about(late, times, api);
        }
        self.look_at(due.max(at) + ASK_AGAIN);
    }

    fn look_at(&mut self, at: Timestamp) {
        self.acceptance.next = Some(self.acceptance.next.map_or(at, |next| next.min(at)));
    }

    fn acceptance_evidence(
        &self,
        record: &DaemonRecord,
        instance: &Instance,
        (since, booted, at): (Timestamp, Timestamp, Timestamp),
        api: Option<&Snapshot>,
    ) -> AcceptanceEvidence {
        let uid = &instance.uid;
        let namespace = &record.key.namespace;
        let answer = self.acceptance.answer.as_ref().filter(|answer| answer.about.contains(uid));
        let sandboxes = answer.and_then(|answer| answer.sandboxes.as_ref());
        let mirror = api.and_then(|api| evidence::mirror(api, namespace, instance, &self.config.node_name));
        let runs = matches!(&self.runtime, Runtime::Pods(pods) if pods.iter().any(|p| p.uid == *uid && p.alive));
        let api_answers = self.api_answers(api);
        let node_ready = api.is_some_and(|api| api.node.is_some() && evidence::node_ready(api));
        let at_work = match self.acceptance.at_work {
            Some(seen) => Some(at - seen.max(since)),
            // A Node stays Ready for a while without its kubelet.
            None if api_answers && node_ready => Some(at - since - NODE_LAGS).filter(|worked| *worked >= Span::ZERO),
            None => None,
        };
        let spec = instance.daemon_set.as_ref().and_then(|d| d.pod_template().get("spec"));
        let host_network = spec.and_then(|s| s.get("hostNetwork")) == Some(&Value::Bool(true));
        AcceptanceEvidence {
            seen: self.acceptance.seen.contains(uid)
                || (instance.started && instance.created >= booted)
                || mirror.is_some()
                || runs
                || matches!(sandboxes, Some(Ok(pods)) if pods.contains(uid)),
            asked: answer.is_some(),
            no_runtime_view: match sandboxes {
                Some(Ok(_)) => None,
                Some(Err(why)) => Some(why.clone()),
                None => Some("nobody can say whether it has a sandbox".to_owned()),
            },
            report: answer
                .and_then(|answer| answer.reports.get(uid).or_else(|| self.acceptance.api_reports.get(uid)).cloned()),
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
                let answer = self.acceptance.answer.as_ref().and_then(|answer| answer.sandboxes.as_ref());
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
        let (node, inbox, wake) =
            (self.config.node_name.clone(), self.acceptance.inbox.clone(), Arc::clone(&self.wake));
        let at = now();
        let about: BTreeSet<String> = late.iter().map(|l| l.uid.clone()).collect();
        self.acceptance.api_reports.retain(|uid, _| about.contains(uid));
        self.acceptance.asked_api.retain(|uid, _| about.contains(uid));
        let is_due = |l: &Late| {
            let asked = self.acceptance.asked_api.get(&l.uid);
            asked.is_none_or(|asked| !(Span::ZERO..acceptance::ask_again(l.waited)).contains(&(at - *asked)))
        };
        let due: Vec<Late> = late.into_iter().filter(|l| api.is_some() && is_due(l)).collect();
        self.acceptance.asked_api.extend(due.iter().map(|l| (l.uid.clone(), at)));
        tokio::spawn(async move {
            let mut answer = Answer { about, ..Answer::default() };
            if let Some(cri) = &cri {
                answer.sandboxes = Some(sandboxes(cri).await);
                answer.network_ready = cri.network_ready().await.ok();
            }
            if let Some(Ok(reports)) = async { Some(kubelet.as_ref()?.pods().await) }.await {
                answer.kubelet_answers = true;
                for report in reports.iter().filter(|r| answer.about.contains(&r.uid)) {
                    let reports = acceptance::report(&report.phase, &report.reason, &report.message);
                    answer.reports.insert(report.uid.clone(), reports);
                }
            } else {
                answer.kubelet_answers = is_healthy().await;
            }
            if let Some(api) = api {
                let makes_room = |event: &PodEvent| event.host == node && at - event.at < MAKES_ROOM;
                let mut unreported = Vec::new();
                for instance in due.iter().filter(|l| !answer.reports.contains_key(&l.uid)) {
                    match api.events_about(&instance.namespace, &instance.uid).await {
                        Ok(events) => {
                            let last = events.last().map(|e| acceptance::event(e.warning, &e.reason, &e.message));
                            if last.is_none() {
                                unreported.push(instance.uid.clone());
                            }
                            answer.api_reports.insert(instance.uid.clone(), last);
                        }
                        Err(failure) => {
                            tracing::debug!(pod = instance.pod, "no events about {}: {failure}", instance.pod);
                            answer.unanswered.insert(instance.uid.clone());
                        }
                    }
                }
                // That goes through the events of the whole cluster, and matters only to one that stays late.
                if times > 0
                    && !unreported.is_empty()
                    && api.preemptions().await.is_ok_and(|events| events.iter().any(makes_room))
                {
                    answer.api_reports.extend(unreported.into_iter().map(|uid| (uid, Some(KubeletReport::MakesRoom))));
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
