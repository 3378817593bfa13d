//! What rests: what was the same at two looks at least [`QUIET_PERIOD`] apart.
//!
//! Owns that comparison. Times of files are compared with each other, never with a clock; but for the first look of a
//! boot, which no other look precedes. Must not decide what follows.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use super::QUIET_PERIOD;
use crate::node::fsx::Stamp;

/// When folders are looked at.
#[derive(Clone, Copy, Debug)]
pub struct ScanTime {
    /// By the monotonic clock.
    pub steady: Duration,
    /// By the wall clock.
    pub wall: SystemTime,
    /// `None`: it is not the first of the process.
    pub first: Option<FirstLook>,
}

/// What precedes the first look of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLook {
    /// Nothing in this boot: what is older than [`QUIET_PERIOD`] rests.
    OfBoot,
    /// Those of other processes: nothing is known to rest.
    OfProcess,
    /// Nothing, and no look follows: it is asked what would follow if all rested.
    Only,
}

/// What the looks so far have shown, by path.
#[derive(Clone, Debug, Default)]
pub struct Rests(BTreeMap<PathBuf, StampHistory>);

#[derive(Clone, Copy, Debug)]
struct StampHistory {
    stamp: Stamp,
    /// The first look that showed this stamp, and the last one.
    since: Duration,
    last: Duration,
    /// The first look at which it did not rest, of those since it last did.
    restless_since: Duration,
    rests: bool,
}

/// Whether something rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// How long it must stay as it is until it rests; `None`: it rests.
    pub(super) left: Option<Duration>,
    /// How long it has been seen not to rest.
    pub(super) restless: Duration,
}

impl Rests {
    /// What the look at `path`, which showed `stamp`, adds.
    pub(super) fn look(&mut self, path: &Path, stamp: Stamp, look: ScanTime) -> Rest {
        let now = look.steady;
        let new = StampHistory { stamp, since: now, last: now, restless_since: now, rests: false };
        let mut seen = match self.0.get(path) {
            Some(seen) if seen.stamp == stamp => StampHistory { last: now, ..*seen },
            Some(seen) if !seen.rests => StampHistory { restless_since: seen.restless_since, ..new },
            Some(_) => new,
            None => match look.first {
                Some(FirstLook::OfBoot) => StampHistory { rests: is_old(&stamp, look.wall), ..new },
                Some(FirstLook::Only) => StampHistory { rests: true, ..new },
                Some(FirstLook::OfProcess) | None => new,
            },
        };
        let same = now.saturating_sub(seen.since);
        seen.rests |= same >= QUIET_PERIOD;
        self.0.insert(path.to_owned(), seen);
        let left = (!seen.rests).then(|| QUIET_PERIOD.saturating_sub(same));
        Rest { left, restless: now.saturating_sub(seen.restless_since) }
    }

    /// Ends a look: what it did not show has to rest anew when it is there again.
    pub(super) fn end(&mut self, look: ScanTime) {
        self.0.retain(|_, seen| seen.last == look.steady);
    }
}

/// Whether all times of a file are away from `now`, on either side: the clock may be behind.
fn is_old(stamp: &Stamp, now: SystemTime) -> bool {
    let away = |time: SystemTime| now.duration_since(time).unwrap_or_else(|ahead| ahead.duration());
    away(stamp.modified()) >= QUIET_PERIOD && away(stamp.changed()) >= QUIET_PERIOD
}
