//! The identity of a node's agent: what it is named, and whose request for it may be approved.
//!
//! Owns the names, the certificate request and what is read of both. Must not make keys, sign or ask
//! anybody. A request counts only if its subject is, byte for byte, the one that an agent would write: nobody
//! can then read another name out of it than was judged here.

mod certificate;
mod certificate_state;
mod request;

pub use certificate::Certificate;
pub use certificate::CertificateError;
pub use certificate_state::Renewal;
pub use certificate_state::problem;
pub use certificate_state::status;
pub use request::RequestError;
pub use request::node_of;
pub use request::request;
pub use request::to_be_signed;

use crate::core::rendering;

/// What an agent's user name begins with; the node's name follows.
pub const USER_PREFIX: &str = "daemonlet:node:";
/// The group of all agents.
pub const GROUP: &str = "daemonlet:nodes";
/// The signer of the API server's clients.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What an agent's certificate is for.
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// The group of bootstrap tokens that may ask for any node's identity.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:daemonlet";

/// The user name of a node's agent.
pub fn user(node: &str) -> String {
    format!("{USER_PREFIX}{node}")
}

/// The name of the request for a key: the same key gives the same name, so that who was interrupted goes on
/// with the request that is there.
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

/// What is to become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// It is about somebody else: not a word about it.
    NotOurs,
    /// It is about an agent, and not for us to approve: left alone, and reported with this reason.
    LeaveAlone(String),
    /// It may be approved if the cluster has this Node.
    IfNodeExists(String),
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
            return ApprovalVerdict::LeaveAlone(error.to_string());
        }
        Err(_) => return ApprovalVerdict::NotOurs,
    };
    if let Some(usage) = asked.usages.iter().find(|usage| !may_use(usage)) {
        return ApprovalVerdict::LeaveAlone(format!("it asks for the usage {usage}"));
    }
    if !asked.usages.iter().any(|usage| usage == "client auth") {
        return ApprovalVerdict::LeaveAlone("it does not ask for the usage client auth".to_owned());
    }
    match agent.or(kubelet) {
        Some(own) if own == node => ApprovalVerdict::IfNodeExists(node),
        None if bootstrap => ApprovalVerdict::IfNodeExists(node),
        _ => ApprovalVerdict::LeaveAlone(format!(
            "{} may not ask for {}: the kubelet of that node, its agent and a bootstrap token of the group \
             {BOOTSTRAP_GROUP} may",
            asked.user,
            user(&node)
        )),
    }
}

fn may_use(usage: &str) -> bool {
    USAGES.contains(&usage) || usage == "key encipherment"
}

#[cfg(test)]
mod tests;
