//! Names and the fields of small objects, as the API server checks them.

use serde_json::Value;

use crate::core::dns;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::SYSTEM_CLASS;
use crate::core::model::SYSTEM_CLASSES;

/// A field error without a hint.
pub(super) fn wrong(field: impl Into<String>, reason: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), reason: reason.into(), hint: None }
}

/// Checks `metadata` of an object of `kind` (`None`: DaemonSet): valid name, valid namespace.
pub(super) fn metadata(object: &Value, kind: Option<Kind>) -> Result<(), FieldError> {
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return Err(wrong("metadata.name", "required")),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(wrong("metadata", "must be an object")),
    };
    let name = match metadata.get("name") {
        None | Some(Value::Null) if metadata.contains_key("generateName") => {
            return Err(wrong("metadata.name", "required: generateName would give another name each time"));
        }
        None | Some(Value::Null) => return Err(wrong("metadata.name", "required")),
        Some(Value::String(name)) => name,
        Some(other) => return Err(not_a_string("metadata.name".to_owned(), other)),
    };
    let no_name = |name: &str| match kind {
        // Names of DaemonSets are checked with their other fields.
        None if name.is_empty() => Some("required"),
        None => None,
        Some(Kind::Namespace | Kind::Service) => dns::label(name),
        Some(_) => dns::subdomain(name),
    };
    if let Some(reason) = no_name(name) {
        return Err(wrong("metadata.name", reason));
    }
    match metadata.get("generateName").filter(|_| kind.is_some()) {
        None | Some(Value::Null) => {}
        Some(Value::String(prefix)) if prefix.is_empty() => {}
        Some(Value::String(prefix)) => {
            if let Some(reason) = no_name(&dns::masked(prefix)) {
                return Err(wrong("metadata.generateName", format!("{reason}, but for a '-' at its end")));
            }
        }
        Some(other) => return Err(not_a_string("metadata.generateName".to_owned(), other)),
    }
    if kind.is_none_or(Kind::is_namespaced) {
        match metadata.get("namespace") {
            None | Some(Value::Null) => {}
            Some(Value::String(namespace)) if namespace.is_empty() => {}
            Some(Value::String(namespace)) => {
                if let Some(reason) = dns::label(namespace) {
                    return Err(wrong("metadata.namespace", reason));
                }
            }
            Some(other) => return Err(not_a_string("metadata.namespace".to_owned(), other)),
        }
    }
    for field in ["labels", "annotations"] {
        strings(metadata.get(field), &format!("metadata.{field}"))?;
    }
    Ok(())
}

/// Checks a map of strings; null counts as an empty map, or as an empty string. The values may be secret: no error has one.
pub(super) fn strings(value: Option<&Value>, field: &str) -> Result<(), FieldError> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(map)) => map.iter().try_for_each(|(key, value)| match value {
            Value::String(_) | Value::Null => Ok(()),
            other => Err(not_text(format!("{field}[{key}]"), other)),
        }),
        Some(_) => Err(wrong(field, "must be a map of strings")),
    }
}

/// The error for `value`, which must be a string, and is no secret.
pub(super) fn not_a_string(field: String, value: &Value) -> FieldError {
    let found = match value {
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        _ => return not_text(field, value),
    };
    FieldError { reason: format!("must be a string, not {found}"), ..not_text(field, value) }
}

/// The error for `value`, which must be a string; it says the type alone.
pub(super) fn not_text(field: String, value: &Value) -> FieldError {
    let (found, hint) = match value {
        Value::Bool(_) => ("a boolean", true),
        Value::Number(_) => ("a number", true),
        Value::Array(_) => ("a list", false),
        _ => ("an object", false),
    };
    FieldError {
        field,
        reason: format!("must be a string, not {found}"),
        hint: hint.then(|| "put the value in quotes".to_owned()),
    }
}

/// ServiceAccount: the fields that are read have their types.
pub(super) fn service_account(object: &Value) -> Result<(), FieldError> {
    boolean(object, "automountServiceAccountToken")?;
    match object.get("imagePullSecrets") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(secrets)) => secrets.iter().enumerate().try_for_each(|(index, secret)| {
            let field = format!("imagePullSecrets[{index}]");
            match (secret, secret.get("name")) {
                (Value::Object(_), Some(Value::String(_) | Value::Null) | None) | (Value::Null, _) => Ok(()),
                (Value::Object(_), Some(name)) => Err(not_a_string(format!("{field}.name"), name)),
                _ => {
                    let hint = secret.as_str().map(|name| format!("write `- name: {name}`"));
                    Err(FieldError { hint, ..wrong(field, "must be an object with the Secret's name") })
                }
            }
        }),
        Some(_) => Err(wrong("imagePullSecrets", "must be a list")),
    }
}

/// RuntimeClass: the name of its handler (`ValidateRuntimeClass`).
pub(super) fn runtime_class(object: &Value) -> Result<(), FieldError> {
    match object.get("handler") {
        None | Some(Value::Null) => Err(wrong("handler", "required")),
        Some(Value::String(handler)) => match dns::label(handler) {
            Some(_) if handler.is_empty() => Err(wrong("handler", "required")),
            Some(reason) => Err(wrong("handler", reason)),
            None => Ok(()),
        },
        Some(other) => Err(not_a_string("handler".to_owned(), other)),
    }
}

/// PriorityClass: the number is one of 32 bits, and the name is not reserved (`ValidatePriorityClass`).
pub(super) fn priority_class(object: &Value, name: &str) -> Result<(), FieldError> {
    if name.starts_with(SYSTEM_CLASS) && !SYSTEM_CLASSES.iter().any(|(class, _)| *class == name) {
        let [(node, _), (cluster, _)] = SYSTEM_CLASSES;
        let reason =
            format!("names that begin with {SYSTEM_CLASS} are reserved: {node} and {cluster} are the only ones");
        return Err(FieldError { hint: Some("choose another name".to_owned()), ..wrong("metadata.name", reason) });
    }
    boolean(object, "globalDefault")?;
    match object.get("value") {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_i64().is_some_and(|value| i32::try_from(value).is_ok()) => Ok(()),
        Some(_) => Err(wrong("value", "must be a 32-bit integer")),
    }
}

/// Checks a field that is true or false.
pub(super) fn boolean(object: &Value, field: &str) -> Result<(), FieldError> {
    match object.get(field) {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(_) => Err(wrong(field, "must be true or false")),
    }
}
