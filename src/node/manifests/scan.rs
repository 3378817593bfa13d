//! Which files of the folder are ours, and their content; unchanged files are not read again.

mod overwritten;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::FileAttributes;
use super::MAX_BYTES;
use super::sha256;
use crate::core::identity;
use crate::core::json::Json;
use crate::core::manifest::HEAD;
use crate::core::manifest::file_name;
use crate::core::model::HASH_LABEL;
use crate::core::model::INCARNATION_ANNOTATION;
use crate::core::model::OVERLAYS_DIGEST;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::ObjectKey;
use crate::core::record::Instance;
use crate::core::render::GATE;
use crate::core::yaml;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Stamp;
use crate::node::fsx::Stat;

pub(super) use overwritten::ForeignFile;

/// One of our manifests on disk.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// The file's name in the folder.
    pub file: String,
    /// The DaemonSet, from the annotation that marks the file as ours.
    pub owner: ObjectKey,
    pub namespace: String,
    /// The pod's name as written, without the node's.
    pub pod_name: String,
    /// The pinned UID; empty if it has none.
    pub uid: String,
    /// The incarnation; `None` if the annotation is missing or not a number.
    pub incarnation: Option<u64>,
    /// The label `controller-revision-hash`, with the digest of its overlays; empty if it has none.
    pub revision: String,
    /// SHA-256 of the file's bytes, lower-case hex.
    pub sha256: String,
    /// Volumes that the agent has data to write for: they are the node's, and no container may write to them.
    #[serde(default)]
    pub data_volumes: Vec<String>,
    /// Whether its containers may wait at a gate (`daemonlet.dev/after`).
    pub has_gate: bool,
    /// Why the file no longer says that it is ours, if it was overwritten in place. The other fields except the hash
    /// are the previous ones.
    pub damage: Option<String>,
}

impl Manifest {
    /// That of an instance of `owner` as far as its record tells: but for the content of the file.
    pub fn recorded(owner: &ObjectKey, instance: &Instance) -> Self {
        Self {
            file: file_name(&owner.namespace, &instance.pod_name),
            owner: owner.clone(),
            namespace: owner.namespace.clone(),
            pod_name: instance.pod_name.clone(),
            uid: instance.uid.clone(),
            incarnation: Some(instance.incarnation),
            revision: instance.revision.clone(),
            sha256: String::new(),
            data_volumes: Vec::new(),
            has_gate: false,
            damage: None,
        }
    }

    /// Whether it lies under another name than we give.
    pub fn is_copy(&self) -> bool {
        file_name(&self.namespace, &self.pod_name) != self.file
    }
}

/// The content of the folder.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Scan {
    /// Our files, by name.
    pub ours: BTreeMap<String, Arc<Manifest>>,
    /// Unreadable files: whether they are ours is unknown, so they never count as gone.
    pub unreadable: BTreeMap<String, FsError>,
    /// Foreign files with a pod that has a UID, by that UID: while one has the UID of a pod of ours, the kubelet runs that pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, String>,
}

impl Scan {
    /// Whether the manifest of a pod may be there, but cannot be read.
    pub fn is_unreadable(&self, namespace: &str, pod_name: &str) -> bool {
        self.unreadable.contains_key(&file_name(namespace, pod_name))
    }

    /// Whether a file has the pod with this UID.
    pub fn has(&self, uid: &str) -> bool {
        self.foreign.contains_key(uid) || self.ours.values().any(|manifest| manifest.uid == uid)
    }

    /// Whether it has the same files, all of them readable, and none of them read again.
    fn is_same(&self, other: &Self) -> bool {
        let pairs = || self.ours.iter().zip(&other.ours);
        self.unreadable.is_empty()
            && other.unreadable.is_empty()
            && self.foreign == other.foreign
            && self.ours.len() == other.ours.len()
            && pairs().all(|((name, ours), (other_name, others))| name == other_name && Arc::ptr_eq(ours, others))
    }
}

/// What is known of the files since the last scan.
#[derive(Debug, Default)]
pub(super) struct ScanCache {
    files: BTreeMap<OsString, KnownFile>,
    /// What we have written since the last scan: identical bytes need not be parsed again.
    written: BTreeMap<OsString, Arc<Manifest>>,
    /// Names that were ours, whatever stands there now, with the manifest that was last given the name, if that is known.
    names: BTreeMap<OsString, Option<Arc<Manifest>>>,
    /// What the last scan gave.
    last: Arc<Scan>,
}

#[derive(Debug)]
struct KnownFile {
    stamp: Stamp,
    /// Whether a later change must have changed the stamp.
    is_old: bool,
    verdict: ScannedManifest,
    /// Mode and owner, where they are no manifest's.
    changed: Option<FileAttributes>,
}

/// Ours, or what else it is.
pub(super) type ScannedManifest = Result<Arc<Manifest>, ForeignFile>;

/// Time stamps of files advance in kernel ticks of at most 10 ms. A file that changed less than this before it was
/// read may change again without a new stamp.
const TICK: Duration = Duration::from_millis(20);

impl ScanCache {
    /// Looks at every file of the folder. The same value again where nothing has changed.
    pub(super) fn scan(&mut self, dir: &Dir) -> Result<Arc<Scan>, FsError> {
        let mut scan = Scan::default();
        let mut present = BTreeSet::new();
        for name in dir.names()? {
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            match self.look(dir, &name) {
                Ok(Some(Ok(manifest))) => drop(scan.ours.insert(manifest.file.clone(), manifest)),
                Ok(Some(Err(foreign))) => {
                    let uid = Some(foreign.uid).filter(|uid| !uid.is_empty());
                    scan.foreign.extend(uid.map(|uid| (uid, name.to_string_lossy().into_owned())));
                }
                Ok(None) => {}
                Err(e) => drop(scan.unreadable.insert(name.to_string_lossy().into_owned(), e)),
            }
            present.insert(name);
        }
        self.files.retain(|name, _| present.contains(name));
        self.written.retain(|name, _| present.contains(name));
        if !scan.is_same(&self.last) {
            self.last = Arc::new(scan);
        }
        Ok(Arc::clone(&self.last))
    }

    /// Our files whose mode or owner was changed.
    pub(super) fn changed_attributes(&self) -> impl Iterator<Item = (String, FileAttributes)> {
        self.files.iter().filter_map(|(name, known)| Some((name.to_str()?.to_owned(), known.changed?)))
    }

    /// What the last scan gave.
    pub(super) fn last(&self) -> &Scan {
        &self.last
    }

    /// These manifests were written by an earlier process.
    pub(super) fn remember(&mut self, manifests: impl Iterator<Item = Manifest>) {
        self.names.extend(manifests.map(|manifest| (manifest.file.clone().into(), Some(Arc::new(manifest)))));
    }

    /// A manifest is about to get this name, so what a loss of power leaves of one under it counts as not there, though no
    /// record knows of it. No other program gives such names.
    pub(super) fn claim(&mut self, dir: &Dir, name: &OsStr) -> Result<(), FsError> {
        let is_known = self.names.contains_key(name) || self.files.get(name).is_some_and(|known| known.verdict.is_ok());
        let stat = if is_known { None } else { dir.stat(name)? };
        if let Some(stat) = stat
            && is_torn(dir, name, &stat)?
        {
            self.files.remove(name);
            self.names.insert(name.to_owned(), None);
        }
        Ok(())
    }

    /// One for another folder at the same path.
    pub(super) fn anew(&mut self) -> Self {
        Self { names: std::mem::take(&mut self.names), ..Self::default() }
    }

    /// `bytes`, which encode `pod`, were written to the file `name`.
    pub(super) fn wrote(&mut self, name: &str, bytes: &[u8], pod: &Value) {
        let manifest = manifest(name, pod, bytes).ok();
        self.written.extend(manifest.iter().map(|manifest| (name.into(), Arc::clone(manifest))));
        self.names.insert(name.into(), manifest);
    }

    /// The file `name`; `None` if there is none, or if what is there is what a loss of power leaves of one of ours.
    pub(super) fn look(&mut self, dir: &Dir, name: &OsStr) -> Result<Option<ScannedManifest>, FsError> {
        let Some(stat) = dir.stat(name)? else {
            self.files.remove(name);
            return Ok(None);
        };
        let stamp = stat.stamp;
        let known = self.files.get(name);
        if let Some(known) = known.filter(|known| known.is_old && known.stamp == stamp) {
            return Ok(Some(known.verdict.clone()));
        }
        let is_ours = self.names.contains_key(name) || known.is_some_and(|known| known.verdict.is_ok());
        if stat.kind == FileKind::Link && (is_ours || leads_to_ours(dir, name)) {
            refuse_link(dir, name)?;
        }
        let written = self.written.get(name);
        let verdict = match judge(dir, name, &stat, written)? {
            // A file known to be ours that was overwritten in place: still ours, and to be repaired.
            Err(why) => match known {
                Some(KnownFile { stamp: before, verdict: Ok(was), .. }) if before.is_same_file(&stamp) => {
                    let read = dir.read_file(name, MAX_BYTES + 1)?.unwrap_or_default();
                    Ok(Arc::new(Manifest { sha256: sha256(&read), damage: Some(why), ..Manifest::clone(was) }))
                }
                _ if self.names.contains_key(name) && is_torn(dir, name, &stat)? => {
                    self.files.remove(name);
                    return Ok(None);
                }
                known => {
                    let was = known.and_then(|known| known.verdict.as_ref().ok());
                    let was = self.names.get(name).and_then(Option::as_ref).or(was);
                    overwritten::judge(dir, name, stat.kind, why, was)?
                }
            },
            Ok(ours) => Ok(ours),
        };
        let changed = FileAttributes::changed(&stat).filter(|_| verdict.is_ok());
        let is_old = crate::clock::system().duration_since(stamp.changed()).is_ok_and(|age| age > TICK);
        if is_old {
            self.written.remove(name);
        }
        self.files.insert(name.to_owned(), KnownFile { stamp, is_old, verdict: verdict.clone(), changed });
        Ok(Some(verdict))
    }
}

/// Whether the link `name` leads to a manifest that has its name from us: to what was moved away from here.
fn leads_to_ours(dir: &Dir, name: &OsStr) -> bool {
    let Ok(bytes) = dir.disk().load(&dir.path().join(name), MAX_BYTES + 1) else { return false };
    judge_bytes(name, &bytes, None).is_ok_and(|manifest| !manifest.is_copy())
}

/// The kubelet follows a link in the place of a manifest of ours: unless it leads to no file, the pod may run on.
fn refuse_link(dir: &Dir, name: &OsStr) -> Result<(), FsError> {
    let path = dir.path().join(name);
    let source = match dir.disk().look(&path) {
        Ok(stat) if stat.kind != FileKind::File => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(_) => io::Error::other("it is a symbolic link, which the kubelet follows: put the file itself in its place"),
        Err(error) => error,
    };
    Err(FsError::reading(path, source))
}

/// Whether the file `name` is what is left of a manifest of ours: nothing, zeros, or its beginning. No manifest of
/// others looks like that.
fn is_torn(dir: &Dir, name: &OsStr, stat: &Stat) -> Result<bool, FsError> {
    if stat.kind != FileKind::File {
        return Ok(false);
    }
    let Some(bytes) = dir.read_file(name, MAX_BYTES + 1)? else { return Ok(true) };
    let head = HEAD.as_bytes();
    Ok(bytes.first() == Some(&0) || bytes.starts_with(head) || head.starts_with(&bytes))
}

/// Whether the file `name` is ours by its content; `written`: what we last wrote to it.
fn judge(
    dir: &Dir,
    name: &OsStr,
    stat: &Stat,
    written: Option<&Arc<Manifest>>,
) -> Result<Result<Arc<Manifest>, String>, FsError> {
    if stat.kind != FileKind::File {
        return Ok(Err("it is not a regular file".to_owned()));
    }
    let Some(bytes) = dir.read_file(name, MAX_BYTES + 1)? else {
        return Ok(Err("it was removed in the meantime".to_owned()));
    };
    Ok(judge_bytes(name, &bytes, written))
}

/// The same of a file with these bytes.
fn judge_bytes(name: &OsStr, bytes: &[u8], written: Option<&Arc<Manifest>>) -> Result<Arc<Manifest>, String> {
    let Some(file) = name.to_str() else { return Err("its name is not UTF-8".to_owned()) };
    if bytes.len() as u64 > MAX_BYTES {
        return Err("it is longer than any manifest".to_owned());
    }
    if let Some(written) = written.filter(|written| written.sha256 == sha256(bytes)) {
        return Ok(Arc::clone(written));
    }
    // Without the annotation it is not ours, and need not be parsed.
    if !contains(bytes, OWNER_ANNOTATION.as_bytes()) {
        return Err(format!("it has no annotation {OWNER_ANNOTATION}"));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Err("it is not UTF-8".to_owned()) };
    match yaml::read_documents(text).into_iter().next().map(|document| document.value) {
        // The beginning of one reads well too, up to a UID that is cut off.
        Some(Ok(pod)) if pod["spec"]["containers"].as_array().is_none_or(Vec::is_empty) => {
            Err("it has no containers".to_owned())
        }
        Some(Ok(pod)) => manifest(file, &pod, bytes),
        Some(Err(e)) => Err(format!("it does not parse: line {}, column {}: {}", e.line, e.column, e.message)),
        None => Err("it is empty".to_owned()),
    }
}

fn manifest(file: &str, pod: &Value, bytes: &[u8]) -> Result<Arc<Manifest>, String> {
    let metadata = &pod["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = metadata["annotations"][OWNER_ANNOTATION].as_str().and_then(|owner| owner.split_once('/'));
    let Some((namespace, name)) = owner else {
        return Err(format!("its annotation {OWNER_ANNOTATION} does not name a DaemonSet"));
    };
    Ok(Arc::new(Manifest {
        file: file.to_owned(),
        owner: ObjectKey::new(namespace, name),
        namespace: text(&metadata["namespace"]),
        pod_name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        incarnation: metadata["annotations"][INCARNATION_ANNOTATION].as_str().and_then(|number| number.parse().ok()),
        revision: identity::patched_revision(
            &text(&metadata["labels"][HASH_LABEL]),
            &text(&metadata["annotations"][OVERLAYS_DIGEST]),
        ),
        sha256: sha256(bytes),
        data_volumes: data_volumes(&pod["spec"]),
        has_gate: has_gate(pod),
        damage: None,
    }))
}

fn has_gate(pod: &Value) -> bool {
    pod.list_at(["spec", "volumes"]).iter().any(|volume| volume.str_at("name") == GATE)
}

/// The volumes that start empty and that no container may write to: their data comes from the agent. A gate is no data.
fn data_volumes(spec: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mounts: Vec<Value> = ["containers", "initContainers"]
        .iter()
        .flat_map(|containers| list(&spec[containers]))
        .flat_map(|container| list(&container["volumeMounts"]))
        .collect();
    let is_data = |volume: &&Value| volume["emptyDir"].is_object() && volume["name"] != GATE;
    let is_only_read = |volume: &&Value| {
        let mut of = mounts.iter().filter(|mount| mount["name"] == volume["name"]).peekable();
        of.peek().is_some() && of.all(|mount| mount["readOnly"] == true)
    };
    let volumes = list(&spec["volumes"]);
    let names = volumes.iter().filter(is_data).filter(is_only_read).filter_map(|volume| volume["name"].as_str());
    names.map(str::to_owned).collect()
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
