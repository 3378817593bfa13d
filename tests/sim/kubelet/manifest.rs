//! A manifest as the kubelet reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::GATE;

/// A manifest as the kubelet takes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) file: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The DaemonSet that it is of, by annotation.
    pub(crate) daemon: String,
    /// `REV` of its first container.
    pub(crate) revision: u64,
    /// Whether its first container ends at once.
    pub(crate) is_bad: bool,
    pub(crate) grace: i64,
    /// Volumes that the pod's data is expected in.
    pub(crate) volumes: Vec<String>,
    /// Whether its containers wait for the file of a gate.
    pub(crate) has_gate: bool,
    pub(crate) whole: Arc<Value>,
}

impl Manifest {
    /// Those that the sandbox of its pod has.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let own = self.whole.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
        let own = own.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        own.chain([("kubernetes.io/config.source".to_owned(), "file".to_owned())]).collect()
    }
}

/// A manifest; `None`: the kubelet does not take it.
pub(crate) fn parse(file: &str, text: &str) -> Option<Manifest> {
    let whole: Value = serde_saphyr::from_str(text).ok()?;
    let at = |path: &str| whole.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let containers = whole.pointer("/spec/containers")?.as_array()?;
    if containers.is_empty() || whole["kind"] != "Pod" {
        return None;
    }
    let env = containers[0]["env"].as_array().cloned().unwrap_or_default();
    let revision = env.iter().find(|env| env["name"] == "REV").and_then(|env| env["value"].as_str());
    let volumes = whole["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let data = volumes.iter().filter(|volume| volume["emptyDir"].is_object() && volume["name"] != GATE);
    Some(Manifest {
        file: file.to_owned(),
        namespace: at("/metadata/namespace").unwrap_or_else(|| "default".to_owned()),
        name: at("/metadata/name")?,
        uid: at("/metadata/uid").unwrap_or_else(|| format!("of-{file}")),
        daemon: at("/metadata/annotations/daemonlet.dev~1daemonset").unwrap_or_default(),
        revision: revision.and_then(|revision| revision.parse().ok()).unwrap_or(0),
        is_bad: env.iter().any(|env| env["name"] == "BAD"),
        grace: whole.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30),
        volumes: data.filter_map(|volume| volume["name"].as_str().map(str::to_owned)).collect(),
        has_gate: volumes.iter().any(|volume| volume["name"] == GATE),
        whole: Arc::new(whole),
    })
}
