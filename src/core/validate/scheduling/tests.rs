use serde_json::Value;
use serde_json::json;

use super::check;
use crate::core::validate::types::pod_types;

const KEY: &str = "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name and '/'";
const VALUE: &str =
    "must be empty, or letters, digits, '-', '_' and '.' (at most 63), beginning and ending with a letter or digit";

/// What is wrong with `value` in the field `field` of a pod.
fn errors(field: &str, value: &Value) -> String {
    let spec = json!({field: value});
    assert_eq!(pod_types(&json!({"spec": spec})), Ok(()));
    let mut errors = Vec::new();
    check(&spec, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Each is refused with its text; fields are named from `field` on.
fn refused(field: &str, cases: &[(Value, &str)]) {
    for (value, expected) in cases {
        assert_eq!(errors(field, value), format!("spec.template.spec.{field}{expected}"), "{value}");
    }
}

fn taken(field: &str, cases: &[Value]) {
    for value in cases {
        assert_eq!(errors(field, value), "", "{field} {value}");
    }
}

#[test]
fn node_selectors_are_labels() {
    refused(
        "nodeSelector",
        &[(json!({"a b": "c"}), &format!("[a b]: {KEY}")), (json!({"a": "-"}), &format!("[a]: {VALUE}"))],
    );
    taken("nodeSelector", &[json!({"a.b/c": "D", "e": null}), json!(null)]);
}

#[test]
fn tolerations_are_those_of_the_api() {
    let one = |toleration: Value| json!([toleration]);
    refused(
        "tolerations",
        &[
            (json!([{"operator": "Exists"}, {"effect": "NoSchedule"}]), "[1].operator: must be Exists without a key"),
            (one(json!({"operator": "Gt", "value": "1"})), "[0].operator: must be Exists without a key"),
            (one(json!({"key": "a b", "operator": "Exists"})), &format!("[0].key: {KEY}")),
            (
                one(json!({"key": "a", "operator": "Gt", "value": "1"})),
                "[0].operator: must be Equal or Exists, not \"Gt\"",
            ),
            (one(json!({"key": "a", "value": "b c"})), &format!("[0].value: {VALUE}")),
            (one(json!({"key": "a", "operator": "Exists", "value": "b"})), "[0].value: must be empty with Exists"),
            (
                one(json!({"key": "a", "effect": "x"})),
                "[0].effect: must be NoSchedule or PreferNoSchedule or NoExecute, not \"x\"",
            ),
            (
                one(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 0})),
                "[0].effect: must be NoExecute with tolerationSeconds",
            ),
        ],
    );
    taken(
        "tolerations",
        &[
            one(json!({"key": "a.b/c", "operator": "Equal", "value": "d"})),
            one(json!({"key": "a", "operator": "", "value": null, "effect": "PreferNoSchedule"})),
            one(json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1})),
            one(json!({"operator": "Exists", "tolerationSeconds": null})),
        ],
    );
}

#[test]
fn affinity_to_nodes() {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let needs = |term: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}});
    let prefers =
        |weight: i64, term: Value| json!({"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term}]}});
    let label = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
    let field = |key: &str, operator: &str, values: Value| json!({"matchFields": [{"key": key, "operator": operator, "values": values}]});
    let label_at = format!("{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]");
    let field_at = format!("{REQUIRED}.nodeSelectorTerms[0].matchFields[0]");
    let cases = [
        (json!({"nodeAffinity": {REQUIRED: {}}}), format!("{REQUIRED}.nodeSelectorTerms: required")),
        (needs(label("In", json!([]))), format!("{label_at}.values: required with In and NotIn")),
        (
            needs(label("DoesNotExist", json!(["a"]))),
            format!("{label_at}.values: must be empty with Exists and DoesNotExist"),
        ),
        (needs(label("Gt", json!(["1", "2"]))), format!("{label_at}.values: must be one value with Gt and Lt")),
        (needs(label("Lt", json!([]))), format!("{label_at}.values: must be one value with Gt and Lt")),
        (
            needs(label("in", json!(["a"]))),
            format!("{label_at}.operator: must be In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        ),
        (needs(label("In", json!(["a", "b c"]))), format!("{label_at}.values[1]: {VALUE}")),
        (needs(json!({"matchExpressions": [{"operator": "Exists"}]})), format!("{label_at}.key: required")),
        (needs(field("metadata.name", "In", json!([]))), format!("{field_at}.values: must be one value")),
        (needs(field("metadata.name", "Exists", json!(["a"]))), format!("{field_at}.operator: must be In or NotIn")),
        (needs(field("spec.x", "In", json!(["A"]))), format!("{field_at}.key: must be metadata.name")),
        (
            needs(field("metadata.name", "In", json!(["A"]))),
            format!(
                "{field_at}.values[0]: must be lower case letters, digits, '-' and '.', each part beginning and \
                 ending with a letter or digit"
            ),
        ),
        (prefers(0, json!({})), format!("{PREFERRED}[0].weight: must be a number from 1 to 100")),
        (prefers(101, json!({})), format!("{PREFERRED}[0].weight: must be a number from 1 to 100")),
        (
            prefers(1, label("NotIn", Value::Null)),
            format!("{PREFERRED}[0].preference.matchExpressions[0].values: required with In and NotIn"),
        ),
    ];
    for (affinity, expected) in cases {
        refused("affinity", &[(affinity, &format!(".nodeAffinity.{expected}"))]);
    }
    taken(
        "affinity",
        &[
            json!({}),
            json!({"nodeAffinity": null}),
            needs(Value::Null),
            needs(label("Lt", json!(["x"]))),
            needs(field("metadata.name", "NotIn", json!(["a.b"]))),
            prefers(100, label("In", json!(["b c"]))),
        ],
    );
}

#[test]
fn affinity_to_pods() {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let selector = json!({"matchLabels": {"a": "b"}});
    let cases = [
        (json!({}), "topologyKey: required".to_owned()),
        (json!({"topologyKey": "a b"}), format!("topologyKey: {KEY}")),
        (
            json!({"topologyKey": "k", "namespaces": ["n", "N"]}),
            "namespaces[1]: must be lower case letters, digits and '-', beginning and ending with a letter or digit"
                .to_owned(),
        ),
        (
            json!({"topologyKey": "k", "labelSelector": {"matchLabels": {"a": "b c"}}}),
            format!("labelSelector.matchLabels[a]: {VALUE}"),
        ),
        (
            json!({"topologyKey": "k", "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}),
            "namespaceSelector.matchExpressions[0].operator: must be In, NotIn, Exists or DoesNotExist".to_owned(),
        ),
        (json!({"topologyKey": "k", "matchLabelKeys": ["a"]}), "matchLabelKeys: needs a labelSelector".to_owned()),
        (
            json!({"topologyKey": "k", "mismatchLabelKeys": ["a b"], "labelSelector": {}}),
            format!("mismatchLabelKeys[0]: {KEY}"),
        ),
        (
            json!({"topologyKey": "k", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]}),
            "matchLabelKeys[0]: a is in mismatchLabelKeys, too".to_owned(),
        ),
        (
            json!({
                "topologyKey": "k", "matchLabelKeys": ["c", "a"],
                "labelSelector": {"matchLabels": {"a": ""}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
            }),
            "matchLabelKeys[1]: a is in labelSelector, too".to_owned(),
        ),
    ];
    for (term, expected) in cases {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let affinity = json!({kind: {REQUIRED: [term]}});
            refused("affinity", &[(affinity, &format!(".{kind}.{REQUIRED}[0].{expected}"))]);
            let affinity = json!({kind: {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}});
            refused("affinity", &[(affinity, &format!(".{kind}.{PREFERRED}[0].podAffinityTerm.{expected}"))]);
        }
    }
    let term = json!({
        "topologyKey": "a.b/c", "namespaces": ["n"], "labelSelector": selector, "namespaceSelector": {},
        "matchLabelKeys": ["a"], "mismatchLabelKeys": ["d"],
    });
    let preferred = |weight: i64| json!({"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}});
    taken("affinity", &[json!({"podAntiAffinity": {REQUIRED: [term]}}), preferred(100)]);
    let weight = format!(".podAffinity.{PREFERRED}[0].weight: must be a number from 1 to 100");
    refused("affinity", &[(preferred(101), &weight), (preferred(0), &weight)]);
}

#[test]
fn spread_constraints() {
    let with = |more: Value| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "any thing", "whenUnsatisfiable": "DoNotSchedule"});
        constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([constraint])
    };
    let two = |when: &str| {
        let mut constraints = with(json!({}));
        constraints
            .as_array_mut()
            .unwrap()
            .extend(with(json!({"whenUnsatisfiable": when})).as_array().unwrap().clone());
        constraints
    };
    refused(
        "topologySpreadConstraints",
        &[
            (with(json!({"maxSkew": 0})), "[0].maxSkew: must be more than 0"),
            (with(json!({"topologyKey": ""})), "[0].topologyKey: required"),
            (with(json!({"whenUnsatisfiable": ""})), "[0].whenUnsatisfiable: required"),
            (
                with(json!({"whenUnsatisfiable": "x"})),
                "[0].whenUnsatisfiable: must be DoNotSchedule or ScheduleAnyway, not \"x\"",
            ),
            (two("DoNotSchedule"), "[1]: another constraint has the same topologyKey and whenUnsatisfiable"),
            (with(json!({"minDomains": 0})), "[0].minDomains: must be more than 0"),
            (
                with(json!({"minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway"})),
                "[0].minDomains: needs whenUnsatisfiable DoNotSchedule",
            ),
            (with(json!({"nodeAffinityPolicy": ""})), "[0].nodeAffinityPolicy: must be Honor or Ignore, not \"\""),
            (with(json!({"nodeTaintsPolicy": "x"})), "[0].nodeTaintsPolicy: must be Honor or Ignore, not \"x\""),
            (with(json!({"matchLabelKeys": ["a"]})), "[0].matchLabelKeys: needs a labelSelector"),
            (with(json!({"matchLabelKeys": [""], "labelSelector": {}})), "[0].matchLabelKeys[0]: required"),
            (
                with(json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}})),
                "[0].labelSelector.matchExpressions[0].operator: must be In, NotIn, Exists or DoesNotExist",
            ),
        ],
    );
    let policies = json!({"minDomains": 1, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"});
    let keys = json!({"matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"a": "b"}}});
    taken("topologySpreadConstraints", &[with(policies), with(keys), two("ScheduleAnyway")]);
}

#[test]
fn gates_have_names() {
    refused(
        "schedulingGates",
        &[
            (json!([{}]), "[0].name: required"),
            (json!([{"name": "a/b/c"}]), &format!("[0].name: {KEY}")),
            (json!([{"name": "a"}, {"name": "a"}]), "[1].name: a is used twice"),
        ],
    );
    refused("readinessGates", &[(json!([{"conditionType": "a b"}]), &format!("[0].conditionType: {KEY}"))]);
    taken("schedulingGates", &[json!([{"name": "a"}, {"name": "a.b/c"}])]);
    taken("readinessGates", &[json!([{"conditionType": "a.b/C"}, {"conditionType": "a.b/C"}])]);
}
