//! Where two patched templates differ.

use std::collections::HashMap;

use serde_json::Value;

use super::merge::MapKind;

/// A field that two pod templates do not have alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateDifference {
    /// Its path from the template on; items of merged lists by their names.
    pub field: String,
    /// What the first has.
    pub one: Option<Value>,
    /// What the second has.
    pub other: Option<Value>,
}

/// Every field in which `one` and `other` differ, in the order of the fields.
pub fn differences(one: &Value, other: &Value) -> Vec<TemplateDifference> {
    let mut found = Vec::new();
    compare(Some(one), Some(other), MapKind::Template, "", &mut found);
    found
}

fn compare(
    one: Option<&Value>,
    other: Option<&Value>,
    kind: MapKind,
    place: &str,
    found: &mut Vec<TemplateDifference>,
) {
    if one == other {
        return;
    }
    let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
    let (Some(before), Some(after)) = (object(one), object(other)) else {
        return found.push(TemplateDifference { field: place.to_owned(), one: one.cloned(), other: other.cloned() });
    };
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort();
    fields.dedup();
    for field in fields {
        let at = if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
        let (before, after) = (before.get(field), after.get(field));
        match (kind.merged(field), before.and_then(Value::as_array), after.and_then(Value::as_array)) {
            (Some((key, item)), Some(before), Some(after)) => items((before, after), (key, item), &at, found),
            _ => compare(before, after, kind.member(field), &at, found),
        }
    }
}

/// Compares the items of a merged list that have the same name. What differs only in their order is no difference.
fn items(
    (one, other): (&[Value], &[Value]),
    (key, item): (&str, MapKind),
    place: &str,
    found: &mut Vec<TemplateDifference>,
) {
    // Each name at its first place, with the first item of that name in both.
    let mut places: HashMap<&Value, usize> = HashMap::new();
    let mut pairs: Vec<(&Value, [Option<&Value>; 2])> = Vec::new();
    for (side, list) in [one, other].into_iter().enumerate() {
        for (name, value) in list.iter().filter_map(|value| Some((value.get(key)?, value))) {
            let place = *places.entry(name).or_insert(pairs.len());
            if place == pairs.len() {
                pairs.push((name, [None, None]));
            }
            pairs[place].1[side].get_or_insert(value);
        }
    }
    for (name, [one, other]) in pairs {
        let text = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        compare(one, other, item, &format!("{place}[{text}]"), found);
    }
}
