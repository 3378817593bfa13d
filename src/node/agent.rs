//! The agent of one node: one loop that observes, decides, executes and reports.
//!
//! ```text
//! Inputs::collect ─> Observation ─┐
//!                                 ├─> decide() ─> Decision ─> Executor ─> EffectOutcome
//!                    AgentState ──┘       │                        │
//!                         ^               └─> Requests, after the effects; replies come with the next Observation
//!                         └──────────── AgentState::commit <───────┘
//!                    Reporter: status, events, metrics and the systemd line, from all of them
//! ```
//!
//! Owns the agent's life. Events only wake the loop; each pass looks at everything.

mod answers;
mod boot;
mod concerns;
mod configured;
mod daemon_event;
mod decide;
mod decision;
mod definitions;
mod ending;
mod error;
mod evidence;
mod executor;
mod failing;
mod failure;
mod floor;
mod former_names;
#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod gates;
mod inputs;
mod inputs_on_disk;
mod kubelet_file;
mod last_pass;
mod leaving;
mod log;
mod node_writes;
mod noted_state;
mod objects;
mod observation;
mod observed_folders;
mod observed_state;
pub mod offline;
mod orphans;
mod outcome;
mod planning;
mod quiet;
mod recorder;
mod records;
mod release;
mod reload;
mod remembered_files;
mod remembered_inputs;
mod render_cache;
pub mod replay;
mod report;
mod requests;
mod rollback_data;
mod runtime_pods;
mod sealing;
mod signals;
#[cfg(feature = "simulation")]
pub mod simulated;
mod start;
mod state;
mod teardown;
mod versioned_objects;
mod wake;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::config::Config;
use crate::core::status::StatusReport;
use crate::node::api::Api;
use crate::node::api::ApiOptions;
use crate::node::fsx::DiskHandle;
use crate::node::notify::ReadyGuard;
use crate::node::socket;
use crate::node::socket::SocketOperation;
use crate::node::socket::SocketRequest;

use decision::Decision;
use executor::Executor;
use inputs::Inputs;
use last_pass::LastPass;
use observation::Observation;
use outcome::EffectOutcome;
use recorder::Recorder;
use reload::Reread;
use render_cache::RenderCache;
use report::ReportInputs;
use report::Reporter;
use requests::Requests;
use signals::SignalCommand;
use signals::Signals;
use state::AgentState;
use state::Goal;
use wake::Callers;
use wake::ClockReading;
use wake::Until;
use wake::Wake;

pub use configured::policy;
pub use configured::render_options;
pub use error::AgentError;
pub use executor::gates::open_gates;
pub use reload::Ended;
pub use reload::block_sighup;
pub use reload::kept_node_name;
pub use teardown::Leftover;
pub use teardown::Teardown;

/// How long events that wait for others are sent when the agent ends.
const FLUSH: Duration = Duration::from_secs(1);

/// The agent of one node.
pub struct Agent {
    config: Config,
    inputs: Inputs,
    state: AgentState,
    render_cache: RenderCache,
    executor: Executor,
    requests: Requests,
    reporter: Reporter,
    last: LastPass,
}

impl Agent {
    /// Runs until a signal asks it to stop, or it has to start over with another configuration. Pods on the node keep
    /// running. `file` is where the configuration is read from again, as [`crate::config::load`] takes it.
    ///
    /// # Errors
    /// When the agent cannot work at all: another one has the state folder, or the socket cannot be made.
    pub async fn run(mut self, ready: ReadyGuard, file: Option<&Path>) -> Result<Ended, AgentError> {
        let (ask, asked) = mpsc::channel(8);
        let renew = Arc::default();
        tokio::spawn(socket::serve(socket::listen(&self.config.run_dir)?, ask, Arc::clone(&renew)));
        let mut callers = Callers { signals: Some(Signals::listen()?), asked: Some(asked), renew };
        reload::unblock_sighup();
        let kubeconfig = self.config.kubeconfig.as_deref().map_or_else(|| "none".into(), |k| k.display().to_string());
        tracing::info!(
            node = self.config.node_name,
            "agent running on node {}, manifests in {}, kubeconfig {kubeconfig}",
            self.config.node_name,
            self.config.manifest_dir.display()
        );
        self.reporter.start_metrics(&self.config, &mut self.state);
        self.reporter.recorder = Recorder::start(&self.config, Arc::clone(&self.executor.files));
        let mut ended = self.live(&mut callers, file, |line| ready.ready(line)).await;
        // A stop may have overtaken a reload.
        if ended == Ended::Reconfigured && callers.signals.as_mut().is_some_and(Signals::is_stop_waiting) {
            leaving::stop(&self.state, &self.last, &self.requests, self.reporter.notifier()).await;
            ended = Ended::Stopped;
        }
        tracing::info!("stopping; what runs on this node goes on running");
        Ok(ended)
    }

    /// From the first pass to the last; `ready` is called between the first and the second.
    async fn live(&mut self, callers: &mut Callers, file: Option<&Path>, ready: impl FnOnce(&str)) -> Ended {
        // The first pass is from disk alone and never waits for the API.
        self.pass().await;
        ready(&self.status_line());
        // The next pass sees changes between the scan and the start of the watch.
        self.inputs.watch_folders();
        self.connect();
        let ended = self.drive(Until::Stopped, callers, file).await;
        if ended == Ended::Stopped {
            leaving::stop(&self.state, &self.last, &self.requests, self.reporter.notifier()).await;
        }
        self.put_away().await;
        ended
    }

    /// One complete pass from what is there: with the API, if it answers within the bound. Gives what
    /// there is to say of it.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn run_once(mut self) -> Result<StatusReport, AgentError> {
        self.state.goal = Goal::Once;
        self.requests.hurry((self.config.once_timeout / 2).into());
        let bound = tokio::time::Instant::now() + self.config.once_timeout;
        self.pass().await;
        self.connect();
        self.drive(Until::NothingPending(bound), &mut Callers::default(), None).await;
        self.save_inputs();
        Ok(self.reporter.status(&self.view()))
    }

    /// Passes until `until`: the one loop of the agent.
    async fn drive(&mut self, until: Until, callers: &mut Callers, file: Option<&Path>) -> Ended {
        let (mut changed, mut took) = (self.inputs.api_changes(), Duration::ZERO);
        loop {
            let bound = until.bound();
            let is_reached = match until {
                Until::Stopped => false,
                Until::NothingPending(_) => self.last.has_nothing_pending(&self.state, self.inputs.api()),
                Until::TornDown(_) => teardown::is_done(&self.state, &self.last),
            };
            if is_reached || bound.is_some_and(|bound| tokio::time::Instant::now() >= bound) {
                return Ended::Stopped;
            }
            self.reporter.watchdog().ping();
            let wake = tokio::select! {
                biased;
                signal = wake::signal(&mut callers.signals) => Wake::Signal(signal),
                request = wake::request(&mut callers.asked) => Wake::Asked(request),
                () = wake::api_change(&mut changed) => Wake::Changed,
                () = self.inputs.woken() => Wake::Changed,
                () = self.reporter.watchdog().due() => Wake::Ping,
                () = tokio::time::sleep_until(self.last.next) => Wake::Changed,
                () = wake::bound(bound) => Wake::Changed,
            };
            match wake {
                Wake::Signal(SignalCommand::Stop) => return Ended::Stopped,
                Wake::Signal(SignalCommand::Reload) => {
                    callers.renew.notify_one();
                    if self.reload(file).await {
                        return Ended::Reconfigured;
                    }
                    self.pass().await;
                }
                Wake::Asked(SocketRequest { line, reply }) if line.request == SocketOperation::Recording => {
                    self.reporter.recorder.export(reply)
                }
                Wake::Asked(SocketRequest { line, reply }) => {
                    // A reply that is not read is not waited for.
                    let _ = reply.send(self.answer(&line).await);
                }
                Wake::Changed => {
                    wake::read_all(&mut changed, took).await;
                    took = self.pass().await;
                }
                Wake::Ping => {}
            }
            if matches!(until, Until::Stopped)
                && let Some(ended) = reload::starts_over(&self.state, &mut self.executor, &self.config)
            {
                return ended;
            }
        }
    }

    /// One pass. Infallible: what fails is reported by daemon, and tried again. Gives how long it took.
    async fn pass(&mut self) -> Duration {
        let began = Instant::now();
        let observation = self.observe().await;
        if self.last.is_at_rest && quiet::has_no_news(&observation, &self.last.observation, self.last.due) {
            self.last.next = ClockReading::now(observation.now).until(self.last.due);
            self.reporter.rested(observation.now, began.elapsed());
        } else {
            let decision = decide::checked_decide(&observation, &self.state, &self.config, &mut self.render_cache);
            self.carry_out(observation, decision, began);
        }
        began.elapsed()
    }

    /// What a pass knows: its one wait. What is worked on for the first time is marked before it is.
    async fn observe(&mut self) -> Observation {
        let inputs = self.inputs.collect(&self.state, &self.config, &mut self.executor, &mut self.requests);
        let (observation, begins) = inputs.await;
        self.executor.mark(&begins);
        observation
    }

    /// Executes a decision, keeps what came of it, sends its requests and reports.
    fn carry_out(&mut self, observation: Observation, mut decision: Decision, began: Instant) {
        let (is_at_rest, seen) = (quiet::is_at_rest(&decision), ClockReading::now(observation.now));
        let mut outcome = self.executor.execute(&decision, &observation, &self.config, self.reporter.watchdog());
        Arc::make_mut(&mut decision.plan).shrink();
        let recorded = self.reporter.recorder.news(&observation, &decision, &outcome, &self.last.plan);
        self.executor.unmark();
        self.inputs.end_work(&mut self.render_cache, &self.state);
        self.requests.send(std::mem::take(&mut decision.requests), observation.now);
        // A state folder that cannot be used or written is tried again, as what failed is.
        let has_failed = !outcome.failures.is_empty() || !outcome.problems.is_empty() || self.executor.state.is_none();
        let mut problems = std::mem::take(&mut decision.problems);
        problems.append(&mut outcome.problems);
        problems.extend(self.executor.sealing.problem().into_iter().chain(reload::kept_node_name(&self.config)));
        self.reporter.log(&decision, &outcome, self.inputs.api(), observation.now);
        let due = if has_failed { decide::after_failure(decision.due, observation.now) } else { decision.due };
        let is_at_rest = is_at_rest && !has_failed;
        let Decision { state, plan, .. } = decision;
        let before = std::mem::replace(&mut self.state, AgentState::commit(state, &plan, &outcome, observation.now));
        self.reporter.recorder.keep(before, &observation, recorded, &outcome, &self.render_cache);
        self.last = LastPass { observation, plan, outcome, problems, due, next: seen.until(due), is_at_rest };
        self.last.problems.extend(self.reporter.metrics_problem());
        self.reporter.log_problems(&self.last.problems, self.last.observation.folders.notes());
        self.reporter.passed(began.elapsed());
        self.reporter.measure(&self.view(), self.inputs.tokens(), began.elapsed());
        if self.reporter.notifier().is_active() {
            self.reporter.notifier().status(&self.status_line());
        }
    }

    /// Connects to the API server, if there is one.
    fn connect(&mut self) {
        let Some(kubeconfig) = self.config.kubeconfig.clone() else { return };
        let api = Api::start(ApiOptions {
            kubeconfig,
            node_name: self.config.node_name.clone(),
            selector: (!self.config.selector.is_empty()).then(|| self.config.selector.clone()),
            known: self.state.inputs.known(),
            namespaces_bind: !self.config.default_node_selector.is_empty(),
            policy: self.state.policy.clone(),
            daemon_sets: self.last.plan.daemons.iter().map(|daemon| daemon.key.clone()).collect(),
            running: definitions::running(&self.state.records),
        });
        api.store().had_reached(self.state.inputs.reached);
        self.inputs.connect(&api);
        self.reporter.connect(&self.config, &api);
        self.requests.connect(api);
    }

    /// Reads the configuration from `file` again, and with it everything that is read anyway: folders,
    /// and the API's objects by fresh lists. True if the agent is to end and start over.
    async fn reload(&mut self, file: Option<&Path>) -> bool {
        self.reporter.notifier().reloading();
        let before = std::mem::take(&mut self.state.unusable_configuration);
        match reload::reread(file, &self.config, Self::held_with).await {
            Reread::Another(held) => {
                held.iter().for_each(|line| tracing::warn!("{line}"));
                tracing::info!("the configuration has changed: starting over with it");
                return true;
            }
            Reread::Same(origins) => {
                self.last.is_at_rest &= self.config.origins == origins;
                self.config.origins = origins;
                tracing::info!("the configuration is the same: folders and the API's objects are read again");
            }
            Reread::Unusable(problems) => self.state.unusable_configuration = reload::refused(problems),
        }
        self.last.is_at_rest &= self.state.unusable_configuration == before;
        let is_foreign = self.state.concerns.removal_guard.is_view_foreign(self.state.inputs.cluster_uid.as_ref());
        self.inputs.reread(is_foreign);
        self.reporter.notifier().ready(&self.status_line());
        false
    }

    /// Removes every manifest of ours, waits until nothing of their pods runs any more and clears
    /// their folders; gives up waiting after `patience`.
    ///
    /// What is given up is named in [`Teardown::left`], and another teardown goes on with it.
    pub async fn teardown(mut self, patience: Duration) -> Teardown {
        self.state.tear_down();
        self.last.is_at_rest = false;
        self.pass().await;
        let found = teardown::remaining(&self.state, &self.last.plan, &self.last.outcome);
        self.connect();
        self.drive(Until::TornDown(tokio::time::Instant::now() + patience), &mut Callers::default(), None).await;
        if !self.state.unsaved.is_empty() {
            // That folders are cleared is on disk with the pass after.
            self.pass().await;
        }
        let left = teardown::remaining(&self.state, &self.last.plan, &self.last.outcome);
        let is_unread = self.last.observation.manifests.current().is_none();
        let on_node = leaving::clear_node(&self.config, &self.state, &self.last, &self.requests).await;
        let (node, problems) = (self.config.node_name.clone(), self.last.problems.clone());
        Teardown { node, found, left, on_node, problems, is_unread }
    }

    fn view(&self) -> ReportInputs<'_> {
        ReportInputs { config: &self.config, state: &self.state, last: &self.last, api: self.inputs.api() }
    }

    /// One line for systemd.
    fn status_line(&self) -> String {
        self.view().status_line()
    }

    /// Leaves all as the next agent needs it, if there is one.
    async fn put_away(&mut self) {
        // With what alone is not worth a write: how far the API server's history had come.
        self.save_inputs();
        executor::withdraw::withdraw_secrets(&mut self.executor, &self.state);
        let _ = self.executor.files.unlink(&DiskHandle::Start, &self.config.socket());
        if let Some(api) = self.inputs.api() {
            api.flush_events(FLUSH).await;
        }
    }

    /// Saves what is remembered, as of the last pass.
    fn save_inputs(&mut self) {
        let mut outcome = EffectOutcome::default();
        self.executor.save_inputs_of(&self.state, &self.last.observation, &mut outcome);
        for problem in &outcome.problems {
            tracing::warn!(object = problem.object, hint = problem.hint, "{}", problem.reason);
        }
    }
}
