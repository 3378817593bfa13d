//! ConfigMap and Secret: keys and values as the API server takes them, `stringData` folded into `data`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::GeneralPurposeConfig;
use base64::engine::general_purpose::STANDARD;
use serde_json::Map;
use serde_json::Value;

use super::checks;
use super::checks::wrong;
use crate::core::model::FieldError;

/// The most bytes of data in one object: upstream's `MaxSecretSize`, also that of ConfigMaps.
const MAX_DATA: usize = 1 << 20;

/// Base64 as Go's `StdEncoding` decodes it: padding required, trailing bits ignored.
const GO_BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Checks a ConfigMap and writes it as the API server stores it: a null value is an empty one, and `binaryData` is canonical
/// base64.
pub(super) fn config_map(object: &mut Value) -> Result<(), FieldError> {
    for (key, bytes) in check_config_map(object)? {
        object["binaryData"][key] = STANDARD.encode(bytes).into();
    }
    let values = object.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    values.filter(|value| value.is_null()).for_each(|value| *value = "".into());
    Ok(())
}

/// The bytes of `binaryData`, decoded.
fn check_config_map(object: &Value) -> Result<BTreeMap<String, Vec<u8>>, FieldError> {
    checks::strings(object.get("data"), "data")?;
    let empty = Map::new();
    let data = object.get("data").and_then(Value::as_object).unwrap_or(&empty);
    let mut size = 0;
    for (key, value) in data {
        key_name("data", key)?;
        size += value.as_str().map_or(0, str::len);
    }
    let mut decoded = BTreeMap::new();
    match object.get("binaryData") {
        None | Some(Value::Null) => {}
        Some(Value::Object(binary)) => {
            for (key, value) in binary {
                key_name("binaryData", key)?;
                if data.contains_key(key) {
                    return Err(wrong(format!("binaryData[{key}]"), "the key is in data too"));
                }
                let bytes = decode("binaryData", key, value)?;
                size += bytes.len();
                decoded.insert(key.clone(), bytes);
            }
        }
        Some(_) => return Err(wrong("binaryData", "must be a map of base64 strings")),
    }
    too_large(size)?;
    Ok(decoded)
}

/// Checks a Secret and folds `stringData` into `data`, which then is canonical base64.
pub(super) fn secret(object: &mut Value) -> Result<(), FieldError> {
    checks::strings(object.get("stringData"), "stringData")?;
    let mut folded: BTreeMap<&String, Vec<u8>> = BTreeMap::new();
    match object.get("data") {
        None | Some(Value::Null) => {}
        Some(Value::Object(data)) => {
            for (key, value) in data {
                key_name("data", key)?;
                folded.insert(key, decode("data", key, value)?);
            }
        }
        Some(_) => return Err(wrong("data", "must be a map of base64 strings")),
    }
    if let Some(Value::Object(strings)) = object.get("stringData") {
        for (key, value) in strings {
            key_name("stringData", key)?;
            folded.insert(key, value.as_str().unwrap_or_default().into());
        }
    }
    too_large(folded.values().map(Vec::len).sum())?;
    let folded: Map<String, Value> =
        folded.into_iter().map(|(key, bytes)| (key.clone(), STANDARD.encode(bytes).into())).collect();
    if let Value::Object(map) = object {
        map.remove("stringData");
        map.insert("data".to_owned(), Value::Object(folded));
    }
    Ok(())
}

fn decode(field: &str, key: &str, value: &Value) -> Result<Vec<u8>, FieldError> {
    let text = match value {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) => text,
        other => return Err(checks::not_a_string(format!("{field}[{key}]"), other)),
    };
    // Go's decoder skips line ends.
    let text: String = text.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    GO_BASE64.decode(text).map_err(|_| FieldError {
        field: format!("{field}[{key}]"),
        reason: "not base64".to_owned(),
        hint: (field == "data").then(|| "put plain text under stringData".to_owned()),
    })
}

/// Upstream's `IsConfigMapKey`: these become file names.
fn key_name(field: &str, key: &str) -> Result<(), FieldError> {
    let good = !key.is_empty()
        && key.len() <= 253
        && key != "."
        && !key.starts_with("..")
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if good {
        return Ok(());
    }
    Err(wrong(
        format!("{field}[{key}]"),
        "a key consists of letters, digits, '-', '_' and '.', at most 253 characters, and is not '..'",
    ))
}

fn too_large(size: usize) -> Result<(), FieldError> {
    if size > MAX_DATA {
        return Err(wrong("data", format!("{size} bytes of data; an object may have at most {MAX_DATA}")));
    }
    Ok(())
}
