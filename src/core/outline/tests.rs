use serde_json::json;

use super::*;

fn daemon_set(name: &str, more: usize) -> Value {
    json!({
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "7",
            "labels": {"x": "}\"]\\", MODE_LABEL: "bootstrap"}, "managedFields": [{"spec": {"a": "b".repeat(more)}}]},
        "spec": {"items": [{"metadata": {"name": "inner"}, "spec": 1}], "text": "{[\"\\\\".repeat(more)},
        "status": {"conditions": [{"type": "Released"}], "text": "x".repeat(more)},
    })
}

fn outline(name: &str, status: &Value) -> Value {
    json!({
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {MODE_LABEL: "bootstrap"}},
        "spec": null,
        "status": status,
    })
}

/// In the order that the API server writes.
fn ordered(value: &Value) -> String {
    let Value::Object(map) = value else { return value.to_string() };
    let order = ["type", "kind", "apiVersion", "metadata", "items", "object", "spec", "status"];
    let fields = order.iter().filter_map(|field| Some((field, map.get(*field)?)));
    let text = fields.map(|(field, value)| {
        let value = match value {
            Value::Array(items) => format!("[ {} ]", items.iter().map(ordered).collect::<Vec<_>>().join(" , ")),
            value if *field == "object" => ordered(value),
            value => value.to_string(),
        };
        format!("\"{field}\" : {value}\n")
    });
    format!("{{{}}}", text.collect::<Vec<_>>().join(","))
}

/// What is read of `text` when it comes in pieces of that many bytes.
fn read(text: &str, piece: usize, status: OutlineStatus) -> String {
    let mut outliner = Outliner::new(status);
    let reading = |metadata: &DaemonSetMetadata| match metadata.name.split('-').next() {
        Some("whole") => ReadDepth::Whole,
        Some("bounded") => ReadDepth::Bounded,
        _ => ReadDepth::Outline,
    };
    let read: Vec<u8> = text.as_bytes().chunks(piece).flat_map(|bytes| outliner.feed(bytes, &reading)).collect();
    String::from_utf8(read).expect("text")
}

#[test]
fn a_list_keeps_what_is_selected_and_outlines_the_rest() {
    let whole = [daemon_set("whole-1", 3), daemon_set("b", 1000), daemon_set("whole-2", 0), daemon_set("c", 1)];
    let list = |items: &[Value]| json!({"kind": "DaemonSetList", "metadata": {"resourceVersion": "9", "continue": "c"}, "items": items});
    let short = [whole[0].clone(), outline("b", &Value::Null), whole[2].clone(), outline("c", &Value::Null)];
    let text = ordered(&list(&whole));
    for piece in [1, 2, 3, 7, 64, text.len()] {
        let read: Value = serde_json::from_str(&read(&text, piece, OutlineStatus::Dropped)).expect("JSON");
        assert_eq!(read, list(&short), "{piece}");
        assert!(is_outline(&read["items"][1]) && !is_outline(&read["items"][0]));
    }
}

#[test]
fn a_watch_keeps_its_lines() {
    let event = |of: &str, object: Value| json!({"type": of, "object": object});
    let bookmark = event("BOOKMARK", json!({"kind": "DaemonSet", "metadata": {"resourceVersion": "8"}, "spec": {}}));
    let expired = event("ERROR", json!({"kind": "Status", "metadata": {}, "status": "Failure"}));
    let events = [
        event("ADDED", daemon_set("b", 9)),
        bookmark,
        event("MODIFIED", daemon_set("whole", 9)),
        event("DELETED", daemon_set("c", 9)),
        expired,
    ];
    let text: String = events.iter().map(|event| ordered(event).replace('\n', "") + "\n").collect();
    let kept = |name| outline(name, &daemon_set(name, 9)["status"]);
    let mut expected = events.clone();
    (expected[0]["object"], expected[3]["object"]) = (kept("b"), kept("c"));
    for piece in [1, 5, text.len()] {
        let read = read(&text, piece, OutlineStatus::Kept);
        let lines: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines, expected, "{piece}");
    }
}

#[test]
fn a_status_has_a_bound() {
    let text = ordered(&json!({"type": "ADDED", "object": daemon_set("b", LONGEST_STATUS)}));
    let outlined: Value = serde_json::from_str(&read(&text, 1000, OutlineStatus::Kept)).expect("JSON");
    assert_eq!(outlined["object"], outline("b", &Value::Null));
    let mut bounded = daemon_set("bounded-a", 1);
    bounded["status"] = daemon_set("b", LONGEST_STATUS)["status"].clone();
    for status in [OutlineStatus::Kept, OutlineStatus::Dropped] {
        let text = ordered(&json!({"type": "ADDED", "object": bounded}));
        let read: Value = serde_json::from_str(&read(&text, 1000, status)).expect("JSON");
        assert_eq!((&read["object"]["status"], &read["object"]["spec"]), (&Value::Null, &bounded["spec"]));
    }
}

#[test]
fn a_bounded_spec_that_is_too_large_is_left_out_and_says_of_what_it_has_too_much() {
    let with = |field: &str, value: Value| {
        let mut object = daemon_set("bounded-a", 1);
        object["metadata"]["finalizers"] = json!(["orphan", "b"]);
        object[field]["more"] = value;
        object
    };
    let outline_of = |object: &Value, piece: usize| {
        let text = ordered(&json!({"kind": "DaemonSetList", "items": [object, daemon_set("whole", 1)]}));
        let read: Value = serde_json::from_str(&read(&text, piece, OutlineStatus::Dropped)).expect("JSON");
        assert_eq!(read["items"][1], daemon_set("whole", 1), "what comes behind it is read");
        assert_eq!(read["items"][0]["metadata"]["name"], "bounded-a");
        assert!(!is_outline(&read["items"][0]));
        let error = too_large(&read["items"][0]).map(|error| error.to_string());
        assert!(error.is_some() || read["items"][0] == *object, "all of it, or that it is too large");
        (error, read["items"][0]["metadata"]["finalizers"].clone())
    };
    let long = || Value::from("x".repeat(LONGEST_PART));
    for piece in [7, 4096] {
        assert_eq!(outline_of(&with("spec", Value::from("x".repeat(LONGEST_PART - 4096))), piece).0, None);
        assert_eq!(outline_of(&with("spec", vec![json!({}); MOST_VALUES / 2 - 50].into()), piece).0, None);
        let (error, finalizers) = outline_of(&with("spec", long()), piece);
        assert_eq!(error.as_deref(), Some("spec: has more than 524288 bytes as JSON"));
        assert_eq!(finalizers, json!(["orphan", "b"]));
        let (error, _) = outline_of(&with("spec", vec![json!({}); MOST_VALUES / 2].into()), piece);
        assert_eq!(error.as_deref(), Some("spec: has more than 18432 maps, lists and commas as JSON"));
        let (error, finalizers) = outline_of(&with("metadata", long()), piece);
        assert_eq!(error.as_deref(), Some("metadata: has more than 524288 bytes as JSON"));
        assert_eq!(finalizers, json!(["orphan"]), "its pods are to stay all the same");
    }
}

#[test]
fn one_object_is_read_within_the_same_bounds() {
    let read = |object: &Value, piece: usize| -> Value {
        let mut outliner = Outliner::of_one(OutlineStatus::Dropped);
        let text = ordered(object);
        let reading = |metadata: &DaemonSetMetadata| match metadata.name.as_str() {
            "a" => ReadDepth::Bounded,
            _ => ReadDepth::Outline,
        };
        let read: Vec<u8> = text.as_bytes().chunks(piece).flat_map(|bytes| outliner.feed(bytes, &reading)).collect();
        serde_json::from_slice(&read).expect("JSON")
    };
    let mut large = daemon_set("a", 1);
    large["spec"]["more"] = vec![json!({}); MOST_VALUES].into();
    for piece in [1, 4096] {
        assert_eq!(read(&daemon_set("a", 3), piece), daemon_set("a", 3));
        assert!(too_large(&read(&large, piece)).is_some());
        assert_eq!(read(&daemon_set("b", 3), piece), outline("b", &Value::Null));
        let failure = json!({"kind": "Status", "metadata": {}, "status": "Failure"});
        assert_eq!(read(&failure, piece), failure);
    }
}

#[test]
fn what_is_not_understood_passes() {
    for text in [
        "",
        "not found",
        "{\"kind\":\"Status\",\"metadata\":{},\"items\":7}",
        "]]}{\"items\":[{\"metadata\":[]}]}",
        "{\"items\":[{\"spec\":{},\"metadata\":{\"name\":\"b\"}}]}",
    ] {
        assert_eq!(read(text, 1, OutlineStatus::Dropped), text);
    }
}
