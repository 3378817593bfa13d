use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::json::Json;
use crate::core::yaml;

/// An object with every field that there is.
fn full() -> Value {
    let text = || "t".to_owned();
    let lease = LeaseTerm { namespace: text(), name: text(), uid: text(), transitions: 1 };
    let approval = Approval {
        namespace: text(),
        name: text(),
        uid: text(),
        revision: text(),
        overlays: text(),
        approved_at: text(),
        lease: Some(lease),
        when: Some(UpdateTrigger::Boot),
    };
    let instance = InstanceReport {
        pod: text(),
        revision: text(),
        overlays: text(),
        created: text(),
        ready_since: Some(text()),
        ending: true,
    };
    let daemon = DaemonReport {
        namespace: text(),
        name: text(),
        uid: text(),
        mode: Some(Mode::Static),
        phase: Some(State::Running),
        message: text(),
        instances: vec![instance],
        overlays: text(),
        replacing: Some(text()),
        staged: Some(text()),
        failed: Some(FailedReport { revision: text(), cause: text(), message: text() }),
        pull_failed: Some(text()),
        awaits_rollout: true,
        missing: Some(MissingReport { revision: text(), message: text() }),
        stock_pod: Some(text()),
        previous: Some(text()),
        returning: Some(text()),
    };
    let refused = vec![crate::core::status::RefusedCount { reason: text(), count: 1 }];
    let status = Status { agent_version: text(), ready: text(), worst: text(), daemons: vec![daemon], refused };
    json!({"spec": Spec { approvals: vec![approval] }, "status": status})
}

/// Where a schema and an object differ in their fields, and where the schema says nothing of a field.
fn differences(path: &str, schema: &Value, object: &Value, found: &mut Vec<String>) {
    let said = schema.text_at("description").is_some_and(|d| !d.is_empty());
    // An item of a list is described with the list.
    if !said && !path.ends_with("[]") {
        found.push(format!("{path}: no description"));
    }
    match object {
        Value::Array(items) => differences(&format!("{path}[]"), &schema["items"], &items[0], found),
        Value::Object(fields) => {
            let declared = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
            let names: BTreeSet<&String> = fields.keys().chain(declared.keys()).collect();
            for name in names {
                match (declared.get(name), fields.get(name)) {
                    (Some(schema), Some(value)) => differences(&format!("{path}.{name}"), schema, value, found),
                    _ => found.push(format!("{path}.{name}: in one of the two")),
                }
            }
        }
        _ => {}
    }
    let kind = match object {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "string",
    };
    if schema.get("type").is_none_or(|t| t != kind) {
        found.push(format!("{path}: not of type {kind}"));
    }
}

/// The schema of a part of the object, as it is shipped.
fn schema(part: &str) -> Value {
    let crd = yaml::read_documents(CRD).remove(0).value.unwrap_or_else(|error| panic!("{error:?}"));
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part].clone()
}

/// Where a status has more than the schema takes.
pub(crate) fn refused_by_schema(status: &Status) -> Vec<String> {
    let mut found = Vec::new();
    too_much("", &schema("status"), &json!(status), &mut found);
    found
}

fn too_much(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
    let (most, has) = match value {
        Value::Array(items) => {
            items.iter().for_each(|item| too_much(&format!("{path}[]"), &schema["items"], item, found));
            ("maxItems", items.len())
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                too_much(&format!("{path}.{name}"), &schema["properties"][name], value, found);
            }
            return;
        }
        Value::String(text) if schema.get("enum").is_none() => ("maxLength", text.chars().count()),
        _ => return,
    };
    match schema.get(most).and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok()) {
        None => found.push(format!("{path}: no {most}")),
        Some(bound) if has > bound => found.push(format!("{path}: {has}, and {most} is {bound}")),
        Some(_) => {}
    }
}

#[test]
fn each_list_and_each_text_of_a_status_is_bounded_by_the_schema_as_by_the_agent() {
    let full: Status = serde_json::from_value(full()["status"].clone()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(refused_by_schema(&full), Vec::<String>::new());
    let status = schema("status");
    let daemon = &status["properties"]["daemons"]["items"]["properties"];
    let lists = [&status["properties"]["daemons"], &daemon["instances"], &status["properties"]["refused"]];
    assert_eq!(lists.map(|list| &list["maxItems"]), [DAEMONS, INSTANCES, REASONS].map(|most| json!(most)).each_ref());
    let texts = [
        &status["properties"]["worst"],
        &daemon["message"],
        &daemon["pullFailed"],
        &daemon["missing"]["properties"]["message"],
        &daemon["failed"]["properties"]["message"],
    ];
    assert_eq!(texts.map(|text| &text["maxLength"]), [&json!(WORDS); 5]);
    let long = Status { worst: "x".repeat(WORDS + 1), daemons: vec![DaemonReport::default(); DAEMONS + 1], ..full };
    assert_eq!(refused_by_schema(&long).len(), 2, "{:?}", refused_by_schema(&long));
}

#[test]
fn the_schema_has_every_field_and_no_other_each_described() {
    let documents = yaml::read_documents(CRD);
    assert_eq!(documents.len(), 1);
    let crd = documents[0].value.as_ref().expect("the shipped file is YAML");
    assert_eq!(crd["metadata"]["name"], format!("{PLURAL}.{GROUP}"));
    assert_eq!((&crd["spec"]["names"]["kind"], &crd["spec"]["scope"]), (&json!(KIND), &json!("Cluster")));
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], VERSION);
    let mut found = Vec::new();
    differences("", &version["schema"]["openAPIV3Schema"], &full(), &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_state_of_another_version_costs_nothing_else() {
    let read = |phase: Value| -> DaemonReport {
        serde_json::from_value(json!({"name": "net", "phase": phase})).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(read(json!("standingBy")).phase, Some(State::StandingBy));
    let later = read(json!("levitating"));
    assert_eq!((later.name.as_str(), later.phase), ("net", None));
    assert_eq!(read(Value::Null).phase, None);
}

#[test]
fn what_only_a_later_version_understands_costs_nothing_else() {
    let approval = |name: &str, when: &str| json!({"namespace": "a", "name": name, "uid": "u", "revision": "r", "approvedAt": "t", "when": when, "later": 1});
    let spec: Spec = serde_json::from_value(json!({
        "later": {}, "approvals": [approval("one", "eclipse"), "later", approval("two", "boot")]
    }))
    .unwrap_or_else(|error| panic!("{error}"));
    let known: Vec<_> = spec.approvals.iter().map(|a| (a.name.as_str(), a.when)).collect();
    assert_eq!(known, [("one", Some(UpdateTrigger::Unknown)), ("two", Some(UpdateTrigger::Boot))]);
    let status = json!({"later": 1, "daemons": [{"name": "net", "mode": "floating", "uid": "u", "later": 1}]});
    let status: Status = serde_json::from_value(status).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status.daemon("", "net", "u").map(|net| net.mode), Some(None));
}

#[test]
fn a_lease_that_was_given_back_or_taken_over_is_not_held() {
    let spec = |holder: &str, transitions: i64| json!({"holderIdentity": holder, "leaseTransitions": transitions});
    let term = LeaseTerm::new("kube-system", "daemonlet-coordinator", "u", &spec("one", 3));
    assert!(term.is_held("u", &spec("one", 3)));
    for (uid, spec) in [
        ("u", spec("", 3)),
        ("u", spec("two", 4)),
        ("another", spec("one", 3)),
        ("u", json!({"leaseTransitions": 3})),
        ("u", Value::Null),
    ] {
        assert!(!term.is_held(uid, &spec), "{uid} {spec}");
    }
}
