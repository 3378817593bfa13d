//! Objects beside DaemonSets: their references, and their lookup.
//!
//! Owns plain values only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::core::named::named;

/// A namespaced name, printed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

named! {
    /// The kinds of objects that this program reads beside DaemonSets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Kind {
        /// v1 ConfigMap.
        ConfigMap = "ConfigMap",
        /// v1 Secret.
        Secret = "Secret",
        /// v1 ServiceAccount.
        ServiceAccount = "ServiceAccount",
        /// scheduling.k8s.io/v1 PriorityClass (cluster-scoped).
        PriorityClass = "PriorityClass",
        /// node.k8s.io/v1 RuntimeClass (cluster-scoped).
        RuntimeClass = "RuntimeClass",
        /// v1 Namespace (cluster-scoped).
        Namespace = "Namespace",
        /// v1 Service; only `default/kubernetes` is read.
        Service = "Service",
        /// apps/v1 ControllerRevision, of the DaemonSet's own history.
        ControllerRevision = "ControllerRevision",
    }
}

impl Kind {
    /// Whether objects of this kind live in a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::PriorityClass | Kind::RuntimeClass | Kind::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    pub kind: Kind,
    /// Namespace (empty for cluster-scoped kinds) and name.
    #[serde(flatten)]
    pub key: ObjectKey,
}

impl ObjectRef {
    /// `namespace` is ignored for cluster-scoped kinds.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let namespace = if kind.is_namespaced() { namespace.into() } else { String::new() };
        Self { kind, key: ObjectKey { namespace, name: name.into() } }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup<'a> {
    /// It exists; this is its JSON.
    Present(&'a Value),
    /// It was deleted, but something that runs still uses it. As with the kubelet, a required reference keeps the last
    /// data; an optional one drops it.
    Deleted(&'a Value),
    /// A complete list shows that it does not exist.
    Absent,
    /// Unknown so far. Never treated as absent.
    Unknown,
}

/// Where decisions look up objects. Implemented by plain maps; must not do I/O.
pub trait ObjectSource {
    /// What is known of `reference`.
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_>;

    /// Whether nothing is known of `reference` now, and it was not there when what runs was made.
    fn was_absent(&self, _reference: &ObjectRef) -> bool {
        false
    }

    /// Whether nothing is known of `reference` now, and what runs may have been made with it.
    fn may_have_had(&self, reference: &ObjectRef) -> bool;

    /// The object that [`ObjectSource::lookup`] gives, where it has several owners: then its texts need not be copied.
    fn shared(&self, _reference: &ObjectRef) -> Option<Arc<Value>> {
        None
    }
}

/// A fixed set of objects. Others are absent if the set is `complete`, else unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectMap {
    pub objects: BTreeMap<ObjectRef, Value>,
    /// Whether the map contains everything there is.
    pub complete: bool,
}

impl ObjectSource for ObjectMap {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        match self.objects.get(reference) {
            Some(value) => Lookup::Present(value),
            None if self.complete => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    fn may_have_had(&self, _: &ObjectRef) -> bool {
        false
    }
}

/// A ServiceAccount token that a pod needs; tokens are bound to the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenRequest {
    /// Namespace and name of the ServiceAccount.
    pub service_account: ObjectKey,
    /// The audience; empty for the API server's own.
    pub audience: String,
    /// The requested lifetime in seconds (at least 600, as the API requires).
    pub expiration_seconds: i64,
}

impl TokenRequest {
    /// Whether a token for `other` does as well: it has the same rights, and perhaps another life.
    pub fn is_alike(&self, other: &TokenRequest) -> bool {
        self.service_account == other.service_account && self.audience == other.audience
    }
}

/// Where rendering looks up tokens; must not do I/O.
pub trait TokenSource {
    /// The last token issued for `request`, even if it has expired; `None` if there never was one.
    fn token(&self, request: &TokenRequest) -> Option<&str>;
}

impl TokenSource for BTreeMap<TokenRequest, String> {
    fn token(&self, request: &TokenRequest) -> Option<&str> {
        self.get(request).map(String::as_str)
    }
}
