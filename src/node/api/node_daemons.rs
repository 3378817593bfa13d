//! The writes of a node's own NodeDaemons.
//!
//! Owns that a claim follows the object: the coordinator writes approvals of other daemons into it meanwhile. Must not
//! decide what is claimed.

use kube::Api;
use kube::api::DynamicObject;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use serde_json::json;

use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::leases;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// On so many later versions of the object a claim is made, before the next pass decides anew.
const LATER_VERSIONS: u32 = 8;

/// Why a status was not written.
#[derive(Clone, Debug, PartialEq)]
pub enum NotWritten {
    /// The error of the API server or the connection: among them [`FailureKind::Conflict`] for another resource version
    /// than the patch's, and [`FailureKind::Invalid`] for a status that is not the one that was changed.
    Failed(ApiFailure),
    /// Nothing was sent: another process holds this Lease, under which the claimed revision was approved, or it cannot be read.
    NotHeld { lease: LeaseTerm, failure: Option<ApiFailure> },
}

/// Creates the NodeDaemons of a node, owned by it; one that exists is no failure.
pub(super) async fn create(client: &kube::Client, node: &str, uid: &str) -> Result<(), ApiFailure> {
    let resource = object::node_daemons();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut new = DynamicObject::new(node, &resource).data(json!({"spec": {}}));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    new.metadata.owner_references = serde_json::from_value(owner).ok();
    match api.create(&PostParams::default(), &new).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).map_err(|error| ApiFailure::from_kube(&error)),
    }
}

/// Writes the status of a node's NodeDaemons; where it claims, on the versions that follow, too. Gives the status that was
/// written then in place of the one that was asked for.
pub(super) async fn write_status(
    client: &kube::Client,
    node: &str,
    mut patch: StatusPatch,
    claim: Option<&ClaimWrite>,
) -> Result<Option<Status>, NotWritten> {
    let api: Api<RawObject> = Api::all_with(client.clone(), &object::node_daemons());
    let (mut instead, mut left) = (None, LATER_VERSIONS);
    loop {
        for lease in claim.iter().flat_map(|claim| claim.terms()) {
            let failure = match leases::is_held(client, lease).await {
                Ok(true) => continue,
                Ok(false) => None,
                Err(failure) => Some(failure),
            };
            return Err(NotWritten::NotHeld { lease: lease.clone(), failure });
        }
        let body = match &patch {
            StatusPatch::Whole(patch) => Patch::Merge(patch.clone()),
            StatusPatch::Changes(patch) => Patch::Json(patch.clone()),
        };
        let Err(error) = api.patch_status(node, &PatchParams::default(), &body).await else { return Ok(instead) };
        let failure = ApiFailure::from_kube(&error);
        let claim = claim.filter(|_| failure.kind == FailureKind::Conflict && left > 0);
        let Some(claim) = claim else { return Err(NotWritten::Failed(failure)) };
        let found = api.get(node).await.map_err(|_| NotWritten::Failed(failure.clone()))?;
        let (status, bound) = claim.on(&found.value).ok_or(NotWritten::Failed(failure))?;
        (instead, patch) = (Some(status), bound);
        left -= 1;
    }
}
