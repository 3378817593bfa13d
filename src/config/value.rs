//! A TOML value into what its key takes, or why not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::Listen;
use crate::config::check;
use crate::config::keys::Kind;
use crate::core::model::Taint;
use crate::core::node;

/// A checked value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    /// Text, a word, a path or an endpoint.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A table of texts.
    Map(BTreeMap<String, String>),
    /// Taints.
    Taints(Vec<Taint>),
    /// A duration.
    Duration(Duration),
    /// A number.
    Number(usize),
    /// A truth value.
    Bool(bool),
}

/// Reads `value` as `kind` takes it; the error says what is expected.
pub(super) fn read(kind: Kind, value: &DeValue<'_>) -> Result<Setting, String> {
    match kind {
        Kind::Paths => texts(value, "a list of absolute paths", path).map(Setting::Texts),
        Kind::Namespaces => texts(value, "a list of namespaces", namespace).map(Setting::Texts),
        Kind::Words(words) => {
            let what = format!("a list of {}", one_of(words));
            let known = |text: &str| match words.contains(&text) {
                true => Ok(()),
                false => Err(format!("expected {what}, not \"{text}\"")),
            };
            texts(value, &what, known).map(Setting::Texts)
        }
        Kind::Capabilities => texts(value, "a list of capabilities", check::capability).map(Setting::Texts),
        Kind::Patterns => texts(value, "a list of patterns", check::pattern).map(Setting::Texts),
        Kind::Taints => {
            let list = texts(value, "a list of taints such as \"key=value:NoSchedule\"", |_| Ok(()))?;
            list.iter().map(|text| check::taint(text)).collect::<Result<_, _>>().map(Setting::Taints)
        }
        Kind::Labels => labels(value).map(Setting::Map),
        Kind::Bool => match value {
            DeValue::Boolean(value) => Ok(Setting::Bool(*value)),
            other => Err(expected("true or false", other)),
        },
        Kind::Removals => match value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix())
                .map(Setting::Number)
                .map_err(|_| expected(REMOVALS, value)),
            DeValue::String(word) if word == "half" || word == "off" => Ok(Setting::Text(word.to_string())),
            other => Err(expected(REMOVALS, other)),
        },
        Kind::Duration => match value {
            DeValue::String(text) => {
                check::duration(text).map(Setting::Duration).ok_or_else(|| expected(DURATION, value))
            }
            other => Err(expected(DURATION, other)),
        },
        _ => text(kind, value).map(Setting::Text),
    }
}

const REMOVALS: &str = "a number, \"half\" or \"off\"";
const DURATION: &str = "a duration such as \"30s\" or \"5m\"";

/// The kinds that are one string.
fn text(kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    let what = match kind {
        Kind::NodeName => "a node name",
        Kind::Path => "an absolute path",
        Kind::PathOrEmpty => "an absolute path or \"\"",
        Kind::Credentials => "an absolute path, \"in-cluster\" or \"\"",
        Kind::Socket => "a socket such as \"unix:///run/containerd/containerd.sock\" or \"\"",
        Kind::Url => "a URL such as \"https://127.0.0.1:10250\" or \"\"",
        Kind::HostPort => "host:port or \"\"",
        Kind::Listen => {
            "a loopback address such as \"127.0.0.1:9465\", a socket such as \"unix:///run/daemonlet/metrics.sock\" or \"\""
        }
        Kind::Version => "a version such as \"v1.36.2\" or \"\"",
        Kind::Selector => "a label selector such as \"app=cni,tier!=test\"",
        Kind::Filter => "a log level such as \"info\"",
        _ => "a word",
    };
    let DeValue::String(text) = value else {
        if let Kind::Word(words) = kind {
            return Err(expected(&one_of(words), value));
        }
        return Err(expected(what, value));
    };
    let empty_is_allowed = matches!(
        kind,
        Kind::PathOrEmpty
            | Kind::Credentials
            | Kind::Socket
            | Kind::Url
            | Kind::HostPort
            | Kind::Listen
            | Kind::Selector
            | Kind::Version
    );
    if text.is_empty() && empty_is_allowed {
        return Ok(String::new());
    }
    match kind {
        Kind::NodeName => check::node_name(text)?,
        Kind::Path | Kind::PathOrEmpty => path(text)?,
        Kind::Credentials if text == "in-cluster" => {}
        Kind::Credentials => path(text.strip_prefix("in-cluster:").unwrap_or(text))?,
        Kind::Socket => {
            let socket = text.strip_prefix("unix://").ok_or_else(|| expected(what, value))?;
            path(socket)?;
        }
        Kind::Url => {
            text.strip_prefix("https://").filter(|rest| !rest.is_empty()).ok_or_else(|| expected(what, value))?;
        }
        Kind::Version if node::version(text).is_none() => return Err(expected(what, value)),
        Kind::HostPort => check::endpoint(text).map(|_| ())?,
        Kind::Listen => text.parse::<Listen>().map(|_| ())?,
        Kind::Selector => check::selector(text)?,
        Kind::Filter => check::filter(text)?,
        Kind::Word(words) if !words.contains(&text.as_ref()) => return Err(expected(&one_of(words), value)),
        _ => {}
    }
    Ok(text.to_string())
}

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(", "),
    }
}

fn path(text: &str) -> Result<(), String> {
    if PathBuf::from(text).is_absolute() { Ok(()) } else { Err(format!("must be an absolute path, not \"{text}\"")) }
}

fn namespace(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { check::namespace(text) }
}

fn texts(value: &DeValue<'_>, what: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<Vec<String>, String> {
    let DeValue::Array(items) = value else { return Err(expected(what, value)) };
    items
        .iter()
        .map(|item| match item.get_ref() {
            DeValue::String(text) => check(text).map(|()| text.to_string()),
            other => Err(expected(what, other)),
        })
        .collect()
}

fn labels(value: &DeValue<'_>) -> Result<BTreeMap<String, String>, String> {
    let what = "a table of labels such as { zone = \"a\" }";
    let DeValue::Table(table) = value else { return Err(expected(what, value)) };
    let mut labels = BTreeMap::new();
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        let DeValue::String(text) = value.get_ref() else {
            return Err(format!("label \"{key}\": {}", expected("a string", value.get_ref())));
        };
        check::label_key(key)?;
        check::label_value(text).map_err(|why| format!("label \"{key}\": {why}"))?;
        labels.insert(key.to_owned(), text.to_string());
    }
    Ok(labels)
}

fn expected(what: &str, found: &DeValue<'_>) -> String {
    match found {
        DeValue::String(text) => format!("expected {what}, not \"{text}\""),
        DeValue::Integer(number) => format!("expected {what}, not {number}"),
        DeValue::Boolean(value) => format!("expected {what}, not {value}"),
        DeValue::Float(_) => format!("expected {what}, not a fraction"),
        DeValue::Datetime(_) => format!("expected {what}, not a date"),
        DeValue::Array(_) => format!("expected {what}, not a list"),
        DeValue::Table(_) => format!("expected {what}, not a table"),
    }
}
