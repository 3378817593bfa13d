//! Changing the lists of a pod on its way to the kubelet.

use serde_json::Map;
use serde_json::Value;

/// A JSON object's members.
pub(super) type Object = Map<String, Value>;

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
