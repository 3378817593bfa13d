//! When to retry a failed watch, and whether to report its failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::time::doubled;
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

/// When all agents of a cluster reconnect together, watches for new daemons come first. The others resume once that of the
/// DaemonSets is open, spread over [`TIMES_AS_LONG`] the time that it took, which shows how busy the API server is. They wait
/// for it no longer than [`LATEST`].
const TIMES_AS_LONG: u32 = 8;
const LEAST_SPREAD: Duration = Duration::from_millis(1_500);
const MOST_SPREAD: Duration = Duration::from_secs(20);
const LATEST: Duration = Duration::from_secs(15);

/// The order in which an agent's watches resume; clones share it.
#[derive(Clone)]
pub(in crate::node::api) struct WatchOrder {
    /// Whether the DaemonSets are watched: then over what time the others resume.
    spread: Arc<watch::Sender<Option<Duration>>>,
}

impl WatchOrder {
    pub(in crate::node::api) fn new() -> Self {
        Self { spread: Arc::new(watch::Sender::new(Some(LEAST_SPREAD))) }
    }

    /// The DaemonSets are watched, after so long; or no longer.
    fn note(&self, took: Option<Duration>) {
        let spread = took.map(|took| (took * TIMES_AS_LONG).clamp(LEAST_SPREAD, MOST_SPREAD));
        self.spread.send_if_modified(|known| {
            let is_news = known.is_some() != spread.is_some();
            *known = if is_news { spread } else { *known };
            is_news
        });
    }

    /// Waits for the turn of a watch that does not go first.
    async fn turn(&self) {
        let mut spread = self.spread.subscribe();
        let latest = LATEST.mul_f64(0.5 + random() / 2.0);
        // A second time if it was accepted and has expired.
        for _ in 0..2 {
            // Its sender lives as long as this value.
            let open = async { spread.wait_for(Option::is_some).await.ok().and_then(|spread| *spread) };
            let Ok(Some(over)) = tokio::time::timeout(latest, open).await else { return };
            tokio::time::sleep(over.mul_f64(random())).await;
            if spread.borrow().is_some() {
                return;
            }
        }
    }
}

/// A watch's place among those of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchPriority {
    /// The one of the DaemonSets: others wait for it.
    Leading,
    /// It does not wait.
    First,
    Later,
}

/// When a failed watch is tried again.
pub(super) struct Retry {
    backoff: Backoff,
    priority: WatchPriority,
    order: WatchOrder,
    /// Whether its resource version has expired since it last worked for long.
    has_expired: bool,
    /// Since when the watch works; `None` while it is being retried.
    since: Option<Instant>,
    /// Since when the connection is there over which it has not been accepted yet.
    asked: Option<Instant>,
    /// When a connection last came after waiting; for a priority watch also at the start, because the connection may
    /// have come with the server.
    linked: Option<Instant>,
    /// How often it was refused since.
    refused: u32,
    link: watch::Receiver<Link>,
}

impl Retry {
    pub(super) fn new(link: watch::Receiver<Link>, priority: WatchPriority, order: WatchOrder) -> Self {
        Self {
            backoff: Backoff::request(),
            priority,
            order,
            has_expired: false,
            since: None,
            asked: None,
            linked: (priority != WatchPriority::Later).then(Instant::now),
            refused: 0,
            link,
        }
    }

    pub(super) fn established(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        let took = self.asked.take().map_or(Duration::ZERO, |asked| asked.elapsed());
        if self.priority == WatchPriority::Leading {
            self.order.note(Some(took));
        }
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

    /// Waits before the next attempt: not after the first failure of an established watch, nor the first time that its
    /// resource version `expired`, when it lists; until there is a connection if there is none, and for its turn; else the
    /// back-off.
    pub(super) async fn pause(&mut self, expired: bool) {
        let established = self.was_established();
        self.since = None;
        if self.priority == WatchPriority::Leading {
            self.order.note(None);
        }
        if established {
            self.backoff.reset();
        }
        let lists_at_once = expired && (established || !self.has_expired);
        self.has_expired = expired || self.has_expired && !established;
        if *self.link.borrow() != Link::Up {
            // One task connects for all.
            let _ = self.link.wait_for(|link| *link == Link::Up).await;
            (self.linked, self.asked, self.refused) = (Some(Instant::now()), Some(Instant::now()), 0);
            if self.priority == WatchPriority::Later {
                self.order.turn().await;
            }
        } else if !established && !lists_at_once {
            let pause = match (self.is_settling(), self.priority != WatchPriority::Later) {
                (true, true) => doubled(AT_ONCE, self.refused, SOON).mul_f64(0.5 + random()),
                (true, false) => self.backoff.next().min(SOON.mul_f64(0.5 + random())),
                (false, _) => self.backoff.next(),
            };
            self.refused += 1;
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_first_is_tried_again_at_once_and_then_less_often() {
        let pauses: Vec<u128> = (0..5).map(|times| doubled(AT_ONCE, times, SOON).as_millis()).collect();
        assert_eq!(pauses, [300, 600, 1_200, 2_000, 2_000]);
        assert_eq!(doubled(AT_ONCE, u32::MAX, SOON), SOON);
    }

    fn retry(priority: WatchPriority, order: &WatchOrder, link: &watch::Sender<Link>) -> Retry {
        Retry::new(link.subscribe(), priority, order.clone())
    }

    fn down() -> Link {
        let failure = ApiFailure::new(FailureKind::Unreachable, "refused");
        Link::Down { failure, since: crate::core::time::Timestamp::MIN }
    }

    async fn waits(retry: &mut Retry, expired: bool) -> Duration {
        let began = Instant::now();
        retry.pause(expired).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_lost_connection_the_others_wait_for_the_watch_of_the_daemon_sets() {
        let (order, link) = (WatchOrder::new(), watch::Sender::new(down()));
        let mut leading = retry(WatchPriority::Leading, &order, &link);
        let mut later = retry(WatchPriority::Later, &order, &link);
        let lead = async {
            leading.pause(false).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            leading.established();
        };
        let connect = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            link.send_replace(Link::Up);
        };
        let ((), (), waited) = tokio::join!(lead, connect, waits(&mut later, false));
        assert!((Duration::from_secs(3)..Duration::from_secs(3 + 16)).contains(&waited), "{waited:?}");
        // It does not come.
        link.send_replace(down());
        let lead = async {
            leading.pause(false).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
        };
        let connect = async {
            // All have noticed.
            tokio::time::sleep(Duration::from_millis(1)).await;
            link.send_replace(Link::Up);
        };
        let ((), (), waited) = tokio::join!(lead, connect, waits(&mut later, false));
        assert!(waited > LATEST / 2 && waited < LATEST + Duration::from_secs(1), "{waited:?}");
    }

    #[test]
    fn the_busier_the_api_server_the_longer_the_others_take_to_resume() {
        let order = WatchOrder::new();
        let after = |millis| {
            order.note(None);
            order.note(Some(Duration::from_millis(millis)));
            // What follows is no news.
            order.note(Some(Duration::ZERO));
            (*order.spread.borrow()).map(|spread| spread.as_millis())
        };
        assert_eq!([0, 1_000, 60_000].map(after), [Some(1_500), Some(8_000), Some(20_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_expired_is_listed_at_once_but_not_again_and_again() {
        let (order, link) = (WatchOrder::new(), watch::Sender::new(Link::Up));
        let mut retry = retry(WatchPriority::First, &order, &link);
        assert_eq!(waits(&mut retry, true).await, Duration::ZERO);
        retry.established();
        assert!(waits(&mut retry, true).await > Duration::ZERO);
        assert!(waits(&mut retry, true).await > Duration::ZERO);
        retry.established();
        tokio::time::sleep(ESTABLISHED).await;
        assert_eq!(waits(&mut retry, true).await, Duration::ZERO);
        assert!(waits(&mut retry, true).await > Duration::ZERO);
    }
}
