//! DaemonSets of the API that are too large for their namespace, which is not trusted.
//!
//! Owns what is known of such a DaemonSet: why it is refused, and whether it is ours. Must not keep what it defines.

use std::collections::BTreeMap;

use crate::core::bounds;
use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::joined_with_hints;

use super::Covered;
use super::Policy;

/// What is kept of a DaemonSet that is too large. Its size is no evidence against its running instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TooLarge {
    /// The fields that are too large; never empty.
    pub errors: Vec<FieldError>,
    /// Whether its labels make it ours.
    pub covered: Covered,
}

impl TooLarge {
    /// The errors in one line, each with its hint.
    pub fn reason(&self) -> String {
        joined_with_hints(&self.errors)
    }
}

impl Policy {
    /// Whether what is kept of the DaemonSets of the API in `namespace` is bounded.
    pub fn bounds(&self, namespace: &str) -> bool {
        !self.rules.trusts(namespace)
    }

    /// `daemon_set` of the API, unless it is too large for its namespace.
    ///
    /// # Errors
    /// What is kept of it.
    pub fn within_bounds(&self, daemon_set: DaemonSet) -> Result<DaemonSet, TooLarge> {
        let is_bounded = daemon_set.author() == Author::ApiUser && self.bounds(&daemon_set.key.namespace);
        let over = if is_bounded { bounds::too_much_to_keep(&daemon_set) } else { Vec::new() };
        match over.is_empty() {
            true => Ok(daemon_set),
            false => Err(self.too_large(&daemon_set.key.namespace, &daemon_set.labels, over)),
        }
    }

    /// What is kept of a DaemonSet of `namespace` with these `labels`, which is refused for `errors`.
    pub fn too_large(&self, namespace: &str, labels: &BTreeMap<String, String>, errors: Vec<FieldError>) -> TooLarge {
        TooLarge { errors, covered: self.covers_labels(namespace, labels, None) }
    }
}
