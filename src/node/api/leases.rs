//! Leases: this node's in the namespace `daemonlet-node-lease`, and the coordinator's.
//!
//! Owns the form of the first, which is that of a kubelet's. Must not decide when it is renewed.

use kube::Api;
use kube::api::DynamicObject;
use kube::api::PostParams;
use kube::core::ApiResource;
use serde_json::json;

use crate::core::cluster::liveness::NAMESPACE;
use crate::core::cluster::liveness::STALE;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::time::Timestamp;
use crate::node::api::confirm;
use crate::node::api::error::ApiFailure;
use crate::node::api::object;

/// Writes the Lease of `node` as renewed at `at`; gives its version. `version`: that of the Lease, where it is known.
pub(super) async fn renew(
    client: &kube::Client,
    node: &str,
    uid: &str,
    version: Option<String>,
    at: Timestamp,
) -> Result<String, ApiFailure> {
    let resource = resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let time = format!("{:.6}", jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default());
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": STALE.as_secs_ceil(), "renewTime": time});
    let mut lease = DynamicObject::new(node, &resource).data(json!({"spec": spec}));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    lease.metadata.owner_references = serde_json::from_value(owner).ok();
    let failure = |error: kube::Error| ApiFailure::from_kube(&error);
    lease.metadata.resource_version = match version {
        Some(version) => Some(version),
        None => api.get_opt(node).await.map_err(failure)?.and_then(|found| found.metadata.resource_version),
    };
    let written = match lease.metadata.resource_version {
        Some(_) => api.replace(node, &PostParams::default(), &lease).await,
        None => api.create(&PostParams::default(), &lease).await,
    };
    written.map(|lease| lease.metadata.resource_version.unwrap_or_default()).map_err(failure)
}

/// Whether the Lease is held as in `term`: it is there, is that object, and was neither given back nor taken over.
pub(super) async fn is_held(client: &kube::Client, term: &LeaseTerm) -> Result<bool, ApiFailure> {
    let LeaseTerm { namespace, name, .. } = term;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    match api.get(name).await {
        Ok(lease) => {
            let spec = lease.data.get("spec").cloned().unwrap_or_default();
            Ok(term.is_held(&lease.metadata.uid.unwrap_or_default(), &spec))
        }
        Err(kube::Error::Api(status)) if confirm::is_absence(&status, "leases", name) => Ok(false),
        Err(error) => Err(ApiFailure::from_kube(&error)),
    }
}

fn resource() -> ApiResource {
    object::api_resource("coordination.k8s.io", "Lease", "leases")
}
