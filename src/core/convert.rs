//! From a parsed document to its objects: lists expanded, old API versions converted.
//!
//! Owns what each kind needs to be accepted by the API server, except DaemonSets (`validate`). Must not judge which
//! objects are needed.

mod checks;
mod daemon_set;
mod data;

use serde_json::Value;

use crate::core::input::ObjectName;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::nearest;

/// The deepest nesting of lists that is expanded.
const MAX_LISTS: usize = 8;

#[derive(Clone, Debug, PartialEq)]
pub enum DocumentObject {
    /// A DaemonSet, converted to apps/v1, not yet validated.
    DaemonSet {
        object: Value,
        /// The API version that it was written in.
        api_version: String,
    },
    /// One of the kinds that DaemonSets refer to.
    Other(ObjectRef, Value),
    /// A kind this program does not read.
    Ignored {
        /// `apiVersion kind`.
        kind: String,
        /// Its namespace and name.
        key: ObjectKey,
    },
}

/// Why a document, or an item of a list, is not a usable object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedObject {
    /// The object, if the document names it.
    pub object: Option<ObjectName>,
    /// The field and what is wrong with it.
    pub error: FieldError,
}

/// The objects of one document; for each, itself or why it cannot be used.
pub fn objects(document: Value) -> Vec<Result<DocumentObject, RefusedObject>> {
    let mut found = Vec::new();
    expand(document, None, "", MAX_LISTS, &mut found);
    found
}

/// kubectl's copy of the whole object in an annotation: the agent does not read it, and it would repeat what is left out of
/// an object elsewhere.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Takes [`LAST_APPLIED`] out of an object's `metadata`.
pub fn drop_last_applied(metadata: &mut Value) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
    annotations.remove(LAST_APPLIED);
    if annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}

/// Kind, namespace and name of an object, if it has them; a missing namespace is `default`.
pub fn name_of(object: &Value) -> Option<ObjectName> {
    let kind = object.get("kind")?.as_str()?;
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let namespace = metadata.text_at("namespace");
    let namespace = if is_cluster_scoped(kind) { "" } else { namespace.unwrap_or("default") };
    Some(ObjectName { kind: kind.to_owned(), key: ObjectKey::new(namespace, name) })
}

/// Cluster-scoped kinds that appear beside DaemonSets. For other kinds the namespace is only used in messages.
fn is_cluster_scoped(kind: &str) -> bool {
    matches!(
        kind,
        "Namespace"
            | "PriorityClass"
            | "RuntimeClass"
            | "ClusterRole"
            | "ClusterRoleBinding"
            | "CustomResourceDefinition"
            | "APIService"
            | "CSIDriver"
            | "StorageClass"
            | "PodSecurityPolicy"
            | "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding"
    )
}

fn expand(
    mut value: Value,
    item_of: Option<&(String, String)>,
    place: &str,
    lists: usize,
    found: &mut Vec<Result<DocumentObject, RefusedObject>>,
) {
    let refuse = |field: &str, reason: &str| RefusedObject {
        object: None,
        error: FieldError { field: join(place, field), reason: reason.to_owned(), hint: None },
    };
    let Value::Object(map) = &mut value else {
        found.push(Err(refuse("", "not an object: a document needs apiVersion, kind and metadata")));
        return;
    };
    if let Some((api_version, kind)) = item_of {
        // The items of a typed list may omit both; upstream takes them from the list.
        let unset = |value: Option<&Value>| value.is_none_or(Value::is_null);
        if unset(map.get("kind")) && unset(map.get("apiVersion")) {
            map.insert("apiVersion".to_owned(), api_version.as_str().into());
            map.insert("kind".to_owned(), kind.as_str().into());
        }
    }
    let (api_version, kind) = match (text(&value, "apiVersion"), text(&value, "kind")) {
        (Ok(api_version), Ok(kind)) => (api_version, kind),
        (Err(reason), _) => return found.push(Err(refuse("apiVersion", reason))),
        (_, Err(reason)) => return found.push(Err(refuse("kind", reason))),
    };
    if is_list_of_ours(&api_version, &kind)
        && !value.get("items").is_some_and(|items| items.is_array() || items.is_null())
    {
        let reason = if value.get("items").is_some() { "must be a list" } else { "required" };
        return found.push(Err(refuse("items", reason)));
    }
    if kind.ends_with("List") && value.get("items").is_some_and(|items| items.is_array() || items.is_null()) {
        if lists == 0 {
            return found.push(Err(refuse("items", "lists are nested too deeply")));
        }
        let item_of = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
        let item_of = item_of.map(|kind| (api_version.clone(), kind.to_owned()));
        if let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
            for (index, item) in items.into_iter().enumerate() {
                expand(item, item_of.as_ref(), &join(place, &format!("items[{index}]")), lists - 1, found);
            }
        }
        return;
    }
    found.push(object(api_version, kind, value).map_err(|mut refused| {
        if refused.object.is_none() {
            refused.error.field = join(place, &refused.error.field);
        }
        *refused
    }));
}

fn text(value: &Value, field: &str) -> Result<String, &'static str> {
    match value.get(field) {
        None | Some(Value::Null) => Err("required"),
        Some(Value::String(text)) if text.is_empty() => Err("required"),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err("must be a string"),
    }
}

fn join(place: &str, field: &str) -> String {
    match (place.is_empty(), field.is_empty()) {
        (true, _) => field.to_owned(),
        (_, true) => place.to_owned(),
        _ => format!("{place}.{field}"),
    }
}

fn object(api_version: String, kind: String, mut value: Value) -> Result<DocumentObject, Box<RefusedObject>> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let known = match (group, version, kind.as_str()) {
        ("apps" | "extensions", _, "DaemonSet") => None,
        ("", "v1", "ConfigMap") => Some(Kind::ConfigMap),
        ("", "v1", "Secret") => Some(Kind::Secret),
        ("", "v1", "ServiceAccount") => Some(Kind::ServiceAccount),
        ("", "v1", "Namespace") => Some(Kind::Namespace),
        ("", "v1", "Service") => Some(Kind::Service),
        ("scheduling.k8s.io", "v1" | "v1beta1" | "v1alpha1", "PriorityClass") => Some(Kind::PriorityClass),
        ("node.k8s.io", "v1" | "v1beta1", "RuntimeClass") => Some(Kind::RuntimeClass),
        _ => {
            if let Some(meant) = meant(group, &kind) {
                let reason = format!("{api_version} has no kind {kind:?}");
                let error = FieldError { hint: Some(format!("write `{meant}`")), ..checks::wrong("kind", reason) };
                value["kind"] = meant.rsplit(' ').next().into();
                return Err(Box::new(RefusedObject { object: name_of(&value), error }));
            }
            let key = name_of(&value).map_or_else(|| ObjectKey::new("", ""), |name| name.key);
            return Ok(DocumentObject::Ignored { kind: format!("{api_version} {kind}"), key });
        }
    };
    // A DaemonSet with invalid labels still has a name to report.
    let object = name_of(&value).filter(|_| known.is_none());
    let refuse = |error: FieldError| Box::new(RefusedObject { object: object.clone(), error });
    checks::metadata(&value, known).map_err(|mut error| {
        // It may stand for an object of another name.
        if let (None, Some(name)) = (&object, name_of(&value)) {
            error.reason = format!("{} ({name})", error.reason);
        }
        refuse(error)
    })?;
    value.get_mut("metadata").into_iter().for_each(drop_last_applied);
    let Some(name) = name_of(&value) else {
        return Err(refuse(checks::wrong("metadata.name", "required")));
    };
    let refuse = |error: FieldError| Box::new(RefusedObject { object: Some(name.clone()), error });
    let Some(kind) = known else {
        daemon_set::convert(&mut value, &api_version).map_err(refuse)?;
        return Ok(DocumentObject::DaemonSet { object: value, api_version });
    };
    match kind {
        Kind::ConfigMap => data::config_map(&mut value).map_err(refuse)?,
        Kind::Secret => data::secret(&mut value).map_err(refuse)?,
        Kind::ServiceAccount => checks::service_account(&value).map_err(refuse)?,
        Kind::PriorityClass => checks::priority_class(&value, &name.key.name).map_err(refuse)?,
        Kind::RuntimeClass => checks::runtime_class(&value).map_err(refuse)?,
        Kind::Namespace | Kind::Service | Kind::ControllerRevision => {}
    }
    let reference = ObjectRef::new(kind, name.key.namespace.clone(), name.key.name.clone());
    Ok(DocumentObject::Other(reference, value))
}

/// The kinds that are read: group, kind, what to write.
const KINDS: [(&str, &str, &str); 9] = [
    ("apps", "DaemonSet", "apiVersion: apps/v1, kind: DaemonSet"),
    ("", "ConfigMap", "apiVersion: v1, kind: ConfigMap"),
    ("", "Secret", "apiVersion: v1, kind: Secret"),
    ("", "ServiceAccount", "apiVersion: v1, kind: ServiceAccount"),
    ("", "Namespace", "apiVersion: v1, kind: Namespace"),
    ("", "Service", "apiVersion: v1, kind: Service"),
    ("", "List", "apiVersion: v1, kind: List"),
    ("scheduling.k8s.io", "PriorityClass", "apiVersion: scheduling.k8s.io/v1, kind: PriorityClass"),
    ("node.k8s.io", "RuntimeClass", "apiVersion: node.k8s.io/v1, kind: RuntimeClass"),
];

/// What an unknown `kind` of `group` is a slip of, as what to write: other case, the plural, a few wrong letters. `None`:
/// it is another kind.
fn meant(group: &str, kind: &str) -> Option<&'static str> {
    let singular = kind.strip_suffix(['s', 'S']).unwrap_or(kind);
    let near = |name| nearest::of(name, KINDS.iter().map(|(_, name, _)| *name));
    let name = near(kind).or_else(|| near(singular))?;
    // Groups of others have dots: they may have a DaemonSet of their own.
    let found = KINDS.iter().find(|(of, other, _)| *other == name && (group == *of || !group.contains('.')));
    found.map(|(_, _, meant)| *meant)
}

/// Whether lists of this kind hold objects that are read.
fn is_list_of_ours(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let item = kind.strip_suffix("List").map(|item| if item.is_empty() { "List" } else { item });
    item.is_some_and(|item| KINDS.iter().any(|(of, name, _)| *of == group && *name == item))
}

#[cfg(test)]
mod tests;
