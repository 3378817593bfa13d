//! Whether the packaged admission policies hold this node's agent: each is shown by a write that it has to refuse.
//!
//! Owns the writes, which are dry runs, and how a refusal is read. Must not send them.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::liveness;
use crate::core::dry_run;
use crate::core::model::ObjectKey;
use crate::core::node_conditions;
use crate::core::startup_taint;
use crate::core::upstream::api_server;

use super::Finding;

/// The name of the objects that the writes would make.
pub(super) const NAME: &str = "daemonlet-doctor";

/// A write that a policy has to refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyProbe {
    pub policy: &'static str,
    pub write: ProbeWrite,
    /// The object, or where it would be created.
    pub path: String,
    pub object: Value,
}

/// How a probe writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeWrite {
    Create,
    /// By a merge patch.
    Patch,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyProbeResult {
    /// Nothing refuses it.
    Accepted,
    /// The API server refuses it, with this message.
    Forbidden(String),
    /// It could not be tried.
    Unknown(String),
}

/// A request for a certificate, in PEM and base64, with a key that was thrown away: the API server reads it before any policy.
const CERTIFICATE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIVU1IMENBUUF3R3pFWk1CY0dBMVVFQXd3UVpHRmxiVzl1YkdW\
    MExXUnZZM1J2Y2pCWk1CTUdCeXFHU000OQpBZ0VHQ0NxR1NNNDlBd0VIQTBJQUJMbE9JblRLTG93ODA4dXZ5UlBQQ3BmNXYzWk9y\
    cVJVd1ZqNGViM0t4alZNCldtQW9CSlJzTDBKWVdRalNzeXVIaHhWQzJ1K01rMlBTcU1yRGxmZElXUHlnQURBS0JnZ3Foa2pPUFFR\
    REFnTkgKQURCRUFpQm4xNWNEMFdUVTFpU2pSOUlKUWdhK2Via3RXKzZqcFB3b3BaZXhTUXdBNGdJZ2ZWeER3SytyM2Q2MwpLTDZs\
    cVduV1dNL0hTM1JwcyswRG1qNnErVnBaaXlJPQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
/// The policy of `rbac-dry-run.yaml`.
pub(super) const DRY_RUN: &str = "daemonlet-agent-dry-run";
/// The policy of `approver-rbac.yaml`.
pub(super) const APPROVALS: &str = "daemonlet-coordinator-approvals";
/// The packaged policies, each with its file.
pub(super) const PACKAGED: &[(&str, &str)] = &[
    ("daemonlet-agent-writes", "admission-policies.yaml"),
    ("daemonlet-agent-nodedaemons", "admission-policies.yaml"),
    ("daemonlet-agent-leases", "admission-policies.yaml"),
    ("daemonlet-agent-events", "admission-policies.yaml"),
    ("daemonlet-agent-certificates", "admission-policies.yaml"),
    ("daemonlet-agent-pods", "admission-policies.yaml"),
    ("daemonlet-agent-tokens", "admission-policies.yaml"),
    (startup_taint::POLICY, "admission-policies.yaml"),
    (node_conditions::POLICY, "admission-policies.yaml"),
    (DRY_RUN, "rbac-dry-run.yaml"),
    (APPROVALS, "approver-rbac.yaml"),
];
/// One second more than a token of an agent may live.
const TOO_LONG: u64 = 86_401;

/// The objects on which an agent's writes are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Whether the cluster has NodeDaemons.
    pub crd: bool,
    /// The node whose taint the agent writes, if it does.
    pub tainted: Option<String>,
    /// The node whose conditions the agent writes, if it does.
    pub conditions: Option<String>,
    /// Whether the agent has pods judged by a dry run.
    pub asks_admission: bool,
    /// Any pod of the cluster, by its namespace and name.
    pub pod: Option<ObjectKey>,
    /// A ServiceAccount whose tokens the agent may ask for.
    pub account: Option<ObjectKey>,
}

/// A request that no policy lets an agent make, nor a coordinator approve: no controller is its signer.
pub(super) fn certificate_request() -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": NAME},
        "spec": {"request": CERTIFICATE_REQUEST, "signerName": "daemonlet.dev/doctor", "usages": ["client auth"]},
    })
}

/// The writes of an agent whose policies are to be shown.
pub fn probes(targets: &Targets) -> Vec<PolicyProbe> {
    let Targets { crd, tainted, conditions, asks_admission, pod, account } = targets;
    let nodedaemons = PolicyProbe {
        policy: "daemonlet-agent-nodedaemons",
        write: ProbeWrite::Create,
        path: "/apis/daemonlet.dev/v1beta1/nodedaemons".to_owned(),
        object: json!({"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": NAME}}),
    };
    let lease = PolicyProbe {
        policy: "daemonlet-agent-leases",
        write: ProbeWrite::Create,
        path: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", liveness::NAMESPACE),
        object: json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}),
    };
    let event = PolicyProbe {
        policy: "daemonlet-agent-events",
        write: ProbeWrite::Create,
        path: "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
        object: json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": NAME}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": NAME, "reportingInstance": NAME, "action": "Doctor", "reason": "Doctor",
            "type": "Normal", "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": NAME},
        }),
    };
    let certificate = PolicyProbe {
        policy: "daemonlet-agent-certificates",
        write: ProbeWrite::Create,
        path: "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(),
        object: certificate_request(),
    };
    let pod = pod.as_ref().map(|ObjectKey { namespace, name }| PolicyProbe {
        policy: "daemonlet-agent-pods",
        write: ProbeWrite::Patch,
        path: format!("/api/v1/namespaces/{namespace}/pods/{name}"),
        object: json!({"metadata": {"annotations": {"daemonlet.dev/doctor": NAME}}}),
    });
    let token = account.as_ref().map(|ObjectKey { namespace, name }| PolicyProbe {
        policy: "daemonlet-agent-tokens",
        write: ProbeWrite::Create,
        path: format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"),
        object: json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOO_LONG},
        }),
    });
    // As a mirror pod of a node that is not there: no ServiceAccount is looked for, and no PodSecurity level is in its way.
    let judged = PolicyProbe {
        policy: DRY_RUN,
        write: ProbeWrite::Create,
        path: "/api/v1/namespaces/kube-system/pods".to_owned(),
        object: json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "annotations": {"kubernetes.io/config.mirror": NAME}},
            "spec": {"nodeName": NAME, "containers": [{"name": "c", "image": NAME, "securityContext": {
                "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            }}]},
        }),
    };
    let judged = asks_admission.then_some(judged);
    let of_rollouts = [nodedaemons, lease].into_iter().filter(|_| *crd);
    let node = tainted.as_ref().map(|node| PolicyProbe {
        policy: startup_taint::POLICY,
        write: ProbeWrite::Patch,
        path: format!("/api/v1/nodes/{node}"),
        object: startup_taint::probe(),
    });
    let status = conditions.as_ref().map(|node| PolicyProbe {
        policy: node_conditions::POLICY,
        write: ProbeWrite::Patch,
        path: format!("/api/v1/nodes/{node}/status"),
        object: node_conditions::probe(),
    });
    of_rollouts.chain([event, certificate]).chain(pod).chain(token).chain(node).chain(status).chain(judged).collect()
}

/// Judges the probes.
pub(super) fn examine(probes: &[(&'static str, PolicyProbeResult)]) -> Vec<Finding> {
    const CHECK: &str = "admission policies";
    let of = |wanted: fn(&'static str, &PolicyProbeResult) -> Option<String>| {
        let found: Vec<String> = probes.iter().filter_map(|(policy, outcome)| wanted(policy, outcome)).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let open = of(|policy, outcome| (*outcome == PolicyProbeResult::Accepted).then(|| policy.to_owned()));
    let unknown = of(|policy, outcome| match outcome {
        PolicyProbeResult::Forbidden(message) if api_server::is_refused_by(message, policy) => None,
        PolicyProbeResult::Forbidden(why) | PolicyProbeResult::Unknown(why) => Some(format!("{policy}: {why}")),
        PolicyProbeResult::Accepted => None,
    });
    let open = open.map(|policies| {
        let text = format!("not in force for this agent: {policies}; its identity can write what it must not");
        let hint = match policies.as_str() {
            startup_taint::POLICY => startup_taint::GRANT,
            node_conditions::POLICY => node_conditions::GRANT,
            DRY_RUN => dry_run::GRANT,
            _ => {
                "kubectl apply -f /usr/share/daemonlet/k8s/admission-policies.yaml, and give the agent an identity \
                 named daemonlet:node:NODE: `daemonlet enroll`"
            }
        };
        Finding::warn(CHECK, text, hint)
    });
    let unknown = unknown
        .map(|why| Finding::warn(CHECK, format!("could not be shown to be in force: {why}"), "see the rights above"));
    let findings: Vec<Finding> = open.into_iter().chain(unknown).collect();
    match findings.is_empty() && !probes.is_empty() {
        true => vec![Finding::ok(CHECK, in_force(probes))],
        false => findings,
    }
}

/// What is said where each probe is refused, with the policies that this identity has not tried: what RBAC does not give
/// it, and what is there for coordinators.
fn in_force(probes: &[(&'static str, PolicyProbeResult)]) -> String {
    let is_untried = |policy: &&str| probes.iter().all(|(tried, _)| tried != policy);
    let untried: Vec<&str> = PACKAGED.iter().map(|(policy, _)| *policy).filter(is_untried).collect();
    format!(
        "each that this agent can try refuses what it must not write; not checked from here: {}: run `kubectl daemonlet \
         doctor` as a cluster admin",
        untried.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::doctor::Severity;

    const POLICY: &str = "daemonlet-agent-leases";

    fn refused() -> PolicyProbeResult {
        PolicyProbeResult::Forbidden(format!(
            "leases.coordination.k8s.io \"x\" is forbidden: ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' \
             denied request: no"
        ))
    }

    #[test]
    fn only_a_refusal_by_the_policy_itself_shows_that_it_is_in_force() {
        let judged = |outcome: PolicyProbeResult| {
            let findings = examine(&[(POLICY, outcome)]);
            assert_eq!(findings.len(), 1);
            (findings[0].level, findings[0].text.clone())
        };
        let (level, text) = judged(refused());
        assert_eq!(level, Severity::Ok);
        assert!(
            text.contains("; not checked from here: daemonlet-agent-writes, daemonlet-agent-nodedaemons, "),
            "{text}"
        );
        assert!(text.contains(APPROVALS) && !text.contains(POLICY), "{text}");
        let (level, text) = judged(PolicyProbeResult::Accepted);
        assert_eq!(level, Severity::Warn);
        assert!(text.starts_with("not in force for this agent: daemonlet-agent-leases; "), "{text}");
        for other in [
            PolicyProbeResult::Forbidden("cannot create resource \"leases\"".to_owned()),
            PolicyProbeResult::Unknown("x".to_owned()),
        ] {
            let (level, text) = judged(other);
            assert_eq!(level, Severity::Warn);
            assert!(text.starts_with("could not be shown to be in force: daemonlet-agent-leases: "), "{text}");
        }
        assert_eq!(
            examine(&[
                (POLICY, refused()),
                ("other", PolicyProbeResult::Accepted),
                ("third", PolicyProbeResult::Unknown("x".into()))
            ])
            .len(),
            2
        );
        assert_eq!(examine(&[]), []);
    }

    #[test]
    fn each_policy_is_tried_on_what_there_is() {
        let of = |targets: Targets| {
            let names = probes(&targets).into_iter().map(|probe| probe.policy.trim_start_matches("daemonlet-agent-"));
            names.collect::<Vec<_>>().join(" ")
        };
        let nothing = Targets::default;
        let key = || Some(ObjectKey::new("a", "b"));
        assert_eq!(of(nothing()), "events certificates");
        assert_eq!(of(Targets { tainted: Some("n".to_owned()), ..nothing() }), "events certificates nodes");
        let asked = of(Targets { conditions: Some("n".to_owned()), ..nothing() });
        assert_eq!(asked, "events certificates node-status");
        assert_eq!(of(Targets { asks_admission: true, ..nothing() }), "events certificates dry-run");
        assert_eq!(of(Targets { crd: true, ..nothing() }), "nodedaemons leases events certificates");
        assert_eq!(of(Targets { pod: key(), account: key(), ..nothing() }), "events certificates pods tokens");
    }

    #[test]
    fn the_packaged_policies_are_those_that_are_tried() {
        let key = || Some(ObjectKey::new("a", "b"));
        let (tainted, conditions) = (Some("n".to_owned()), Some("n".to_owned()));
        let all = Targets { crd: true, tainted, conditions, asks_admission: true, pod: key(), account: key() };
        let text = concat!(
            include_str!("../../../packaging/k8s/admission-policies.yaml"),
            include_str!("../../../packaging/k8s/rbac-dry-run.yaml"),
            include_str!("../../../packaging/k8s/approver-rbac.yaml"),
        );
        let mut packaged: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  policyName: ")).collect();
        packaged.sort_unstable();
        let mut known: Vec<&str> = PACKAGED.iter().map(|(policy, _)| *policy).collect();
        known.sort_unstable();
        assert_eq!(known, packaged);
        // An agent can try neither what RBAC does not give it nor what a coordinator may.
        known.retain(|policy| !["daemonlet-agent-writes", APPROVALS].contains(policy));
        let mut tried: Vec<&str> = probes(&all).iter().map(|probe| probe.policy).collect();
        tried.sort_unstable();
        assert_eq!(tried, known);
    }
}
