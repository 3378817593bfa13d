//! Whether the packaged admission policies hold agents and coordinators, tried by a cluster admin in their name.
//!
//! Owns in whose name, and how the outcomes are judged. Must not send the writes.

use serde_json::Value;
use serde_json::json;

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
use crate::core::json::Json;
use crate::core::upstream::api_server;

use super::Finding;

/// The group of agents.
const AGENTS: &str = "daemonlet:nodes";
/// The role that lets a coordinator approve certificates.
const APPROVER: &str = "daemonlet-approver";
/// The group whose members RBAC gives everything, and policies nothing: what refuses their write is no missing right.
const UNLIMITED: &str = "system:masters";

/// In whose name a write is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActAs {
    pub user: String,
    pub groups: Vec<String>,
}

impl ActAs {
    /// The agent of `node`.
    fn agent(node: &str) -> Self {
        Self { user: format!("daemonlet:node:{node}"), groups: vec![AGENTS.to_owned(), UNLIMITED.to_owned()] }
    }

    /// A subject of RBAC.
    fn subject(subject: &Value) -> Self {
        let name = subject.str_at("name").to_owned();
        let (user, group) = match subject.str_at("kind") {
            "Group" => (NAME.to_owned(), Some(name)),
            "ServiceAccount" => (format!("system:serviceaccount:{}:{name}", subject.str_at("namespace")), None),
            _ => (name, None),
        };
        Self { user, groups: group.into_iter().chain([UNLIMITED.to_owned()]).collect() }
    }

    /// Its group where that alone makes it an agent or a coordinator, else its name.
    fn words(&self) -> &str {
        if self.user == NAME { &self.groups[0] } else { &self.user }
    }
}

/// Asks whether an agent may create pods, which RBAC lets it do for dry runs alone: a SubjectAccessReview.
pub fn question_of_dry_runs() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": format!("daemonlet:node:{NAME}"), "groups": [AGENTS, "system:authenticated"],
            "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "kube-system"}},
    })
}

/// Who may approve certificates as a coordinator, by the ClusterRoleBindings.
pub fn approvers(bindings: &[Value]) -> Vec<ActAs> {
    let theirs = bindings.iter().filter(|binding| binding.str_at(["roleRef", "name"]) == APPROVER);
    theirs.flat_map(|binding| binding.list_at("subjects")).map(ActAs::subject).collect()
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
    all.map(|probe| (ActAs::agent(node), probe)).collect()
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
        APPROVALS => return Finding::ok(policy, format!("not needed: nobody has the ClusterRole {APPROVER}")),
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
        let group = json!({"roleRef": {"name": APPROVER}, "subjects": [{"kind": "Group", "name": "g"}]});
        let all = agent_probes("n", &targets).into_iter().chain(approval_probes(approvers(&[group]), "r"));
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
    fn only_a_refusal_by_the_policy_itself_counts_and_what_was_not_tried_is_said() {
        let judged = |outcome| examine(&[(ActAs::agent("n"), "daemonlet-agent-writes", outcome)]);
        let level = |outcome| judged(outcome)[0].level;
        assert_eq!(level(refused_by("daemonlet-agent-writes")), Severity::Ok);
        assert_eq!(level(refused_by("daemonlet-agent-pods")), Severity::Warn);
        assert_eq!(level(PolicyProbeResult::Forbidden("quota".to_owned())), Severity::Warn);
        assert_eq!(level(PolicyProbeResult::Accepted), Severity::Bad);
        let found = judged(PolicyProbeResult::Accepted);
        let of = |policy: &str| found.iter().find(|finding| finding.check == policy).unwrap();
        assert_eq!(of(APPROVALS).text, "not needed: nobody has the ClusterRole daemonlet-approver");
        assert_eq!(of("daemonlet-agent-pods").text, "not checked: the cluster has no pod to try it on");
    }

    #[test]
    fn each_subject_of_the_approvers_role_is_tried_with_every_right() {
        let binding = |role: &str, subjects| json!({"roleRef": {"name": role}, "subjects": subjects});
        let found = approvers(&[
            binding("another", json!([{"kind": "User", "name": "x"}])),
            binding(
                APPROVER,
                json!([
                    {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}, {"kind": "User", "name": "u"},
                ]),
            ),
        ]);
        let told: Vec<_> = found.iter().map(|one| (one.words(), one.groups.join(" "))).collect();
        let masters = || UNLIMITED.to_owned();
        assert_eq!(told, [("g", format!("g {UNLIMITED}")), ("system:serviceaccount:n:a", masters()), ("u", masters())]);
    }
}
