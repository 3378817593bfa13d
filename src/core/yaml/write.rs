//! Writing: block style for people, quoted wherever a YAML 1.1 reader might see something else.
//!
//! A string is plain only where our own reader, which is go-yaml's, finds the same string and no indicator of the
//! grammar is near; a literal block only where every byte of it survives; else it is in double quotes, in which
//! anything does. The emitter is our own: `serde-saphyr`'s would need the order of keys and the style of each
//! string as well, and takes several times as long.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Deref;
use std::ops::DerefMut;

use serde_json::Map;
use serde_json::Value;

use super::Document;
use super::scalar;
use crate::core::escape;

/// Keys that come first in the order given, before the others by name. A pod reads best this way.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "spec"];

/// The longest key that YAML takes without an indicator of its own is 1024 characters, quotes and escapes included.
const LONG_KEY: usize = 128;

/// `value` as block-style YAML that a person can read, keys in a fixed order.
///
/// The same value gives the same bytes, however its maps are ordered, and every reader of YAML 1.1 or 1.2
/// that is correct finds the same value again.
pub fn write(value: &Value) -> String {
    written(value, is_printable)
}

/// `manifest`, which [`write_manifest`] wrote, for a terminal: the same values, of which it obeys nothing and hides nothing.
pub fn for_terminal(manifest: &str) -> String {
    if matches!(escape::lines(manifest), Cow::Borrowed(_)) {
        return manifest.to_owned();
    }
    let header = manifest.lines().take_while(|line| line.starts_with('#'));
    let header: String = header.map(|line| format!("{}\n", escape::line(line))).collect();
    let prints = |character: char| is_printable(character) && escape::is_shown(character);
    let value = |document: Document| match document.value {
        Ok(value) => written(&value, prints),
        Err(_) => escape::lines(manifest).into_owned(),
    };
    header + &super::read_documents(manifest).into_iter().map(value).collect::<String>()
}

/// What is being written, and which characters beyond ASCII stand there as they are.
struct Text {
    text: String,
    prints: fn(char) -> bool,
}

impl Deref for Text {
    type Target = String;

    fn deref(&self) -> &String {
        &self.text
    }
}

impl DerefMut for Text {
    fn deref_mut(&mut self) -> &mut String {
        &mut self.text
    }
}

fn written(value: &Value, prints: fn(char) -> bool) -> String {
    let mut text = Text { text: String::with_capacity(4096), prints };
    match value {
        Value::Object(map) if !map.is_empty() => object(&mut text, map, 0, false),
        Value::Array(items) if !items.is_empty() => array(&mut text, items, 0, false),
        other => {
            scalar(&mut text, other, 2);
            text.push('\n');
        }
    }
    text.text
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

fn indent(text: &mut Text, width: usize) {
    const SPACES: &str = "                                ";
    let mut left = width;
    while left > 0 {
        let step = left.min(SPACES.len());
        text.push_str(&SPACES[..step]);
        left -= step;
    }
}

/// A map whose keys stand at column `width`; `inline`: the first one does already, after a dash.
fn object(text: &mut Text, map: &Map<String, Value>, width: usize, inline: bool) {
    for (index, (name, value)) in ordered(map).enumerate() {
        if index > 0 || !inline {
            indent(text, width);
        }
        if name.len() > LONG_KEY {
            text.push_str("? ");
            string(text, name, true, 0);
            text.push('\n');
            indent(text, width);
        } else {
            string(text, name, true, 0);
        }
        text.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                text.push('\n');
                object(text, map, width + 2, false);
            }
            // Lists stand under their key without further indentation, as kubectl writes them.
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                array(text, items, width, false);
            }
            other => {
                text.push(' ');
                scalar(text, other, width + 2);
                text.push('\n');
            }
        }
    }
}

/// A list whose dashes stand at column `width`; `inline`: the first one does already, after another.
fn array(text: &mut Text, items: &[Value], width: usize, inline: bool) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !inline {
            indent(text, width);
        }
        text.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => object(text, map, width + 2, true),
            Value::Array(items) if !items.is_empty() => array(text, items, width + 2, true),
            other => {
                scalar(text, other, width + 2);
                text.push('\n');
            }
        }
    }
}

/// The entries of `map`: what comes first, then the others, by name as the map has them.
fn ordered(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let first = FIRST.into_iter().filter_map(|key| map.get_key_value(key));
    first.chain(map.iter().filter(|(key, _)| !FIRST.contains(&key.as_str())))
}

/// Anything that stands on one line, or a literal block whose lines are indented by `width`.
fn scalar(text: &mut Text, value: &Value, width: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        // Writing to a String cannot fail.
        Value::Number(number) => drop(write!(text, "{number}")),
        Value::String(value) => string(text, value, false, width),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

fn string(text: &mut Text, value: &str, key: bool, width: usize) {
    if !key && value.contains('\n') && is_literal(value, text.prints) {
        text.push_str(if value.ends_with('\n') { "|" } else { "|-" });
        for line in value.lines() {
            text.push('\n');
            if !line.is_empty() {
                indent(text, width);
                text.push_str(line);
            }
        }
    } else if is_plain(value, text.prints) {
        text.push_str(value);
    } else {
        quoted(text, value);
    }
}

/// Whether a string may stand without quotes, as key or value, in block context.
fn is_plain(text: &str, prints: fn(char) -> bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let good_start = match first {
        // `---` and `...` would end the document at the head of a line.
        b'-' => bytes.len() > 1 && bytes[1] != b' ' && !bytes.starts_with(b"---"),
        b'.' => bytes.len() > 1 && !bytes.starts_with(b"..."),
        byte => byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'$' | b'(' | b'+') || *byte >= 0x80,
    };
    // `: ` and ` #` end a plain scalar; a colon at the end would make it a key.
    let good_pairs = bytes.windows(2).all(|pair| pair != b": " && pair != b" #");
    good_start
        && good_pairs
        && !matches!(last, b' ' | b':')
        && are_printable(text, "", prints)
        && scalar::is_plain_string(text)
}

/// Whether a literal block carries the text unchanged to every reader.
fn is_literal(text: &str, prints: fn(char) -> bool) -> bool {
    // Trailing blank lines and leading spaces need indicators that readers have disagreed about.
    let body = text.strip_suffix('\n').unwrap_or(text);
    !body.is_empty()
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with([' ', '\t', '\n'])
        && are_printable(body, "\t\n", prints)
}

/// Double quotes with the escapes that YAML and JSON share, and YAML's own beyond 16 bits.
fn quoted(text: &mut Text, value: &str) {
    text.push('"');
    // Most strings that need quotes need no more than those.
    let bare = value.bytes().take_while(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')).count();
    let (bare, rest) = value.split_at(bare);
    text.push_str(bare);
    for character in rest.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            character if !(text.prints)(character) => drop(match u32::from(character) {
                code @ 0x10000.. => write!(text, "\\U{code:08x}"),
                code => write!(text, "\\u{code:04x}"),
            }),
            character => text.push(character),
        }
    }
    text.push('"');
}

/// Whether every character of `text` is printable, or one of `also` where it is a control character.
fn are_printable(text: &str, also: &str, prints: fn(char) -> bool) -> bool {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') || also.as_bytes().contains(&byte);
    if text.is_ascii() {
        return text.bytes().all(plain);
    }
    text.chars().all(|character| match character {
        '\0'..='\x7f' => plain(character as u8),
        _ => prints(character),
    })
}

/// What YAML 1.1 allows without an escape and no reader takes for a line break.
fn is_printable(character: char) -> bool {
    matches!(
        character,
        '\t' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}'
            | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..
    )
}
