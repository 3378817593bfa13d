//! Files that do not say that they are ours: foreign ones, and manifests of ours that another program wrote anew.
//!
//! A tool that edits a manifest puts another file in its place, which may lack the comment and the annotation. The kubelet
//! goes by the UID: as long as a file has that, the pod runs on.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use serde_json::Value;

use super::Manifest;
use super::ScannedManifest;
use super::data_volumes;
use super::has_gate;
use crate::core::json::Json;
use crate::core::yaml;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::manifests::MAX_BYTES;
use crate::node::manifests::sha256;

/// A file that is not ours.
#[derive(Clone, Debug)]
pub(in crate::node::manifests) struct ForeignFile {
    /// Why it is not.
    pub(in crate::node::manifests) why: String,
    /// The UID of its pod; empty if it has none.
    pub(in crate::node::manifests) uid: String,
}

/// What the file `name` is, which does not say that it is ours; `was`: our manifest that had the name. With its UID it is
/// that one, and is repaired.
///
/// # Errors
/// When it may be what the kubelet runs as the pod of `was`: it cannot be read as a pod, or is another pod of that name.
pub(super) fn judge(
    dir: &Dir,
    name: &OsStr,
    kind: FileKind,
    why: String,
    was: Option<&Arc<Manifest>>,
) -> Result<ScannedManifest, FsError> {
    let bytes = match kind {
        FileKind::File => dir.read_file(name, MAX_BYTES + 1)?.unwrap_or_default(),
        // The kubelet follows it.
        FileKind::Link => dir.disk().load(&dir.path().join(name), MAX_BYTES + 1).unwrap_or_default(),
        _ => Vec::new(),
    };
    let (pod, was) = (first_document(&bytes), was.filter(|_| kind == FileKind::File));
    let refused = |what: &str| Err(FsError::reading(dir.path().join(name), io::Error::other(what)));
    match (was, pod) {
        (Some(was), Some(pod)) if !was.uid.is_empty() && uid(&pod) == was.uid => Ok(Ok(Arc::new(Manifest {
            sha256: sha256(&bytes),
            data_volumes: data_volumes(&pod["spec"]),
            has_gate: has_gate(&pod),
            damage: Some(why),
            ..Manifest::clone(was)
        }))),
        (Some(was), Some(pod)) if pod["metadata"].str_at("name") == was.pod_name => {
            refused("another program overwrote this manifest, and its pod has another UID: move it out of the folder")
        }
        (Some(_), None) => {
            refused("another program overwrote this manifest, and it is not a pod: move it out of the folder")
        }
        (_, pod) => Ok(Err(ForeignFile { why, uid: pod.map(|pod| uid(&pod).to_owned()).unwrap_or_default() })),
    }
}

fn uid(pod: &Value) -> &str {
    pod["metadata"].str_at("uid")
}

/// `None` if there is none, or it does not parse.
fn first_document(bytes: &[u8]) -> Option<Value> {
    if bytes.len() as u64 > MAX_BYTES {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    yaml::read_documents(text).into_iter().next()?.value.ok().filter(Value::is_object)
}
