//! The kubelet's manifest folder: whether it is safe, and whose other manifests are there.
//!
//! Owns when two static pods clash: of two with the same name or UID the kubelet runs only one (`kubetypes`,
//! `pod_manager.go`); of two with the same host port it rejects the second.

use super::Finding;
use crate::core::ports;
use crate::core::ports::HostPort;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundManifest {
    /// The file's name.
    pub file: String,
    /// Why it does not parse as a pod, if so.
    pub error: Option<String>,
    pub namespace: String,
    /// The pod's name as written, without the node's.
    pub name: String,
    /// The pod's UID; empty: the kubelet makes one from the file.
    pub uid: String,
    pub ports: Vec<HostPort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFolderFacts {
    pub path: String,
    /// Whether it is there.
    pub exists: bool,
    /// Why it cannot be used, and what to do, if so.
    pub error: Option<(String, Option<String>)>,
    pub ours: Vec<FoundManifest>,
    /// Everybody else's.
    pub foreign: Vec<FoundManifest>,
}

/// All checks of the folder.
pub fn examine(facts: &ManifestFolderFacts) -> Vec<Finding> {
    let mut findings = vec![folder(facts)];
    let clashes: Vec<Finding> = facts.foreign.iter().flat_map(|other| clashes(facts, other)).collect();
    let is_unlisted = facts.error.is_some() && facts.ours.is_empty() && facts.foreign.is_empty();
    if clashes.is_empty() && !is_unlisted {
        let (ours, foreign) = (facts.ours.len(), facts.foreign.len());
        findings.push(Finding::ok(FOREIGN, format!("{foreign} foreign and {ours} of ours, no conflicts")));
    }
    findings.extend(clashes);
    findings
}

const FOREIGN: &str = "foreign manifests";

fn folder(facts: &ManifestFolderFacts) -> Finding {
    const CHECK: &str = "manifest folder";
    let path = &facts.path;
    match &facts.error {
        Some((why, hint)) => {
            Finding::bad(CHECK, why.clone(), hint.as_deref().unwrap_or("see tmpfiles.d/daemonlet.conf"))
        }
        None if !facts.exists => Finding::warn(
            CHECK,
            format!("{path} does not exist; the agent creates it"),
            "systemd-tmpfiles --create daemonlet.conf makes it before the unit starts",
        ),
        None => Finding::ok(CHECK, format!("only root may write to {path}")),
    }
}

fn clashes(facts: &ManifestFolderFacts, other: &FoundManifest) -> Vec<Finding> {
    let file = &other.file;
    if let Some(error) = &other.error {
        let hint = format!("correct it, or move it out of {}", facts.path);
        return vec![Finding::warn(FOREIGN, format!("{file} is not a pod that the kubelet can run: {error}"), hint)];
    }
    let away = format!("move {file} out of {}, or rename its pod", facts.path);
    let mut found = Vec::new();
    for ours in &facts.ours {
        if (&ours.namespace, &ours.name) == (&other.namespace, &other.name) {
            let text = format!(
                "{file} is the pod {}/{}, and so is {}: the kubelet runs only one of them",
                ours.namespace, ours.name, ours.file
            );
            found.push(Finding::bad(FOREIGN, text, away.clone()));
        } else if !ours.uid.is_empty() && ours.uid == other.uid {
            let text = format!("{file} has the same UID as {}: the kubelet treats them as one pod", ours.file);
            found.push(Finding::bad(FOREIGN, text, format!("remove metadata.uid from {file}")));
        } else if let Some(port) = ports::clash(&other.ports, &ours.ports) {
            let text =
                format!("{file} wants host port {port}, and so does {}: the kubelet rejects one of them", ours.file);
            found.push(Finding::bad(FOREIGN, text, format!("change the port of one of them, or move {file} away")));
        }
    }
    found
}
