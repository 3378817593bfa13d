//! The changes of one pass for one daemon: a function of what is wanted, remembered and observed.
//!
//! Owns the order of changes: data before manifest, record before removal, the old instance gone before the new one
//! starts (unless surge is configured). Must not do I/O or read a clock; the shell executes the actions in order,
//! observes, and plans again.

mod admission;
mod bootstrap;
mod dry_run;
mod ending;
mod facts;
mod first_install;
mod hint;
mod hold;
mod image_reason;
mod instance;
mod jitter;
mod lost_data;
mod missing;
mod not_accepted;
mod note;
mod overlays;
mod permit;
mod placed;
mod ports;
mod progress;
mod ready;
mod reason;
mod reasons;
mod refresh;
mod released;
mod replace;
mod retry;
mod run;
mod set_aside;
mod summary;
#[cfg(test)]
mod tests;
mod trigger;
mod turn;
mod unseen;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::dry_run::Question;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;
use crate::core::overlays::Overlays;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::rendering::RenderResult;
use crate::core::sources::Desired;
use crate::core::start_order::StartTurn;
pub use crate::core::status::State;
use crate::core::time::Span;
use crate::core::time::Timestamp;

pub use facts::Accepted;
pub use facts::Data;
pub use facts::EndObservable;
pub use facts::Evidence;
pub use facts::Facts;
pub use facts::Fingerprints;
pub use facts::Images;
pub use facts::ManifestFact;
pub use facts::PassPhase;
pub use facts::Permission;
pub use facts::Readiness;
pub use facts::ReleasedDefinition;
pub use facts::Stock;
pub use facts::StockPod;
pub use facts::Unbound;
pub use facts::VolumesFact;
pub use facts::Withheld;
pub use hint::Hint;
pub use image_reason::ImageReason;
pub use jitter::jitter;
pub use note::Note;
pub use reason::Reason;
pub use reasons::Reasons;
pub use summary::Summary;
pub use trigger::AwaitedTrigger;
use turn::Gate;
pub use unseen::ApiGap;
pub use unseen::RuntimeGap;
pub use unseen::ShownNothing;
pub use unseen::Unobservable;
pub use unseen::Unready;
pub use unseen::Unseen;

/// How long to wait, after its manifest's removal, for an instance whose sandbox was never seen: the kubelet may have
/// been about to start it (its housekeeping period).
pub const GONE_AFTER: Span = Span::from_secs(2);

/// What is the same for every daemon of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanContext<'a> {
    pub now: Timestamp,
    pub node: &'a NodeView,
    /// Upper bound of the per-node delay of an unapproved template change.
    pub update_jitter: Span,
    /// Whether removals based only on lists are held back (`max-removals`).
    pub removals_held: bool,
    /// Which boot of the node this is.
    pub boot: &'a str,
    /// When the node booted.
    pub booted: Timestamp,
    /// The place of this daemon in the start order.
    pub turn: StartTurn<'a>,
}

/// One change. The shell executes them in order and stops at the first that fails.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub enum Action {
    /// Save the record, then remove the manifest.
    End {
        uid: String,
        /// Its pod's name.
        pod: String,
        reason: Reason,
        /// What it makes room for, and ends only if the disk takes that.
        #[serde(skip)]
        successor: Option<Arc<RenderResult>>,
    },
    /// Nothing of the instance runs any more: the rest of its folder is cleared later.
    Finish {
        uid: String,
        /// Its pod's name.
        pod: String,
    },
    /// Write the data, then the manifest, then the record.
    Start {
        /// What to write.
        rendering: Arc<RenderResult>,
        /// Why now.
        reason: Reason,
    },
    /// Update data or manifest of a live instance in place.
    Refresh {
        /// What to write.
        rendering: Arc<RenderResult>,
        /// The data differs.
        volumes: bool,
        /// The manifest differs.
        manifest: bool,
        /// Volumes that keep what they have: something that they need is missing or refused.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        kept: BTreeSet<String>,
    },
    /// Compare the data of a live instance, which an earlier process wrote, with the rendering, and write what differs.
    Verify {
        /// What to compare with.
        rendering: Arc<RenderResult>,
        /// Volumes that keep what they have.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        kept: BTreeSet<String>,
    },
    /// Take the data of the gate away, before the kubelet starts the pod.
    CloseGate {
        uid: String,
        /// Its pod's name.
        pod: String,
    },
    /// Have the kubelet try the pod again: its gate has its data.
    OpenGate {
        uid: String,
        /// Its pod's name.
        pod: String,
        /// Why now.
        reason: Reason,
    },
    /// Keep the data that the instance runs with for a roll-back; before any other action.
    Keep {
        /// The rendering that it runs with: its objects are kept.
        rendering: Arc<RenderResult>,
    },
    /// Ask the API server directly whether the daemon is gone.
    Confirm {
        /// What has to be confirmed.
        reason: Reason,
    },
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DaemonPlan {
    pub key: ObjectKey,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// The record after all actions.
    pub record: DaemonRecord,
    pub summary: Summary,
    /// The objects it needs watched.
    pub references: BTreeSet<ObjectRef>,
    /// The tokens that it needs.
    pub tokens: BTreeSet<TokenRequest>,
    /// The rendering whose images are wanted on the node before it is written.
    pub pull: Option<Arc<RenderResult>>,
    /// The dry run of a new instance's pod that must be answered before the instance is created.
    pub question: Option<Question>,
    /// The overlays that it names, as they are on this node. A recording has them with its definition.
    #[serde(skip)]
    pub overlays: Option<Arc<Overlays>>,
    /// The digest of the overlays that apply here; empty: none; `None` while that is not known.
    #[serde(skip)]
    pub overlays_digest: Option<String>,
    /// The revision whose approval is to be claimed, or to which an instance is being updated.
    pub replacing: Option<String>,
    /// The revision that replaces the instance at the next boot: its approval is claimed, or to be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// Whether the container runtime is to be asked: a replacement needs a component that can report when the old one is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asks_runtime: bool,
    /// When to look again even if nothing happens. A recording has that apart from the plan, which else stays the same.
    #[serde(serialize_with = "apart")]
    pub wake_at: Option<Timestamp>,
}

fn apart<S: serde::Serializer>(_: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_none()
}

impl DaemonPlan {
    /// The plan of a daemon of which nothing is to be done.
    pub(crate) fn new(record: DaemonRecord) -> Self {
        Self {
            key: record.key.clone(),
            actions: Vec::new(),
            record,
            summary: Summary::default(),
            references: BTreeSet::new(),
            tokens: BTreeSet::new(),
            pull: None,
            question: None,
            overlays: None,
            overlays_digest: None,
            replacing: None,
            staging: None,
            asks_runtime: false,
            wake_at: None,
        }
    }
}

/// `rendering` without what is only needed to write it: what an action only reads is the same whatever a cache holds.
fn shrunk(rendering: &Arc<RenderResult>) -> Arc<RenderResult> {
    if rendering.is_whole() { Arc::new(rendering.shrunk()) } else { Arc::clone(rendering) }
}

pub fn plan_daemon(
    desired: &Desired,
    record: &DaemonRecord,
    context: &PlanContext<'_>,
    facts: &dyn Facts,
) -> DaemonPlan {
    let mut planner = Planner::new(record, context, facts);
    if let Some(why) = facts.unreadable_manifests() {
        planner.take_turn_unread();
        planner.keep(State::Unknown, [Reason::ManifestsUnreadable(why.clone())]);
        return planner.done();
    }
    planner.finish_ended();
    planner.take_turn();
    // Whatever is known of its definition.
    planner.end_lost_manifests();
    planner.had_ended |= planner.plan.record.has_ended_to_return();
    match desired {
        Desired::Wanted { daemon_set, mode, note } => planner.wanted(daemon_set, *mode, note.as_ref()),
        Desired::Held { daemon_set, mode, why, ask } => planner.held(daemon_set, *mode, why, *ask),
        Desired::Refused { mode, errors } => planner.refused(*mode, errors),
        Desired::Left { reason, taken_away } => planner.left(reason, *taken_away),
        Desired::Gone { reason, by_list, ignore_file } => {
            planner.gone(reason, *by_list, ignore_file.as_deref());
        }
        Desired::Orphaned { ignore_file } => planner.orphaned(ignore_file.as_deref()),
        Desired::Confirm { reason } => {
            let reason = Reason::Desired(reason.clone());
            planner.keep(State::Unknown, [reason.clone(), Reason::AsksApi]);
            planner.plan.actions.push(Action::Confirm { reason });
        }
        Desired::Kept { reason } => {
            planner.order_retries();
            planner.keep(State::Unknown, [Reason::Desired(reason.clone())]);
            planner.hint_release();
        }
        Desired::SetAside { mode, reason } => planner.set_aside(*mode, reason),
        Desired::Unsure { reason } => planner.keep(State::Unknown, [Reason::Desired(reason.clone())]),
    }
    planner.done()
}

/// Collects one daemon's plan.
struct Planner<'a> {
    plan: DaemonPlan,
    context: &'a PlanContext<'a>,
    facts: &'a dyn Facts,
    /// The changes of the instances' gates.
    gate: Gate,
    /// Whether the newest revision starts because the released one cannot be had.
    passes_over_released: bool,
    /// Whether the last instance returns although the policy would not let it start.
    may_return: bool,
    /// Whether its definition is not looked at.
    is_set_aside: bool,
    /// Whether the last instance has ended to return, as far as this pass did not decide that itself.
    had_ended: bool,
}

impl<'a> Planner<'a> {
    fn new(record: &DaemonRecord, context: &'a PlanContext<'a>, facts: &'a dyn Facts) -> Self {
        let mut record = record.clone();
        record.not_after(context.now);
        let had_ended = record.has_ended_to_return();
        let is_closed = record.this_boot.as_ref().is_some_and(|this| this.boot == context.boot && this.gate_closed);
        Self {
            plan: DaemonPlan::new(record),
            context,
            facts,
            gate: if is_closed { Gate::Closed } else { Gate::Open },
            passes_over_released: false,
            may_return: false,
            is_set_aside: false,
            had_ended,
        }
    }

    fn done(mut self) -> DaemonPlan {
        self.end_without_data();
        self.judge_staged();
        self.tell_kept();
        self.move_gates();
        self.note_ready();
        self.plan.summary.shorten();
        self.plan.pull = self.plan.pull.as_ref().map(shrunk);
        self.plan
    }

    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |w| w.min(at)));
    }

    /// Keeps the instance, with its data up to date; starts nothing.
    fn keep(&mut self, state: State, reasons: impl IntoIterator<Item = Reason>) {
        let live: Vec<Instance> = self.plan.record.live().cloned().collect();
        for instance in &live {
            self.refresh(instance);
            self.show(instance);
        }
        if live.is_empty() {
            self.plan.summary.state = if self.plan.record.instances.is_empty() { state } else { State::Stopping };
        }
        if live.is_empty() || !state.is_idle() {
            self.add_reasons(reasons);
        }
    }

    fn add_reason(&mut self, reason: Reason) {
        self.add_reasons([reason]);
    }

    /// Adds the reasons before those that are known.
    fn add_reasons(&mut self, reasons: impl IntoIterator<Item = Reason>) {
        self.plan.summary.reasons.prepend(reasons);
    }
}
