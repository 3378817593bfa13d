//! Certificate requests that no one has decided, each with what is to become of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::core::enrolment;
use crate::core::enrolment::ApprovalVerdict;
use crate::core::enrolment::CertificateRequest;
use crate::core::enrolment::NotApprovable;
use crate::core::json::Json;

use super::ClusterSnapshot;

/// A request has no more bytes, as JSON: an agent's has some 3,000.
const LONGEST: usize = 32 << 10;
/// Characters of a user's name that are kept.
const TEXT: usize = 512;

/// A certificate request that may concern an agent.
#[derive(Clone, Debug)]
pub struct OpenCertificateRequest {
    /// Who asks.
    pub user: String,
    /// What is to become of it.
    pub verdict: ApprovalVerdict,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// As the API has it, if it may be approved.
    pub object: Option<Value>,
}

impl ClusterSnapshot {
    pub(super) fn put_certificate_request(&mut self, object: Value) {
        let name = object.str_at(["metadata", "name"]).to_owned();
        match open(object) {
            Some(request) => drop(self.certificate_requests.insert(name, request)),
            None => drop(self.certificate_requests.remove(&name)),
        }
    }
}

fn open(object: Value) -> Option<OpenCertificateRequest> {
    let decided = !object.list_at(["status", "conditions"]).is_empty();
    let is_going = object.at(["metadata", "deletionTimestamp"]).is_some();
    let fields = |field: &str| -> Vec<String> {
        object.list_at(["spec", field]).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let user = object.str_at(["spec", "username"]).to_owned();
    let mut verdict = enrolment::judge(&CertificateRequest {
        signer: object.str_at(["spec", "signerName"]),
        usages: &fields("usages"),
        user: &user,
        groups: &fields("groups"),
        request: &STANDARD.decode(object.str_at(["spec", "request"])).unwrap_or_default(),
    });
    let resource_version = object.str_at(["metadata", "resourceVersion"]).to_owned();
    let is_open = !decided && !is_going && verdict != ApprovalVerdict::NotOurs;
    let bytes = object.to_string().len();
    if verdict != ApprovalVerdict::NotOurs && bytes > LONGEST {
        verdict = ApprovalVerdict::LeaveAlone(NotApprovable::TooLong { bytes, most: LONGEST });
    }
    let user = user.chars().take(TEXT).collect();
    let object = matches!(verdict, ApprovalVerdict::IfNodeExists(_)).then_some(object);
    is_open.then_some(OpenCertificateRequest { user, verdict, resource_version, object })
}
