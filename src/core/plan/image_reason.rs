//! What there is to say of the images of an instance.

use crate::core::model::ObjectRef;
use crate::core::time::Timestamp;

/// Why images are waited for, are left to the kubelet, or cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageReason {
    /// With the words of the container runtime or of who asks it.
    #[error("{0}")]
    Reported(String),
    #[error("its images are pulled by the kubelet after the old instance has ended: no runtime-endpoint is configured")]
    NoRuntime,
    #[error("image {0} is not on the node any more")]
    Lost(String),
    #[error("waits for {0}, a pull secret")]
    AwaitsSecret(ObjectRef),
    #[error("looks for its images")]
    Looking,
    #[error("pulls image {number} of {count} ({image}) since {since}")]
    Pulling { image: String, number: usize, count: usize, since: Timestamp },
    #[error("image {0} is not pulled anew yet: it starts with the one that is on the node")]
    NotPulledAnew(String),
    #[error("{0}; it is tried again")]
    TriedAgain(Box<Self>),
    #[error("{0}; the old instance ends all the same (images.on-pull-failure)")]
    EndsAllTheSame(Box<Self>),
    #[error(
        "{0}; the old instance ends and pulling is left to the kubelet, which may know other credentials \
         (images.require-prepull would keep it)"
    )]
    LeftToKubelet(Box<Self>),
}
