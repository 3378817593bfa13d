//! Certificate requests that no one has decided, each with what is to become of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::core::enrolment;
use crate::core::enrolment::ApprovalVerdict;
use crate::core::enrolment::CertificateRequest;

use super::ClusterSnapshot;
use super::objects::text;

/// A certificate request that may concern an agent.
#[derive(Clone, Debug)]
pub struct OpenCertificateRequest {
    /// Who asks.
    pub user: String,
    /// What is to become of it.
    pub verdict: ApprovalVerdict,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// As the API has it.
    pub object: Value,
}

impl ClusterSnapshot {
    pub(super) fn put_certificate_request(&mut self, object: Value) {
        let name = text(&object, "name").to_owned();
        match open(object) {
            Some(request) => drop(self.certificate_requests.insert(name, request)),
            None => drop(self.certificate_requests.remove(&name)),
        }
    }
}

fn open(object: Value) -> Option<OpenCertificateRequest> {
    let decided = object.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    let field = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let fields = |field: &str| -> Vec<String> {
        let list = object.pointer(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let verdict = enrolment::judge(&CertificateRequest {
        signer: field("/spec/signerName"),
        usages: &fields("/spec/usages"),
        user: field("/spec/username"),
        groups: &fields("/spec/groups"),
        request: &STANDARD.decode(field("/spec/request")).unwrap_or_default(),
    });
    let (user, resource_version) = (field("/spec/username").to_owned(), field("/metadata/resourceVersion").to_owned());
    let is_open = !decided && !is_going && verdict != ApprovalVerdict::NotOurs;
    is_open.then_some(OpenCertificateRequest { user, verdict, resource_version, object })
}
