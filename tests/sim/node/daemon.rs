//! What is true of one daemon.

use std::collections::BTreeSet;

use crate::moves::Home;
use crate::overlays::Overlay;

/// What the label of a DaemonSet in the API says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Static,
    None,
    /// An unknown value: nothing changes.
    Mistyped,
}

/// What is true of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) home: Home,
    /// The revision of the API's DaemonSet.
    pub(crate) api: Option<u64>,
    pub(crate) label: Label,
    /// What was in force when the label was mistyped.
    pub(crate) held: Option<u64>,
    /// The revision that its file defines.
    pub(crate) file: Option<u64>,
    /// The revisions that its file has defined, and when it was last written.
    pub(super) of_file: BTreeSet<u64>,
    pub(super) written_at: i64,
    /// Whether its file counts though the API's DaemonSet was deleted.
    pub(crate) file_counts: bool,
    /// What its ConfigMap and its Secret hold.
    pub(crate) config: u64,
    pub(crate) secret: u64,
    pub(crate) has_config: bool,
    /// Whether its file overrides the API's.
    pub(crate) overrides: bool,
    pub(crate) is_hurt: bool,
    pub(crate) has_second: bool,
    /// So many ends of an instance are explained beyond what the revision explains.
    pub(crate) allowed: u32,
    /// What names its newest data is lost or cannot be kept.
    pub(crate) data_may_go_back: bool,
    /// When an operator removed its data: until it is noticed, that is missing.
    pub(crate) data_removed: Option<i64>,
    /// Whether it has run in this life.
    pub(crate) has_run: bool,
    pub(crate) highest: u64,
    /// Whether nothing is remembered of it, so that what the API server defines may follow another of its folder.
    pub(crate) is_on_new_disk: bool,
    /// Whether what the API server has of it is older than it was, as a restored etcd has it, and has not run since.
    pub(crate) is_restored: bool,
    pub(crate) overlay: Option<Overlay>,
    /// Whether it still ran when its file was gone and what was remembered was lost: the next agent does not know that
    /// there was one, and only a person ends it.
    pub(crate) origin_is_lost: bool,
    /// Whether the labels of the Node are those that it asks for.
    pub(crate) fits: bool,
    /// What ran of it when the configuration began to leave it out.
    pub(crate) held_by_config: Option<Option<u64>>,
}

impl Daemon {
    /// The revision that is to run; `None`: nothing of it.
    pub(crate) fn wanted(&self) -> Option<u64> {
        if !self.fits {
            return None;
        }
        if let Some(held) = self.held_by_config {
            // Of what is deleted in the API nothing is held.
            return held.filter(|_| self.home == Home::Folder || self.api.is_some() && self.label != Label::None);
        }
        let of_api = match self.label {
            Label::Static => self.api,
            Label::Mistyped => self.api.and(self.held),
            Label::None => None,
        };
        match self.home {
            Home::Api => of_api,
            Home::Folder => self.file,
            Home::Both if self.overrides => self.file,
            Home::Both => of_api.or(self.file.filter(|_| self.file_counts && self.api.is_none())),
        }
    }

    /// Whether only its record says that its file does not count.
    pub(super) fn is_kept_away(&self) -> bool {
        self.home == Home::Both && self.api.is_none() && !self.file_counts && self.file.is_some()
    }

    /// Whether a revision was its file's, which overrides nothing any more: until the agent has read that, it may start again.
    pub(crate) fn is_past(&self, revision: u64) -> bool {
        self.home == Home::Both && self.of_file.contains(&revision) && self.wanted() != Some(revision)
    }

    /// Its file defines this revision.
    pub(super) fn write(&mut self, revision: u64, now: i64) {
        (self.file, self.file_counts, self.written_at) = (Some(revision), true, now);
        self.of_file.insert(revision);
    }

    /// Whether an instance of it is there in the end.
    pub(crate) fn is_to_run(&self) -> bool {
        self.wanted().is_some() || self.origin_is_lost
    }

    /// Whether it runs, nothing of it is in doubt, and the revision that is wanted has run.
    pub(crate) fn is_settled(&self) -> bool {
        self.wanted() == Some(self.highest)
            && self.has_run
            && !self.is_hurt
            && !self.is_mistyped()
            && self.held_by_config.is_none()
    }

    pub(crate) fn is_mistyped(&self) -> bool {
        self.label == Label::Mistyped
    }

    pub(crate) fn in_folder(&self) -> bool {
        self.home != Home::Api
    }

    pub(crate) fn in_api(&self) -> bool {
        self.home != Home::Folder
    }
}
