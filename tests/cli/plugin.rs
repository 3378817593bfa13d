//! `kubectl daemonlet` as the pages show it: the real binary against an API server that has a few objects; it takes every
//! patch, and keeps none.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::process::Output;
use std::sync::Arc;

use daemonlet::core::yaml;
use http::Request;
use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::Value;
use serde_json::json;
use tokio::net::TcpListener;

use crate::readme::read;
use crate::world;
use crate::world::Rollout;

/// The rollouts of the pages.
fn rollouts() -> [Rollout; 2] {
    let steps = "1, 10m; 50%, 30m; 100%";
    let state = json!({"step": 1, "since": "2026-11-22T11:00:10Z", "number": 2, "of": steps}).to_string();
    let halted =
        json!({"time": "2026-11-22T11:05:00Z", "cause": "the revision failed on 2 nodes", "nodes": ["n1", "n2"]});
    [
        // In its first step.
        Rollout {
            updated: &["n1"],
            noted: json!({"daemonlet.dev/step": state}),
            ..Rollout::new("net", json!({"daemonlet.dev/steps": steps}))
        },
        // Halted.
        Rollout {
            failed: &["n1", "n2"],
            noted: json!({"daemonlet.dev/halted": halted.to_string()}),
            ..Rollout::new("dns", json!({"daemonlet.dev/rollback": "auto"}))
        },
    ]
}

/// The DaemonSet of a rollout whose image `1` is released.
fn released(rollout: &Rollout) -> Value {
    let [before, _] = rollout.revisions().map(|revision| revision["metadata"].clone());
    let (name, hash) = (before["name"].as_str().unwrap(), before["uid"].as_str().unwrap());
    let message = format!("ControllerRevision {name} (hash {hash}) at generation 1");
    let condition = json!({"type": "Released", "status": "False", "reason": "Held", "message": message});
    let mut daemon_set = rollout.daemon_set();
    daemon_set["status"] = json!({"conditions": [condition]});
    daemon_set
}

/// Every answer, by its path.
fn answers() -> BTreeMap<String, Value> {
    let rollouts = rollouts();
    let mut answers = BTreeMap::new();
    let mut add = |prefix: &str, plural: &str, objects: Vec<Value>| {
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            answers.insert(format!("{prefix}/{plural}/{name}"), object.clone());
        }
        answers.insert(format!("{prefix}/{plural}"), json!({"metadata": {}, "items": objects}));
    };
    let apps = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}");
    add("/api/v1", "nodes", world::nodes().into());
    add("/apis/daemonlet.dev/v1beta1", "nodedaemons", world::node_daemons(&rollouts).into());
    add(&apps("kube-system"), "daemonsets", rollouts.iter().map(released).collect());
    add(&apps("kube-system"), "controllerrevisions", rollouts.iter().flat_map(Rollout::revisions).collect());
    let example = yaml::read_documents(&read("examples/overlays/node-agent.yaml"));
    let example: Vec<Value> = example.into_iter().map(|document| document.value.unwrap()).collect();
    let of_kind = |kind: &str| example.iter().filter(|object| object["kind"] == kind).cloned().collect();
    add(&apps("monitoring"), "daemonsets", of_kind("DaemonSet"));
    add("/apis/apps/v1", "daemonsets", of_kind("DaemonSet"));
    add("/api/v1/namespaces/monitoring", "configmaps", of_kind("ConfigMap"));
    answers
}

/// What an API server without hostile texts says of what is not there.
const MISSING: &str = "not found";

/// Answers; what is not among them is not found, or where `said` is something else, forbidden.
async fn serve(listener: TcpListener, answers: Arc<BTreeMap<String, Value>>, said: &'static str) {
    while let Ok((stream, _)) = listener.accept().await {
        let answers = Arc::clone(&answers);
        let answer = service_fn(move |request: Request<Incoming>| {
            let found = answers.get(request.uri().path());
            let (refusal, reason) = if said == MISSING { (404, "NotFound") } else { (403, "Forbidden") };
            let code = if found.is_some() { 200 } else { refusal };
            let missing = || json!({"kind": "Status", "code": refusal, "reason": reason, "message": said});
            let body = found.cloned().unwrap_or_else(missing).to_string().into_bytes();
            let response = Response::builder().status(code).header("content-type", "application/json");
            std::future::ready(Ok::<_, Infallible>(response.body(Body::from(body)).unwrap()))
        });
        drop(tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer)));
    }
}

/// Runs `kubectl daemonlet` with these words.
pub(crate) fn kubectl_daemonlet(words: &[String]) -> Output {
    against(words, answers(), MISSING)
}

fn against(words: &[String], answers: BTreeMap<String, Value>, missing: &'static str) -> Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (program, kubeconfig) = (folder.path().join("kubectl-daemonlet"), folder.path().join("kubeconfig"));
    symlink(env!("CARGO_BIN_EXE_daemonlet"), &program).unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}], "users": [{"name": "it", "user": {"token": "it"}}]});
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut command = Command::new(program);
    command.args(words).env("KUBECONFIG", kubeconfig);
    drop(runtime.spawn(serve(listener, Arc::new(answers), missing)));
    let run = runtime.spawn_blocking(move || command.output().unwrap());
    runtime.block_on(run).unwrap()
}

/// What a terminal would obey or hide, and a line of its own.
const FORGED: &str = "x\n\u{1b}[32mforged\u{1b}[0m\r\nforged: \u{9b}31m\u{202e}\u{200b}\u{e0041}\u{2028}forged";

/// Every text of `value` is forged, unless its key is one of `kept`.
fn forge(value: &mut Value, kept: &[&str]) {
    match value {
        Value::String(text) => text.push_str(FORGED),
        Value::Array(items) => items.iter_mut().for_each(|item| forge(item, kept)),
        Value::Object(members) => {
            let is_kept =
                |key: &String, value: &Value| kept.contains(&key.as_str()) && (key != "status" || value.is_string());
            let forged = members.iter_mut().filter(|(key, value)| !is_kept(key, value));
            forged.for_each(|(_, value)| forge(value, kept));
        }
        _ => {}
    }
}

/// The answers of a hostile cluster: each text that is not `kept` is forged.
fn forged(kept: &[&str]) -> BTreeMap<String, Value> {
    let mut answers = answers();
    let lease = json!({"metadata": {"annotations": {"daemonlet.dev/cannot-list": "nodes"}},
        "spec": {"holderIdentity": "c", "acquireTime": "t", "renewTime": "t"}});
    answers
        .insert("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/daemonlet-coordinator".to_owned(), lease);
    let sets = answers["/apis/apps/v1/namespaces/kube-system/daemonsets"]["items"].clone();
    for list in ["/apis/apps/v1/daemonsets", "/apis/daemonlet.dev/v1beta1/nodedaemons"] {
        let items = answers.get_mut(list).unwrap()["items"].as_array_mut().unwrap();
        if list.ends_with("daemonsets") {
            items.extend(sets.as_array().unwrap().iter().cloned());
        }
        for item in items {
            item["status"]["agentVersion"] = json!("1");
            let condition =
                |kind: &str| json!({"type": kind, "status": "True", "reason": "Failed", "message": "halted: a"});
            let conditions = ["Halted", "Degraded", "Progressing"].map(condition);
            item["status"]["conditions"].as_array_mut().into_iter().for_each(|all| all.extend(conditions.clone()));
            for daemon in item["status"]["daemons"].as_array_mut().into_iter().flatten() {
                daemon["reason"] = json!("why");
            }
        }
    }
    for answer in answers.values_mut() {
        forge(answer, kept);
    }
    // A halt and overlays are texts with texts in them.
    let halted = json!({"time": FORGED, "cause": FORGED, "nodes": ["n1", FORGED]}).to_string();
    let overlays = json!([{"nodes": {}, "patch": {"metadata": {"annotations": {"a": FORGED}}}},
        {"nodes": {"matchLabels": {"pool": "first"}}, "patch": {"metadata": {"annotations": {format!("a/{FORGED}"): FORGED}}}}]);
    for (path, answer) in &mut answers {
        for item in answer["items"].as_array_mut().into_iter().flatten() {
            if let Some(noted) = item["metadata"]["annotations"].get_mut("daemonlet.dev/halted") {
                *noted = json!(halted);
            }
        }
        if path.contains("/configmaps/") {
            // In YAML's escapes, which any character may have.
            let escaped = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\U{:08x}", u32::from(c)) };
            answer["data"] = json!({"overlays.yaml": overlays.to_string().chars().map(escaped).collect::<String>()});
        }
    }
    answers
}

#[test]
fn nothing_that_a_cluster_holds_forges_a_line_or_a_colour() {
    let matching = [
        "apiVersion",
        "kind",
        "name",
        "namespace",
        "uid",
        "type",
        "status",
        "reason",
        "app",
        "mode",
        "phase",
        "image",
        "daemonlet.dev/mode",
        "daemonlet.dev/steps",
        "daemonlet.dev/step",
        "daemonlet.dev/overlays",
        "resourceVersion",
        "controller-revision-hash",
        "pool",
        "app.kubernetes.io/name",
        "revision",
        "template",
        "data",
    ];
    let missing = || [("/api/v1/nodes/n1".to_owned(), json!({"metadata": {"name": FORGED}}))].into();
    let worlds = [
        ("its texts", forged(&matching), MISSING),
        ("its names", forged(&["kind", "type", "status", "daemonlet.dev/mode"]), MISSING),
        ("its answers", missing(), FORGED),
    ];
    let mut seen = 0;
    for (world, answers, said) in worlds {
        for words in [
            "",
            "explain n1",
            "explain n1 kube-system/dns",
            "diff n1 n2",
            "pause kube-system/net",
            "promote kube-system/net",
            "promote kube-system/dns",
            "abort kube-system/net",
            "retry kube-system/dns",
            "doctor",
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let run = against(&words, answers.clone(), said);
            for text in [run.stdout, run.stderr].map(|text| String::from_utf8(text).unwrap()) {
                let case = format!("{world}: {words:?}: {text}");
                assert!(!text.lines().any(|line| line.trim_start().starts_with("forged")), "{case}");
                let obeyed = |c: char| c != '\n' && c.is_control() || "\u{202e}\u{200b}\u{e0041}\u{2028}".contains(c);
                assert!(!text.contains(obeyed), "{case}");
                seen += usize::from(text.contains("forged"));
            }
        }
    }
    assert!(seen >= 16, "{seen} of the texts have something of it");
}

#[test]
fn a_misspelt_mode_is_reported_with_the_command_that_mends_it() {
    let mut all = answers();
    let mut misspelt = released(&rollouts()[0]);
    (misspelt["metadata"]["name"], misspelt["metadata"]["uid"]) = (json!("spelt"), json!("spelt"));
    misspelt["metadata"]["labels"] = json!({"daemonlet.dev/mode": "statik"});
    all.get_mut("/apis/apps/v1/daemonsets").unwrap()["items"].as_array_mut().unwrap().push(misspelt);
    let output_of = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        String::from_utf8(against(&words, all.clone(), MISSING).stdout).unwrap()
    };
    let mend = "hint: the modes are static and bootstrap: kubectl -n kube-system label --overwrite daemonset spelt \
                daemonlet.dev/mode=static\n";
    let (all_of_it, one) = (output_of(&[]), output_of(&["explain", "n1", "kube-system/spelt"]));
    let named = format!("left alone (unknown mode): 1 DaemonSet of the API: kube-system/spelt\n{mend}");
    assert!(all_of_it.contains(&named), "{all_of_it}");
    let why = "no   mode and policy: label daemonlet.dev/mode is \"statik\", which is neither static nor bootstrap\n";
    assert!(one.contains(why) && one.contains(mend), "{one}");
}

#[test]
fn options_that_mean_nothing_to_a_command_are_refused() {
    let run = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let output = kubectl_daemonlet(&words);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for command in ["pause", "resume", "promote", "abort", "retry"] {
        let (code, stderr) = run(&format!("{command} kube-system/cni -o json"));
        assert!(code == Some(2) && stderr.starts_with("error: --output is for what shows something"), "{stderr}");
        let (code, stderr) = run(&format!("{command} kube-system/cni -n other"));
        let said = "error: kube-system/cni is not in the namespace other, which --namespace says\n";
        assert_eq!((code, stderr.as_str()), (Some(2), said), "{command}");
        assert_eq!(run(&format!("{command} cni")).0, Some(2));
        assert_ne!(run(&format!("{command} -n kube-system cni")).0, Some(2), "as kubectl takes it");
    }
    let refused = "error: invalid value 'No' for '--namespace <NAMESPACE>': \"No\" is no namespace's name: ";
    let (code, stderr) = run("-n No");
    assert!(code == Some(2) && stderr.starts_with(refused), "{stderr}");
    let (code, stderr) = run("doctor -n kube-system");
    assert!(code == Some(2) && stderr.starts_with("error: doctor takes no --namespace"), "{stderr}");
    assert_eq!(run("explain n1 a/b -n c").0, Some(2));
    assert_eq!(run("help"), (Some(0), String::new()));
    assert_eq!(run("help pause"), (Some(0), String::new()));
}

/// A help shows no option that the command refuses.
#[test]
fn a_help_has_what_its_command_takes_and_how_it_ends() {
    let help = |command: &str| {
        String::from_utf8(kubectl_daemonlet(&[command.to_owned(), "--help".to_owned()]).stdout).unwrap()
    };
    for (command, takes_namespace, takes_output) in [
        ("explain", true, true),
        ("diff", true, true),
        ("doctor", false, true),
        ("pause", true, false),
        ("resume", true, false),
        ("promote", true, false),
        ("abort", true, false),
        ("retry", true, false),
    ] {
        let text = help(command);
        let has = ["--namespace", "--output"].map(|option| text.contains(option));
        assert_eq!(has, [takes_namespace, takes_output], "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("Exit code: 0 "), "{text}");
    }
}

#[test]
fn what_is_not_there_is_named_as_it_was_asked_for() {
    let output_of = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let output = kubectl_daemonlet(&words);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (_, out, _) = output_of("-n nope");
    assert!(out.contains("\nno DaemonSet of namespace nope is run by daemonlet\n"), "{out}");
    let (code, out, _) = output_of("explain n1 a/b");
    let hint = "\n       hint: `kubectl daemonlet explain n1` lists what runs there\n";
    assert!(code == 1 && out.ends_with(hint), "{out}");
    for words in ["pause a/b", "promote a/b", "diff n1 n2 a/b"] {
        let (code, _, err) = output_of(words);
        assert_eq!(
            (code, err.as_str()),
            (1, "error: there is no DaemonSet a/b\nhint: see `kubectl get ds -A`\n"),
            "{words}"
        );
    }
}
