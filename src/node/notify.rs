//! Notifications to systemd: ready, status, stopping, watchdog (sd_notify(3)).
//!
//! Owns the protocol and the deadline for READY. Must not fail the agent: without `NOTIFY_SOCKET` every call does
//! nothing, and a message that systemd does not accept is lost.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// READY is sent this long after the agent's start even if nothing is ready: the kubelet starts after it and must wait
/// at most 500 ms, part of which the loading takes.
pub const READY_WITHIN: Duration = Duration::from_millis(300);

/// The notification socket.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// The socket of `NOTIFY_SOCKET`; without it, none.
    pub fn from_environment() -> Self {
        let name = std::env::var("NOTIFY_SOCKET").unwrap_or_default();
        Self::to(&name).unwrap_or(Self { socket: None })
    }

    /// The socket `name`: a path, or `@` and an abstract name; an empty name is none.
    ///
    /// # Errors
    /// A name that is not a socket address.
    pub fn to(name: &str) -> io::Result<Self> {
        if name.is_empty() {
            return Ok(Self { socket: None });
        }
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A full queue must not stop the agent.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some((socket, address)) })
    }

    /// Whether there is a socket.
    pub fn is_active(&self) -> bool {
        self.socket.is_some()
    }

    /// The agent is ready; `status` is shown by `systemctl status`.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", without_breaks(status)));
    }

    /// What the agent is doing, in one line.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", without_breaks(status)));
    }

    /// The configuration is being reloaded; [`Notifier::ready`] ends that.
    pub fn reloading(&self) {
        // Newer systemd matches the answer to its request by the time (`Type=notify-reload`).
        let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let stamp = clock.map_or(String::new(), |t| {
            format!("\nMONOTONIC_USEC={}", i128::from(t.tv_sec()) * 1_000_000 + i128::from(t.tv_nsec()) / 1_000)
        });
        self.send(&format!("RELOADING=1{stamp}"));
    }

    /// The agent is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The agent is alive; to be sent more often than [`watchdog_interval`].
    pub fn watchdog(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // Nothing can be done about it, and the agent's work does not depend on it.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn without_breaks(text: &str) -> String {
    text.replace('\n', " ")
}

/// The loop's sign of life: systemd ends and restarts an agent whose loop gives none for `WatchdogSec=`.
///
/// Only the loop that does the work may ping, between two pieces of work: a separate thread would ping even while the
/// loop hangs.
#[derive(Debug)]
pub struct Watchdog {
    notifier: Arc<Notifier>,
    every: Option<Duration>,
    last: Option<Instant>,
}

impl Watchdog {
    /// Pings three times in `within`, systemd's timeout; `None`: no watchdog.
    pub fn new(notifier: Arc<Notifier>, within: Option<Duration>) -> Self {
        Self { every: within.map(|within| within / 3), last: None, notifier }
    }

    /// Pings systemd, unless it has just been pinged.
    pub fn ping(&mut self) {
        let now = Instant::now();
        let Some(every) = self.every else { return };
        if self.last.is_none_or(|last| now.duration_since(last) >= every) {
            self.notifier.watchdog();
            self.last = Some(now);
        }
    }

    /// Waits until the next ping is due; for ever without a watchdog.
    pub async fn due(&self) {
        match (self.every, self.last) {
            (Some(every), Some(last)) => tokio::time::sleep_until((last + every).into()).await,
            (Some(_), None) => {}
            (None, _) => std::future::pending().await,
        }
    }
}

/// systemd's watchdog timeout (`WatchdogSec=`), if it is set for this process.
pub fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id())
}

fn interval(usec: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != own.to_string()) {
        return None;
    }
    usec?.parse().ok().filter(|usec| *usec > 0).map(Duration::from_micros)
}

/// Sends READY once: when the agent is ready, or after the deadline.
///
/// Uses a thread of its own, because a hanging pass may block everything else. If the guard is dropped before either,
/// nothing is sent: the agent failed to start.
#[derive(Debug)]
pub struct ReadyGuard {
    shared: Arc<GuardState>,
}

#[derive(Debug)]
struct GuardState {
    notifier: Arc<Notifier>,
    done: Mutex<bool>,
    wake: Condvar,
}

impl ReadyGuard {
    /// Starts the timer: READY is sent after `within` at the latest.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(notifier: Arc<Notifier>, within: Duration) -> io::Result<Self> {
        let shared = Arc::new(GuardState { notifier, done: Mutex::new(false), wake: Condvar::new() });
        if shared.notifier.is_active() {
            let waiting = Arc::clone(&shared);
            thread::Builder::new()
                .name("ready".to_owned())
                .stack_size(64 * 1024)
                .spawn(move || waiting.wait(within))?;
        }
        Ok(Self { shared })
    }

    /// Sends READY now, unless it has been sent; then only `status`.
    pub fn ready(&self, status: &str) {
        if self.shared.finish() {
            self.shared.notifier.ready(status);
        } else {
            self.shared.notifier.status(status);
        }
    }
}

impl Drop for ReadyGuard {
    fn drop(&mut self) {
        self.shared.finish();
    }
}

impl GuardState {
    /// Marks it as sent; true the first time. Wakes the waiting thread.
    fn finish(&self) -> bool {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !*done;
        *done = true;
        self.wake.notify_all();
        first
    }

    fn wait(&self, within: Duration) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut done, _) =
            self.wake.wait_timeout_while(done, within, |done| !*done).unwrap_or_else(PoisonError::into_inner);
        if !*done {
            *done = true;
            self.notifier.ready("ready before the first pass from disk has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listening socket in `folder`, and a notifier that sends to it.
    fn listener(folder: &tempfile::TempDir) -> (UnixDatagram, Notifier) {
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (socket, Notifier::to(path.to_str().unwrap()).unwrap())
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_are_systemds() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        notifier.ready("3 daemons");
        notifier.status("two\nlines");
        notifier.reloading();
        notifier.watchdog();
        notifier.stopping();
        let received: Vec<String> = (0..5).map(|_| receive(&socket)).collect();
        let (reloading, stamp) = received[2].split_once("\nMONOTONIC_USEC=").unwrap();
        assert!(reloading == "RELOADING=1" && stamp.parse::<u64>().unwrap() > 0, "{stamp}");
        assert_eq!(received[..2], ["READY=1\nSTATUS=3 daemons", "STATUS=two lines"]);
        assert_eq!(received[3..], ["WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn an_abstract_socket_is_reached() {
        let name = format!("daemonlet-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Notifier::to(&format!("@{name}")).unwrap().stopping();
        assert_eq!(receive(&socket), "STOPPING=1");
    }

    #[test]
    fn ready_is_sent_once() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        let guard = ReadyGuard::start(Arc::new(notifier), Duration::from_secs(600)).unwrap();
        guard.ready("first");
        guard.ready("second");
        assert_eq!(receive(&socket), "READY=1\nSTATUS=first");
        assert_eq!(receive(&socket), "STATUS=second");
    }

    #[test]
    fn ready_is_sent_when_the_time_is_up_although_nobody_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        let start = Instant::now();
        let guard = ReadyGuard::start(Arc::new(notifier), Duration::from_millis(20)).unwrap();
        assert!(receive(&socket).starts_with("READY=1\n"));
        assert!(start.elapsed() >= Duration::from_millis(20));
        guard.ready("later");
        assert_eq!(receive(&socket), "STATUS=later");
    }

    #[test]
    fn a_dropped_guard_sends_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        let notifier = Arc::new(notifier);
        drop(ReadyGuard::start(Arc::clone(&notifier), Duration::from_secs(600)).unwrap());
        notifier.stopping();
        assert_eq!(receive(&socket), "STOPPING=1");
    }

    #[test]
    fn without_a_socket_nothing_happens() {
        let notifier = Notifier::to("").unwrap();
        assert!(!notifier.is_active());
        notifier.ready("no listener");
    }

    #[tokio::test]
    async fn it_beats_three_times_in_the_time_that_systemd_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        let mut watchdog = Watchdog::new(Arc::new(notifier), Some(Duration::from_millis(900)));
        let began = Instant::now();
        for _ in 0..3 {
            watchdog.due().await;
            watchdog.ping();
            watchdog.ping();
            assert_eq!(receive(&socket), "WATCHDOG=1");
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(600), "{took:?}");
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err(), "one beat a time is enough");
    }

    #[tokio::test]
    async fn it_does_not_beat_where_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, notifier) = listener(&folder);
        let mut watchdog = Watchdog::new(Arc::new(notifier), None);
        watchdog.ping();
        assert!(tokio::time::timeout(Duration::from_millis(20), watchdog.due()).await.is_err());
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err());
    }

    #[test]
    fn the_watchdog_is_for_one_process() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(interval(text("60000000"), None, 7), Some(Duration::from_secs(60)));
        assert_eq!(interval(text("60000000"), text("7"), 7), Some(Duration::from_secs(60)));
        assert_eq!(interval(text("60000000"), text("8"), 7), None);
        assert_eq!(interval(None, None, 7), None);
        assert_eq!(interval(text("0"), None, 7), None);
    }
}
