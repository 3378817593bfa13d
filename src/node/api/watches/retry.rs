//! When to retry a failed watch, and whether to report its failure.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::node::api::backoff::Backoff;
use crate::node::api::backoff::random;
use crate::node::api::connector::Link;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;

/// A watch that lived this long was established: its first failure is retried at once.
const ESTABLISHED: Duration = Duration::from_secs(5);

/// For this long after the connection is back, the server may still refuse what it will grant: an API server that has
/// just started answers before it has loaded the roles.
const SETTLING: Duration = Duration::from_secs(30);
/// Until then a watch is retried after this time at the latest; a priority watch first after [`AT_ONCE`], then each
/// time after twice as long.
const SOON: Duration = Duration::from_secs(2);
const AT_ONCE: Duration = Duration::from_millis(300);

/// When all agents of a cluster reconnect together, watches for new daemons come first. The others resume up to this
/// long after the connection.
const LATER: Duration = Duration::from_millis(1_500);

/// When a failed watch is tried again.
pub(super) struct Retry {
    backoff: Backoff,
    /// Whether it is a priority watch.
    is_first: bool,
    /// Since when the watch works; `None` while it is being retried.
    since: Option<Instant>,
    /// When a connection last came after waiting; for a priority watch also at the start, because the connection may
    /// have come with the server.
    linked: Option<Instant>,
    /// How often it was refused since.
    refused: u32,
    link: watch::Receiver<Link>,
}

impl Retry {
    pub(super) fn new(link: watch::Receiver<Link>, is_first: bool) -> Self {
        Self {
            backoff: Backoff::request(),
            is_first,
            since: None,
            linked: is_first.then(Instant::now),
            refused: 0,
            link,
        }
    }

    pub(super) fn established(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn was_established(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= ESTABLISHED)
    }

    /// Whether a failure concerns only this watch and lasts. Failures of the whole link are reported once, by the
    /// link.
    pub(super) fn is_news(&self, failure: &ApiFailure) -> bool {
        let of_link = failure.is_link() && *self.link.borrow() != Link::Up;
        failure.kind != FailureKind::Expired && !of_link && !self.was_established()
    }

    /// Whether the connection came back so recently that a refusal may be temporary.
    pub(super) fn is_settling(&self) -> bool {
        self.linked.is_some_and(|since| since.elapsed() < SETTLING)
    }

    /// Waits before the next attempt: not after the first failure of an established watch; until there is a connection
    /// if there is none, and a moment longer unless it is a priority watch; else the back-off.
    pub(super) async fn pause(&mut self) {
        let established = self.was_established();
        self.since = None;
        if established {
            self.backoff.reset();
        }
        if *self.link.borrow() != Link::Up {
            // One task connects for all.
            let _ = self.link.wait_for(|link| *link == Link::Up).await;
            (self.linked, self.refused) = (Some(Instant::now()), 0);
            if !self.is_first {
                tokio::time::sleep(LATER.mul_f64(random())).await;
            }
        } else if !established {
            let pause = match (self.is_settling(), self.is_first) {
                (true, true) => doubled(self.refused).mul_f64(0.5 + random()),
                (true, false) => self.backoff.next().min(SOON.mul_f64(0.5 + random())),
                (false, _) => self.backoff.next(),
            };
            self.refused += 1;
            tokio::time::sleep(pause).await;
        }
    }
}

/// [`AT_ONCE`], doubled that often, but at most [`SOON`].
fn doubled(times: u32) -> Duration {
    AT_ONCE.saturating_mul(1 << times.min(8)).min(SOON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_first_is_tried_again_at_once_and_then_less_often() {
        let pauses: Vec<u128> = (0..5).map(|times| doubled(times).as_millis()).collect();
        assert_eq!(pauses, [300, 600, 1_200, 2_000, 2_000]);
        assert_eq!(doubled(u32::MAX), SOON);
    }
}
