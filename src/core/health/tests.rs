use crate::core::time::at;
use serde_json::Value;
use serde_json::json;

use crate::core::record::Cause;
use crate::core::record::Failure;

use super::*;

fn template() -> Value {
    json!({"spec": {
        "initContainers": [{"name": "setup"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}, {"name": "helper"}]
    }})
}

fn container(name: &str, restarts: u32, does: Does, made: Timestamp) -> ContainerFact {
    ContainerFact { name: name.to_owned(), restarts, does, made }
}

fn pod(ready: bool, containers: Vec<ContainerFact>) -> PodFact {
    PodFact { sandboxes: vec![SandboxFact { ready, made: at(100) }], containers }
}

fn status(ready: bool, status: Value) -> Value {
    let mut pod = json!({"status": status});
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    pod
}

fn cause(failure: Option<Failure>) -> Option<Cause> {
    failure.map(|f| f.cause)
}

#[test]
fn steady_is_every_container_that_stays_in_its_latest_attempt() {
    let all = vec![
        container("setup", 0, Does::Ended, at(100)),
        container("side", 0, Does::Runs, at(110)),
        container("main", 0, Does::Ended, at(120)),
        container("main", 1, Does::Runs, at(150)),
        container("helper", 0, Does::Runs, at(130)),
    ];
    assert_eq!(steady_since(&template(), &pod(true, all.clone())), Some(at(150)));
    assert_eq!(steady_since(&template(), &pod(true, all[..4].to_vec())), None, "one has not been made");
    let mut ended = all;
    ended.push(container("side", 1, Does::Ended, at(170)));
    assert_eq!(steady_since(&template(), &pod(true, ended)), None);
}

#[test]
fn a_crash_loop_is_a_container_that_ended_again() {
    let crash = |containers| by_runtime(&template(), &pod(true, containers), at(100), None);
    assert_eq!(crash(vec![container("main", 0, Does::Ended, at(120))]), None, "once is no loop");
    assert_eq!(crash(vec![container("main", 3, Does::Ended, at(99))]), None, "it is of another boot");
    assert_eq!(
        crash(vec![container("main", 2, Does::Ended, at(120)), container("main", 3, Does::Runs, at(130))]),
        None
    );
    assert_eq!(cause(crash(vec![container("main", 1, Does::Ended, at(120))])), Some(Cause::CrashLoop));
    assert_eq!(cause(crash(vec![container("setup", 1, Does::Ended, at(120))])), Some(Cause::CrashLoop));
    let done = vec![container("setup", 1, Does::Ended, at(120)), container("main", 0, Does::Runs, at(130))];
    assert_eq!(crash(done), None, "an init container that another follows is done");
    let side = vec![container("side", 1, Does::Ended, at(120)), container("main", 0, Does::Runs, at(130))];
    assert_eq!(cause(crash(side)), Some(Cause::CrashLoop));
}

#[test]
fn a_sandbox_of_this_try_that_does_not_stand_is_a_failure() {
    let fails = |pod: &PodFact, since| cause(by_runtime(&template(), pod, since, None));
    assert_eq!(fails(&pod(false, Vec::new()), at(100)), Some(Cause::Sandbox));
    assert_eq!(fails(&pod(false, Vec::new()), at(101)), None, "it is of another boot");
    assert_eq!(fails(&pod(true, Vec::new()), at(100)), None);
    assert_eq!(fails(&PodFact::default(), at(0)), None, "no kubelet may be at work");
}

#[test]
fn a_crash_diagnosis_is_of_the_container_that_it_was_made_of() {
    let loops = pod(true, vec![container("main", 1, Does::Ended, at(120))]);
    let crash_diagnosis = CrashDiagnosis {
        container: "main".into(),
        exit_code: Some(1),
        reason: "Error".into(),
        message: String::new(),
        last_line: "no such file".into(),
    };
    let words = |a: &CrashDiagnosis| by_runtime(&template(), &loops, at(0), Some(a)).unwrap().message;
    assert_eq!(words(&crash_diagnosis), "container main ends with exit code 1, its last line: no such file");
    assert_eq!(
        words(&CrashDiagnosis { container: "other".into(), ..crash_diagnosis.clone() }),
        "container main ends again and again"
    );
    let killed = CrashDiagnosis {
        exit_code: Some(137),
        reason: "OOMKilled".into(),
        last_line: String::new(),
        ..crash_diagnosis
    };
    assert_eq!(words(&killed), "container main ends with exit code 137 (OOMKilled)");
}

#[test]
fn the_kubelet_names_the_cause() {
    let one = |s: Value| status(false, json!({"phase": "Pending", "containerStatuses": [s]}));
    let waits =
        |reason: &str| one(json!({"name": "main", "state": {"waiting": {"reason": reason, "message": "words"}}}));
    for (reason, expected) in [
        ("ErrImagePull", Some(Cause::Image)),
        ("ImagePullBackOff", Some(Cause::Image)),
        ("InvalidImageName", Some(Cause::Image)),
        ("CrashLoopBackOff", Some(Cause::CrashLoop)),
        ("RunContainerError", Some(Cause::CrashLoop)),
        ("CreateContainerConfigError", Some(Cause::Container)),
        ("ContainerCreating", None),
    ] {
        assert_eq!(cause(by_status(&waits(reason), None)), expected, "{reason}");
    }
    assert_eq!(by_status(&waits("ErrImagePull"), None).unwrap().message, "main: ErrImagePull: words");
    assert_eq!(by_status(&json!({}), None), None);
    assert_eq!(by_status(&status(true, json!({})), None), None);
}

#[test]
fn a_container_that_runs_between_two_crashes_is_in_a_crash_loop() {
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    let main = json!({"name": "main", "restartCount": 2, "ready": false, "state": {"running": {}}, "lastState": ended});
    let pod = status(false, json!({"phase": "Running", "containerStatuses": [main]}));
    assert_eq!(by_status(&pod, None).unwrap().message, "container main ends with exit code 3");
    assert_eq!(crashing(&pod), Some(("main", 2)));
    let crash_diagnosis =
        CrashDiagnosis { container: "main".into(), last_line: "oh no".into(), ..CrashDiagnosis::default() };
    let words = by_status(&pod, Some(&crash_diagnosis)).unwrap().message;
    assert_eq!(words, "container main ends with exit code 3, its last line: oh no");
    let done = json!({"name": "setup", "restartCount": 1, "ready": true, "state": {"terminated": {"exitCode": 0}},
        "lastState": {"terminated": {"exitCode": 1}}});
    assert_eq!(crashing(&status(false, json!({"initContainerStatuses": [done]}))), None);
}

#[test]
fn a_probe_is_named_only_for_containers_that_run() {
    let main = |ready: bool, started: bool, state: Value| {
        let main = json!({"name": "main", "ready": ready, "started": started, "restartCount": 0, "state": state});
        status(false, json!({"phase": "Running", "containerStatuses": [main]}))
    };
    let words = by_status(&main(false, true, json!({"running": {}})), None).unwrap();
    assert_eq!((words.cause, words.message.as_str()), (Cause::Probe, "the readiness probe of container main fails"));
    let words = by_status(&main(false, false, json!({"running": {}})), None).unwrap();
    assert_eq!(words.message, "the startup probe of container main fails");
    assert_eq!(cause(by_status(&main(true, true, json!({"running": {}})), None)), Some(Cause::Container));
    assert_eq!(by_status(&main(false, false, json!({})), None), None);
}

#[test]
fn what_comes_before_the_containers_has_a_name_too() {
    let mut pod = status(
        false,
        json!({"phase": "Pending", "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
    );
    assert_eq!(by_status(&pod, None), None);
    let condition = json!({"type": "PodReadyToStartContainers", "status": "False"});
    pod["status"]["conditions"].as_array_mut().unwrap().push(condition);
    assert_eq!(cause(by_status(&pod, None)), Some(Cause::Sandbox));
    let init = json!({"name": "setup", "state": {"running": {}}, "ready": false, "started": false});
    let waits = json!({"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}});
    let pod = status(false, json!({"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [waits]}));
    assert_eq!(by_status(&pod, None).unwrap().message, "init container setup has not ended");
}

#[test]
fn the_last_line_of_a_log_is_the_last_that_says_something() {
    let log = |text: &str| last_line(text.as_bytes());
    let at = "2026-01-01T00:00:00.1Z";
    assert_eq!(
        log(&format!("{at} stdout F one\n{at} stderr F two words\n{at} stdout F \n")).as_deref(),
        Some("two words")
    );
    assert_eq!(log(&format!("{at} stdout F one\n{at} stderr P tw\n{at} stderr F o\n")).as_deref(), Some("two"));
    assert_eq!(log(&format!("ut off F x\n{at} stdout F ok")).as_deref(), Some("ok"));
    assert_eq!(log(&format!("{at} stdout F a\u{1b}[31m\tb")).as_deref(), Some("a [31m b"));
    assert_eq!(last_line(b"\xff\xfe\x00 garbage without end"), None);
    assert_eq!(last_line(b""), None);
    let long = log(&format!("{at} stdout F {}", "é".repeat(1_000))).unwrap();
    assert_eq!(long.chars().count(), LONGEST_LINE + 1);
}

#[test]
fn where_the_containers_are_ready_and_the_kubelet_gives_no_message_the_node_is_the_cause() {
    let pod = |containers_ready: &str, message: &str| {
        let ready = json!({"type": "Ready", "status": "False", "message": message});
        let containers = json!({"type": "ContainersReady", "status": containers_ready});
        why_not_ready(&json!({"status": {"phase": "Running", "conditions": [ready, containers]}}))
    };
    assert_eq!(pod("True", ""), "its containers are ready, the node is not Ready");
    assert_eq!(pod("False", ""), "phase Running, not ready yet");
    assert_eq!(pod("True", "a readiness gate is not met"), "a readiness gate is not met");
}
