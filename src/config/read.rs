//! Files into settings: which files count, in which order, and what each says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use toml::Value;
use toml::de::DeTable;
use toml::de::DeValue;

use crate::config::Config;
use crate::config::ConfigError;
use crate::config::ConfigOrigin;
use crate::config::ConfigProblem;
use crate::config::MAIN_FILE;
use crate::config::keys::KEYS;
use crate::regular_file;

/// The folders of drop-ins, the weakest first.
pub(super) const DROP_INS: [&str; 3] =
    ["/usr/lib/daemonlet/daemonlet.d", "/run/daemonlet/daemonlet.d", "/etc/daemonlet/daemonlet.d"];

/// The main file's places, of which the first that is there counts.
const MAIN_FILES: [&str; 3] = [MAIN_FILE, "/run/daemonlet/daemonlet.toml", "/usr/lib/daemonlet/daemonlet.toml"];

/// A file's path and text.
pub(super) type SourceFile = (PathBuf, String);

/// `file` and the drop-ins of its sibling folder `<stem>.d`.
pub(super) fn own_files(file: &Path) -> Result<Vec<SourceFile>, ConfigError> {
    let text = regular_file::read_text(file).map_err(|error| {
        let mut failed = unreadable(file, &error);
        let another = || "name another file with --config; `daemonlet init` writes one".to_owned();
        for problem in &mut failed.problems {
            problem.hint.get_or_insert_with(another);
        }
        failed
    })?;
    let mut files = vec![(file.to_owned(), text)];
    files.extend(drop_ins(&[file.with_extension("d")])?);
    Ok(files)
}

/// The `run-dir` of a configuration, whatever else is wrong with that.
pub(super) fn run_dir(file: Option<&Path>, root: &Path) -> Option<PathBuf> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let (main, folders) = match file {
        Some(file) => (Some(file.to_owned()), vec![file.with_extension("d")]),
        None => (MAIN_FILES.map(below).into_iter().find(|main| main.exists()), DROP_INS.map(below).to_vec()),
    };
    let files = main.into_iter().chain(drop_in_paths(&folders).0);
    let texts = files.filter_map(|path| regular_file::read_text(&path).ok());
    let of = |text: &str| {
        let own = text.lines().take_while(|line| !line.trim_start().starts_with('['));
        let line = own.filter(|line| line.trim_start().starts_with("run-dir")).last()?;
        let table: toml::Table = toml::from_str(line).ok()?;
        Some(PathBuf::from(table.get("run-dir")?.as_str()?))
    };
    texts.filter_map(|text| of(&text)).next_back().filter(|path| path.is_absolute())
}

/// The system's files below `root`: the main file of /etc, /run or /usr/lib (the first that
/// exists), then the drop-ins of all three (systemd.unit(5) has the same order).
pub(super) fn system_files(root: &Path) -> Result<Vec<SourceFile>, ConfigError> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mut files = Vec::new();
    for main in MAIN_FILES.map(below) {
        match regular_file::read_text(&main) {
            Ok(text) => {
                files.push((main, text));
                break;
            }
            Err(error) if is_absent(&main, &error) => {}
            Err(error) => return Err(unreadable(&main, &error)),
        }
    }
    files.extend(drop_ins(&DROP_INS.map(below))?);
    Ok(files)
}

/// The `*.toml` files of `folders` by name: a later folder's file replaces an earlier one's of the
/// same name, an empty one (also a link to /dev/null) masks it.
fn drop_ins(folders: &[PathBuf]) -> Result<Vec<SourceFile>, ConfigError> {
    let (paths, unlisted) = drop_in_paths(folders);
    if let Some(error) = unlisted {
        return Err(error);
    }
    let mut files = Vec::new();
    for path in paths {
        let text = regular_file::read_text(&path).map_err(|error| unreadable(&path, &error))?;
        if !text.is_empty() {
            files.push((path, text));
        }
    }
    Ok(files)
}

/// The paths of [`drop_ins`], as far as the folders can be listed, and the last error of one that cannot.
fn drop_in_paths(folders: &[PathBuf]) -> (Vec<PathBuf>, Option<ConfigError>) {
    let (mut by_name, mut failed) = (BTreeMap::new(), None);
    for folder in folders {
        let listed = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match &listed {
            Err(error) if !is_absent(folder, error) => failed = Some(unreadable(folder, error)),
            _ => {}
        }
        for path in listed.into_iter().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_owned();
            let hidden = name.to_string_lossy().starts_with('.');
            if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
                by_name.insert(name, path);
            }
        }
    }
    (by_name.into_values().collect(), failed)
}

/// Whether `path`, which could not be opened for `error`, is not there. Behind a link that leads nowhere it may be there later.
fn is_absent(path: &Path, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && dangling_link(path).is_none()
}

/// The link on the way to `path` that leads nowhere.
fn dangling_link(path: &Path) -> Option<&Path> {
    path.ancestors().find(|place| place.symlink_metadata().is_ok()).filter(|place| !place.exists())
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let message = format!("{}: cannot be read: {}", path.display(), reason(error));
    let hint = match error.kind() {
        io::ErrorKind::NotFound => dangling_link(path)
            .map(|link| format!("{} is a link that leads nowhere: correct it, or remove it", link.display())),
        io::ErrorKind::InvalidData => Some(format!("make {} a file of UTF-8 text, or a link to one", path.display())),
        io::ErrorKind::PermissionDenied => Some("run this as root".to_owned()),
        _ => None,
    };
    ConfigError { problems: vec![ConfigProblem { message, hint }] }
}

/// An I/O error in a message's style: `no such file or directory`.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// What `files` say together, on top of the defaults: a later file's key replaces an earlier file's.
pub(super) fn merge(files: &[SourceFile]) -> Result<Config, ConfigError> {
    merge_knowing(files, UnknownKeys::Wrong)
}

/// What a key counts as that this program does not have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum UnknownKeys {
    /// An error.
    Wrong,
    /// One of another version: it is not looked at.
    Foreign,
}

pub(super) fn merge_knowing(files: &[SourceFile], unknown: UnknownKeys) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let mut problems = Vec::new();
    for key in KEYS {
        let text = format!("default = {}", key.example);
        let read = DeTable::parse(&text).map_err(|error| error.to_string());
        let set = read.and_then(|table| (key.set)(&mut config, table.get_ref()["default"].get_ref()));
        config.origins.insert(key.path, ConfigOrigin::Default("default".to_owned()));
        problems.extend(set.err().map(|why| ConfigProblem { message: format!("{}: {why}", key.path), hint: None }));
    }
    for (path, text) in files {
        let mut reader = ConfigReader { path, text, config: &mut config, problems: Vec::new(), unknown };
        reader.file();
        reader.problems.sort_by_key(|(line, _)| *line);
        problems.extend(reader.problems.into_iter().map(|(_, problem)| problem));
    }
    if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
}

/// Takes over the settings of one file, and collects its errors.
struct ConfigReader<'a> {
    path: &'a Path,
    text: &'a str,
    config: &'a mut Config,
    problems: Vec<(usize, ConfigProblem)>,
    unknown: UnknownKeys,
}

impl ConfigReader<'_> {
    fn file(&mut self) {
        let table = match DeTable::parse(self.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                return self.problem(at, error.message().lines().collect::<Vec<_>>().join(", "), None);
            }
        };
        for (key, value) in &table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            match value.get_ref() {
                DeValue::Table(section) if is_section(name) => {
                    for (key, value) in section {
                        self.key(name, key.get_ref(), key.span().start, value.get_ref());
                    }
                }
                _ if is_section(name) => self.problem(at, format!("{name}: expected a table, [{name}]"), None),
                value => self.key("", name, at, value),
            }
        }
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn problem(&mut self, offset: usize, what: String, hint: Option<String>) {
        let line = self.line(offset);
        let message = format!("{}:{line}: {what}", self.path.display());
        self.problems.push((line, ConfigProblem { message, hint }));
    }

    fn key(&mut self, section: &str, name: &str, offset: usize, value: &DeValue<'_>) {
        let path = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        let Some(key) = KEYS.iter().find(|key| key.section() == section && key.name() == name) else {
            if self.unknown == UnknownKeys::Foreign {
                return;
            }
            let hint = suggestion(section, &path, value);
            return self.problem(offset, format!("unknown key \"{path}\""), Some(hint));
        };
        let before = (key.get)(self.config);
        match (key.set)(self.config, value) {
            Err(why) => self.problem(offset, format!("{path}: {why}"), None),
            Ok(()) => {
                let origin = ConfigOrigin::File { path: self.path.to_owned(), line: self.line(offset) };
                let earlier = self.config.origins.insert(key.path, origin.clone());
                if let Some(earlier @ ConfigOrigin::File { .. }) = earlier
                    && let lost = lost(&before, &(key.get)(self.config))
                    && !lost.is_empty()
                {
                    self.config.replaced.push(ConfigProblem {
                        message: format!(
                            "{origin}: {path} replaces that of {earlier}: {} no longer counts",
                            lost.join(", ")
                        ),
                        hint: Some(
                            "a later file replaces lists and tables as a whole: write there all that is to count"
                                .to_owned(),
                        ),
                    });
                }
            }
        }
    }
}

/// The items of the list or table `before` that `after` does not have.
fn lost(before: &Value, after: &Value) -> Vec<String> {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            before.iter().filter(|item| !after.contains(item)).map(Value::to_string).collect()
        }
        (Value::Table(before), Value::Table(after)) => {
            before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("{name:?}")).collect()
        }
        _ => Vec::new(),
    }
}

fn is_section(name: &str) -> bool {
    !name.is_empty() && KEYS.iter().any(|key| key.section() == name)
}

/// The key that was probably meant: the same name in another section, or the nearest spelling.
fn suggestion(section: &str, path: &str, value: &DeValue<'_>) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).replace('_', "-");
    if let Some(key) = KEYS.iter().find(|key| key.name() == name) {
        return match (key.section(), key.section() == section) {
            (_, true) => format!("did you mean \"{}\"?", key.path),
            ("", false) => format!("\"{name}\" belongs to the top of the file, before any [section]"),
            (other, false) => format!("\"{name}\" belongs to the section [{other}]"),
        };
    }
    let candidates = KEYS.iter().map(|key| match value {
        DeValue::Table(_) if section.is_empty() => key.section(),
        _ => key.path,
    });
    let nearest = candidates
        .map(|candidate| (strsim::damerau_levenshtein(path, candidate), candidate))
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((distance, candidate)) if distance <= 3.max(candidate.len() / 4) => {
            format!("did you mean \"{candidate}\"?")
        }
        _ => "`daemonlet help configuration` lists every key".to_owned(),
    }
}
