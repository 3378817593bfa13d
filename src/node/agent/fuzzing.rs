//! A door for the fuzz targets: the checkpoint of inputs, as the agent loads and saves it.
//!
//! Exists for the fuzzer (`cfg(fuzzing)`) and in debug builds, whose tests replay the seeds. Must not do what
//! the agent does not do.

use crate::core::model::NodeView;
use crate::node::api::Tokens;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::CheckpointStore;
use crate::node::checkpoint::Loaded;
use crate::node::cri;

use super::records::Records;
use super::remembered_inputs;
use super::remembered_inputs::RememberedInputs;
use super::remembered_inputs::SavedInputs;
use super::runtime_pods;

/// Loads the inputs `name` of `store` into memory and saves them again; gives whether they were
/// whole, and whether what was saved is what was loaded.
///
/// # Errors
/// The store's.
pub fn inputs(store: &CheckpointStore, name: &str) -> Result<Option<bool>, CheckpointError> {
    // As in the agent, the tokens go through their holder.
    let through = |mut saved: SavedInputs| {
        let tokens = Tokens::default();
        tokens.import(std::mem::take(&mut saved.tokens), "boot");
        RememberedInputs::restore(saved, &Records::new()).to_save(&tokens.export("boot"))
    };
    let Loaded::Present(saved) = store.load::<SavedInputs>(name) else { return Ok(None) };
    let again = through(saved);
    store.save(name, &again)?;
    let Loaded::Present(read) = store.load::<SavedInputs>(name) else { return Ok(Some(false)) };
    Ok(Some(through(read) == again))
}

/// The UIDs of the pods in two answers of a container runtime, each with whether something of it runs. `None`: one of
/// them is no such answer.
pub fn runtime_pods(sandboxes: &[u8], containers: &[u8]) -> Option<Vec<(String, bool)>> {
    let (sandboxes, containers) = cri::decoded(sandboxes, containers)?;
    let pods = runtime_pods::runtime_pods(&sandboxes, &containers);
    Some(pods.into_iter().map(|pod| (pod.uid, pod.alive)).collect())
}

/// The part of a Node that decisions read.
pub fn node_view(value: &serde_json::Value) -> NodeView {
    remembered_inputs::node_view(value)
}

/// Major and minor number of a kubelet's version.
pub fn kubelet_version(version: &str) -> Option<(u32, u32)> {
    remembered_inputs::major_minor(version)
}
