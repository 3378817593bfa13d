//! The container runtime: a small client of `runtime.v1` over its unix socket.
//!
//! Owns the messages and calls that this program uses (field numbers as in
//! k8s.io/cri-api/pkg/apis/runtime/v1/api.proto) and their timeouts. Must not decide what an answer means; an error
//! means unknown, never that nothing runs.

mod channel;
pub mod images;
mod messages;
mod stop;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use messages::ContainerFilter;
use messages::ContainerStatusRequest;
use messages::ContainerStatusResponse;
use messages::Empty;
use messages::ListContainersRequest;
use messages::ListContainersResponse;
use messages::ListPodSandboxRequest;
use messages::ListPodSandboxResponse;
use messages::SandboxIdRequest;
use messages::VersionRequest;
use messages::VersionResponse;

use channel::Channel;
pub use channel::CriError;

/// Timeout of a request.
const ASK: Duration = Duration::from_secs(4);
/// How long the runtime may take to remove a sandbox, beyond any grace period.
const CHANGE: Duration = Duration::from_secs(30);

const POD_UID: &str = "io.kubernetes.pod.uid";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";

/// Whether the sandbox of a pod is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// It runs.
    Ready,
    /// It has stopped.
    NotReady,
}

/// The sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub uid: String,
    /// The pod's name (of a static pod: with the node's name).
    pub name: String,
    pub namespace: String,
    /// How often the pod got a new sandbox.
    pub attempt: u32,
    /// Whether it is ready.
    pub state: SandboxState,
    /// When it was made, in nanoseconds since 1970.
    pub created_at_ns: i64,
    /// The pod's annotations when it was made, the kubelet's own among them.
    pub annotations: BTreeMap<String, String>,
}

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created and not started.
    Created,
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub sandbox_id: String,
    pub pod_uid: String,
    /// The container's name in the pod.
    pub name: String,
    /// How often the kubelet had restarted it before.
    pub restarts: u32,
    /// What it does.
    pub state: ContainerState,
    /// When it was made, in nanoseconds since 1970.
    pub created_at_ns: i64,
    /// The image as the runtime knows it.
    pub image_ref: String,
}

/// How one container does or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// What it does.
    pub state: ContainerState,
    /// When it was started, in nanoseconds since 1970; 0: never.
    pub started_at_ns: i64,
    /// When it ended, in nanoseconds since 1970; 0: not yet.
    pub finished_at_ns: i64,
    /// Its exit code, once it ended.
    pub exit_code: i32,
    /// The reason for its state, such as `Error` or `OOMKilled`.
    pub reason: String,
    pub message: String,
    /// The path of its log; empty if the runtime does not report one.
    pub log_path: String,
}

/// A runtime's name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Such as `containerd`.
    pub name: String,
    pub version: String,
}

/// A runtime's endpoint. The connection is made with the first call, and again after it broke.
#[derive(Debug)]
pub struct Cri {
    channel: Channel,
}

impl Cri {
    /// The runtime at `endpoint`: a socket's path, with or without `unix://`. Does not connect yet.
    pub fn connect(endpoint: &str) -> Result<Self, CriError> {
        Ok(Self { channel: Channel::new(endpoint)? })
    }

    /// The same runtime, or the first of those at `others` that has a socket while that one has none. The one that takes
    /// a connection is kept.
    pub fn or_at(self, others: Vec<PathBuf>) -> Self {
        Self { channel: self.channel.or_at(others) }
    }

    /// Name and version of the runtime.
    pub async fn version(&self) -> Result<RuntimeVersion, CriError> {
        let request = VersionRequest { version: "v1".to_owned() };
        let reply: VersionResponse = self.channel.call("Version", &request, ASK).await?;
        Ok(RuntimeVersion { name: reply.runtime_name, version: reply.runtime_version })
    }

    /// Every sandbox of the node, in any state, in one call.
    pub async fn sandboxes(&self) -> Result<Vec<Sandbox>, CriError> {
        let request = ListPodSandboxRequest::default();
        let reply: ListPodSandboxResponse = self.channel.call("ListPodSandbox", &request, ASK).await?;
        Ok(reply.items.into_iter().map(Sandbox::from).collect())
    }

    /// Every container of the node, in any state, in one call; with `uid` those of one pod.
    pub async fn containers(&self, uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        let filter =
            uid.map(|uid| ContainerFilter { label_selector: BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())]) });
        let request = ListContainersRequest { filter };
        let reply: ListContainersResponse = self.channel.call("ListContainers", &request, ASK).await?;
        Ok(reply.containers.into_iter().map(Container::from).collect())
    }

    /// The status of the container `id`; `None` if the runtime does not know it.
    pub async fn container_status(&self, id: &str) -> Result<Option<ContainerStatus>, CriError> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let reply: Result<ContainerStatusResponse, _> = self.channel.call("ContainerStatus", &request, ASK).await;
        match reply {
            Ok(reply) => Ok(reply.status.map(ContainerStatus::from)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Stops the sandbox `id`: kills its containers without grace and removes its network. A stopped or missing one is
    /// no error.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), CriError> {
        self.change("StopPodSandbox", id).await
    }

    /// Removes the sandbox `id` and its containers. A missing one is no error.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        self.change("RemovePodSandbox", id).await
    }

    async fn change(&self, method: &str, id: &str) -> Result<(), CriError> {
        let request = SandboxIdRequest { pod_sandbox_id: id.to_owned() };
        match self.channel.call::<_, Empty>(method, &request, CHANGE).await {
            Ok(Empty {}) => Ok(()),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// For fuzz targets and the tests that replay their seeds: sandboxes and containers of two answers of a runtime; `None`:
/// one is not such a message.
#[cfg(any(fuzzing, debug_assertions))]
pub fn decoded(sandboxes: &[u8], containers: &[u8]) -> Option<(Vec<Sandbox>, Vec<Container>)> {
    use prost::Message;
    let sandboxes = ListPodSandboxResponse::decode(sandboxes).ok()?;
    let containers = ListContainersResponse::decode(containers).ok()?;
    let containers = containers.containers.into_iter().map(Container::from).collect();
    Some((sandboxes.items.into_iter().map(Sandbox::from).collect(), containers))
}

/// The same of the status of a container.
#[cfg(any(fuzzing, debug_assertions))]
pub fn decoded_status(bytes: &[u8]) -> Option<ContainerStatus> {
    use prost::Message;
    ContainerStatusResponse::decode(bytes).ok()?.status.map(ContainerStatus::from)
}

impl From<messages::PodSandbox> for Sandbox {
    fn from(sandbox: messages::PodSandbox) -> Self {
        let metadata = sandbox.metadata.unwrap_or_default();
        Self {
            id: sandbox.id,
            uid: metadata.uid,
            name: metadata.name,
            namespace: metadata.namespace,
            attempt: metadata.attempt,
            // Anything except the one known value for "stopped" counts as running: treating a running sandbox as gone
            // would start a second one.
            state: if sandbox.state == 1 { SandboxState::NotReady } else { SandboxState::Ready },
            created_at_ns: sandbox.created_at,
            annotations: sandbox.annotations,
        }
    }
}

impl From<i32> for ContainerState {
    fn from(number: i32) -> Self {
        match number {
            0 => ContainerState::Created,
            1 => ContainerState::Running,
            2 => ContainerState::Exited,
            _ => ContainerState::Unknown,
        }
    }
}

impl From<messages::Container> for Container {
    fn from(container: messages::Container) -> Self {
        let metadata = container.metadata.unwrap_or_default();
        // The kubelet has its own count in an annotation; `attempt` is used if that is missing.
        let restarts = container.annotations.get(RESTART_COUNT).and_then(|count| count.parse().ok());
        Self {
            id: container.id,
            sandbox_id: container.pod_sandbox_id,
            pod_uid: container.labels.get(POD_UID).cloned().unwrap_or_default(),
            name: metadata.name,
            restarts: restarts.unwrap_or(metadata.attempt),
            state: container.state.into(),
            created_at_ns: container.created_at,
            image_ref: container.image_ref,
        }
    }
}

impl From<messages::ContainerStatus> for ContainerStatus {
    fn from(status: messages::ContainerStatus) -> Self {
        Self {
            state: status.state.into(),
            started_at_ns: status.started_at,
            finished_at_ns: status.finished_at,
            exit_code: status.exit_code,
            reason: status.reason,
            message: status.message,
            log_path: status.log_path,
        }
    }
}
