//! The identity of a node's agent: its name, and which requests for it may be approved.
//!
//! Owns the names, the certificate request, and what is read from certificates. Must not make keys, sign, or do I/O. A
//! request counts only if its subject is byte for byte what an agent writes, so it cannot contain a name other than
//! the one that was checked.

mod certificate;
mod certificate_state;
mod request;

pub use certificate::Certificate;
pub use certificate::CertificateError;
pub use certificate::end_of;
pub use certificate_state::AwaitedStep;
pub use certificate_state::Renewal;
pub use certificate_state::problem;
pub use certificate_state::status;
pub use request::RequestError;
pub use request::node_of;
pub use request::request;
pub use request::to_be_signed;

use crate::core::rendering;

/// The prefix of an agent's user name; the node's name follows.
pub const USER_PREFIX: &str = "daemonlet:node:";
/// The group of all agents.
pub const GROUP: &str = "daemonlet:nodes";
/// The signer of API server client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The usages of an agent's certificate.
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// The group of bootstrap tokens that may request any node's identity.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:daemonlet";

/// The user name of a node's agent.
pub fn user(node: &str) -> String {
    format!("{USER_PREFIX}{node}")
}

/// The name of the request for a key. The same key gives the same name, so an interrupted enrolment continues with its
/// request.
pub fn request_name(public_key: &[u8]) -> String {
    format!("daemonlet-{}", &rendering::digest(public_key)[..32])
}

/// A certificate request as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest<'a> {
    /// `spec.signerName`.
    pub signer: &'a str,
    /// `spec.usages`.
    pub usages: &'a [String],
    /// `spec.username`, which the API server wrote.
    pub user: &'a str,
    /// `spec.groups`, which the API server wrote.
    pub groups: &'a [String],
    /// `spec.request`, PEM.
    pub request: &'a [u8],
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// It is not about an agent: ignored.
    NotOurs,
    /// It is about an agent, but must not be approved automatically: left alone, and reported.
    LeaveAlone(NotApprovable),
    /// It may be approved if the cluster has this Node.
    IfNodeExists(String),
}

/// Why a request is not approved by a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApprovable {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("it asks for the usage {0}")]
    Usage(String),
    #[error("it does not ask for the usage client auth")]
    NoClientAuth,
    #[error(
        "{user} may not ask for {}: the kubelet of that node, its agent and a bootstrap token of the group \
         {BOOTSTRAP_GROUP} may",
        self::user(.node),
        BOOTSTRAP_GROUP = BOOTSTRAP_GROUP
    )]
    NotTheirs { user: String, node: String },
    #[error("it has {bytes} bytes; at most {most} are allowed")]
    TooLong { bytes: usize, most: usize },
}

/// Judges a request.
pub fn judge(asked: &CertificateRequest<'_>) -> ApprovalVerdict {
    if asked.signer != SIGNER {
        return ApprovalVerdict::NotOurs;
    }
    let in_group = |group: &str| asked.groups.iter().any(|g| g == group);
    let agent = asked.user.strip_prefix(USER_PREFIX).filter(|_| in_group(GROUP));
    let kubelet = asked.user.strip_prefix("system:node:").filter(|_| in_group("system:nodes"));
    let bootstrap = in_group(BOOTSTRAP_GROUP);
    let node = match request::node_of(asked.request) {
        Ok(node) => node,
        Err(error) if agent.is_some() || bootstrap || error.names_an_agent() => {
            return ApprovalVerdict::LeaveAlone(error.into());
        }
        Err(_) => return ApprovalVerdict::NotOurs,
    };
    if let Some(usage) = asked.usages.iter().find(|usage| !may_use(usage)) {
        return ApprovalVerdict::LeaveAlone(NotApprovable::Usage(usage.clone()));
    }
    if !asked.usages.iter().any(|usage| usage == "client auth") {
        return ApprovalVerdict::LeaveAlone(NotApprovable::NoClientAuth);
    }
    match agent.or(kubelet) {
        Some(own) if own == node => ApprovalVerdict::IfNodeExists(node),
        None if bootstrap => ApprovalVerdict::IfNodeExists(node),
        _ => ApprovalVerdict::LeaveAlone(NotApprovable::NotTheirs { user: asked.user.to_owned(), node }),
    }
}

fn may_use(usage: &str) -> bool {
    USAGES.contains(&usage) || usage == "key encipherment"
}

#[cfg(test)]
mod tests;
