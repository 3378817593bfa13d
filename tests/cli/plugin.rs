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

async fn serve(listener: TcpListener, answers: Arc<BTreeMap<String, Value>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let answers = Arc::clone(&answers);
        let answer = service_fn(move |request: Request<Incoming>| {
            let found = answers.get(request.uri().path());
            let code = if found.is_some() { 200 } else { 404 };
            let missing = || json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
            let body = found.cloned().unwrap_or_else(missing).to_string().into_bytes();
            let response = Response::builder().status(code).header("content-type", "application/json");
            std::future::ready(Ok::<_, Infallible>(response.body(Body::from(body)).unwrap()))
        });
        drop(tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer)));
    }
}

/// Runs `kubectl daemonlet` with these words.
pub(crate) fn kubectl_daemonlet(words: &[String]) -> Output {
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
    drop(runtime.spawn(serve(listener, Arc::new(answers()))));
    let run = runtime.spawn_blocking(move || command.output().unwrap());
    runtime.block_on(run).unwrap()
}
