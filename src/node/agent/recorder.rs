//! The flight recorder: the last passes, each so that it can be decided again.
//!
//! ```text
//!  carry_out ──is it news?──> RecordedPass (a value) ──bounded channel──> thread: encode, deflate, keep
//! ```
//!
//! Owns which passes are recorded. A pass that decides what the one before decided costs a comparison. Everything else
//! is a thread's work: the loop hands values over and never waits; where they come too fast, a pass is missing and
//! counted. Must not record a secret: [`crate::node::recording`] takes them out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::fsx::Shared;
use crate::node::recording::redact;
use crate::node::recording::redact::DigestKey;
use crate::node::recording::table::PieceTable;

use super::decision::Decision;
use super::decision::SaveInputs;
use super::observation::Observation;
use super::outcome::EffectOutcome;
use super::render_cache::RenderCache;
use super::requests::Request;
use super::state::AgentState;

mod pass;
mod tape;

pub(super) use pass::InputsByAddress;
pub(super) use pass::RecordedDecision;
#[cfg(test)]
pub(super) use pass::RecordedPass;

use pass::RecorderJob;
use tape::Tape;

/// A pass that brings no news is recorded once in a while, so that a recording says that there was none.
const PERIOD: Span = Span::from_mins(10);
/// So many passes wait for the thread at most.
const WAITING: usize = 2;

/// The recorder as the loop has it.
pub(super) struct Recorder {
    /// `None`: nothing is recorded.
    jobs: Option<mpsc::SyncSender<RecorderJob>>,
    config: Arc<str>,
    missed: Arc<AtomicU64>,
    last_requests: Arc<Vec<Request>>,
    last_at: Timestamp,
}

impl Recorder {
    /// One that records nothing: of an agent that makes one pass, or only answers.
    pub(super) fn off() -> Self {
        Self {
            jobs: None,
            config: Arc::default(),
            missed: Arc::default(),
            last_requests: Arc::default(),
            last_at: Timestamp::MIN,
        }
    }

    /// Starts the thread that records. Without it the agent works without a recording.
    pub(super) fn start(config: &Config, files: Shared) -> Self {
        let mut recorder = Self { config: config_text(config), ..Self::off() };
        let (jobs, work) = mpsc::sync_channel(WAITING);
        let (missed, folder) = (Arc::clone(&recorder.missed), config.run_dir.clone());
        let Some(key) = DigestKey::random() else { return recorder };
        let thread = std::thread::Builder::new().name("recorder".to_owned()).stack_size(512 << 10);
        let rests_until = Instant::now();
        let tape = Tape { key, missed, folder, files, table: PieceTable::default(), rests_until };
        match thread.spawn(move || tape.work(&work)) {
            Ok(_) => recorder.jobs = Some(jobs),
            Err(error) => tracing::warn!(%error, "no recorder: passes are not recorded for a support bundle"),
        }
        recorder
    }

    /// What to record of a decision; `None`: nothing is new in it. `last`: the plan of the pass before.
    pub(super) fn news(
        &mut self,
        observation: &Observation,
        decision: &Decision,
        outcome: &EffectOutcome,
        last: &Plan,
    ) -> Option<RecordedDecision> {
        self.jobs.as_ref()?;
        let is_quiet = decision.save_inputs == SaveInputs::No
            && decision.to_touch.is_empty()
            && decision.to_clear.is_empty()
            && decision.events.is_empty()
            && decision.log.0.is_empty()
            && observation.replies.is_empty()
            && outcome.failures.is_empty()
            && decision.requests == *self.last_requests
            && is_same(&decision.plan, last);
        if is_quiet && observation.now < self.last_at + PERIOD {
            return None;
        }
        self.last_at = observation.now;
        let recorded = RecordedDecision::of(decision, observation.now);
        self.last_requests = Arc::clone(&recorded.requests);
        Some(recorded)
    }

    /// Records a pass, if there is something to record of its decision.
    pub(super) fn keep(
        &self,
        before: AgentState,
        observation: &Observation,
        decision: Option<RecordedDecision>,
        outcome: &EffectOutcome,
        renderings: &RenderCache,
    ) {
        let Some(decision) = decision else { return };
        let renderings = renderings.used();
        let config = Arc::clone(&self.config);
        let mut observation = observation.clone();
        if let Some(api) = &mut observation.api {
            // Of what is not selected a pass reads only what it plans for.
            let planned: BTreeSet<&ObjectKey> = decision.daemons.0.daemons.iter().map(|daemon| &daemon.key).collect();
            api.snapshot.retain_outlines(|key| planned.contains(key));
        }
        let pass = pass::RecordedPass::new(config, before, observation, decision, outcome.clone(), renderings);
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(RecorderJob::Keep(Box::new(pass))).is_ok());
        self.missed.fetch_add(u64::from(!sent), Ordering::Relaxed);
    }

    /// Writes the recording to a file and replies with its path; never waits.
    pub(super) fn export(&self, reply: oneshot::Sender<Value>) {
        let Some(jobs) = &self.jobs else {
            // A reply that is not read is not waited for.
            let _ = reply.send(json!({"error": "this agent has no recorder"}));
            return;
        };
        if let Err(
            mpsc::TrySendError::Full(RecorderJob::Export(reply))
            | mpsc::TrySendError::Disconnected(RecorderJob::Export(reply)),
        ) = jobs.try_send(RecorderJob::Export(reply))
        {
            let _ = reply.send(json!({"error": "the recorder is busy: try again"}));
        }
    }
}

/// Whether two plans say the same but for when to look again.
fn is_same(one: &Plan, other: &Plan) -> bool {
    let is_same = |(one, other): (&DaemonPlan, &DaemonPlan)| {
        let DaemonPlan {
            key,
            actions,
            record,
            summary,
            references,
            tokens,
            pull,
            question,
            overlays,
            overlays_digest,
            replacing,
            staging,
            // They only say when and with what to look again.
            asks_runtime: _,
            wake_at: _,
        } = one;
        *key == other.key
            && *actions == other.actions
            && *record == other.record
            && *summary == other.summary
            && *references == other.references
            && *tokens == other.tokens
            && *pull == other.pull
            && *question == other.question
            && *overlays == other.overlays
            && *overlays_digest == other.overlays_digest
            && *replacing == other.replacing
            && *staging == other.staging
    };
    one.removals_held == other.removals_held
        && one.daemons.len() == other.daemons.len()
        && one.daemons.iter().zip(&other.daemons).all(is_same)
}

/// The configuration as it is recorded.
pub(super) fn config_text(config: &Config) -> Arc<str> {
    redact::without_credentials(&config.to_toml()).into()
}

#[cfg(test)]
pub(super) mod fixture;
