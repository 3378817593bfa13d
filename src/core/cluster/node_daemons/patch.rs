//! How a status is written: whole, or what changed of it.
//!
//! Owns the bodies of both patches. A watch of NodeDaemons costs the coordinator the whole object at each change, but
//! what an agent sends, and what the API server parses, audits and keeps as managed fields, need not be more than the
//! daemon that changed. Must not decide which status is in the cluster: the caller knows that.

use json_patch::AddOperation;
use json_patch::Patch;
use json_patch::PatchOperation;
use json_patch::RemoveOperation;
use json_patch::ReplaceOperation;
use json_patch::TestOperation;
use json_patch::jsonptr::PointerBuf;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use super::DaemonReport;
use super::Status;

/// A write of a NodeDaemons' status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StatusPatch {
    /// The whole status, as a JSON merge patch (RFC 7386).
    Whole(Value),
    /// What changed, as a JSON Patch (RFC 6902). The API server answers 422 if it does not apply.
    Changes(Patch),
}

/// Which object a write is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition<'a> {
    /// The object's UID.
    pub uid: &'a str,
    /// Its resource version, if the write is for no other: the API server answers 409 then.
    pub resource_version: Option<&'a str>,
}

impl StatusPatch {
    /// Makes the status `wanted`, whatever it is.
    pub fn whole(of: &Precondition, wanted: &Status) -> Self {
        let mut metadata = json!({"uid": of.uid});
        if let Some(version) = of.resource_version {
            metadata["resourceVersion"] = json!(version);
        }
        Self::Whole(json!({"metadata": metadata, "status": wanted}))
    }

    /// Makes the status `wanted` where it is `live`: by its changes, unless the whole status is shorter.
    pub fn changes(of: &Precondition, live: &Status, wanted: &Status) -> Self {
        let whole = Self::whole(of, wanted);
        match operations(of, live, wanted).map(|operations| Self::Changes(Patch(operations))) {
            Some(changes) if changes.size() < whole.size() => changes,
            _ => whole,
        }
    }

    /// The bytes of the request's body.
    pub fn size(&self) -> usize {
        match self {
            Self::Whole(value) => value.to_string().len(),
            Self::Changes(patch) => patch.to_string().len(),
        }
    }
}

/// What leads from `live` to `wanted`; `None` if the daemons that stay are in another order, or are not told apart by
/// their names.
fn operations(of: &Precondition, live: &Status, wanted: &Status) -> Option<Vec<PatchOperation>> {
    let mut operations = vec![test("/metadata/uid", of.uid)];
    if let Some(version) = of.resource_version {
        // The server takes the version in the patched object for the one that the writer read.
        operations.push(replace("/metadata/resourceVersion", json!(version)));
    }
    // Destructured, so that no new field is forgotten.
    let Status { agent_version, ready, worst, daemons, refused } = wanted;
    let fields = [
        ("/status/agentVersion", agent_version, &live.agent_version),
        ("/status/ready", ready, &live.ready),
        ("/status/worst", worst, &live.worst),
    ];
    let changed = fields.into_iter().filter(|(_, now, before)| now != before);
    operations.extend(changed.map(|(path, now, _)| replace(path, json!(now))));

    if *refused != live.refused {
        operations.push(replace("/status/refused", json!(refused)));
    }

    let mut left: Vec<&DaemonReport> = live.daemons.iter().collect();
    for (index, daemon) in live.daemons.iter().enumerate().rev() {
        if find(daemons, daemon).is_none() {
            operations.extend(test_name(index, daemon));
            operations.push(PatchOperation::Remove(RemoveOperation { path: path(index, None) }));
            left.remove(index);
        }
    }
    for (index, daemon) in daemons.iter().enumerate() {
        let value = json!(daemon);
        match left.get(index).copied().filter(|before| before.is_of(daemon)) {
            Some(before) if before == daemon => {}
            Some(before) => {
                operations.extend(test_name(index, before));
                operations.push(PatchOperation::Replace(ReplaceOperation { path: path(index, None), value }));
            }
            None if find(&live.daemons, daemon).is_some() => return None,
            None => {
                operations.push(PatchOperation::Add(AddOperation { path: path(index, None), value }));
                left.insert(index, daemon);
            }
        }
    }
    (left.len() == daemons.len()).then_some(operations)
}

fn find<'a>(daemons: &'a [DaemonReport], of: &DaemonReport) -> Option<&'a DaemonReport> {
    daemons.iter().find(|daemon| daemon.is_of(of))
}

/// That the daemon at `index` is that one.
fn test_name(index: usize, daemon: &DaemonReport) -> [PatchOperation; 2] {
    [("namespace", &daemon.namespace), ("name", &daemon.name)].map(|(field, value)| {
        PatchOperation::Test(TestOperation { path: path(index, Some(field)), value: json!(value) })
    })
}

fn path(index: usize, field: Option<&str>) -> PointerBuf {
    let index = index.to_string();
    PointerBuf::from_tokens(["status", "daemons", &index].into_iter().chain(field))
}

fn test(path: &'static str, value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value: json!(value) })
}

fn replace(path: &'static str, value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: pointer(path), value })
}

fn pointer(path: &'static str) -> PointerBuf {
    PointerBuf::from_tokens(path.split('/').skip(1))
}

#[cfg(test)]
mod tests;
