//! A door for the fuzz targets: the checkpoint of inputs, as the agent loads and saves it.
//!
//! Exists for the fuzzer (`cfg(fuzzing)`) and in debug builds, whose tests replay the seeds. Must not do what
//! the agent does not do.

use std::collections::BTreeMap;

use crate::core::model::NodeView;
use crate::node::api::Tokens;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Loaded;
use crate::node::checkpoint::Store;

use super::remembered_inputs;
use super::remembered_inputs::RememberedInputs;
use super::remembered_inputs::SavedInputs;

/// Loads the inputs `name` of `store` into memory and saves them again; gives whether they were
/// whole, and whether what was saved is what was loaded.
///
/// # Errors
/// The store's.
pub fn inputs(store: &Store, name: &str) -> Result<Option<bool>, CheckpointError> {
    let Loaded::Present(saved) = store.load::<SavedInputs>(name)? else { return Ok(None) };
    let (tokens, records) = (Tokens::default(), BTreeMap::new());
    let remembered_inputs = RememberedInputs::restore(saved, &tokens, &records);
    let fingerprint = remembered_inputs.fingerprint(&tokens);
    let again = remembered_inputs.to_save(&tokens);
    store.save(name, &again)?;
    let Loaded::Present(read) = store.load::<SavedInputs>(name)? else { return Ok(Some(false)) };
    let tokens = Tokens::default();
    let remembered_inputs = RememberedInputs::restore(read, &tokens, &records);
    let _ = fingerprint;
    Ok(Some(remembered_inputs.to_save(&tokens) == again))
}

/// What decisions see of a Node of the API.
pub fn node_view(value: &serde_json::Value) -> NodeView {
    remembered_inputs::node_view(value)
}

/// Major and minor number of a kubelet's version.
pub fn kubelet_version(version: &str) -> Option<(u32, u32)> {
    remembered_inputs::major_minor(version)
}
