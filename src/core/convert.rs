//! From a parsed document to the objects that matter: lists expanded, old API versions converted.

use serde_json::Value;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;

/// An object of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A DaemonSet, converted to apps/v1, not yet validated.
    DaemonSet(Value),
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

/// The objects of one document, or why one of them is none (lower case, names the field).
pub fn objects(_document: Value) -> Vec<Result<Object, String>> {
    Vec::new()
}
