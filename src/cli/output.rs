//! Text to the two streams.

use std::io;
use std::io::IsTerminal;
use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::config;
use crate::core::escape;
use crate::core::yaml;
use crate::log;

/// How wide help and a table on a terminal are at most. Help takes 100 columns where there is no terminal.
pub(super) const COLUMNS: usize = 120;
/// A terminal that reports fewer columns does not know its width.
pub(super) const NARROWEST: usize = 20;

/// How wide lines of standard output may be: as the terminal, as `COLUMNS` says where there is none, and at most
/// [`COLUMNS`].
pub(super) fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(said).filter(|columns| *columns >= NARROWEST).unwrap_or(COLUMNS).min(COLUMNS)
}

/// How wide a table may be: it fits a terminal, unless `is_wide` asks for all of it, and is whole in a pipe.
pub(super) fn table_width(is_wide: bool) -> usize {
    if is_wide || !io::stdout().is_terminal() { usize::MAX } else { COLUMNS }
}

/// What is printed after a table that was cut.
pub(super) const CUT: &str = "hint: -o wide shows what is cut\n";

/// Writes text to standard output, without anything that a terminal would obey. A closed reader is no
/// error.
pub(super) fn data(text: &str) -> Result<(), CommandFailure> {
    as_it_is(&escape::terminal(text)).map(|_| ())
}

/// Writes each of `lines` to standard output as one line, whatever it holds.
pub(super) fn lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), CommandFailure> {
    data(&lines.into_iter().map(line).collect::<String>())
}

/// A text that quotes other sources, as one line.
pub(super) fn line(text: impl AsRef<str>) -> String {
    format!("{}\n", escape::line(text.as_ref()))
}

/// The report with every text as one line.
pub(super) fn printable<T: Clone + Serialize + DeserializeOwned>(report: &T) -> T {
    let escaped = serde_json::to_value(report).and_then(|mut value| {
        escape::values(&mut value);
        serde_json::from_value(value)
    });
    escaped.unwrap_or_else(|_| report.clone())
}

/// Writes bytes that are no text for people; gives whether anybody reads on.
pub(super) fn as_it_is(text: &str) -> Result<bool, CommandFailure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritten(&error)),
    }
}

/// Writes YAML: as it is, but for a terminal with what it would obey or hide in YAML's own escapes.
pub(super) fn yaml(manifests: &[String]) -> Result<(), CommandFailure> {
    let text = |manifest: &String| match io::stdout().is_terminal() {
        true => format!("---\n{}", yaml::for_terminal(manifest)),
        false => format!("---\n{manifest}"),
    };
    as_it_is(&manifests.iter().map(text).collect::<String>()).map(|_| ())
}

/// Standard output takes no more.
pub(super) fn unwritten(error: &io::Error) -> CommandFailure {
    let why = config::io_reason(error);
    CommandFailure::new(Exit::Unreadable, format!("standard output: cannot be written: {why}"))
}

/// `value` as JSON that a person can read too.
pub(super) fn json(value: &impl Serialize) -> Result<String, CommandFailure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| CommandFailure::new(Exit::Refused, format!("JSON: {error}")))
}

/// Writes errors, each with its hint, to standard error.
pub(super) fn errors(errors: &[(String, Option<String>)]) {
    let colour = Colour::new(&io::stderr());
    let mut text = String::new();
    for (message, hint) in errors {
        text.push_str(&format!("{} {}", colour.red("error:"), line(message)));
        if let Some(hint) = hint {
            text.push_str(&format!("{} {}", colour.cyan("hint:"), line(hint)));
        }
    }
    let _ = io::stderr().write_all(escape::terminal(&text).as_bytes());
}

/// Writes remarks for people to standard error.
pub(super) fn remarks(text: &str) {
    let _ = io::stderr().write_all(escape::terminal(text).as_bytes());
}

/// Colours for a terminal, nothing for anything else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Colour(bool);

impl Colour {
    /// Colours if `stream` may have them.
    pub(super) fn new(stream: &impl IsTerminal) -> Self {
        Self(log::has_colours(stream))
    }

    /// Colours for a test.
    #[cfg(test)]
    pub(super) fn all() -> Self {
        Self(true)
    }

    /// No colours.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self(false)
    }

    /// `text` as one line in this colour, and in no other.
    fn paint(self, code: &str, text: &str) -> String {
        let text = escape::line(text);
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into_owned() }
    }

    /// Something is wrong.
    pub(super) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// All is well.
    pub(super) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Something to look at.
    pub(super) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Something to know.
    pub(super) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// Asserts that no text in `report` begins a line of its own or has a colour where `shown` shows it to people.
#[cfg(test)]
pub(super) fn assert_unforgeable<T: Serialize + DeserializeOwned>(report: &T, shown: impl Fn(&T) -> String) {
    const FORGED: &str = "\n\x1b[32mforged\x1b[0m\r";
    fn texts(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(_) => found.push(path.to_owned()),
            serde_json::Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| texts(item, &format!("{path}/{index}"), found));
            }
            serde_json::Value::Object(members) => {
                members.iter().for_each(|(name, member)| texts(member, &format!("{path}/{name}"), found));
            }
            _ => {}
        }
    }
    let read = |value: &serde_json::Value| serde_json::from_value::<T>(value.clone());
    let (mut value, mut paths, mut forged) = (serde_json::to_value(report).unwrap(), Vec::new(), 0);
    texts(&value, "", &mut paths);
    for path in paths {
        let mut other = value.clone();
        let text = other.pointer_mut(&path).unwrap();
        *text = format!("{}{FORGED}", text.as_str().unwrap()).into();
        // An enum value, such as a state or a mode, cannot be replaced.
        if read(&other).is_ok() {
            (value, forged) = (other, forged + 1);
        }
    }
    let (plain, shown) = (shown(report), shown(&read(&value).unwrap()));
    assert!(forged > 0 && shown.contains("\\u001b[32mforged"), "{shown}");
    assert!(!shown.contains(['\x1b', '\r']), "{shown:?}");
    assert_eq!(shown.lines().count(), plain.lines().count(), "{shown}");
}
