//! The kubelet's manifest folder: whether it is safe, and who else writes there.
//!
//! Owns what makes two static pods clash: the kubelet runs only one of two with the same name or UID
//! (`kubetypes`, `pod_manager.go`), and refuses the second that wants a port of the host.

use super::Finding;
use crate::core::ports;
use crate::core::ports::HostPort;

/// One manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundManifest {
    /// The file's name.
    pub file: String,
    /// Why it does not parse as a pod, if so.
    pub error: Option<String>,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name as written, without the node's.
    pub name: String,
    /// The pod's UID; empty: the kubelet makes one from the file.
    pub uid: String,
    /// Its ports of the host.
    pub ports: Vec<HostPort>,
}

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFolderFacts {
    /// Its path.
    pub path: String,
    /// Whether it is there.
    pub exists: bool,
    /// Why it cannot be used, and what to do, if so.
    pub error: Option<(String, Option<String>)>,
    /// Our manifests.
    pub ours: Vec<FoundManifest>,
    /// Everybody else's.
    pub foreign: Vec<FoundManifest>,
}

/// All checks of the folder.
pub fn examine(facts: &ManifestFolderFacts) -> Vec<Finding> {
    let mut findings = vec![folder(facts)];
    let clashes: Vec<Finding> = facts.foreign.iter().flat_map(|other| clashes(facts, other)).collect();
    if clashes.is_empty() {
        let (ours, foreign) = (facts.ours.len(), facts.foreign.len());
        findings.push(Finding::ok(FOREIGN, format!("{foreign} beside {ours} of ours, none in their way")));
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
            format!("{path} does not exist; the agent makes it"),
            "systemd-tmpfiles --create daemonlet.conf makes it before the unit starts",
        ),
        None => Finding::ok(CHECK, format!("{path} is root's alone to write")),
    }
}

fn clashes(facts: &ManifestFolderFacts, other: &FoundManifest) -> Vec<Finding> {
    let file = &other.file;
    if let Some(error) = &other.error {
        let hint = format!("correct it, or move it out of {}", facts.path);
        return vec![Finding::warn(FOREIGN, format!("{file} is no pod that the kubelet could run: {error}"), hint)];
    }
    let away = format!("move {file} out of {}, or rename its pod", facts.path);
    let mut found = Vec::new();
    for ours in &facts.ours {
        if (&ours.namespace, &ours.name) == (&other.namespace, &other.name) {
            let text = format!(
                "{file} is a pod {}/{}, as {} is: the kubelet runs one of them",
                ours.namespace, ours.name, ours.file
            );
            found.push(Finding::bad(FOREIGN, text, away.clone()));
        } else if !ours.uid.is_empty() && ours.uid == other.uid {
            let text = format!("{file} has the UID of {}: the kubelet takes both for one pod", ours.file);
            found.push(Finding::bad(FOREIGN, text, format!("take metadata.uid out of {file}")));
        } else if let Some(port) = ports::clash(&other.ports, &ours.ports) {
            let text =
                format!("{file} wants the host's port {port}, as {} does: the kubelet refuses one of them", ours.file);
            found.push(Finding::bad(FOREIGN, text, format!("give one of them another port, or move {file} away")));
        }
    }
    found
}
