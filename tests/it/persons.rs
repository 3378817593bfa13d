//! Attempts by the other persons of the threat model: the node's owner by mistake, a cluster admin, a holder of a node's
//! identity or of a bootstrap token, and a registry.
//!
//! Owns those that need no cluster. Tenants are in `attempts` and `hostile`; what one node's identity may write is tried on
//! a real API server (`test_identity.py`), and providers, local users and bundles beside the code that they meet.

use std::path::Path;
use std::sync::Arc;

use daemonlet::config;
use daemonlet::core::enrolment;
use daemonlet::core::enrolment::ApprovalVerdict;
use daemonlet::core::enrolment::CertificateRequest;
use daemonlet::core::escape;
use daemonlet::core::model::Lookup;
use daemonlet::core::model::Mode;
use daemonlet::core::model::Source;
use daemonlet::core::policy;
use daemonlet::core::policy::Admission;
use daemonlet::core::policy::Covered;
use daemonlet::core::policy::PodRules;
use daemonlet::core::policy::Policy;
use serde_json::Value;
use serde_json::json;

use crate::attempts::modest;

/// What a node's owner mistypes is refused by its key: nothing is granted by it, and nothing is left out.
#[test]
fn no_mistake_in_the_policy_grants_anything() {
    let mut passed = Vec::new();
    for (text, said) in [
        ("[policy]\ntrusted-namespace = [\"a\"]", "trusted-namespace"),
        ("[policy]\nTrusted-Namespaces = [\"a\"]", "Trusted-Namespaces"),
        ("[policy]\ntrusted_namespaces = [\"a\"]", "trusted_namespaces"),
        ("[policy]\ntrusted-namespaces = \"a\"", "trusted-namespaces"),
        ("[policy]\ntrusted-namespaces = [1]", "trusted-namespaces"),
        ("[policy]\ntrusted-namespaces = [[\"a\"]]", "trusted-namespaces"),
        ("[policy]\nnamespaces = true", "namespaces"),
        ("[policy]\nprivileged = true", "privileged"),
        ("[policy]\nhost-paths = [\"/var/log\"]", "host-paths"),
        ("[policy]\npod-security = \"none\"", "pod-security"),
        ("[policy]\npod-security = \"Privileged\"", "pod-security"),
        ("[policy]\npod-security = \"\"", "pod-security"),
        ("[policy]\nlocal-storage = \"false\"", "local-storage"),
        ("[policy]\nlocal-storage = 1", "local-storage"),
        ("[policy]\nshared-pulls = \"yes\"", "shared-pulls"),
        ("[policy]\nmax-requests = \"101%\"", "max-requests"),
        ("[policy]\nmax-requests = \"-1%\"", "max-requests"),
        ("[policy]\nmax-requests = \"10\"", "max-requests"),
        ("[policy]\nmax-requests = \"1e1%\"", "max-requests"),
        ("[policy]\nmax-requests = 10", "max-requests"),
        ("[policy]\nadmission = \"dryrun\"", "admission"),
        ("[policy]\nadmission = true", "admission"),
        ("[policy]\nimages = \"*\"", "images"),
        ("[policy.grants.a]\nhost-path = [\"/x\"]", "host-path"),
        ("[policy.grants.a]\nhost-paths = [\"x\"]", "host-paths"),
        ("[policy.grants.a]\nhost-paths = [\"\"]", "host-paths"),
        ("[policy.grants.a]\nhost-paths = [\"/x/../etc\"]", "host-paths"),
        ("[policy.grants.a]\nhost-paths = \"/x\"", "host-paths"),
        ("[policy.grants.a]\nhost-ports = [0]", "host-ports"),
        ("[policy.grants.a]\nhost-ports = [65536]", "host-ports"),
        ("[policy.grants.a]\nhost-ports = [-1]", "host-ports"),
        ("[policy.grants.a]\nhost-ports = [\"9110-9100\"]", "host-ports"),
        ("[policy.grants.a]\nhost-ports = [\"1-65535-\"]", "host-ports"),
        ("[policy.grants.a]\nvolume-types = [\"hostPath\"]", "volume-types"),
        ("[policy.grants.a]\nvolume-types = [\"csi\"]", "volume-types"),
        ("[policy.grants.a]\nvolume-types = [\"*\"]", "volume-types"),
        ("[policy.grants.a]\nannotations = [\"\"]", "annotations"),
        ("[policy.grants.a]\nannotation = [\"x\"]", "annotation"),
        ("[policy]\nmax-grace-period = 600", "max-grace-period"),
        ("[policy]\nmax-grace-period = \"-1s\"", "max-grace-period"),
        ("[policy.grants]\na = true", "grants"),
        ("[policy]\ngrants = [\"a\"]", "grants"),
        ("[Policy]\nnamespaces = [\"a\"]", "Policy"),
        ("policy = 1", "policy"),
        ("[policy]\nnamespaces = [\"a\"]\nnamespaces = [\"b\"]", "duplicate key"),
    ] {
        match config::read_text(Path::new("/etc/daemonlet/daemonlet.toml"), format!("{text}\n")) {
            Err(error) if error.to_string().contains(said) => {}
            Err(error) => passed.push(format!("{text:?}: {error}")),
            Ok(_) => passed.push(format!("{text:?} is taken")),
        }
    }
    assert!(passed.is_empty(), "{}", passed.join("\n"));
}

fn of_namespace(namespace: &Value, metadata: &Value) -> Value {
    let mut object = modest();
    object["metadata"].as_object_mut().expect("an object").extend(metadata.as_object().cloned().expect("an object"));
    object["metadata"]["namespace"] = namespace.clone();
    object
}

/// Whoever may write any object of the cluster gets from a node what its `[policy]` says: no name, label or annotation
/// takes a namespace into it.
#[test]
fn no_object_of_a_cluster_admin_gets_past_the_nodes_policy() {
    let policy = Policy::new(Some(Mode::Static), "", vec!["a".to_owned()]).expect("a policy");
    let policy = policy.with_rules(PodRules { trusted_namespaces: vec!["a".to_owned()], ..PodRules::default() });
    let runs = |object: &Value| match policy::checked(object, Source::Api) {
        Ok(daemon_set) => matches!(policy.covers(&daemon_set, None), Covered::Yes(_)),
        Err(_) => false,
    };
    assert!(runs(&of_namespace(&json!("a"), &json!({}))));
    let namespaces =
        ["b", "A", "a ", " a", "a\u{200b}", "\u{430}", "a/../a", "a\u{0}", "a.", "*", "", "kube-system", "a,b", "a\n"];
    for namespace in namespaces {
        assert!(!runs(&of_namespace(&json!(namespace), &json!({}))), "{namespace:?}");
    }
    for namespace in [json!(null), json!(["a"]), json!({"a": "a"}), json!(0), json!(true)] {
        let object = of_namespace(&namespace, &json!({}));
        let is_a = policy::checked(&object, Source::Api).is_ok_and(|daemon_set| daemon_set.key.namespace == "a");
        assert!(!is_a, "{namespace}");
    }
    let mark = |name: &str, value: &str| json!({"labels": {name: value}, "annotations": {name: value}});
    for (name, value) in [
        ("daemonlet.dev/mode", "static"),
        ("daemonlet.dev/mode", "bootstrap"),
        ("daemonlet.dev/override", "true"),
        ("daemonlet.dev/trusted", "true"),
        ("daemonlet.dev/coordination", "none"),
        ("kubernetes.io/metadata.name", "a"),
        ("pod-security.kubernetes.io/enforce", "privileged"),
    ] {
        assert!(!runs(&of_namespace(&json!("b"), &mark(name, value))), "{name}={value}");
    }
}

/// Of a namespace that the node covers and does not trust, whoever writes: what the Namespace says weakens nothing, and
/// nothing is guessed while it is unknown.
#[test]
fn no_namespace_object_of_a_cluster_admin_trusts_itself() {
    let rules = PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() };
    let policy = Policy::new(Some(Mode::Static), "", vec!["a".to_owned()]).expect("a policy").with_rules(rules);
    let mut object = modest();
    object["spec"]["template"]["spec"]["hostPID"] = json!(true);
    let daemon_set = Arc::new(policy::checked(&object, Source::Api).expect("a DaemonSet"));
    let namespace = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
    for labels in [
        json!({"pod-security.kubernetes.io/enforce": "privileged"}),
        json!({"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/enforce-version": "latest"}),
        json!({"pod-security.kubernetes.io/enforce": 7}),
        json!({"pod-security.kubernetes.io/enforce": ["privileged"]}),
        json!(null),
        json!("privileged"),
    ] {
        let object = namespace(labels.clone());
        assert!(matches!(policy.admit(&daemon_set, Lookup::Present(&object)), Admission::Refused(_)), "{labels}");
    }
    for unknown in [Lookup::Unknown, Lookup::Absent] {
        assert!(!matches!(policy.admit(&daemon_set, unknown), Admission::Allowed(_)), "{unknown:?}");
    }
}

/// With one node's identity, a kubelet's certificate or a bootstrap token, no request makes its holder a coordinator, an
/// administrator or a server, and no node's identity makes it another node.
#[test]
fn no_request_for_a_certificate_gives_its_holder_another_identity() {
    let agents = "daemonlet:nodes";
    let bootstrap = enrolment::BOOTSTRAP_GROUP;
    let ask = |user: &str, groups: &[&str], usages: &[&str], signer: &str, node: &str| {
        let strings = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let pem = enrolment::request(node, &[4; 65], &[0x30, 0]).unwrap_or_default();
        let (groups, usages) = (strings(groups), strings(usages));
        let asked = CertificateRequest { signer, usages: &usages, user, groups: &groups, request: pem.as_bytes() };
        enrolment::judge(&asked)
    };
    let usual = &enrolment::USAGES[..];
    let is_for = |verdict: ApprovalVerdict, node: &str| verdict == ApprovalVerdict::IfNodeExists(node.to_owned());
    assert!(is_for(ask("daemonlet:node:n1", &[agents], usual, enrolment::SIGNER, "n1"), "n1"));
    assert!(is_for(ask("system:bootstrap:abcdef", &[bootstrap], usual, enrolment::SIGNER, "n1"), "n1"));
    for (user, groups) in [
        ("daemonlet:node:n2", vec![agents]),
        ("daemonlet:node:n1", vec![]),
        ("daemonlet:node:N1", vec![agents]),
        ("daemonlet:node:n1 ", vec![agents]),
        ("daemonlet:node:n1\u{0}", vec![agents]),
        ("daemonlet:node:", vec![agents]),
        ("daemonlet:node:daemonlet:node:n1", vec![agents]),
        ("xdaemonlet:node:n1", vec![agents]),
        ("daemonlet:node:n1", vec!["daemonlet:nodes2"]),
        ("daemonlet:coordinator", vec!["daemonlet:coordinators"]),
        ("system:node:n2", vec!["system:nodes"]),
        ("system:node:n1", vec!["system:node"]),
        ("system:node:n2", vec!["system:nodes", agents]),
        ("system:node:n2", vec!["system:nodes", bootstrap]),
        ("daemonlet:node:n2", vec![agents, bootstrap]),
        ("system:bootstrap:abcdef", vec!["system:bootstrappers"]),
        ("system:bootstrap:abcdef", vec!["system:bootstrappers:daemonlet:x"]),
        ("system:bootstrap:abcdef", vec!["system:bootstrappers:worker", "system:authenticated"]),
        ("system:serviceaccount:a:default", vec!["system:serviceaccounts"]),
        ("", vec![""]),
    ] {
        let verdict = ask(user, &groups, usual, enrolment::SIGNER, "n1");
        assert!(matches!(verdict, ApprovalVerdict::LeaveAlone(_)), "{user:?} {groups:?}: {verdict:?}");
    }
    let signers = [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/legacy-unknown",
        "",
        "KUBERNETES.IO/kube-apiserver-client",
    ];
    for signer in signers {
        let verdict = ask("system:bootstrap:abcdef", &[bootstrap], usual, signer, "n1");
        assert_eq!(verdict, ApprovalVerdict::NotOurs, "{signer}");
    }
    for usages in [
        vec!["client auth", "server auth"],
        vec!["client auth", "any"],
        vec!["cert sign", "client auth"],
        vec!["CLIENT AUTH"],
        vec![],
    ] {
        let verdict = ask("system:bootstrap:abcdef", &[bootstrap], &usages, enrolment::SIGNER, "n1");
        assert!(matches!(verdict, ApprovalVerdict::LeaveAlone(_)), "{usages:?}: {verdict:?}");
    }
    // A name that is none of a node is not asked for, or not approved: such a Node cannot be.
    for node in ["", "N1", "n1,O=system:masters", "n1/../n2", "n1\n", "n1\u{0}", "ünï", "-n1", &"x".repeat(300)] {
        let verdict = ask("system:bootstrap:abcdef", &[bootstrap], usual, enrolment::SIGNER, node);
        assert!(!matches!(verdict, ApprovalVerdict::IfNodeExists(_)), "{node:?}: {verdict:?}");
    }
}

/// What a registry or a runtime answers is a text of a bounded length on one line.
#[test]
fn no_answer_of_a_registry_writes_to_a_terminal_or_without_end() {
    for text in [
        "denied\u{1b}]0;owned\u{7}",
        "404\r\ninfo: all is well",
        "x\u{9b}2J",
        "\u{202e}dlrow",
        "a\u{0}b",
        "\u{2028}line",
        &"x".repeat(4 << 20),
        &"\u{1b}".repeat(1 << 20),
    ] {
        let short = escape::short(text, escape::TEXT);
        let shown = escape::line(&short);
        assert!(!shown.chars().any(char::is_control) && !shown.contains(['\u{202e}', '\u{2028}']), "{shown:?}");
        assert!(shown.len() <= 8 * escape::TEXT, "{}", shown.len());
    }
}
