//! The list of overlays as its ConfigMap has it.
//!
//! Owns what an entry may be. Must not look at a template.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::Bound;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::model::ObjectRef;
use crate::core::nearest;
use crate::core::validate;
use crate::core::yaml;
use crate::core::yaml::Limit;
use crate::core::yaml::YamlFault;

use super::KEY;
use super::Patch;

/// How many entries a list has at most.
const ENTRIES: usize = 100;
/// How many nodes of YAML a value has at most: an alias and what it stands for, and the same again for its key.
const NODES: usize = 4;
/// The prefix of daemonlet's annotations.
const OURS: &str = "daemonlet.dev/";
/// The fields of an entry.
const FIELDS: [&str; 2] = ["nodes", "patch"];
/// The fields of a patch.
const PATCHED: [&str; 2] = ["metadata", "spec"];

/// An entry of the list.
#[derive(Debug)]
pub(super) struct OverlayEntry {
    nodes: Value,
    pub(super) patch: Patch,
}

impl OverlayEntry {
    /// Its patch, if it applies to a node with these labels.
    pub(super) fn applying_to(&self, labels: &BTreeMap<String, String>) -> Option<Patch> {
        let applies = validate::label_selector(&self.nodes, labels, "").is_ok_and(|applies| applies);
        applies.then(|| self.patch.clone())
    }
}

/// The result of [`read`].
pub(super) type ReadList = Result<Vec<OverlayEntry>, Vec<FieldError>>;

/// The list that was read last: DaemonSets that name one ConfigMap share its patches. One alone, because tenants may have
/// many.
#[derive(Debug, Default)]
pub struct LastList(RefCell<Option<Last>>);

#[derive(Debug)]
struct Last {
    reference: ObjectRef,
    text: String,
    bound: &'static Bound,
    list: Arc<ReadList>,
}

impl LastList {
    /// As [`read`], which an unchanged text does not need again.
    pub(super) fn read(&self, reference: &ObjectRef, object: &Value, bound: &'static Bound) -> Arc<ReadList> {
        let Some(text) = text_of(object) else { return Arc::new(read(reference, object, bound)) };
        let mut last = self.0.borrow_mut();
        let is_same = |last: &&Last| (&last.reference, &*last.text, last.bound) == (reference, text, bound);
        if let Some(last) = last.as_ref().filter(is_same) {
            return Arc::clone(&last.list);
        }
        let list = Arc::new(read(reference, object, bound));
        *last = Some(Last { reference: reference.clone(), text: text.to_owned(), bound, list: Arc::clone(&list) });
        list
    }

    /// Gives it up.
    pub fn clear(&mut self) {
        *self.0.get_mut() = None;
    }
}

fn text_of(object: &Value) -> Option<&str> {
    object.get("data").and_then(|data| data.get(KEY)).and_then(Value::as_str)
}

/// The entries of the ConfigMap `object`.
///
/// # Errors
/// Every field of it that is not understood, or that no overlay may have.
pub(super) fn read(reference: &ObjectRef, object: &Value, bound: &Bound) -> ReadList {
    let place = format!("{reference}: {KEY}");
    let Some(text) = text_of(object) else {
        let hint = Some(format!("write the list of overlays under data[{KEY}]"));
        return Err(vec![FieldError { field: place, reason: "required".to_owned(), hint }]);
    };
    if text.len() > bound.template {
        return Err(vec![over(&place, &format!("has {} bytes; at most {}", text.len(), bound.template), bound)]);
    }
    let limit = Limit { documents: 2, nodes: bound.values * NODES, bytes: bound.template };
    let mut documents = yaml::read_within(text, limit).into_iter();
    let list = match (documents.next().map(|document| document.value), documents.next()) {
        // An empty text, as a faulty program may write, takes no patch away.
        (None, _) | (Some(Ok(Value::Null)), None) => {
            let hint = Some("write [] to end all patches".to_owned());
            return Err(vec![FieldError { hint, ..wrong(place, "has no list") }]);
        }
        (Some(Ok(Value::Array(list))), None) => list,
        (Some(Err(error)), _) => {
            let reason = format!("line {}, column {}: {}", error.line, error.column, error.message);
            let hint = (error.fault == YamlFault::TooLarge).then(|| bound.hint());
            return Err(vec![FieldError { hint, ..wrong(place, reason) }]);
        }
        (Some(Ok(_)), _) => return Err(vec![wrong(place, "must be one list of {nodes, patch}")]),
    };
    if list.len() > ENTRIES {
        return Err(vec![wrong(place, format!("has {} entries; at most {ENTRIES} are allowed", list.len()))]);
    }
    let values = bounds::values(&list);
    if values > bound.values {
        return Err(vec![over(&place, &format!("has {values} values; at most {}", bound.values), bound)]);
    }
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for (index, entry) in list.into_iter().enumerate() {
        let found = self::entry(index, entry, &format!("{place}[{index}]"), &mut errors);
        entries.extend(found);
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

fn entry(index: usize, mut entry: Value, place: &str, errors: &mut Vec<FieldError>) -> Option<OverlayEntry> {
    let before = errors.len();
    let Some(map) = entry.as_object_mut() else {
        errors.push(wrong(place, "must be a map of nodes and patch"));
        return None;
    };
    only(map.keys(), &FIELDS, place, errors);
    let [nodes, patch] = FIELDS.map(|field| map.remove(field).unwrap_or_default());
    for (field, value) in FIELDS.into_iter().zip([&nodes, &patch]) {
        if !value.is_object() {
            errors.push(wrong(format!("{place}.{field}"), "required, and must be a map"));
        }
    }
    if errors.len() > before {
        return None;
    }
    let at = format!("{place}.patch");
    only(patch.as_object().into_iter().flat_map(|patch| patch.keys()), &PATCHED, &at, errors);
    // A null would take what stands there away: of the metadata also the labels, which are no overlay's.
    for field in PATCHED.iter().filter(|field| patch.get(**field).is_some_and(|value| !value.is_object())) {
        errors.push(wrong(format!("{at}.{field}"), "must be a map"));
    }
    let metadata = patch.get("metadata").and_then(Value::as_object).into_iter().flat_map(|metadata| metadata.keys());
    only(metadata, &["annotations"], &format!("{at}.metadata"), errors);
    let annotations =
        patch.at(["metadata", "annotations"]).and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
    errors.extend(annotations.filter(|name| name.starts_with(OURS)).map(|name| FieldError {
        field: format!("{at}.metadata.annotations[{name}]"),
        reason: "an overlay cannot have an annotation of daemonlet".to_owned(),
        hint: Some("write it into the DaemonSet's own metadata.annotations".to_owned()),
    }));
    if errors.len() > before {
        return None;
    }
    errors.extend(
        validate::label_selector(&nodes, &BTreeMap::new(), &format!("{place}.nodes")).err().into_iter().flatten(),
    );
    errors.extend(validate::patch_fields(&patch, &at));
    (errors.len() == before).then_some(OverlayEntry { nodes, patch: Patch { index, patch: Arc::new(patch) } })
}

/// Refuses fields that are not among `known`.
fn only<'a>(
    fields: impl Iterator<Item = &'a String>,
    known: &[&'static str],
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    for field in fields.filter(|field| !known.contains(&field.as_str())) {
        let hint = match nearest::of(field, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("it may have {}", known.join(" and ")),
        };
        let reason = "an overlay cannot have this field".to_owned();
        errors.push(FieldError { field: format!("{place}.{field}"), reason, hint: Some(hint) });
    }
}

/// That `patches`, which apply to a node, take more memory than `bound` allows, if they do.
pub(super) fn too_much_to_keep(reference: &ObjectRef, patches: &[Patch], bound: &Bound) -> Option<FieldError> {
    let weight: usize = patches.iter().map(|patch| bounds::object_weight(&patch.patch)).sum();
    let reason = format!(
        "the patches that apply to this node take {weight} bytes of the agent's memory, of which each value takes {} \
         beside its text; at most {}",
        bounds::VALUE,
        bound.patches
    );
    (weight > bound.patches).then(|| over(&format!("{reference}: {KEY}"), &reason, bound))
}

fn over(place: &str, reason: &str, bound: &Bound) -> FieldError {
    FieldError { hint: Some(bound.hint()), ..wrong(place, format!("{reason} are allowed")) }
}

fn wrong(field: impl Into<String>, reason: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), reason: reason.into(), hint: None }
}
