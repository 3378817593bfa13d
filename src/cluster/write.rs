//! The coordinator's writes, each conditional on what it was decided from.
//!
//! Owns how they are sent.

use futures::StreamExt;
use kube::Api;
use kube::api::DeleteParams;
use kube::api::DynamicObject;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::Preconditions;
use serde_json::Value;
use serde_json::json;

use crate::core::cluster::history;
use crate::core::cluster::pace::Pace;
use crate::core::cluster::pass::Write;
use crate::core::cluster::retries::Failure;
use crate::core::cluster::retries::Retries;
use crate::core::cluster::view::Kind;
use crate::core::cluster::view::View;
use crate::core::model::HASH_LABEL;
use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;

use super::lease::Lease;
use super::watch;

/// Requests at one time.
const AT_ONCE: usize = 16;
/// Writes before the Lease is looked after again: a few seconds even of a slow API server.
const MOST: usize = 256;

/// Sends.
pub(super) struct Writer {
    client: kube::Client,
    pace: Pace,
    retries: Retries,
}

/// Creates a ControllerRevision. The API server keeps `data` as the bytes that it was sent and compares
/// them ever after, so that they have to be the ones that Go would write.
async fn create(
    client: kube::Client,
    namespace: String,
    object: DynamicObject,
) -> Result<Option<DynamicObject>, kube::Error> {
    let body = serde_json::to_value(&object).map(|object| history::bytes(&object)).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post(format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await.map(Some)
}

/// What is written, in words: the same for each try.
fn what(write: &Write) -> String {
    match write {
        Write::Approvals { node, .. } => format!("approvals of node {node}"),
        Write::Status { key, .. } => format!("status of {key}"),
        Write::Revision { key, write } => match write {
            history::Write::Create { name, .. } => format!("new revision {name} of {key}"),
            history::Write::Collision => format!("collision count of {key}"),
            history::Write::Adopt { name } => format!("adoption of revision {name} by {key}"),
            history::Write::Label { name } => format!("label of revision {name} of {key}"),
            history::Write::Renumber { name, .. } => format!("number of revision {name} of {key}"),
            history::Write::Delete { name } => format!("deletion of revision {name} of {key}"),
        },
    }
}

/// A request that is ready to be sent.
struct Prepared {
    kind: Kind,
    /// What it writes, for [`Retries`] and people.
    what: String,
    request: futures::future::BoxFuture<'static, Result<Option<DynamicObject>, kube::Error>>,
}

impl Writer {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, pace: Pace::default(), retries: Retries::default() }
    }

    /// Sends what is due, while the Lease is held. Gives when the rest is.
    pub(super) async fn apply(
        &mut self,
        writes: Vec<Write>,
        view: &mut View,
        lease: &Lease,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut due: Option<Timestamp> = None;
        let mut prepared = Vec::new();
        let mut writes: Vec<(String, Write)> = writes.into_iter().map(|write| (what(&write), write)).collect();
        self.retries.retain(&writes.iter().map(|(what, _)| what.as_str()).collect());
        self.retries.order(&mut writes);
        for (what, write) in writes {
            if prepared.len() >= MOST {
                // The Lease has to be renewed in between; the rest is planned anew.
                due = Some(now);
                break;
            }
            if let Some(at) = self.retries.waits(&what, now) {
                due = Some(due.map_or(at, |d| d.min(at)));
                continue;
            }
            if let Write::Status { key, at_once, nodes, .. } = &write
                && let Err(at) = self.pace.take(key, *nodes, *at_once, now)
            {
                due = Some(due.map_or(at, |d| d.min(at)));
                continue;
            }
            prepared.extend(self.prepare(what, write, view));
        }
        self.pace.retain(|key| view.daemons.contains_key(key));
        // Whoever was stopped for a while finds out here, before anything is sent.
        let sent = prepared.into_iter().map(|p| async move {
            let answer = if lease.holds() { p.request.await } else { Ok(None) };
            (p.kind, p.what, answer)
        });
        let answers: Vec<_> = futures::stream::iter(sent).buffer_unordered(AT_ONCE).collect().await;
        for (kind, what, answer) in answers {
            let (how, error) = match answer {
                Ok(object) => {
                    self.retries.passed(&what);
                    object.into_iter().for_each(|object| view.put(kind, watch::value(object)));
                    continue;
                }
                // Somebody was first: the watch brings what is there now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    self.retries.passed(&what);
                    tracing::debug!("{what}: {}", status.message);
                    continue;
                }
                Err(kube::Error::Api(status)) => (Failure::of(status.code), kube::Error::Api(status)),
                Err(error) => (Failure::Unanswered, error),
            };
            let words = error.to_string();
            let (again, is_new) = self.retries.failed(&what, how, &words, now);
            match is_new {
                true => tracing::warn!("{what}: {words}; trying again"),
                false => tracing::debug!("{what}: {words}; trying again"),
            }
            due = Some(due.map_or(again, |d| d.min(again)));
        }
        due
    }

    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &watch::resource(kind)),
            None => Api::all_with(self.client.clone(), &watch::resource(kind)),
        }
    }

    fn prepare(&self, what: String, write: Write, view: &View) -> Option<Prepared> {
        match write {
            Write::Approvals { node, spec } => {
                let report = view.report(&node)?;
                let api = self.api(Kind::NodeDaemons, None);
                let patch = json!({
                    "metadata": {"uid": report.uid, "resourceVersion": report.resource_version},
                    "spec": {"approvals": spec.approvals},
                });
                let request =
                    async move { api.patch(&node, &PatchParams::default(), &Patch::Merge(patch)).await.map(Some) };
                Some(Prepared { kind: Kind::NodeDaemons, what, request: Box::pin(request) })
            }
            Write::Status { key, status, .. } => self.status(what, &key, status, view),
            Write::Revision { key, write } => self.revision(what, &key, write, view),
        }
    }

    fn status(&self, what: String, key: &ObjectKey, status: Value, view: &View) -> Option<Prepared> {
        let daemon = view.daemons.get(key)?;
        let api = self.api(Kind::DaemonSets, Some(&key.namespace));
        let patch = json!({
            "metadata": {"uid": daemon.uid, "resourceVersion": daemon.resource_version},
            "status": status,
        });
        let name = key.name.clone();
        let request =
            async move { api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(Some) };
        Some(Prepared { kind: Kind::DaemonSets, what, request: Box::pin(request) })
    }

    fn revision(&self, what: String, key: &ObjectKey, write: history::Write, view: &View) -> Option<Prepared> {
        let daemon = view.daemons.get(key)?;
        let api = self.api(Kind::Revisions, Some(&key.namespace));
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": key.name, "uid": daemon.uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let known = |name: &str| view.revisions.get(&ObjectKey::new(&key.namespace, name));
        let condition = |name: &str| {
            known(name).map(|k| json!({"uid": k.uid, "resourceVersion": k.resource_version})).unwrap_or_default()
        };
        let (name, patch) = match write {
            history::Write::Collision => {
                let count = daemon.status.get("collisionCount").and_then(Value::as_i64).unwrap_or(0);
                return self.status(what, key, json!({"collisionCount": count + 1}), view);
            }
            history::Write::Create { name, label, number, data } => {
                let mut object = DynamicObject::new(&name, &watch::resource(Kind::Revisions));
                object.metadata.labels = Some(history::labels(&daemon.template, &label));
                object.metadata.annotations = Some(daemon.daemon_set.annotations.clone());
                object.metadata.owner_references = serde_json::from_value(owner).ok();
                object.data = json!({"data": data, "revision": number});
                let request = create(self.client.clone(), key.namespace.clone(), object);
                return Some(Prepared { kind: Kind::Revisions, what, request: Box::pin(request) });
            }
            history::Write::Delete { name } => {
                let known = known(&name)?;
                let preconditions = Preconditions {
                    uid: Some(known.uid.clone()),
                    resource_version: Some(known.resource_version.clone()),
                };
                let request = async move {
                    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                    api.delete(&name, &parameters).await.map(|_| None)
                };
                return Some(Prepared { kind: Kind::Revisions, what, request: Box::pin(request) });
            }
            history::Write::Adopt { name } => {
                let mut metadata = condition(&name);
                metadata["ownerReferences"] = owner;
                let patch = Patch::Merge(json!({"metadata": metadata}));
                let daemon_sets = self.api(Kind::DaemonSets, Some(&key.namespace));
                let (of, uid) = (key.name.clone(), daemon.uid.clone());
                let request = async move {
                    // As upstream's canAdoptFunc: who was deleted with `orphan`, of which the watch has not told yet, takes
                    // back nothing of what it has just let go.
                    let live = daemon_sets.get_opt(&of).await?.map(|live| live.metadata);
                    match live.is_some_and(|live| live.uid == Some(uid) && live.deletion_timestamp.is_none()) {
                        true => api.patch(&name, &PatchParams::default(), &patch).await.map(Some),
                        false => Ok(None),
                    }
                };
                return Some(Prepared { kind: Kind::Revisions, what, request: Box::pin(request) });
            }
            history::Write::Label { name } => {
                let mut metadata = condition(&name);
                metadata["labels"] = json!({HASH_LABEL: name});
                (name, json!({"metadata": metadata}))
            }
            history::Write::Renumber { name, number } => {
                let metadata = condition(&name);
                (name, json!({"metadata": metadata, "revision": number}))
            }
        };
        let request = async move { api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(Some) };
        Some(Prepared { kind: Kind::Revisions, what, request: Box::pin(request) })
    }
}

#[cfg(test)]
mod tests;
