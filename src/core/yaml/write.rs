//! Writing: block style for people, quoted wherever a YAML 1.1 reader might see something else.
//!
//! `serde-saphyr` lays the text out. The order of keys is set here, and so is the style of each string: plain only
//! where our own reader, which is go-yaml's, finds the same string, a literal block only where every byte of it
//! survives, else double quotes, in which anything does.

use serde::Serialize;
use serde::Serializer;
use serde::ser::SerializeMap;
use serde::ser::SerializeSeq;
use serde_json::Map;
use serde_json::Value;
use serde_saphyr::DoubleQuoted;
use serde_saphyr::LitStr;

use super::scalar;
use super::scalar::Scalar;

/// Keys that come first in the order given, before the others by name. A pod reads best this way.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "spec"];

/// `value` as block-style YAML that a person can read, keys in a fixed order.
///
/// The same value gives the same bytes, however its maps are ordered, and every reader of YAML 1.1 or 1.2
/// that is correct finds the same value again.
pub fn write(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: false,
    };
    let mut text = String::new();
    if serde_saphyr::to_fmt_writer_with_options(&mut text, &Node(value), options).is_err() {
        // JSON is YAML too; no value of JSON has been seen to end up here.
        return format!("{value}\n");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// [`write`] below lines of comment.
pub fn write_manifest(header: &[String], value: &Value) -> String {
    let mut text = String::new();
    for line in header.iter().flat_map(|line| line.split(['\n', '\r'])) {
        text.push_str("# ");
        text.extend(line.chars().filter(|character| is_printable(*character)));
        text.push('\n');
    }
    text.push_str(&write(value));
    text
}

struct Node<'a>(&'a Value);

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) => number.serialize(serializer),
            Value::String(text) => string(text, serializer),
            Value::Array(items) => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    sequence.serialize_element(&Node(item))?;
                }
                sequence.end()
            }
            Value::Object(map) => {
                let mut output = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in ordered(map) {
                    output.serialize_entry(key, &Node(value))?;
                }
                output.end()
            }
        }
    }
}

fn ordered(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    entries
}

fn string<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if text.contains('\n') {
        if is_literal(text) { LitStr(text).serialize(serializer) } else { DoubleQuoted(text).serialize(serializer) }
    } else if is_plain(text) {
        serializer.serialize_str(text)
    } else {
        DoubleQuoted(text).serialize(serializer)
    }
}

/// Whether a string may stand without quotes as far as its type goes; the layout quotes what the grammar needs.
fn is_plain(text: &str) -> bool {
    text.chars().all(|character| character != '\t' && is_printable(character))
        && text != "<<"
        && text != "="
        && matches!(scalar::plain(text), Scalar::Str(_))
}

/// Whether a literal block carries the text unchanged to every reader.
fn is_literal(text: &str) -> bool {
    // Trailing blank lines and leading spaces need indicators that readers have disagreed about.
    let body = text.strip_suffix('\n').unwrap_or(text);
    !body.is_empty()
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with([' ', '\t', '\n'])
        && body.chars().all(|character| character == '\n' || is_printable(character))
}

/// What YAML 1.1 allows without an escape and no reader takes for a line break.
fn is_printable(character: char) -> bool {
    matches!(
        character,
        '\t' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}'
            | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..
    )
}
