//! What an instance waits for.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;

use super::context::ROOT_CA;

/// Something that must exist before the pod can start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Missing {
    /// `ConfigMap`, `Secret`, `ServiceAccount`, `ServiceAccountToken`, `PriorityClass`, `RuntimeClass`, `Service`, `APIEndpoint` or `KubeletVersion`;
    /// `DaemonSet` where another daemon starts first.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped things.
    pub namespace: String,
    /// Its name (for a token, the ServiceAccount's).
    pub name: String,
    /// The key in it that is needed (for a token, the audience), or empty.
    pub key: String,
}

/// [`Missing::kind`] of a daemon that starts first.
const DAEMON_SET: &str = "DaemonSet";
/// [`Missing::kind`] of a token.
const TOKEN: &str = "ServiceAccountToken";

impl Missing {
    /// A daemon that is to be Ready first.
    pub fn daemon(key: &ObjectKey) -> Self {
        let [namespace, name] = [&key.namespace, &key.name].map(Clone::clone);
        Self { kind: DAEMON_SET.to_owned(), namespace, name, key: String::new() }
    }

    /// Whether only a cluster issues it: a ServiceAccount's token, or its certificates, which each namespace has.
    pub fn is_issued_by_cluster(&self) -> bool {
        self.kind == TOKEN || (self.kind == "ConfigMap" && self.name == ROOT_CA && self.key.is_empty())
    }

    /// Whether it is a daemon that is to be Ready first.
    pub fn is_daemon(&self) -> bool {
        self.kind == DAEMON_SET
    }

    /// Whether `object` itself or something in it is missing.
    pub fn is(&self, object: &ObjectRef) -> bool {
        (self.kind.as_str(), &self.namespace, &self.name)
            == (object.kind.as_str(), &object.key.namespace, &object.key.name)
    }
}

impl fmt::Display for Missing {
    /// `Secret kube-system/keys (password)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.name.is_empty() {
            let slash = if self.namespace.is_empty() { "" } else { "/" };
            write!(f, " {}{slash}{}", self.namespace, self.name)?;
        }
        if !self.key.is_empty() {
            write!(f, " ({})", self.key)?;
        }
        Ok(())
    }
}
