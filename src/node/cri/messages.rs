//! The messages of `runtime.v1` and of containerd's image service that this program uses, with the fields that it
//! reads.

use std::collections::BTreeMap;

use prost::Message;

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty = [$($prost:tt)*],)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $(#[prost($($prost)*)] pub(super) $field: $type,)*
        })*
    };
}

messages! {
    VersionRequest {
        version: String = [string, tag = "1"],
    }
    VersionResponse {
        runtime_name: String = [string, tag = "2"],
        runtime_version: String = [string, tag = "3"],
    }
    /// Without its filter: lists all.
    ListPodSandboxRequest {}
    ListPodSandboxResponse {
        items: Vec<PodSandbox> = [message, repeated, tag = "1"],
    }
    PodSandbox {
        id: String = [string, tag = "1"],
        metadata: Option<PodSandboxMetadata> = [message, optional, tag = "2"],
        state: i32 = [int32, tag = "3"],
        created_at: i64 = [int64, tag = "4"],
        annotations: BTreeMap<String, String> = [btree_map = "string, string", tag = "6"],
    }
    PodSandboxMetadata {
        name: String = [string, tag = "1"],
        uid: String = [string, tag = "2"],
        namespace: String = [string, tag = "3"],
        attempt: u32 = [uint32, tag = "4"],
    }
    /// StopPodSandboxRequest and RemovePodSandboxRequest.
    SandboxIdRequest {
        pod_sandbox_id: String = [string, tag = "1"],
    }
    /// A response without content.
    Empty {}
    ContainerFilter {
        label_selector: BTreeMap<String, String> = [btree_map = "string, string", tag = "4"],
    }
    ListContainersRequest {
        filter: Option<ContainerFilter> = [message, optional, tag = "1"],
    }
    ListContainersResponse {
        containers: Vec<Container> = [message, repeated, tag = "1"],
    }
    Container {
        id: String = [string, tag = "1"],
        pod_sandbox_id: String = [string, tag = "2"],
        metadata: Option<ContainerMetadata> = [message, optional, tag = "3"],
        image_ref: String = [string, tag = "5"],
        state: i32 = [int32, tag = "6"],
        created_at: i64 = [int64, tag = "7"],
        labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "8"],
        annotations: BTreeMap<String, String> = [btree_map = "string, string", tag = "9"],
    }
    ContainerMetadata {
        name: String = [string, tag = "1"],
        attempt: u32 = [uint32, tag = "2"],
    }
    ContainerStatusRequest {
        container_id: String = [string, tag = "1"],
        verbose: bool = [bool, tag = "2"],
    }
    ContainerStatusResponse {
        status: Option<ContainerStatus> = [message, optional, tag = "1"],
    }
    ContainerStatus {
        state: i32 = [int32, tag = "3"],
        started_at: i64 = [int64, tag = "5"],
        finished_at: i64 = [int64, tag = "6"],
        exit_code: i32 = [int32, tag = "7"],
        reason: String = [string, tag = "10"],
        message: String = [string, tag = "11"],
        log_path: String = [string, tag = "15"],
    }
    ImageSpec {
        image: String = [string, tag = "1"],
        user_specified_image: String = [string, tag = "18"],
    }
    ImageStatusRequest {
        image: Option<ImageSpec> = [message, optional, tag = "1"],
    }
    ImageStatusResponse {
        image: Option<ImageMessage> = [message, optional, tag = "1"],
    }
    ImageMessage {
        id: String = [string, tag = "1"],
        repo_tags: Vec<String> = [string, repeated, tag = "2"],
        repo_digests: Vec<String> = [string, repeated, tag = "3"],
        pinned: bool = [bool, tag = "8"],
    }
    /// Never printed: it holds a password.
    AuthConfig {
        username: String = [string, tag = "1"],
        password: String = [string, tag = "2"],
    }
    PodSandboxConfig {
        metadata: Option<PodSandboxMetadata> = [message, optional, tag = "1"],
    }
    PullImageRequest {
        image: Option<ImageSpec> = [message, optional, tag = "1"],
        auth: Option<AuthConfig> = [message, optional, tag = "2"],
        sandbox_config: Option<PodSandboxConfig> = [message, optional, tag = "3"],
    }
    PullImageResponse {
        image_ref: String = [string, tag = "1"],
    }
    /// containerd.types.Descriptor.
    Descriptor {
        media_type: String = [string, tag = "1"],
        digest: String = [string, tag = "2"],
        size: i64 = [int64, tag = "3"],
        annotations: BTreeMap<String, String> = [btree_map = "string, string", tag = "5"],
    }
    /// containerd.services.images.v1.GetImageRequest.
    GetStoredRequest {
        name: String = [string, tag = "1"],
    }
    /// containerd.services.images.v1.GetImageResponse.
    GetStoredResponse {
        image: Option<StoredImage> = [message, optional, tag = "1"],
    }
    /// containerd.services.images.v1.Image, without its times.
    StoredImage {
        name: String = [string, tag = "1"],
        labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "2"],
        target: Option<Descriptor> = [message, optional, tag = "3"],
    }
    /// containerd.services.images.v1.ListImagesRequest.
    ListStoredRequest {
        filters: Vec<String> = [string, repeated, tag = "1"],
    }
    /// containerd.services.images.v1.ListImagesResponse.
    ListStoredResponse {
        images: Vec<StoredImage> = [message, repeated, tag = "1"],
    }
    /// google.protobuf.FieldMask.
    FieldMask {
        paths: Vec<String> = [string, repeated, tag = "1"],
    }
    /// containerd.services.images.v1.UpdateImageRequest.
    UpdateStoredRequest {
        image: Option<StoredImage> = [message, optional, tag = "1"],
        update_mask: Option<FieldMask> = [message, optional, tag = "2"],
    }
}
