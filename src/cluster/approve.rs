//! Approving the certificate requests of nodes' agents.
//!
//! Owns the watch over requests for this signer, and the write. Who may ask for what is `core::enrolment`'s to
//! say; here only the Node is looked for, at the moment of approval. Whatever else is asked for stays as it
//! is and is reported once.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use kube::Api;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::api::PostParams;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::runtime::watcher::Config;
use kube::runtime::watcher::Event;
use serde_json::Value;
use serde_json::json;

use crate::core::cluster::snapshot::WatchedKind;
use crate::core::enrolment;
use crate::core::enrolment::ApprovalVerdict;
use crate::core::enrolment::CertificateRequest;

use super::watch;

/// A request whose Node is not there yet, or whose approval failed, is looked at again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// Approves until the task is dropped.
pub(super) async fn keep(client: kube::Client) {
    let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let requests: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let nodes: Api<DynamicObject> = Api::all_with(client, &watch::resource(WatchedKind::Nodes));
    let config = Config::default().fields(&format!("spec.signerName={}", enrolment::SIGNER));
    let mut stream = pin!(watcher(requests.clone(), config).default_backoff());
    let mut open: BTreeMap<String, DynamicObject> = BTreeMap::new();
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    loop {
        tokio::select! {
            event = stream.next() => match event {
                Some(Ok(Event::Apply(request) | Event::InitApply(request))) if is_open(&request) => {
                    open.insert(request.name_any(), request);
                }
                Some(Ok(Event::Apply(request) | Event::InitApply(request) | Event::Delete(request))) => {
                    open.remove(&request.name_any());
                    said.remove(&request.name_any());
                    continue;
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    say(&mut said, "", &format!("certificate requests cannot be watched: {error}; trying again"));
                    continue;
                }
                None => return,
            },
            () = tokio::time::sleep(AGAIN), if !open.is_empty() => {}
        }
        let mut done = Vec::new();
        for (name, request) in &open {
            match approve(&requests, &nodes, request).await {
                Ok(Some(approved)) => {
                    tracing::info!(request = name, "approved certificatesigningrequest {name} for {approved}");
                    done.push(name.clone());
                }
                Ok(None) => done.push(name.clone()),
                Err(NotApproved::Left(why)) => {
                    let user = request.data.pointer("/spec/username").and_then(Value::as_str).unwrap_or_default();
                    say(&mut said, name, &format!("certificatesigningrequest {name} of {user} is left alone: {why}"));
                    done.push(name.clone());
                }
                Err(NotApproved::Waits(why)) => {
                    say(&mut said, name, &format!("certificatesigningrequest {name} waits: {why}"))
                }
            }
        }
        for name in done {
            open.remove(&name);
        }
    }
}

/// Why a request is not approved.
enum NotApproved {
    /// It never will be by us.
    Left(String),
    /// It may be later.
    Waits(String),
}

/// Says `words` about `name` unless that was said.
fn say(said: &mut BTreeMap<String, String>, name: &str, words: &str) {
    if said.insert(name.to_owned(), words.to_owned()).as_deref() != Some(words) {
        tracing::warn!("{words}");
    }
}

fn is_open(request: &DynamicObject) -> bool {
    let decided = request.data.pointer("/status/conditions").and_then(Value::as_array);
    decided.is_none_or(Vec::is_empty) && request.metadata.deletion_timestamp.is_none()
}

/// Approves `request` if it may be; gives whom it is for. `None`: it is nothing to us.
async fn approve(
    requests: &Api<DynamicObject>,
    nodes: &Api<DynamicObject>,
    request: &DynamicObject,
) -> Result<Option<String>, NotApproved> {
    let text = |field: &str| request.data.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let texts = |field: &str| -> Vec<String> {
        let list = request.data.pointer(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let (usages, groups) = (texts("/spec/usages"), texts("/spec/groups"));
    let pem = STANDARD.decode(text("/spec/request")).unwrap_or_default();
    let asked = CertificateRequest {
        signer: text("/spec/signerName"),
        usages: &usages,
        user: text("/spec/username"),
        groups: &groups,
        request: &pem,
    };
    let node = match enrolment::judge(&asked) {
        ApprovalVerdict::NotOurs => return Ok(None),
        ApprovalVerdict::LeaveAlone(why) => return Err(NotApproved::Left(why)),
        ApprovalVerdict::IfNodeExists(node) => node,
    };
    let waits = |error: kube::Error| NotApproved::Waits(error.to_string());
    match nodes.get_opt(&node).await.map_err(waits)? {
        Some(found) if found.metadata.deletion_timestamp.is_none() => {}
        _ => return Err(NotApproved::Waits(format!("there is no Node {node}"))),
    }
    let mut approved = request.clone();
    approved.data["status"]["conditions"] = json!([{
        "type": "Approved",
        "status": "True",
        "reason": "NodeExists",
        "message": format!("daemonlet's coordinator: the agent of Node {node}, asked for by {}", asked.user),
    }]);
    // The resource version goes with it: what was judged is what is approved.
    let name = request.name_any();
    match requests.replace_subresource("approval", &name, &PostParams::default(), &approved).await {
        Ok(_) => Ok(Some(enrolment::user(&node))),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(waits(error)),
    }
}
