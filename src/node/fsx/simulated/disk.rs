//! The system calls on the simulated disk, with the errors that a real one gives.

use std::io;

use crate::node::fsx::Owner;
use crate::node::fsx::Stat;
use crate::node::fsx::changes::Watched;
use crate::node::fsx::changes::Watching;

use super::*;

impl Disk for Simulated {
    fn open_folder(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.check_node(Doing::Open, node)?;
        state.entries(node).map(|_| state.open(node))
    }

    fn open_file(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.check_node(Doing::Open, node)?;
        match state.version(node)?.content {
            InodeContent::Link(_) => Err(Errno::ELOOP),
            InodeContent::File(_) | InodeContent::Folder(_) | InodeContent::Device => Ok(state.open(node)),
        }
    }

    fn create_file(&self, at: &DiskHandle, path: &Path) -> Result<DiskHandle> {
        let (node, news) = self.state().create(at, path, InodeContent::File(Arc::default()), 0o600)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(self.state().open(node))
    }

    fn create_folder(&self, at: &DiskHandle, path: &Path, mode: u32) -> Result<()> {
        let (_, news) = self.state().create(at, path, InodeContent::Folder(BTreeMap::new()), mode)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(())
    }

    fn create_link(&self, target: &Path, at: &DiskHandle, path: &Path) -> Result<()> {
        let (_, news) = self.state().create(at, path, InodeContent::Link(target.to_owned()), 0o777)?;
        self.tell([news]);
        self.changed_at(Doing::Create, at, path);
        Ok(())
    }

    fn read_link(&self, at: &DiskHandle, path: &Path) -> Result<OsString> {
        let state = self.state();
        let node = state.found(at, path, Links::Refuse)?;
        state.check_node(Doing::Read, node)?;
        match &state.version(node)?.content {
            InodeContent::Link(target) => Ok(target.clone().into()),
            InodeContent::File(_) | InodeContent::Folder(_) | InodeContent::Device => Err(Errno::EINVAL),
        }
    }

    fn rename(&self, from_at: &DiskHandle, from: &Path, to_at: &DiskHandle, to: &Path) -> Result<()> {
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
        let news: [PendingNotification; 2] = [(from.folder, gone, from.name), (to.folder, appeared, to.name)];
        self.tell(news);
        [Some(node), replaced].into_iter().flatten().for_each(|moved| self.end_watches(moved));
        self.changed(Doing::Remove, &from_path);
        self.changed_at(Doing::Rename, to_at, target);
        Ok(())
    }

    fn unlink(&self, at: &DiskHandle, path: &Path) -> Result<()> {
        let (_, news) = self.state().remove(at, path, false)?;
        self.tell([news]);
        self.changed_at(Doing::Remove, at, path);
        Ok(())
    }

    fn remove_folder(&self, at: &DiskHandle, path: &Path) -> Result<()> {
        let (node, news) = self.state().remove(at, path, true)?;
        self.tell([news]);
        self.end_watches(node);
        self.changed_at(Doing::Remove, at, path);
        Ok(())
    }

    fn names(&self, folder: &DiskHandle) -> Result<Vec<OsString>> {
        let state = self.state();
        let folder = state.at(folder)?;
        state.check_node(Doing::Read, folder)?;
        state.entries(folder).map(|entries| entries.keys().cloned().collect())
    }

    fn stat(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<Stat> {
        let state = self.state();
        let node = state.found(at, path, links)?;
        state.stat(node)
    }

    fn stat_open(&self, open: &DiskHandle) -> Result<Stat> {
        let state = self.state();
        state.stat(state.at(open)?)
    }

    fn set_mode(&self, open: &DiskHandle, mode: u32) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        state.check_node(Doing::SetAttributes, node)?;
        state.change(node).map(|version| version.mode = mode)
    }

    fn set_owner(&self, open: &DiskHandle, owner: Owner) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        state.set_owner(node, owner)
    }

    fn set_owner_at(&self, at: &DiskHandle, path: &Path, owner: Owner) -> Result<()> {
        let mut state = self.state();
        let node = state.found(at, path, Links::Refuse)?;
        state.set_owner(node, owner)
    }

    fn read(&self, file: &DiskHandle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let state = self.state();
        let node = state.at(file)?;
        state.check_node(Doing::Read, node)?;
        let InodeContent::File(data) = &state.version(node)?.content else { return Err(Errno::EISDIR) };
        let rest = data.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write(&self, file: &DiskHandle, data: &[u8]) -> Result<()> {
        let mut state = self.state();
        let node = state.at(file)?;
        state.check_node(Doing::Write, node)?;
        let version = state.change(node)?;
        version.modified = version.changed;
        let InodeContent::File(content) = &mut version.content else { return Err(Errno::EISDIR) };
        Arc::make_mut(content).extend_from_slice(data);
        let above = state.above(node).map(|(folder, name)| -> PendingNotification { (folder, altered, name.clone()) });
        let path = state.path(node);
        drop(state);
        self.tell(above);
        self.changed(Doing::Write, &path);
        Ok(())
    }

    fn begin(&self, _file: &DiskHandle) {}

    fn sync(&self, open: &DiskHandle) -> Result<()> {
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

    fn lock(&self, open: &DiskHandle) -> Result<()> {
        let mut state = self.state();
        let node = state.at(open)?;
        if state.locked.insert(node) { Ok(()) } else { Err(Errno::EWOULDBLOCK) }
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let state = self.state();
        state.found(&DiskHandle::Start, path, Links::Follow).map(|node| state.path(node))
    }

    fn file_system(&self, folder: &DiskHandle) -> Result<u64> {
        let state = self.state();
        Ok(state.nodes[&state.at(folder)?].file_system)
    }

    fn has_one_journal(&self, _folder: &DiskHandle) -> bool {
        self.state().has_one_journal
    }

    fn watch(&self, folder: &Path, tell: Tell) -> io::Result<Watched> {
        let mut state = self.state();
        let node = state.found(&DiskHandle::Start, folder, Links::Follow)?;
        state.check_node(Doing::Watch, node)?;
        let id = state.next;
        state.next += 1;
        self.listeners.lock().unwrap().push(SimulatedListener { id, folder: node, tell: Arc::new(tell) });
        Ok(Box::new(SimulatedWatch { id, listeners: Arc::clone(&self.listeners) }))
    }
}

#[derive(Debug)]
struct SimulatedWatch {
    id: u64,
    listeners: Arc<Mutex<Vec<SimulatedListener>>>,
}

impl Watching for SimulatedWatch {
    fn is_alive(&self) -> bool {
        self.listeners.lock().unwrap().iter().any(|listener| listener.id == self.id)
    }
}

impl Drop for SimulatedWatch {
    fn drop(&mut self) {
        self.listeners.lock().unwrap().retain(|listener| listener.id != self.id);
    }
}
