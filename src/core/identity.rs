//! Who an instance is: UID and pod name, from template, node and incarnation and nothing else.

use serde_json::Value;

use crate::core::model::ObjectKey;

/// UID and pod name of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The pod UID (UUIDv5, lower case with dashes).
    pub uid: String,
    /// The pod's name without the node's: `<daemonset>-<5 characters>`.
    pub pod_name: String,
}

/// The identity of `incarnation` of the daemon `key` with the canonical template `canonical` on `node`.
pub fn identity(_key: &ObjectKey, _canonical: &Value, _node: &str, _incarnation: u64) -> Identity {
    Identity { uid: String::new(), pod_name: String::new() }
}

/// The hash of a revision (label `controller-revision-hash`) over its canonical template.
pub fn revision_hash(_canonical: &Value) -> String {
    String::new()
}
