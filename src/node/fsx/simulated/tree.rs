//! The tree of files: paths, names, and what is saved of them. Owns no file handles and tells no listener.

use std::path::Component;

use crate::node::fsx::FileKind;
use crate::node::fsx::Owner;
use crate::node::fsx::Stamp;
use crate::node::fsx::Stat;

use super::*;

impl SimulatedDiskState {
    pub(super) fn time(&self) -> SystemTime {
        self.now.unwrap_or_else(crate::clock::system)
    }

    pub(super) fn at(&self, handle: &DiskHandle) -> Result<u64> {
        match handle {
            DiskHandle::Start => Ok(ROOT),
            DiskHandle::Simulated(node, run) if *run == self.run => Ok(*node),
            DiskHandle::Simulated(..) | DiskHandle::Open(_) => Err(Errno::EBADF),
        }
    }

    pub(super) fn open(&self, node: u64) -> DiskHandle {
        DiskHandle::Simulated(node, self.run)
    }

    pub(super) fn version(&self, node: u64) -> Result<&InodeVersion> {
        self.nodes.get(&node).map(|node| &node.now).ok_or(Errno::ENOENT)
    }

    pub(super) fn change(&mut self, node: u64) -> Result<&mut InodeVersion> {
        let now = self.time();
        self.dirty.insert(node);
        let version = &mut self.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.now;
        version.changed = now;
        Ok(version)
    }

    pub(super) fn entries(&self, folder: u64) -> Result<&BTreeMap<OsString, u64>> {
        match &self.version(folder)?.content {
            InodeContent::Folder(entries) => Ok(entries),
            InodeContent::File(_) | InodeContent::Link(_) | InodeContent::Device => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn change_entries(&mut self, folder: u64) -> Result<&mut BTreeMap<OsString, u64>> {
        let version = self.change(folder)?;
        version.modified = version.changed;
        match &mut version.content {
            InodeContent::Folder(entries) => Ok(entries),
            InodeContent::File(_) | InodeContent::Link(_) | InodeContent::Device => Err(Errno::ENOTDIR),
        }
    }

    /// The folder that has `node`, and under which name.
    pub(super) fn above(&self, node: u64) -> Option<(u64, &OsString)> {
        let above = self.nodes.get(&node)?.above.as_ref()?;
        Some((above.0, &above.1))
    }

    pub(super) fn name(&mut self, node: u64, above: Option<(u64, OsString)>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.above = above;
        }
    }

    /// Finds again which folder has which entry.
    pub(super) fn name_anew(&mut self) {
        let mut named = Vec::new();
        for (folder, node) in &self.nodes {
            if let InodeContent::Folder(entries) = &node.now.content {
                named.extend(entries.iter().map(|(name, entry)| (*entry, *folder, name.clone())));
            }
        }
        self.nodes.values_mut().filter(|node| node.file_system == 1).for_each(|node| node.above = None);
        for (entry, folder, name) in named {
            self.name(entry, Some((folder, name)));
        }
    }

    pub(super) fn path(&self, node: u64) -> PathBuf {
        match self.above(node) {
            Some((folder, name)) => self.path(folder).join(name),
            None => PathBuf::from("/"),
        }
    }

    pub(super) fn find(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<PathLookup> {
        /// Puts the names of a path on top, the first one on the very top.
        fn put<'p>(left: &mut Vec<&'p OsStr>, path: &'p Path) {
            let below = left.len();
            let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
            left.extend(named.map(Component::as_os_str));
            left[below..].reverse();
        }
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        let (mut here, mut left, mut hops) = (self.at(at)?, Vec::with_capacity(12), 0);
        put(&mut left, path);
        if path.is_absolute() {
            here = ROOT;
        }
        while let Some(name) = left.pop() {
            let entries = self.entries(here)?;
            if name == ".." {
                here = self.above(here).map_or(ROOT, |(folder, _)| folder);
                continue;
            }
            let Some(node) = entries.get(name).copied() else {
                return if left.is_empty() {
                    Ok(PathLookup { folder: here, name: name.to_owned(), node: None })
                } else {
                    Err(Errno::ENOENT)
                };
            };
            match &self.version(node)?.content {
                InodeContent::Link(target) if !left.is_empty() || links == Links::Follow => {
                    hops += 1;
                    if hops > HOPS {
                        return Err(Errno::ELOOP);
                    }
                    if target.is_absolute() {
                        here = ROOT;
                    }
                    put(&mut left, target);
                }
                _ if left.is_empty() => {
                    return Ok(PathLookup {
                        folder: here,
                        name: name.to_owned(),
                        node: Some(self.mounts.get(&node).copied().unwrap_or(node)),
                    });
                }
                _ => here = self.mounts.get(&node).copied().unwrap_or(node),
            }
        }
        Ok(PathLookup { folder: here, name: OsString::new(), node: Some(here) })
    }

    pub(super) fn found(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<u64> {
        self.find(at, path, links)?.node.ok_or(Errno::ENOENT)
    }

    pub(super) fn check(&self, doing: Doing, path: impl FnOnce() -> PathBuf) -> Result<()> {
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

    pub(super) fn check_node(&self, doing: Doing, node: u64) -> Result<()> {
        self.check(doing, || self.path(node))
    }

    pub(super) fn check_found(&self, doing: Doing, found: &PathLookup) -> Result<()> {
        self.check(doing, || self.path(found.folder).join(&found.name))
    }

    /// A new entry.
    pub(super) fn create(
        &mut self,
        at: &DiskHandle,
        path: &Path,
        content: InodeContent,
        mode: u32,
    ) -> Result<(u64, PendingNotification)> {
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
        let now = InodeVersion::new(content, mode, self.time());
        let above = Some((found.folder, found.name.clone()));
        let file_system = self.nodes[&found.folder].file_system;
        self.nodes.insert(node, Inode { now, synced: None, above, file_system });
        self.dirty.insert(node);
        self.change_entries(found.folder)?.insert(found.name.clone(), node);
        Ok((node, (found.folder, appeared, found.name)))
    }

    pub(super) fn is_linked(&self, node: u64) -> bool {
        node == ROOT || self.above(node).is_some()
    }

    pub(super) fn remove(
        &mut self,
        at: &DiskHandle,
        path: &Path,
        is_folder: bool,
    ) -> Result<(u64, PendingNotification)> {
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

    pub(super) fn save(&mut self, node: u64) {
        let node = self.nodes.get_mut(&node).unwrap();
        node.synced = Some(node.now.clone());
    }

    /// Commits the journal: all names, and all attributes; not the bytes of files.
    pub(super) fn commit(&mut self) {
        for node in std::mem::take(&mut self.dirty) {
            let Some(node) = self.nodes.get_mut(&node) else { continue };
            let content = match (&node.now.content, &node.synced) {
                (InodeContent::File(_), None) => InodeContent::File(Arc::default()),
                (InodeContent::File(_), Some(synced)) => synced.content.clone(),
                (content, _) => content.clone(),
            };
            node.synced = Some(InodeVersion { content, ..node.now.clone() });
        }
    }

    /// Commits the journal; of the unsynced data of each file, a part is there.
    pub(super) fn tear(&mut self, number: u64) {
        self.commit();
        let mut number = number | 1;
        for node in self.nodes.values_mut() {
            let (InodeContent::File(data), Some(synced)) = (&node.now.content, &mut node.synced) else { continue };
            let InodeContent::File(before) = &synced.content else { continue };
            if before == data {
                continue;
            }
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            match number % 4 {
                0 => {}
                1 => synced.content = InodeContent::File(Arc::new(data[..data.len() / 2].to_vec())),
                2 => synced.content = InodeContent::File(Arc::new(vec![0; data.len()])),
                _ => synced.content = InodeContent::File(Arc::clone(data)),
            }
        }
    }

    pub(super) fn stat(&self, node: u64) -> Result<Stat> {
        let version = self.version(node)?;
        let (kind, size) = match &version.content {
            InodeContent::File(data) => (FileKind::File, data.len()),
            InodeContent::Folder(_) => (FileKind::Folder, 4_096),
            InodeContent::Link(target) => (FileKind::Link, target.as_os_str().len()),
            InodeContent::Device => (FileKind::NullDevice, 0),
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

    pub(super) fn set_owner(&mut self, node: u64, owner: Owner) -> Result<()> {
        self.check_node(Doing::SetAttributes, node)?;
        let version = self.change(node)?;
        version.uid = owner.uid.unwrap_or(version.uid);
        version.gid = owner.gid.unwrap_or(version.gid);
        Ok(())
    }
}
