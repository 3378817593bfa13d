//! Looking up a pod that an agent tells of.
//!
//! Owns the question. What the answer means is `core::cluster`'s to say.

use kube::Api;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use tokio::sync::mpsc;

use crate::core::cluster::view::Change;
use crate::core::cluster::view::Claim;

use super::watch;

/// Pods that are looked up after one pass; the others are when they come up again.
const MOST: usize = 64;

/// Asks for each pod; the answers come as changes. Who gets none is asked about again in time.
pub(super) fn up(client: &kube::Client, claims: Vec<Claim>, changes: &mpsc::Sender<Change>) {
    let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    for claim in claims.into_iter().take(MOST) {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &claim.key.namespace, &pods);
        let changes = changes.clone();
        tokio::spawn(async move {
            match api.get_opt(&claim.pod).await {
                Ok(pod) => {
                    let pod = pod.map(|pod| Box::new(watch::value(pod)));
                    // Nobody waits for it when the Lease has gone.
                    let _ = changes.send(Change::LookedUp(claim, pod)).await;
                }
                Err(error) => tracing::warn!(
                    daemonset = %claim.key,
                    "pod {} of a DaemonSet controller, of which node {} tells, cannot be looked up: {error}; hint: the \
                     coordinator's rights have to be those of this version's coordinator-rbac.yaml",
                    claim.pod,
                    claim.node
                ),
            }
        });
    }
}
