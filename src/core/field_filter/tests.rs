use serde_json::json;

use super::*;

const FIELDS: FieldSelection = FieldSelection::Of(&[
    ("kind", FieldSelection::All),
    (
        "metadata",
        FieldSelection::Of(&[
            ("name", FieldSelection::All),
            ("uid", FieldSelection::All),
            ("resourceVersion", FieldSelection::All),
            ("zones", FieldSelection::All),
            ("owners", FieldSelection::All),
        ]),
    ),
    (
        "spec",
        FieldSelection::Of(&[(
            "containers",
            FieldSelection::Of(&[("name", FieldSelection::All), ("ports", FieldSelection::All)]),
        )]),
    ),
    ("status", FieldSelection::Of(&[("phase", FieldSelection::All)])),
]);

fn pod(name: &str) -> Value {
    let container = |name: &str| json!({"env": [{"name": "a", "value": "}]\"\\"}, {}], "name": name, "ports": [{"a": 1, "b": [true, null]}, 2], "z": {}});
    json!({
        "kind": "Pod",
        "metadata": {"labels": {"x": "}\"]\\"}, "name": name, "uid": "u\"", "resourceVersion": "7", "owners": [{"a": "b"}],
            "managedFields": [{"name": "inner"}]},
        "spec": {"containers": [container("a"), container("b\\\"")], "volumes": [[], {}, "x"], "other": 1},
        "status": {"phase": "Running", "more": [1, 2]},
    })
}

fn kept(name: &str) -> Value {
    let container = |name: &str| json!({"name": name, "ports": [{"a": 1, "b": [true, null]}, 2]});
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "uid": "u\"", "resourceVersion": "7", "owners": [{"a": "b"}]},
        "spec": {"containers": [container("a"), container("b\\\"")]},
        "status": {"phase": "Running"},
    })
}

fn read(text: &str, piece: usize, place: ResponseShape) -> String {
    let mut filter = FieldFilter::new(&FIELDS, place);
    let read: Vec<u8> = text.as_bytes().chunks(piece).flat_map(|bytes| filter.feed(bytes)).collect();
    String::from_utf8(read).expect("text")
}

fn parsed(text: &str, piece: usize, place: ResponseShape) -> Value {
    let read = read(text, piece, place);
    serde_json::from_str(&read).unwrap_or_else(|error| panic!("{error}: {read}"))
}

#[test]
fn of_each_object_the_fields_that_are_read_pass() {
    let list = |items: &[Value]| json!({"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "c"}, "items": items});
    let (whole, short) = (list(&[pod("a"), pod("b")]), list(&[kept("a"), kept("b")]));
    for text in [whole.to_string(), serde_json::to_string_pretty(&whole).expect("JSON")] {
        for piece in [1, 2, 3, 7, 64, text.len()] {
            assert_eq!(parsed(&text, piece, ResponseShape::Items), short, "{piece}");
        }
    }
    assert_eq!(parsed(&list(&[]).to_string(), 1, ResponseShape::Items), list(&[]));
    for piece in [1, 5, 4096] {
        assert_eq!(parsed(&pod("a").to_string(), piece, ResponseShape::Whole), kept("a"));
        let event = |object: Value| json!({"type": "ADDED", "object": object});
        let events = [event(pod("a")), event(json!({"kind": "Status", "status": "Failure"})), event(pod("b"))];
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        let read = read(&text, piece, ResponseShape::Items);
        let lines: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines, [event(kept("a")), events[1].clone(), event(kept("b"))], "{piece}");
    }
}

#[test]
fn of_an_object_that_is_too_large_its_identity_alone_passes() {
    let identity = json!({"metadata": {"name": "large", "uid": "u\"", "resourceVersion": "7"}, "spec": null, "status": null,
        "tooLarge": true});
    let larges = [
        json!([{"name": "x".repeat(LONGEST)}]),
        json!(vec![json!({"ports": [[[]]]}); MOST_VALUES / 4]),
        json!(vec![json!({"ports": vec![1; 1000]}); 5]),
    ];
    for containers in larges {
        let mut large = pod("large");
        large["spec"]["containers"] = containers;
        let mut owned = pod("large");
        owned["metadata"]["zones"] = json!(vec![json!({}); MOST_VALUES]);
        let list = json!({"items": [pod("a"), large, owned, pod("b")]}).to_string();
        for piece in [1, 1000] {
            let read = parsed(&list, piece, ResponseShape::Items);
            assert_eq!(read, json!({"items": [kept("a"), identity, identity, kept("b")]}));
            assert!(is_too_large(&read["items"][1]) && !is_too_large(&read["items"][0]));
        }
    }
    // The bound is reached in the identity itself, or right before it.
    for most in 1..pod("a").to_string().len() {
        let mut odd = pod("a");
        odd["metadata"]["uid"] = json!({"a": [{"b": 1}, {"c": {"d": "e"}}]});
        let text = odd.to_string();
        let mut filter = FieldFilter::new(&FIELDS, ResponseShape::Whole).at_most((most, MOST_VALUES));
        let read: Value = serde_json::from_slice(&filter.feed(text.as_bytes())).expect("JSON");
        let of = |object: &Value, field: &str| object["metadata"].get(field).cloned();
        for field in ["name", "uid"] {
            let found = of(&read, field);
            assert!(found == of(&odd, field) || found.is_none() && is_too_large(&read), "{read}");
        }
    }
    // What is not read has no bound.
    let mut long = pod("a");
    long["spec"]["volumes"] = json!(vec![json!({"a": []}); 10 * MOST_VALUES]);
    long["metadata"]["labels"]["x"] = json!("x".repeat(2 * LONGEST));
    assert_eq!(parsed(&long.to_string(), 777, ResponseShape::Whole), kept("a"));
}

#[test]
fn what_is_not_understood_passes() {
    for text in [
        "",
        "not found",
        "{\"kind\":\"Status\",\"items\":7}",
        "]]}{\"items\":[7]}",
        "[{}]",
        "\"items\": [{\"a\": 1}]",
        "{\"object\":1}[{\"a\":1}]",
    ] {
        assert_eq!(read(text, 1, ResponseShape::Items), text);
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_without_end_or_panic(text in "[{}\\[\\]\",:\\\\a1 ]{0,60}", piece in 1usize..9) {
        for place in [ResponseShape::Whole, ResponseShape::Items] {
            proptest::prop_assert!(read(&text, piece, place).len() <= text.len() + 64);
        }
    }
}
