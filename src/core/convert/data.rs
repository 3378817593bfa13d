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
    checks::boolean(object, "immutable")?;
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
    checks::boolean(object, "immutable")?;
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
    keys_of_type(object, &folded)?;
    let folded: Map<String, Value> =
        folded.into_iter().map(|(key, bytes)| (key.clone(), STANDARD.encode(bytes).into())).collect();
    if let Value::Object(map) = object {
        map.remove("stringData");
        map.insert("data".to_owned(), Value::Object(folded));
    }
    Ok(())
}

/// The keys that a Secret's type asks for (`ValidateSecret`).
fn keys_of_type(object: &Value, data: &BTreeMap<&String, Vec<u8>>) -> Result<(), FieldError> {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let kind = match object.get("type") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => return Err(checks::not_a_string("type".to_owned(), other)),
    };
    let bytes = |key: &str| data.iter().find(|(name, _)| **name == key).map(|(_, bytes)| bytes);
    let lacks = |key: &str| wrong(format!("data[{key}]"), format!("required in a Secret of the type {kind}"));
    let present = |key: &str| bytes(key).ok_or_else(|| lacks(key));
    let object_in = |key: &str| {
        let is_object = serde_json::from_slice::<Map<String, Value>>(present(key)?).is_ok();
        is_object.then_some(()).ok_or_else(|| wrong(format!("data[{key}]"), "must be a JSON object"))
    };
    match kind {
        "kubernetes.io/service-account-token" => {
            let account = object["metadata"]["annotations"][ACCOUNT].as_str().unwrap_or_default();
            let field = format!("metadata.annotations[{ACCOUNT}]");
            (!account.is_empty())
                .then_some(())
                .ok_or_else(|| wrong(field, format!("required in a Secret of the type {kind}")))
        }
        "kubernetes.io/dockercfg" => object_in(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => object_in(".dockerconfigjson"),
        "kubernetes.io/basic-auth" => {
            present("username").or_else(|_| present("password")).map(drop).map_err(|_| lacks("username"))
        }
        "kubernetes.io/ssh-auth" => present("ssh-privatekey")?.first().map(drop).ok_or_else(|| lacks("ssh-privatekey")),
        "kubernetes.io/tls" => present("tls.crt").and(present("tls.key")).map(drop),
        _ => Ok(()),
    }
}

fn decode(field: &str, key: &str, value: &Value) -> Result<Vec<u8>, FieldError> {
    let text = match value {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) => text,
        other => return Err(checks::not_text(format!("{field}[{key}]"), other)),
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
