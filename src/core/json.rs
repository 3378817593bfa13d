//! Reading JSON the way the API's decoder does: `null` is the same as not being there, and so is a value of another
//! shape than expected.

use serde_json::Map;
use serde_json::Value;

/// The way down to a value: one member's name, or several; of a list, the index.
pub trait Path {
    /// The names, from the outermost on.
    fn names(&self) -> &[&str];
}

impl Path for &str {
    fn names(&self) -> &[&str] {
        std::slice::from_ref(self)
    }
}

impl<const N: usize> Path for [&str; N] {
    fn names(&self) -> &[&str] {
        self
    }
}

/// Values below a value or an object. Unlike `Value::pointer`, this makes no strings on its way.
pub trait Json {
    fn at(&self, path: impl Path) -> Option<&Value>;

    /// The text at `path`; `""` counts as absent, as it does for Go's zero values.
    fn text_at(&self, path: impl Path) -> Option<&str> {
        self.at(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// The text at `path`, else `""`.
    fn str_at(&self, path: impl Path) -> &str {
        self.text_at(path).unwrap_or_default()
    }

    /// The elements of the list at `path`; none if there is no list.
    fn list_at(&self, path: impl Path) -> &[Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The flag at `path`, which is off by default.
    fn flag_at(&self, path: impl Path) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Json for Value {
    fn at(&self, path: impl Path) -> Option<&Value> {
        down(Some(self), path.names())
    }
}

impl Json for Map<String, Value> {
    fn at(&self, path: impl Path) -> Option<&Value> {
        let (first, rest) = path.names().split_first()?;
        down(self.get(*first), rest)
    }
}

fn down<'v>(value: Option<&'v Value>, names: &[&str]) -> Option<&'v Value> {
    let found = names.iter().try_fold(value?, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(*name),
    });
    found.filter(|value| !value.is_null())
}

/// The condition of this type in the status of an object of the API.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.list_at(["status", "conditions"]).iter().find(|condition| condition.str_at("type") == kind)
}

/// Whether the condition of this type in the status of an object of the API is true.
pub fn is_condition_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition.str_at("status") == "True")
}

/// The value at `path` below `value`.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    down(Some(value), path)
}

/// The text at `path` below `value`.
pub fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).and_then(Value::as_str)
}

/// The elements of the list at `path` below `value`.
pub fn list_at<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_null_or_of_another_shape_is_not_there() {
        let value = json!({"a": {"b": "x", "n": null, "e": "", "l": [1, {"c": "y", "f": true}]}});
        assert_eq!((value.text_at(["a", "b"]), value.str_at(["a", "b"])), (Some("x"), "x"));
        assert_eq!((value.text_at(["a", "e"]), value.str_at(["a", "n"])), (None, ""));
        assert_eq!(
            (value.at(["a", "n"]), value.at(["a", "b", "d"]), value.at(["a", "l", "7"]), value.at(["a", "l", "c"])),
            (None, None, None, None)
        );
        assert_eq!((value.list_at(["a", "l"]).len(), value.list_at(["a", "b"]).len()), (2, 0));
        assert_eq!(value.text_at(["a", "l", "1", "c"]), Some("y"));
        assert!(value.flag_at(["a", "l", "1", "f"]) && !value.flag_at(["a", "b"]) && value.text_at("a").is_none());
        let map = value["a"].as_object().unwrap();
        assert_eq!((map.text_at("b"), map.at("n"), map.str_at(["l", "1", "c"])), (Some("x"), None, "y"));
    }
}
