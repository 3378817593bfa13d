//! A disk in memory, for tests and the simulator: it knows what would outlive a loss of power, and fails where a test
//! orders it.
//!
//! Owns what file systems promise. Must not know what the files mean.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::time::SystemTime;

use nix::Result;
use nix::errno::Errno;

use crate::node::fsx::Disk;
use crate::node::fsx::DiskHandle;
use crate::node::fsx::Doing;
use crate::node::fsx::Links;
use crate::node::fsx::changes::FolderChange;
use crate::node::fsx::changes::Tell;

mod disk;
mod inode;
mod tree;

use inode::Inode;
use inode::InodeContent;
use inode::InodeVersion;

const ROOT: u64 = 1;
/// So many links are followed before they count as a loop.
const HOPS: usize = 40;

/// A file system in memory. Nothing is on stable storage before it is waited for.
#[derive(Debug, Default)]
pub struct Simulated {
    state: Mutex<SimulatedDiskState>,
    listeners: Arc<Mutex<Vec<SimulatedListener>>>,
    observer: Mutex<Option<Observer>>,
}

/// Is called after each change, with its path; it may end the process that made the change by a panic.
type ChangeObserver = Arc<dyn Fn(Doing, &Path) + Send + Sync>;

struct Observer(ChangeObserver);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("observer")
    }
}

#[derive(Debug)]
struct SimulatedDiskState {
    nodes: BTreeMap<u64, Inode>,
    next: u64,
    /// What was opened in an earlier run of the process is closed.
    run: u64,
    /// How often the power was lost.
    losses: u64,
    has_one_journal: bool,
    locked: BTreeSet<u64>,
    /// Changed since the journal was last committed.
    dirty: BTreeSet<u64>,
    /// The roots of other file systems, by the folder that each is mounted on.
    mounts: BTreeMap<u64, u64>,
    volatile: Vec<PathBuf>,
    faults: Vec<(Doing, PathBuf, Errno)>,
    /// Whether the present caller meets no faults.
    exempt: bool,
    /// How many more changes succeed; then every change fails.
    left: Cell<Option<u64>>,
    now: Option<SystemTime>,
}

struct SimulatedListener {
    id: u64,
    folder: u64,
    tell: Arc<Tell>,
}

impl std::fmt::Debug for SimulatedListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.folder)
    }
}

/// How much of the unsynced data outlives a loss of power nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLossKeeps {
    Nothing,
    /// The journal had been written: names and attributes, and not the bytes of files.
    Names,
    /// The journal, and of each file nothing, its beginning, zeros, or all, drawn from this number.
    Torn(u64),
    /// Everything.
    All,
}

/// Where a path leads.
struct PathLookup {
    folder: u64,
    name: OsString,
    /// `None`: nothing has that name.
    node: Option<u64>,
}

/// A change to be reported, once nothing is locked.
type PendingNotification = (u64, fn(&OsStr) -> FolderChange<'_>, OsString);

fn appeared(name: &OsStr) -> FolderChange<'_> {
    FolderChange::Appeared(name)
}

fn gone(name: &OsStr) -> FolderChange<'_> {
    FolderChange::Gone(name)
}

fn altered(name: &OsStr) -> FolderChange<'_> {
    FolderChange::Altered(name)
}

impl Simulated {
    /// A disk with nothing but `/`.
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, SimulatedDiskState> {
        self.state.lock().unwrap()
    }

    /// The file at `path` is there, on stable storage, with the folders above it.
    pub fn put(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) {
        let path = path.as_ref();
        self.make_folder(path.parent().unwrap());
        let _ = self.unlink(&DiskHandle::Start, path);
        let file = self.create_file(&DiskHandle::Start, path).unwrap();
        self.write(&file, data.as_ref()).unwrap();
        self.sync(&file).unwrap();
        self.sync_folder(path.parent().unwrap());
    }

    /// The folder at `path` is there, on stable storage, with those above it.
    pub fn make_folder(&self, path: &Path) {
        for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            if self.create_folder(&DiskHandle::Start, folder, 0o755).is_ok() {
                self.sync_folder(folder);
                self.sync_folder(folder.parent().unwrap());
            }
        }
    }

    /// Puts the entries of the folder at `path` on stable storage, removals included.
    pub fn sync_folder(&self, path: &Path) {
        self.sync(&self.open_folder(&DiskHandle::Start, path, Links::Follow).unwrap()).unwrap();
    }

    /// The device that `/dev/null` is, is at `path`.
    pub fn put_device(&self, path: &Path) {
        self.make_folder(path.parent().unwrap());
        let _ = self.state().create(&DiskHandle::Start, path, InodeContent::Device, 0o666);
        self.sync_folder(path.parent().unwrap());
    }

    /// Mounts the file system `number`, a new one or the one that was mounted before, on the folder at `path`.
    pub fn mount(&self, path: &Path, number: u64) {
        let mut state = self.state();
        let folder = state.found(&DiskHandle::Start, path, Links::Follow).unwrap();
        let known = state.nodes.iter().find(|(_, node)| node.file_system == number).map(|(root, _)| *root);
        let root = known.unwrap_or_else(|| {
            let root = state.next;
            state.next += 1;
            let now = InodeVersion::new(InodeContent::Folder(BTreeMap::new()), 0o755, state.time());
            let above = state.nodes[&folder].above.clone();
            let node = Inode { synced: Some(now.clone()), now, above, file_system: number };
            state.nodes.insert(root, node);
            root
        });
        state.mounts.insert(folder, root);
    }

    /// Takes the file system away that is mounted on the folder at `path`, if one is.
    pub fn unmount(&self, path: &Path) {
        let mut state = self.state();
        let Ok(root) = state.found(&DiskHandle::Start, path, Links::Follow) else { return };
        state.mounts.retain(|_, mounted| *mounted != root);
    }

    /// Calls `observer` after each change from now on; `None`: calls none.
    pub fn observe(&self, observer: Option<ChangeObserver>) {
        *self.observer.lock().unwrap() = observer.map(Observer);
    }

    fn changed(&self, doing: Doing, path: &Path) {
        let observer = self.observer.lock().unwrap().as_ref().map(|Observer(observer)| Arc::clone(observer));
        if let Some(observer) = observer {
            observer(doing, path);
        }
    }

    /// Reports a change of the file `path` below `at`.
    fn changed_at(&self, doing: Doing, at: &DiskHandle, path: &Path) {
        if self.observer.lock().unwrap().is_none() {
            return;
        }
        let path = {
            let state = self.state();
            let found = state.find(at, path, Links::Refuse);
            found.map(|found| state.path(found.folder).join(&found.name))
        };
        if let Ok(path) = path {
            self.changed(doing, &path);
        }
    }

    /// Makes a call of the kind `doing` fail at `path` and below it, until [`Simulated::heal`].
    pub fn fail(&self, doing: Doing, path: impl Into<PathBuf>, errno: Errno) {
        self.state().faults.push((doing, path.into(), errno));
    }

    /// Sets whether callers from now on meet no faults. Gives the setting before.
    pub fn set_exempt(&self, exempt: bool) -> bool {
        std::mem::replace(&mut self.state().exempt, exempt)
    }

    /// What failed at `path` and below it works again.
    pub fn mend(&self, path: &Path) {
        self.state().faults.retain(|(_, place, _)| !place.starts_with(path));
    }

    /// The file at `path` has this content, on stable storage, and is the same file; made if it was not there.
    pub fn overwrite(&self, path: &Path, data: &[u8]) {
        let found = self.state().found(&DiskHandle::Start, path, Links::Follow);
        let Ok(node) = found else { return self.put(path, data) };
        let above = {
            let mut state = self.state();
            let Ok(version) = state.change(node) else { return };
            version.modified = version.changed;
            version.content = InodeContent::File(Arc::new(data.to_vec()));
            state.save(node);
            state.above(node).map(|(folder, name)| -> PendingNotification { (folder, altered, name.clone()) })
        };
        self.tell(above);
        self.changed(Doing::Write, path);
    }

    /// Lets `changes` more changes succeed; all later ones fail until [`Simulated::heal`].
    pub fn stop_after(&self, changes: u64) {
        self.state().left.set(Some(changes));
    }

    /// Nothing fails any more. Gives whether it had stopped.
    pub fn heal(&self) -> bool {
        let mut state = self.state();
        state.faults.clear();
        state.left.take() == Some(0)
    }

    /// Whether all changes of folders are in one journal, as ext4 and XFS have it; else each folder is for itself.
    pub fn set_one_journal(&self, has: bool) {
        self.state().has_one_journal = has;
    }

    /// The time that files are stamped with, instead of the system's.
    pub fn set_time(&self, now: SystemTime) {
        self.state().now = Some(now);
    }

    /// What is in the folder `path` goes with the power, as in a tmpfs.
    pub fn set_volatile(&self, path: impl Into<PathBuf>) {
        self.state().volatile.push(path.into());
    }

    /// Ends the process that used the disk: its open files are closed, its writes stay.
    pub fn end_process(&self) {
        let mut state = self.state();
        state.run += 1;
        state.locked.clear();
        self.listeners.lock().unwrap().clear();
    }

    /// Loses the power: unsynced changes are undone, but for those that are `kept` by chance, and the boot is
    /// another one.
    pub fn crash(&self, kept: PowerLossKeeps) {
        self.end_process();
        let losses = {
            let mut state = self.state();
            match kept {
                PowerLossKeeps::Nothing => {}
                PowerLossKeeps::Names => state.commit(),
                PowerLossKeeps::Torn(number) => state.tear(number),
                PowerLossKeeps::All => state.nodes.values_mut().for_each(|node| node.synced = Some(node.now.clone())),
            }
            for path in state.volatile.clone() {
                if let Ok(PathLookup { node: Some(node), .. }) = state.find(&DiskHandle::Start, &path, Links::Follow) {
                    let folder = state.nodes.get_mut(&node).unwrap();
                    folder.synced.as_mut().unwrap_or(&mut folder.now).content = InodeContent::Folder(BTreeMap::new());
                }
            }
            for node in state.nodes.values_mut() {
                match (&node.synced, &mut node.now.content) {
                    (Some(synced), _) => node.now = synced.clone(),
                    (None, InodeContent::File(data)) => *data = Arc::default(),
                    (None, InodeContent::Folder(entries)) => entries.clear(),
                    (None, InodeContent::Link(_) | InodeContent::Device) => {}
                }
            }
            state.dirty.clear();
            state.mounts.clear();
            state.name_anew();
            state.losses += 1;
            state.losses
        };
        self.put("/proc/sys/kernel/random/boot_id", format!("{losses:032x}\n"));
    }

    fn tell(&self, news: impl IntoIterator<Item = PendingNotification>) {
        for (folder, change, name) in news {
            let of_folder = |listener: &&SimulatedListener| listener.folder == folder;
            let listeners: Vec<_> =
                self.listeners.lock().unwrap().iter().filter(of_folder).map(|l| Arc::clone(&l.tell)).collect();
            listeners.iter().for_each(|tell| tell(change(&name)));
        }
    }

    /// Takes what was removed out of the watches, as the kernel does, and tells who watched it.
    fn end_watches(&self, folder: u64) {
        let mut listeners = self.listeners.lock().unwrap();
        let ended: Vec<SimulatedListener> = listeners.extract_if(.., |listener| listener.folder == folder).collect();
        drop(listeners);
        ended.iter().for_each(|listener| (listener.tell)(FolderChange::Folder));
    }
}

impl Default for SimulatedDiskState {
    fn default() -> Self {
        let now = InodeVersion::new(InodeContent::Folder(BTreeMap::new()), 0o755, SystemTime::now());
        let root = Inode { synced: Some(now.clone()), now, above: None, file_system: 1 };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            run: 0,
            losses: 0,
            has_one_journal: true,
            locked: BTreeSet::new(),
            dirty: BTreeSet::new(),
            mounts: BTreeMap::new(),
            volatile: Vec::new(),
            faults: Vec::new(),
            exempt: false,
            left: Cell::new(None),
            now: None,
        }
    }
}
