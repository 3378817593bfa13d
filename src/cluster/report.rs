//! The coordinator's lines in the log.

use crate::core::cluster::certificates::NotApproved;
use crate::core::cluster::decide::Notice;
use crate::core::cluster::liveness::NAMESPACE;
use crate::core::enrolment;
use crate::core::escape;

/// Bytes of a reason, which may quote a certificate request.
const REASON: usize = 512;

pub(super) fn log(reports: &[Notice]) {
    for report in reports {
        match report {
            Notice::Unreadable(kind, why) => {
                tracing::warn!(?kind, "{why}");
            }
            Notice::Unclaimed(key, node) => {
                tracing::warn!(daemonset = %key, "the approval for node {node} was not claimed and is withdrawn");
            }
            Notice::FewAgents(few) => tracing::warn!(
                daemonset = %few.key,
                "agents on {} of its {} nodes, {} among them, say that they run {} in place of the DaemonSet controller: \
                 too few to be believed; it is left alone; hint: label it daemonlet.dev/mode=static if they are to",
                few.run,
                few.should,
                few.node,
                few.key
            ),
            Notice::LeftOut(node, count) => tracing::warn!(
                "the agent of node {node} reports {count} daemons more than the coordinator takes from one agent; it leaves \
                 out those without an instance first"
            ),
            Notice::Approved(name, node) => {
                let user = enrolment::user(node);
                tracing::info!(request = name, "approved certificatesigningrequest {name} for {user}");
            }
            Notice::NotApproved { name, user, why: NotApproved::LeftAlone(why) } => {
                let why = why.to_string();
                let why = escape::short(&why, REASON);
                tracing::warn!("certificatesigningrequest {name} of {user} is left alone: {why}");
            }
            Notice::NotApproved { name, why: NotApproved::NoNode(node), .. } => {
                tracing::warn!("certificatesigningrequest {name} waits: there is no Node {node}");
            }
            Notice::LookupFailed(claim, error) => tracing::warn!(
                daemonset = %claim.key,
                "pod {} of a DaemonSet controller, which node {} reports, cannot be looked up: {error}; hint: the \
                 coordinator's rights have to be those of this version's coordinator-rbac.yaml",
                claim.pod,
                claim.node
            ),
            Notice::LeasesUnread(error) => tracing::warn!(
                "the agents' Leases in {NAMESPACE} cannot be read: {error}; agents that die are not noticed; hint: apply \
                 coordinator-rbac.yaml and rbac.yaml of this version"
            ),
            Notice::EventFailed(trouble, error) => tracing::warn!(
                daemonset = %trouble.key,
                "an event is not written: {error}; trying again; hint: apply coordinator-rbac.yaml of this version"
            ),
            Notice::Outdated(target, message) => tracing::debug!("{target}: {message}"),
            Notice::WriteFailed { target, error, is_new: true } => {
                tracing::warn!("{target}: {error}; trying again");
            }
            Notice::WriteFailed { target, error, is_new: false } => {
                tracing::debug!("{target}: {error}; trying again");
            }
        }
    }
}
