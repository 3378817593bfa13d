//! Images: whether they are on the node, pulling them, and keeping them from image garbage collection.
//!
//! Owns the calls. Pinning is not part of the CRI: containerd's own API, on the same socket, sets a label that its CRI
//! then reports as `pinned`, since 1.7; other runtimes have their own configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::images::keyring::RegistryCredentials;

use super::ASK;
use super::Cri;
use super::CriError;
use super::messages;
use super::messages::Empty;

const IMAGES: &str = "runtime.v1.ImageService";
const STORE: &str = "containerd.services.images.v1.Images";
/// containerd's namespace for what the CRI created.
const NAMESPACE: &str = "k8s.io";
/// The label that containerd's CRI reports as pinned.
const PINNED: &str = "io.cri-containerd.pinned";
/// Marks the pin as ours: pins made by others stay.
const OURS: &str = "dev.daemonlet.pinned";
/// Timeout of a pull; a runtime that makes no progress gives up long before.
const PULL: Duration = Duration::from_secs(1800);

/// An image on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    /// Its names: those with tags, then those with digests.
    pub names: Vec<String>,
    /// Whether image garbage collection spares it.
    pub pinned: bool,
}

/// The pod that an image is pulled for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PullFor {
    /// The pod's name in sandbox metadata.
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

impl Cri {
    /// The image called `name`, if it is on the node.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, CriError> {
        let request = messages::ImageStatusRequest { image: Some(spec(name)) };
        let reply: Result<messages::ImageStatusResponse, _> =
            self.channel.call_of(IMAGES, None, "ImageStatus", &request, ASK).await;
        match reply {
            Ok(reply) => Ok(reply.image.map(Image::from)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Pulls `name`; returns when the image is complete. Dropping the future cancels the pull.
    pub async fn pull_image(
        &self,
        name: &str,
        credentials: Option<&RegistryCredentials>,
        pod: &PullFor,
    ) -> Result<(), CriError> {
        let auth = credentials.map(|credentials| messages::AuthConfig {
            username: credentials.username.clone(),
            password: credentials.password.clone(),
        });
        let metadata = messages::PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt: 0,
        };
        let sandbox_config = Some(messages::PodSandboxConfig { metadata: Some(metadata) });
        let request = messages::PullImageRequest { image: Some(spec(name)), auth, sandbox_config };
        let reply: messages::PullImageResponse =
            self.channel.call_of(IMAGES, None, "PullImage", &request, PULL).await?;
        tracing::debug!(image = name, id = reply.image_ref, "pulled");
        Ok(())
    }

    /// The names in containerd's store that [`Cri::pin`] pinned.
    pub async fn pinned_names(&self) -> Result<Vec<String>, CriError> {
        let request = messages::ListStoredRequest { filters: vec![format!("labels.\"{OURS}\"==pinned")] };
        let reply: messages::ListStoredResponse =
            self.channel.call_of(STORE, Some(NAMESPACE), "List", &request, ASK).await?;
        Ok(reply.images.into_iter().map(|image| image.name).collect())
    }

    /// Pins a name in containerd's store, or removes the pin; other labels stay. Only [`Cri::image`] shows whether it
    /// takes effect.
    pub async fn pin(&self, name: &str, pinned: bool) -> Result<(), CriError> {
        let request = messages::GetStoredRequest { name: name.to_owned() };
        let got: Result<messages::GetStoredResponse, _> =
            self.channel.call_of(STORE, Some(NAMESPACE), "Get", &request, ASK).await;
        let stored = match got {
            Ok(reply) => reply.image,
            Err(e) if e.is_not_found() => None,
            Err(e) => return Err(e),
        };
        // containerd 2 crashes on an update without a target, even if only labels change.
        let Some(target) = stored.and_then(|image| image.target).filter(|target| !target.digest.is_empty()) else {
            return Ok(());
        };
        let value = if pinned { "pinned" } else { "" };
        let labels = [PINNED, OURS].map(|label| (label.to_owned(), value.to_owned()));
        let paths = [PINNED, OURS].map(|label| format!("labels.{label}"));
        let request = messages::UpdateStoredRequest {
            image: Some(messages::StoredImage {
                name: name.to_owned(),
                labels: BTreeMap::from(labels),
                target: Some(target),
            }),
            update_mask: Some(messages::FieldMask { paths: paths.into() }),
        };
        match self.channel.call_of::<_, Empty>(STORE, Some(NAMESPACE), "Update", &request, ASK).await {
            Ok(Empty {}) => Ok(()),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }
}

fn spec(name: &str) -> messages::ImageSpec {
    messages::ImageSpec { image: name.to_owned(), user_specified_image: name.to_owned() }
}

impl From<messages::ImageMessage> for Image {
    fn from(image: messages::ImageMessage) -> Self {
        let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Self { id: image.id, names, pinned: image.pinned }
    }
}
