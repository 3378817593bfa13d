//! What runs on a node: one instance, and beside it the old one of a surge, or one that ends.

use daemonlet::core::time::Timestamp;

use crate::clocks::Given;

use super::DEADLINE;
use super::Node;

/// What runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) hash: String,
    /// Whether it is one that never gets ready.
    pub(crate) is_bad: bool,
    pub(crate) created: Timestamp,
    pub(crate) ready: Option<Timestamp>,
    /// Since when that is written in the API.
    pub(crate) reported_ready: Option<Timestamp>,
    /// Whether it took the place of one that was available.
    pub(crate) is_disruption: bool,
    /// Whether it is a first instance that an approval was claimed for.
    pub(crate) is_approved_install: bool,
    /// What is true of the approval by which it took the place of another.
    pub(crate) given: Option<Given>,
}

/// Another instance than the newest.
pub(super) struct Beside {
    pub(super) running: Running,
    pub(super) is_ending: bool,
}

impl Running {
    pub(super) fn new(hash: String, is_bad: bool, created: Timestamp) -> Self {
        let (ready, reported_ready, given) = (None, None, None);
        Self { hash, is_bad, created, ready, reported_ready, is_disruption: false, is_approved_install: false, given }
    }
}

impl Node {
    /// Of two instances the one stays that `target` wants, once it is available or there is no surge, and of others the
    /// oldest that is ready. What has ended is gone.
    pub(super) fn keep_one(&mut self, target: &str, surges: bool, now: Timestamp) {
        self.beside.take_if(|beside| beside.is_ending);
        let is_well = self.placed.is_ready();
        let (Some(new), Some(old)) = (&self.running, &self.beside) else { return };
        let old = &old.running;
        let serves = |one: &Running| is_well && one.ready.is_some();
        let is_hopeless = |one: &Running| one.is_bad && one.created + DEADLINE <= now;
        let ends_new = match (new.hash == target, old.hash == target) {
            (true, _) if surges && !serves(new) && !is_hopeless(old) => return,
            (_, true) if surges && !serves(old) && !is_hopeless(new) => return,
            (true, _) => false,
            (_, true) => true,
            (false, false) => serves(old) || !serves(new),
        };
        if let (Some(new), Some(old)) = (&mut self.running, &mut self.beside) {
            if ends_new {
                std::mem::swap(new, &mut old.running);
            }
            old.is_ending = true;
        }
    }

    /// All that runs, oldest first, and whether it ends.
    pub(crate) fn instances(&self) -> Vec<(&Running, bool)> {
        let beside = self.beside.iter().map(|beside| (&beside.running, beside.is_ending));
        let mut all: Vec<_> = beside.chain(self.running.iter().map(|running| (running, false))).collect();
        all.sort_by_key(|(running, _)| running.created);
        all
    }

    /// The API shows since when it is ready, or shows it no more.
    pub(super) fn note_reported(&mut self, at: Option<Timestamp>) {
        let beside = self.beside.iter_mut().map(|beside| &mut beside.running);
        for running in self.running.iter_mut().chain(beside) {
            match at {
                Some(at) if running.ready.is_some() => _ = running.reported_ready.get_or_insert(at),
                Some(_) => {}
                None => running.reported_ready = None,
            }
        }
    }

    /// Whether a surge goes on there: the old instance runs beside the new one.
    pub(crate) fn surges(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| !beside.is_ending)
    }

    /// Whether its agent has claimed a replacement that it has yet to make.
    pub(crate) fn has_claimed(&self) -> bool {
        self.replacing.is_some()
    }

    /// Whether what serves there is ready, on a Node that is.
    pub(crate) fn serves(&self) -> bool {
        let serving = self.instances().into_iter().find(|(_, is_ending)| !is_ending);
        self.placed.is_ready() && serving.is_some_and(|(running, _)| running.ready.is_some())
    }
}
