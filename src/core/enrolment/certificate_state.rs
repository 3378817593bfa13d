//! How the agent's identity stands: what `status` says of it, and when it is a problem.

use crate::core::enrolment::Certificate;
use crate::core::status::IdentityStatus;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// A request that nobody approves is a problem after this.
const PATIENCE: Span = Span::from_secs(60);
/// The last share of a certificate's life, in percent, in which it is near its end whatever the reason.
const NEAR_END: i64 = 15;

/// How the renewal goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// Not due, or just begun.
    #[default]
    None,
    /// The request waits for its approval.
    Waiting {
        /// The request's name.
        request: String,
        /// Since when.
        since: Timestamp,
    },
    /// Somebody said no.
    Denied {
        /// The request's name.
        request: String,
        /// His words.
        message: String,
    },
    /// It cannot be asked for.
    Failing(String),
}

/// What `status` says.
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
        Renewal::Waiting { request, .. } => format!("certificatesigningrequest {request} waits for its approval"),
        Renewal::Denied { request, message } if message.is_empty() => {
            format!("certificatesigningrequest {request} was denied")
        }
        Renewal::Denied { request, message } => format!("certificatesigningrequest {request} was denied: {message}"),
        Renewal::Failing(why) => format!("a new one cannot be asked for: {why}"),
    }
}

/// What is wrong with it at `now`.
pub fn problem(certificate: &Certificate, renewal: &Renewal, now: Timestamp) -> Option<Problem> {
    let expires = certificate.not_after;
    let problem = |reason, hint: String| Problem { object: "identity".to_owned(), reason, hint: Some(hint) };
    let user = &certificate.user;
    if now >= certificate.not_after {
        let reason = format!("the certificate of {user} expired at {expires}");
        return Some(problem(reason, "`daemonlet enroll` asks for another one".to_owned()));
    }
    let near = now >= certificate.not_after - (certificate.not_after - certificate.not_before) / 100 * NEAR_END;
    let (is_problem, hint) = match renewal {
        Renewal::Waiting { request, since } => {
            (now - *since >= PATIENCE, format!("`kubectl certificate approve {request}`"))
        }
        Renewal::Denied { .. } => {
            (true, "it is asked for again every hour; `daemonlet enroll --force` asks at once".to_owned())
        }
        Renewal::Failing(_) | Renewal::None => (near, "`daemonlet enroll --force` asks for another one".to_owned()),
    };
    let words = words(renewal);
    let why = if words.is_empty() { "it is not renewed" } else { words.as_str() };
    (is_problem || near).then(|| problem(format!("the certificate of {user} expires at {expires}: {why}"), hint))
}
