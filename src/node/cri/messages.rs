//! The messages of `runtime.v1` that this program uses, field by field as far as it reads them.

use std::collections::BTreeMap;

use prost::Message;

/// VersionRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRequest {
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

/// VersionResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionResponse {
    #[prost(string, tag = "2")]
    pub(super) runtime_name: String,
    #[prost(string, tag = "3")]
    pub(super) runtime_version: String,
}

/// ListPodSandboxRequest; without its filter: all of them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxRequest {}

/// ListPodSandboxResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<PodSandbox>,
}

/// PodSandbox.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int64, tag = "4")]
    pub(super) created_at: i64,
}

/// PodSandboxMetadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(uint32, tag = "4")]
    pub(super) attempt: u32,
}

/// StopPodSandboxRequest and RemovePodSandboxRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SandboxIdRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
}

/// A response that says nothing.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

/// ContainerFilter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerFilter {
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) label_selector: BTreeMap<String, String>,
}

/// ListContainersRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) filter: Option<ContainerFilter>,
}

/// ListContainersResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

/// Container.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(string, tag = "5")]
    pub(super) image_ref: String,
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
    #[prost(int64, tag = "7")]
    pub(super) created_at: i64,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// ContainerMetadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, tag = "2")]
    pub(super) attempt: u32,
}

/// ContainerStatusRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

/// ContainerStatusResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
}

/// ContainerStatus.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatus {
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int64, tag = "5")]
    pub(super) started_at: i64,
    #[prost(int64, tag = "6")]
    pub(super) finished_at: i64,
    #[prost(int32, tag = "7")]
    pub(super) exit_code: i32,
    #[prost(string, tag = "10")]
    pub(super) reason: String,
    #[prost(string, tag = "11")]
    pub(super) message: String,
    #[prost(string, tag = "15")]
    pub(super) log_path: String,
}
