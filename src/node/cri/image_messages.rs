//! The messages of `runtime.v1`'s image service and of containerd's own, as far as they are read.

use std::collections::BTreeMap;

use prost::Message;

/// ImageSpec.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
    #[prost(string, tag = "18")]
    pub(super) user_specified_image: String,
}

/// ImageStatusRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageSpec>,
}

/// ImageStatusResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageMessage>,
}

/// Image.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageMessage {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) repo_tags: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(super) repo_digests: Vec<String>,
    #[prost(bool, tag = "8")]
    pub(super) pinned: bool,
}

/// AuthConfig. Never printed: it holds a password.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthConfig {
    #[prost(string, tag = "1")]
    pub(super) username: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
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
}

/// PodSandboxConfig.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<PodSandboxMetadata>,
}

/// PullImageRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PullImageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageSpec>,
    #[prost(message, optional, tag = "2")]
    pub(super) auth: Option<AuthConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox_config: Option<PodSandboxConfig>,
}

/// PullImageResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PullImageResponse {
    #[prost(string, tag = "1")]
    pub(super) image_ref: String,
}

/// containerd.types.Descriptor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Descriptor {
    #[prost(string, tag = "1")]
    pub(super) media_type: String,
    #[prost(string, tag = "2")]
    pub(super) digest: String,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// containerd.services.images.v1.GetImageRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetStoredRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// containerd.services.images.v1.GetImageResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetStoredResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<StoredImage>,
}

/// containerd.services.images.v1.Image, without its times.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredImage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(message, optional, tag = "3")]
    pub(super) target: Option<Descriptor>,
}

/// containerd.services.images.v1.ListImagesRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListStoredRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

/// containerd.services.images.v1.ListImagesResponse.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListStoredResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) images: Vec<StoredImage>,
}

/// google.protobuf.FieldMask.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FieldMask {
    #[prost(string, repeated, tag = "1")]
    pub(super) paths: Vec<String>,
}

/// containerd.services.images.v1.UpdateImageRequest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateStoredRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<StoredImage>,
    #[prost(message, optional, tag = "2")]
    pub(super) update_mask: Option<FieldMask>,
}
