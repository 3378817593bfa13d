//! The time of a coordinator's term.
//!
//! Owns what a jump of the wall clock counts as. Holds, deadlines and time limits are spans: a wall clock that jumps ahead
//! would end them all at once, and one that is set back would make what has long been ready look new. Within a term the time
//! goes as the steady clock does, which stands while the machine sleeps. Only windows follow the wall clock.

use crate::core::time::Span;
use crate::core::time::Timestamp;

#[derive(Clone, Copy, Debug, Default)]
pub struct TermClock {
    /// By how much the wall clock was ahead of the steady one when the term began, in milliseconds.
    lead: Option<i64>,
}

impl TermClock {
    /// The time of the term, and how far the wall clock is ahead of it; negative: behind. `steady`: what the steady clock shows.
    pub fn read(&mut self, steady: Span, wall: Timestamp) -> (Timestamp, Span) {
        let lead = *self.lead.get_or_insert(wall.as_millis() - steady.as_millis());
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
    fn within_a_term_no_jump_of_the_wall_clock_is_followed() {
        let mut clock = TermClock::default();
        for (steady, wall, now) in [
            (5, 1_000, 1_000),
            (15, 1_010, 1_010),
            // It jumps ahead by an hour, as of a machine that slept.
            (16, 3_601_011, 1_011),
            (26, 3_601_021, 1_021),
            // It is right again, and a little behind.
            (36, 1_031, 1_031),
            (46, 1_039, 1_041),
            // It is set back.
            (66, 500, 1_061),
            (76, 1_071, 1_071),
        ] {
            let (read, ahead) = clock.read(ms(steady), at(wall));
            assert_eq!((read, read + ahead), (at(now), at(wall)), "{steady}");
        }
        assert_eq!(TermClock::default().read(ms(76), at(500)).0, at(500), "of another term");
    }
}
