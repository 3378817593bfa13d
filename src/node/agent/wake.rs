//! What ends the waiting of the agent's loop, and what ends the loop.
//!
//! Owns the waits only. Must not read what it waits for: the pass that follows does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::time::Timestamp;
use crate::node::socket::SocketRequest;

use super::signals::SignalCommand;
use super::signals::Signals;

/// A pass waits at least so long for what the watches have received already, and at most so long: in between as long as the
/// last pass took, so that what has come is read as fast as passes are made of it.
const UNREAD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Turns of the runtime without a change, after which nothing is unread: the connection, the watch's body and the watch
/// have had their turns.
const QUIET_TURNS: u32 = 3;
/// The loop never sleeps longer.
const LONGEST: Duration = Duration::from_secs(60);

/// When the loop ends by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Never: a signal ends it.
    Stopped,
    /// When nothing is left that the API server or a pull could still change at once, or at this time.
    NothingPending(Instant),
    /// When nothing of ours runs on the node any more, or at this time.
    TornDown(Instant),
}

/// Who may speak to the loop.
#[derive(Default)]
pub(super) struct Callers {
    pub(super) signals: Option<Signals>,
    pub(super) asked: Option<mpsc::Receiver<SocketRequest>>,
    /// Has the socket looked at.
    pub(super) renew: Arc<Notify>,
}

/// Why the loop woke.
pub(super) enum Wake {
    Changed,
    Asked(SocketRequest),
    Ping,
    Signal(SignalCommand),
}

impl Until {
    /// When the loop ends at the latest.
    pub(super) fn bound(self) -> Option<Instant> {
        match self {
            Until::Stopped => None,
            Until::NothingPending(bound) | Until::TornDown(bound) => Some(bound),
        }
    }
}

/// Waits for a signal; for ever where none is listened for.
pub(super) async fn signal(signals: &mut Option<Signals>) -> SignalCommand {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for a request of the socket whose client still waits; for ever without one.
pub(super) async fn request(asked: &mut Option<mpsc::Receiver<SocketRequest>>) -> SocketRequest {
    if let Some(asked) = asked {
        while let Some(request) = asked.recv().await {
            if !request.reply.is_closed() {
                return request;
            }
        }
    }
    std::future::pending().await
}

/// Waits for the API's store to change; for ever without an API.
pub(super) async fn api_change(changed: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = changed
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Lets the watches read what has come. Agent and watches share one thread: where changes come faster than passes are made,
/// the watches would have no more than a moment between two passes, and what they read would be older and older.
pub(super) async fn read_all(changed: &mut Option<watch::Receiver<u64>>, last_pass: Duration) {
    let Some(receiver) = changed else { return };
    let bound = Instant::now() + last_pass.clamp(UNREAD.0, UNREAD.1);
    let mut quiet = 0;
    while quiet < QUIET_TURNS && Instant::now() < bound {
        tokio::task::yield_now().await;
        let is_news = receiver.has_changed().unwrap_or(false);
        quiet = if is_news { 0 } else { quiet + 1 };
        receiver.mark_unchanged();
    }
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    wall: Timestamp,
    steady: Instant,
}

impl ClockReading {
    /// Now, when the wall clock has just shown `wall`.
    pub(super) fn now(wall: Timestamp) -> Self {
        Self { wall, steady: Instant::now() }
    }

    /// When it is `due`, [`LONGEST`] later at the latest. By the steady clock: the other one may be set at any moment.
    pub(super) fn until(self, due: Timestamp) -> Instant {
        self.steady + (due - self.wall).to_duration().min(LONGEST)
    }
}

/// Waits until `bound`; for ever without one.
pub(super) async fn bound(bound: Option<Instant>) {
    match bound {
        Some(bound) => tokio::time::sleep_until(bound).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::node::socket::SocketOperation;

    #[tokio::test]
    async fn a_request_whose_client_has_gone_is_skipped() {
        let (sender, receiver) = mpsc::channel(2);
        let (gone, waits) = (oneshot::channel(), oneshot::channel());
        drop(gone.1);
        let requests = [(SocketOperation::Plan, gone.0), (SocketOperation::Status, waits.0)];
        for (request, reply) in requests {
            sender.send(SocketRequest { line: request.into(), reply }).await.unwrap();
        }
        assert_eq!(request(&mut Some(receiver)).await.line.request, SocketOperation::Status);
    }

    /// Writes without end, a change each millisecond.
    async fn write_on(sender: watch::Sender<u64>) {
        loop {
            sender.send_modify(|number| *number += 1);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_has_come_is_read_and_counts_as_read() {
        let (sender, receiver) = watch::channel(0);
        let began = Instant::now();
        let writer = tokio::spawn(async move {
            for _ in 0..50 {
                // The turns of the connection and of the watch's body.
                for _ in 0..2 {
                    tokio::task::yield_now().await;
                }
                sender.send_modify(|number| *number += 1);
            }
            sender
        });
        let mut changed = Some(receiver);
        read_all(&mut changed, Duration::ZERO).await;
        assert!(writer.is_finished());
        let receiver = changed.unwrap();
        assert_eq!((*receiver.borrow(), receiver.has_changed().is_ok_and(|is_news| is_news)), (50, false));
        assert_eq!(began.elapsed(), Duration::ZERO, "it waits for turns, not for time");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_without_end_is_read_as_long_as_the_last_pass_took() {
        let millis = Duration::from_millis;
        for (last_pass, waits) in [(0, 100), (99, 100), (700, 700), (5_000, 5_000), (90_000, 5_000)] {
            let (sender, receiver) = watch::channel(0);
            let writer = tokio::spawn(write_on(sender));
            let began = Instant::now();
            read_all(&mut Some(receiver), millis(last_pass)).await;
            let took = began.elapsed();
            writer.abort();
            assert!((millis(waits)..millis(waits + 5)).contains(&took), "{last_pass}: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_api_or_once_its_watches_have_ended_nothing_is_waited_for() {
        let began = Instant::now();
        read_all(&mut None, LONGEST).await;
        let (_, receiver) = watch::channel(0);
        read_all(&mut Some(receiver), LONGEST).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
