use proptest::prelude::*;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::for_terminal;
use super::read_documents;
use super::write;
use super::write_manifest;

fn read_one(text: &str) -> Result<Value, super::YamlError> {
    let mut documents = read_documents(text);
    assert!(documents.len() <= 1, "{} documents in {text:?}", documents.len());
    documents.pop().map_or(Ok(Value::Null), |document| document.value)
}

/// Strings that YAML is known to mangle, beside arbitrary ones.
fn strings() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => any::<String>(),
        3 => proptest::string::string_regex("[-+.0-9_xobeEyYnNtTfF~:#,\\[\\]{}&*!|>'\"%@` \t\n?=<\\\\\u{85}\u{2028}\u{feff}]{0,8}").unwrap(),
        2 => proptest::string::string_regex("([ \t]{0,3}[-#:a-z0-9 ]{0,6}[ \t]{0,2}\n{0,3}){0,4}").unwrap(),
        1 => proptest::sample::select(vec![
            "yes", "no", "on", "off", "y", "n", "0755", "0o17", "1_000", "08", "0b11", "0x1F", "1e3", ".5", ".inf",
            "2001-01-01", "12:30:45", "null", "~", "", "<<", "=", "true", "--- a", "---", "...", "\u{feff}a", "a: b",
            "a #b", "- a", "? a", "*a", "&a", "!a", "@a", "`a", "%a", "a:", ":a", "1:2", "\r", "\r\n", "a\rb", "\u{0}",
        ]).prop_map(str::to_owned),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (any::<i32>(), -290i32..290)
            .prop_map(|(digits, scale)| (f64::from(digits) + 0.5) * 10f64.powi(scale))
            .prop_map(|float| super::number::from_float(float).unwrap()),
        strings().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((strings(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_written_is_read_again(value in values()) {
        let value = json!({ "v": value });
        let text = write(&value);
        prop_assert_eq!(read_one(&text), Ok(value), "{}", text);
    }

    #[test]
    fn a_string_comes_back_as_value_and_as_key(text in strings()) {
        let value = json!({ "v": text, "list": [text, [text]], "k": { text.clone(): { text.clone(): 1 } } });
        let written = write(&value);
        prop_assert_eq!(read_one(&written), Ok(value), "{}", written);
    }

    /// A reader of YAML 1.2 that shares only the grammar with ours finds the same strings.
    #[test]
    fn another_reader_finds_the_same_strings(text in strings()) {
        let value = json!({ "v": text, "list": [text], "k": { text.clone(): text } });
        let written = write(&value);
        prop_assert_eq!(serde_saphyr::from_str::<Value>(&written).ok(), Some(value), "{}", written);
    }

    #[test]
    fn reading_never_panics(text in any::<String>()) {
        read_documents(&text);
    }

    #[test]
    fn reading_never_panics_on_what_looks_like_yaml(
        text in "([-?:,\\[\\]{}#&*!|>'\"%@` \t\na-c0-9.<~\r\u{feff}\u{85}]|---|\\.\\.\\.|<<: |\\*a|&a |\"a\": |\n  )*"
    ) {
        read_documents(&text);
    }
}

#[test]
fn the_layout_is_what_a_person_would_write() {
    let value = json!({
        "kind": "Pod",
        "spec": { "containers": [{ "image": "a:1", "args": ["yes", "0755", "-c"], "name": "a", "tty": true }], "volumes": [], "nodeSelector": {} },
        "metadata": { "name": "a", "annotations": { "x": "1" } },
        "script": "#!/bin/sh\nif true; then\n\techo\n  exit\nfi\n",
        "crlf": "a\r\nb",
        "long": "word ".repeat(40).trim_end(),
        "apiVersion": "v1",
    });
    let expected = r##"# by hand
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    x: "1"
spec:
  containers:
  - name: a
    args:
    - "yes"
    - "0755"
    - -c
    image: a:1
    tty: true
  nodeSelector: {}
  volumes: []
crlf: "a\r\nb"
long: LONG
"##;
    let expected = expected.replace("LONG", "word ".repeat(40).trim_end());
    let text = write_manifest(&["by hand".to_owned()], &value);
    let (head, script) = text.split_once("script: ").unwrap();
    assert_eq!(head, expected);
    assert_eq!(script, "|\n  #!/bin/sh\n  if true; then\n  \techo\n    exit\n  fi\n");
}

#[test]
fn on_a_terminal_nothing_is_obeyed_or_hidden_and_every_value_stays() {
    let hidden = "a\u{202e}\u{200b}\u{e0041}b";
    let value = json!({hidden: hidden, "lines": format!("x\n{hidden}\n"), "list": [hidden, "plain", "\u{1b}[2J"]});
    let manifest = write_manifest(&[format!("Of {hidden}.")], &value);
    assert!(manifest.contains(hidden), "a file has them as they are");
    let shown = for_terminal(&manifest);
    assert!(shown.is_ascii(), "{shown}");
    assert!(shown.contains("# Of a\\u202e") && shown.contains("\"a\\u202e\\u200b\\U000e0041b\": "), "{shown}");
    assert_eq!(read_documents(&shown)[0].value, Ok(value));
    let plain = write_manifest(&[], &json!({"a": "käse\n\ttwo\n"}));
    assert_eq!(for_terminal(&plain), plain);
}

/// What `sigs.k8s.io/yaml` 1.6.0 makes of each document; `strict` is set where only its strict reader refuses.
const GOLDEN: &str = include_str!("../../../tests/golden/yaml/reading.jsonl");

/// Where this reader knowingly differs: the grammar is that of YAML 1.2, which matters in these corners only.
const KNOWN: &[&str] = &[
    // Taken here, refused there.
    "{v: ?}\n",
    "v: \"a\\/b\"\n",
    "\"a\\/b\": v\n",
    "- \"a\\/b\"\n",
    "{v: \"a\\/b\"}\n",
    "{v: !!str}\n",
    "{v: !!null}\n",
    "{v: !!binary}\n",
    "{v: !a}\n",
    "{v: !}\n",
    "&a: v\n",
    "\ta: b\n",
    "- a\n-\tb\n",
    "a: |\n  \tx\n",
    "a: [?x, -x, :x]\n",
    "a: {x: :y}\n",
    "a: &b! c\n",
    "a: b\u{2028}c\n",
    // Refused here, taken there; `1` and `"1"` on purpose.
    "a: \u{feff}b\n",
    "1: a\n\"1\": b\n",
    // There the rest of the text is ignored.
    "{v: }}\n",
    "{}: v\n",
    "[]: v\n",
    // Another value.
    "a: {?x: 1}\n",
];

#[test]
fn documents_are_read_as_go_reads_them() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for line in GOLDEN.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let input = case["in"].as_str().unwrap();
        let ours = super::compose::document(input, 1, super::Limit::NONE)
            .map(|document| document.map_or(Value::Null, |(_, value)| value));
        let duplicate = case.get("strict").is_some() && !input.contains("<<");
        let good = match (&ours, case.get("json")) {
            (Ok(ours), Some(theirs)) => ours == theirs && !duplicate,
            (Err(_), Some(_)) => duplicate,
            (Ok(_), None) => false,
            (Err(_), None) => true,
        };
        cases += 1;
        if good == KNOWN.contains(&input) {
            wrong.push(format!("{input:?}\n    ours   {ours:?}\n    theirs {line}"));
        }
    }
    assert!(cases > 150);
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn keys_of_any_length_come_back() {
    for length in [100, 129, 1100] {
        let key = "k: \n".repeat(length / 4);
        let value = json!({ "a": { key.clone(): { "b": [1, { key: "c" }] } } });
        assert_eq!(read_one(&write(&value)), Ok(value));
    }
}
