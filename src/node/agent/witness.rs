//! Who can say what runs on this node: the container runtime, else the kubelet's own API.
//!
//! Owns the question, not what follows from the answer. The kubelet's `/pods` tells Ready and no more:
//! a pod leaves it at once when it is to end.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::core::record::Millis;
use crate::node::cri::Cri;
use crate::node::kubelet::Kubelet;

use super::apply;
use super::evidence;
use super::evidence::RuntimePod;
use super::now;

/// An answer that is on its way; an error is in words.
pub(super) type Answer = JoinHandle<Result<Vec<RuntimePod>, String>>;

/// The best witness that is configured.
#[derive(Clone)]
pub(super) enum Witness {
    /// The container runtime.
    Runtime(Arc<Cri>),
    /// The kubelet's API.
    Kubelet(Arc<Kubelet>),
}

impl Witness {
    /// Asks; never waits here.
    pub(super) fn ask(&self) -> Answer {
        match self.clone() {
            Witness::Runtime(cri) => tokio::spawn(async move {
                let (sandboxes, containers) = tokio::try_join!(cri.sandboxes(), cri.containers(None))
                    .map_err(|error| apply::failure(&error, None).message)?;
                Ok(evidence::runtime_pods(&sandboxes, &containers))
            }),
            Witness::Kubelet(kubelet) => tokio::spawn(async move {
                let (running, told) = tokio::try_join!(kubelet.running_uids(), kubelet.pods())
                    .map_err(|error| apply::failure(&error, error.hint()).message)?;
                let ready = |uid: &str| told.iter().find(|p| p.uid == uid).and_then(|p| p.ready);
                Ok(running.iter().map(|uid| runs(uid, ready(uid), now())).collect())
            }),
        }
    }
}

/// A pod of which the kubelet says that something runs.
fn runs(uid: &str, ready: Option<bool>, at: Millis) -> RuntimePod {
    RuntimePod {
        uid: uid.to_owned(),
        alive: true,
        running_since: Some(at),
        sandboxes: Vec::new(),
        crashing: false,
        ready: ready.map(|ready| (ready, at)),
    }
}
