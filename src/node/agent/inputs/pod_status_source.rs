//! The component that reports what runs on this node: the container runtime, else the kubelet's own API.
//!
//! Owns the question, not what follows from the answer. The kubelet's `/pods` shows only the status of pods: a pod
//! disappears from it as soon as it is to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::clock;
use crate::core::health::PodFact;
use crate::core::local_failure::LocalFailure;
use crate::core::time::Span;
use crate::node::agent::failure;
use crate::node::agent::runtime_pods;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::cri::Cri;
use crate::node::cri::CriError;
use crate::node::kubelet::Kubelet;
use crate::node::kubelet::KubeletError;
use crate::node::kubelet::PodReport;

/// How long the runtime's answer waits for the kubelet's report on its pods. The kubelet asks the API server who may read
/// it, and may hang without one.
const KUBELET_PATIENCE: Duration = Duration::from_millis(300);

/// The kubelet's cache period, and some for its work.
const KUBELET_LAG: Span = Span::from_millis(2_100);

/// An answer that is on its way.
pub(super) type PodListTask = JoinHandle<Result<Vec<RuntimePod>, LocalFailure>>;

/// The sources that are configured: at least one.
#[derive(Clone)]
pub(super) enum PodStatusSource {
    /// The container runtime, and the kubelet's API for what only the kubelet knows.
    Runtime(Arc<Cri>, Option<Arc<Kubelet>>),
    /// The kubelet's API alone.
    Kubelet(Arc<Kubelet>),
}

impl PodStatusSource {
    /// How old the content of an answer may be when it is asked for. The kubelet's `/runningpods` answers from a list that it
    /// reads anew after two seconds (`kuberuntime.runtimeCache`, `cachePeriod`).
    pub(super) fn lag(&self) -> Span {
        match self {
            PodStatusSource::Runtime(..) => Span::ZERO,
            PodStatusSource::Kubelet(_) => KUBELET_LAG,
        }
    }

    /// Asks; never waits here.
    pub(super) fn ask(&self) -> PodListTask {
        match self.clone() {
            PodStatusSource::Runtime(cri, kubelet) => tokio::spawn(async move {
                let (seen, reported) = tokio::join!(seen(&cri), reported(kubelet.as_deref()));
                let mut pods = seen.map_err(|error| failure::of(&error, None).cause)?;
                for pod in &mut pods {
                    pod.reported = reported.get(&pod.uid).cloned();
                }
                Ok(pods)
            }),
            PodStatusSource::Kubelet(kubelet) => tokio::spawn(async move {
                let asked = async { Ok::<_, KubeletError>((kubelet.running_uids().await?, kubelet.pods().await?)) };
                let (running, reported) = asked.await.map_err(|error| failure::of(&error, error.hint()).cause)?;
                let mut reported = by_uid(reported);
                Ok(running.into_iter().map(|uid| runs(reported.remove(&uid), uid)).collect())
            }),
        }
    }
}

async fn seen(cri: &Cri) -> Result<Vec<RuntimePod>, CriError> {
    let (sandboxes, containers) = tokio::try_join!(cri.sandboxes(), cri.containers(None))?;
    Ok(runtime_pods::runtime_pods(&sandboxes, &containers))
}

/// The kubelet's report on its pods, if it comes soon: the runtime's answer is enough without it.
async fn reported(kubelet: Option<&Kubelet>) -> BTreeMap<String, Value> {
    let Some(kubelet) = kubelet else { return BTreeMap::new() };
    match tokio::time::timeout(KUBELET_PATIENCE, kubelet.pods()).await {
        Ok(Ok(pods)) => by_uid(pods),
        Ok(Err(_)) | Err(_) => BTreeMap::new(),
    }
}

fn by_uid(pods: Vec<PodReport>) -> BTreeMap<String, Value> {
    pods.into_iter().filter_map(|pod| Some((pod.uid, pod.reported?))).collect()
}

/// A pod of which the kubelet reports that something runs.
fn runs(reported: Option<Value>, uid: String) -> RuntimePod {
    RuntimePod {
        uid,
        alive: true,
        running_since: Some(clock::now()),
        sandboxes: Vec::new(),
        ended_sandboxes: Vec::new(),
        crashing: false,
        fact: PodFact::default(),
        reported,
        instance: None,
    }
}
