//! What the folders' files last defined of what is in use: it outlives a restart and a boot at which they are not there.
//!
//! Owns what is remembered of them. What still counts of it, [`crate::node::folders`] decides, as in a process that goes
//! on.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::node::api::Entry;
use crate::node::folders::FileRole;
use crate::node::folders::FileView;
use crate::node::folders::FolderIdentity;
use crate::node::folders::FolderView;
use crate::node::folders::Mask;
use crate::node::folders::RecalledFile;
use crate::node::recording::marks;

use super::observed_folders::ObservedFolders;
use super::versioned_objects::Values;
use super::versioned_objects::Versioned;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct RememberedFiles(BTreeMap<PathBuf, RememberedFile>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RememberedFile {
    #[serde(default, skip_serializing_if = "FileRole::is_plain")]
    role: FileRole,
    fingerprint: String,
    mounted: Option<FolderIdentity>,
    daemon_sets: BTreeMap<ObjectKey, Arc<DaemonSet>>,
    #[serde(with = "marks::objects")]
    objects: Versioned,
}

/// The same on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedFile {
    #[serde(default, skip_serializing_if = "FileRole::is_plain")]
    role: FileRole,
    path: PathBuf,
    fingerprint: String,
    mounted: Option<FolderIdentity>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    daemon_sets: Vec<Arc<DaemonSet>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    objects: Values,
}

fn is_secret((reference, _): &(ObjectRef, Arc<Value>)) -> bool {
    reference.kind == Kind::Secret
}

impl SavedFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.objects.iter().any(is_secret)
    }

    /// Takes out its Secrets; they go by the same file.
    pub(super) fn take_secrets(&mut self) -> Option<SavedFile> {
        let (secret, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.objects).into_iter().partition(is_secret);
        self.objects = open;
        let taken = || SavedFile { objects: secret.clone(), daemon_sets: Vec::new(), ..self.clone() };
        (!secret.is_empty()).then(taken)
    }
}

impl RememberedFiles {
    /// Takes the Secrets of files that were saved apart.
    pub(super) fn add(&mut self, secrets: Vec<SavedFile>) {
        *self = Self::restore(self.to_save().into_iter().chain(secrets));
    }

    /// From a checkpoint.
    pub(super) fn restore(saved: impl IntoIterator<Item = SavedFile>) -> Self {
        let (mut files, mut version) = (BTreeMap::<PathBuf, RememberedFile>::new(), 0);
        for SavedFile { role, path, fingerprint, mounted, daemon_sets, objects } in saved {
            let file = files.entry(path).or_default();
            (file.role, file.fingerprint, file.mounted) = (role, fingerprint, mounted);
            file.daemon_sets.extend(daemon_sets.into_iter().map(|d| (d.key.clone(), d)));
            for (reference, value) in objects {
                version += 1;
                file.objects.insert(reference, Entry { version, value });
            }
        }
        Self(files)
    }

    /// For a checkpoint.
    pub(super) fn to_save(&self) -> Vec<SavedFile> {
        let save = |(path, file): (&PathBuf, &RememberedFile)| SavedFile {
            role: file.role,
            path: path.clone(),
            fingerprint: file.fingerprint.clone(),
            mounted: file.mounted.clone(),
            daemon_sets: file.daemon_sets.values().cloned().collect(),
            objects: super::versioned_objects::values(&file.objects),
        };
        self.0.iter().map(save).collect()
    }

    /// For the reader of the folders, which goes on with it.
    pub(super) fn recalled(&self) -> impl Iterator<Item = RecalledFile> {
        self.0.iter().map(|(path, file)| RecalledFile {
            role: file.role,
            path: path.clone(),
            fingerprint: file.fingerprint.clone(),
            mounted: file.mounted.clone(),
            daemon_sets: file.daemon_sets.values().cloned().collect(),
            objects: file.objects.iter().map(|(r, entry)| (r.clone(), Arc::clone(&entry.value))).collect(),
        })
    }

    /// Its objects, with their versions.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&ObjectRef, &Entry)> {
        self.0.values().flat_map(|file| &file.objects)
    }

    /// Follows the folders: the definitions of the daemons that run or start, the objects that are in use, and what keeps
    /// files of other folders from counting.
    pub(super) fn follow(
        &mut self,
        folders: &ObservedFolders,
        daemons: &BTreeSet<&ObjectKey>,
        used: &BTreeSet<&ObjectRef>,
    ) {
        let known = std::mem::take(&mut self.0);
        for key in daemons {
            if let Some((file, daemon_set)) = folders.view.file_of(key).zip(folders.get(key)) {
                let before = known.get(&file.path).and_then(|known| known.daemon_sets.get(*key));
                // A replay has others at other addresses.
                let same = before.filter(|before| Arc::ptr_eq(before, daemon_set) || *before == daemon_set);
                let daemon_set = Arc::clone(same.unwrap_or(daemon_set));
                self.file(file).daemon_sets.insert((*key).clone(), daemon_set);
            }
        }
        let files = folders.view.files_by_object();
        for reference in used {
            if let Some((file, entry)) = files.get(reference).zip(folders.objects.get(*reference)) {
                self.file(file).objects.insert((*reference).clone(), entry.clone());
            }
        }
        self.follow_hiding(&folders.view);
    }

    /// Forgets what files last defined of these daemons: what is there is read.
    pub(super) fn forget(&mut self, daemons: &BTreeSet<&ObjectKey>) {
        self.0.retain(|_, file| {
            let before = file.daemon_sets.len();
            file.daemon_sets.retain(|key, _| !daemons.contains(key));
            before == file.daemon_sets.len() || !file.daemon_sets.is_empty()
        });
    }

    /// Takes the files that hide others, and the links to /dev/null.
    fn follow_hiding(&mut self, view: &FolderView) {
        for file in view.files.iter().filter(|file| !file.role().is_plain()) {
            self.file(file);
        }
        for Mask { path, mounted } in &view.masks {
            let mask = RememberedFile { role: FileRole::Masks, mounted: mounted.clone(), ..RememberedFile::default() };
            self.0.insert(path.clone(), mask);
        }
    }

    fn file(&mut self, file: &FileView) -> &mut RememberedFile {
        self.0.entry(file.path.clone()).or_insert_with(|| RememberedFile {
            role: file.role(),
            fingerprint: file.fingerprint.clone(),
            mounted: file.mounted().cloned(),
            ..RememberedFile::default()
        })
    }
}

/// By the addresses of DaemonSets and the versions of objects: it reads no data.
impl Hash for RememberedFiles {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (path, file) in &self.0 {
            (path, file.role, &file.fingerprint, &file.mounted).hash(state);
            file.daemon_sets.iter().for_each(|(key, d)| (key, Arc::as_ptr(d).addr()).hash(state));
            file.objects.iter().for_each(|(reference, entry)| (reference, entry.version).hash(state));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hash::DefaultHasher;

    use crate::core::record::DaemonRecord;
    use crate::core::record::Instance;
    use crate::core::sources::FolderState;
    use crate::core::time::Timestamp;
    use crate::node::agent::inputs::folders::FolderReader;
    use crate::node::fsx::Real;

    use super::*;

    const FILE: &str = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: net, namespace: a}\nspec:\n  \
        selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    \
        spec: {containers: [{name: c, image: i}]}\n\
        ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a}\ndata: {k: open}\n\
        ---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\nstringData: {k: hidden}\n\
        ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: unused, namespace: a}\ndata: {k: v}\n";

    fn used() -> Vec<ObjectRef> {
        vec![ObjectRef::new(Kind::ConfigMap, "a", "c"), ObjectRef::new(Kind::Secret, "a", "s")]
    }

    fn hash(files: &RememberedFiles) -> u64 {
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        hasher.finish()
    }

    /// A process that reads `folder`, and what it then remembers.
    fn process(
        folder: &std::path::Path,
        mut files: RememberedFiles,
        late: Option<Vec<SavedFile>>,
    ) -> (ObservedFolders, RememberedFiles) {
        let mut reader = FolderReader::new(Real::shared(), vec![folder.to_owned()]);
        reader.recall(&files);
        let now = crate::clock::now();
        let mut folders = reader.read(now, std::time::Duration::ZERO, &mut Vec::new());
        if let Some(late) = late {
            reader.recall(&RememberedFiles::restore(late));
            folders = reader.read(now, std::time::Duration::ZERO, &mut Vec::new());
        }
        files.follow(&folders, &BTreeSet::from([&ObjectKey::new("a", "net")]), &used().iter().collect());
        (folders, files)
    }

    fn has(folders: &ObservedFolders) -> (bool, Vec<bool>) {
        let objects = used().iter().map(|reference| folders.objects.contains_key(reference)).collect();
        (folders.get(&ObjectKey::new("a", "net")).is_some(), objects)
    }

    /// Through the checkpoint's form, with its Secrets apart.
    fn saved(files: &RememberedFiles) -> (Vec<SavedFile>, Vec<SavedFile>) {
        let mut open = files.to_save();
        let secrets: Vec<SavedFile> = open.iter_mut().filter_map(SavedFile::take_secrets).collect();
        assert!(!open.iter().any(SavedFile::has_secrets));
        let text = |files: &Vec<SavedFile>| serde_json::to_string(files).unwrap();
        assert!(text(&open).contains("open") && !text(&open).contains("aGlkZGVu"), "{}", text(&open));
        let read = |files| serde_json::from_str(&text(files)).unwrap();
        (read(&open), read(&secrets))
    }

    #[test]
    fn what_is_in_use_comes_back_without_its_folder_and_goes_with_its_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("ds");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x.yaml"), FILE).unwrap();
        let (_, files) = process(&folder, RememberedFiles::default(), None);
        assert_eq!(files.objects().count(), 2, "and not what is not used");
        let (open, secrets) = saved(&files);
        let restored = || RememberedFiles::restore(open.iter().chain(&secrets).cloned());
        assert_eq!(restored().to_save(), files.to_save());

        // Unchanged files are no news for the checkpoint.
        let before = restored();
        let known = hash(&before);
        assert_eq!(hash(&process(&folder, before, None).1), known);
        fs::rename(&folder, root.path().join("aside")).unwrap();
        let before = restored();
        let known = hash(&before);
        let (folders, after) = process(&folder, before, None);
        assert_eq!((has(&folders), hash(&after)), ((true, vec![true, true]), known));
        // A mount point without its file system.
        fs::create_dir(&folder).unwrap();
        let mut elsewhere = restored();
        elsewhere.0.values_mut().for_each(|file| file.mounted.as_mut().unwrap().id.push('x'));
        assert_eq!(has(&process(&folder, elsewhere, None).0), (true, vec![true, true]));
        let (folders, after) = process(&folder, restored(), None);
        let quiet = std::time::Duration::from_millis(1_100);
        assert_eq!(has(&folders), (true, vec![true, true]), "the folder is being changed");
        std::thread::sleep(quiet);
        let (folders, after) = process(&folder, after, None);
        assert_eq!((has(&folders), after), ((false, vec![false, false]), RememberedFiles::default()));
    }

    #[test]
    fn what_is_remembered_of_a_file_is_no_newer_word_than_what_runs() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("ds");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x.yaml"), FILE).unwrap();
        let (there, files) = process(&folder, RememberedFiles::default(), None);
        fs::rename(&folder, root.path().join("aside")).unwrap();
        let (away, _) = process(&folder, files, None);
        let key = ObjectKey::new("a", "net");
        let remembered = crate::core::rendering::Revision::of(there.get(&key).unwrap()).hash;
        let mut record = DaemonRecord::new(key.clone(), 0);
        let state = |folders: &ObservedFolders, record: &DaemonRecord| {
            matches!(folders.state(&key, &BTreeMap::new(), record), FolderState::Present { .. })
        };
        assert!(state(&away, &record), "nothing runs");
        for (revision, counts) in [(remembered.as_str(), true), ("newer", false)] {
            // Of what was taken over, only the manifest is known.
            record.instances = vec![Instance::new("u", "net-x", 7, revision, Timestamp::from_secs(0))];
            assert_eq!(state(&away, &record), counts, "{revision}");
        }
    }

    #[test]
    fn a_file_that_no_process_has_read_well_does_not_end_that_it_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let (folder, key) = (root.path().join("ds"), ObjectKey::new("a", "net"));
        fs::create_dir(&folder).unwrap();
        let is_unsure = |ignored: Option<&str>| {
            let record = DaemonRecord { ignored_file: ignored.map(str::to_owned), ..DaemonRecord::new(key.clone(), 0) };
            let (folders, _) = process(&folder, RememberedFiles::default(), None);
            matches!(folders.state(&key, &BTreeMap::new(), &record), FolderState::Unsure { .. })
        };
        let cut =
            b"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {namespace: a, name: net}\nspec: {template: meta}\n";
        for text in [&b""[..], &[0; 40], &FILE.as_bytes()[..60], cut] {
            fs::write(folder.join("x.yaml"), text).unwrap();
            assert_eq!((is_unsure(Some("f")), is_unsure(None)), (true, false), "{text:?}");
        }
        fs::remove_file(folder.join("x.yaml")).unwrap();
        assert!(!is_unsure(Some("f")), "it is gone");
        std::os::unix::fs::symlink("/nowhere/x.yaml", folder.join("x.yaml")).unwrap();
        assert!(is_unsure(Some("f")));
    }

    #[test]
    fn secrets_that_are_opened_late_come_to_the_file_that_had_them() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("ds");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x.yaml"), FILE).unwrap();
        let (open, secrets) = saved(&process(&folder, RememberedFiles::default(), None).1);
        fs::remove_dir_all(&folder).unwrap();
        let closed = || RememberedFiles::restore(open.clone());
        assert_eq!(has(&process(&folder, closed(), None).0), (true, vec![true, false]));
        assert_eq!(has(&process(&folder, closed(), Some(secrets.clone())).0), (true, vec![true, true]));
        // Even where a process in between, which could not open them, remembered nothing of the file.
        let (folders, _) = process(&folder, RememberedFiles::default(), Some(secrets));
        assert_eq!(has(&folders), (false, vec![false, true]));
    }
}
