//! `status`, `plan` and `explain` against a socket with prepared answers.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::thread;

use serde_json::Value;
use serde_json::json;

use crate::Run;
use crate::Scratch;
use crate::run;

/// Runs `command` against an agent that gives `reply`; also what it was asked.
fn ask(command: &[&str], reply: &str) -> (Run, Value) {
    let (ran, mut asked) = converse(command, &[reply]);
    (ran, asked.remove(0))
}

/// Runs `command` against an agent that gives these replies, one a connection; also what it was asked.
fn converse(command: &[&str], replies: &[&str]) -> (Run, Vec<Value>) {
    let scratch = Scratch::new(&[]);
    scratch.write(
        "c.toml",
        &format!("manifest-dir = \"/m\"\nruntime-endpoint = \"\"\nrun-dir = \"{}\"\n", scratch.text("")),
    );
    let listener = UnixListener::bind(scratch.path("agent.sock")).unwrap();
    let replies: Vec<String> = replies.iter().map(|reply| format!("{reply}\n")).collect();
    let agent = thread::spawn(move || {
        let answer = |reply: &String| {
            let (stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            (&stream).write_all(reply.as_bytes()).unwrap();
            serde_json::from_str(&request).unwrap()
        };
        replies.iter().map(answer).collect()
    });
    let mut arguments = command.to_vec();
    let config = scratch.text("c.toml");
    arguments.extend(["--config", &config]);
    (run(arguments), agent.join().unwrap())
}

#[test]
fn approve_sends_the_revision_that_waits_and_a_deadline() {
    let mut waits = daemon("running");
    waits["awaitsApprove"] = json!("r2");
    let explained =
        json!({"schemaVersion": 1, "node": "n1", "agentRunning": true, "terms": [], "status": waits}).to_string();
    let approved =
        json!({"schemaVersion": 1, "node": "n1", "revision": "r2", "changes": [], "reason": "why"}).to_string();
    let said = "kube-system/cni: revision r2 is approved on n1\n  why\n";
    let (run, asked) = converse(&["approve", "kube-system/cni"], &[&explained, &approved]);
    run.is(0, said, "");
    assert_eq!(asked[0], json!({"op": "explain", "namespace": "kube-system", "name": "cni"}));
    let (run, named) = ask(&["approve", "kube-system/cni", "--revision", "r2"], &approved);
    run.is(0, said, "");
    for mut request in [asked[1].clone(), named] {
        assert!(request["deadline"].take().as_i64().is_some_and(|deadline| deadline > 9_000), "{request}");
        let order =
            json!({"op": "approve", "namespace": "kube-system", "name": "cni", "revision": "r2", "deadline": null});
        assert_eq!(request, order);
    }
}

/// How often `support-bundle` connects to an agent that takes connections and gives no answer; and what it says.
fn bundle_of_a_silent_agent() -> (Run, usize) {
    let scratch = Scratch::new(&[]);
    let here = scratch.text("");
    scratch.write(
        "c.toml",
        &format!("manifest-dir = \"/m\"\nruntime-endpoint = \"\"\nrun-dir = \"{here}\"\nstate-dir = \"{here}/s\"\n"),
    );
    let listener = UnixListener::bind(scratch.path("agent.sock")).unwrap();
    let agent = thread::spawn(move || {
        let of_the_bundle = |stream: &UnixStream| {
            let mut request = String::new();
            BufReader::new(stream).read_line(&mut request).unwrap();
            request != "end\n"
        };
        listener.incoming().map_while(Result::ok).take_while(of_the_bundle).count()
    });
    let ran = run(["support-bundle", "--list", "--config", &scratch.text("c.toml")]);
    UnixStream::connect(scratch.path("agent.sock")).unwrap().write_all(b"end\n").unwrap();
    (ran, agent.join().unwrap())
}

#[test]
fn a_bundle_asks_an_agent_that_does_not_answer_once() {
    let (ran, asked) = bundle_of_a_silent_agent();
    assert_eq!((ran.code, asked), (0, 1), "{ran:?}");
    let only = "recording.cbor (only the agent has it, and it could not be asked for its status either)";
    assert!(ran.err.contains(only), "{}", ran.err);
    assert!(ran.err.contains("agent.sock: the agent cannot be asked: it closed the connection; hint: "), "{}", ran.err);
    assert!(ran.out.contains("  doctor.json\n") && ran.out.contains("  config.toml\n"), "{}", ran.out);
}

fn daemon(state: &str) -> Value {
    json!({
        "namespace": "kube-system", "name": "cni", "source": "api", "mode": "static", "revision": "5d8c7",
        "pod": "cni-7x2kp", "uid": "u", "state": state, "ready": true, "since": "2026-11-21T09:00:00Z",
        "reason": "", "waitingFor": [], "notes": [], "hints": [],
    })
}

fn status(state: &str) -> String {
    json!({
        "schemaVersion": 1, "node": "n1",
        "agent": {"running": true, "since": null, "version": "0.1.0", "api": "connected", "apiSince": null,
            "apiUse": null, "passes": {"count": 1, "lastMicros": 1}},
        "daemons": [daemon(state)], "problems": [],
    })
    .to_string()
}

#[test]
fn status_is_a_table_or_json_and_ends_with_1_when_something_is_wrong() {
    let (run, request) = ask(&["status"], &status("running"));
    assert_eq!(request, json!({"op": "status"}));
    run.is(
        0,
        "DAEMONSET        SOURCE  REVISION  POD        STATE    READY  SINCE                 REASON\n\
         kube-system/cni  API     5d8c7     cni-7x2kp  running  yes    2026-11-21T09:00:00Z\n",
        "",
    );
    let (run, _) = ask(&["status", "--json"], &status("failing"));
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    assert_eq!(run.json(), serde_json::from_str::<Value>(&status("failing")).unwrap());
    assert_eq!(ask(&["status", "-o", "json"], &status("failing")).0.json(), run.json(), "as kubectl takes it");
}

#[test]
fn plan_ends_with_4_when_changes_are_pending() {
    let plan = |changes: Value| {
        json!({"schemaVersion": 1, "node": "n1", "agentRunning": true, "changes": changes}).to_string()
    };
    let (run, request) = ask(&["plan"], &plan(json!([])));
    assert_eq!(request, json!({"op": "plan"}));
    run.is(0, "nothing to do\n", "");
    assert_eq!(ask(&["plan", "-o", "json"], &plan(json!([]))).0.json()["agentRunning"], true);
    let change = json!([{"namespace": "a", "name": "b", "action": "write manifest a-b.yaml", "reason": "it is new"}]);
    ask(&["plan"], &plan(change)).0.is(4, "a/b: write manifest a-b.yaml (it is new)\n", "");
}

#[test]
fn explain_shows_terms_and_ends_with_1_for_an_unknown_name() {
    let explain = |status: Value| {
        let terms = json!([{"subject": "taint", "holds": true, "text": "a:NoSchedule, tolerated by Exists"}]);
        json!({"schemaVersion": 1, "node": "n1", "agentRunning": true, "terms": terms, "status": status}).to_string()
    };
    let (run, request) = ask(&["explain", "kube-system/cni"], &explain(daemon("running")));
    assert_eq!(request, json!({"op": "explain", "namespace": "kube-system", "name": "cni"}));
    run.is(0, "kube-system/cni on n1: running\n  yes  taint: a:NoSchedule, tolerated by Exists\n", "");
    let (run, _) = ask(&["explain", "a/b"], &explain(json!(null)));
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("a/b on n1: unknown: no such DaemonSet has been seen\n"), "{}", run.out);
}

#[test]
fn an_agent_that_cannot_answer_is_quoted() {
    ask(&["plan"], "{\"error\": \"the agent is stopping\"}").0.is(1, "", "error: the agent is stopping\n");
    let (run, _) = ask(&["status"], "{\"schemaVersion\": 1}");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("agent.sock: the agent's answer is not understood: missing field `"), "{}", run.err);
    assert!(
        run.err.contains("\nhint: the agent may be of another version than this program; restart it: "),
        "{}",
        run.err
    );
}
