//! The state of the agent's certificate: what `status` shows, and when it is a problem.

use crate::core::enrolment::Certificate;
use crate::core::status::IdentityStatus;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// A request that waits for the same step for this long is a problem.
const PATIENCE: Span = Span::from_secs(60);
/// The last percentage of a certificate's life, in which its expiry is always a problem.
const NEAR_END: i64 = 15;

/// What a certificate request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedStep {
    Approval,
    /// It is approved, and its signer has not signed it.
    Signature,
}

impl AwaitedStep {
    /// How the request `request` stands.
    pub fn words(self, request: &str) -> String {
        match self {
            Self::Approval => format!("certificatesigningrequest {request} waits for approval"),
            Self::Signature => {
                format!("certificatesigningrequest {request} is approved, and nothing has signed it yet")
            }
        }
    }

    /// What to do about it.
    pub fn hint(self, request: &str) -> String {
        match self {
            Self::Approval => format!("`kubectl certificate approve {request}`"),
            Self::Signature => "look whether kube-controller-manager runs, with the cluster's signing key \
                                (--cluster-signing-cert-file, --cluster-signing-key-file)"
                .to_owned(),
        }
    }
}

/// The state of the renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// Not due, or just started.
    #[default]
    None,
    /// The request waits for a step of others.
    Waiting {
        /// The request's name.
        request: String,
        awaited: AwaitedStep,
        /// Since when.
        since: Timestamp,
    },
    /// The request was denied.
    Denied {
        /// The request's name.
        request: String,
        /// The reason given with the denial.
        message: String,
    },
    /// The request cannot be made.
    Failing(String),
}

/// What `status` shows.
pub fn status(certificate: &Certificate, renewal: &Renewal) -> IdentityStatus {
    IdentityStatus {
        user: certificate.user.clone(),
        expires: certificate.not_after.to_string(),
        renewal_due: certificate.renew_at().to_string(),
        renewal: words(renewal),
    }
}

fn words(renewal: &Renewal) -> String {
    match renewal {
        Renewal::None => String::new(),
        Renewal::Waiting { request, awaited, .. } => awaited.words(request),
        Renewal::Denied { request, message } if message.is_empty() => {
            format!("certificatesigningrequest {request} was denied")
        }
        Renewal::Denied { request, message } => format!("certificatesigningrequest {request} was denied: {message}"),
        Renewal::Failing(why) => format!("renewal failed: {why}"),
    }
}

/// What is wrong with the certificate at `now`, if anything.
pub fn problem(certificate: &Certificate, renewal: &Renewal, now: Timestamp) -> Option<Problem> {
    let expires = certificate.not_after;
    let problem = |reason, hint: String| Problem { object: "identity".to_owned(), reason, hint: Some(hint) };
    let user = &certificate.user;
    if now >= certificate.not_after {
        let reason = format!("the certificate of {user} expired at {expires}");
        return Some(problem(reason, "run `daemonlet enroll` to request a new one".to_owned()));
    }
    let near = now >= certificate.not_after - (certificate.not_after - certificate.not_before) / 100 * NEAR_END;
    let (is_problem, hint) = match renewal {
        Renewal::Waiting { request, awaited, since } => (now - *since >= PATIENCE, awaited.hint(request)),
        Renewal::Denied { .. } => {
            (true, "the agent retries every hour; `daemonlet enroll --force` retries now".to_owned())
        }
        Renewal::Failing(_) | Renewal::None => (near, "run `daemonlet enroll --force` to request a new one".to_owned()),
    };
    let words = words(renewal);
    let why = if words.is_empty() { "it is not renewed" } else { words.as_str() };
    (is_problem || near).then(|| problem(format!("the certificate of {user} expires at {expires}: {why}"), hint))
}
