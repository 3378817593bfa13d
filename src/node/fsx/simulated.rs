//! A disk in memory, for tests and the simulator: it knows what would outlive a loss of power, and fails where it is
//! told to.
//!
//! Owns what file systems promise. Must not know what the files mean.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::time::SystemTime;

use nix::Result;
use nix::errno::Errno;

use crate::node::fsx::Disk;
use crate::node::fsx::Doing;
use crate::node::fsx::FileKind;
use crate::node::fsx::Handle;
use crate::node::fsx::Links;
use crate::node::fsx::Owner;
use crate::node::fsx::Stamp;
use crate::node::fsx::Stat;
use crate::node::fsx::changes::FolderChange;
use crate::node::fsx::changes::Tell;
use crate::node::fsx::changes::Watched;
use crate::node::fsx::changes::Watching;

const ROOT: u64 = 1;
/// So many links are followed before they count as a loop.
const HOPS: usize = 40;

/// A file system in memory. Nothing is on stable storage before it is waited for.
#[derive(Debug, Default)]
pub struct Simulated {
    state: Mutex<State>,
    listeners: Arc<Mutex<Vec<Listener>>>,
    observer: Mutex<Option<Observer>>,
}

/// Is told of each change after it, by its path; it may end the process that made it by a panic.
type ChangeObserver = Arc<dyn Fn(Doing, &Path) + Send + Sync>;

struct Observer(ChangeObserver);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("observer")
    }
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<u64, Node>,
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
    /// Whether whoever acts now meets no faults.
    exempt: bool,
    /// So many changes more, then nothing works.
    left: Cell<Option<u64>>,
    now: Option<SystemTime>,
}

#[derive(Clone, Debug)]
struct Node {
    now: Version,
    /// As it is after a loss of power; `None`: empty.
    synced: Option<Version>,
    /// Which folder has it, under which name; of the root of a mounted file system: that of the folder below.
    above: Option<(u64, OsString)>,
    file_system: u64,
}

#[derive(Clone, Debug)]
struct Version {
    content: Content,
    mode: u32,
    uid: u32,
    gid: u32,
    modified: SystemTime,
    changed: SystemTime,
}

#[derive(Clone, Debug)]
enum Content {
    File(Arc<Vec<u8>>),
    Folder(BTreeMap<OsString, u64>),
    Link(PathBuf),
    /// `/dev/null` and its like.
    Device,
}

struct Listener {
    id: u64,
    folder: u64,
    tell: Arc<Tell>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.folder)
    }
}

/// What of that which nobody waited for outlives a loss of power all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// The journal had been written: names and attributes, and not the bytes of files.
    Names,
    /// The journal, and of each file nothing, its beginning, zeros, or all: which is drawn from this number.
    Torn(u64),
    /// Everything.
    All,
}

/// Where a path leads.
struct Found {
    folder: u64,
    name: OsString,
    /// `None`: nothing has that name.
    node: Option<u64>,
}

/// A change to be told, once nothing is locked.
type News = (u64, fn(&OsStr) -> FolderChange<'_>, OsString);

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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The file at `path` is there, on stable storage, with the folders above it.
    pub fn put(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) {
        let path = path.as_ref();
        self.make_folder(path.parent().unwrap());
        let _ = self.unlink(&Handle::Start, path);
        let file = self.create_file(&Handle::Start, path).unwrap();
        self.write(&file, data.as_ref()).unwrap();
        self.sync(&file).unwrap();
        self.sync_folder(path.parent().unwrap());
    }

    /// The folder at `path` is there, on stable storage, with those above it.
    pub fn make_folder(&self, path: &Path) {
        for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            if self.create_folder(&Handle::Start, folder, 0o755).is_ok() {
                self.sync_folder(folder);
                self.sync_folder(folder.parent().unwrap());
            }
        }
    }

    fn sync_folder(&self, path: &Path) {
        self.sync(&self.open_folder(&Handle::Start, path, Links::Follow).unwrap()).unwrap();
    }

    /// A device without content is at `path`, as `/dev/null` is one.
    pub fn put_device(&self, path: &Path) {
        self.make_folder(path.parent().unwrap());
        let _ = self.state().create(&Handle::Start, path, Content::Device, 0o666);
        self.sync_folder(path.parent().unwrap());
    }

    /// Mounts the file system `number`, a new one or the one that was mounted before, on the folder at `path`.
    pub fn mount(&self, path: &Path, number: u64) {
        let mut state = self.state();
        let folder = state.found(&Handle::Start, path, Links::Follow).unwrap();
        let known = state.nodes.iter().find(|(_, node)| node.file_system == number).map(|(root, _)| *root);
        let root = known.unwrap_or_else(|| {
            let root = state.next;
            state.next += 1;
            let now = Version::new(Content::Folder(BTreeMap::new()), 0o755, state.time());
            let above = state.nodes[&folder].above.clone();
            let node = Node { synced: Some(now.clone()), now, above, file_system: number };
            state.nodes.insert(root, node);
            root
        });
        state.mounts.insert(folder, root);
    }

    /// Takes the file system away that is mounted on the folder at `path`, if one is.
    pub fn unmount(&self, path: &Path) {
        let mut state = self.state();
        let Ok(root) = state.found(&Handle::Start, path, Links::Follow) else { return };
        state.mounts.retain(|_, mounted| *mounted != root);
    }

    /// Has `observer` told of each change; `None`: nobody.
    pub fn observe(&self, observer: Option<ChangeObserver>) {
        *self.observer.lock().unwrap() = observer.map(Observer);
    }

    fn changed(&self, doing: Doing, path: &Path) {
        let observer = self.observer.lock().unwrap().as_ref().map(|Observer(observer)| Arc::clone(observer));
        if let Some(observer) = observer {
            observer(doing, path);
        }
    }

    /// Tells of a change of what `path` below `at` names.
    fn changed_at(&self, doing: Doing, at: &Handle, path: &Path) {
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

    /// Whether whoever acts from now on meets no faults. Gives what it was.
    pub fn set_exempt(&self, exempt: bool) -> bool {
        std::mem::replace(&mut self.state().exempt, exempt)
    }

    /// What failed at `path` and below it works again.
    pub fn mend(&self, path: &Path) {
        self.state().faults.retain(|(_, place, _)| !place.starts_with(path));
    }

    /// The file at `path` has this content, on stable storage, and is the same file; made if it was not there.
    pub fn overwrite(&self, path: &Path, data: &[u8]) {
        let found = self.state().found(&Handle::Start, path, Links::Follow);
        let Ok(node) = found else { return self.put(path, data) };
        let above = {
            let mut state = self.state();
            let Ok(version) = state.change(node) else { return };
            version.modified = version.changed;
            version.content = Content::File(Arc::new(data.to_vec()));
            state.save(node);
            state.above(node).map(|(folder, name)| -> News { (folder, altered, name.clone()) })
        };
        self.tell(above);
        self.changed(Doing::Write, path);
    }

    /// Lets `changes` changes happen, and then nothing any more, until [`Simulated::heal`].
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

    /// Ends the process that used the disk: what it had open is closed, what it wrote is there.
    pub fn end_process(&self) {
        let mut state = self.state();
        state.run += 1;
        state.locked.clear();
        self.listeners.lock().unwrap().clear();
    }

    /// Loses the power: what was not waited for is as it was before, but for what is `kept` by chance, and the boot is
    /// another one.
    pub fn crash(&self, kept: Kept) {
        self.end_process();
        let losses = {
            let mut state = self.state();
            match kept {
                Kept::Nothing => {}
                Kept::Names => state.commit(),
                Kept::Torn(number) => state.tear(number),
                Kept::All => state.nodes.values_mut().for_each(|node| node.synced = Some(node.now.clone())),
            }
            for path in state.volatile.clone() {
                if let Ok(Found { node: Some(node), .. }) = state.find(&Handle::Start, &path, Links::Follow) {
                    let folder = state.nodes.get_mut(&node).unwrap();
                    folder.synced.as_mut().unwrap_or(&mut folder.now).content = Content::Folder(BTreeMap::new());
                }
            }
            for node in state.nodes.values_mut() {
                match (&node.synced, &mut node.now.content) {
                    (Some(synced), _) => node.now = synced.clone(),
                    (None, Content::File(data)) => *data = Arc::default(),
                    (None, Content::Folder(entries)) => entries.clear(),
                    (None, Content::Link(_) | Content::Device) => {}
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

    fn tell(&self, news: impl IntoIterator<Item = News>) {
        for (folder, change, name) in news {
            let of_folder = |listener: &&Listener| listener.folder == folder;
            let told: Vec<_> =
                self.listeners.lock().unwrap().iter().filter(of_folder).map(|l| Arc::clone(&l.tell)).collect();
            told.iter().for_each(|tell| tell(change(&name)));
        }
    }

    /// Takes what was removed out of the watches, as the kernel does, and tells who watched it.
    fn end_watches(&self, folder: u64) {
        let mut listeners = self.listeners.lock().unwrap();
        let ended: Vec<Listener> = listeners.extract_if(.., |listener| listener.folder == folder).collect();
        drop(listeners);
        ended.iter().for_each(|listener| (listener.tell)(FolderChange::Folder));
    }
}

impl Default for State {
    fn default() -> Self {
        let now = Version::new(Content::Folder(BTreeMap::new()), 0o755, SystemTime::now());
        let root = Node { synced: Some(now.clone()), now, above: None, file_system: 1 };
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

impl Version {
    fn new(content: Content, mode: u32, now: SystemTime) -> Self {
        static OWN: LazyLock<(u32, u32)> =
            LazyLock::new(|| (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()));
        let (uid, gid) = *OWN;
        Self { content, mode, uid, gid, modified: now, changed: now }
    }
}

impl State {
    fn time(&self) -> SystemTime {
        self.now.unwrap_or_else(crate::clock::system)
    }

    fn at(&self, handle: &Handle) -> Result<u64> {
        match handle {
            Handle::Start => Ok(ROOT),
            Handle::Simulated(node, run) if *run == self.run => Ok(*node),
            Handle::Simulated(..) | Handle::Open(_) => Err(Errno::EBADF),
        }
    }

    fn open(&self, node: u64) -> Handle {
        Handle::Simulated(node, self.run)
    }

    fn version(&self, node: u64) -> Result<&Version> {
        self.nodes.get(&node).map(|node| &node.now).ok_or(Errno::ENOENT)
    }

    fn change(&mut self, node: u64) -> Result<&mut Version> {
        let now = self.time();
        self.dirty.insert(node);
        let version = &mut self.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.now;
        version.changed = now;
        Ok(version)
    }

    fn entries(&self, folder: u64) -> Result<&BTreeMap<OsString, u64>> {
        match &self.version(folder)?.content {
            Content::Folder(entries) => Ok(entries),
            Content::File(_) | Content::Link(_) | Content::Device => Err(Errno::ENOTDIR),
        }
    }

    fn change_entries(&mut self, folder: u64) -> Result<&mut BTreeMap<OsString, u64>> {
        let version = self.change(folder)?;
        version.modified = version.changed;
        match &mut version.content {
            Content::Folder(entries) => Ok(entries),
            Content::File(_) | Content::Link(_) | Content::Device => Err(Errno::ENOTDIR),
        }
    }

    /// The folder that has `node`, and under which name.
    fn above(&self, node: u64) -> Option<(u64, &OsString)> {
        let above = self.nodes.get(&node)?.above.as_ref()?;
        Some((above.0, &above.1))
    }

    fn name(&mut self, node: u64, above: Option<(u64, OsString)>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.above = above;
        }
    }

    /// Finds again which folder has which entry.
    fn name_anew(&mut self) {
        let mut named = Vec::new();
        for (folder, node) in &self.nodes {
            if let Content::Folder(entries) = &node.now.content {
                named.extend(entries.iter().map(|(name, entry)| (*entry, *folder, name.clone())));
            }
        }
        self.nodes.values_mut().filter(|node| node.file_system == 1).for_each(|node| node.above = None);
        for (entry, folder, name) in named {
            self.name(entry, Some((folder, name)));
        }
    }

    fn path(&self, node: u64) -> PathBuf {
        match self.above(node) {
            Some((folder, name)) => self.path(folder).join(name),
            None => PathBuf::from("/"),
        }
    }

    fn find(&self, at: &Handle, path: &Path, links: Links) -> Result<Found> {
        let names = |path: &Path| -> Vec<OsString> {
            let named =
                path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
            named.map(|part| part.as_os_str().to_owned()).collect()
        };
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        let (mut here, mut left, mut hops) = (self.at(at)?, names(path), 0);
        if path.is_absolute() {
            here = ROOT;
        }
        while let Some(name) = left.pop() {
            let entries = self.entries(here)?;
            if name == ".." {
                here = self.above(here).map_or(ROOT, |(folder, _)| folder);
                continue;
            }
            let Some(node) = entries.get(&name).copied() else {
                return if left.is_empty() { Ok(Found { folder: here, name, node: None }) } else { Err(Errno::ENOENT) };
            };
            match &self.version(node)?.content {
                Content::Link(target) if !left.is_empty() || links == Links::Follow => {
                    hops += 1;
                    if hops > HOPS {
                        return Err(Errno::ELOOP);
                    }
                    if target.is_absolute() {
                        here = ROOT;
                    }
                    left.extend(names(target));
                }
                _ if left.is_empty() => {
                    return Ok(Found {
                        folder: here,
                        name,
                        node: Some(self.mounts.get(&node).copied().unwrap_or(node)),
                    });
                }
                _ => here = self.mounts.get(&node).copied().unwrap_or(node),
            }
        }
        Ok(Found { folder: here, name: OsString::new(), node: Some(here) })
    }

    fn found(&self, at: &Handle, path: &Path, links: Links) -> Result<u64> {
        self.find(at, path, links)?.node.ok_or(Errno::ENOENT)
    }

    fn check(&self, doing: Doing, path: impl FnOnce() -> PathBuf) -> Result<()> {
        match (self.left.get(), doing) {
            (Some(0), _) => return Err(Errno::EIO),
            (_, Doing::Open | Doing::Read | Doing::Watch) | (None, _) => {}
            (Some(left), _) => self.left.set(Some(left - 1)),
        }
        if self.faults.is_empty() || self.exempt {
            return Ok(());
        }
        let path = path();
        let fault = self.faults.iter().find(|(kind, place, _)| *kind == doing && path.starts_with(place));
        fault.map_or(Ok(()), |(_, _, errno)| Err(*errno))
    }

    fn check_node(&self, doing: Doing, node: u64) -> Result<()> {
        self.check(doing, || self.path(node))
    }

    fn check_found(&self, doing: Doing, found: &Found) -> Result<()> {
        self.check(doing, || self.path(found.folder).join(&found.name))
    }

    /// A new entry, which nothing has been.
    fn create(&mut self, at: &Handle, path: &Path, content: Content, mode: u32) -> Result<(u64, News)> {
        let found = self.find(at, path, Links::Refuse)?;
        self.check_found(Doing::Create, &found)?;
        if found.node.is_some() {
            return Err(Errno::EEXIST);
        }
        // A folder that was removed takes no entries.
        if found.folder != ROOT && !self.is_linked(found.folder) {
            return Err(Errno::ENOENT);
        }
        let node = self.next;
        self.next += 1;
        let now = Version::new(content, mode, self.time());
        let above = Some((found.folder, found.name.clone()));
        let file_system = self.nodes[&found.folder].file_system;
        self.nodes.insert(node, Node { now, synced: None, above, file_system });
        self.dirty.insert(node);
        self.change_entries(found.folder)?.insert(found.name.clone(), node);
        Ok((node, (found.folder, appeared, found.name)))
    }

    fn is_linked(&self, node: u64) -> bool {
        node == ROOT || self.above(node).is_some()
    }

    fn remove(&mut self, at: &Handle, path: &Path, is_folder: bool) -> Result<(u64, News)> {
        let found = self.find(at, path, Links::Refuse)?;
        self.check_found(Doing::Remove, &found)?;
        let node = found.node.ok_or(Errno::ENOENT)?;
        match (self.entries(node), is_folder) {
            (Ok(_), false) => return Err(Errno::EISDIR),
            (Err(_), true) => return Err(Errno::ENOTDIR),
            (Ok(entries), true) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.change_entries(found.folder)?.remove(&found.name);
        self.change(node)?;
        self.name(node, None);
        Ok((node, (found.folder, gone, found.name)))
    }

    fn save(&mut self, node: u64) {
        let node = self.nodes.get_mut(&node).unwrap();
        node.synced = Some(node.now.clone());
    }

    /// Commits the journal: all names, and all attributes; not the bytes of files.
    fn commit(&mut self) {
        for node in std::mem::take(&mut self.dirty) {
            let Some(node) = self.nodes.get_mut(&node) else { continue };
            let content = match (&node.now.content, &node.synced) {
                (Content::File(_), None) => Content::File(Arc::default()),
                (Content::File(_), Some(synced)) => synced.content.clone(),
                (content, _) => content.clone(),
            };
            node.synced = Some(Version { content, ..node.now.clone() });
        }
    }

    /// Commits the journal; of what was written to each file and not waited for, some is there.
    fn tear(&mut self, number: u64) {
        self.commit();
        let mut number = number | 1;
        for node in self.nodes.values_mut() {
            let (Content::File(data), Some(synced)) = (&node.now.content, &mut node.synced) else { continue };
            let Content::File(before) = &synced.content else { continue };
            if before == data {
                continue;
            }
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            match number % 4 {
                0 => {}
                1 => synced.content = Content::File(Arc::new(data[..data.len() / 2].to_vec())),
                2 => synced.content = Content::File(Arc::new(vec![0; data.len()])),
                _ => synced.content = Content::File(Arc::clone(data)),
            }
        }
    }

    fn stat(&self, node: u64) -> Result<Stat> {
        let version = self.version(node)?;
        let (kind, size) = match &version.content {
            Content::File(data) => (FileKind::File, data.len()),
            Content::Folder(_) => (FileKind::Folder, 4_096),
            Content::Link(target) => (FileKind::Link, target.as_os_str().len()),
            Content::Device => (FileKind::Device, 0),
        };
        let seconds = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            (since.as_secs() as i64, i64::from(since.subsec_nanos()))
        };
        let (mtime, ctime) = (seconds(version.modified), seconds(version.changed));
        let stamp = Stamp { dev: self.nodes[&node].file_system, ino: node, size: size as i64, mtime, ctime };
        let links = u64::from(self.is_linked(node));
        Ok(Stat { kind, mode: version.mode, uid: version.uid, gid: version.gid, links, stamp })
    }
}

impl Disk for Simulated {
    fn open_folder(&self, at: &Handle, path: &Path, links: Links) -> Result<Handle> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.check_node(Doing::Open, node)?;
        state.entries(node).map(|_| state.open(node))
    }

    fn open_file(&self, at: &Handle, path: &Path, links: Links) -> Result<Handle> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.check_node(Doing::Open, node)?;
        match state.version(node)?.content {
            Content::Link(_) => Err(Errno::ELOOP),
            Content::File(_) | Content::Folder(_) | Content::Device => Ok(state.open(node)),
        }
    }

    fn create_file(&self, at: &Handle, path: &Path) -> Result<Handle> {
        let (node, news) = self.state().create(at, path, Content::File(Arc::default()), 0o600)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(self.state().open(node))
    }

    fn create_folder(&self, at: &Handle, path: &Path, mode: u32) -> Result<()> {
        let (_, news) = self.state().create(at, path, Content::Folder(BTreeMap::new()), mode)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(())
    }

    fn create_link(&self, target: &Path, at: &Handle, path: &Path) -> Result<()> {
        let (_, news) = self.state().create(at, path, Content::Link(target.to_owned()), 0o777)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(())
    }

    fn read_link(&self, at: &Handle, path: &Path) -> Result<OsString> {
        let state = self.state();
        let node = state.found(at, path, Links::Refuse)?;
        state.check_node(Doing::Read, node)?;
        match &state.version(node)?.content {
            Content::Link(target) => Ok(target.clone().into()),
            Content::File(_) | Content::Folder(_) | Content::Device => Err(Errno::EINVAL),
        }
    }

    fn rename(&self, from_at: &Handle, from: &Path, to_at: &Handle, to: &Path) -> Result<()> {
        let mut state = self.state();
        let (place, target) = (from_at, to);
        let old = state.find(place, from, Links::Refuse)?;
        let (from, to) = (state.find(from_at, from, Links::Refuse)?, state.find(to_at, to, Links::Refuse)?);
        let from_path = state.path(old.folder).join(&old.name);
        let node = from.node.ok_or(Errno::ENOENT)?;
        state.check_found(Doing::Rename, &to)?;
        let replaced = to.node.filter(|replaced| *replaced != node);
        match (state.entries(node).is_ok(), replaced.map(|replaced| state.entries(replaced))) {
            (_, None) | (false, Some(Err(_))) => {}
            (true, Some(Ok(entries))) if entries.is_empty() => {}
            (true, Some(Ok(_))) => return Err(Errno::ENOTEMPTY),
            (true, Some(Err(_))) => return Err(Errno::ENOTDIR),
            (false, Some(Ok(_))) => return Err(Errno::EISDIR),
        }
        state.change_entries(from.folder)?.remove(&from.name);
        if let Some(replaced) = replaced {
            state.name(replaced, None);
        }
        state.change_entries(to.folder)?.insert(to.name.clone(), node);
        state.name(node, Some((to.folder, to.name.clone())));
        state.change(node)?;
        drop(state);
        let news: [News; 2] = [(from.folder, gone, from.name), (to.folder, appeared, to.name)];
        self.tell(news);
        [Some(node), replaced].into_iter().flatten().for_each(|moved| self.end_watches(moved));
        self.changed(Doing::Remove, &from_path);
        self.changed_at(Doing::Rename, to_at, target);
        Ok(())
    }

    fn unlink(&self, at: &Handle, path: &Path) -> Result<()> {
        let (_, news) = self.state().remove(at, path, false)?;
        self.tell([news]);
        self.changed_at(Doing::Remove, at, path);
        Ok(())
    }

    fn remove_folder(&self, at: &Handle, path: &Path) -> Result<()> {
        let (node, news) = self.state().remove(at, path, true)?;
        self.tell([news]);
        self.end_watches(node);
        self.changed_at(Doing::Remove, at, path);
        Ok(())
    }

    fn names(&self, folder: &Handle) -> Result<Vec<OsString>> {
        let state = self.state();
        let folder = state.at(folder)?;
        state.check_node(Doing::Read, folder)?;
        state.entries(folder).map(|entries| entries.keys().cloned().collect())
    }

    fn stat(&self, at: &Handle, path: &Path, links: Links) -> Result<Stat> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.stat(node)
    }

    fn stat_open(&self, open: &Handle) -> Result<Stat> {
        let state = self.state();
        state.stat(state.at(open)?)
    }

    fn set_mode(&self, open: &Handle, mode: u32) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        state.check_node(Doing::SetAttributes, node)?;
        state.change(node).map(|version| version.mode = mode)
    }

    fn set_owner(&self, open: &Handle, owner: Owner) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        state.set_owner(node, owner)
    }

    fn set_owner_at(&self, at: &Handle, path: &Path, owner: Owner) -> Result<()> {
        let mut state = self.state();
        let node = state.found(at, path, Links::Refuse)?;
        state.set_owner(node, owner)
    }

    fn read(&self, file: &Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let state = self.state();
        let node = state.at(file)?;
        state.check_node(Doing::Read, node)?;
        let Content::File(data) = &state.version(node)?.content else { return Err(Errno::EISDIR) };
        let rest = data.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write(&self, file: &Handle, data: &[u8]) -> Result<()> {
        let mut state = self.state();
        let node = state.at(file)?;
        state.check_node(Doing::Write, node)?;
        let version = state.change(node)?;
        version.modified = version.changed;
        let Content::File(content) = &mut version.content else { return Err(Errno::EISDIR) };
        Arc::make_mut(content).extend_from_slice(data);
        let above = state.above(node).map(|(folder, name)| -> News { (folder, altered, name.clone()) });
        let path = state.path(node);
        drop(state);
        self.tell(above);
        self.changed(Doing::Write, &path);
        Ok(())
    }

    fn begin(&self, _file: &Handle) {}

    fn sync(&self, open: &Handle) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        state.check_node(Doing::Sync, node)?;
        if state.has_one_journal {
            state.commit();
        }
        state.save(node);
        let path = state.path(node);
        drop(state);
        self.changed(Doing::Sync, &path);
        Ok(())
    }

    fn lock(&self, open: &Handle) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        if state.locked.insert(node) { Ok(()) } else { Err(Errno::EWOULDBLOCK) }
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let state = self.state();
        state.found(&Handle::Start, path, Links::Follow).map(|node| state.path(node))
    }

    fn file_system(&self, folder: &Handle) -> Result<u64> {
        let state = self.state();
        Ok(state.nodes[&state.at(folder)?].file_system)
    }

    fn has_one_journal(&self, _folder: &Handle) -> bool {
        self.state().has_one_journal
    }

    fn watch(&self, folder: &Path, tell: Tell) -> io::Result<Watched> {
        let mut state = self.state();
        let node = state.found(&Handle::Start, folder, Links::Follow)?;
        state.check_node(Doing::Watch, node)?;
        let id = state.next;
        state.next += 1;
        self.listeners.lock().unwrap().push(Listener { id, folder: node, tell: Arc::new(tell) });
        Ok(Box::new(Watch { id, listeners: Arc::clone(&self.listeners) }))
    }
}

impl State {
    fn set_owner(&mut self, node: u64, owner: Owner) -> Result<()> {
        self.check_node(Doing::SetAttributes, node)?;
        let version = self.change(node)?;
        version.uid = owner.uid.unwrap_or(version.uid);
        version.gid = owner.gid.unwrap_or(version.gid);
        Ok(())
    }
}

#[derive(Debug)]
struct Watch {
    id: u64,
    listeners: Arc<Mutex<Vec<Listener>>>,
}

impl Watching for Watch {
    fn is_alive(&self) -> bool {
        self.listeners.lock().unwrap().iter().any(|listener| listener.id == self.id)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.listeners.lock().unwrap().retain(|listener| listener.id != self.id);
    }
}
