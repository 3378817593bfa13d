//! Who may approve certificates for clients of the API server, by RBAC.
//!
//! Owns how roles and their bindings are read. Must not list them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::doctor::policies::NAME;
use crate::core::json::Json;

use super::Finding;

/// The role that lets a coordinator approve certificates.
pub(super) const APPROVER: &str = "daemonlet-approver";
/// The group whose members RBAC gives everything, and policies nothing: what refuses their write is no missing right.
pub(super) const UNLIMITED: &str = "system:masters";
/// The signer of the certificates by which the API server knows a client.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The most subjects in whose name an approval is tried, and the most that a line names.
const MOST: usize = 50;
const CHECK: &str = "who may approve";

/// In whose name a write is tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActAs {
    pub user: String,
    pub groups: Vec<String>,
    /// The ClusterRoles that let it approve, if `daemonlet-approver` is not among them.
    pub roles: Vec<String>,
}

impl ActAs {
    /// A subject of RBAC.
    fn subject(subject: &Value) -> Self {
        let name = subject.str_at("name").to_owned();
        let (user, group) = match subject.str_at("kind") {
            "Group" => (NAME.to_owned(), Some(name)),
            "ServiceAccount" => (format!("system:serviceaccount:{}:{name}", subject.str_at("namespace")), None),
            _ => (name, None),
        };
        let groups = group.into_iter().chain([UNLIMITED.to_owned()]).collect();
        Self { user, groups, roles: Vec::new() }
    }

    /// Its group where that alone makes it an agent or a coordinator, else its name.
    pub(super) fn words(&self) -> &str {
        if self.user == NAME { &self.groups[0] } else { &self.user }
    }
}

/// What a role gives of that which an approval needs: the API server asks for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rights {
    /// To write an approval into a request.
    writes: bool,
    /// To approve for the signer.
    approves: bool,
    /// Everything, as `cluster-admin` does.
    all: bool,
}

impl Rights {
    fn of(role: &Value) -> Self {
        role.list_at("rules").iter().map(Self::of_rule).fold(Self::default(), Self::and)
    }

    fn of_rule(rule: &Value) -> Self {
        let has = |field: &str, names: &[&str]| {
            rule.list_at(field).iter().filter_map(Value::as_str).any(|one| one == "*" || names.contains(&one))
        };
        let group = has("apiGroups", &["certificates.k8s.io"]);
        let signer = rule.list_at("resourceNames").is_empty() || has("resourceNames", &[SIGNER, "kubernetes.io/*"]);
        Self {
            writes: group
                && has("resources", &["certificatesigningrequests/approval", "*/approval"])
                && has("verbs", &["update", "patch"]),
            approves: group && has("resources", &["signers"]) && has("verbs", &["approve"]) && signer,
            all: ["apiGroups", "resources", "verbs"].iter().all(|field| has(field, &[])),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            writes: self.writes || other.writes,
            approves: self.approves || other.approves,
            all: self.all || other.all,
        }
    }
}

/// Who may approve, filled by pages of the objects; of those that give nothing, nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Approvers {
    roles: BTreeMap<String, Rights>,
    subjects: BTreeMap<ActAs, (Rights, BTreeSet<String>)>,
    without_effect: Vec<String>,
}

impl Approvers {
    /// Reads ClusterRoles. Roles give nothing: certificate requests and signers belong to no namespace.
    pub fn cluster_roles(&mut self, roles: &[Value]) {
        let rights = roles.iter().map(|role| (role.str_at(["metadata", "name"]).to_owned(), Rights::of(role)));
        self.roles.extend(rights.filter(|(name, rights)| name == APPROVER || *rights != Rights::default()));
    }

    /// Reads ClusterRoleBindings, once all ClusterRoles are.
    pub fn cluster_role_bindings(&mut self, bindings: &[Value]) {
        for binding in bindings {
            let role = binding.str_at(["roleRef", "name"]);
            let rights = self.roles.get(role).copied();
            // Its subjects are to approve, whatever became of it.
            let Some(rights) = rights.or((role == APPROVER).then(Rights::default)) else { continue };
            for subject in binding.list_at("subjects").iter().map(ActAs::subject) {
                if subject.words() != UNLIMITED {
                    let (given, roles) = self.subjects.entry(subject).or_default();
                    *given = given.and(rights);
                    roles.insert(role.to_owned());
                }
            }
        }
    }

    /// Reads RoleBindings.
    pub fn role_bindings(&mut self, bindings: &[Value]) {
        let ours = bindings.iter().filter(|binding| binding.str_at(["roleRef", "name"]) == APPROVER);
        let name = |binding: &Value| {
            format!("{}/{}", binding.str_at(["metadata", "namespace"]), binding.str_at(["metadata", "name"]))
        };
        self.without_effect.extend(ours.map(name));
    }

    /// In whose names an approval is tried, and the findings about the others.
    pub fn judge(self) -> (Vec<ActAs>, Vec<Finding>) {
        let (mut coordinators, mut others, mut admins) = (Vec::new(), Vec::new(), Vec::new());
        for (subject, (rights, roles)) in self.subjects {
            if roles.contains(APPROVER) {
                coordinators.push(subject);
            } else if rights.all {
                admins.push(subject.words().to_owned());
            } else if rights.writes && rights.approves {
                others.push(ActAs { roles: roles.into_iter().collect(), ..subject });
            }
        }
        let beyond: Vec<String> = others.iter().skip(MOST).map(|one| one.words().to_owned()).collect();
        others.truncate(MOST);
        let mut findings = Vec::new();
        if !admins.is_empty() {
            let text = format!("everything, and so any certificate, as cluster admins: {}", listed(&admins));
            findings.push(Finding::ok(CHECK, text));
        }
        if !beyond.is_empty() {
            let text = format!("a certificate in anybody's name; no policy was tried on: {}", listed(&beyond));
            findings.push(Finding::warn(CHECK, text, "take the right away from those who do not need it"));
        }
        if !self.without_effect.is_empty() {
            findings.push(Finding::warn(
                CHECK,
                format!(
                    "nothing, by the RoleBinding {} of {APPROVER}: certificate requests belong to no namespace",
                    listed(&self.without_effect)
                ),
                "delete it, and name its subjects in a ClusterRoleBinding if they are to approve",
            ));
        }
        (coordinators.into_iter().chain(others).collect(), findings)
    }
}

/// The first of `names`, and how many more there are.
fn listed(names: &[String]) -> String {
    let first = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, rules: Value) -> Value {
        json!({"metadata": {"name": name}, "rules": rules})
    }

    fn bound(role: &str, subjects: Value) -> Value {
        json!({"metadata": {"namespace": "ns", "name": "b"}, "roleRef": {"name": role}, "subjects": subjects})
    }

    fn rule(resources: &str, verbs: &str, names: Value) -> Value {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": [resources], "verbs": [verbs], "resourceNames": names})
    }

    fn user(name: &str) -> Value {
        json!([{"kind": "User", "name": name}])
    }

    const REQUESTS: &str = "certificatesigningrequests/approval";

    #[test]
    fn each_subject_of_the_approvers_role_is_tried_with_every_right_whatever_the_role_is() {
        let mut approvers = Approvers::default();
        approvers.cluster_role_bindings(&[
            bound("another", user("x")),
            bound(
                APPROVER,
                json!([
                    {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}, {"kind": "User", "name": "u"},
                ]),
            ),
        ]);
        let (tried, findings) = approvers.judge();
        let lines: Vec<_> = tried.iter().map(|one| (one.words(), one.groups.join(" "))).collect();
        let masters = || UNLIMITED.to_owned();
        assert_eq!(
            lines,
            [("g", format!("g {UNLIMITED}")), ("system:serviceaccount:n:a", masters()), ("u", masters())]
        );
        assert_eq!(findings, []);
    }

    #[test]
    fn whoever_has_both_rights_may_approve_by_whichever_roles_and_nobody_else() {
        let mut approvers = Approvers::default();
        approvers.cluster_roles(&[
            role("both", json!([rule("*", "*", json!([SIGNER]))])),
            role("writes", json!([rule(REQUESTS, "patch", json!([]))])),
            role("signs", json!([rule("signers", "approve", json!(["kubernetes.io/*"]))])),
            role("any", json!([rule("signers", "approve", json!([]))])),
            role(
                "kubelets",
                json!([rule("signers", "approve", json!(["kubernetes.io/kube-apiserver-client-kubelet"]))]),
            ),
            role("reads", json!([rule("*", "get", json!([]))])),
            role("core", json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}])),
            role("cluster-admin", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])),
        ]);
        approvers.cluster_role_bindings(&[
            bound("both", user("b")),
            bound("writes", json!([{"kind": "Group", "name": "two"}, {"kind": "User", "name": "one"}])),
            bound("writes", user("k")),
            bound("kubelets", user("k")),
            bound("signs", json!([{"kind": "Group", "name": "two"}])),
            bound("any", user("only-signs")),
            bound("reads", user("r")),
            bound("core", user("c")),
            bound("cluster-admin", json!([{"kind": "Group", "name": UNLIMITED}, {"kind": "User", "name": "root"}])),
        ]);
        let (tried, findings) = approvers.judge();
        let lines: Vec<_> = tried.iter().map(|one| (one.words(), one.roles.join(" "))).collect();
        assert_eq!(lines, [("b", "both".to_owned()), ("two", "signs writes".to_owned())]);
        let texts: Vec<_> = findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, ["everything, and so any certificate, as cluster admins: root"]);
    }

    #[test]
    fn a_role_binding_gives_nothing_and_who_is_not_tried_is_named() {
        let mut approvers = Approvers::default();
        approvers.cluster_roles(&[role("both", json!([rule("*", "*", json!([]))]))]);
        approvers.role_bindings(&[bound(APPROVER, user("x")), bound("both", user("y"))]);
        let many: Vec<Value> = (0..MOST + 2).map(|n| json!({"kind": "User", "name": format!("u{n:03}")})).collect();
        approvers.cluster_role_bindings(&[bound("both", Value::Array(many))]);
        let (tried, findings) = approvers.judge();
        assert_eq!(tried.len(), MOST);
        let texts: Vec<_> = findings.iter().map(|finding| finding.text.as_str()).collect();
        let expected = [
            "a certificate in anybody's name; no policy was tried on: u050, u051",
            "nothing, by the RoleBinding ns/b of daemonlet-approver: certificate requests belong to no namespace",
        ];
        assert_eq!(texts, expected);
        let names: Vec<String> = (0..MOST + 3).map(|n| n.to_string()).collect();
        assert!(listed(&names).ends_with(", 49 and 3 more"), "{}", listed(&names));
    }
}
