//! The agent's own identity: a key made here, a certificate from the API server, renewed before it expires.
//!
//! ```text
//!  kubelet's certificate ─┐   identity/pending.pem    CertificateSigningRequest     identity/client.pem
//!  or bootstrap token     ├─> (key, 0600)          ─> approved in the cluster    ─> certificate and key,
//!  or the identity itself ┘                                                         renamed into place
//! ```
//!
//! Owns these files and requests. The old certificate is used until the new one is completely on disk. Must not decide
//! what a valid certificate is or when renewal is due: `core::enrolment` does.

mod ask;
mod enroll;
mod files;
mod key;
mod kubeconfig;
mod renew;

pub use enroll::EnrollOptions;
pub use enroll::EnrollWait;
pub use enroll::Enrolled;
pub use enroll::enroll;
pub use renew::AgentIdentity;

use std::path::Path;
use std::path::PathBuf;

use crate::core::enrolment::AwaitedStep;
use crate::core::enrolment::CertificateError;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::KubeconfigError;
use crate::node::fsx::FsError;

/// Whether `kubeconfig` is the one that [`enroll`] wrote for the identity in `state_dir`.
pub fn is_enrolled(kubeconfig: &Path, state_dir: &Path) -> bool {
    kubeconfig::is_ours(kubeconfig, state_dir) == Some(true)
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// No kubeconfig to start with.
    #[error("no kubeconfig to ask with: {}", absent(.0))]
    NoSource(Vec<PathBuf>),
    /// The kubeconfig for the request cannot be used.
    #[error(transparent)]
    Source(#[from] KubeconfigError),
    /// The same, as the connection reports it.
    #[error(transparent)]
    Connection(ApiFailure),
    /// Another kubeconfig is in the place of ours.
    #[error("kubeconfig {} exists and was not made by daemonlet", .0.display())]
    Taken(PathBuf),
    /// A file could not be read or written.
    #[error("identity cannot be kept")]
    Files(#[from] FsError),
    /// No random numbers, or the library refuses its own key.
    #[error("no key can be made")]
    Key,
    /// The API server could not be reached in time.
    #[error("the API server {server}, which kubeconfig {} names, could not be reached within {seconds} s", kubeconfig.display())]
    Unreachable {
        /// Its URL.
        server: String,
        kubeconfig: PathBuf,
        /// How long it was tried.
        seconds: u64,
        /// Why the last try failed.
        #[source]
        source: ApiFailure,
    },
    /// The API server refused, or its answer cannot be used.
    #[error("certificatesigningrequest {request}")]
    Api {
        /// The request's name.
        request: String,
        /// Its answer.
        #[source]
        source: ApiFailure,
    },
    /// The request was denied.
    #[error("certificatesigningrequest {request} was {what}{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Refused {
        /// The request's name.
        request: String,
        /// `denied`, or that the signer failed.
        what: &'static str,
        /// The reason given.
        message: String,
    },
    /// It was not approved or not signed in time.
    #[error("certificatesigningrequest {request} is {} after {seconds} s", missing(*.awaited))]
    TooLong {
        /// The request's name.
        request: String,
        awaited: AwaitedStep,
        /// How long that was.
        seconds: u64,
    },
    /// The certificate is not what was requested.
    #[error("the certificate of certificatesigningrequest {request} is not used")]
    Certificate {
        /// The request's name.
        request: String,
        #[source]
        source: CertificateError,
    },
    /// The certificate is for another key.
    #[error("the certificate of certificatesigningrequest {0} is for another key")]
    OtherKey(String),
}

fn missing(awaited: AwaitedStep) -> &'static str {
    match awaited {
        AwaitedStep::Approval => "not approved",
        AwaitedStep::Signature => "approved, and nothing has signed it",
    }
}

fn absent(paths: &[PathBuf]) -> String {
    match paths {
        [path] => format!("{} does not exist", path.display()),
        paths => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("none of {} exists", paths.join(", "))
        }
    }
}

impl EnrolmentError {
    fn of_request(request: &str, source: ApiFailure) -> Self {
        match source.kind {
            FailureKind::Kubeconfig => Self::Connection(source),
            _ => Self::Api { request: request.to_owned(), source },
        }
    }

    /// Whether there is no kubeconfig that can be used, or a file cannot be read or written.
    pub fn is_of_files(&self) -> bool {
        matches!(self, Self::NoSource(_) | Self::Source(_) | Self::Connection(_) | Self::Files(_))
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSource(_) => {
                Some("give --from: the kubelet's kubeconfig, or one with a bootstrap token".to_owned())
            }
            Self::Taken(_) => Some(
                "set the key kubeconfig to a file that does not exist yet, such as /etc/daemonlet/kubeconfig"
                    .to_owned(),
            ),
            Self::Files(error) => error.hint(),
            Self::Source(_) | Self::Connection(_) => {
                Some("give --from another kubeconfig: the kubelet's, or one with a bootstrap token".to_owned())
            }
            Self::Unreachable { kubeconfig, .. } => Some(format!(
                "if that is not the API server's address, correct {} or give --from another kubeconfig; else run this \
                 again when it answers",
                kubeconfig.display()
            )),
            Self::TooLong { request, awaited, .. } => {
                Some(format!("{}, then run this again: it continues with the same request", awaited.hint(request)))
            }
            _ => None,
        }
    }
}
