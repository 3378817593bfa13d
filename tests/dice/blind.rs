//! Coordinators that may read nothing for a while, released revisions whose ControllerRevision is deleted, and rollouts by
//! upstream's rule.
//!
//! Owns these moves, which a source of their own draws, in one of three lives.

use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use super::Dice;
use super::KEY;
use super::Life;
use super::START;

/// The source of a seed, where its life has such moves.
pub(super) fn of(seed: u64) -> Option<Dice> {
    (seed % 3 == 2).then_some(Dice(!seed ^ 0xb11d))
}

/// Whether the rollouts of a seed's life are exact: one that has none of the moves of [`super::fleet`], as upstream counts
/// surges by another rule.
pub(super) fn is_exact(seed: u64) -> bool {
    seed % 12 == 5
}

impl Life {
    /// Perhaps something of these happens.
    pub(super) fn may_be_blind(&mut self) {
        if let Some(mut blind) = self.blind.take() {
            if blind.below(80) == 0 {
                self.blind_move(&mut blind);
            }
            self.blind = Some(blind);
        }
    }

    fn blind_move(&mut self, blind: &mut Dice) {
        let later = self.now + Span::from_secs(i64::try_from(1 + blind.below(100)).unwrap());
        match blind.below(3) {
            0 => {
                self.log(format!("coordinators may read nothing until {}", (later - START).as_secs_ceil()));
                self.api.blind = (self.now, later);
                self.hindered = self.hindered.max(later);
            }
            _ => {
                let released = RolloutStatus::of(&self.daemon()["status"], 0).released;
                let Some(released) = released.filter(|released| released.hash != self.wanted()) else { return };
                self.log(format!("ControllerRevision {}, the released one, is deleted", released.name));
                self.api.delete(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &released.name));
            }
        }
    }

    /// Whether coordinators that gave an approval then may have known nothing new.
    pub(super) fn was_blind(&self, approved_at: Timestamp) -> bool {
        let (since, until) = self.api.blind;
        since <= approved_at && approved_at < until + super::KNOWN_AFTER
    }
}
