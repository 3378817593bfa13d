//! The time of a coordinator's term.
//!
//! Owns what a jump of the wall clock counts as. Holds, deadlines and time limits are spans, and a wall clock that jumps
//! ahead would end them all at once: within a term the time advances no faster than the steady clock, which stands while the
//! machine sleeps. A wall clock that is set back is followed, and stays back.

use crate::core::time::Span;
use crate::core::time::Timestamp;

#[derive(Clone, Copy, Debug, Default)]
pub struct TermClock {
    /// The least by which the wall clock has been ahead of the steady one, in milliseconds.
    lead: Option<i64>,
}

impl TermClock {
    /// The time of the term, and how far the wall clock is ahead of it. `steady`: what the steady clock shows.
    pub fn read(&mut self, steady: Span, wall: Timestamp) -> (Timestamp, Span) {
        let lead = wall.as_millis() - steady.as_millis();
        let lead = *self.lead.insert(self.lead.map_or(lead, |least| least.min(lead)));
        let now = Timestamp::from_millis(steady.as_millis() + lead);
        (now, wall - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use crate::core::time::ms;

    #[test]
    fn a_jump_ahead_is_not_followed_and_one_back_is() {
        let mut clock = TermClock::default();
        for (steady, wall, now) in [
            (5, 1_000, 1_000),
            (15, 1_010, 1_010),
            // It jumps ahead by an hour, as of a machine that slept.
            (16, 3_601_011, 1_011),
            (26, 3_601_021, 1_021),
            // It is right again, and a little behind.
            (36, 1_031, 1_031),
            (46, 1_039, 1_039),
            (56, 1_051, 1_049),
            // It is set back.
            (66, 500, 500),
            (76, 1_071, 510),
        ] {
            let (read, ahead) = clock.read(ms(steady), at(wall));
            assert_eq!((read, read + ahead), (at(now), at(wall)), "{steady}");
        }
        assert_eq!(TermClock::default().read(ms(76), at(1_071)).0, at(1_071), "of another term");
    }
}
