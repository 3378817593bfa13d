//! Direct requests to the API server before something is removed.
//!
//! Owns the questions "does this DaemonSet exist?" and "which cluster is this?". Must not decide.

use kube::Api;
use kube::api::DeleteParams;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use kube::api::Preconditions;
use serde_json::Value;

use crate::core::dry_run::DryRunReply;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// The answer to a GET of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum GetResult {
    /// It exists; its content, of a DaemonSet what the agent reads of one.
    Object(Value),
    /// The API server has the resource and answers that this object does not exist.
    NotFound,
    /// Unknown.
    Error(ApiFailure),
}

/// Reads one DaemonSet.
pub(super) async fn get_daemon_set(client: &kube::Client, key: &ObjectKey) -> GetResult {
    let resource = object::api_resource("apps", "DaemonSet", "daemonsets");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    match api.get(&key.name).await.and_then(|found| found.asked_for(&key.name)) {
        Ok(found) => match object::keep_daemon_set(found.value) {
            Some(value) => GetResult::Object(value),
            None => GetResult::Error(ApiFailure::new(FailureKind::Protocol, "the answer is not an object")),
        },
        Err(kube::Error::Api(status)) if is_absence(&status, "daemonsets", &key.name) => GetResult::NotFound,
        Err(error) => GetResult::Error(ApiFailure::from_kube(&error)),
    }
}

/// Reads one cluster-scoped object, given its kind and resource.
pub(super) async fn get_unnamespaced(client: &kube::Client, kind: (&str, &str), name: &str) -> GetResult {
    let api: Api<RawObject> = Api::all_with(client.clone(), &object::api_resource("", kind.0, kind.1));
    match api.get(name).await.and_then(|found| found.asked_for(name)) {
        Ok(found) => GetResult::Object(found.value),
        Err(kube::Error::Api(status)) if is_absence(&status, kind.1, name) => GetResult::NotFound,
        Err(error) => GetResult::Error(ApiFailure::from_kube(&error)),
    }
}

/// Dry-runs the creation of `pod`.
pub(super) async fn dry_run_pod(client: &kube::Client, namespace: &str, pod: Value) -> DryRunReply {
    let resource = object::api_resource("", "Pod", "pods");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let body: RawObject = match serde_json::from_value(pod) {
        Ok(body) => body,
        Err(error) => return DryRunReply::NoAnswer(error.to_string()),
    };
    match api.create(&params, &body).await {
        Ok(answered) => DryRunReply::Pod(answered.value),
        Err(kube::Error::Api(status)) => DryRunReply::Status {
            code: status.code,
            names_object: status.details.as_ref().is_some_and(|details| !details.name.is_empty()),
            message: if status.message.is_empty() { status.reason.clone() } else { status.message.clone() },
        },
        Err(error) => DryRunReply::NoAnswer(ApiFailure::from_kube(&error).to_string()),
    }
}

/// Deletes one pod, unless another pod has its name now.
pub(super) async fn delete_pod(
    client: &kube::Client,
    key: &ObjectKey,
    uid: &str,
    grace: u32,
) -> Result<(), ApiFailure> {
    let resource = object::api_resource("", "Pod", "pods");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(grace);
    match api.delete(&key.name, &params).await {
        Ok(_) => Ok(()),
        // It is gone, or another pod has its name.
        Err(kube::Error::Api(status)) if status.code == 409 || is_absence(&status, "pods", &key.name) => Ok(()),
        Err(error) => Err(ApiFailure::from_kube(&error)),
    }
}

/// Reads one pod.
pub(super) async fn get_pod(client: &kube::Client, key: &ObjectKey) -> GetResult {
    let resource = object::api_resource("", "Pod", "pods");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    match api.get(&key.name).await.and_then(|found| found.asked_for(&key.name)) {
        Ok(found) => GetResult::Object(found.value),
        Err(kube::Error::Api(status)) if is_absence(&status, "pods", &key.name) => GetResult::NotFound,
        Err(error) => GetResult::Error(ApiFailure::from_kube(&error)),
    }
}

/// UID of the namespace `kube-system`, which identifies the cluster.
pub(super) async fn cluster_uid(client: &kube::Client) -> Result<String, ApiFailure> {
    let api: Api<RawObject> = Api::all_with(client.clone(), &object::api_resource("", "Namespace", "namespaces"));
    let found = api.get("kube-system").await.map_err(|error| ApiFailure::from_kube(&error))?;
    let uid = found.value.text_at(["metadata", "uid"]).map(String::from);
    uid.ok_or_else(|| ApiFailure::new(FailureKind::Protocol, "the namespace kube-system has no UID"))
}

/// Patches one pod with a JSON merge patch; the UID in the patch protects another pod of that name.
pub(super) async fn patch_pod(client: &kube::Client, key: &ObjectKey, patch: &Value) -> Result<(), ApiFailure> {
    let resource = object::api_resource("", "Pod", "pods");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
    let patched = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| ApiFailure::from_kube(&error))
}

/// Whether a 404 really says that this object does not exist. A missing API group, a load balancer's error page and a
/// wrong path are 404 too.
pub(super) fn is_absence(status: &kube::core::Status, resource: &str, name: &str) -> bool {
    let details = status.details.as_ref();
    status.code == 404
        && status.reason == "NotFound"
        && details.is_some_and(|details| details.kind == resource && details.name == name)
}
