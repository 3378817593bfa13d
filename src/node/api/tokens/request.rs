//! One TokenRequest on the wire.
//!
//! Owns the exchange. It avoids kube's typed calls: those log an answer that they cannot parse, and this answer is a
//! secret.

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde_json::json;

use crate::core::model::TokenRequest;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::tokens::IssuedToken;

#[derive(Deserialize)]
struct TokenReply {
    spec: AnswerSpec,
    status: AnswerStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerSpec {
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    token: String,
    expiration_timestamp: jiff::Timestamp,
}

/// Requests a token bound to this Node.
pub(super) async fn issue(
    client: &kube::Client,
    request: &TokenRequest,
    node: &str,
    node_uid: &str,
) -> Result<IssuedToken, ApiFailure> {
    let account = &request.service_account;
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", account.namespace, account.name);
    let audiences: Vec<&str> = Some(request.audience.as_str()).into_iter().filter(|name| !name.is_empty()).collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": request.expiration_seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid},
        },
    });
    let protocol = |message: String| ApiFailure::new(FailureKind::Protocol, message);
    let wire = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| protocol(error.to_string()))?;
    let response = client.send(wire).await.map_err(|error| ApiFailure::from_kube(&error))?;
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|error| ApiFailure::from_kube(&error))?.to_bytes();
    if !head.status.is_success() {
        return Err(match serde_json::from_slice::<Status>(&bytes) {
            Ok(status) => ApiFailure::status(&status),
            Err(_) => ApiFailure::new(FailureKind::Server, format!("the server answered {}", head.status)),
        });
    }
    // serde's type errors quote values, so they are not passed on.
    let answer: TokenReply = serde_json::from_slice(&bytes)
        .map_err(|error| protocol(format!("the answer to a token request cannot be parsed (line {})", error.line())))?;
    if answer.status.token.is_empty() {
        return Err(protocol("the answer to a token request has no token".to_owned()));
    }
    let expires = Timestamp::from_secs(answer.status.expiration_timestamp.as_second());
    let life = Span::from_secs(answer.spec.expiration_seconds.unwrap_or(request.expiration_seconds));
    Ok(IssuedToken {
        request: request.clone(),
        token: answer.status.token,
        issued: expires - life,
        expires,
        node_uid: node_uid.to_string(),
        received: None,
    })
}
