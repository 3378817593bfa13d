//! What `render` reads: files, folders and standard input.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::render::report::RenderEntry;
use crate::config;
use crate::core::annotations;
use crate::core::escape;
use crate::core::input;
use crate::core::input::InputProblem;
use crate::core::input::ObjectName;
use crate::core::input::ParsedFile;
use crate::core::input::ProblemKind;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::node;
use crate::core::yaml;

/// The hint for a DaemonSet of an API version that is gone.
const APPS_V1: &str =
    "write `apiVersion: apps/v1`, which needs `spec.selector`; `updateStrategy` is then RollingUpdate if not written";

/// Everything that was read. Of objects that are there twice the last counts, as with `kubectl apply`.
#[derive(Debug, Default)]
pub(in crate::cli) struct RenderInputs {
    pub(in crate::cli) daemon_sets: BTreeMap<ObjectKey, Arc<DaemonSet>>,
    /// The other objects.
    pub(in crate::cli) objects: BTreeMap<ObjectRef, Value>,
    /// The unknown fields of the DaemonSets.
    pub(super) unknown_fields: UnknownFields,
    /// DaemonSets that validation refuses.
    pub(in crate::cli) refused: Vec<RenderEntry>,
    /// Documents that do not parse, or hold no valid object.
    pub(in crate::cli) invalid: Vec<RenderEntry>,
    /// Paths that cannot be read: the message, and no hint.
    pub(in crate::cli) unreadable: Vec<(String, Option<String>)>,
    /// What `--strict` refuses, each with its hint: objects that are there twice, or of an API version that is gone,
    /// annotations and labels of ours that are mistakes, and what is no file.
    pub(super) doubtful: Vec<(String, Option<String>)>,
    /// The file in which each object was last read.
    seen: BTreeMap<ObjectName, PathBuf>,
}

impl RenderInputs {
    /// Adds to the unknown fields of each DaemonSet the annotations and labels of ours that are not understood on the objects
    /// that it uses.
    pub(super) fn add_mistakes_on_objects(&mut self, entries: &[RenderEntry]) {
        for entry in entries {
            let RenderEntry::Rendered { key, rendered, .. } = entry else { continue };
            for reference in &rendered.pod.references {
                let Some(object) = self.objects.get(reference) else { continue };
                let name = ObjectName { kind: reference.kind.as_str().to_owned(), key: reference.key.clone() };
                let file = self.seen.get(&name).map(|file| file.display().to_string()).unwrap_or_default();
                let mistakes = annotations::mistakes_on(reference.kind, object)
                    .into_iter()
                    .map(|mistake| FieldError { field: format!("{file}: {reference}: {}", mistake.field), ..mistake });
                self.unknown_fields.entry(key.clone()).or_default().extend(mistakes);
            }
        }
    }
}

/// The unknown fields of DaemonSets, by the DaemonSets' names.
pub(super) type UnknownFields = BTreeMap<ObjectKey, Vec<FieldError>>;

/// Reads `paths` in order.
pub(in crate::cli) fn read(paths: &[PathBuf]) -> RenderInputs {
    let mut inputs = RenderInputs::default();
    for path in paths {
        inputs.doubtful.extend(passed_over(path));
        for (name, text) in texts(path) {
            match text {
                Ok(text) => add(&mut inputs, &name, &text),
                Err(error) => {
                    let why = config::io_reason(&error);
                    inputs.unreadable.push((format!("{}: cannot be read: {why}", name.display()), None));
                }
            }
        }
    }
    inputs
}

/// The message if `paths` have no DaemonSet.
pub(in crate::cli) fn nothing_in(paths: &[PathBuf]) -> String {
    let hint = match paths.iter().any(|path| path.is_dir()) {
        true => "hint: of a folder only its own *.yaml, *.yml and *.json are read, not its subfolders\n",
        false => "",
    };
    format!("no DaemonSet in what was read\n{hint}")
}

/// The Node in the file `path`.
pub(super) fn node(path: &Path) -> Result<NodeView, CommandFailure> {
    let fail = |why: String| CommandFailure::new(Exit::Unreadable, format!("{}: {why}", path.display()));
    let text = text(path).map_err(|error| fail(format!("cannot be read: {}", config::io_reason(&error))))?;
    let documents = yaml::read_documents(&text);
    let [document] = documents.as_slice() else {
        return Err(fail(format!("expected one Node, not {} documents", documents.len())));
    };
    match &document.value {
        Ok(value) if value["kind"].is_null() => Err(fail("expected a Node, not something without a kind".to_owned())),
        Ok(value) => node::view(value).map_err(|error| fail(error.to_string())),
        Err(error) => Err(fail(format!("line {}: {}", error.line, error.message))),
    }
}

type NamedText = (PathBuf, io::Result<String>);

/// The texts at `path`: one file, standard input (`-`), or a folder's files by name.
fn texts(path: &Path) -> Vec<NamedText> {
    if path == Path::new("-") {
        return vec![(PathBuf::from("<stdin>"), bounded(io::stdin()))];
    }
    if !path.is_dir() {
        return vec![(path.to_owned(), text(path))];
    }
    let files = fs::read_dir(path).and_then(|entries| {
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
        paths
    });
    match files {
        Err(error) => vec![(path.to_owned(), Err(error))],
        Ok(mut files) => {
            files.retain(|file| has_known_extension(file) && is_readable_kind(file));
            files.sort();
            files.into_iter().map(|file| (file.clone(), text(&file))).collect()
        }
    }
}

/// What the folder `path` has under the name of a file and what is neither one nor a folder, nor masks another file.
fn passed_over(path: &Path) -> Vec<(String, Option<String>)> {
    let is_mask = |file: &Path| fs::canonicalize(file).is_ok_and(|target| target == Path::new("/dev/null"));
    let mut found: Vec<PathBuf> =
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.retain(|file| has_known_extension(file) && !is_readable_kind(file) && !file.is_dir() && !is_mask(file));
    found.sort();
    let said = |file: &PathBuf| format!("{}: it is not a regular file, which --strict refuses", file.display());
    found.iter().map(|file| (said(file), Some("put a regular file in its place, or remove it".to_owned()))).collect()
}

fn text(path: &Path) -> io::Result<String> {
    bounded(fs::File::open(path)?)
}

/// All of `reader`; what is longer than any document, as a device without an end, or is not UTF-8 is an error that says so.
fn bounded(reader: impl Read) -> io::Result<String> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    reader.take(yaml::MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > yaml::MAX_TEXT {
        return Err(invalid("it is longer than 10 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))
}

/// Whether `path` is a file, or cannot be looked at, which is reported later: a pipe would be waited for without end.
fn is_readable_kind(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

/// The extensions that kubectl takes from a folder (`resource.FileExtensions`).
fn has_known_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

fn add(inputs: &mut RenderInputs, path: &Path, text: &str) {
    let parsed = input::parse_file(path, text);
    add_doubtful(inputs, path, &parsed);
    for daemon_set in parsed.daemon_sets {
        let of_it = |unknown_field: &&InputProblem| {
            unknown_field.object.as_ref().is_some_and(|object| object.key == daemon_set.key)
        };
        let unknown = parsed.unknown_fields.iter().filter(of_it).map(|unknown_field| FieldError {
            field: format!("{}: {}", unknown_field.place(), unknown_field.field.as_deref().unwrap_or_default()),
            reason: unknown_field.reason.clone(),
            hint: unknown_field.hint.clone(),
        });
        let in_file = |error: FieldError| FieldError { field: format!("{}: {}", path.display(), error.field), ..error };
        inputs.doubtful.extend(annotations::mistakes(&daemon_set).into_iter().map(|mistake| {
            let FieldError { field, reason, hint } = in_file(mistake);
            let said = format!("{}: {field}: {reason}, which --strict refuses", daemon_set.key);
            (escape::line(&said).into_owned(), hint)
        }));
        let found = unknown.chain(annotations::unknown_fields(&daemon_set).into_iter().map(in_file)).collect();
        inputs.unknown_fields.insert(daemon_set.key.clone(), found);
        inputs.daemon_sets.insert(daemon_set.key.clone(), Arc::new(daemon_set));
    }
    for (reference, object) in &parsed.objects {
        inputs.doubtful.extend(annotations::mistakes_on(reference.kind, object).into_iter().map(|mistake| {
            let FieldError { field, reason, hint } = mistake;
            let said = format!("{reference}: {}: {field}: {reason}, which --strict refuses", path.display());
            (escape::line(&said).into_owned(), hint)
        }));
    }
    inputs.objects.extend(parsed.objects);
    for problem in parsed.problems {
        add_problem(inputs, problem);
    }
}

/// Notes objects that are there twice, and those of API versions that are gone.
fn add_doubtful(inputs: &mut RenderInputs, path: &Path, parsed: &ParsedFile) {
    let daemon_sets = parsed.daemon_sets.iter().map(|daemon_set| ("DaemonSet", &daemon_set.key));
    let others = parsed.objects.iter().map(|(object, _)| (object.kind.as_str(), &object.key));
    for (kind, key) in daemon_sets.chain(others) {
        let name = ObjectName { kind: kind.to_owned(), key: key.clone() };
        if let Some(before) = inputs.seen.insert(name.clone(), path.to_owned()) {
            let both = match before == path {
                true => path.display().to_string(),
                false => format!("{} and in {}", before.display(), path.display()),
            };
            let twice = format!("{name} is there twice, in {both}, which --strict refuses");
            inputs.doubtful.push((twice, Some("the last one counts; remove the other".to_owned())));
        }
    }
    for (key, version) in &parsed.outdated {
        let removed = format!(
            "DaemonSet {key} in {} has apiVersion {version}, removed in Kubernetes 1.16, which --strict refuses",
            path.display()
        );
        inputs.doubtful.push((removed, Some(APPS_V1.to_owned())));
    }
}

/// A DaemonSet that is not valid is refused, all its fields in one entry; anything else is invalid.
fn add_problem(inputs: &mut RenderInputs, problem: InputProblem) {
    let daemon_set = problem.object.as_ref().filter(|object| object.kind == "DaemonSet" && !object.key.name.is_empty());
    let (Some(object), ProblemKind::Invalid | ProblemKind::UnknownField) = (daemon_set, problem.kind) else {
        inputs.invalid.push(RenderEntry::Invalid(problem));
        return;
    };
    let field = problem.field.clone().unwrap_or_default();
    let error = FieldError { field, reason: problem.reason.clone(), hint: problem.hint.clone() };
    for entry in &mut inputs.refused {
        if let RenderEntry::Refused { key, errors, .. } = entry
            && *key == object.key
        {
            errors.push(error);
            return;
        }
    }
    let source = Source::File { path: problem.file };
    inputs.refused.push(RenderEntry::Refused { key: object.key.clone(), source, errors: vec![error] });
}
