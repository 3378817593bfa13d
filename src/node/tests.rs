//! Every error type: what its messages say when they reach a person.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::node::api::words;
use crate::node::checkpoint::CheckpointError;
use crate::node::manifests::ManifestError;

mod samples;

use samples::of_files;
use samples::of_others;
use samples::of_the_agent;

/// What no test can make, or what is only ever a part of another message; and why.
const NOT_HERE: [(&str, &str); 5] = [
    ("ConfigError", "its problems have tests of their own: src/config/tests.rs"),
    ("Damaged", "only a record that was read is one: src/node/checkpoint/tests.rs"),
    ("EncodeError", "of serde's own words"),
    ("LabelError", "upstream's words, which src/core/labels compares with upstream's"),
    ("LogError::Twice", "only a second subscriber is one"),
];

/// Why something waits, is not known or is left alone: words that stand within a sentence, and no errors.
const REASONS: [&str; 19] = [
    "ApiGap",
    "ApiLink",
    "Fallback",
    "Hint",
    "ImageReason",
    "ListGap",
    "LocalFailure",
    "NoAnswer",
    "NoRestart",
    "NotApprovable",
    "Note",
    "Reason",
    "RuntimeGap",
    "ShownNothing",
    "StockMissing",
    "Unobservable",
    "Unproven",
    "Unready",
    "Unseen",
];

/// The longest message and hint.
const LONGEST: usize = 300;

/// What is wrong with the form of a text.
pub(super) fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.chars().count() > LONGEST {
        faults.push(format!("has {} characters", text.chars().count()));
    }
    if text.ends_with('.') || text.ends_with(':') || text.ends_with(' ') {
        faults.push("ends wrongly".to_owned());
    }
    if text.starts_with(|first: char| first.is_uppercase()) {
        faults.push("begins with a capital".to_owned());
    }
    for bad in ["(os error", "  ", ": :", "\n"] {
        if text.contains(bad) {
            faults.push(format!("has {bad:?}"));
        }
    }
    let trimmed = |word: &str| word.trim_matches(|letter: char| ":,;()\"".contains(letter)).to_lowercase();
    let spoken: Vec<String> = text.split_whitespace().map(trimmed).collect();
    if let Some((object, rest)) = text.split_once(": ").filter(|(object, rest)| rest.contains(&format!("{object} "))) {
        faults.push(format!("names {object} again: {rest}"));
    }
    let mut seen = BTreeSet::new();
    faults.extend(spoken.windows(2).filter(|two| !seen.insert(two.to_vec())).map(|two| format!("says {two:?} twice")));
    if text.matches("cannot ").count() > 1 {
        faults.push("says \"cannot\" twice".to_owned());
    }
    let mut paths = BTreeSet::new();
    let named = spoken.iter().filter(|word| word.starts_with('/'));
    faults.extend(named.filter(|path| !paths.insert(*path)).map(|path| format!("names {path} twice")));
    faults
}

/// The lines in which a person meets the error: by itself, or below the name of what it concerns.
fn reported(error: &(dyn Error + 'static), text: &str) -> Vec<String> {
    let objects: &[&str] = match (error.is::<CheckpointError>(), error.downcast_ref::<ManifestError>()) {
        (true, _) => &["checkpoint", "state-dir"],
        (
            _,
            Some(
                ManifestError::Unsafe { .. }
                | ManifestError::ManifestFolder { .. }
                | ManifestError::ReadOnly { .. }
                | ManifestError::Watch { .. },
            ),
        ) => &["manifest folder"],
        _ => return vec![text.to_owned()],
    };
    objects.iter().map(|object| format!("{object}: {text}")).collect()
}

#[test]
fn every_message_says_one_thing_once_and_names_its_object() {
    let mut wrong = Vec::new();
    for (error, object, hint) in of_files().into_iter().chain(of_the_agent()).chain(of_others()) {
        let text = words(&*error);
        let mut found: Vec<String> = reported(&*error, &text).iter().flat_map(|line| faults(line)).collect();
        if !text.contains(object) {
            found.push(format!("does not name {object}"));
        }
        match hint.as_deref() {
            Some("") => found.push("has an empty hint".to_owned()),
            Some(hint) if hint == text => found.push("has itself as its hint".to_owned()),
            // What is to be done may take more words than what is wrong.
            Some(hint) => found.extend(
                faults(hint)
                    .into_iter()
                    .filter(|fault| !fault.starts_with("names ") && !fault.starts_with("says "))
                    .map(|fault| format!("its hint {hint:?} {fault}")),
            ),
            None => {}
        }
        wrong.extend(found.into_iter().map(|fault| format!("{text:?} {fault}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_form_is_looked_at() {
    for (text, fault) in [
        ("checkpoint: checkpoint /f is a link", "names checkpoint again: checkpoint /f is a link"),
        ("cannot use it: cannot open /f", "says \"cannot\" twice"),
        ("state folder /f: cannot open /f", "names /f twice"),
        ("Cannot open it", "begins with a capital"),
        ("it is gone (os error 2)", "has \"(os error\""),
    ] {
        assert_eq!(faults(text), [fault], "{text}");
    }
    assert_eq!(faults(&format!("it is {}", "x".repeat(LONGEST))), [format!("has {} characters", LONGEST + 6)]);
}

/// The Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}

/// The error types of a source, each with its variants; a struct has none.
fn error_types(source: &str) -> Vec<(String, Vec<String>)> {
    let derives = |line: &str| line.starts_with("#[derive(") && (line.contains("Error)]") || line.contains("::Error,"));
    let mut lines = source.lines();
    let mut types = Vec::new();
    while let Some(line) = lines.next() {
        if !derives(line) {
            continue;
        }
        let declared = lines.by_ref().find(|line| line.contains("enum ") || line.contains("struct "));
        let words: Vec<&str> = declared.unwrap_or_default().split([' ', '(', '{']).collect();
        let name = words.iter().skip_while(|word| !matches!(**word, "enum" | "struct")).nth(1).unwrap_or(&"");
        let variants = match words.contains(&"enum") {
            false => Vec::new(),
            true => {
                let inside = lines.by_ref().take_while(|line| *line != "}");
                let named = inside
                    .filter(|line| line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(char::is_uppercase)));
                named
                    .map(|line| line.trim().split(['(', ' ', ',', '{']).next().unwrap_or_default().to_owned())
                    .collect()
            }
        };
        types.push(((*name).to_owned(), variants));
    }
    types
}

#[test]
fn no_error_type_is_forgotten() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let here = concat!(include_str!("tests.rs"), include_str!("tests/samples.rs"));
    let is_exempt = |name: &str| NOT_HERE.iter().any(|(exempt, _)| *exempt == name) || REASONS.contains(&name);
    let mut count = 0;
    for path in sources(&root) {
        let source = fs::read_to_string(&path).expect("a source");
        for (name, variants) in error_types(&source).into_iter().filter(|(name, _)| !is_exempt(name)) {
            count += 1;
            assert!(here.contains(&name), "{}: {name} has no sample", path.display());
            for variant in variants {
                let whole = format!("{name}::{variant}");
                assert!(here.contains(&whole), "{}: {whole} has no sample", path.display());
            }
        }
    }
    assert!(count > 15, "{count}: the error types are not found");
}
