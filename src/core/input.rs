//! From the text of a file to the objects in it, each problem with its position.
//!
//! Owns the sequence `yaml` → `convert` → `validate` and the problem report. One bad document or object never hides
//! the others. Must not read files or decide which files apply.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;

use crate::core::convert;
use crate::core::convert::DocumentObject;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::policy;
use crate::core::validate;
use crate::core::yaml;
use crate::core::yaml::YamlFault;

/// The hint for a document that looks like a template a tool should have rendered.
const TEMPLATE: &str = "this is a template: let its tool (helm template, kustomize build, …) fill it in first";

/// The hint for a key that is set twice.
const SET_TWICE: &str = "kubectl takes the last one; remove the other";

/// The most problems that are reported of one file.
const MAX_PROBLEMS: usize = 100;

/// What a problem makes of its document or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ProblemKind {
    /// The file or document cannot be read, so the objects in it are unknown.
    Syntax,
    /// The API server would not accept the object.
    Invalid,
    /// A field is unknown and ignored; the object may be valid without it.
    UnknownField,
}

/// An object as its own document names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ObjectName {
    /// `kind`, such as `DaemonSet`.
    pub kind: String,
    /// Namespace and name.
    pub key: ObjectKey,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// What is wrong in a file, and where. Printed as `file:line:column: object: field: reason`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InputProblem {
    pub file: PathBuf,
    /// Line in the file, from 1: of the error itself (syntax), else where the document begins. 0: the file as a whole.
    pub line: usize,
    /// Column, from 1; 0 where there is none.
    pub column: usize,
    /// The object, if its document names it.
    pub object: Option<ObjectName>,
    /// The path of the field, if one field is wrong.
    pub field: Option<String>,
    /// What is wrong, in lower case without a full stop.
    pub reason: String,
    /// What to do about it, if there is something to do.
    pub hint: Option<String>,
    pub kind: ProblemKind,
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.what())
    }
}

impl InputProblem {
    /// The file, with line and column if known.
    pub fn place(&self) -> String {
        let number = |number: usize| if number > 0 { format!(":{number}") } else { String::new() };
        format!("{}{}{}", self.file.display(), number(self.line), number(self.column))
    }

    /// The object and the field if known, and the reason.
    pub fn what(&self) -> String {
        let object = self.object.iter().map(ToString::to_string);
        object.chain(self.field.clone()).chain([self.reason.clone()]).collect::<Vec<_>>().join(": ")
    }
}

/// An object of a kind that this program does not read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ignored {
    /// `apiVersion kind`.
    pub kind: String,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// The line on which its document begins.
    pub line: usize,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedFile {
    /// The DaemonSets, valid and as apps/v1, in the file's order.
    pub daemon_sets: Vec<DaemonSet>,
    /// Those of them that were written in an API version that Kubernetes has removed, and that version.
    pub outdated: Vec<(ObjectKey, String)>,
    /// The other objects that this program reads.
    pub objects: Vec<(ObjectRef, Value)>,
    /// The objects of other kinds.
    pub ignored: Vec<Ignored>,
    pub problems: Vec<InputProblem>,
    /// Fields of valid objects that do not exist in the API, and are ignored.
    pub unknown_fields: Vec<InputProblem>,
    /// Whether no document is in it, as in a file of comments.
    pub is_blank: bool,
}

impl ParsedFile {
    /// Whether a document could not be read, so that it is unknown which objects the file should define.
    pub fn is_incomplete(&self) -> bool {
        self.problems.iter().any(|problem| problem.object.is_none())
    }
}

/// The objects in `text`, the content of the file `path`.
pub fn parse_file(path: &Path, text: &str) -> ParsedFile {
    let mut file = ParsedFile::default();
    let documents = yaml::read_documents(text);
    if documents.iter().all(|document| document.value == Ok(Value::Null)) {
        return ParsedFile { is_blank: true, ..file };
    }
    let mut left_out = LeftOut::default();
    for document in documents {
        left_out.take(&mut file.problems);
        match document.value {
            Ok(value) => read_document(path, document.line, value, &mut file),
            Err(_) if file.problems.len() == MAX_PROBLEMS => left_out.count_unnamed(),
            Err(error) => file.problems.push(InputProblem {
                file: path.to_owned(),
                line: error.line,
                column: error.column,
                object: None,
                field: None,
                reason: error.message,
                hint: match error.fault {
                    YamlFault::KeySetTwice => Some(SET_TWICE.to_owned()),
                    _ => is_template(text, error.line).then(|| TEMPLATE.to_owned()),
                },
                kind: ProblemKind::Syntax,
            }),
        }
    }
    file.problems = with_left_out(file.problems, left_out);
    file.unknown_fields = bounded(file.unknown_fields);
    file
}

/// The first 100 of `problems`, with one of each object, and one that counts the others.
pub fn bounded(problems: Vec<InputProblem>) -> Vec<InputProblem> {
    with_left_out(problems, LeftOut::default())
}

/// As [`bounded`], where some were `left_out` before.
fn with_left_out(mut problems: Vec<InputProblem>, mut left_out: LeftOut) -> Vec<InputProblem> {
    left_out.take(&mut problems);
    if let Some(last) = problems.last().filter(|_| left_out.count > 0) {
        let reason = format!("and {} more problems after the first {MAX_PROBLEMS}", left_out.count);
        let hint = Some("mend those that are named first".to_owned());
        let object = left_out.last.filter(|_| !left_out.is_any);
        problems.push(InputProblem { column: 0, object, field: None, reason, hint, ..last.clone() });
    }
    problems
}

/// Problems that are only counted.
#[derive(Default)]
struct LeftOut {
    count: usize,
    /// What the last of them is of, if that is named.
    last: Option<ObjectName>,
    /// Whether one of them names no object that the reported ones name: it may be of any object.
    is_any: bool,
}

impl LeftOut {
    fn count_unnamed(&mut self) {
        self.count += 1;
        self.is_any = true;
    }

    /// Leaves the first 100 of `problems`, where each object keeps one, and counts the others.
    fn take(&mut self, problems: &mut Vec<InputProblem>) {
        if problems.len() <= MAX_PROBLEMS {
            return;
        }
        let mut named = BTreeSet::new();
        let firsts = problems.iter().map(|p| p.object.as_ref().is_some_and(|object| named.insert(object.clone())));
        let firsts: Vec<bool> = firsts.collect();
        let mut room = MAX_PROBLEMS.saturating_sub(named.len());
        let mut kept = Vec::with_capacity(MAX_PROBLEMS + 1);
        for (problem, is_first) in std::mem::take(problems).into_iter().zip(firsts) {
            if kept.len() < MAX_PROBLEMS && (is_first || room > 0) {
                room -= usize::from(!is_first);
                kept.push(problem);
                continue;
            }
            self.count += 1;
            self.is_any |= is_first || problem.object.is_none();
            self.last = problem.object;
        }
        *problems = kept;
    }
}

/// Whether `line` of `text` (from 1) looks like a template language.
fn is_template(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.contains("{{") || line.contains("{%")
}

fn read_document(path: &Path, line: usize, value: Value, file: &mut ParsedFile) {
    let invalid = |object: Option<ObjectName>, error: FieldError| InputProblem {
        file: path.to_owned(),
        line,
        column: 0,
        object,
        field: Some(error.field).filter(|field| !field.is_empty()),
        reason: error.reason,
        hint: error.hint,
        kind: ProblemKind::Invalid,
    };
    for object in convert::objects(value) {
        match object {
            Ok(DocumentObject::DaemonSet { object: value, api_version }) => {
                let name = convert::name_of(&value);
                let unknown_field =
                    |error| InputProblem { kind: ProblemKind::UnknownField, ..invalid(name.clone(), error) };
                let unknown_fields = validate::unknown_fields(&value).into_iter().map(unknown_field);
                match policy::checked(&value, Source::File { path: path.to_owned() }) {
                    Ok(daemon_set) => {
                        if api_version != "apps/v1" {
                            file.outdated.push((daemon_set.key.clone(), api_version));
                        }
                        file.unknown_fields.extend(unknown_fields);
                        file.daemon_sets.push(daemon_set);
                    }
                    Err(errors) => {
                        file.problems.extend(errors.into_iter().map(|error| invalid(name.clone(), error)));
                        // What is required may be there under a misspelt name.
                        file.problems.extend(unknown_fields);
                    }
                }
            }
            Ok(DocumentObject::Other(reference, value)) => file.objects.push((reference, value)),
            Ok(DocumentObject::Ignored { kind, key }) => file.ignored.push(Ignored { kind, key, line }),
            Err(refused) => file.problems.push(invalid(refused.object, refused.error)),
        }
    }
}

#[cfg(test)]
mod tests;
