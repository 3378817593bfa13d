//! The API server, and the rights there.

use crate::core::cluster::overview::Leader;
use crate::core::time::Span;

use super::*;

fn leader(renewed: &str) -> Leader {
    Leader::of(&json!({"spec": {"holderIdentity": "one", "acquireTime": "2026-11-21T11:00:00Z", "renewTime": renewed}}))
}

fn answers() -> api::Answers {
    api::Answers {
        server: "10.0.0.1:6443 (v1.36.2)".into(),
        has_address_for_pods: true,
        ahead: Some(Span::from_millis(-400)),
        registered: Some(true),
        crd: Ok(true),
        coordinator: Some((leader("2026-11-21T12:00:00Z"), "2026-11-21T12:00:10Z".parse().unwrap())),
        denied: Vec::new(),
        asked: 30,
        unasked: None,
        is_writable_below: false,
        left_out: 0,
        unlisted: None,
        daemons: vec![(daemon_set("daemonlet"), Mode::Static, Vec::new())],
        intolerant: None,
        probes: Vec::new(),
        service: Some(("10.96.0.1:443".into(), Ok(()))),
    }
}

fn daemon_set(manager: &str) -> Value {
    let entry = |manager: &str, subresource: &str, time: &str| json!({"manager": manager, "subresource": subresource, "time": time});
    json!({
        "metadata": {"namespace": "kube-system", "name": "cni", "generation": 4, "managedFields": [
            entry("kubectl", "", "2026-11-21T12:00:00Z"),
            entry("kube-controller-manager", "status", "2026-11-21T09:00:00Z"),
            entry(manager, "status", "2026-11-21T10:00:00Z")]},
        "status": {"observedGeneration": 4},
    })
}

#[test]
fn an_api_server_is_judged_by_what_it_says() {
    let examine = |answers| api::examine(&api::ApiFacts::Answers(Box::new(answers)), "n1");
    assert!(examine(answers()).iter().all(|finding| finding.level == Severity::Ok), "{:#?}", examine(answers()));
    let stock = |generation: i64| {
        let mut it = daemon_set("kube-controller-manager");
        it["status"]["observedGeneration"] = json!(generation);
        (it, Mode::Static, Vec::new())
    };
    let twice = |mode| (daemon_set("daemonlet"), mode, vec!["cni-abcde".to_owned()]);
    let right = |verb: &str, namespace: &str| api::Right {
        verb: verb.into(),
        group: String::new(),
        resource: "secrets".into(),
        subresource: String::new(),
        namespace: namespace.into(),
        name: "s".into(),
    };
    for (found, level, text) in [
        (
            api::Answers { ahead: Some(Span::from_secs(20)), ..answers() },
            Severity::Warn,
            "20 s behind the API server's",
        ),
        (
            api::Answers { ahead: Some(Span::from_secs(-90)), ..answers() },
            Severity::Bad,
            "90 s ahead of the API server's",
        ),
        (api::Answers { ahead: None, ..answers() }, Severity::Warn, "sends no time"),
        (api::Answers { has_address_for_pods: false, ..answers() }, Severity::Warn, "is a path of its host"),
        (api::Answers { registered: Some(false), ..answers() }, Severity::Warn, "n1 is not registered"),
        (
            api::Answers { intolerant: Some(vec!["a/b".into(), "a/c".into()]), ..answers() },
            Severity::Warn,
            "pods of these DaemonSets wait as workload does: a/b, a/c",
        ),
        (api::Answers { intolerant: Some(vec!["a/b".into(); 23]), ..answers() }, Severity::Warn, "a/b, a/b and 3 more"),
        (api::Answers { crd: Ok(false), ..answers() }, Severity::Warn, "rollouts have no cluster-wide budget"),
        (
            api::Answers { probes: vec![("p", policies::PolicyProbeResult::Accepted)], ..answers() },
            Severity::Warn,
            "not in force for this agent: p; ",
        ),
        (api::Answers { unasked: Some("403".into()), ..answers() }, Severity::Warn, "could not be checked"),
        (
            api::Answers { denied: vec![right("get", "kube-system"), right("list", "kube-system")], ..answers() },
            Severity::Bad,
            "may not get, list secrets kube-system/s",
        ),
        (
            api::Answers { left_out: 3, ..answers() },
            Severity::Warn,
            "those of 3 DaemonSets that run here are not checked",
        ),
        (
            api::Answers { is_writable_below: true, ..answers() },
            Severity::Warn,
            "mounted below the granted host-paths are writable",
        ),
        (
            api::Answers { unlisted: Some("it expired".into()), ..answers() },
            Severity::Warn,
            "are not all checked: they could not be listed: it expired",
        ),
        (
            api::Answers { daemons: vec![stock(4)], ..answers() },
            Severity::Warn,
            "manages the status of kube-system/cni",
        ),
        (
            api::Answers { daemons: vec![twice(Mode::Static)], ..answers() },
            Severity::Bad,
            "runs here twice: pod cni-abcde",
        ),
        (
            api::Answers { service: Some(("10.96.0.1:443".into(), Err("timed out".into()))), ..answers() },
            Severity::Bad,
            "does not answer from this node: timed out",
        ),
    ] {
        let one = the_one(examine(found));
        assert_eq!(one.level, level, "{one:?}");
        assert!(one.text.contains(text), "{one:?}");
    }
    // It acted before the last change, or it is meant to run beside us.
    let part = |(daemon_set, mode, pods): (Value, Mode, Vec<String>)| {
        (super::super::stock::part_examined(&daemon_set), mode, pods)
    };
    let short = |daemons| examine(api::Answers { daemons, ..answers() });
    assert_eq!(levels(&short(vec![part(stock(4))])), levels(&short(vec![stock(4)])));
    for daemons in [vec![stock(3)], vec![part(stock(3))], vec![twice(Mode::Bootstrap)]] {
        assert!(examine(api::Answers { daemons, ..answers() }).iter().all(|f| f.level == Severity::Ok));
    }
    assert_eq!(levels(&api::examine(&api::ApiFacts::NotConfigured, "n1")), [("API server", Severity::Ok)]);
    for (cause, is_enrolled, hint) in [
        (api::UnreachableCause::Silent, false, "compare the kubeconfig's server"),
        (api::UnreachableCause::Silent, true, "`daemonlet enroll` corrects the kubeconfig"),
        (api::UnreachableCause::Unauthorized, false, "credentials that the API server accepts"),
        (api::UnreachableCause::Unauthorized, true, "`daemonlet enroll --force` asks"),
        (api::UnreachableCause::Kubeconfig, true, "correct it"),
    ] {
        let unreachable = api::ApiFacts::Unreachable { why: "no".into(), cause, is_enrolled };
        let one = the_one(api::examine(&unreachable, "n1"));
        assert!(one.level == Severity::Bad && one.hint.as_ref().unwrap().contains(hint), "{one:?}");
    }
}

#[test]
fn a_daemons_rights_are_those_of_what_it_names() {
    let template = json!({"spec": {
        "serviceAccountName": "cni",
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"name": "a", "configMap": {"name": "conf"}},
            {"name": "b", "secret": {"secretName": "certs"}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
        ],
        "containers": [{"name": "x", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "all"}}]}],
    }});
    let rights = api::rights_of("kube-system", &template);
    let texts: Vec<String> = rights.iter().map(ToString::to_string).filter(|text| !text.starts_with("list")).collect();
    for expected in [
        "create serviceaccounts/token kube-system/cni",
        "get configmaps kube-system/all",
        "get configmaps kube-system/conf",
        "get secrets kube-system/certs",
        "get secrets kube-system/key",
        "get secrets kube-system/projected",
        "get secrets kube-system/pull",
        "get serviceaccounts kube-system/cni",
        "watch secrets kube-system/key",
    ] {
        assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:#?}");
    }
    assert_eq!(rights.len(), 1 + 3 * 7);
    let bare = api::rights_of("a", &json!({"spec": {"automountServiceAccountToken": false}}));
    assert!(bare.iter().all(|right| right.resource == "serviceaccounts" && right.subresource.is_empty()), "{bare:?}");
}

#[test]
fn the_right_to_ask_about_pods_is_asked_for_where_daemonsets_may_run() {
    let words = |namespaces: &[&str]| -> Vec<String> {
        let namespaces: Vec<String> = namespaces.iter().map(|&n| n.to_owned()).collect();
        api::rights_to_ask(&namespaces).iter().map(ToString::to_string).collect()
    };
    assert_eq!(words(&["a", "b"]), ["create pods in a", "create pods in b"]);
    assert_eq!(words(&["a", "*"]), ["create pods"]);
    for namespace in ["a", "*"] {
        let denied = api::rights_to_ask(&[namespace.to_owned()]).into_iter().collect();
        let facts = api::ApiFacts::Answers(Box::new(api::Answers { denied, ..answers() }));
        let found = api::examine(&facts, "n1");
        let found = found.iter().find(|finding| finding.text.contains("create pods")).unwrap();
        assert!(found.hint.as_ref().unwrap().contains("rbac-dry-run.yaml"), "{found:?}");
    }
}

#[test]
fn what_is_asked_about_is_what_the_packaged_role_grants() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/k8s/rbac.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let documents = crate::core::yaml::read_documents(&text).into_iter().filter_map(|document| document.value.ok());
    let roles: Vec<Value> = documents.filter(|document| document["metadata"]["name"] == "daemonlet-agent").collect();
    let has = |list: &Value, word: &str| list.as_array().into_iter().flatten().any(|item| item == word);
    for right in api::rights(true, ("kube-system", "daemonlet-coordinator")) {
        let resource = match right.subresource.as_str() {
            "" => right.resource.clone(),
            subresource => format!("{}/{subresource}", right.resource),
        };
        let granted = roles.iter().flat_map(|role| role["rules"].as_array().unwrap()).any(|rule| {
            has(&rule["apiGroups"], &right.group)
                && has(&rule["resources"], &resource)
                && has(&rule["verbs"], &right.verb)
        });
        assert!(granted, "{right} is asked about and not granted");
    }
}
