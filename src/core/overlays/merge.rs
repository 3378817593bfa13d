//! The strategic merge of a patch into a pod template, as kubectl's (`k8s.io/apimachinery/pkg/util/strategicpatch`).
//!
//! Owns which lists are merged, and by which field of their items. Must not judge the result.

use std::collections::HashMap;
use std::collections::HashSet;

use serde_json::Map;
use serde_json::Value;

use crate::core::model::FieldError;

/// The directive of a map, and of an item of a merged list: `replace` or `delete`.
const PATCH: &str = "$patch";
/// The directive of a map that names the only fields that stay.
const RETAIN_KEYS: &str = "$retainKeys";

/// What a map of a pod template is, as far as lists below it are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    Template,
    PodSpec,
    Container,
    Other,
}

/// The lists that are merged, each with the field that tells its items apart and what an item is: the fields with
/// `patchStrategy:"merge"` of upstream's `PodSpec` and `Container`. All other lists are replaced as a whole.
const MERGED: [(MapKind, &str, &str, MapKind); 13] = [
    (MapKind::PodSpec, "containers", "name", MapKind::Container),
    (MapKind::PodSpec, "ephemeralContainers", "name", MapKind::Container),
    (MapKind::PodSpec, "hostAliases", "ip", MapKind::Other),
    (MapKind::PodSpec, "imagePullSecrets", "name", MapKind::Other),
    (MapKind::PodSpec, "initContainers", "name", MapKind::Container),
    (MapKind::PodSpec, "resourceClaims", "name", MapKind::Other),
    (MapKind::PodSpec, "schedulingGates", "name", MapKind::Other),
    (MapKind::PodSpec, "topologySpreadConstraints", "topologyKey", MapKind::Other),
    (MapKind::PodSpec, "volumes", "name", MapKind::Other),
    (MapKind::Container, "env", "name", MapKind::Other),
    (MapKind::Container, "ports", "containerPort", MapKind::Other),
    (MapKind::Container, "volumeDevices", "devicePath", MapKind::Other),
    (MapKind::Container, "volumeMounts", "mountPath", MapKind::Other),
];

impl MapKind {
    /// How the list `field` is merged: the key of its items, and what they are. `None`: it is replaced.
    pub(super) fn merged(self, field: &str) -> Option<(&'static str, MapKind)> {
        let row = MERGED.iter().find(|(of, name, ..)| *of == self && *name == field);
        row.map(|(_, _, key, item)| (*key, *item))
    }

    /// What the map `field` is.
    pub(super) fn member(self, field: &str) -> MapKind {
        match (self, field) {
            (MapKind::Template, "spec") => MapKind::PodSpec,
            _ => MapKind::Other,
        }
    }
}

/// Merges `patch` into `template`, `{metadata, spec}`; `place` is where the patch stands, for errors.
///
/// # Errors
/// The first field of the patch that no merge can be made of.
pub(super) fn merge(template: &mut Value, patch: &Value, place: &str) -> Result<(), FieldError> {
    let Value::Object(patch) = patch else { return Err(wrong(place, "must be a map")) };
    if !template.is_object() {
        *template = Value::Object(Map::new());
    }
    template.as_object_mut().map_or(Ok(()), |template| object(template, patch, MapKind::Template, place))
}

fn object(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kind: MapKind,
    place: &str,
) -> Result<(), FieldError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            *original = patch.iter().filter_map(|(field, value)| cleaned_member(field, value)).collect();
            return Ok(());
        }
        Some(Value::String(directive)) if directive == "delete" => {
            original.clear();
            return Ok(());
        }
        Some(_) => return Err(wrong(format!("{place}.{PATCH}"), "must be replace or delete")),
    }
    retain_keys(original, patch, place)?;
    for (field, value) in patch.iter().filter(|(field, _)| *field != RETAIN_KEYS) {
        if field.starts_with('$') {
            return Err(FieldError {
                field: format!("{place}[{field}]"),
                reason: "this directive is not supported".to_owned(),
                hint: Some(format!("{PATCH} and {RETAIN_KEYS} are; write a list that is not merged as a whole")),
            });
        }
        let at = format!("{place}.{field}");
        match (original.get_mut(field), value) {
            (_, Value::Null) => {
                original.remove(field);
            }
            (Some(Value::Object(before)), Value::Object(after)) => object(before, after, kind.member(field), &at)?,
            (before, Value::Array(after)) if kind.merged(field).is_some() => {
                let Some((key, item)) = kind.merged(field) else { continue };
                let before = before.and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
                original.insert(field.clone(), list(before, after, (key, item), &at)?.into());
            }
            (_, value) => match cleaned(value) {
                Some(value) => drop(original.insert(field.clone(), value)),
                None => drop(original.remove(field)),
            },
        }
    }
    Ok(())
}

/// Takes the fields away that `$retainKeys` does not name.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>, place: &str) -> Result<(), FieldError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let at = format!("{place}.{RETAIN_KEYS}");
    let names: Option<HashSet<&str>> = retained.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(names) = names else { return Err(wrong(at, "must be a list of fields")) };
    let other = patch
        .iter()
        .find(|(field, value)| !field.starts_with('$') && !value.is_null() && !names.contains(field.as_str()));
    if let Some((other, _)) = other {
        return Err(wrong(at, format!("does not contain {other}, which the patch sets")));
    }
    original.retain(|field, _| names.contains(field.as_str()));
    Ok(())
}

/// The list after a merge: items that the patch names in its order, the others in theirs; of two that are in no
/// common order, the patch's comes first.
fn list(
    mut before: Vec<Value>,
    patch: &[Value],
    (key, item): (&str, MapKind),
    place: &str,
) -> Result<Vec<Value>, FieldError> {
    let mut changes: Vec<(String, &Map<String, Value>, String)> = Vec::new();
    let mut deleted: HashSet<String> = HashSet::new();
    let mut is_replaced = false;
    for (index, change) in patch.iter().enumerate() {
        let at = format!("{place}[{index}]");
        let Some(change) = change.as_object() else { return Err(wrong(at, "must be a map")) };
        let name = change.get(key).filter(|name| !name.is_null()).map(Value::to_string);
        match (change.get(PATCH).map(Value::as_str), name) {
            (Some(Some("replace")), _) => is_replaced = true,
            (None | Some(Some("delete")), None) => {
                return Err(wrong(format!("{at}.{key}"), "required: it identifies the items of this list"));
            }
            (Some(Some("delete")), Some(name)) => drop(deleted.insert(name)),
            (None, Some(name)) => changes.push((name, change, at)),
            (Some(_), _) => return Err(wrong(format!("{at}.{PATCH}"), "must be replace or delete")),
        }
    }
    if is_replaced {
        before.clear();
    }
    if !deleted.is_empty() {
        before.retain(|value| name_of(value, key).is_none_or(|name| !deleted.contains(&name)));
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (index, value) in before.iter().enumerate() {
        if let Some(name) = name_of(value, key) {
            places.entry(name).or_insert(index);
        }
    }
    let ranks = places.clone();
    let mut orders: HashMap<&str, usize> = HashMap::new();
    for (index, (name, change, at)) in changes.iter().enumerate() {
        orders.entry(name).or_insert(index);
        match places.get(name).and_then(|place| before.get_mut(*place)).and_then(Value::as_object_mut) {
            Some(before) => object(before, change, item, at)?,
            None => {
                places.insert(name.clone(), before.len());
                before.push(cleaned(&Value::Object((*change).clone())).unwrap_or_default());
            }
        }
    }
    let named = before.into_iter().map(|value| (name_of(&value, key), value));
    let order = |name: &Option<String>| name.as_deref().and_then(|name| orders.get(name)).copied();
    let (mut changed, others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| order(name).is_some());
    changed.sort_by_key(|(name, _)| order(name));
    Ok(interleaved(others, changed, &ranks))
}

type NamedItem = (Option<String>, Value);

/// Upstream's `mergeSortedSlice`: `ranks` is the order before the patch.
fn interleaved(others: Vec<NamedItem>, changed: Vec<NamedItem>, ranks: &HashMap<String, usize>) -> Vec<Value> {
    let rank = |item: Option<&NamedItem>| item.and_then(|(name, _)| ranks.get(name.as_ref()?)).copied();
    let (mut others, mut changed) = (others.into_iter().peekable(), changed.into_iter().peekable());
    let mut all = Vec::with_capacity(others.len() + changed.len());
    loop {
        let is_first = match (rank(others.peek()), rank(changed.peek())) {
            (Some(other), Some(changed)) => other < changed,
            _ => changed.peek().is_none(),
        };
        let Some((_, next)) = (if is_first { others.next() } else { changed.next() }) else { return all };
        all.push(next);
    }
}

fn name_of(item: &Value, key: &str) -> Option<String> {
    item.get(key).map(Value::to_string)
}

/// `value` where there was nothing before: without nulls, and without maps that are directives.
fn cleaned(value: &Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(map.iter().filter_map(|(field, value)| cleaned_member(field, value)).collect()),
        Value::Array(items) => Some(items.iter().filter_map(cleaned).collect()),
        value => Some(value.clone()),
    }
}

fn cleaned_member(field: &str, value: &Value) -> Option<(String, Value)> {
    let is_kept = !value.is_null() && !field.starts_with('$');
    is_kept.then(|| cleaned(value)).flatten().map(|value| (field.to_owned(), value))
}

/// The fields that `patch` changes, as paths from the template on; items of merged lists by their names.
pub(super) fn changes(patch: &Value) -> Vec<String> {
    let mut found = Vec::new();
    leaves(patch, MapKind::Template, "", &mut found);
    found
}

fn leaves(value: &Value, kind: MapKind, place: &str, found: &mut Vec<String>) {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { return found.push(place.to_owned()) };
    for (field, value) in map.iter().filter(|(field, _)| *field != RETAIN_KEYS) {
        let at = if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
        match (kind.merged(field), value) {
            (Some((key, item)), Value::Array(items)) => {
                for value in items {
                    let name = value.get(key).map_or_else(String::new, |name| match name.as_str() {
                        Some(name) => name.to_owned(),
                        None => name.to_string(),
                    });
                    let mut value = value.clone();
                    value.as_object_mut().and_then(|value| value.remove(key));
                    leaves(&value, item, &format!("{at}[{name}]"), found);
                }
            }
            (None, Value::Object(_)) => leaves(value, kind.member(field), &at, found),
            _ if field == PATCH => found.push(format!("{place} ({})", value.as_str().unwrap_or_default())),
            _ => found.push(at),
        }
    }
}

fn wrong(field: impl Into<String>, reason: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), reason: reason.into(), hint: None }
}

#[cfg(test)]
mod tests;
