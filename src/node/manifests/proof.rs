//! The proof that a manifest says what was intended, as the kubelet will read it.
//!
//! Owns the comparison. Must not report values: they may be secret.

use serde_json::Value;

use crate::core::yaml;

/// Whether the only document of `bytes` is exactly `intended`.
pub(super) fn reads_as(bytes: &[u8], intended: &Value) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let mut documents = yaml::read_documents(text).into_iter();
    let (Some(document), None) = (documents.next(), documents.next()) else {
        return Err("it is not one document".to_owned());
    };
    match document.value {
        Ok(value) if value == *intended => Ok(()),
        Ok(value) => Err(first_difference("", &value, intended)),
        Err(e) => Err(format!("line {}, column {}: {}", e.line, e.column, e.message)),
    }
}

/// The path of the first difference. Not the values: they may be secret.
fn first_difference(at: &str, left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let keys = left.keys().chain(right.keys());
            for key in keys {
                match (left.get(key), right.get(key)) {
                    (Some(a), Some(b)) if a == b => {}
                    (Some(a), Some(b)) => return first_difference(&format!("{at}.{key}"), a, b),
                    _ => return format!("{at}.{key} is in only one of them"),
                }
            }
            format!("{at} differs")
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let at_first = left.iter().zip(right).enumerate().find(|(_, (a, b))| a != b);
            at_first
                .map_or_else(|| format!("{at} differs"), |(i, (a, b))| first_difference(&format!("{at}[{i}]"), a, b))
        }
        _ => format!("{at} differs"),
    }
}
