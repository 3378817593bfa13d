//! Failures of requests to the API server: their kinds and texts.
//!
//! Owns the one error type of this part; it is cloned for everyone who waits for the same connection. Must not decide
//! what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use kube::core::Status;
use kube::runtime::watcher;
use serde::Serialize;

use crate::node::fsx::FsError;

/// The kinds of failure that are treated or shown differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// The kubeconfig, or a file that it names, cannot be used.
    Kubeconfig,
    /// No connection: refused, no route, unknown host, reset.
    Unreachable,
    /// Connected or accepted, then no answer.
    Timeout,
    /// The TLS handshake failed (certificate not trusted, wrong name, refused client certificate).
    Tls,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404: the resource or the API group does not exist.
    NotFound,
    /// 409: the object was changed in the meantime.
    Conflict,
    /// 410: the resource version is too old; a new list follows.
    Expired,
    /// 422: the object, or a `test` of a JSON Patch, is refused.
    Invalid,
    /// Any other error status of the API server.
    Server,
    /// Not an answer of an API server.
    Protocol,
}

/// A failed request or connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct ApiFailure {
    pub kind: FailureKind,
    /// The cause, in lower case.
    pub message: String,
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ApiFailure {}

impl ApiFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Whether there was no working connection.
    pub fn is_link(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Kubeconfig | FailureKind::Unreachable | FailureKind::Timeout | FailureKind::Tls
        )
    }

    pub(super) fn timeout(what: &str, after: Duration) -> Self {
        Self::new(FailureKind::Timeout, format!("{what}: no answer within {} s", after.as_secs()))
    }

    pub(super) fn io(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            return Self::new(FailureKind::Timeout, format!("{what}: timed out"));
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            // rustls explains a missing close_notify at length.
            return Self::new(FailureKind::Unreachable, format!("{what}: closed by the other side"));
        }
        Self::new(FailureKind::Unreachable, format!("{what}: {}", io_words(error)))
    }

    /// An error status of the API server.
    pub(super) fn status(status: &Status) -> Self {
        let kind = match status.code {
            401 => FailureKind::Unauthorized,
            403 => FailureKind::Forbidden,
            404 => FailureKind::NotFound,
            409 => FailureKind::Conflict,
            410 => FailureKind::Expired,
            422 => FailureKind::Invalid,
            _ => FailureKind::Server,
        };
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        let message = match (message.is_empty(), status.code) {
            (true, 0) => "the API server refuses, and says neither why nor by which status".to_owned(),
            (true, code) => format!("the API server refuses, and does not say why ({code})"),
            (false, code) => format!("{message} ({code})"),
        };
        Self::new(kind, message)
    }

    /// From kube's error: our own failure if it is the cause, else the API's status, else its text.
    pub fn from_kube(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::status(status);
        }
        if let Some(own) = find(error) {
            return own.clone();
        }
        Self::new(FailureKind::Protocol, words(error))
    }

    /// From an error of a watch.
    pub(crate) fn from_watcher(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::from_kube(error),
            watcher::Error::WatchError(status) => Self::status(status),
            watcher::Error::NoResourceVersion => {
                Self::new(FailureKind::Protocol, "an object without a resource version came from the server")
            }
        }
    }
}

/// The [`ApiFailure`] at the bottom of a chain of errors. `io::Error` hides its inner error from `source()`, so it is
/// handled explicitly.
fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a ApiFailure> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<ApiFailure>() {
            return Some(own);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// An error and its sources, joined by `: `, without what is printed before: a whole source, or the path of a file.
pub fn words(error: &(dyn StdError + 'static)) -> String {
    let error = innermost(error);
    let mut text = error.downcast_ref::<io::Error>().map_or_else(|| error.to_string(), io_words);
    let mut source = error.source().map(innermost);
    while let Some(error) = source {
        let part = match (error.downcast_ref::<io::Error>(), error.downcast_ref::<FsError>()) {
            (Some(error), _) => io_words(error),
            (None, Some(step)) => step.after(&text),
            _ => error.to_string(),
        };
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = error.source().map(innermost);
    }
    text
}

/// The innermost error below those that only repeat it, with or without a prefix of the client library.
fn innermost<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    if let Some(kube::Error::Service(below)) = error.downcast_ref::<kube::Error>() {
        return innermost(&**below);
    }
    match error.source() {
        Some(below) if below.to_string() == error.to_string() => innermost(below),
        _ => error,
    }
}

/// An I/O error in lower case without its number: `connection refused`.
fn io_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_without_words_is_one() {
        let said = |message: &str, code| {
            let status = Status { message: message.to_owned(), code, ..Status::default() };
            ApiFailure::status(&status).message
        };
        assert_eq!(said("", 0), "the API server refuses, and says neither why nor by which status");
        assert_eq!(said("", 500), "the API server refuses, and does not say why (500)");
        assert_eq!(said("boom", 500), "boom (500)");
    }

    #[test]
    fn a_failure_is_found_below_every_wrapper() {
        let own = ApiFailure::timeout("connect to 192.0.2.1:6443", Duration::from_secs(10));
        let inner = kube::Error::Service(Box::new(own.clone()));
        assert_eq!(ApiFailure::from_kube(&inner), own);
        assert_eq!(words(&inner), own.message);
        let nested = kube::Error::ReadEvents(io::Error::other(inner));
        assert_eq!(ApiFailure::from_kube(&nested), own);
    }

    #[test]
    fn io_errors_are_words() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(ApiFailure::io("connect to a:1", &refused).message, "connect to a:1: connection refused");
    }
}
