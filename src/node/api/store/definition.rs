//! A DaemonSet of the API as it is kept: judged once, when it comes.
//!
//! Owns what tells one state of it from the next. Must not keep the object as it came: what decides is in the
//! typed view, and a map of JSON takes 600 bytes however little is in it.

use std::sync::Arc;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::validate;

/// A DaemonSet of the API, or why it cannot be used.
pub type Converted = Result<Arc<DaemonSet>, String>;

/// A DaemonSet with the store's version of its last change that matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Grows with every change of anything in the store; equal versions are equal definitions.
    pub version: u64,
    /// What it defines.
    pub converted: Converted,
    /// Whether it asks that its pods be kept when it goes, which one that cannot be used may, too.
    pub(super) orphans: bool,
}

impl Definition {
    /// What `value` defines.
    pub fn of(value: &Value, version: u64) -> Self {
        Self { version, converted: convert(value), orphans: is_orphaning(value) }
    }

    /// Whether the two define different things, whatever their versions.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.converted != other.converted || self.orphans != other.orphans
    }
}

/// The typed view of a DaemonSet as the API gave it, or everything that is wrong with it.
///
/// # Errors
/// Every field that upstream would refuse, for people.
pub fn convert(value: &Value) -> Converted {
    validate::daemon_set(value, Source::Api).map(Arc::new).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })
}

/// Whether an object that goes asks that its dependents be kept.
pub(super) fn is_orphaning(value: &Value) -> bool {
    let finalizers = value.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == "orphan"))
}
