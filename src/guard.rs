//! The boot guard: while a node boots and the API server's address is silent, the node refuses in
//! its stead.
//!
//! A kubelet mounts no volume before one request to the API server has failed (`reconciler.go`,
//! `updateReconstructedFromNodeStatus`); a server that swallows packets makes every daemon with a
//! volume wait half a minute. A refusal ends that wait at once.
//!
//! ```text
//!  kubeconfig ─> addresses ─> rule ─> probes ─> decide ─> rule, or none
//!   (server)     (resolve)   (table)  (probe)             (for `boot-guard-max` at most)
//! ```
//!
//! Owns a process, a unit and an nftables table of their own. Must not change anything else of the
//! node's network, must not act after the boot, and must leave nothing behind however it ends: the
//! table lives by the process's socket.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio::time::sleep_until;

use crate::config::Config;
use crate::core::render::Endpoint;
use crate::guard::boot::BootEvidence;
use crate::guard::decide::AddressProbe;
use crate::guard::decide::End;
use crate::guard::decide::Face;
use crate::guard::decide::Guard;
use crate::guard::decide::ProbeResult;
use crate::guard::table::GuardTable;
use crate::node::api;
use crate::node::notify::Notifier;

mod boot;
mod decide;
mod netlink;
mod probe;
mod server;
mod sockets;
mod table;

pub use table::TableError;

/// READY means that the rule is in place, but goes out this long after the start without any address:
/// the kubelet must not wait for a name server.
const NAMES_WITHIN: Duration = Duration::from_millis(150);
/// Probes of one address at the same time: those that wait for a late answer, and all. The young
/// ones notice at once that packets come through again.
const LATE: usize = 4;
const AT_ONCE: usize = 10;

/// Why the guard cannot work.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The kernel does not do it.
    #[error("boot guard is off: the kubelet waits for the API server as it does without it")]
    Table(#[from] TableError),
    /// The system lacks something.
    #[error("boot guard: cannot {what}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Removes the table of a guard that was killed, on a kernel which does not do so itself.
///
/// # Errors
/// The kernel's.
pub fn clean() -> Result<(), TableError> {
    GuardTable::open().map(drop)
}

/// Guards the boot until the API server has answered, the time is up, or SIGTERM. Does nothing when
/// this is no boot.
///
/// # Errors
/// The kernel has no nftables or does not let this process.
pub async fn run(config: &Config, notifier: &Notifier) -> Result<(), GuardError> {
    let (evidence, marked) = BootEvidence::gather(&config.run_dir, Path::new("/proc"));
    let off = (!config.boot_guard).then_some("boot.guard is false");
    if let Some(objection) = off.or_else(|| evidence.objection()) {
        tracing::info!("boot guard: does nothing: {objection}");
        notifier.ready(objection);
        if let Err(error) = clean() {
            tracing::debug!("{error}");
        }
        return Ok(());
    }
    if let Err(error) = marked {
        tracing::warn!("boot guard: {} cannot be marked, a later start may act: {error}", config.run_dir.display());
    }
    let stop = |kind| signal(kind).map_err(|source| GuardError::System { what: "receive signals", source });
    let (mut terminate, mut interrupt) = (stop(SignalKind::terminate())?, stop(SignalKind::interrupt())?);
    let mut shell = Shell::new(config, notifier)?;
    tokio::select! {
        result = shell.guard() => result?,
        _ = terminate.recv() => tracing::info!("boot guard: stopped"),
        _ = interrupt.recv() => tracing::info!("boot guard: stopped"),
    }
    shell.table.remove()?;
    Ok(())
}

enum Event {
    Addresses(Endpoint, BTreeSet<SocketAddr>),
    ProbeResult(AddressProbe, ProbeResult),
}

/// The guard's hands: probes, names and the table.
struct Shell<'a> {
    config: &'a Config,
    notifier: &'a Notifier,
    ready: bool,
    started: Instant,
    guard: Guard,
    table: GuardTable,
    tls: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    under_way: BTreeMap<SocketAddr, Vec<AbortHandle>>,
    events: mpsc::UnboundedSender<Event>,
    inbox: mpsc::UnboundedReceiver<Event>,
}

impl<'a> Shell<'a> {
    fn new(config: &'a Config, notifier: &'a Notifier) -> Result<Self, GuardError> {
        let tls = api::tls_that_trusts_anybody()
            .map_err(|error| GuardError::System { what: "speak TLS", source: io::Error::other(error) })?;
        let (events, inbox) = mpsc::unbounded_channel();
        Ok(Self {
            config,
            notifier,
            ready: false,
            started: Instant::now(),
            guard: Guard::new(config.boot_guard_max),
            table: GuardTable::open()?,
            tls: Arc::new(tls),
            name: None,
            under_way: BTreeMap::new(),
            events,
            inbox,
        })
    }

    async fn guard(&mut self) -> Result<(), GuardError> {
        let (files, events) = (self.config.boot_kubeconfig.clone(), self.events.clone());
        let tell = move |server, addresses| events.send(Event::Addresses(server, addresses)).is_ok();
        let names = tokio::spawn(server::follow(files, tell));
        let result = self.follow().await;
        names.abort();
        result
    }

    async fn follow(&mut self) -> Result<(), GuardError> {
        loop {
            let now = self.started.elapsed();
            if let Some(end) = self.guard.end(now) {
                match end {
                    End::Answered => {
                        tracing::info!("boot guard: the API server answers");
                        self.tell("done: the API server answers");
                    }
                    End::TimeUp => {
                        tracing::warn!("boot guard: boot-guard-max is over, nothing is refused any more");
                        self.tell("done: boot-guard-max is over");
                    }
                }
                return Ok(());
            }
            for probe in self.guard.probes(now) {
                self.probe(probe);
            }
            let late = self.started + NAMES_WITHIN;
            tokio::select! {
                Some(event) = self.inbox.recv() => self.take(event)?,
                () = sleep_until(late), if !self.ready => self.tell("knows no address yet"),
                () = sleep_until(self.started + self.guard.next()) => {}
            }
        }
    }

    /// Tells systemd what the guard does; the first time that it is ready.
    fn tell(&mut self, what: &str) {
        if self.ready {
            self.notifier.status(what);
        } else {
            self.notifier.ready(what);
        }
        self.ready = true;
    }

    fn take(&mut self, event: Event) -> Result<(), GuardError> {
        match event {
            Event::Addresses(server, addresses) => {
                self.name = ServerName::try_from(server.host).ok();
                self.guard.learn(self.started.elapsed(), &addresses);
                self.under_way.retain(|address, tasks| {
                    let named = addresses.contains(address);
                    if !named {
                        tasks.iter().for_each(AbortHandle::abort);
                    }
                    named
                });
                self.refuse()?;
            }
            Event::ProbeResult(probe, result) => {
                if let Some(face) = self.guard.observe(self.started.elapsed(), probe, result) {
                    let address = probe.address;
                    match face {
                        Face::Unreachable => tracing::warn!("boot guard: {address} has fallen silent"),
                        Face::Refusing => tracing::info!("boot guard: {address} refuses by itself"),
                        Face::Answering => tracing::info!("boot guard: {address} answers"),
                    }
                    self.refuse()?;
                }
            }
        }
        Ok(())
    }

    /// Brings the table in line with the guard's decision, and logs that.
    fn refuse(&mut self) -> Result<(), GuardError> {
        let refused = self.guard.refused();
        let new = self.table.refuse(&refused)?;
        let listed: Vec<String> = refused.iter().map(ToString::to_string).collect();
        match listed.as_slice() {
            [] => self.tell("refuses nothing: the API server does so itself, or answers"),
            listed => self.tell(&format!("refuses in the stead of {}", listed.join(", "))),
        }
        if new.is_empty() {
            return Ok(());
        }
        tracing::info!("boot guard: refusing in the stead of {}", listed.join(", "));
        if !self.table.is_owned() {
            tracing::debug!("boot guard: this kernel leaves the rule to the unit's ExecStopPost= after a crash");
        }
        match sockets::abort(&new) {
            Ok(0) => {}
            Ok(count) => tracing::info!("boot guard: {count} connections from before the rule are ended"),
            Err(error) => tracing::debug!("boot guard: connections from before the rule may wait on: {error}"),
        }
        Ok(())
    }

    fn probe(&mut self, probe: AddressProbe) {
        let Some(name) = self.name.clone() else { return };
        let (events, tls) = (self.events.clone(), Arc::clone(&self.tls));
        // The guard listens for as long as probes run.
        let report = move |result| drop(events.send(Event::ProbeResult(probe, result)));
        let task = tokio::spawn(async move {
            let socket = probe::socket(probe.address);
            probe::probe(socket, probe.address, name, tls, report).await;
        })
        .abort_handle();
        let under_way = self.under_way.entry(probe.address).or_default();
        under_way.retain(|task| !task.is_finished());
        under_way.push(task);
        if under_way.len() > AT_ONCE {
            under_way.remove(LATE).abort();
        }
    }
}
