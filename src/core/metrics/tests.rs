use std::collections::BTreeSet;

use super::*;

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

#[test]
fn refusals_are_told_apart_by_field_and_not_by_daemon() {
    for (reason, label) in [
        (
            "spec.template.spec.volumes[0].persistentVolumeClaim: a static pod cannot",
            "spec.template.spec.volumes.persistentVolumeClaim",
        ),
        ("spec.template.spec.containers[name=a].env[3]: no", "spec.template.spec.containers.env"),
        ("policy.namespaces: not allowed", "policy.namespaces"),
        ("the file a: b", "other"),
        ("no colon", "other"),
        (": x", "other"),
        ("", "other"),
    ] {
        assert_eq!(refusal(reason), label, "{reason}");
    }
}

#[test]
fn the_document_is_made_from_the_table() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring/METRICS.md");
    let text = format!(
        "# What the agent tells Prometheus\n\n`[metrics] listen` says where; `/healthz` is beside it. Each metric is written \
         by every agent, except where its meaning says\notherwise.\n\n{}",
        table()
    );
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, text, "run UPDATE_GENERATED=1 cargo test --lib metrics to write it anew");
}
