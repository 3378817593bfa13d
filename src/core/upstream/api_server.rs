//! The API server's words.

/// What a message of admission means beside its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// A policy that we ship for agents refuses the request.
    OwnPolicy,
    /// A webhook has side effects and cannot be asked without them.
    NoDryRun,
    /// A webhook or a policy refuses the object.
    Denied,
}

/// Reads `admission webhook "x" denied the request` and `does not support dry run`
/// (`apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`), and `ValidatingAdmissionPolicy 'x' with binding
/// 'y' denied request` (`apiserver/pkg/admission/plugin/policy/validating/policy_decision.go`).
pub fn objection(message: &str) -> Option<Objection> {
    match message {
        _ if message.contains("ValidatingAdmissionPolicy 'daemonlet-") => Some(Objection::OwnPolicy),
        _ if message.contains("does not support dry run") => Some(Objection::NoDryRun),
        _ if message.contains("denied the request") || message.contains("denied request") => Some(Objection::Denied),
        _ => None,
    }
}

/// Whether a quota refuses the object (`plugin/pkg/admission/resourcequota/controller.go`).
pub fn is_over_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

/// Whether the policy `policy` itself refuses the request, not RBAC: `ValidatingAdmissionPolicy '%s' with binding '%s'
/// denied request` (`apiserver/pkg/admission/plugin/policy/validating/dispatcher.go`).
pub fn is_refused_by(message: &str, policy: &str) -> bool {
    message.contains(&format!("ValidatingAdmissionPolicy '{policy}' "))
}
