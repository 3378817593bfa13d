//! Whether the packaged admission policies hold agents and coordinators, tried by a cluster admin in their name.
//!
//! Owns in whose name, and how the outcomes are judged. Must not send the writes.

use serde_json::Value;
use serde_json::json;

use crate::core::doctor::approvers::APPROVER;
use crate::core::doctor::approvers::ActAs;
use crate::core::doctor::approvers::UNLIMITED;
use crate::core::doctor::policies::APPROVALS;
use crate::core::doctor::policies::DRY_RUN;
use crate::core::doctor::policies::NAME;
use crate::core::doctor::policies::PACKAGED;
use crate::core::doctor::policies::PolicyProbe;
use crate::core::doctor::policies::PolicyProbeResult;
use crate::core::doctor::policies::ProbeWrite;
use crate::core::doctor::policies::Targets;
use crate::core::doctor::policies::certificate_request;
use crate::core::doctor::policies::probes;
use crate::core::upstream::api_server;

use super::Finding;

/// The group of agents.
const AGENTS: &str = "daemonlet:nodes";
/// The agent of `node`.
fn agent(node: &str) -> ActAs {
    let groups = vec![AGENTS.to_owned(), UNLIMITED.to_owned()];
    ActAs { user: format!("daemonlet:node:{node}"), groups, roles: Vec::new() }
}

/// Asks whether an agent may create pods, which RBAC lets it do for dry runs alone: a SubjectAccessReview.
pub fn question_of_dry_runs() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": format!("daemonlet:node:{NAME}"), "groups": [AGENTS, "system:authenticated"],
            "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "kube-system"}},
    })
}

/// A request that no coordinator may approve, which the API server has to have before it judges an approval. It has a
/// signer that does not exist.
pub fn request_for_nobody() -> Value {
    let mut request = certificate_request();
    request["metadata"] = json!({"generateName": format!("{NAME}-")});
    request
}

/// The writes to try with the agent of `node`.
pub fn agent_probes(node: &str, targets: &Targets) -> Vec<(ActAs, PolicyProbe)> {
    let writes = PolicyProbe {
        policy: "daemonlet-agent-writes",
        write: ProbeWrite::Create,
        path: "/api/v1/namespaces/default/configmaps".to_owned(),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}),
    };
    let all = std::iter::once(writes).chain(probes(targets));
    all.map(|probe| (agent(node), probe)).collect()
}

/// The approval of `request` by each of `approvers`.
pub fn approval_probes(approvers: Vec<ActAs>, request: &str) -> Vec<(ActAs, PolicyProbe)> {
    let approval = json!({"type": "Approved", "status": "True", "reason": "Doctor", "message": NAME});
    let probe = PolicyProbe {
        policy: APPROVALS,
        write: ProbeWrite::Patch,
        path: format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{request}/approval"),
        object: json!({"status": {"conditions": [approval]}}),
    };
    approvers.into_iter().map(|approver| (approver, probe.clone())).collect()
}

/// Judges the probes: one finding for each, and one for each packaged policy that none has tried.
pub fn examine(tried: &[(ActAs, &'static str, PolicyProbeResult)]) -> Vec<Finding> {
    let of = |(act_as, policy, outcome): &(ActAs, &'static str, PolicyProbeResult)| {
        let who = act_as.words();
        let file = PACKAGED.iter().find_map(|(name, file)| (name == policy).then_some(*file)).unwrap_or_default();
        match outcome {
            PolicyProbeResult::Forbidden(message) if api_server::is_refused_by(message, policy) => {
                Finding::ok(policy, format!("refuses what {who} must not write"))
            }
            PolicyProbeResult::Accepted if !act_as.roles.is_empty() => Finding::warn(
                policy,
                format!(
                    "does not hold {who}, which may approve a certificate in anybody's name (ClusterRole {})",
                    act_as.roles.join(", ")
                ),
                format!(
                    "if it needs this right, trust it as you trust a cluster admin, or name it in {file}; else take it away"
                ),
            ),
            PolicyProbeResult::Accepted => Finding::bad(
                policy,
                format!("not in force: {who} can write what it must not, as far as RBAC lets it"),
                format!("kubectl apply -f /usr/share/daemonlet/k8s/{file}, where it has to name {who}"),
            ),
            PolicyProbeResult::Forbidden(why) | PolicyProbeResult::Unknown(why) => Finding::warn(
                policy,
                format!("could not be shown to be in force for {who}: {why}"),
                "see what refuses it first; only a refusal by the policy itself counts",
            ),
        }
    };
    let is_untried = |policy: &&str| tried.iter().all(|(_, tried, _)| tried != policy);
    let untried = PACKAGED.iter().map(|(policy, _)| *policy).filter(is_untried).map(untried);
    tried.iter().map(of).chain(untried).collect()
}

/// A policy for which there is nothing to try.
fn untried(policy: &str) -> Finding {
    let missing = match policy {
        DRY_RUN => return Finding::ok(policy, "not needed: RBAC lets no agent create pods, not even as a dry run"),
        APPROVALS => return Finding::ok(policy, format!("not needed: no subject has the ClusterRole {APPROVER}")),
        "daemonlet-agent-nodedaemons" | "daemonlet-agent-leases" => "NodeDaemons",
        "daemonlet-agent-pods" => "pod",
        "daemonlet-agent-tokens" => "ServiceAccount",
        _ => "Node",
    };
    let text = format!("not checked: the cluster has no {missing} to try it on");
    Finding::warn(policy, text, "run `kubectl daemonlet doctor` again when it has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::doctor::Severity;
    use crate::core::model::ObjectKey;

    fn refused_by(policy: &str) -> PolicyProbeResult {
        PolicyProbeResult::Forbidden(format!(
            "ValidatingAdmissionPolicy '{policy}' with binding 'b' denied request: no"
        ))
    }

    #[test]
    fn each_packaged_policy_is_tried_where_there_is_all_of_it() {
        let (key, node) = (|| Some(ObjectKey::new("a", "b")), || Some("n".to_owned()));
        let targets = Targets {
            crd: true,
            tainted: node(),
            conditions: node(),
            asks_admission: true,
            pod: key(),
            account: key(),
        };
        let all = agent_probes("n", &targets).into_iter().chain(approval_probes(vec![agent("n")], "r"));
        let tried: Vec<_> = all.map(|(who, probe)| (who, probe.policy, refused_by(probe.policy))).collect();
        let found = examine(&tried);
        let mut names: Vec<&str> = found.iter().map(|finding| finding.check.as_str()).collect();
        let mut packaged: Vec<&str> = PACKAGED.iter().map(|(policy, _)| *policy).collect();
        names.sort_unstable();
        packaged.sort_unstable();
        assert_eq!(names, packaged);
        assert!(found.iter().all(|finding| finding.level == Severity::Ok), "{found:?}");
    }

    #[test]
    fn another_who_may_approve_is_reported_with_the_roles_that_let_it() {
        let other = ActAs { user: "u".to_owned(), groups: vec![UNLIMITED.to_owned()], roles: vec!["r".to_owned()] };
        let judged = |outcome| examine(&[(other.clone(), APPROVALS, outcome)]).remove(0);
        let found = judged(PolicyProbeResult::Accepted);
        assert_eq!(found.level, Severity::Warn);
        assert_eq!(found.text, "does not hold u, which may approve a certificate in anybody's name (ClusterRole r)");
        assert_eq!(judged(refused_by(APPROVALS)).level, Severity::Ok);
    }

    #[test]
    fn only_a_refusal_by_the_policy_itself_counts_and_what_was_not_tried_is_said() {
        let judged = |outcome| examine(&[(agent("n"), "daemonlet-agent-writes", outcome)]);
        let level = |outcome| judged(outcome)[0].level;
        assert_eq!(level(refused_by("daemonlet-agent-writes")), Severity::Ok);
        assert_eq!(level(refused_by("daemonlet-agent-pods")), Severity::Warn);
        assert_eq!(level(PolicyProbeResult::Forbidden("quota".to_owned())), Severity::Warn);
        assert_eq!(level(PolicyProbeResult::Accepted), Severity::Bad);
        let found = judged(PolicyProbeResult::Accepted);
        let of = |policy: &str| found.iter().find(|finding| finding.check == policy).unwrap();
        assert_eq!(of(APPROVALS).text, "not needed: no subject has the ClusterRole daemonlet-approver");
        assert_eq!(of("daemonlet-agent-pods").text, "not checked: the cluster has no pod to try it on");
    }
}
