//! Whether the packaged admission policies hold this node's agent: each is shown by a write that it has to refuse.
//!
//! Owns the writes, which are dry runs, and how a refusal is read. Must not send them.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::liveness;
use crate::core::node_conditions;
use crate::core::startup_taint;
use crate::core::upstream::api_server;

use super::Finding;

/// The name of what the writes would make.
const NAME: &str = "daemonlet-doctor";

/// A write that a policy has to refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The policy.
    pub policy: &'static str,
    pub write: Write,
    /// The object, or where it would be created.
    pub path: String,
    pub object: Value,
}

/// How a probe writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create,
    /// By a merge patch.
    Patch,
}

/// What became of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing refuses it.
    Accepted,
    /// The API server refuses it, with this message.
    Forbidden(String),
    /// It could not be tried.
    Unknown(String),
}

/// What the agent writes of its own Node: the Node's name, where it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeWrites<'a> {
    pub taint: Option<&'a str>,
    pub conditions: Option<&'a str>,
}

/// The writes of an agent whose policies are to be shown; `crd`: whether the cluster has NodeDaemons.
pub fn probes(crd: bool, own: NodeWrites<'_>) -> Vec<Probe> {
    let nodedaemons = Probe {
        policy: "daemonlet-agent-nodedaemons",
        write: Write::Create,
        path: "/apis/daemonlet.dev/v1beta1/nodedaemons".to_owned(),
        object: json!({"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": NAME}}),
    };
    let lease = Probe {
        policy: "daemonlet-agent-leases",
        write: Write::Create,
        path: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", liveness::NAMESPACE),
        object: json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}),
    };
    let event = Probe {
        policy: "daemonlet-agent-events",
        write: Write::Create,
        path: "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
        object: json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": NAME}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": NAME, "reportingInstance": NAME, "action": "Doctor", "reason": "Doctor",
            "type": "Normal", "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": NAME},
        }),
    };
    let of_rollouts = [nodedaemons, lease].into_iter().filter(|_| crd);
    let node = own.taint.map(|node| Probe {
        policy: startup_taint::POLICY,
        write: Write::Patch,
        path: format!("/api/v1/nodes/{node}"),
        object: startup_taint::probe(),
    });
    let status = own.conditions.map(|node| Probe {
        policy: node_conditions::POLICY,
        write: Write::Patch,
        path: format!("/api/v1/nodes/{node}/status"),
        object: node_conditions::probe(),
    });
    of_rollouts.chain([event]).chain(node).chain(status).collect()
}

/// Judges the probes.
pub(super) fn examine(probes: &[(&'static str, Outcome)]) -> Vec<Finding> {
    const CHECK: &str = "admission policies";
    let of = |wanted: fn(&'static str, &Outcome) -> Option<String>| {
        let found: Vec<String> = probes.iter().filter_map(|(policy, outcome)| wanted(policy, outcome)).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let open = of(|policy, outcome| (*outcome == Outcome::Accepted).then(|| policy.to_owned()));
    let unknown = of(|policy, outcome| match outcome {
        Outcome::Forbidden(message) if api_server::is_refused_by(message, policy) => None,
        Outcome::Forbidden(why) | Outcome::Unknown(why) => Some(format!("{policy}: {why}")),
        Outcome::Accepted => None,
    });
    let open = open.map(|policies| {
        let text = format!("not in force for this agent: {policies}; its identity can write what it must not");
        let hint = match policies.as_str() {
            startup_taint::POLICY => startup_taint::GRANT,
            node_conditions::POLICY => node_conditions::GRANT,
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
        true => vec![Finding::ok(CHECK, "each refuses what this agent must not write")],
        false => findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::doctor::Severity;

    const POLICY: &str = "daemonlet-agent-leases";

    fn refused() -> Outcome {
        Outcome::Forbidden(format!(
            "leases.coordination.k8s.io \"x\" is forbidden: ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' \
             denied request: no"
        ))
    }

    #[test]
    fn only_a_refusal_by_the_policy_itself_shows_that_it_is_in_force() {
        let judged = |outcome: Outcome| {
            let findings = examine(&[(POLICY, outcome)]);
            assert_eq!(findings.len(), 1);
            (findings[0].level, findings[0].text.clone())
        };
        assert_eq!(judged(refused()), (Severity::Ok, "each refuses what this agent must not write".to_owned()));
        let (level, text) = judged(Outcome::Accepted);
        assert_eq!(level, Severity::Warn);
        assert!(text.starts_with("not in force for this agent: daemonlet-agent-leases; "), "{text}");
        for other in
            [Outcome::Forbidden("cannot create resource \"leases\"".to_owned()), Outcome::Unknown("x".to_owned())]
        {
            let (level, text) = judged(other);
            assert_eq!(level, Severity::Warn);
            assert!(text.starts_with("could not be shown to be in force: daemonlet-agent-leases: "), "{text}");
        }
        assert_eq!(
            examine(&[(POLICY, refused()), ("other", Outcome::Accepted), ("third", Outcome::Unknown("x".into()))])
                .len(),
            2
        );
        assert_eq!(examine(&[]), []);
    }

    #[test]
    fn without_node_daemons_only_events_are_tried() {
        let of = |crd, taint, conditions| {
            let own = NodeWrites { taint, conditions };
            probes(crd, own).into_iter().map(|probe| probe.policy).collect::<Vec<_>>()
        };
        assert_eq!(of(false, None, None), ["daemonlet-agent-events"]);
        assert_eq!(of(false, Some("n"), None), ["daemonlet-agent-events", "daemonlet-agent-nodes"]);
        assert_eq!(of(false, None, Some("n")), ["daemonlet-agent-events", "daemonlet-agent-node-status"]);
        assert_eq!(
            of(true, None, None),
            ["daemonlet-agent-nodedaemons", "daemonlet-agent-leases", "daemonlet-agent-events"]
        );
    }
}
