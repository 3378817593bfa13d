//! One pass as it is recorded.
//!
//! Owns what of a decision is recorded, and what is needed to decide it again. Must not say which passes are.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde::Serializer;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::concerns::kubelet_resync::ToTouch;
use crate::node::agent::daemon_event::DaemonEvent;
use crate::node::agent::decision::Decision;
use crate::node::agent::decision::SaveInputs;
use crate::node::agent::log::Log;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::render_cache::UsedRendering;
use crate::node::agent::requests::Request;
use crate::node::agent::state::AgentState;

/// What is recorded of a decision: all of it but the state after it, which follows from the rest.
#[derive(Clone, Debug, Serialize)]
pub(in crate::node::agent) struct RecordedDecision {
    pub(super) daemons: RecordedPlan,
    /// When to look at each again, from the time of the pass: apart from the plans, which else stay the same.
    wakes_in: BTreeMap<String, Span>,
    removals_held: bool,
    save_inputs: SaveInputs,
    adopters: Vec<ObjectKey>,
    to_touch: Vec<ToTouch>,
    to_clear: BTreeSet<String>,
    pub(super) requests: Arc<Vec<Request>>,
    events: Vec<DaemonEvent>,
    problems: Vec<Problem>,
    log: Log,
    due: Timestamp,
}

/// A plan as it is recorded: each daemon's by its name.
#[derive(Clone, Debug)]
pub(super) struct RecordedPlan(pub(super) Arc<Plan>);

impl Serialize for RecordedPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let daemons: BTreeMap<String, &DaemonPlan> =
            self.0.daemons.iter().map(|daemon| (daemon.key.to_string(), daemon)).collect();
        daemons.serialize(serializer)
    }
}

impl RecordedDecision {
    /// Of `decision`, without what is only needed to write it. A plan that is without it is not copied: a recording
    /// waits in memory until it is written.
    pub(in crate::node::agent) fn of(decision: &Decision, now: Timestamp) -> Self {
        let mut plan = Arc::clone(&decision.plan);
        if plan.is_whole() {
            Arc::make_mut(&mut plan).shrink();
        }
        let wakes_in = |daemon: &DaemonPlan| Some((daemon.key.to_string(), daemon.wake_at? - now));
        Self {
            wakes_in: plan.daemons.iter().filter_map(wakes_in).collect(),
            removals_held: plan.removals_held,
            daemons: RecordedPlan(plan),
            save_inputs: decision.save_inputs,
            adopters: decision.adopters.clone(),
            to_touch: decision.to_touch.clone(),
            to_clear: decision.to_clear.clone(),
            requests: Arc::new(decision.requests.clone()),
            events: decision.events.clone(),
            problems: decision.problems.clone(),
            log: decision.log.clone(),
            due: decision.due,
        }
    }
}

/// What of the remembered inputs rests on addresses, which are others in a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::node::agent) struct InputsByAddress {
    /// Whether the fingerprint is that of what is on disk.
    saved: bool,
    but_for_boot: bool,
    /// Whose remembered DaemonSet is the API's definition itself.
    defined: Vec<ObjectKey>,
}

impl InputsByAddress {
    pub(in crate::node::agent) fn of(state: &AgentState, observation: &Observation) -> Self {
        let fingerprint = state.inputs.fingerprint(observation.tokens.fingerprint);
        let on_disk = &state.inputs_on_disk;
        let is_defined = |(key, daemon_set): &(&ObjectKey, &Arc<DaemonSet>)| {
            state.definitions.get(key).is_some_and(|defined| Arc::ptr_eq(defined, daemon_set))
        };
        Self {
            defined: state.inputs.daemon_sets.iter().filter(is_defined).map(|(key, _)| key.clone()).collect(),
            saved: on_disk.saved == fingerprint,
            but_for_boot: on_disk.saved_but_for_boot == Some(fingerprint),
        }
    }

    /// Makes the same true of a state that was read.
    pub(in crate::node::agent) fn restore(self, state: &mut AgentState, observation: &Observation) {
        for key in self.defined {
            if let Some(defined) = state.definitions.get(&key) {
                state.inputs.daemon_sets.insert(key, Arc::clone(defined));
            }
        }
        let fingerprint = state.inputs.fingerprint(observation.tokens.fingerprint);
        let on_disk = &mut state.inputs_on_disk;
        on_disk.saved = if self.saved { fingerprint } else { 0 };
        on_disk.saved_but_for_boot = self.but_for_boot.then_some(fingerprint);
    }
}

/// One pass, to be recorded.
#[derive(Debug, Serialize)]
pub(in crate::node::agent) struct RecordedPass {
    config: Arc<str>,
    /// Before the pass.
    state: AgentState,
    inputs: InputsByAddress,
    pub(super) observation: Observation,
    decision: RecordedDecision,
    outcome: EffectOutcome,
    renderings: Vec<UsedRendering>,
}

impl RecordedPass {
    /// The pass, and the digests in it of what holds no secret.
    pub(in crate::node::agent) fn new(
        config: Arc<str>,
        before: AgentState,
        observation: Observation,
        decision: RecordedDecision,
        outcome: EffectOutcome,
        renderings: Vec<UsedRendering>,
    ) -> Self {
        let inputs = InputsByAddress::of(&before, &observation);
        Self { config, state: before, inputs, observation, decision, outcome, renderings }
    }

    /// Digests of renderings that no Secret and no token is in.
    pub(super) fn open_digests(&self) -> BTreeSet<String> {
        let known = self.renderings.iter().map(UsedRendering::known);
        known.filter(|known| !known.is_secret).flat_map(|known| known.digests().collect::<Vec<_>>()).collect()
    }
}

/// What the thread is to do.
pub(super) enum RecorderJob {
    Keep(Box<RecordedPass>),
    Export(oneshot::Sender<Value>),
}
