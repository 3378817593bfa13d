//! A DaemonSet of the API, validated once when it arrives.
//!
//! Owns the comparison of its versions. Must not keep the raw object: decisions use the typed view, and a JSON map
//! takes at least 600 bytes.

use std::fmt;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::joined;
use crate::core::outline;
use crate::core::policy;
use crate::core::policy::Policy;
use crate::core::policy::TooLarge;
use crate::core::validate;

/// A DaemonSet of the API, or why it is not used.
pub type Converted = Result<Arc<DaemonSet>, Unusable>;

/// Why a DaemonSet of the API is not used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Unusable {
    /// These fields are invalid.
    Invalid(Vec<FieldError>),
    /// It has more than a namespace that is not trusted may have, and nothing else of it is kept.
    TooLarge(TooLarge),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) => f.write_str(&joined(errors)),
            Self::TooLarge(too_large) => f.write_str(&too_large.reason()),
        }
    }
}

/// A DaemonSet with the store's version of its last change that matters.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Definition {
    /// Grows with every change of anything in the store; equal versions are equal definitions.
    pub version: u64,
    /// What it defines.
    pub converted: Converted,
    /// Whether its pods are to stay when it is deleted (orphan), even if it is invalid.
    pub(super) orphans: bool,
    /// Whether its mode label has an unknown value, whatever else is wrong with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_mistyped: bool,
    /// [`fingerprint`] of its source.
    pub(super) fingerprint: u64,
    /// [`bounds::weight`], where what is kept of its namespace is bounded; else 0.
    #[serde(default)]
    pub(super) weight: usize,
}

impl Definition {
    /// What `value` defines.
    #[cfg(test)]
    pub fn of(value: &Value, version: u64) -> Self {
        Self { version, ..Self::within(None, value) }
    }

    /// What `value` defines. `policy`: the one that bounds what is kept of its namespace, if one does.
    pub(super) fn within(policy: Option<&Policy>, value: &Value) -> Self {
        let converted = match policy {
            Some(policy) => convert_within(policy, value),
            None => convert(value),
        };
        let weight = policy.and(converted.as_ref().ok()).map_or(0, |daemon_set| bounds::weight(daemon_set));
        let (orphans, fingerprint) = (is_orphaning(value), fingerprint(value));
        let mode = value.at(["metadata", "labels", MODE_LABEL]).and_then(Value::as_str);
        let is_mistyped = mode.is_some_and(policy::is_no_mode);
        Self { version: 0, converted, orphans, is_mistyped, fingerprint, weight }
    }

    /// Gives up what it defines: the namespace of `key` has no room for it.
    pub(super) fn give_up(&mut self, key: &ObjectKey, policy: &Policy) {
        if let Ok(daemon_set) = &self.converted {
            let errors = vec![bounds::no_room(&key.namespace, self.weight)];
            let too_large = policy.too_large(&key.namespace, &daemon_set.labels, errors);
            self.converted = Err(Unusable::TooLarge(too_large));
        }
    }

    /// Whether all of it was given up for want of room.
    pub(super) fn is_given_up(&self) -> bool {
        self.weight > 0 && self.converted.is_err()
    }

    #[cfg(test)]
    pub(crate) fn test(daemon_set: &Arc<DaemonSet>, version: u64) -> Self {
        let is_mistyped = policy::is_mistyped(&daemon_set.labels);
        let converted = Ok(Arc::clone(daemon_set));
        Self { version, converted, orphans: false, is_mistyped, fingerprint: version, weight: 0 }
    }

    /// Whether the two definitions differ, regardless of their versions.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let about = |one: &Self| (one.orphans, one.is_mistyped);
        self.converted != other.converted || about(self) != about(other)
    }
}

/// A fingerprint of what is kept of a DaemonSet, without managed fields: in a rollout the rest of the status changes once
/// a second on every node, and such updates are dropped before any other work.
pub(super) fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (field, value) in value.as_object().into_iter().flatten() {
        field.hash(&mut hasher);
        match value.as_object().filter(|_| field == "metadata") {
            Some(metadata) => {
                let fields =
                    metadata.iter().filter(|(field, _)| !matches!(field.as_str(), "resourceVersion" | "managedFields"));
                fields.for_each(|field| field.hash(&mut hasher));
            }
            None => value.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// The typed view of a DaemonSet of the API, or everything that is wrong with it.
///
/// # Errors
/// Every field that is refused.
pub fn convert(value: &Value) -> Converted {
    policy::checked(value, Source::Api).map(Arc::new).map_err(Unusable::Invalid)
}

/// The same of one in a namespace whose DaemonSets `policy` bounds.
fn convert_within(policy: &Policy, value: &Value) -> Converted {
    if let Some(error) = outline::too_large(value) {
        let labels = validate::strings(value.at(["metadata", "labels"]));
        let namespace = value.str_at(["metadata", "namespace"]);
        return Err(Unusable::TooLarge(policy.too_large(namespace, &labels, vec![error])));
    }
    let daemon_set = Arc::unwrap_or_clone(convert(value)?);
    policy.within_bounds(daemon_set).map(Arc::new).map_err(Unusable::TooLarge)
}

/// Whether an object being deleted asks that its dependents stay.
pub(super) fn is_orphaning(value: &Value) -> bool {
    value.list_at(["metadata", "finalizers"]).iter().any(|finalizer| finalizer == "orphan")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::api::object::keep_daemon_set;

    #[test]
    fn what_others_write_into_a_daemon_set_does_not_make_it_another() {
        let with = |version: &str, annotation: &str, image: &str, status: Value| {
            let value = json!({"metadata": {"name": "a", "resourceVersion": version, "managedFields": [{"time": version}],
                "annotations": {"a": annotation}}, "spec": {"image": image}, "status": status});
            fingerprint(&keep_daemon_set(value).unwrap())
        };
        let of = |version: &str, annotation: &str, image: &str, ready: u32| {
            with(version, annotation, image, json!({"numberReady": ready, "observedGeneration": ready}))
        };
        let before = of("1", "x", "i:1", 0);
        assert_eq!(before, of("2", "x", "i:1", 3));
        assert_ne!(before, of("1", "y", "i:1", 0));
        assert_ne!(before, of("1", "x", "i:2", 0));
        let released = |reason: &str, time: &str, ready: u32| {
            let condition = json!({"type": "Released", "status": "True", "reason": reason, "lastTransitionTime": time});
            with("1", "x", "i:1", json!({"numberReady": ready, "conditions": [condition]}))
        };
        let before = released("Complete", "t1", 0);
        assert_eq!(before, released("Complete", "t2", 3));
        assert_ne!(before, released("Held", "t1", 0), "what it says of rollouts decides what a first instance is");
    }
}
