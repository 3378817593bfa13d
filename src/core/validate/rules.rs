//! Checks that several fields of a pod template share.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::wrong;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::labels::is_label_value;
use crate::core::model::FieldError;
use crate::core::quantity::parse_json;

/// Where the errors of a pod's own fields are.
pub(super) const POD_SPEC: &str = "spec.template.spec";
pub(super) const PORT_NUMBER: &str = "must be a number from 1 to 65535";
/// Why a qualified name is not valid.
pub(super) const LABEL_KEY: &str =
    "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name and '/'";
/// Why a label's value is not valid.
pub(super) const LABEL_VALUE: &str =
    "must be empty, or letters, digits, '-', '_' and '.' (at most 63), beginning and ending with a letter or digit";
/// Why a path with `..` is refused.
pub(super) const BACKSTEPS: &str = "must not contain '..'";

/// A field that has to be set: text that is not empty, a list with elements, or an object.
pub(super) fn required(value: &Value, field: &str, place: &str, errors: &mut Vec<FieldError>) {
    let unset = match value.at(field) {
        None => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    if unset {
        errors.push(wrong(format!("{place}.{field}"), "required"));
    }
}

/// A field that is unset or one of `words`.
pub(super) fn one_of(value: &Value, field: &str, words: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    if !value.str_at(field).is_empty() {
        written_one_of(value, field, words, place, errors);
    }
}

/// As [`one_of`], for a field that Go has a pointer for: an empty string is one that was set.
pub(super) fn written_one_of(value: &Value, field: &str, words: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    let Some(found) = value.at(field).and_then(Value::as_str).filter(|found| !words.contains(found)) else { return };
    errors.push(wrong(format!("{place}.{field}"), format!("must be {}, not {found:?}", words.join(" or "))));
}

/// A field that must be one of `words`.
pub(super) fn required_one_of(value: &Value, field: &str, words: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    match value.text_at(field) {
        None => errors.push(wrong(format!("{place}.{field}"), "required")),
        Some(_) => written_one_of(value, field, words, place, errors),
    }
}

/// The whole number of a field, 0 if it is unset.
pub(super) fn number(value: &Value, field: &str) -> i64 {
    value.at(field).and_then(Value::as_i64).unwrap_or_default()
}

/// A whole number within `range`; unset is 0.
pub(super) fn within(
    value: &Value,
    field: &str,
    range: &RangeInclusive<i64>,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    if !range.contains(&number(value, field)) {
        let reason = format!("must be a number from {} to {}", range.start(), range.end());
        errors.push(wrong(format!("{place}.{field}"), reason));
    }
}

/// The mode of a file, which may be unset.
pub(super) fn file_mode(value: &Value, field: &str, place: &str, errors: &mut Vec<FieldError>) {
    if !(0..=0o777).contains(&number(value, field)) {
        errors.push(wrong(format!("{place}.{field}"), "must be a file mode from 0 to 0777"));
    }
}

/// Whether a part of `path` is `..` (`validatePathNoBacksteps`).
pub(super) fn goes_back(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Why `path` may lead out of its folder (`validateLocalDescendingPath`).
pub(super) fn not_below(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        return Some("must be a relative path");
    }
    goes_back(path).then_some(BACKSTEPS)
}

/// A path that stays below where it starts.
pub(super) fn descending_path(path: &str, place: String, errors: &mut Vec<FieldError>) {
    errors.extend(not_below(path).map(|reason| wrong(place, reason)));
}

/// The path of a file in a volume that the kubelet writes, `ValidateLocalNonReservedPath`.
pub(super) fn path_in_volume(path: &str, place: String, errors: &mut Vec<FieldError>) {
    if path.starts_with("..") && !goes_back(path) {
        errors.push(wrong(place, "must not start with '..'"));
    } else {
        descending_path(path, place, errors);
    }
}

/// Whether a JSON quantity is below, at or above zero: -1, 0 or 1.
pub(super) fn sign(quantity: &Value) -> i128 {
    parse_json(quantity).map_or(0, |quantity| quantity.value().signum())
}

/// `ValidateQualifiedName` and `ValidateLabelName`.
pub(super) fn qualified_name(name: &str, place: impl Into<String>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(wrong(place, "required"));
    } else if !is_label_key(name) {
        errors.push(wrong(place, LABEL_KEY));
    }
}

/// `ValidateLabels`.
pub(super) fn labels(labels: Option<&Value>, place: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        if !is_label_key(key) {
            errors.push(wrong(format!("{place}[{key}]"), LABEL_KEY));
        } else if !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(wrong(format!("{place}[{key}]"), LABEL_VALUE));
        }
    }
}

/// `ValidateAnnotations`.
pub(super) fn annotations(annotations: Option<&Value>, place: &str, errors: &mut Vec<FieldError>) {
    const MOST: usize = 256 * 1024;
    let entries = || annotations.and_then(Value::as_object).into_iter().flatten();
    for (key, _) in entries() {
        // Go makes one letter of this one, and Rust two.
        if !is_label_key(&key.replace('\u{130}', "i").to_lowercase()) {
            errors.push(wrong(format!("{place}[{key}]"), LABEL_KEY));
        }
    }
    let size: usize = entries().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > MOST {
        errors.push(wrong(place, "must be no more than 256 KiB, keys and values"));
    }
}

/// `ValidateLabelSelector`; what is unset is good.
pub(super) fn label_selector(selector: Option<&Value>, place: &str, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    labels(selector.get("matchLabels"), &format!("{place}.matchLabels"), errors);
    for (index, expression) in selector.list_at("matchExpressions").iter().enumerate() {
        let place = format!("{place}.matchExpressions[{index}]");
        operator_and_values(expression, false, &place, errors);
        qualified_name(expression.str_at("key"), format!("{place}.key"), errors);
        label_values(expression, &place, errors);
    }
}

/// The operator of an expression on labels, and how many values it takes.
pub(super) fn operator_and_values(expression: &Value, numbers: bool, place: &str, errors: &mut Vec<FieldError>) {
    let (field, reason) = match (expression.str_at("operator"), expression.list_at("values").len()) {
        ("In" | "NotIn", 0) => ("values", "required with In and NotIn"),
        ("Exists" | "DoesNotExist", 1..) => ("values", "must be empty with Exists and DoesNotExist"),
        ("Gt" | "Lt", 0 | 2..) if numbers => ("values", "must be one value with Gt and Lt"),
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => return,
        ("Gt" | "Lt", _) if numbers => return,
        _ if numbers => ("operator", "must be In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        _ => ("operator", "must be In, NotIn, Exists or DoesNotExist"),
    };
    errors.push(wrong(format!("{place}.{field}"), reason));
}

pub(super) fn label_values(expression: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for (index, value) in expression.list_at("values").iter().enumerate() {
        if !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(wrong(format!("{place}.values[{index}]"), LABEL_VALUE));
        }
    }
}

/// Whether `number` is a port (`IsValidPortNum`).
pub(super) fn is_port_number(number: i64) -> bool {
    (1..=65535).contains(&number)
}

/// Why `name` is no port's name (`IsValidPortName`).
pub(super) fn no_port_name(name: &str) -> Option<&'static str> {
    let good = name.len() <= 15
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!good).then_some("must be at most 15 lower case letters, digits and single '-' between them, with a letter")
}

/// Why `key` is no key of a ConfigMap or Secret (`IsConfigMapKey`).
pub(super) fn no_config_key(key: &str) -> Option<&'static str> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key {
        "" => Some("required"),
        "." => Some("must not be '.'"),
        _ if key.starts_with("..") => Some("must not begin with '..'"),
        _ if key.len() > 253 => Some("must be no more than 253 bytes"),
        _ => (!key.bytes().all(known)).then_some("must be letters, digits, '-', '_' and '.'"),
    }
}
