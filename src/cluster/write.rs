//! The coordinator's writes and questions: the one place that they leave from. What watches read, `inputs` asks for.
//!
//! Owns how they are sent, and what an answer is.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::DeleteParams;
use kube::api::DynamicObject;
use kube::api::ListParams;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use kube::api::Preconditions;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use kube::core::Status;
use serde_json::json;
use tokio::task::JoinSet;

use crate::core::cluster::liveness;
use crate::core::cluster::requests::Call;
use crate::core::cluster::requests::ClusterRequest;
use crate::core::cluster::requests::CoordinatorReply;
use crate::core::cluster::requests::RequestOutcome;
use crate::core::cluster::requests::SendError;
use crate::core::cluster::snapshot::Change;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::escape;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::node::api::ApiFailure;

use super::inputs::ClusterEvent;
use super::inputs::ClusterEvents;
use super::lease::Held;
use super::watch;

/// Requests at one time.
const AT_ONCE: usize = 16;
/// Bytes of the API server's words that are kept.
const WORDS: usize = 512;
/// Bytes of a name.
const NAME: usize = 253;
/// A request takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends what the coordinator decides, [`AT_ONCE`] requests at a time.
pub(super) struct Writer {
    client: kube::Client,
    events: ClusterEvents,
    /// What is being sent; it ends when this is dropped.
    sending: JoinSet<()>,
}

impl Writer {
    /// Each reply becomes one of the `events`.
    pub(super) fn new(client: kube::Client, events: ClusterEvents) -> Self {
        Self { client, events, sending: JoinSet::new() }
    }

    /// Sends `requests` in the background, in their order, while the Lease is held.
    pub(super) fn send(&mut self, requests: Vec<ClusterRequest>, (term, held): (u64, Option<Held>)) {
        while self.sending.try_join_next().is_some() {}
        if requests.is_empty() {
            return;
        }
        let (client, events) = (self.client.clone(), self.events.clone());
        self.sending.spawn(futures::stream::iter(requests).for_each_concurrent(AT_ONCE, move |request| {
            let (client, events, held) = (client.clone(), events.clone(), held.clone());
            async move {
                let (answer, change) = match held.filter(|held| !held.is_over()) {
                    None => (RequestOutcome::NotSent, None),
                    // What is under way ends before another may hold the Lease.
                    Some(held) => {
                        let patience = held.left().min(PATIENCE);
                        answer(tokio::time::timeout(patience, carry_out(&client, request.call)).await)
                    }
                };
                let reply = CoordinatorReply { number: request.number, answer };
                // Nothing receives it once the coordinator has ended.
                let _ = events.send(ClusterEvent::Replied(term, reply, change)).await;
            }
        }));
    }
}

/// What an exchange showed.
enum Shown {
    Now(WatchedKind, DynamicObject),
    Gone(WatchedKind, ObjectKey),
    Pod(Option<DynamicObject>),
    Leases(BTreeMap<String, String>),
    Event,
    /// What the write depends on is not there.
    Missing(&'static str),
}

fn answer(
    outcome: Result<Result<Shown, kube::Error>, tokio::time::error::Elapsed>,
) -> (RequestOutcome, Option<Change>) {
    match outcome {
        Ok(Ok(Shown::Now(kind, object))) => {
            (RequestOutcome::Written, Some(Change::Written(kind, Box::new(watch::value(object)))))
        }
        Ok(Ok(Shown::Gone(kind, key))) => {
            let metadata = json!({"namespace": key.namespace, "name": key.name});
            (RequestOutcome::Written, Some(Change::Gone(kind, Box::new(json!({"metadata": metadata})))))
        }
        Ok(Ok(Shown::Pod(pod))) => (RequestOutcome::Pod(pod.map(|pod| Box::new(watch::value(pod)))), None),
        Ok(Ok(Shown::Event)) => (RequestOutcome::Written, None),
        Ok(Ok(Shown::Leases(leases))) => (RequestOutcome::Leases(leases), None),
        Ok(Ok(Shown::Missing(what))) => (RequestOutcome::Outdated(what.to_owned()), None),
        Ok(Err(error)) => {
            let words = words(&error);
            let outcome = match error {
                kube::Error::Api(status) if matches!(status.code, 404 | 409) => RequestOutcome::Outdated(words),
                kube::Error::Api(status) => RequestOutcome::Failed(SendError::of(status.code, words)),
                _ => RequestOutcome::Failed(SendError::Unanswered(words)),
            };
            (outcome, None)
        }
        Err(_) => {
            let message = format!("no answer within {} s", PATIENCE.as_secs());
            (RequestOutcome::Failed(SendError::Unanswered(message)), None)
        }
    }
}

/// Why a request failed, in a bounded number of words: they go into conditions and the log.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refused_data(status),
        _ => None,
    }
    .unwrap_or_else(|| escape::short(&ApiFailure::from_kube(error).message, WORDS).into_owned())
}

/// What it means that the API server refuses a patch of a ControllerRevision because of its data, which no patch of ours
/// changes: the API server encodes the object anew to patch it, and compares the bytes of the data with those that are stored.
/// They differ where they were not written as Go writes JSON (`ValidateControllerRevisionUpdate` of upstream).
fn refused_data(status: &Status) -> Option<String> {
    let details = status.details.as_ref().filter(|details| details.kind == "ControllerRevision")?;
    let is_it = status.code == 422 && details.causes.iter().any(|cause| cause.field == "data");
    is_it.then(|| {
        format!(
            "the API server lets no patch change ControllerRevision {}, not even its annotations: its data is not written as \
             the API server writes JSON, so that each patch would change the data, too; delete this ControllerRevision: the \
             coordinator makes the one of the current template anew",
            escape::short(&details.name, NAME)
        )
    })
}

fn api(client: &kube::Client, kind: WatchedKind, key: &ObjectKey) -> Api<DynamicObject> {
    match key.namespace.as_str() {
        "" => Api::all_with(client.clone(), &watch::resource(kind)),
        namespace => Api::namespaced_with(client.clone(), namespace, &watch::resource(kind)),
    }
}

async fn carry_out(client: &kube::Client, call: Call) -> Result<Shown, kube::Error> {
    let parameters = PatchParams::default();
    match call {
        Call::Patch(kind, key, patch) => {
            let patched = api(client, kind, &key).patch(&key.name, &parameters, &Patch::Merge(patch)).await;
            patched.map(|object| Shown::Now(kind, object))
        }
        Call::PatchStatus(key, patch) => {
            let daemon_sets = api(client, WatchedKind::DaemonSets, &key);
            let patched = daemon_sets.patch_status(&key.name, &parameters, &Patch::Merge(patch)).await;
            patched.map(|object| Shown::Now(WatchedKind::DaemonSets, object))
        }
        Call::CreateRevision(namespace, body) => {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions");
            let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
            let request = request.body(body.into_bytes()).map_err(kube::Error::HttpError)?;
            client.request(request).await.map(|object| Shown::Now(WatchedKind::Revisions, object))
        }
        Call::AdoptRevision(key, patch, owner, uid) => {
            let live =
                api(client, WatchedKind::DaemonSets, &owner).get_opt(&owner.name).await?.map(|live| live.metadata);
            if live.is_none_or(|live| live.uid != Some(uid) || live.deletion_timestamp.is_some()) {
                return Ok(Shown::Missing("its DaemonSet is gone"));
            }
            let patched =
                api(client, WatchedKind::Revisions, &key).patch(&key.name, &parameters, &Patch::Merge(patch)).await;
            patched.map(|object| Shown::Now(WatchedKind::Revisions, object))
        }
        Call::DeleteRevision(key, uid, version) => {
            let preconditions = Preconditions { uid: Some(uid), resource_version: Some(version) };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            api(client, WatchedKind::Revisions, &key).delete(&key.name, &parameters).await?;
            Ok(Shown::Gone(WatchedKind::Revisions, key))
        }
        Call::Approve(name, node, approved) => {
            let requests = api(client, WatchedKind::CertificateRequests, &ObjectKey::new("", &name));
            let node = ObjectKey::new("", &node);
            let live = api(client, WatchedKind::Nodes, &node).get_opt(&node.name).await?;
            if live.is_none_or(|live| live.metadata.deletion_timestamp.is_some()) {
                return Ok(Shown::Missing("its Node is gone"));
            }
            let approved: DynamicObject = serde_json::from_value(approved).map_err(kube::Error::SerdeError)?;
            let approved = requests.replace_subresource("approval", &name, &PostParams::default(), &approved).await;
            approved.map(|object| Shown::Now(WatchedKind::CertificateRequests, object))
        }
        Call::GetPod(key) => {
            let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
            let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &pods);
            pods.get_opt(&key.name).await.map(Shown::Pod)
        }
        Call::Event(key, event, series) => {
            let events = ApiResource::from_gvk(&GroupVersionKind::gvk("events.k8s.io", "v1", "Event"));
            let events: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &events);
            let event: DynamicObject = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
            match events.create(&PostParams::default(), &event).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    events.patch(&key.name, &parameters, &Patch::Merge(series)).await.map(|_| Shown::Event)
                }
                created => created.map(|_| Shown::Event),
            }
        }
        Call::ListLeases => {
            let leases = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
            let leases: Api<DynamicObject> = Api::namespaced_with(client.clone(), liveness::NAMESPACE, &leases);
            let cached = ListParams::default().match_any();
            let found = leases.list(&cached).await?.items.into_iter().filter_map(|lease| {
                let renewed = lease.data.text_at(["spec", "renewTime"])?.to_owned();
                Some((lease.metadata.name?, renewed))
            });
            Ok(Shown::Leases(found.collect()))
        }
    }
}

#[cfg(test)]
mod tests;
