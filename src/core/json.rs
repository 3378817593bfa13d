//! Reading JSON values that every pass looks at.
//!
//! Owns the lookup by path; unlike `Value::pointer` it allocates nothing.

use serde_json::Value;

/// The value at `path` below `value`; `null` counts as absent, as in the API's decoder.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// The text at `path` below `value`.
pub fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).and_then(Value::as_str)
}

/// The elements of the list at `path` below `value`; none if there is no list.
pub fn list_at<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_null_or_of_another_shape_is_not_there() {
        let value = json!({"a": {"b/c": "x", "n": null, "l": [1, 2]}});
        assert_eq!(text_at(&value, &["a", "b/c"]), Some("x"));
        assert_eq!(at(&value, &["a", "n"]), None);
        assert_eq!(at(&value, &["a", "b/c", "d"]), None);
        assert_eq!(list_at(&value, &["a", "l"]).len(), 2);
        assert!(list_at(&value, &["a", "b/c"]).is_empty() && text_at(&value, &["a"]).is_none());
    }
}
