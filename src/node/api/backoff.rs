//! Delays between attempts: exponential, with decorrelated jitter.
//!
//! Owns the delays only. Each is random between the shortest and three times the last one, so that many waiters spread
//! out; the stock back-off of `watcher` keeps them in step.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::time::Duration;

/// The back-off of something that fails repeatedly.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    shortest: Duration,
    longest: Duration,
    last: Duration,
}

impl Backoff {
    /// For requests, as client-go's reflector: 0.8 s to 30 s.
    pub(super) fn request() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }

    /// For connections: one attempt per agent, not one per watch, so it may be quicker. When the API server comes
    /// back, every watch resumes within this time.
    pub(super) fn connection() -> Self {
        Self::new(Duration::from_millis(300), Duration::from_secs(2))
    }

    pub(super) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, last: shortest }
    }

    /// The next delay.
    pub(super) fn next(&mut self) -> Duration {
        let ceiling = (self.last * 3).min(self.longest);
        let span = ceiling.saturating_sub(self.shortest);
        self.last = self.shortest + span.mul_f64(random());
        self.last
    }

    /// Resets to the shortest delay, after a success.
    pub(super) fn reset(&mut self) {
        self.last = self.shortest;
    }
}

/// A number in `0.0..1.0` from the standard library's per-process random hash keys.
pub(in crate::node) fn random() -> f64 {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.random();
    }
    let bits = RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_in_bounds_grow_and_start_anew() {
        let mut backoff = Backoff::request();
        let mut longest = Duration::ZERO;
        for _ in 0..200 {
            let delay = backoff.next();
            assert!((Duration::from_millis(800)..=Duration::from_secs(30)).contains(&delay), "{delay:?}");
            longest = longest.max(delay);
        }
        assert!(longest > Duration::from_secs(10), "never grew beyond {longest:?}");
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(2400));
    }

    #[test]
    fn two_waiters_do_not_stay_in_step() {
        let (mut a, mut b) = (Backoff::request(), Backoff::request());
        assert!((0..10).any(|_| a.next() != b.next()));
    }
}
