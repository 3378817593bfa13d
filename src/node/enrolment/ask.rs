//! One step towards a certificate: creates the request if it is missing, and reads it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::Value;
use serde_json::json;

use crate::core::enrolment;
use crate::core::enrolment::AwaitedStep;
use crate::core::enrolment::Certificate;
use crate::core::json::Json;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::EnrolmentError;
use super::files::IdentityFiles;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[derive(Debug)]
pub(super) enum RequestProgress {
    /// The certificate is in force.
    Done(Certificate),
    /// The request of this name is not approved or not signed yet.
    Waiting(String, AwaitedStep),
}

/// Makes a step. Called again, it continues with the same key and request.
///
/// [`EnrolmentError::Refused`] is final: the next step starts with another key.
pub(super) async fn step(
    client: &kube::Client,
    files: &IdentityFiles,
    node: &str,
) -> Result<RequestProgress, EnrolmentError> {
    let key = files.pending()?;
    let request = enrolment::request_name(key.public());
    let failed = |source| EnrolmentError::of_request(&request, source);
    let pem = key.request(node).ok_or(EnrolmentError::Key)?;
    let found = match look(client, &request).await.map_err(failed)? {
        Some(found) => found,
        None => {
            submit(client, &request, &pem).await.map_err(failed)?;
            return Ok(RequestProgress::Waiting(request, AwaitedStep::Approval));
        }
    };
    let awaited = match awaited(&found) {
        Ok(awaited) => awaited,
        Err((what, message)) => {
            files.forget_pending()?;
            return Err(EnrolmentError::Refused { request, what, message });
        }
    };
    let certificate = found.str_at(["status", "certificate"]);
    let chain = STANDARD.decode(certificate).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    if chain.is_empty() {
        return Ok(RequestProgress::Waiting(request, awaited));
    }
    let read = Certificate::read(&chain, node);
    let certificate = read.map_err(|source| EnrolmentError::Certificate { request: request.clone(), source });
    if !certificate.as_ref().is_ok_and(|certificate| certificate.public_key == key.public()) {
        // Another user's request of this name, or a signer that changes what it signs.
        files.forget_pending()?;
        return certificate.and(Err(EnrolmentError::OtherKey(request)));
    }
    let certificate = certificate?;
    files.take(&chain, &key)?;
    Ok(RequestProgress::Done(certificate))
}

/// What a request without a certificate waits for; an error: what has ended it, and the reason given.
fn awaited(request: &Value) -> Result<AwaitedStep, (&'static str, String)> {
    let mut awaited = AwaitedStep::Approval;
    for condition in request.list_at(["status", "conditions"]) {
        let what = match condition.str_at("type") {
            "Denied" => "denied",
            "Failed" => "approved, and its signer failed",
            "Approved" => {
                awaited = AwaitedStep::Signature;
                continue;
            }
            _ => continue,
        };
        return Err((what, condition.str_at("message").to_owned()));
    }
    Ok(awaited)
}

/// The request of that name; `None`: there is none (requests not approved within a day are removed).
async fn look(client: &kube::Client, name: &str) -> Result<Option<Value>, ApiFailure> {
    match client.request::<Value>(wire(Request::get(format!("{PATH}/{name}")), Vec::new())?).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => Ok(None),
        Err(error) => Err(ApiFailure::from_kube(&error)),
    }
}

async fn submit(client: &kube::Client, name: &str, pem: &str) -> Result<(), ApiFailure> {
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": enrolment::SIGNER,
            "usages": enrolment::USAGES,
        },
    });
    match client.request::<Value>(wire(Request::post(PATH), body.to_string().into_bytes())?).await {
        // It has just been created.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer.map(drop).map_err(|error| ApiFailure::from_kube(&error)),
    }
}

fn wire(builder: http::request::Builder, body: Vec<u8>) -> Result<Request<Vec<u8>>, ApiFailure> {
    let builder = builder.header(http::header::CONTENT_TYPE, "application/json");
    builder.body(body).map_err(|error| ApiFailure::new(FailureKind::Protocol, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_approved_waits_for_its_signer_and_not_for_an_approval() {
        let request = |kinds: &[&str]| {
            let conditions: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind, "message": "why"})).collect();
            awaited(&json!({"status": {"conditions": conditions}}))
        };
        assert_eq!(awaited(&json!({})), Ok(AwaitedStep::Approval));
        assert_eq!(request(&["Approved"]), Ok(AwaitedStep::Signature));
        assert_eq!(request(&["Denied"]), Err(("denied", "why".to_owned())));
        assert_eq!(request(&["Approved", "Failed"]).unwrap_err().0, "approved, and its signer failed");
    }
}
