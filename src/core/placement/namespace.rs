//! The node selector of a namespace: which nodes its pods may run on, whatever their own selectors say.
//!
//! Follows the admission plugin PodNodeSelector (`plugin/pkg/admission/podnodeselector`) and OpenShift's DaemonSet
//! controller, each with its annotation. Must not look at pods.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::core::labels;
use crate::core::model::Lookup;
use crate::core::model::NodeView;

/// The annotation of PodNodeSelector; it takes precedence.
const UPSTREAM: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// OpenShift's own annotation.
const OPENSHIFT: &str = "openshift.io/node-selector";
/// The configuration key of the cluster's default.
const DEFAULT: &str = "policy.default-node-selector";

/// A selector for the nodes of a namespace's pods, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSelector {
    /// Its source: an annotation or the configuration.
    pub origin: String,
    /// The selector as written; never empty.
    pub text: String,
}

/// A namespace's selector compared with the node's labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceCheck {
    pub origin: String,
    pub wanted: String,
    /// Whether the node matches.
    pub matches: bool,
    /// Why the selector is invalid, if it is.
    pub invalid: Option<String>,
}

/// What a Namespace's annotation says.
fn written<'a>(namespace: &'a Value, key: &str) -> Option<&'a str> {
    namespace.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

impl NamespaceSelector {
    /// Whether the Namespace object has a node selector of its own, even an empty one.
    pub fn is_in(namespace: &Value) -> bool {
        [UPSTREAM, OPENSHIFT].iter().any(|key| written(namespace, key).is_some())
    }

    /// The selector for pods of the namespace `name`; `namespace` is what is known of it, `default` the cluster's
    /// default. An annotation of the namespace, even an empty one, overrides the default. `None` without a selector,
    /// and while nothing is known of the namespace: every node matches.
    pub fn of(name: &str, namespace: Lookup<'_>, default: &str) -> Option<Self> {
        let object = match namespace {
            Lookup::Present(object) | Lookup::Deleted(object) => Some(object),
            Lookup::Absent => None,
            Lookup::Unknown => return None,
        };
        let annotation = |key| Some((format!("{key} of namespace {name}"), written(object?, key)?));
        let found = annotation(UPSTREAM).or_else(|| annotation(OPENSHIFT));
        let (origin, text) = found.unwrap_or_else(|| (DEFAULT.to_owned(), default));
        let text = text.trim();
        (!text.is_empty()).then(|| Self { origin, text: text.to_owned() })
    }

    /// Judges `node` by it.
    pub(super) fn check(&self, node: &NodeView) -> NamespaceCheck {
        let parsed = labels::parse(&self.text);
        NamespaceCheck {
            origin: self.origin.clone(),
            wanted: self.text.clone(),
            matches: parsed.as_ref().is_ok_and(|selector| selector.matches(&node.labels)),
            invalid: parsed.err().map(|error| error.to_string()),
        }
    }
}

impl fmt::Display for NamespaceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", self.wanted, self.origin)?;
        match &self.invalid {
            Some(reason) => write!(f, "invalid selector, so nothing new starts: {reason}"),
            None if self.matches => f.write_str("the node matches"),
            None => f.write_str("the node does not match"),
        }
    }
}
