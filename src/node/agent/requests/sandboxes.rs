//! Ends pods that no kubelet ends: containers with their grace period, then the sandboxes.

use crate::core::time::Span;
use crate::node::cri::Container;
use crate::node::cri::ContainerState;
use crate::node::cri::Cri;
use crate::node::cri::CriError;

/// Ends the containers of the pod `uid` with their grace period, then its sandboxes. preStop hooks do not run: they are
/// the kubelet's.
pub(super) async fn stop(cri: &Cri, uid: &str, sandboxes: &[String], grace: Span) -> Result<(), CriError> {
    let containers = cri.containers(Some(uid)).await?;
    // A sandbox that the runtime has lost touch with may still run.
    let may_run = |c: &&Container| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
    let stopped = containers.iter().filter(may_run).map(async |c| {
        let stopped = cri.stop_container(&c.id, grace.to_duration()).await;
        // A container that it refuses to stop ends with the sandbox.
        if c.state == ContainerState::Unknown { Ok(()) } else { stopped }
    });
    futures::future::try_join_all(stopped).await?;
    remove(cri, sandboxes).await
}

/// Stops and removes sandboxes.
pub(super) async fn remove(cri: &Cri, sandboxes: &[String]) -> Result<(), CriError> {
    for id in sandboxes {
        cri.stop_sandbox(id).await?;
        cri.remove_sandbox(id).await?;
    }
    Ok(())
}
