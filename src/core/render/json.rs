//! Reading JSON the way the API's decoder does: `null` is the same as not being there.
//!
//! Must not fail: a value of another shape than expected is treated as absent.

use serde_json::Map;
use serde_json::Value;

pub(super) use crate::core::json::at;

/// A JSON object's members.
pub(super) type Object = Map<String, Value>;

/// The member `name` of `object`, unless it is `null`.
pub(super) fn member<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// The string member `name`; `""` counts as absent, as it does for Go's zero values.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The member `name` as a flag that is off by default.
pub(super) fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// The elements of the list member `name`; none if there is no list.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// As [`list`], of an object's members.
pub(super) fn list_of<'a>(object: &'a Object, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The list member `name` to be appended to; made if it is absent, `None` if it is something else.
pub(super) fn list_mut<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Vec<Value>> {
    let slot = object.entry(name).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut()
}

/// Takes the list member `name` out, leaving an empty list in its place; none if there is no list.
pub(super) fn take_list(object: &mut Object, name: &str) -> Vec<Value> {
    match object.get_mut(name) {
        Some(Value::Array(list)) => std::mem::take(list),
        _ => Vec::new(),
    }
}

/// Puts `list` where [`take_list`] took it; an empty list leaves no member behind.
pub(super) fn put_list(object: &mut Object, name: &str, list: Vec<Value>) {
    if list.is_empty() {
        object.remove(name);
    } else {
        object.insert(name.to_owned(), Value::Array(list));
    }
}
