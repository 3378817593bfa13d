//! The output of `render`: JSON, lines for people, and the manifests as one YAML stream.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::render::inputs::UnknownFields;
use crate::core::escape;
use crate::core::identity::Identity;
use crate::core::input::InputProblem;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::render::Missing;
use crate::core::render::RenderOptions;
use crate::core::rendering::Rendered;

/// What became of one DaemonSet or document.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum RenderEntry {
    /// It is a static pod.
    Rendered {
        key: ObjectKey,
        /// UID and pod name.
        identity: Identity,
        /// Manifest and data.
        rendered: Box<Rendered>,
    },
    /// It does not belong on the node.
    NotSelected {
        key: ObjectKey,
        /// Why not.
        reason: String,
    },
    /// It is not valid, or cannot be a static pod.
    Refused {
        key: ObjectKey,
        /// Where it was read.
        source: Source,
        /// The fields, and why.
        errors: Vec<FieldError>,
    },
    /// A document that does not parse, or holds no valid object.
    Invalid(InputProblem),
}

impl RenderEntry {
    pub(in crate::cli) fn key(&self) -> Option<&ObjectKey> {
        match self {
            RenderEntry::Rendered { key, .. }
            | RenderEntry::NotSelected { key, .. }
            | RenderEntry::Refused { key, .. } => Some(key),
            RenderEntry::Invalid(_) => None,
        }
    }

    fn waiting_for(&self) -> &[Missing] {
        match self {
            RenderEntry::Rendered { rendered, .. } => &rendered.pod.waiting_for,
            _ => &[],
        }
    }

    /// What it waits for and a caller of `render` could give.
    fn lacks(&self) -> Vec<&Missing> {
        self.waiting_for().iter().filter(|missing| !missing.is_issued_by_cluster()).collect()
    }
}

/// What makes `--strict` refuse: each DaemonSet that waits, and for what.
pub(super) fn strict(entries: &[RenderEntry]) -> Vec<(String, Option<String>)> {
    let waits = |entry: &RenderEntry| {
        let (key, missing) = (entry.key()?, entry.lacks());
        let given: BTreeSet<String> = missing.iter().map(|missing| how_to_give(missing)).collect();
        let hint = format!("{}, or leave out --strict", given.into_iter().collect::<Vec<_>>().join(", "));
        let waits = format!("{key} waits for {}, which --strict refuses", join_missing(missing.iter().copied()));
        (!missing.is_empty()).then(|| (escape::line(&waits).into_owned(), Some(hint)))
    };
    entries.iter().filter_map(waits).collect()
}

/// How `render` gets what is missing.
fn how_to_give(missing: &Missing) -> String {
    match missing.kind.as_str() {
        "APIEndpoint" => "give --api-endpoint".to_owned(),
        // The object is there.
        kind if !missing.key.is_empty() => format!("add the key {} to data of the {kind}", missing.key),
        kind => format!("give the {kind} with -f"),
    }
}

pub(in crate::cli) fn join_missing<'a>(missing: impl IntoIterator<Item = &'a Missing>) -> String {
    missing.into_iter().map(Missing::to_string).collect::<Vec<_>>().join(", ")
}

/// The exit code that `entries` call for.
pub(in crate::cli) fn exit(entries: &[RenderEntry], strict: bool) -> Exit {
    let of = |entry: &RenderEntry| match entry {
        RenderEntry::Invalid(_) => Exit::Unreadable,
        RenderEntry::Refused { .. } => Exit::Refused,
        entry if strict && !entry.lacks().is_empty() => Exit::Refused,
        _ => Exit::Success,
    };
    entries.iter().map(of).max().unwrap_or(Exit::Success)
}

pub(super) fn manifests(entries: &[RenderEntry]) -> Vec<String> {
    let texts = entries.iter().filter_map(|entry| match entry {
        RenderEntry::Rendered { rendered, .. } => Some(rendered.text.clone()),
        _ => None,
    });
    texts.collect()
}

/// One line a DaemonSet or document, below it hints, notes and its unknown fields.
pub(in crate::cli) fn lines(entries: &[RenderEntry], unknown_fields: &UnknownFields, colour: Colour) -> String {
    let mut text = String::new();
    let mut line = |label: String, said: &str| {
        text.push_str(&label);
        text.push(' ');
        // A name or a value of a file begins no line of its own.
        text.push_str(&escape::line(said));
        text.push('\n');
    };
    let hint = || format!("  {}", colour.cyan("hint:"));
    for entry in entries {
        match entry {
            RenderEntry::Rendered { key, rendered, .. } => {
                let waiting = join_missing(entry.waiting_for());
                let waiting = if waiting.is_empty() { waiting } else { format!(", waits for {waiting}") };
                line(colour.green("rendered"), &format!("{key}: {}{waiting}", rendered.file));
                for note in &rendered.pod.notes {
                    line("  note:".to_owned(), &note.to_string());
                    note.hint.iter().for_each(|what| line(hint(), what));
                }
            }
            RenderEntry::NotSelected { key, reason } => {
                line(colour.yellow("not selected"), &format!("{key}: {reason}"))
            }
            RenderEntry::Refused { key, source, errors } => {
                line(colour.red("refused"), &format!("{key} ({source}): {}", join(errors)));
                hints(errors).into_iter().for_each(|what| line(hint(), what));
            }
            RenderEntry::Invalid(problem) => {
                line(colour.red("invalid"), &problem.to_string());
                problem.hint.iter().for_each(|what| line(hint(), what));
            }
        }
        for unknown_field in entry.key().and_then(|key| unknown_fields.get(key)).into_iter().flatten() {
            line(format!("  {}", colour.yellow("warning:")), &unknown_field.to_string());
            unknown_field.hint.iter().for_each(|what| line(hint(), what));
        }
    }
    text
}

/// Each hint once, in order.
fn hints(errors: &[FieldError]) -> Vec<&str> {
    let mut hints: Vec<&str> = Vec::new();
    for hint in errors.iter().filter_map(|error| error.hint.as_deref()) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

fn join(errors: &[FieldError]) -> String {
    let errors =
        errors.iter().map(|error| if error.field.is_empty() { error.reason.clone() } else { error.to_string() });
    errors.collect::<Vec<_>>().join("; ")
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenderReport<'a> {
    schema_version: u32,
    node_name: &'a str,
    /// What the manifests are written for.
    kubelet_version: Option<String>,
    outcomes: Vec<OutcomeJson<'a>>,
    problems: Vec<JsonProblem<'a>>,
}

/// A path that cannot be read, or what `--strict` refuses.
#[derive(Serialize)]
struct JsonProblem<'a> {
    reason: &'a str,
    hint: Option<&'a str>,
}

/// What became of one DaemonSet or document.
#[derive(Serialize)]
#[serde(untagged)]
enum OutcomeJson<'a> {
    #[serde(rename_all = "camelCase")]
    DaemonSet {
        namespace: &'a str,
        name: &'a str,
        outcome: &'static str,
        reason: String,
        manifest: Option<String>,
        uid: Option<&'a str>,
        pod: Option<&'a str>,
        waiting_for: &'a [Missing],
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A document.
    Invalid { outcome: &'static str, file: String, line: usize, column: usize, reason: String },
}

/// `entries` without those that are to be files and could not be `written`, which an error says.
pub(super) fn without_lost(entries: &[RenderEntry], written: &BTreeSet<String>) -> Vec<RenderEntry> {
    let is_said = |entry: &&RenderEntry| match entry {
        RenderEntry::Rendered { rendered, .. } => written.contains(&rendered.file),
        _ => true,
    };
    entries.iter().filter(is_said).cloned().collect()
}

/// Where the manifests went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manifests<'a> {
    /// Into these files, which are named.
    Written(&'a BTreeSet<String>),
    /// Nowhere: their text is given.
    Inline,
}

/// The JSON; `problems`: what is wrong besides, each with its hint.
pub(super) fn json(
    entries: &[RenderEntry],
    unknown_fields: &UnknownFields,
    manifests: Manifests<'_>,
    options: &RenderOptions,
    problems: &[(String, Option<String>)],
) -> Result<String, CommandFailure> {
    let mut elements: Vec<OutcomeJson<'_>> = entries.iter().map(|entry| element(entry, manifests)).collect();
    for (entry, element) in entries.iter().zip(&mut elements) {
        let unknown_fields = entry.key().and_then(|key| unknown_fields.get(key));
        if let (OutcomeJson::DaemonSet { warnings, .. }, Some(unknown_fields)) = (element, unknown_fields) {
            *warnings = unknown_fields.iter().map(FieldError::with_hint).collect();
        }
    }
    output::json(&RenderReport {
        schema_version: 1,
        node_name: &options.node_name,
        kubelet_version: options.kubelet_version.map(|(major, minor)| format!("{major}.{minor}")),
        outcomes: elements,
        problems: problems.iter().map(|(reason, hint)| JsonProblem { reason, hint: hint.as_deref() }).collect(),
    })
}

fn element<'a>(entry: &'a RenderEntry, manifests: Manifests<'_>) -> OutcomeJson<'a> {
    match entry {
        RenderEntry::Rendered { key, identity, rendered } => OutcomeJson::DaemonSet {
            namespace: &key.namespace,
            name: &key.name,
            outcome: "rendered",
            reason: String::new(),
            manifest: match manifests {
                Manifests::Written(files) => {
                    files.contains(&rendered.file).then(|| format!("manifests/{}", rendered.file))
                }
                Manifests::Inline => Some(rendered.text.clone()),
            },
            uid: Some(&identity.uid),
            pod: Some(&identity.pod_name),
            waiting_for: entry.waiting_for(),
            warnings: Vec::new(),
            notes: rendered.pod.notes.iter().map(FieldError::with_hint).collect(),
        },
        RenderEntry::NotSelected { key, reason } => without_pod(key, "notSelected", reason.clone()),
        RenderEntry::Refused { key, errors, .. } => without_pod(key, "refused", join(errors)),
        RenderEntry::Invalid(problem) => OutcomeJson::Invalid {
            outcome: "invalid",
            file: problem.file.display().to_string(),
            line: problem.line,
            column: problem.column,
            reason: reason(problem),
        },
    }
}

fn without_pod<'a>(key: &'a ObjectKey, outcome: &'static str, reason: String) -> OutcomeJson<'a> {
    let ObjectKey { namespace, name } = key;
    let (manifest, uid, pod, waiting_for, warnings) = (None, None, None, &[], Vec::new());
    let notes = Vec::new();
    OutcomeJson::DaemonSet { namespace, name, outcome, reason, manifest, uid, pod, waiting_for, warnings, notes }
}

/// The problem without its place.
fn reason(problem: &InputProblem) -> String {
    let object = problem.object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default();
    let field = problem.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    format!("{object}{field}{}", problem.reason)
}

#[cfg(test)]
mod tests {
    use crate::core::input::ProblemKind;

    use super::*;

    #[test]
    fn an_object_that_was_given_lacks_its_key() {
        let missing = |key: &str| {
            let [kind, namespace, name] = ["ConfigMap", "a", "m"].map(str::to_owned);
            how_to_give(&Missing { kind, namespace, name, key: key.to_owned() })
        };
        assert_eq!(missing(""), "give the ConfigMap with -f");
        assert_eq!(missing("k"), "add the key k to data of the ConfigMap");
    }

    #[test]
    fn no_text_of_a_file_begins_a_line_of_its_own() {
        let key = ObjectKey::new("a", "d");
        let forged = || "x\nrendered a/other: b.yaml\r\n\u{2028}".to_owned();
        let error = |hint| FieldError { field: forged(), reason: forged(), hint };
        let source = Source::File { path: forged().into() };
        let problem = InputProblem {
            file: forged().into(),
            line: 1,
            column: 1,
            object: None,
            field: Some(forged()),
            reason: forged(),
            hint: Some(forged()),
            kind: ProblemKind::Syntax,
        };
        let entries = [
            RenderEntry::NotSelected { key: key.clone(), reason: forged() },
            RenderEntry::Refused { key: key.clone(), source, errors: vec![error(Some(forged())), error(None)] },
            RenderEntry::Invalid(problem),
        ];
        let unknown = UnknownFields::from([(key, vec![error(Some(forged()))])]);
        let text = lines(&entries, &unknown, Colour::none());
        assert_eq!(text.lines().count(), 3 + 4 + 2, "{text}");
        assert!(!text.contains(['\r', '\u{2028}']), "{text}");
        assert!(text.contains("not selected a/d: x\\nrendered a/other: b.yaml\\r\\n\\u2028\n"), "{text}");
    }
}
