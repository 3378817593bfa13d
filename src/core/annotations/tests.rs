use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::model::Source;
use crate::core::validate;

fn said(labels: Value, annotations: Value, of_template: Value) -> Vec<String> {
    let value = json!({
        "metadata": {"name": "a", "labels": labels, "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": of_template},
                "spec": {"containers": [{"name": "a", "image": "a"}]},
            },
        },
    });
    let daemon_set = validate::daemon_set(&value, Source::Api).expect("it is valid");
    unknown_fields(&daemon_set)
        .iter()
        .map(|error| format!("{error} ({})", error.hint.as_deref().unwrap_or("-")))
        .collect()
}

#[test]
fn what_is_understood_is_not_mentioned() {
    let annotations = json!({
        "daemonlet.dev/progress-deadline": "1m30s", "daemonlet.dev/rollback": "off", "daemonlet.dev/restart-on": "config",
        "daemonlet.dev/paused": "true", "daemonlet.dev/partition": "50%", "daemonlet.dev/canary": "a in (b)",
        "daemonlet.dev/canary-hold": "0", "daemonlet.dev/max-failed": "0", "other.dev/progres-deadline": "x",
        "daemonlet.dev/override": "true",
    });
    let labels = json!({"daemonlet.dev/mode": "bootstrap", "other.dev/mode": "x"});
    assert_eq!(said(labels, annotations, json!({"other": "x"})), Vec::<String>::new());
}

#[test]
fn names_are_corrected_and_values_explained() {
    let table = [
        (
            "progres-deadline",
            "1m",
            "unknown annotation; nothing is rolled out (did you mean daemonlet.dev/progress-deadline?)",
        ),
        ("Rollback", "auto", "unknown annotation; nothing is rolled out (did you mean daemonlet.dev/rollback?)"),
        ("mode", "static", "it is a label, and is ignored here (write it into the DaemonSet's metadata.labels)"),
        (
            "progress-deadline",
            "0s",
            "\"0s\" is not a Go duration above 0, such as 10m; 10m is used, and nothing is rolled out (write a Go duration above 0, such as 10m)",
        ),
        ("rollback", "yes", "\"yes\" is not auto or off; off is used, and nothing is rolled out (write auto or off)"),
        ("restart-on", "Config", "\"Config\" is not config; changed data restarts nothing (write config)"),
        ("override", "yes", "\"yes\" is not true; what the API server last said counts before a folder's (write true)"),
        ("paused", "yes", "\"yes\" is not true or false; it is paused (write true or false)"),
        (
            "partition",
            "101%",
            "\"101%\" is not a number of nodes or a percentage up to 100%; nothing is rolled out \
             (write a number of nodes or a percentage up to 100%)",
        ),
        (
            "canary",
            "a in b",
            "\"a in b\" is not a label selector of at most 32 requirements and 4096 bytes; nothing is rolled out (write a \
             label selector of at most 32 requirements and 4096 bytes)",
        ),
        (
            "canary-hold",
            "10",
            "\"10\" is not a Go duration, such as 10m; nothing is rolled out (write a Go duration, such as 10m)",
        ),
        (
            "steps",
            "1, 1d; 5%",
            "\"1d\" is no Go duration, which has hours (h), minutes (m) and seconds (s); nothing is rolled out (write steps that \
             grow, such as 1, 10m; 5%, 30m; 100%)",
        ),
        (
            "steps",
            "1, 1m; many",
            "\"many\" is neither a number of nodes nor a percentage up to 100%; nothing is rolled out (write steps that grow, \
             such as 1, 10m; 5%, 30m; 100%)",
        ),
        (
            "steps",
            "5; 1",
            "\"5; 1\" is not steps that grow, such as 1, 10m; 5%, 30m; 100%; nothing is rolled out (write steps that grow, such \
             as 1, 10m; 5%, 30m; 100%)",
        ),
        (
            "max-failed",
            "-1",
            "\"-1\" is not a number of nodes or a percentage up to 100%; nothing is rolled out (write a number of nodes or a percentage up to 100%)",
        ),
    ];
    for (name, value, expected) in table {
        let name = format!("daemonlet.dev/{name}");
        let annotations = json!({name.as_str(): value});
        assert_eq!(said(json!({}), annotations, json!({})), [format!("metadata.annotations[{name}]: {expected}")]);
    }
    let far = said(json!({}), json!({"daemonlet.dev/zzz": "x"}), json!({}));
    assert!(far[0].contains("known names: daemonlet.dev/progress-deadline, "), "{far:?}");
}

#[test]
fn of_many_or_long_ones_a_few_words_are_said() {
    let many: serde_json::Map<String, Value> = (0..8_000).map(|n| (format!("{OURS}x{n:05}"), json!(""))).collect();
    let of_many = said(json!({}), Value::Object(many), json!({}));
    assert_eq!(of_many.len(), MOST_REPORTED + 1);
    assert!(of_many[MOST_REPORTED].contains("has more annotations and labels"), "{}", of_many[MOST_REPORTED]);
    let long = "y".repeat(8_000);
    let named: serde_json::Map<String, Value> =
        KNOWN.iter().map(|(name, ..)| ((*name).to_owned(), json!(long))).collect();
    let of_long = said(json!({}), Value::Object(named), json!({}));
    assert!(of_long.iter().map(String::len).sum::<usize>() < 32 << 10, "{of_long:?}");
    let list = format!("{long};{long}");
    let of_list = said(json!({}), json!({"daemonlet.dev/after": list}), json!({}));
    assert!(of_list[0].len() < 2_000, "{}", of_list[0].len());
}

#[test]
fn labels_and_places() {
    for (name, value, expected) in [
        ("mode", "Static", "\"Static\" is neither static nor bootstrap (write one of the two)"),
        ("moed", "static", "unknown label, ignored (did you mean daemonlet.dev/mode?)"),
        (
            "paused",
            "true",
            "it is an annotation, and is ignored here (write it into the DaemonSet's metadata.annotations)",
        ),
    ] {
        let name = format!("daemonlet.dev/{name}");
        let labels = json!({name.as_str(): value});
        assert_eq!(said(labels, json!({}), json!({})), [format!("metadata.labels[{name}]: {expected}")]);
    }
    let deep = said(json!({}), json!({}), json!({"daemonlet.dev/rollback": "auto"}));
    assert_eq!(
        deep,
        ["spec.template.metadata.annotations[daemonlet.dev/rollback]: it is ignored on the pod template \
          (write it into the DaemonSet's own metadata.annotations)"]
    );
}

#[test]
fn what_has_no_effect_or_less_than_expected_is_reported() {
    let problems_of = |annotations: Value| said(json!({}), annotations, json!({}));
    for (name, of) in
        [("after-timeout", "after"), ("startup-taint-timeout", "startup-taint"), ("canary-hold", "canary")]
    {
        let [name, of] = [name, of].map(|name| format!("daemonlet.dev/{name}"));
        let words = format!("metadata.annotations[{name}]: it has no effect without {of} (write both, or neither)");
        assert_eq!(problems_of(json!({name.as_str(): "5m"})), [words]);
    }
    let early = json!({"daemonlet.dev/after": "a/b", "daemonlet.dev/startup-taint": "true",
        "daemonlet.dev/startup-taint-timeout": "2m"});
    let problems = problems_of(early);
    assert!(problems.iter().any(|line| line.contains("no container has a readinessProbe")), "{problems:?}");
    assert!(problems.iter().any(|line| line.contains("the taint may go before the daemon may start")), "{problems:?}");
    assert_eq!(said(json!({}), json!({"daemonlet.dev/startup-taint": "false"}), json!({})), Vec::<String>::new());
    let after = said(json!({}), json!({"daemonlet.dev/after": "net"}), json!({}));
    assert!(after[0].contains("\"net\" has no namespace; it waits for none"), "{after:?}");
}

#[test]
fn steps_exclude_what_says_another_way_how_far_a_rollout_goes() {
    for other in ["canary", "partition", "first-install"] {
        let name = format!("daemonlet.dev/{other}");
        let value = if other == "canary" { "a=b" } else { "1" };
        let problems = said(json!({}), json!({"daemonlet.dev/steps": "1; 100%", &name: value}), json!({}));
        let words = format!(
            "metadata.annotations[daemonlet.dev/steps]: it excludes {name}; the rollout is held (write one of them)"
        );
        assert_eq!(problems, [words]);
    }
}

#[test]
fn a_selector_of_canary_nodes_is_short() {
    assert!(canary("a=b,!c").is_some_and(|selector| selector.requirements().len() == 2));
    assert_eq!(canary(&"!a,".repeat(40)[..119]), None, "40 requirements");
    assert_eq!(canary(&format!("a in ({})", ["b"; 4096].join(","))), None);
    assert_eq!((canary(""), canary("  ")), (None, None));
}
