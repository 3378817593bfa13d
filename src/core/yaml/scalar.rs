//! The type of a scalar: `resolve` of go-yaml v2, whose YAML is 1.1 with a few things of its own.

use base64::Engine;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::GeneralPurposeConfig;
use serde_json::Number;
use serde_json::Value;

use super::number;

/// Base64 as Go's `StdEncoding` decodes it: padded, but careless about the last bits.
const GO_BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A scalar with its type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    /// `null`, `~` or nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of 64 bits.
    Int(Number),
    /// Any other number, NaN and the infinities among them.
    Float(f64),
    /// All else.
    Str(String),
}

impl Scalar {
    /// The JSON value; `None` for NaN and infinities, which JSON has not.
    pub(super) fn into_value(self) -> Option<Value> {
        Some(match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Int(value) => Value::Number(value),
            Scalar::Float(value) => return number::from_float(value),
            Scalar::Str(value) => Value::String(value),
        })
    }

    /// The scalar as a key of a JSON object, as `sigs.k8s.io/yaml` spells it.
    pub(super) fn into_key(self) -> Result<String, &'static str> {
        Ok(match self {
            Scalar::Null => return Err("null is no key"),
            Scalar::Bool(value) => value.to_string(),
            Scalar::Int(value) if value.is_i64() => value.to_string(),
            Scalar::Int(_) => return Err("a number above 9223372036854775807 is no key"),
            Scalar::Float(value) => number::float_key(value),
            Scalar::Str(value) => value,
        })
    }

    fn tag(&self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "bool",
            Scalar::Int(_) => "int",
            Scalar::Float(_) => "float",
            Scalar::Str(_) => "str",
        }
    }
}

/// The type of a plain scalar without a tag.
pub(super) fn plain(text: &str) -> Scalar {
    if let Some(scalar) = named(text) {
        return scalar;
    }
    match text.as_bytes()[0] {
        b'.' => number::parse_pointed(text).map_or_else(|| Scalar::Str(text.to_owned()), Scalar::Float),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits = text.replace('_', "");
            if let Some(value) = number::parse_int(&digits) {
                Scalar::Int(value)
            } else if let Some(value) = number::parse_float(&digits) {
                Scalar::Float(value)
            } else if let Some(value) = number::parse_signed_binary(&digits) {
                Scalar::Int(value)
            } else {
                Scalar::Str(text.to_owned())
            }
        }
        _ => Scalar::Str(text.to_owned()),
    }
}

fn named(text: &str) -> Option<Scalar> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// The type of a scalar with the tag `tag:yaml.org,2002:<suffix>`, however it is quoted.
pub(super) fn tagged(suffix: &str, text: &str) -> Result<Scalar, String> {
    match suffix {
        "str" => return Ok(Scalar::Str(text.to_owned())),
        "binary" => return binary(text).map(Scalar::Str),
        "bool" | "int" | "float" | "null" | "timestamp" => {}
        // An unknown tag leaves the text.
        _ => return Ok(Scalar::Str(text.to_owned())),
    }
    if suffix == "timestamp" && is_timestamp(text) {
        return Ok(Scalar::Str(text.to_owned()));
    }
    match (suffix, plain(text)) {
        ("float", Scalar::Int(value)) => match value.as_i64() {
            Some(value) => Ok(Scalar::Float(value as f64)),
            None => Err(unread("float")),
        },
        (_, scalar) if scalar.tag() == suffix => Ok(scalar),
        _ => Err(unread(suffix)),
    }
}

/// Without the text, which may be a Secret's.
fn unread(suffix: &str) -> String {
    format!("the value cannot be read as !!{suffix}")
}

fn binary(text: &str) -> Result<String, String> {
    let text: String = text.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    match GO_BASE64.decode(text) {
        // JSON has text only: Go puts the replacement character where the bytes are no text.
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => Err("!!binary value is not base64".to_owned()),
    }
}

/// Whether `!!timestamp` may stand before `text`; the value stays a string.
fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 5
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && text.chars().all(|character| character.is_ascii_digit() || "-:.tTzZ+ ".contains(character))
}

/// Whether a plain scalar is a string and nothing else, for every reader of YAML 1.1 or 1.2: go-yaml's answer, and
/// no number of base 60, no timestamp and no word that some reader takes for more.
pub(super) fn is_plain_string(text: &str) -> bool {
    // The longest names of other types are `false` and `+.inf`.
    if text.len() <= 5 && named(&text.to_ascii_lowercase()).is_some() {
        return false;
    }
    let numeric_start = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    if !numeric_start || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let doubtful = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.:_eExXoObBtTzZ ".contains(&byte));
    !doubtful && matches!(plain(text), Scalar::Str(_))
}
