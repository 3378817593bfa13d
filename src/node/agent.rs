//! The loop: one task that fetches, plans, applies and reports, level-triggered.
//!
//! Owns the agent's life. Events only wake it; each pass looks at everything there is. Must not
//! decide: plans come from `crate::core`.

mod acceptance;
mod apply;
mod confirm;
mod coordination;
mod crash_diagnosis;
mod definitions;
mod drain;
mod dry_run;
mod evidence;
mod facts;
mod failing;
mod folder;
mod forget;
#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod history;
mod images;
mod inbox;
mod keep;
mod kubelet_resync;
mod manifests_lost_at_boot;
mod metering;
mod mirror;
mod mirror_pod_deletions;
mod objects;
mod offline;
mod orders;
mod orphans;
mod owners;
mod pass;
mod planning;
mod pod_status_source;
mod preempted;
mod reload;
mod remembered_inputs;
mod render_cache;
mod report;
mod restart;
mod retry;
mod rollback_data;
mod sealing;
mod setup;
mod signals;
mod stock;
mod stuck_sandboxes;
mod volume_check_schedule;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::watch;

use crate::clock::now;
use crate::config::Config;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::policy::Policy;
use crate::core::sources::Confirmation;
use crate::core::status::Passes;
use crate::core::status::Problem;
use crate::core::status::StatusReport;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::ApiFailure;
use crate::node::api::Tokens;
use crate::node::cri::Cri;
use crate::node::enrolment::AgentIdentity;
use crate::node::fsx::Dir;
use crate::node::images::Pins;
use crate::node::images::Puller;
use crate::node::kubelet::Kubelet;
use crate::node::manifests::ManifestDir;
use crate::node::metrics::Recorder;
use crate::node::notify::Notifier;
use crate::node::notify::ReadyGuard;
use crate::node::notify::Watchdog;
use crate::node::socket;
use crate::node::socket::SocketRequest;

use acceptance::Acceptance;
use apply::Disk;
use coordination::Coordination;
use definitions::ApiDefinitions;
use dry_run::AdmissionDryRuns;
use evidence::Runtime;
use folder::Folders;
use kubelet_resync::KubeletResync;
use manifests_lost_at_boot::ManifestsLostAtBoot;
use mirror_pod_deletions::MirrorPodDeletions;
use orders::Orders;
use owners::Owners;
use pod_status_source::PodStatusSource;
use preempted::Preempted;
use remembered_inputs::RememberedInputs;
use render_cache::RenderCache;
use signals::SignalCommand;
use signals::Signals;
use stuck_sandboxes::StuckSandboxes;
use volume_check_schedule::VolumeCheckSchedule;

pub use drain::Drain;
pub use drain::Draining;
pub use drain::drain_offline;
pub use offline::answer_offline;
pub use reload::Ended;
pub use reload::block_sighup;
pub use setup::AgentError;

/// A pass is made at least this often, whatever happens.
const PERIOD: Span = Span::from_secs(60);
/// Changed inputs are saved this long after the pass that saw them; those by which what runs is changed, or could not
/// be ended, at once.
const SAVE_AFTER: Span = Span::from_secs(1);
/// The runtime is asked for readiness no more often than this while the API does not answer.
const RUNTIME_PERIOD: Span = Span::from_secs(5);
/// How long a pass waits for the runtime's answer, and for one that is overdue; later passes take it.
const RUNTIME_PATIENCE: Duration = Duration::from_millis(500);
const RUNTIME_OVERDUE: Duration = Duration::from_millis(20);
/// How long the loop rests at least after a pass in which something failed.
const FAILED_REST: Span = Span::from_secs(1);

/// A manifest folder that cannot be used or watched is looked at this often.
const UNWATCHED_PERIOD: Span = Span::from_secs(5);

/// The agent of one node.
pub struct Agent {
    config: Config,
    policy: Policy,
    started: Timestamp,
    /// The kernel's `boot_id`.
    boot: String,
    manifests_lost_at_boot: ManifestsLostAtBoot,
    disk: Disk,
    render_cache: RenderCache,
    options: render_cache::Options,
    api: Option<Api>,
    tokens: Tokens,
    definitions: ApiDefinitions,
    folders: Folders,
    cri: Option<Arc<Cri>>,
    /// The kubelet's API, where it may be asked.
    kubelet: Option<Arc<Kubelet>>,
    admission_dry_runs: AdmissionDryRuns,
    puller: Puller,
    pins: Pins,
    pod_status_source: Option<PodStatusSource>,
    runtime: Runtime,
    runtime_at: Timestamp,
    /// A question to the runtime that is still out, and when it was asked.
    runtime_asked: Option<(Timestamp, pod_status_source::Answer)>,
    api_freshness: failing::ApiFreshness,
    crash_diagnoses: crash_diagnosis::CrashDiagnoses,
    /// When the last pass began, by the wall clock and by one that nobody sets.
    last_pass: Timestamp,
    last_pass_steady: std::time::Instant,
    /// Passes made so far.
    pass_number: u64,
    remembered_inputs: RememberedInputs,
    /// Fingerprint of the inputs on disk.
    saved: u64,
    /// What it would be if they named this boot, at the start.
    saved_but_for_boot: Option<u64>,
    save_at: Option<Timestamp>,
    volume_check_schedule: VolumeCheckSchedule,
    node: NodeView,
    /// The last plan, for `status`.
    plan: Plan,
    /// Failures of the last pass, by daemon.
    failures: BTreeMap<ObjectKey, apply::Failure>,
    problems: Vec<Problem>,
    /// Problems that no pass can mend, such as a damaged checkpoint.
    startup_problems: Vec<Problem>,
    removals: Option<Removals>,
    passes: Passes,
    cluster: confirm::Cluster,
    history: history::History,
    sealing: sealing::Sealing,
    coordination: Coordination,
    identity: AgentIdentity,
    reported: report::Reported,
    patched: mirror::Patched,
    kubelet_resync: KubeletResync,
    orders: Orders,
    owners: Owners,
    reported_stock_pods: stock::ReportedStockPods,
    acceptance: Acceptance,
    mirror_pod_deletions: MirrorPodDeletions,
    stuck_sandboxes: StuckSandboxes,
    preempted: Preempted,
    /// Made to answer one question without an agent: nothing is changed.
    offline: bool,
    metrics: Option<Recorder>,
    /// Nothing is wanted here any more: what runs ends.
    draining: bool,
    notifier: Arc<Notifier>,
    watchdog: Watchdog,
    wake: Arc<Notify>,
    answers: mpsc::UnboundedSender<Answer>,
    answered: mpsc::UnboundedReceiver<Answer>,
    /// Held for the agent's life: the state folder is its own.
    lock: Option<Dir>,
}

/// Removals that wait for a second complete list.
#[derive(Clone, Copy, Debug)]
struct Removals {
    /// When a fresh list may be asked for.
    at: Timestamp,
    /// The number that the list must exceed, once it was asked for.
    asked: Option<u64>,
}

/// The answer to a GET.
struct Answer {
    /// Which cluster answered; `None` if nobody did.
    cluster_uid: Option<String>,
    /// What it said of a daemon, if it was asked about one, and about which version of it.
    daemon: Option<(ObjectKey, u64, Confirmation)>,
    /// A write of the node's NodeDaemons ended; why it failed, if it did.
    published: Option<Option<String>>,
}

impl Answer {
    /// A write of the node's NodeDaemons ended.
    fn published(written: Result<(), ApiFailure>) -> Self {
        Self { cluster_uid: None, daemon: None, published: Some(written.err().map(|failure| failure.to_string())) }
    }
}

/// Why the loop woke.
enum Wake {
    Changed,
    Asked(SocketRequest),
    Answer(Answer),
    Timer,
    WatchdogPing,
    Signal(SignalCommand),
}

impl Agent {
    /// Runs until it is told to stop, or to go on with another configuration. What runs on the node goes
    /// on running. `file` is where the configuration is read from again, as [`crate::config::load`] takes it.
    ///
    /// # Errors
    /// When the agent cannot work at all: another one has the state folder, or the socket cannot be made.
    pub async fn run(mut self, ready: ReadyGuard, file: Option<&Path>) -> Result<Ended, AgentError> {
        let (ask, mut asked) = mpsc::channel(8);
        let listener = socket::listen(&self.config.run_dir)?;
        tokio::spawn(socket::serve(listener, ask));
        let mut signals = Signals::listen()?;
        reload::listen();
        let kubeconfig = self.config.kubeconfig.as_deref().map_or_else(|| "none".into(), |k| k.display().to_string());
        tracing::info!(
            node = self.config.node_name,
            "agent running on node {}, manifests in {}, kubeconfig {kubeconfig}",
            self.config.node_name,
            self.config.manifest_dir.display()
        );
        self.start_metrics();
        // The first pass is from disk alone and never waits for the API.
        self.pass().await;
        ready.ready(&self.status_line());
        // What changed between the look and the watch is seen by the pass that this wakes.
        self.watch();
        // What runs from now on runs in this boot: what is missing at the next start was removed.
        self.save_inputs();
        self.start_api();
        let mut changed = self.api.as_ref().map(|api| api.store().changed());
        let mut ended = loop {
            self.watchdog.ping();
            let next = self.next_wake();
            let wake = tokio::select! {
                biased;
                command = signals.next() => Wake::Signal(command),
                Some(request) = asked.recv() => Wake::Asked(request),
                Some(answer) = self.answered.recv() => Wake::Answer(answer),
                () = api_change(&mut changed) => Wake::Changed,
                () = self.wake.notified() => Wake::Changed,
                () = self.watchdog.due() => Wake::WatchdogPing,
                () = sleep_until(next) => Wake::Timer,
            };
            match wake {
                Wake::Signal(SignalCommand::Stop) => break Ended::Stopped,
                Wake::WatchdogPing => continue,
                Wake::Asked(SocketRequest { request, reply }) => {
                    // Nobody waits for a reply that nobody reads.
                    let _ = reply.send(self.answer(&request));
                    continue;
                }
                Wake::Answer(answer) => self.take_answer(answer),
                Wake::Signal(SignalCommand::Reload) => {
                    if self.reload(file) {
                        break Ended::Reconfigured;
                    }
                }
                Wake::Changed | Wake::Timer => {}
            }
            self.pass().await;
            self.notifier.status(&self.status_line());
        };
        if ended == Ended::Stopped {
            self.notifier.stopping();
        }
        self.put_away().await;
        // A stop may have overtaken a reload.
        if ended == Ended::Reconfigured && signals.is_stop_waiting() {
            self.notifier.stopping();
            ended = Ended::Stopped;
        }
        tracing::info!("stopping; what runs on this node goes on running");
        Ok(ended)
    }

    /// One complete pass from what is there: with the API, if it answers within the bound. Gives what
    /// there is to say of it.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn run_once(mut self) -> Result<StatusReport, AgentError> {
        self.puller.hurry(Span::from(self.config.once_timeout) / 2);
        self.pass().await;
        if self.api_is_configured() {
            self.start_api();
        }
        if !self.is_settled() {
            let bound = tokio::time::Instant::now() + self.config.once_timeout;
            let mut changed = self.api.as_ref().map(|api| api.store().changed());
            while !self.is_settled() && tokio::time::Instant::now() < bound {
                let next = self.next_wake();
                tokio::select! {
                    () = tokio::time::sleep_until(bound) => {}
                    () = api_change(&mut changed) => {}
                    () = self.wake.notified() => {}
                    Some(answer) = self.answered.recv() => self.take_answer(answer),
                    () = sleep_until(next) => {}
                }
                self.pass().await;
            }
        }
        self.save_inputs();
        Ok(self.status())
    }

    /// Whether nothing is left that the API or a pull could still change at once.
    fn is_settled(&self) -> bool {
        let waits = |d: &crate::core::plan::DaemonPlan| {
            !d.actions.is_empty() || !d.summary.waiting_for.is_empty() || self.admission_dry_runs.is_open(&d.key)
        };
        let is_complete = |api: &Api| api.store().snapshot().is_complete() && !self.plan.daemons.iter().any(waits);
        self.api.as_ref().is_none_or(is_complete) && self.puller.open_since().next().is_none()
    }

    /// When the next pass is due though nothing happens.
    fn next_wake(&self) -> Timestamp {
        let removals = self.removals.filter(|r| r.asked.is_none()).map(|r| r.at);
        let clear = self.disk.clear_at();
        let due = [
            self.plan.wake_at(),
            self.save_at,
            removals,
            clear,
            self.definitions.ask_again_at(),
            self.folders.recheck_at(),
            self.kubelet_resync.next(),
            self.orders.next(),
            self.owners.next(),
            self.acceptance.next(),
            self.images_due(),
            self.coordination.due(),
            self.unwatched(),
            self.volume_check_schedule.next(!self.disk.written.is_empty()),
        ];
        let failed = (!self.failures.is_empty()).then(|| now() + Span::from_secs(5));
        let next = due.into_iter().flatten().chain(failed).fold(now() + PERIOD, Timestamp::min);
        // What fails at once must not be tried as fast as it fails; a pass without a manifest folder ends early, and
        // all that was due stays due.
        let works = self.failures.is_empty() && self.disk.manifests.is_some();
        if works { next } else { next.max(now() + FAILED_REST) }
    }

    /// When to look again at a manifest folder that cannot be used or watched.
    fn unwatched(&self) -> Option<Timestamp> {
        let watched = self.disk.manifests.as_ref().is_some_and(ManifestDir::is_watched);
        (!watched).then(|| now() + UNWATCHED_PERIOD)
    }

    fn take_answer(&mut self, answer: Answer) {
        self.cluster.answered(answer.cluster_uid, &mut self.remembered_inputs.cluster_uid);
        if let Some(failure) = answer.published {
            self.published(failure);
        }
        if let Some((key, about, confirmation)) = answer.daemon {
            self.definitions.answered(&key, about, confirmation, now());
        }
    }
}

async fn sleep_until(at: Timestamp) {
    tokio::time::sleep((at - now()).to_duration()).await;
}

/// Waits for the API's store to change; for ever without an API.
async fn api_change(changed: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = changed
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
