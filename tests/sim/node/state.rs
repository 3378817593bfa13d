//! What is on the node's disk of the agent and its daemons, and how it is damaged.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Links;

use crate::moves::Damage;
use crate::moves::Fault;
use crate::moves::Home;
use crate::moves::OwnFile;
use crate::moves::Piece;

use super::BACK;
use super::End;
use super::MANIFESTS;
use super::Node;
use super::SEALED;
use super::SPACE;
use super::STATE;
use super::daemon::Daemon;
use super::disk::chmod;
use super::disk::give;
use super::disk::overwrite;
use super::disk::volume_path;

impl Node {
    /// Whether only its manifest says which revision of a daemon is wanted: the folder's is older than the API's,
    /// and what was remembered of that cannot be used.
    pub(super) fn needs_state(&self, daemon: usize) -> bool {
        self.is_state_open && self.daemons[daemon].home == Home::Both
    }

    /// What the API server, or a folder that cannot be read, last said is not remembered, but what it said before: that
    /// counts until it answers again.
    pub(crate) fn forget_data(&mut self) {
        let is_unreadable = self.faults.contains(&Fault::FolderUnreadable) || self.is_folder_away;
        for daemon in 0..self.daemons.len() {
            let is_lost = self.daemons[daemon].in_api() || self.is_late(daemon) || is_unreadable;
            self.daemons[daemon].data_may_go_back |= is_lost;
        }
    }

    pub(super) fn remove_data(&mut self, daemon: usize) {
        let name = format!("{SPACE}/{}", self.daemons[daemon].name);
        let Some(manifest) = self.kubelet.read(&self.disk).into_values().find(|m| m.daemon == name) else { return };
        let file = volume_path(&manifest.uid, "c").join("k");
        // What changes twice within a tick of the disk's clock shows in no time. Nobody is that quick after a boot.
        if self.steady == self.booted {
            return;
        }
        self.daemons[daemon].data_removed = Some(self.steady);
        self.as_world(|disk| disk.unlink(&DiskHandle::Start, &file)).unwrap_or_default();
    }

    pub(crate) fn state_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let disk: &dyn Disk = &*self.disk;
        for folder in [STATE.to_owned(), format!("{STATE}/daemons")] {
            for name in disk.list(Path::new(&folder)).unwrap_or_default() {
                let path = Path::new(&folder).join(name);
                if let Ok(data) = disk.load(&path, u64::MAX) {
                    files.insert(path, data);
                }
            }
        }
        files
    }

    /// A manifest, or data of a pod, becomes writable for every user, or another user's.
    pub(super) fn open_file(&mut self, daemon: usize, file: OwnFile, is_given: bool) {
        let name = self.full_name(daemon);
        // A disk that is read-only allows that to no user.
        let read_only = match file {
            OwnFile::Manifest => Fault::ManifestsReadOnly,
            OwnFile::Data => Fault::PodsReadOnly,
        };
        if self.faults.contains(&read_only) {
            return;
        }
        let Some(manifest) = self.kubelet.read(&self.disk).into_values().find(|m| m.daemon == name) else { return };
        let path = match file {
            OwnFile::Manifest => Path::new(MANIFESTS).join(manifest.file),
            OwnFile::Data => volume_path(&manifest.uid, "c").join("..data/k"),
        };
        self.as_world(|disk| if is_given { give(disk, &path) } else { chmod(disk, &path, 0o666) });
    }

    pub(super) fn chmod_state(&mut self, mode: u32) {
        if let Ok(folder) = self.disk.open_folder(&DiskHandle::Start, Path::new(STATE), Links::Follow) {
            self.as_world(|disk| disk.set_mode(&folder, mode).and_then(|()| disk.sync(&folder))).unwrap_or_default();
        }
    }

    /// Whether no agent runs, or one that cannot save its inputs, and the next one has to do without them.
    pub(super) fn lacks_inputs(&self) -> bool {
        self.inputs_damaged_at.is_some_and(|at| self.steady - at <= BACK || self.is_state_open)
    }

    /// Of what runs without its file, because the agent could not write down its end or had no time to, no record
    /// says that it had one.
    fn lose_origins(&mut self) {
        for daemon in 0..self.daemons.len() {
            let path = self.path(daemon);
            let is_away = self.as_world(|disk| (&**disk as &dyn Disk).look_at_link(&path).is_err());
            let is_folders = self.daemons[daemon].home == Home::Folder && self.daemons[daemon].file.is_none();
            if is_folders && is_away && self.manifest_of(daemon).is_some() {
                self.daemons[daemon].origin_is_lost = true;
            }
        }
    }

    pub(super) fn damage(&mut self, piece: Piece, damage: Damage) {
        let record = || {
            let disk: &dyn Disk = &*self.disk;
            let mut names = disk.list(Path::new(&format!("{STATE}/daemons"))).unwrap_or_default();
            names.sort();
            names.first().map(|name| Path::new(STATE).join("daemons").join(name))
        };
        let path = match piece {
            Piece::Inputs => Some(Path::new(STATE).join("inputs.json")),
            Piece::Floor => Some(Path::new(STATE).join("floor.json")),
            Piece::Record => record(),
            Piece::Seal => Some(Path::new(STATE).join(SEALED)),
        };
        let is_of =
            |daemon: &Daemon| path.as_ref().is_some_and(|path| path.ends_with(format!("{SPACE}_{}.json", daemon.name)));
        if self.daemons.iter().any(|daemon| daemon.is_kept_away() && is_of(daemon)) {
            return;
        }
        // Without its inputs the agent knows no cluster.
        if self.other.is_some() && piece == Piece::Inputs {
            return;
        }
        let Some(path) = path else { return };
        let disk: &dyn Disk = &*self.disk;
        let Ok(data) = disk.load(&path, u64::MAX) else { return };
        self.end = Some(End::Kill { back: BACK });
        self.has_lost_state = true;
        if piece == Piece::Inputs {
            self.forget_clock();
            self.inputs_damaged_at = Some(self.steady);
            self.lose_origins();
        }
        if piece == Piece::Seal {
            self.forget_data();
            self.allow_anew();
        }
        if piece == Piece::Record {
            self.damaged_at = self.steady;
        }
        self.as_world(|disk| match damage {
            Damage::Gone => disk.unlink(&DiskHandle::Start, &path).unwrap_or_default(),
            Damage::Empty => overwrite(disk, &path, b""),
            Damage::Zeros => overwrite(disk, &path, &vec![0; data.len()]),
            Damage::Half => overwrite(disk, &path, &data[..data.len() / 2]),
            Damage::Open => chmod(disk, &path, 0o666),
            Damage::Foreign => give(disk, &path),
            Damage::Folder => {
                disk.unlink(&DiskHandle::Start, &path).unwrap_or_default();
                disk.make_folder(&path);
            }
        });
    }
}
