use crate::core::time::at;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::*;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::policy::PodRules;
use crate::core::record::Cause;
use crate::core::render::Missing;
use crate::core::status::AgentStatus;
use crate::core::status::ApiLink;
use crate::core::status::ApiUse;
use crate::core::status::DaemonStatus;
use crate::core::status::FailedStatus;
use crate::core::status::IdentityStatus;
use crate::core::status::LeftAlone;
use crate::core::status::LeftAloneCause;
use crate::core::status::Passes;
use crate::core::status::StaleVolume;
use crate::core::status::State;
use crate::core::status::StatusReport;

#[test]
fn the_table_has_each_metric_once_under_a_name_that_tells_its_unit() {
    let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len());
    for (at, metric) in METRICS.iter().enumerate() {
        assert_eq!(metric.id as usize, at, "{} stands where its Id does", metric.name);
        assert!(metric.name.starts_with("daemonlet_") || metric.name.starts_with("process_"), "{}", metric.name);
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Type::Counter, "{}", metric.name);
        assert_eq!(metric.name.contains("_seconds"), metric.unit.starts_with("seconds"), "{}", metric.name);
        assert_eq!(
            metric.name.contains("_timestamp_") || metric.name.contains("start_time"),
            metric.unit.contains("1970")
        );
        assert!(metric.help.ends_with('.') && !metric.help.contains(['|', '\n']), "{}", metric.help);
    }
}

#[test]
fn samples_are_written_by_family_in_the_order_of_the_table() {
    let mut exposition = Exposition::default();
    exposition.sample(Id::Daemons, &["running"], 3.0);
    exposition.value(Id::Passes, 7.0);
    exposition.sample(Id::Daemons, &["a \"b\"\\\n"], 0.5);
    exposition.histogram(Id::PassDuration, &[0.5, 1.0], &[2, 0, 1], 9.25);
    assert_eq!(
        exposition.text(),
        "# HELP daemonlet_passes_total Passes over all daemons since the start.\n\
         # TYPE daemonlet_passes_total counter\n\
         daemonlet_passes_total 7\n\
         # HELP daemonlet_pass_duration_seconds How long passes took.\n\
         # TYPE daemonlet_pass_duration_seconds histogram\n\
         daemonlet_pass_duration_seconds_bucket{le=\"0.5\"} 2\n\
         daemonlet_pass_duration_seconds_bucket{le=\"1\"} 2\n\
         daemonlet_pass_duration_seconds_bucket{le=\"+Inf\"} 3\n\
         daemonlet_pass_duration_seconds_sum 9.25\n\
         daemonlet_pass_duration_seconds_count 3\n\
         # HELP daemonlet_daemons Daemons of this node in each state.\n\
         # TYPE daemonlet_daemons gauge\n\
         daemonlet_daemons{state=\"running\"} 3\n\
         daemonlet_daemons{state=\"a \\\"b\\\"\\\\\\n\"} 0.5\n"
    );
}

fn daemon(name: &str, state: State, reason: &str) -> DaemonStatus {
    DaemonStatus {
        mode: Some(Mode::Static),
        revision: "5d8c7".into(),
        pod: if state == State::Running { "p".into() } else { String::new() },
        ready: Some(true),
        ..DaemonStatus::bare(&ObjectKey::new("kube-system", name), Some(Source::Api), state, reason)
    }
}

fn refused(name: &str, field: &str) -> DaemonStatus {
    DaemonStatus { refused_field: Some(field.into()), ..daemon(name, State::Refused, "no") }
}

#[test]
fn every_metric_is_taken_from_the_facts() {
    let mut failed = daemon("a", State::Running, "");
    failed.failed = Some(FailedStatus {
        revision: "8b4d".into(),
        cause: Cause::CrashLoop,
        message: String::new(),
        since: String::new(),
    });
    let [volume, pod, since, reason] = ["config", "a-1", "", ""].map(str::to_owned);
    failed.stale_volumes = vec![StaleVolume { pod, volume, since, missing: Vec::new(), reason }];
    let mut awaited = daemon("w", State::Waiting, "");
    awaited.keeps_workload_away = true;
    awaited.awaits_rollout = true;
    awaited.waiting_for = vec![Missing::daemon(&ObjectKey::new("kube-system", "a"))];
    let status = StatusReport {
        schema_version: 1,
        node: "n1".into(),
        kubelet_version: None,
        agent: AgentStatus {
            running: true,
            since: None,
            version: "0.1.0".into(),
            api: ApiLink::Connected,
            api_since: None,
            tokens: None,
            identity: Some(IdentityStatus {
                user: "daemonlet:node:n1".into(),
                expires: "1970-01-01T00:01:10Z".into(),
                renewal_due: "1970-01-01T00:00:50Z".into(),
                renewal: String::new(),
            }),
            api_use: Some(ApiUse { connections_opened: 3, connections: 1, requests: 9, streams: 5 }),
            passes: Passes::default(),
        },
        daemons: vec![
            failed,
            awaited,
            refused("b", "spec.template.spec.volumes[0].persistentVolumeClaim"),
            refused("c", "spec.template.spec.volumes[7].persistentVolumeClaim"),
            DaemonStatus { namespace: "tenant".into(), ..refused("d", "spec") },
            DaemonStatus { namespace: "tenant".into(), ..daemon("e", State::Running, "") },
        ],
        problems: Vec::new(),
        notes: Vec::new(),
        refused: Vec::new(),
        left_alone: vec![LeftAlone {
            cause: LeftAloneCause::ModeLabelled,
            count: 7,
            daemon_sets: Vec::new(),
            hint: String::new(),
        }],
    };
    let mut counts = AgentCounters { starts: 1, ends: 2, refreshes: 3, failures: 4, ..AgentCounters::default() };
    [0.002, 0.003, 9.0].into_iter().for_each(|seconds| counts.passed(seconds));
    let token = |expires, failing| TokenFact { namespace: "kube-system".into(), name: "cni".into(), expires, failing };
    let facts = MetricFacts {
        status: &status,
        rules: &PodRules::default(),
        started: at(1_500),
        last_pass: Some(at(2_250)),
        counts: &counts,
        pulls: 2,
        connected: Some(false),
        watches: &[WatchFact { name: "node".into(), up: false, lists: Some(6) }],
        tokens: &[token(Some(at(90_000)), false), token(Some(at(80_000)), true), token(None, true)],
        approvals: Approvals { approved: 1, claimed: 2, withheld: 3 },
        process: Some(ProcessFact { cpu_seconds: 0.25, resident_bytes: 4096, fds: 12 }),
    };
    let text = exposition(&facts);
    let of_coordinator = coordinator(&coordinator_facts(), facts.process);
    let text = text + &of_coordinator;
    for metric in METRICS {
        assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{}: {text}", metric.name);
    }
    for line in [
        "daemonlet_build_info{version=\"0.1.0\",node=\"n1\"} 1",
        "daemonlet_passes_total{node=\"n1\"} 3",
        "daemonlet_pass_duration_seconds_bucket{node=\"n1\",le=\"0.0025\"} 1",
        "daemonlet_pass_duration_seconds_bucket{node=\"n1\",le=\"5\"} 2",
        "daemonlet_pass_duration_seconds_bucket{node=\"n1\",le=\"+Inf\"} 3",
        "daemonlet_last_pass_timestamp_seconds{node=\"n1\"} 2.25",
        "daemonlet_daemons{state=\"refused\",node=\"n1\"} 3",
        "daemonlet_daemon_state{namespace=\"tenant\",daemonset=\"e\",state=\"running\",revision=\"5d8c7\",node=\"n1\"} 1",
        "daemonlet_refused_daemons{reason=\"spec\",node=\"n1\"} 1",
        "daemonlet_daemons{state=\"failing\",node=\"n1\"} 0",
        "daemonlet_daemons{state=\"left_alone\",node=\"n1\"} 7",
        "daemonlet_daemons{state=\"standing_by\",node=\"n1\"} 0",
        "daemonlet_daemon_state{namespace=\"kube-system\",daemonset=\"a\",state=\"running\",revision=\"5d8c7\",node=\"n1\"} 1",
        "daemonlet_refused_daemons{reason=\"spec.template.spec.volumes.persistentVolumeClaim\",node=\"n1\"} 2",
        "daemonlet_failed_revision{namespace=\"kube-system\",daemonset=\"a\",revision=\"8b4d\",cause=\"crash_loop\",node=\"n1\"} 1",
        "daemonlet_start_order_waiting{namespace=\"kube-system\",daemonset=\"w\",node=\"n1\"} 1",
        "daemonlet_rollout_waiting{namespace=\"kube-system\",daemonset=\"w\",node=\"n1\"} 1",
        "daemonlet_startup_taint_awaited{namespace=\"kube-system\",daemonset=\"w\",node=\"n1\"} 1",
        "daemonlet_volume_refresh_blocked{namespace=\"kube-system\",daemonset=\"a\",pod=\"a-1\",volume=\"config\",node=\"n1\"} 1",
        "daemonlet_api_connected{node=\"n1\"} 0",
        "daemonlet_api_watch_up{watch=\"node\",node=\"n1\"} 0",
        "daemonlet_token_expiry_timestamp_seconds{namespace=\"kube-system\",serviceaccount=\"cni\",node=\"n1\"} 80",
        "daemonlet_token_problems{namespace=\"kube-system\",serviceaccount=\"cni\",node=\"n1\"} 2",
        "daemonlet_certificate_expiry_timestamp_seconds{node=\"n1\"} 70",
        "daemonlet_daemons{state=\"not_accepted\",node=\"n1\"} 0",
        "daemonlet_approvals{state=\"withheld\",node=\"n1\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let is_of_no_node = |line: &&str| !line.starts_with('#') && !line.contains("node=\"n1\"");
    assert_eq!(exposition(&facts).lines().find(is_of_no_node), None);
    assert_eq!(text.matches("daemonlet_daemon_ready{").count(), 2, "only what has a pod is ready or not");
    assert!(!text.contains("daemonset=\"d\""), "a tenant's that has no pod is counted, not named");
    let alone = exposition(&MetricFacts { connected: None, last_pass: None, process: None, ..facts });
    assert!(!alone.contains("daemonlet_api_") && !alone.contains("process_cpu"), "{alone}");
}

fn coordinator_facts() -> CoordinatorFacts {
    let text = || "t".to_owned();
    let condition =
        DaemonSetCondition { namespace: text(), name: text(), condition: text(), status: text(), reason: text() };
    CoordinatorFacts {
        watches: vec![CoordinatorWatch { name: text(), is_up: true, last_event: Some(at(1_000)) }],
        writes: BTreeMap::from([("written", 7)]),
        nodes: BTreeMap::from([("reports", 3)]),
        conditions: vec![condition],
        certificate_end: Some(at(9_000)),
        ..CoordinatorFacts::default()
    }
}

#[test]
fn refusals_are_counted_by_field_and_not_by_daemon() {
    for (field, label) in [
        ("spec.template.spec.volumes[0].persistentVolumeClaim", "spec.template.spec.volumes.persistentVolumeClaim"),
        ("spec.template.spec.containers[name=a].env[3]", "spec.template.spec.containers.env"),
        ("policy.namespaces", "policy.namespaces"),
        ("the file a", "other"),
        ("", "other"),
    ] {
        assert_eq!(refusal(field), label, "{field}");
    }
}

#[test]
fn help_of_a_process_is_that_of_client_golang() {
    // prometheus/process_collector.go of client_golang 1.23
    for (name, help) in [
        ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
        ("process_open_fds", "Number of open file descriptors."),
        ("process_resident_memory_bytes", "Resident memory size in bytes."),
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
    ] {
        assert_eq!(METRICS.iter().find(|metric| metric.name == name).map(|metric| metric.help), Some(help));
    }
}

/// Each alert with its severity, how long it stands before it fires, and what it says, as a table in Markdown.
fn alerts() -> String {
    let rules = include_str!("../../../packaging/monitoring/rules.yaml");
    let rules = crate::core::yaml::read_documents(rules)[0].value.clone().unwrap();
    let mut text = String::from("| alert | severity | after | what it says |\n| --- | --- | --- | --- |\n");
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let word = |pointer: &str| rule.pointer(pointer).and_then(|word| word.as_str()).unwrap_or_default();
        let summary = word("/annotations/summary").replace("{{ $labels.", "*").replace("{{ $", "*").replace(" }}", "*");
        let (alert, severity) = (word("/alert"), word("/labels/severity"));
        let says = summary.replace(" | humanizeDuration", "");
        let after = if word("/for").is_empty() { "at once" } else { word("/for") };
        text.push_str(&format!("| `{alert}` | {severity} | {after} | {says} |\n"));
    }
    text
}

#[test]
fn the_page_is_made_from_the_table_and_the_rules() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let (by_hand, _) = written.split_once("## Metrics\n").unwrap();
    let text = format!(
        "{by_hand}## Metrics\n\nThe rest of this page is made from the program and its rules.\n\n\
         * `daemonlet_coordinator_…` and `daemonlet_daemonset_condition` are the coordinator's, `process_…` is of both, and \
         the rest is the agent's.\n\
         * Each metric of the agent has the label `node`, too; so `process_…` with it is the agent's, without it the coordinator's.\n  \
         The coordinator need not run on a node of its cluster: the label `instance`, which Prometheus adds, tells which one it is.\n\
         * `watch` is a kind of objects, such as `nodes`. `state` and `cause` are words of [JSON](json.md#words), in snake_case.\n\
         * For an alert, ask `daemonlet_daemon_state`: a series that is missing may be a daemon without a pod.\n\n{}\n\
         ## Alerts\n\nThe alerts of `/usr/share/daemonlet/monitoring/rules.yaml`. The [runbook](runbook.md) has a section for each,\n\
         and says what has to be so. The alert fires when that has been so for the time *after*.\n\
         A word in *italics* is a label of the alert, or its value.\n\n{}",
        table(),
        alerts()
    );
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, text, "run UPDATE_GENERATED=1 cargo test --lib metrics to write it anew");
}

#[test]
fn dashboards_and_rules_name_only_metrics_that_exist() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring");
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let mut named = BTreeSet::new();
    for file in ["dashboard.json", "dashboard-node.json", "rules.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let metrics = words.filter(|word| word.starts_with("daemonlet_") || word.starts_with("process_"));
        named.extend(metrics.map(|word| word.trim_end_matches("_bucket").to_owned()));
    }
    assert!(named.len() > 20, "{named:?}");
    let unknown: Vec<&String> = named.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let unused: Vec<&&str> = known.iter().filter(|name| !named.contains(**name)).collect();
    assert_eq!(unused, [&"process_start_time_seconds"], "no dashboard and no alert has these");
}
