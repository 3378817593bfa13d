//! Which boot of the machine this is, and what its clock has been in it.
//!
//! Owns the conversion of times that were recorded in this boot before the clock was set. Must not read a clock.

use crate::core::plan::Readiness;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// A smaller difference is drift, or comes from a reading a moment later; it does not count as a clock that was set.
const SAME: Span = Span::from_secs(1);
/// At most this many former clocks are kept.
const MOST: usize = 8;

/// Which boot of the machine this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(super) struct Boot {
    /// The kernel's `boot_id`; empty where there is none, and then every boot is the same.
    pub(super) id: String,
    /// When the machine booted, by the clock as it is now.
    pub(super) at: Timestamp,
    /// How long the machine was up when the clock became what it is now.
    #[serde(default)]
    since: Span,
    /// What the clock was before, the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<EarlierClock>,
}

/// What the clock was for a while.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
struct EarlierClock {
    /// When the machine booted, by that clock.
    at: Timestamp,
    /// How long the machine was up when it began and ended.
    up: (Span, Span),
}

impl Boot {
    /// A boot with one clock.
    pub(super) fn new(id: String, at: Timestamp) -> Self {
        Self { id, at, since: Span::ZERO, earlier: Vec::new() }
    }

    /// The clock shows `now`, and the machine is up for `uptime`.
    pub(super) fn follow(&mut self, now: Timestamp, uptime: Span) {
        let at = now - uptime;
        if (at - self.at).abs() <= SAME {
            return;
        }
        self.earlier.insert(0, EarlierClock { at: self.at, up: (self.since, uptime) });
        // The clock at the boot itself is kept.
        while self.earlier.len() > MOST {
            self.earlier.remove(MOST - 1);
        }
        (self.at, self.since) = (at, uptime);
    }

    /// Takes over what an agent that did not know of `self` has seen of the clock since.
    pub(super) fn add(&mut self, later: Self) {
        if self.id != later.id {
            *self = later;
            return;
        }
        let earlier = later.earlier.iter().rev().map(|clock| (clock.at, clock.up.0));
        for (at, since) in earlier.chain([(later.at, later.since)]) {
            // It knows of no clock before its own start, when the one that is known last was still in force.
            let up = since.max(self.since);
            self.follow(at + up, up);
        }
    }

    /// How far the clock was set forward since it was as `before` says, in this boot. A suspended machine's clock goes on.
    pub(super) fn set_forward_since(&self, before: &Self) -> Span {
        match self.id.is_empty() || self.id != before.id {
            true => Span::ZERO,
            false => self.at - before.at,
        }
    }

    /// Converts a time that was recorded in this boot to the clock as it is `now`. A time that belongs to no clock of this
    /// boot stays as it is.
    pub(super) fn present(&self, time: Timestamp, now: Timestamp) -> Timestamp {
        if (self.at + self.since - SAME..=now).contains(&time) {
            return time;
        }
        let is_of = |clock: &&EarlierClock| {
            let (from, until) = clock.up;
            (clock.at + from - SAME..=clock.at + until + SAME).contains(&time)
        };
        self.earlier.iter().find(is_of).map_or(time, |clock| self.at + (time - clock.at))
    }

    /// Since when something is ready, by the clock as it is `now`.
    pub(super) fn present_readiness(&self, readiness: Readiness, now: Timestamp) -> Readiness {
        match readiness {
            Readiness::Ready { since } => Readiness::Ready { since: self.present(since, now) },
            Readiness::Steady { since } => Readiness::Steady { since: self.present(since, now) },
            Readiness::NotReady(_) | Readiness::Unknown(_) => readiness,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;

    use super::*;

    fn secs(seconds: i64) -> Span {
        Span::from_secs(seconds)
    }

    fn boot() -> Boot {
        Boot::new("b".to_owned(), at(100_000))
    }

    #[test]
    fn a_clock_that_is_set_back_takes_what_was_before_along() {
        let mut boot = boot();
        boot.follow(at(110_000), secs(10));
        assert_eq!(boot, super::tests::boot(), "it goes on");
        boot.follow(at(50_000), secs(20));
        assert_eq!(boot.at, at(30_000));
        let now = at(80_000);
        assert_eq!(boot.present(at(112_000), now), at(42_000), "12 s after the boot");
        assert_eq!(boot.present(at(60_000), now), at(60_000), "of the clock as it is");
        assert_eq!(boot.present(at(99_000 - 1), now), at(99_000 - 1), "of no clock of this boot");
        assert_eq!(boot.present(at(121_001), now), at(121_001), "to come");
    }

    #[test]
    fn what_lies_between_two_clocks_is_of_another_boot() {
        let mut boot = boot();
        boot.follow(at(9_000_000), secs(10));
        let now = at(9_010_000);
        assert_eq!(boot.at, at(8_990_000));
        assert_eq!(boot.present(at(105_000), now), at(8_995_000), "5 s after the boot");
        assert_eq!(boot.present(at(8_000_000), now), at(8_000_000), "before the boot");
        assert_eq!(boot.present(at(8_995_000), now), at(8_995_000), "no clock of this boot has shown that");
        assert!(boot.present(at(8_000_000), now) < boot.at);
    }

    #[test]
    fn what_a_later_agent_has_seen_of_the_clock_adds_to_what_is_known_of_this_boot() {
        let mut known = boot();
        known.follow(at(110_000), secs(20));
        let mut later = Boot::new("b".to_owned(), at(90_000));
        later.follow(at(500_000), secs(30));
        let mut all = known.clone();
        all.follow(at(500_000), secs(30));
        known.add(later.clone());
        assert_eq!(known, all);
        known.add(later);
        assert_eq!(known.present(at(105_000), at(510_000)), at(475_000), "5 s after the boot");
        let other = Boot::new("c".to_owned(), at(1));
        known.add(other.clone());
        assert_eq!(known, other, "of another boot nothing is said");
    }

    #[test]
    fn only_so_many_clocks_are_remembered() {
        let mut boot = boot();
        for set in 1..100 {
            boot.follow(at(100_000 * set), secs(set));
        }
        assert_eq!(boot.earlier.len(), MOST);
        assert_eq!(boot.present(at(9_800_500), at(9_900_000)), boot.at + secs(98) + Span::from_millis(500));
        assert_eq!(boot.present(at(100_500), at(9_900_000)), boot.at + Span::from_millis(500), "that of the boot is");
    }
}
