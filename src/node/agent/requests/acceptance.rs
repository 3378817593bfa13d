//! Asking the runtime, the kubelet and the API server's events about instances that show nothing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use crate::core::acceptance;
use crate::core::acceptance::KubeletReport;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::failure;
use crate::node::api::Api;
use crate::node::api::PodEvent;
use crate::node::cri::Cri;
use crate::node::cri::Sandbox;
use crate::node::cri::SandboxState;
use crate::node::kubelet::HEALTHZ;

use super::clients::Clients;

/// How long the kubelet may take to end lesser pods after it last reported that.
const MAKES_ROOM: Span = Span::from_secs(120);
/// How long a kubelet may take to show that it is at work.
const HEALTHZ_WITHIN: Duration = Duration::from_secs(2);

/// An instance that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct Late {
    pub(in crate::node::agent) uid: String,
    pub(in crate::node::agent) namespace: String,
    pub(in crate::node::agent) pod: String,
    /// For how long the kubelet has had it.
    pub(in crate::node::agent) waited: Span,
}

/// The answers of the runtime, the kubelet and the API server.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct LateAnswer {
    /// Pods with a sandbox; or why that is not known. `None`: no runtime is configured.
    pub(in crate::node::agent) sandboxes: Option<Result<BTreeSet<String>, String>>,
    /// When the newest sandbox was made of those instances that have one which does not stand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::node::agent) fallen: BTreeMap<String, Timestamp>,
    pub(in crate::node::agent) network_ready: Option<bool>,
    pub(in crate::node::agent) kubelet_answers: bool,
    /// Whether the kubelet reported which pods it has.
    #[serde(default)]
    pub(in crate::node::agent) lists_pods: bool,
    /// The kubelet's reports, by pod UID.
    pub(in crate::node::agent) words: BTreeMap<String, KubeletReport>,
    /// What the API server has as events, of those that it was asked about this time.
    pub(in crate::node::agent) events: BTreeMap<String, Option<KubeletReport>>,
    /// Those about which it gave no answer.
    pub(in crate::node::agent) unanswered: BTreeSet<String>,
    /// The instances that were asked about.
    pub(in crate::node::agent) about: BTreeSet<String>,
}

/// Asks about instances that the kubelet is late with.
pub(super) struct AboutLate {
    pub(super) late: Vec<Late>,
    /// Those about which the API server is asked, too.
    pub(super) ask_api: Vec<Late>,
    /// Whether preemptions of the whole cluster are looked at: that matters only to one that stays late.
    pub(super) look_for_preemption: bool,
    pub(super) at: Timestamp,
}

/// Asks every component that may know.
pub(super) async fn ask(clients: &Clients, question: AboutLate) -> LateAnswer {
    let about = question.late.iter().map(|late| late.uid.clone()).collect();
    let mut answer = LateAnswer { about, ..LateAnswer::default() };
    if let Some(cri) = &clients.cri {
        let sandboxes = sandboxes(cri).await;
        for (uid, made) in sandboxes.iter().flatten().filter_map(|s| Some((&s.uid, fallen(s, &answer.about)?))) {
            let newest = answer.fallen.entry(uid.clone()).or_insert(made);
            *newest = made.max(*newest);
        }
        answer.sandboxes = Some(sandboxes.map(standing));
        answer.network_ready = cri.network_ready().await.ok();
    }
    if let Some(Ok(reports)) = async { Some(clients.kubelet.as_ref()?.pods().await) }.await {
        (answer.kubelet_answers, answer.lists_pods) = (true, true);
        for report in reports.iter().filter(|r| answer.about.contains(&r.uid)) {
            let words = acceptance::report(&report.phase, &report.reason, &report.message);
            answer.words.insert(report.uid.clone(), words);
        }
    } else {
        answer.kubelet_answers = is_healthy().await;
    }
    if let Some(api) = &clients.api {
        ask_api(api, &clients.node, &question, &mut answer).await;
    }
    answer
}

async fn ask_api(api: &Api, node: &str, question: &AboutLate, answer: &mut LateAnswer) {
    let mut silent = Vec::new();
    for instance in question.ask_api.iter().filter(|late| !answer.words.contains_key(&late.uid)) {
        match api.events_about(&instance.namespace, &instance.uid).await {
            Ok(events) => {
                let last = events.last().map(|e| acceptance::event(e.warning, &e.reason, &e.message));
                if last.is_none() {
                    silent.push(instance.uid.clone());
                }
                answer.events.insert(instance.uid.clone(), last);
            }
            Err(failure) => {
                tracing::debug!(pod = instance.pod, "no events about {}: {failure}", instance.pod);
                answer.unanswered.insert(instance.uid.clone());
            }
        }
    }
    let is_recent = |event: &PodEvent| (question.at - event.at).abs() < MAKES_ROOM;
    let makes_room = |event: &PodEvent| event.host == node && is_recent(event);
    if question.look_for_preemption
        && !silent.is_empty()
        && api.preemptions().await.is_ok_and(|events| events.iter().any(makes_room))
    {
        answer.events.extend(silent.into_iter().map(|uid| (uid, Some(KubeletReport::MakesRoom))));
    }
}

async fn sandboxes(cri: &Cri) -> Result<Vec<Sandbox>, String> {
    cri.sandboxes().await.map_err(|error| failure::of(&error, None).cause.to_string())
}

/// UIDs of the pods whose sandboxes stand.
fn standing(sandboxes: Vec<Sandbox>) -> BTreeSet<String> {
    sandboxes.into_iter().filter(|s| s.state == SandboxState::Ready).map(|s| s.uid).collect()
}

/// When a sandbox of one of those was made, if it does not stand.
fn fallen(sandbox: &Sandbox, about: &BTreeSet<String>) -> Option<Timestamp> {
    let is_fallen = sandbox.state != SandboxState::Ready && about.contains(&sandbox.uid);
    is_fallen.then(|| Timestamp::from_millis(sandbox.created_at_ns / 1_000_000))
}

/// Whether a kubelet on this node reports that it is healthy.
async fn is_healthy() -> bool {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.is_kubelet_healthy();
    }
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(HEALTHZ).await?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut reply = Vec::new();
        stream.take(4_096).read_to_end(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = tokio::time::timeout(HEALTHZ_WITHIN, ask).await;
    matches!(reply, Ok(Ok(reply)) if reply.split(|b| *b == b'\r').next().is_some_and(|line| line.ends_with(b" 200 OK")))
}
