//! Gathers what `daemonlet doctor` judges: this node's files and processes, the runtime, the API server.
//!
//! Owns the requests and their timeouts. Must not judge (`core::doctor`) or change anything: it runs beside the agent,
//! with the agent's configuration and credentials.

mod access;
mod api;
mod definitions;
mod disk;
mod folders;
mod found;
mod kubelet;
mod manifests;
mod way;

use std::path::Path;

pub use access::is_closed;
pub use folders::replaceable;

use crate::config::Config;
use crate::core::doctor;
use crate::core::doctor::AgentFinding;
use crate::core::doctor::Finding;
use crate::core::doctor::RuntimeFinding;
use crate::core::status::StatusReport;
use crate::node::checkpoint;
use crate::node::cri::Cri;
use crate::node::fsx::Real;

/// Gathers everything; `status` is the agent's report, `agent` how it answered.
pub async fn examine(config: &Config, agent: &AgentFinding, status: Option<&StatusReport>) -> Vec<Finding> {
    let ((runtime, makes_image_volumes), api) = tokio::join!(runtime(config), api::facts(config, status));
    let known = status.and_then(|status| status.kubelet_version.clone());
    let version = api.node_version.or_else(|| config.kubelet_version.clone()).or(known);
    let manifests = manifests::facts(&config.manifest_dir);
    let kubelet = kubelet::facts(config, version);
    let closed = access::closed(config, Path::new(&kubelet.path));
    let mut findings = vec![doctor::agent(agent, manifests.ours.len())];
    findings.extend(status.into_iter().flat_map(|status| doctor::held(&status.daemons)));
    findings.extend(doctor::kubelet::examine(&kubelet));
    findings.push(doctor::runtime(&runtime));
    let rules = config.policy_rules();
    let is_bound = !rules.local_storage && config.policy_namespaces.iter().any(|namespace| !rules.trusts(namespace));
    findings.extend(doctor::image_volumes(makes_image_volumes.filter(|_| is_bound)));
    findings.extend(doctor::manifests::examine(&manifests));
    let granted: Vec<String> = config.grants.keys().cloned().collect();
    findings.push(doctor::policy::examine(&config.trusted_namespaces, &granted, &config.broad_grants()));
    let (others, open) = (definitions::others(&config.folders), definitions::open(&config.folders));
    findings.extend(doctor::folders::examine(&others, &open));
    findings.extend(doctor::folders::readable(&definitions::readable_secrets(&config.folders)));
    let state_dir = config.state_dir.display().to_string();
    findings.extend(folders::state(&config.state_dir).map(|found| doctor::state_folder(&state_dir, &found)));
    let aside = checkpoint::set_aside_in(&Real::shared(), &config.state_dir);
    findings.extend(doctor::set_aside(&aside.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()));
    findings.extend(doctor::disk::examine(&disk::folders(config)));
    findings.push(doctor::secrets(config.seal_with(), &config.state_dir.display().to_string()));
    findings.extend(doctor::api::examine(&api.facts, &config.node_name));
    doctor::skip(&closed, findings)
}

/// The runtime, and whether it makes volumes of images, if it says so.
async fn runtime(config: &Config) -> (RuntimeFinding, Option<bool>) {
    let Some(endpoint) = &config.runtime_endpoint else { return (RuntimeFinding::NotConfigured, None) };
    let unreachable = |error: crate::node::cri::CriError| {
        // The agent retries; doctor does not.
        let why = error.to_string().replace(": retrying", "");
        (RuntimeFinding::Unreachable(why, error.hint()), None)
    };
    match Cri::connect(&endpoint.to_string_lossy()) {
        Err(error) => unreachable(error),
        Ok(cri) => match cri.version().await {
            Ok(runtime) => {
                let answers = format!("{} {} at {}", runtime.name, runtime.version, endpoint.display());
                (RuntimeFinding::Answers(answers), cri.makes_image_volumes().await.unwrap_or_default())
            }
            Err(error) => unreachable(error),
        },
    }
}
