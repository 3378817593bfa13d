//! Files and folders that rest: two readings at least [`QUIET_PERIOD`] apart found them the same.
//!
//! Owns that comparison. Times of files are compared with each other, never with a clock; but for the first reading of a
//! boot, before which there was no other. Must not decide what follows.

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

/// What precedes the first reading of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLook {
    /// None in this boot: files older than [`QUIET_PERIOD`] rest.
    OfBoot,
    /// Readings of other processes: no file is known to rest.
    OfProcess,
    /// None, and no reading follows: the question is what would follow if all files rested.
    Only,
}

/// The results of the readings so far, by path.
#[derive(Clone, Debug, Default)]
pub struct Rests(BTreeMap<PathBuf, StampHistory>);

#[derive(Clone, Copy, Debug)]
struct StampHistory {
    stamp: Stamp,
    /// The first reading that found this stamp, and the last one.
    since: Duration,
    last: Duration,
    /// The first reading at which it did not rest, of those since it last did.
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
    /// Adds the reading of `path`, which found `stamp`.
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

    /// Ends a reading: a file that it did not find has to rest anew when it is there again.
    pub(super) fn end(&mut self, look: ScanTime) {
        self.0.retain(|_, seen| seen.last == look.steady);
    }
}

/// Whether all times of a file are away from `now`, on either side: the clock may be behind.
fn is_old(stamp: &Stamp, now: SystemTime) -> bool {
    let away = |time: SystemTime| now.duration_since(time).unwrap_or_else(|ahead| ahead.duration());
    away(stamp.modified()) >= QUIET_PERIOD && away(stamp.changed()) >= QUIET_PERIOD
}
