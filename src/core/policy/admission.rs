//! Whether a new instance may start here, by the node's rules and the namespace's PodSecurity level.
//!
//! Owns which rules bind whom: `[policy]` and PodSecurity bind DaemonSets of the API. A folder's DaemonSet starts in
//! any case; a note says that the API will refuse its mirror pod. Judges the template, as the API would judge a pod
//! made from it, never the rendered manifest. Must not end anything: as upstream when a namespace's label changes,
//! running instances stay.

use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::render::Missing;

use super::Policy;
use super::pod_security;
use super::pod_security::Enforced;
use super::pod_security::LEVEL_LABEL;

/// Whether a new instance may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may, with these notes.
    Allowed(Vec<FieldError>),
    /// It may not: each rule against it, with how to allow it.
    Refused(Vec<FieldError>),
    /// It waits: what the namespace enforces is unknown so far.
    Waits(Missing),
}

impl Admission {
    /// It may start, without notes.
    pub const FREE: Self = Self::Allowed(Vec::new());

    /// Refuses a DaemonSet that may otherwise start for the error that `check` finds.
    pub fn and(self, check: impl FnOnce() -> Option<FieldError>) -> Self {
        match self {
            Self::Allowed(notes) => check().map_or(Self::Allowed(notes), |error| Self::Refused(vec![error])),
            other => other,
        }
    }
}

/// The Namespace object that applies to `daemon_set`.
pub fn namespace_of(daemon_set: &DaemonSet) -> ObjectRef {
    ObjectRef::new(Kind::Namespace, "", &daemon_set.key.namespace)
}

impl Policy {
    /// Whether a new instance of `daemon_set` may start; `namespace` is what is known of its Namespace.
    pub fn admit(&self, daemon_set: &DaemonSet, namespace: Lookup<'_>) -> Admission {
        let enforced = self.enforced(namespace);
        let security = enforced.and_then(|enforced| pod_security_error(enforced, daemon_set));
        admission(daemon_set, enforced, security, || self.violations(daemon_set))
    }

    /// Everything for which [`Self::admit`] refuses `daemon_set`, however much it is.
    pub fn refusals(&self, daemon_set: &DaemonSet, namespace: Lookup<'_>) -> Vec<FieldError> {
        let enforced = self.enforced(namespace);
        let security = enforced.and_then(|enforced| pod_security_error(enforced, daemon_set));
        match admission(daemon_set, enforced, security, || self.every_violation(daemon_set)) {
            Admission::Refused(errors) => errors,
            Admission::Allowed(_) | Admission::Waits(_) => Vec::new(),
        }
    }

    /// What a namespace of which this is known enforces; `None`: that is not known yet.
    pub(super) fn enforced(&self, namespace: Lookup<'_>) -> Option<Enforced> {
        match namespace {
            Lookup::Present(object) | Lookup::Deleted(object) => {
                Some(Enforced::of_namespace(object, self.pod_security_default))
            }
            Lookup::Absent | Lookup::Unknown => None,
        }
    }
}

/// What follows from what PodSecurity (at the level `enforced`, if that is known) and the rules for pods have against
/// `daemon_set`.
pub(super) fn admission(
    daemon_set: &DaemonSet,
    enforced: Option<Enforced>,
    security: Option<FieldError>,
    violations: impl FnOnce() -> Vec<FieldError>,
) -> Admission {
    if daemon_set.author() == Author::NodeOwner {
        return Admission::Allowed(security.map(about_mirror_pod).into_iter().collect());
    }
    let mut refused = violations();
    refused.extend(security);
    match (refused.is_empty(), enforced) {
        (false, _) => Admission::Refused(refused),
        (true, Some(_)) => Admission::FREE,
        (true, None) => Admission::Waits(Missing {
            kind: "Namespace".to_owned(),
            namespace: String::new(),
            name: daemon_set.key.namespace.clone(),
            key: String::new(),
        }),
    }
}

/// PodSecurity's violations, worded as the API server does.
pub(super) fn pod_security_error(enforced: Enforced, daemon_set: &DaemonSet) -> Option<FieldError> {
    let violations = pod_security::violations(enforced, daemon_set.pod_template());
    if violations.is_empty() {
        return None;
    }
    let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let namespace = &daemon_set.key.namespace;
    let error = FieldError {
        field: format!("namespace {namespace}"),
        reason: format!("violates PodSecurity \"{enforced}\": {}", words.join(", ")),
        hint: Some(format!(
            "change the template, or let the namespace have it, and all who create pods there: `kubectl label --overwrite \
             namespace {namespace} {LEVEL_LABEL}={}`",
            least_level(enforced, daemon_set).as_str()
        )),
    };
    Some(error.shortened())
}

/// The strictest level that allows the pod.
fn least_level(enforced: Enforced, daemon_set: &DaemonSet) -> pod_security::PodSecurityLevel {
    let baseline = Enforced { level: pod_security::PodSecurityLevel::Baseline, ..enforced };
    match pod_security::violations(baseline, daemon_set.pod_template()).is_empty() {
        true => pod_security::PodSecurityLevel::Baseline,
        false => pod_security::PodSecurityLevel::Privileged,
    }
}

/// The note for a pod that starts although the API will refuse its mirror pod.
fn about_mirror_pod(error: FieldError) -> FieldError {
    let reason =
        format!("the API refuses its mirror pod, so the pod runs but is not visible in the API: {}", error.reason);
    FieldError { reason, ..error }
}

#[cfg(test)]
mod tests;
