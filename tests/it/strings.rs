//! The kubelet's YAML reader returns the strings that were written, whatever they are.

use std::process::Command;

use daemonlet::core::yaml;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;
use proptest::test_runner::RngAlgorithm;
use proptest::test_runner::TestRng;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use serde_json::json;

use crate::oracle;

/// Words that some YAML reader takes for something else than a string.
const TRAPS: [&str; 79] = [
    "",
    " ",
    "~",
    "null",
    "Null",
    "NULL",
    "yes",
    "Yes",
    "YES",
    "no",
    "No",
    "on",
    "On",
    "off",
    "OFF",
    "y",
    "Y",
    "n",
    "N",
    "true",
    "True",
    "false",
    "FALSE",
    "<<",
    "=",
    "-",
    "--",
    "---",
    "...",
    "?",
    ":",
    "- a",
    "? a",
    "a: b",
    "a:",
    ": a",
    "#",
    "a #b",
    "a# b",
    "*a",
    "&a",
    "!a",
    "!!str a",
    "|",
    ">",
    "|-",
    "%TAG",
    "@a",
    "`a",
    "{",
    "}",
    "[",
    "]",
    "{a}",
    "[a]",
    ",",
    "'",
    "\"",
    "\\",
    "0",
    "0755",
    "0o755",
    "0x1F",
    "0b11",
    "1_000",
    "1e3",
    "-1",
    "+1",
    ".5",
    "-.5e-1",
    "190:20:30",
    ".inf",
    "-.Inf",
    ".nan",
    "2001-12-14",
    "2001-12-14t21:59:43.10-05:00",
    "685_230.15",
    "\u{feff}",
    "\t",
];

/// Characters of every sort that YAML treats on its own.
const CHARACTERS: &str = "[ \\t\\n\\r\"'\\\\#:,\\-?\\[\\]{}&*!|>%@`~<=a-zA-Z0-9_.+/$()\\x00-\\x1f\\x7f\\u{80}-\\u{a0}\\u{ad}\\u{e4}\\u{2028}\\u{2029}\\u{200b}\\u{feff}\\u{e000}\\u{fffd}-\\u{ffff}\\u{1f600}]{0,24}";

fn strings() -> impl Strategy<Value = String> {
    let trap = || prop::sample::select(TRAPS.to_vec());
    let around = ("[ \\n\\t:#-]{0,3}", trap(), "[ \\n\\t:#-]{0,3}");
    prop_oneof![
        1 => trap().prop_map(str::to_owned),
        3 => CHARACTERS,
        2 => "\\PC{0,60}",
        1 => any::<String>(),
        2 => around.prop_map(|(before, trap, after)| format!("{before}{trap}{after}")),
        1 => prop::collection::vec(prop_oneof![CHARACTERS, " {0,6}[a-z#:-]{0,90}"], 0..6).prop_map(|lines| lines.join("\n")),
        1 => "([a-z]{1,12} ){12,30}[a-z \\n]{0,4}",
    ]
}

/// A document with every string once in each position.
fn document(value: &str, key: &str, other: &str) -> Value {
    json!({
        "plain": value,
        "list": [value, [value, {"in": value}], {key: value, "after": 1}],
        "map": {key: {key: value, "list": [{"first": value, key: [other]}]}},
        "flags": [true, 0, -1, null, "true", {}, []],
        "other": other,
    })
}

#[test]
fn the_kubelet_reads_every_string_that_was_written() {
    let Some(yamlread) = oracle::program("yamlread") else { return };
    // A fixed seed: a failure shows again, and a run does not fail by chance.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let triple = (strings(), strings(), strings());
    let mut documents: Vec<Value> = TRAPS.iter().map(|trap| document(trap, trap, trap)).collect();
    documents.extend((0..6000).map(|_| {
        let (value, key, other) = triple.new_tree(&mut runner).expect("a value").current();
        document(&value, &key, &other)
    }));
    let mut input = Vec::new();
    for document in &documents {
        input.extend(serde_json::to_vec(&yaml::write(document)).expect("JSON"));
        input.push(b'\n');
    }
    let output = oracle::run(&mut Command::new(yamlread), input);
    assert!(output.status.success(), "{}", oracle::text(&output.stderr));
    let answers: Vec<Value> =
        oracle::text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), documents.len());
    for (document, answer) in documents.iter().zip(&answers) {
        let text = yaml::write(document);
        assert_eq!(answer["error"], Value::Null, "{document:?} as\n{text}");
        assert_eq!(&answer["value"], document, "as\n{text}");
    }
}

proptest! {
    #![proptest_config(Config { cases: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn our_own_reader_reads_every_string_that_was_written(value in strings(), key in strings(), other in strings()) {
        let document = document(&value, &key, &other);
        let text = yaml::write(&document);
        let read = yaml::read_documents(&text);
        prop_assert_eq!(read.len(), 1, "{}", text);
        prop_assert_eq!(read[0].value.as_ref(), Ok(&document), "{}", text);
    }
}
