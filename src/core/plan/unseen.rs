//! What is not known of an instance, and why.

use crate::core::local_failure::LocalFailure;
use crate::core::time::Span;

/// Why it is unknown whether an instance runs, is ready or was accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum Unseen {
    #[error("{0}")]
    Unreadable(LocalFailure),
    #[error("the container runtime has not been asked yet")]
    NotAsked,
    #[error("no runtime endpoint is configured")]
    NoRuntime,
    #[error("no runtime endpoint is configured, and no API server shows its mirror pod")]
    NoSource,
    #[error("its manifest is there; whether it runs is unknown: no runtime to ask, and no API server that answers")]
    NoneAnswers,
    #[error("neither a container runtime nor the kubelet shows whether it has a sandbox")]
    NoSandboxes,
    #[error("the container runtime has listed no pod of daemonlet: the kubelet may use another")]
    AnotherRuntime,
    #[error("the container runtime lists nothing that it listed before (is it the one that the kubelet uses?)")]
    RuntimeLostAll,
    #[error("the container runtime has never listed it")]
    NeverListed,
    #[error("the list of what runs is older than its end")]
    OlderList,
    #[error("the kubelet may still be about to start it")]
    MayStart,
    #[error("its grace period is waited out for {} s more", .0.as_secs())]
    GracePeriod(Span),
    #[error("not all of its containers run")]
    RunsInPart,
    #[error("the API server shows no Node of this name")]
    NoNode,
    #[error("the node is shutting down")]
    ShuttingDown,
    #[error("the kubelet is not running, or cannot be observed")]
    NoKubelet,
    #[error("the pod network is not ready")]
    NoNetwork,
}

/// Why an instance is not ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// With the kubelet's words.
    #[error("{0}")]
    Reported(String),
    #[error("the kubelet has not created its mirror pod")]
    NoMirrorPod,
    #[error("no container of it runs")]
    NothingRuns,
    #[error("the node is not ready")]
    NodeNotReady,
}

/// A kubelet that works has shown nothing of an instance for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error(
    "the kubelet is at work and has shown nothing of it for {} s: neither a sandbox, a mirror pod nor a rejection",
    .0.as_secs()
)]
pub struct ShownNothing(pub Span);

/// Why the end of an instance could not be observed: neither in the runtime nor in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end of its pod could not be observed: {runtime}, and {api}")]
pub struct Unobservable {
    pub runtime: RuntimeGap,
    pub api: ApiGap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeGap {
    #[error("the container runtime does not list it (is it the one that the kubelet uses?)")]
    NotListed,
    #[error("the container runtime does not answer")]
    NoAnswer,
    #[error("runtime-endpoint is not set")]
    NotConfigured,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiGap {
    #[error("the API server has no mirror pod of it")]
    NoMirrorPod,
    #[error("the API server does not answer")]
    NoAnswer,
    #[error("no API server is configured")]
    NotConfigured,
}
