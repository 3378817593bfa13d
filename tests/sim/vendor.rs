//! A vendor's folder, the first of the agent's: files that the owner's, of the same names, hide.
//!
//! Owns which daemons it defines, and when an agent cannot know any more that they are hidden. Must not judge.

use std::path::Path;

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;

use super::moves::Fault;
use super::node::FOLDER;
use super::node::Heal;
use super::node::Node;

/// The folder.
pub(crate) const VENDORS: &str = "/usr/lib/daemonlet/daemonsets.d";
/// The revision that its files define, which is never to run.
pub(crate) const HIDDEN: u64 = 800_000;
/// The owner's folder while it is moved away.
const ELSEWHERE: &str = "/etc/elsewhere";

impl Node {
    /// The vendor's files.
    pub(crate) fn lay_out_vendor(&mut self) {
        for daemon in self.vendored.clone() {
            let text = self.file_text(daemon, HIDDEN);
            self.as_world(|disk| disk.put(format!("{VENDORS}/d{daemon}.yaml"), text));
        }
    }

    /// The owner's folder is moved away, for so long.
    pub(crate) fn take_folder_away(&mut self, seconds: u16) {
        let is_written = self.heals.iter().any(|(_, heal)| matches!(heal, Heal::FinishWriting(_)));
        if self.is_folder_away || self.is_wiped || is_written {
            return;
        }
        self.is_folder_away = true;
        self.move_folder(FOLDER, ELSEWHERE);
        self.heal_after(seconds, Heal::Folder);
    }

    pub(crate) fn put_folder_back(&mut self) {
        self.is_folder_away = false;
        self.as_world(|disk| super::machine::remove_tree(disk, Path::new(FOLDER)));
        self.move_folder(ELSEWHERE, FOLDER);
    }

    fn move_folder(&self, from: &str, to: &str) {
        let (from, to) = (Path::new(from), Path::new(to));
        self.as_world(|disk| {
            to.parent().into_iter().for_each(|above| disk.make_folder(above));
            disk.rename(&DiskHandle::Start, from, &DiskHandle::Start, to).unwrap_or_default();
            [from, to].iter().filter_map(|path| path.parent()).for_each(|above| disk.sync_folder(above));
        });
    }

    /// Whether the folder of a daemon's file is there, and takes what is written.
    pub(crate) fn can_write(&self, daemon: usize) -> bool {
        let is_here = !self.is_wiped && !self.is_folder_away;
        let is_there = if self.is_late(daemon) { self.is_mounted } else { is_here };
        is_there && !self.faults.contains(&Fault::FolderUnreadable)
    }

    /// Whether the file of a daemon can be written: where one folder gives errors, the one that is mounted late does not.
    pub(crate) fn takes_a_file(&self, daemon: usize) -> bool {
        if self.is_late(daemon) { self.is_mounted } else { self.can_write(daemon) }
    }

    /// A vendor's file that the owner has masked is masked.
    pub(crate) fn mask_again(&self, daemon: usize) {
        if self.vendored.contains(&daemon) && self.daemons[daemon].file.is_none() {
            let path = Path::new(FOLDER).join(format!("d{daemon}.yaml"));
            self.as_world(|disk| disk.create_link(Path::new("/dev/null"), &DiskHandle::Start, &path))
                .unwrap_or_default();
        }
    }

    /// Whether each folder of the owner is where it belongs.
    pub(crate) fn has_folders(&self) -> bool {
        self.is_mounted && !self.is_wiped && !self.is_folder_away
    }

    /// A vendor's file counts because the agent does not know any more what hides it: where its instance comes from, the
    /// next agent may not know.
    pub(crate) fn start_hidden(&mut self, name: &str) {
        let forgets = self.forgets();
        let of = self.daemons.iter_mut().find(|daemon| name.ends_with(&format!("/{}", daemon.name)));
        of.into_iter().for_each(|daemon| daemon.origin_is_lost |= forgets);
    }

    /// Whether what was remembered of the owner's folders may be lost.
    pub(crate) fn may_forget_folders(&self) -> bool {
        self.forgets() || self.has_lost_state
    }
}
