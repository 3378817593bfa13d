//! The times of a record, when the clock is set.
//!
//! Owns which of a record's fields are times.

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::DaemonRecord;
use super::order::MAX_BACKOFF;
use super::phase::Phase;

impl DaemonRecord {
    /// Resets times in the future to `now`: the clock was set back, and nothing should wait until it catches up.
    pub fn not_after(&mut self, now: Timestamp) {
        for order in self.instances.iter_mut().filter_map(|i| i.restart.as_mut()) {
            let longest = (order.due - order.at).clamp(Span::ZERO, MAX_BACKOFF);
            order.due = order.due.min(now + longest);
        }
        self.each_time(|time| *time = now.min(*time));
    }

    /// Shifts every time by `by`: the clock was set forward by that much, so nothing has become older.
    pub fn shift(&mut self, by: Span) {
        self.each_time(|time| *time += by);
        for order in self.instances.iter_mut().filter_map(|i| i.restart.as_mut()) {
            order.due += by;
        }
    }

    /// Every time in the past that is remembered.
    fn each_time(&mut self, change: impl FnMut(&mut Timestamp)) {
        let mut times: Vec<&mut Timestamp> = self.ended.values_mut().collect();
        for instance in &mut self.instances {
            times.push(&mut instance.created);
            times.extend(instance.available.as_mut());
            times.extend(instance.stale.values_mut());
            times.extend(instance.restart.as_mut().map(|order| &mut order.at));
            times.extend(instance.noted.as_mut().map(|noted| &mut noted.at));
            if let Phase::Ending { since, .. } = &mut instance.phase {
                times.push(since);
            }
        }
        times.extend(self.pending_update.as_mut().map(|pending| &mut pending.since));
        times.extend(self.good.as_mut().and_then(|good| good.candidate.as_mut()).map(|data| &mut data.since));
        times.extend(self.failed.as_mut().map(|failed| &mut failed.at));
        times.extend(self.progress.as_mut().map(|progress| &mut progress.since));
        times.extend(self.answer.as_mut().map(|answer| &mut answer.at));
        times.extend(self.backoff.as_mut().map(|backoff| &mut backoff.last));
        times.extend(self.unconfirmed_since.as_mut());
        if let Some(this) = &mut self.this_boot {
            let since = [&mut this.waits_since, &mut this.awaited_since, &mut this.silent_since];
            times.extend(since.into_iter().flatten());
        }
        times.extend(self.hand_over.as_mut().and_then(|hand_over| hand_over.missing.as_mut()));
        times.into_iter().for_each(change);
    }
}
