//! What keys take: how a TOML value is read and checked, how it is printed, and the message for a wrong one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use crate::config::Listen;
use crate::config::LogTarget;
use crate::config::check;
use crate::core::model::Mode;
use crate::core::model::Taint;
use crate::core::pass::MaxRemovals;
use crate::core::policy::Grant;
use crate::core::policy::PortRange;
use crate::core::policy::Share;
use crate::core::policy::pod_security::PodSecurityLevel;
use crate::core::render::Endpoint;

/// What a key takes: values of the type `T`.
pub(super) trait ValueKind<T> {
    /// Reads `value`; the error says what is expected.
    fn read(&self, value: &DeValue<'_>) -> Result<T, String>;
    /// The value as a file would have it.
    fn print(&self, value: &T) -> Value;
    /// What it takes, for the manual.
    fn takes(&self) -> String;
}

/// One string.
#[derive(Clone, Copy)]
pub(super) struct TextKind<T> {
    /// What is expected, for messages.
    what: &'static str,
    takes: &'static str,
    parse: fn(&str) -> Result<T, String>,
    print: fn(&T) -> String,
}

const fn text<T>(what: &'static str, parse: fn(&str) -> Result<T, String>, print: fn(&T) -> String) -> TextKind<T> {
    TextKind { what, takes: "\"...\"", parse, print }
}

impl<T> TextKind<T> {
    /// Itself with what the manual says that it takes.
    const fn taking(self, takes: &'static str) -> Self {
        Self { takes, ..self }
    }
}

impl<T> ValueKind<T> for TextKind<T> {
    fn read(&self, value: &DeValue<'_>) -> Result<T, String> {
        let DeValue::String(text) = value else { return Err(expected(self.what, value)) };
        (self.parse)(text)
    }

    fn print(&self, value: &T) -> Value {
        Value::String((self.print)(value))
    }

    fn takes(&self) -> String {
        self.takes.to_owned()
    }
}

/// One string; `""` is none.
pub(super) struct Optional<T>(pub(super) TextKind<T>);

impl<T> ValueKind<Option<T>> for Optional<T> {
    fn read(&self, value: &DeValue<'_>) -> Result<Option<T>, String> {
        match value {
            DeValue::String(text) if text.is_empty() => Ok(None),
            DeValue::String(text) => (self.0.parse)(text).map(Some),
            other => Err(expected(&format!("{} or \"\"", self.0.what), other)),
        }
    }

    fn print(&self, value: &Option<T>) -> Value {
        value.as_ref().map_or(Value::String(String::new()), |value| self.0.print(value))
    }

    fn takes(&self) -> String {
        format!("{} | \"\"", self.0.takes)
    }
}

/// A list of strings, which its text names.
pub(super) struct List<T>(pub(super) TextKind<T>);

impl<T> ValueKind<Vec<T>> for List<T> {
    fn read(&self, value: &DeValue<'_>) -> Result<Vec<T>, String> {
        let DeValue::Array(items) = value else { return Err(expected(self.0.what, value)) };
        items.iter().map(|item| self.0.read(item.get_ref())).collect()
    }

    fn print(&self, value: &Vec<T>) -> Value {
        Value::Array(value.iter().map(|item| self.0.print(item)).collect())
    }

    fn takes(&self) -> String {
        format!("[{}, ...]", self.0.takes)
    }
}

/// One of these words.
pub(super) struct Words<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Clone + PartialEq> ValueKind<T> for Words<T> {
    fn read(&self, value: &DeValue<'_>) -> Result<T, String> {
        let meant = self.0.iter().find(|(word, _)| matches!(value, DeValue::String(text) if text == word));
        meant.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
            let words: Vec<String> = self.0.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let (last, rest) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last.as_str(), rest));
            expected(&format!("{} or {last}", rest.join(", ")), value)
        })
    }

    fn print(&self, value: &T) -> Value {
        let word = self.0.iter().find(|(_, meaning)| meaning == value).map_or("", |(word, _)| word);
        Value::String(word.to_owned())
    }

    fn takes(&self) -> String {
        self.0.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" | ")
    }
}

/// `true` or `false`.
pub(super) struct Truth;

impl ValueKind<bool> for Truth {
    fn read(&self, value: &DeValue<'_>) -> Result<bool, String> {
        if let DeValue::Boolean(value) = value { Ok(*value) } else { Err(expected("true or false", value)) }
    }

    fn print(&self, value: &bool) -> Value {
        Value::Boolean(*value)
    }

    fn takes(&self) -> String {
        "true | false".to_owned()
    }
}

/// A number, `half` or `off`.
pub(super) struct Removals;

impl ValueKind<MaxRemovals> for Removals {
    fn read(&self, value: &DeValue<'_>) -> Result<MaxRemovals, String> {
        let removals = match value {
            DeValue::Integer(number) => {
                usize::from_str_radix(number.as_str(), number.radix()).ok().map(MaxRemovals::Count)
            }
            DeValue::String(word) if word == "half" => Some(MaxRemovals::HalfAndTwo),
            DeValue::String(word) if word == "off" => Some(MaxRemovals::Off),
            _ => None,
        };
        removals.ok_or_else(|| expected("a number, \"half\" or \"off\"", value))
    }

    fn print(&self, value: &MaxRemovals) -> Value {
        match value {
            MaxRemovals::HalfAndTwo => Value::String("half".to_owned()),
            MaxRemovals::Off => Value::String("off".to_owned()),
            MaxRemovals::Count(number) => Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX)),
        }
    }

    fn takes(&self) -> String {
        "\"half\" | \"off\" | number".to_owned()
    }
}

/// A table of labels.
pub(super) struct Labels;

impl ValueKind<BTreeMap<String, String>> for Labels {
    fn read(&self, value: &DeValue<'_>) -> Result<BTreeMap<String, String>, String> {
        let DeValue::Table(table) = value else {
            return Err(expected("a table of labels such as { zone = \"a\" }", value));
        };
        let label = |(key, value): (&str, &DeValue<'_>)| {
            check::label_key(key)?;
            let text = LABEL_VALUE.read(value).map_err(|why| format!("label \"{key}\": {why}"))?;
            Ok((key.to_owned(), text))
        };
        table.iter().map(|(key, value)| label((key.get_ref(), value.get_ref()))).collect()
    }

    fn print(&self, value: &BTreeMap<String, String>) -> Value {
        Value::Table(value.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect())
    }

    fn takes(&self) -> String {
        "{ label = \"value\", ... }".to_owned()
    }
}

/// Ports of the host: numbers, or texts such as `9100-9110`.
struct Ports;

impl ValueKind<Vec<PortRange>> for Ports {
    fn read(&self, value: &DeValue<'_>) -> Result<Vec<PortRange>, String> {
        let DeValue::Array(items) = value else { return Err(expected(check::PORTS, value)) };
        let of = |item: &DeValue<'_>| match item {
            DeValue::Integer(number) if number.radix() == 10 => check::ports(number.as_str()),
            DeValue::String(text) => check::ports(text),
            other => Err(expected(check::PORTS, other)),
        };
        items.iter().map(|item| of(item.get_ref())).collect()
    }

    fn print(&self, value: &Vec<PortRange>) -> Value {
        Value::Array(value.iter().map(|range| Value::String(range.to_string())).collect())
    }

    fn takes(&self) -> String {
        "[port, \"first-last\", ...]".to_owned()
    }
}

/// A table of grants by namespace.
pub(super) struct Grants;

impl ValueKind<BTreeMap<String, Grant>> for Grants {
    fn read(&self, value: &DeValue<'_>) -> Result<BTreeMap<String, Grant>, String> {
        let DeValue::Table(table) = value else { return Err(expected("a table of grants by namespace", value)) };
        let of = |(namespace, value): (&str, &DeValue<'_>)| {
            check::granted_namespace(namespace)?;
            let grant = grant(value).map_err(|why| format!("\"{namespace}\": {why}"))?;
            Ok((namespace.to_owned(), grant))
        };
        table.iter().map(|(key, value)| of((key.get_ref(), value.get_ref()))).collect()
    }

    fn print(&self, value: &BTreeMap<String, Grant>) -> Value {
        let of = |grant: &Grant| {
            let lists = [
                ("host-ports", Ports.print(&grant.host_ports)),
                ("host-paths", List(HOST_PATHS).print(&grant.host_paths)),
                ("volume-types", List(VOLUME_TYPES).print(&grant.volume_types)),
                ("annotations", List(PATTERNS).print(&grant.annotations)),
            ];
            Value::Table(lists.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        Value::Table(value.iter().map(|(namespace, grant)| (namespace.clone(), of(grant))).collect())
    }

    fn takes(&self) -> String {
        "{ namespace = { host-ports = [...], host-paths = [...], volume-types = [...], annotations = [...] }, ... }"
            .to_owned()
    }
}

fn grant(value: &DeValue<'_>) -> Result<Grant, String> {
    let DeValue::Table(table) = value else {
        return Err(expected("a table of host-ports, host-paths, volume-types, annotations", value));
    };
    let mut grant = Grant::default();
    for (key, value) in table {
        let (key, value) = (key.get_ref(), value.get_ref());
        let read = match key.as_ref() {
            "host-ports" => Ports.read(value).map(|ports| grant.host_ports = ports),
            "host-paths" => List(HOST_PATHS).read(value).map(|paths| grant.host_paths = paths),
            "volume-types" => List(VOLUME_TYPES).read(value).map(|types| grant.volume_types = types),
            "annotations" => List(PATTERNS).read(value).map(|patterns| grant.annotations = patterns),
            _ => Err("expected host-ports, host-paths, volume-types or annotations".to_owned()),
        };
        read.map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(grant)
}

pub(super) const NODE_NAME: TextKind<String> = text("a node name", check::node_name, String::clone);
pub(super) const PATH: TextKind<PathBuf> =
    text("an absolute path", check::path, |path| path.display().to_string()).taking("\"/path\"");
pub(super) const PATHS: TextKind<PathBuf> = TextKind { what: "a list of absolute paths", ..PATH };
const HOST_PATHS: TextKind<String> = text(PATHS.what, check::host_path, String::clone).taking(PATH.takes);
pub(super) const CREDENTIALS: TextKind<PathBuf> =
    text("an absolute path, \"in-cluster\"", check::credentials, PATH.print);
pub(super) const SOCKET: TextKind<PathBuf> =
    text(check::SOCKET, check::socket, |path| format!("unix://{}", path.display()));
pub(super) const URL: TextKind<String> = text(check::URL, check::url, String::clone);
pub(super) const HOST_PORT: TextKind<Endpoint> = text("host:port", check::endpoint, check::endpoint_text);
pub(super) const LISTEN: TextKind<Listen> = text(
    "a loopback address such as \"127.0.0.1:9465\", a socket such as \"unix:///run/daemonlet/metrics.sock\"",
    str::parse,
    Listen::to_string,
);
pub(super) const SELECTOR: TextKind<String> =
    text("a label selector such as \"app=cni,tier!=test\"", check::selector, String::clone);
pub(super) const VERSION: TextKind<String> = text(check::VERSION, check::version, String::clone);
pub(super) const DURATION: TextKind<Duration> =
    text(check::DURATION, check::duration, check::duration_text).taking("\"duration\"");
pub(super) const TOKEN_LIFE: TextKind<Duration> =
    text(check::TOKEN_LIFE, check::token_life, check::duration_text).taking("\"duration\"");
pub(super) const FILTER: TextKind<String> = text("a log level such as \"info\"", check::filter, String::clone);
pub(super) const NAMESPACES: TextKind<String> = text("a list of namespaces", check::namespace, String::clone);
pub(super) const RELEASES: TextKind<String> = text(check::RELEASES, check::release, String::clone);
pub(super) const PATTERNS: TextKind<String> = text("a list of patterns", check::pattern, String::clone);
pub(super) const TAINTS: TextKind<Taint> =
    text("a list of taints such as \"key=value:NoSchedule\"", check::taint, check::taint_text)
        .taking("\"key=value:Effect\"");
const VOLUME_TYPES: TextKind<String> = text(check::VOLUME_TYPES, check::volume_type, String::clone);
pub(super) const SHARE: TextKind<Share> = text(check::SHARE, check::share, Share::to_string);
const LABEL_VALUE: TextKind<String> = text("a string", check::label_value, String::clone);

pub(super) const MODES: Words<Option<Mode>> =
    Words(&[("labelled", None), ("static", Some(Mode::Static)), ("bootstrap", Some(Mode::Bootstrap))]);
pub(super) const COORDINATION: Words<bool> = Words(&[("auto", true), ("none", false)]);
pub(super) const LEVELS: Words<PodSecurityLevel> = Words(&[
    ("privileged", PodSecurityLevel::Privileged),
    ("baseline", PodSecurityLevel::Baseline),
    ("restricted", PodSecurityLevel::Restricted),
]);
pub(super) const LOG_TARGETS: Words<LogTarget> =
    Words(&[("auto", LogTarget::Auto), ("journal", LogTarget::Journal), ("stderr", LogTarget::Stderr)]);

fn expected(what: &str, found: &DeValue<'_>) -> String {
    let found = match found {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Float(_) => "a fraction".to_owned(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {what}, not {found}")
}
