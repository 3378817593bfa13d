//! How a command line of the plugin names a DaemonSet: `NAMESPACE/NAME`, or with `--namespace` `NAME` or `ds/NAME`, as kubectl
//! does.

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

/// How kubectl writes the resource before a name.
const RESOURCES: [&str; 5] = ["ds/", "daemonset/", "daemonsets/", "daemonset.apps/", "daemonsets.apps/"];

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
        // Without a namespace what stands before the slash is one.
        let alone = namespace.and_then(|_| RESOURCES.iter().find_map(|resource| name.strip_prefix(resource)));
        let alone = alone.unwrap_or(name);
        match namespace {
            Some(namespace) if !alone.is_empty() && !alone.contains('/') => Ok(ObjectKey::new(namespace, alone)),
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
            ("ds/b", Some("a"), of("a")),
            ("daemonsets.apps/b", Some("a"), of("a")),
            ("ds/b", None, of("ds")),
            ("ds/", Some("a"), None),
            ("ds/a/b", Some("a"), None),
            ("b", None, None),
            ("", Some("a"), None),
            ("a/", Some("a"), None),
        ] {
            assert_eq!(key(name, namespace).ok(), expected, "{name} {namespace:?}");
        }
        assert_eq!(key("b", None).unwrap_err().exit, Exit::Usage);
    }
}
