//! What is wrong with a node, and with which revision.

use daemonlet::core::time::Timestamp;

use super::Node;
use super::SEEN_AFTER;

/// What is wrong with a node for as long as it is not mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// A revision never gets ready there, and the agent says that it failed.
    Fails,
    /// A revision never gets ready there, and the agent waits for it without end.
    Waits,
    /// The agent claims a revision, and never carries the replacement out.
    Claims,
    /// A revision needs an object that does not exist: the agent says so, and claims nothing where an instance runs.
    Lacks,
}

impl Node {
    /// From now on this is wrong with it, where it takes the revision.
    pub(crate) fn ails(&mut self, ailment: Ailment, revision: &str) {
        self.mend();
        self.ailment = Some((ailment, revision.to_owned()));
    }

    /// It is mended, and its agent is to try again. Gives whether anything was wrong.
    pub(crate) fn mend(&mut self) -> bool {
        let Some((_, revision)) = self.ailment.take() else { return false };
        self.failed.take_if(|failed| *failed == revision);
        if let Some(running) = self.running.as_mut().filter(|running| running.hash == revision) {
            running.is_bad = false;
        }
        true
    }

    /// Whether a coordinator may have seen that it lacks an object when an approval was given: then it took no slot.
    pub(crate) fn may_have_lacked(&self, approved_at: Timestamp) -> bool {
        approved_at < self.lacked + SEEN_AFTER
    }

    /// What is wrong with it where it takes a revision.
    pub(super) fn ailment(&self, revision: &str) -> Option<Ailment> {
        self.ailment.as_ref().filter(|(_, of)| of == revision).map(|(ailment, _)| *ailment)
    }

    /// Whether a revision never gets ready there, which gets so elsewhere.
    pub(super) fn is_spoilt(&self, revision: &str) -> bool {
        matches!(self.ailment(revision), Some(Ailment::Fails | Ailment::Waits))
    }
}
