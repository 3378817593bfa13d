//! Secret data leaves the volumes when the machine is shut down.
//!
//! Owns which volumes lose their data. Must not remove data that is not sealed on disk.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::StartGate;
use crate::core::render::GATE;
use crate::node::agent::failure;
use crate::node::agent::state::AgentState;
use crate::node::seal;

use super::Executor;

/// The machine is being shut down: takes secret data from the volumes, once it is sealed on disk. A stop of
/// the agent alone takes nothing: daemons read it.
pub(in crate::node::agent) fn withdraw_secrets(executor: &mut Executor, state: &AgentState) {
    let is_off = !executor.sealing.is_on() || !seal::is_shutting_down();
    let Some(folder) = executor.state.as_ref().filter(|_| !is_off) else { return };
    // The last pass may have been long ago.
    if executor.manifests.as_mut().is_none_or(|manifests| manifests.scan().is_err()) {
        tracing::warn!(
            "the machine shuts down: secrets stay in the volumes, readable for root, because the manifest folder cannot be read, \
             and nothing is written without it"
        );
        return;
    }
    if !executor.sealing.is_safe(&folder.inputs) {
        tracing::warn!(
            "the machine shuts down: secrets stay in the volumes, readable for root, because they are not all sealed in \
             the checkpoint, or what is sealed there cannot be opened now, or the state folder cannot be written"
        );
        return;
    }
    let unread = state.inputs.unread.iter().filter(|object| object.kind == Kind::Secret);
    let unread: BTreeSet<&str> = unread.map(|object| object.key.namespace.as_str()).collect();
    for namespace in &unread {
        tracing::warn!(
            "the machine shuts down: secrets of namespace {namespace} stay in its volumes, readable for root, because the API \
             server has had newer ones than those that are sealed, or others for which there was no room"
        );
    }
    let records = state.records.values().filter(|record| !unread.contains(record.key.namespace.as_str()));
    let instances = records.flat_map(|record| record.instances.iter().map(move |instance| (&record.key, instance)));
    for (daemon, instance) in instances {
        // Without its definition the agent cannot write them again.
        let Some(daemon_set) = &instance.daemon_set else { continue };
        let harmless = harmless(daemon_set);
        // A gate without its file is closed, and only an agent would open it.
        let has_gate = daemon_set.gate == StartGate::Has;
        let stays = |volume: &str| harmless.contains(volume) || has_gate && volume == GATE;
        if let Err(error) = executor.volumes.withdraw(&instance.uid, stays) {
            let (daemonset, pod) = (daemon.to_string(), &instance.pod_name);
            tracing::warn!(daemonset, pod, "{}", failure::of(&error, None).cause);
        }
    }
    tracing::info!("the machine shuts down: secrets are sealed on disk, and gone from the volumes");
}

/// The volumes of a DaemonSet that hold no secret, by their template; all others may.
fn harmless(daemon_set: &DaemonSet) -> BTreeSet<&str> {
    let volumes = daemon_set.pod_template().pointer("/spec/volumes");
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    let open = |source: &Value| source.get("secret").is_none() && source.get("serviceAccountToken").is_none();
    let is_harmless = |volume: &&Value| match volume.pointer("/projected/sources").and_then(Value::as_array) {
        Some(sources) => sources.iter().all(open),
        None => volume.get("configMap").is_some() || volume.get("downwardAPI").is_some(),
    };
    volumes.filter(is_harmless).filter_map(|volume| volume.get("name")?.as_str()).collect()
}
