//! When the first instance of a boot starts: after those that `daemonlet.dev/after` names.
//!
//! Owns the wait. An instance that has a manifest, or had one in this boot, keeps it. At a boot, before the kubelet
//! starts, such an instance waits at its gate instead: the kubelet makes its sandbox, and no container.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::StartGate;
use crate::core::record::Instance;
use crate::core::record::WrittenData;
use crate::core::render::GATE;
use crate::core::render::Missing;
use crate::core::start_order::After;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Action;
use super::Note;
use super::PassPhase;
use super::Planner;
use super::Readiness;
use super::Reason;
use super::State;
use super::instance::NewInstance;
use super::progress::Target;
use super::ready::STEADY;
use super::reason::WaitedInVain;

/// How soon it is looked again whether the others are Ready: not every runtime reports that by itself.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// The gates of a daemon's instances, before this pass and after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gate {
    Open,
    Opens(Reason),
    Closes,
    Closed,
}

impl Gate {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closes | Self::Closed)
    }
}

impl Planner<'_> {
    /// Notes what the start order needs to know, closes the gates of what waits before the kubelet starts it, and opens
    /// them at its turn.
    pub(super) fn take_turn(&mut self) {
        let this = self.plan.record.this_boot.as_ref().filter(|this| this.boot == self.context.boot);
        let was_closed = this.map(|this| this.gate_closed);
        let moments: Vec<PassPhase> = self.plan.record.live().filter(has_gate).map(|i| self.facts.moment(i)).collect();
        let is_before_kubelet = self.plan.record.live().any(|i| self.facts.moment(i) == PassPhase::BeforeKubelet);
        let may_be_closed = match was_closed {
            None => moments.contains(&PassPhase::BeforeKubelet),
            Some(was_closed) => was_closed && moments.iter().all(|moment| *moment == PassPhase::Later),
        };
        let waits = if may_be_closed { self.waits() } else { Ok(None) };
        self.gate = match (was_closed == Some(true), waits) {
            (true, Err(_)) => Gate::Closed,
            (false, Err(_)) => Gate::Closes,
            (true, Ok(_)) if !may_be_closed => Gate::Opens(Reason::AgentRestarted),
            (true, Ok(waited)) => Gate::Opens(Reason::ItsTurn(waited)),
            (false, Ok(_)) => Gate::Open,
        };
        if let (Gate::Opens(_), Some(progress)) = (&self.gate, &mut self.plan.record.progress) {
            // Its deadline counts from when its containers can start.
            progress.since = self.context.now;
        }
        if self.gate != Gate::Open {
            self.plan.record.in_boot(self.context.boot).gate_closed = self.gate.is_closed();
        }
        if self.context.turn.is_named && was_closed.is_none() && is_before_kubelet {
            self.plan.record.in_boot(self.context.boot).before_kubelet = Some(self.context.now - self.context.booted);
        }
        if !self.plan.record.instances.is_empty() {
            self.note_started();
        }
        let Some(after) = self.context.turn.after else { return };
        self.plan.summary.notes.extend(remarks(after));
        if !self.context.turn.absent.is_empty() {
            self.plan.summary.notes.push(Note::AfterAbsent(self.context.turn.absent.to_vec()));
        }
        if self.plan.record.live().any(|instance| !has_gate(&instance)) {
            self.plan.summary.notes.push(Note::NoGate);
        }
    }

    /// Moves the gates although the manifests cannot be read, and nothing else is decided: that needs none. At a boot the
    /// kubelet may be able to read them a moment later.
    pub(super) fn take_turn_unread(&mut self) {
        let is_known = self.plan.record.this_boot.as_ref().is_some_and(|this| this.boot == self.context.boot);
        match is_known {
            true => self.open_overdue(),
            false => self.take_turn(),
        }
    }

    /// Opens a gate whose time is over, or that an earlier process of this boot has left closed.
    fn open_overdue(&mut self) {
        if !self.gate.is_closed() {
            return;
        }
        let was_left = self.plan.record.live().any(|instance| self.facts.moment(instance) != PassPhase::Later);
        let reason = match self.waits() {
            _ if was_left => Some(Reason::AgentRestarted),
            Ok(waited) if !self.context.turn.awaited.is_empty() => Some(Reason::ItsTurn(waited)),
            _ => None,
        };
        if let Some(reason) = reason {
            self.gate = Gate::Opens(reason);
            self.plan.record.in_boot(self.context.boot).gate_closed = false;
            self.plan.record.progress.iter_mut().for_each(|progress| progress.since = self.context.now);
        }
    }

    /// Notes that a new instance starts, with an open gate; so does an older one beside it.
    pub(super) fn open_for_new(&mut self) {
        self.gate = Gate::Open;
        if let Some(this) = &mut self.plan.record.this_boot {
            this.gate_closed = false;
        }
        self.note_started();
    }

    /// Begins an instance in place of another at a boot, before the kubelet starts: like any other it waits for its turn,
    /// behind its gate.
    pub(super) fn begin_at_boot(&mut self, target: &Target, prepared: &NewInstance) {
        let has_gate = prepared.rendering.result.as_ref().is_ok_and(|rendered| rendered.pod.has_gate);
        let is_closed = has_gate && self.waits().is_err();
        self.begin(target, prepared, Reason::NewAtBoot);
        if !is_closed {
            return;
        }
        self.gate = Gate::Closes;
        self.plan.record.in_boot(self.context.boot).gate_closed = true;
        if let Some(new) = self.plan.record.instances.last_mut() {
            new.data = Some(WrittenData::of(&prepared.rendering, &BTreeSet::from([GATE.to_owned()])));
        }
    }

    /// The actions on gates, after the data has been written; reports for which daemons the instance waits.
    pub(super) fn move_gates(&mut self) {
        let gated =
            self.plan.record.live().filter(has_gate).map(|instance| (instance.uid.clone(), instance.pod_name.clone()));
        let actions = gated.filter_map(|(uid, pod)| match &self.gate {
            Gate::Opens(reason) => Some(Action::OpenGate { uid, pod, reason: reason.clone() }),
            Gate::Closes => Some(Action::CloseGate { uid, pod }),
            Gate::Open | Gate::Closed => None,
        });
        let actions: Vec<Action> = actions.collect();
        self.plan.actions.extend(actions);
        if self.gate.is_closed() && self.plan.record.live().next().is_some() {
            self.plan.summary.ready = Some(false);
            if let Err(why) = self.waits() {
                self.say_wait(*why);
            }
        }
    }

    /// Notes that an instance has a manifest in this boot.
    pub(super) fn note_started(&mut self) {
        if self.context.turn.after.is_some() {
            let this = self.plan.record.in_boot(self.context.boot);
            this.started = true;
            if !this.gate_closed {
                this.waits_since = None;
            }
        }
    }

    /// Notes that a daemon that others wait for is Ready in this boot, or runs steadily where readiness is not reported. An
    /// earlier state of the mirror pod is no evidence of that.
    pub(super) fn note_ready(&mut self) {
        let known = self.plan.record.this_boot.as_ref().filter(|this| this.boot == self.context.boot);
        let (was_ready, was_steady) = known.map_or((false, false), |this| (this.ready, this.steady));
        let before_kubelet = known.and_then(|this| this.before_kubelet);
        if !self.context.turn.is_named || was_ready {
            return;
        }
        // Kubernetes' times have no fractions.
        let not_before = self.context.booted + before_kubelet.unwrap_or_default() - Span::from_secs(1);
        let of = |i: &Instance| (self.facts.pod_readiness(i), min_ready(i));
        let readiness: Vec<(Readiness, Span)> = self.plan.record.live().map(of).collect();
        let ready = readiness.iter().filter_map(|(readiness, _)| match readiness {
            Readiness::Ready { since } => (*since >= not_before).then_some(*since),
            Readiness::Steady { .. } | Readiness::NotReady(_) | Readiness::Unknown(_) => None,
        });
        let steady = readiness.iter().filter_map(|(readiness, min_ready)| match readiness {
            Readiness::Steady { since } => (!was_steady).then_some(*since + STEADY.max(*min_ready)),
            Readiness::Ready { .. } | Readiness::NotReady(_) | Readiness::Unknown(_) => None,
        });
        let (ready, steady) = (ready.min(), steady.min());
        if self.is_past(ready) {
            self.plan.record.in_boot(self.context.boot).ready = true;
        }
        if self.is_past(steady) {
            self.plan.record.in_boot(self.context.boot).steady = true;
        }
    }

    /// Whether that time has come; else it is looked again then.
    fn is_past(&mut self, at: Option<Timestamp>) -> bool {
        if let Some(at) = at.filter(|at| *at > self.context.now) {
            self.wake(at);
            return false;
        }
        at.is_some()
    }

    /// Why the target starts now, if it does not wait for others; else the summary says for which daemons and how long.
    pub(super) fn start_reason(&mut self) -> Option<Reason> {
        let this = self.plan.record.this_boot.as_ref();
        let has_started = this.is_some_and(|this| this.boot == self.context.boot && this.started);
        let waits = if has_started { Ok(None) } else { self.waits() };
        match waits {
            Ok(waited) => Some(Reason::NotRunning(waited)),
            Err(why) => {
                self.say_wait(*why);
                None
            }
        }
    }

    /// Whether others are waited for.
    ///
    /// # Errors
    /// They are: for whom, since when and until when. Else for whom it waited in vain, if so.
    fn waits(&mut self) -> Result<Option<WaitedInVain>, Box<Reason>> {
        let turn = self.context.turn;
        let Some(after) = turn.after.filter(|_| !turn.awaited.is_empty()) else { return Ok(None) };
        let since = *self.plan.record.in_boot(self.context.boot).waits_since.get_or_insert(self.context.now);
        let (until, names) = (since + after.timeout, turn.awaited.to_vec());
        if until <= self.context.now {
            return Ok(Some(WaitedInVain { names, timeout: after.timeout }));
        }
        self.wake(until.min(self.context.now + LOOK_AGAIN));
        Err(Box::new(Reason::AwaitsDaemons { names, since, until }))
    }

    fn say_wait(&mut self, why: Reason) {
        self.plan.summary.state = State::Waiting;
        self.plan.summary.since = self.plan.record.this_boot.as_ref().and_then(|this| this.waits_since);
        self.plan.summary.waiting_for.extend(self.context.turn.awaited.iter().map(Missing::daemon));
        self.add_reason(why);
    }
}

/// How long an instance has to be ready before it is available.
fn min_ready(instance: &Instance) -> Span {
    Span::from_secs(instance.daemon_set.as_ref().map_or(0, |daemon_set| daemon_set.min_ready_seconds).into())
}

fn has_gate(instance: &&Instance) -> bool {
    instance.daemon_set.as_ref().is_some_and(|daemon_set| daemon_set.gate == StartGate::Has)
}

/// Notes for people about the start order of one daemon.
fn remarks(after: &After) -> impl Iterator<Item = Note> {
    let circle = match after.circle.len() {
        0 => None,
        1 => Some(Note::AfterItself),
        _ => Some(Note::Circle(Arc::clone(&after.circle))),
    };
    let overruled = (!after.overruled.is_empty()).then(|| Note::Overruled(after.overruled.clone()));
    let unknown = (!after.unknown.is_empty()).then(|| Note::AfterUnknown(after.unknown.clone()));
    circle.into_iter().chain(overruled).chain(unknown)
}
