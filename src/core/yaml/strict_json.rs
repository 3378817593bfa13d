//! A stream of JSON documents, read as `YAMLOrJSONDecoder` of apimachinery decides: JSON while it parses, else YAML.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::DeserializeSeed;
use serde::de::Error;
use serde::de::MapAccess;
use serde::de::SeqAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Value;

use super::Document;
use super::YamlError;
use super::YamlFault;
use super::number;

/// Reads JSON documents from the head of `text` into `documents`.
///
/// Gives the rest for the YAML reader, the line on which it starts, and the error that ended JSON.
pub(super) fn read_stream<'a>(text: &'a str, documents: &mut Vec<Document>) -> (&'a str, usize, Option<YamlError>) {
    if !text.trim_start().starts_with('{') {
        return (text, 1, None);
    }
    let mut rest = text;
    let mut line = 1;
    loop {
        let skipped = rest.len() - rest.trim_start().len();
        line += newlines(&rest[..skipped]);
        rest = &rest[skipped..];
        if rest.is_empty() {
            return (rest, line, None);
        }
        match read_one(rest) {
            Ok((value, length)) => {
                documents.push(Document { line, value: Ok(value) });
                line += newlines(&rest[..length]);
                rest = &rest[length..];
            }
            Err(failure) => {
                let error = YamlError {
                    line: line + failure.line.saturating_sub(1),
                    column: failure.column.max(1),
                    message: failure.message,
                    fault: failure.refused.unwrap_or(YamlFault::Syntax),
                };
                // After a second JSON document the text is not taken for YAML any more; and content that
                // JSON refuses must not be read as YAML.
                if documents.len() > 1 || failure.refused.is_some() {
                    documents.push(Document { line, value: Err(error) });
                    return ("", line, None);
                }
                return (rest, line, Some(error));
            }
        }
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

struct JsonFailure {
    line: usize,
    column: usize,
    message: String,
    /// Why well-formed JSON is refused, if it is.
    refused: Option<YamlFault>,
}

fn read_one(text: &str) -> Result<(Value, usize), JsonFailure> {
    let refused = Cell::new(None);
    let mut stream = serde_json::Deserializer::from_str(text);
    // StreamDeserializer would do, but takes no seed, and the seed is what finds a key that is set twice.
    let value = Strict { refused: &refused, depth: 0 }.deserialize(&mut stream).map_err(|error| JsonFailure {
        line: error.line(),
        column: error.column(),
        message: without_place(&error.to_string()),
        refused: refused.get(),
    })?;
    let mut end = stream.into_iter::<serde::de::IgnoredAny>();
    // The offset is that of the first document's end: nothing was read after it.
    let length = end.byte_offset();
    let _ = &mut end;
    Ok((value, length))
}

/// serde_json ends its messages with the place, which goes into fields of its own here.
fn without_place(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message.to_owned(),
    }
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    refused: &'a Cell<Option<YamlFault>>,
    depth: usize,
}

impl<'a> Strict<'a> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.depth >= super::MAX_DEPTH {
            self.refused.set(Some(YamlFault::Syntax));
            return Err(E::custom(format!("nested more than {} levels deep", super::MAX_DEPTH)));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(number::from_float(value).unwrap_or(Value::Null))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.refused.set(Some(YamlFault::KeySetTwice));
                return Err(A::Error::custom(format!("key {key:?} is set twice")));
            }
            let value = access.next_value_seed(seed)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
