//! How a command line of the plugin names a DaemonSet: `NAMESPACE/NAME`, or `NAME` with `--namespace`, as kubectl does.

use std::convert::Infallible;
use std::str::FromStr;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::explain;
use crate::core::model::ObjectKey;

/// The DaemonSet whose rollout is steered.
#[derive(Debug, Args)]
pub(super) struct Steered {
    /// The DaemonSet; its name alone with --namespace
    #[arg(value_name = "NAMESPACE/NAME")]
    daemon_set: DaemonSetName,
}

/// One DaemonSet, or all.
#[derive(Debug, Args)]
pub(super) struct OneDaemonSet {
    /// One DaemonSet; its name alone with --namespace
    #[arg(value_name = "NAMESPACE/NAME")]
    daemon_set: Option<DaemonSetName>,
}

impl Steered {
    pub(super) fn key(&self, namespace: Option<&str>) -> Result<ObjectKey, CommandFailure> {
        self.daemon_set.key(namespace)
    }
}

impl OneDaemonSet {
    pub(super) fn key(&self, namespace: Option<&str>) -> Result<Option<ObjectKey>, CommandFailure> {
        self.daemon_set.as_ref().map(|name| name.key(namespace)).transpose()
    }
}

/// What stands on the command line.
#[derive(Clone, Debug)]
struct DaemonSetName(String);

impl FromStr for DaemonSetName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl DaemonSetName {
    /// Its key; `namespace`: what `--namespace` says.
    fn key(&self, namespace: Option<&str>) -> Result<ObjectKey, CommandFailure> {
        let refused = |message: String| CommandFailure::new(Exit::Usage, message);
        let name = &self.0;
        match namespace {
            Some(namespace) if !name.is_empty() && !name.contains('/') => Ok(ObjectKey::new(namespace, name.as_str())),
            _ => {
                let key = explain::key(name).map_err(|why| {
                    refused(format!("{name:?}: {why}")).hint("a name alone takes the namespace of --namespace")
                })?;
                match namespace {
                    Some(other) if key.namespace != other => {
                        Err(refused(format!("{key} is not in the namespace {other}, which --namespace says")))
                    }
                    _ => Ok(key),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_takes_the_namespace_that_is_given() {
        let key = |name: &str, namespace| DaemonSetName(name.to_owned()).key(namespace);
        let of = |namespace: &str| Some(ObjectKey::new(namespace, "b"));
        for (name, namespace, expected) in [
            ("a/b", None, of("a")),
            ("b", Some("a"), of("a")),
            ("a/b", Some("a"), of("a")),
            ("a/b", Some("c"), None),
            ("b", None, None),
            ("", Some("a"), None),
            ("a/", Some("a"), None),
        ] {
            assert_eq!(key(name, namespace).ok(), expected, "{name} {namespace:?}");
        }
        assert_eq!(key("b", None).unwrap_err().exit, Exit::Usage);
    }
}
