//! A `bootstrap` daemon: runs until the DaemonSet controller's pod is here, and again if that pod cannot run.
//!
//! Owns the hand-over and the return. Invariant: between an instance's end and the first readiness of the stock pod,
//! either the pod or the returning instance will run.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::record::FailedHandOver;
use crate::core::record::HandOver;
use crate::core::time::Span;

use super::Data;
use super::Evidence;
use super::Hint;
use super::ImageReason;
use super::Images;
use super::Note;
use super::Planner;
use super::Reason;
use super::State;
use super::Stock;
use super::StockPod;
use super::Unbound;
use super::reason::StockMissing;

/// If nothing of a stock pod that was never Ready can run for this long, the instance returns: no API server answers and
/// nothing of it runs, the scheduler cannot bind it, or it is gone and has no successor.
pub(super) const MISSING: Span = Span::from_secs(30);

impl Planner<'_> {
    /// Whether the DaemonSet controller's pod is on this node or about to be; then plans and reports that. Otherwise the
    /// instance should run.
    pub(super) fn is_handed_over(&mut self, daemon_set: &Arc<DaemonSet>) -> bool {
        let known = self.plan.record.hand_over.take().filter(|h| h.boot == self.context.boot);
        let runs = self.plan.record.live().next().is_some();
        match self.facts.stock(daemon_set, known.as_ref()) {
            Stock::Here(pod) => self.hand_over(daemon_set, &pod, known.filter(|known| !known.is_unknown())),
            Stock::Unlisted if !runs && known.as_ref().is_none_or(HandOver::is_unknown) => {
                self.waits_for_stock(known, Reason::StockUnlisted)
            }
            Stock::Lost(_) if !runs && known.as_ref().is_some_and(HandOver::is_unknown) => {
                self.waits_for_stock(known, Reason::HandOverForgotten)
            }
            Stock::Lost(_) if !runs && known.is_none() && self.awaits_stock() => {
                self.waits_for_stock(known, Reason::StockUnconnected)
            }
            Stock::Absent if known.as_ref().is_some_and(HandOver::is_unknown) => false,
            Stock::Absent | Stock::Unlisted if runs => false,
            Stock::Absent if known.as_ref().is_some_and(|known| !known.done) => {
                known.is_some_and(|known| self.waits_for_missing(daemon_set, known, StockMissing::NotShown))
            }
            // A rollout of the DaemonSet controller does not bring the instance back.
            Stock::Absent | Stock::Unlisted => {
                let known = known.map(|known| HandOver { missing: None, ..known });
                self.stays_handed_over(daemon_set, known, Reason::HandedOver)
            }
            Stock::Lost(evidence) => !runs && self.waits_for_lost(daemon_set, known, evidence),
        }
    }

    /// Whether its first instance waits for some time for the API server to list the stock pod.
    fn awaits_stock(&mut self) -> bool {
        let until = self.facts.stock_awaited_until().filter(|_| !self.had_ended);
        until.is_some_and(|until| {
            self.wake(until);
            until > self.context.now
        })
    }

    /// Nothing starts, for `reason`; what is `known` of a hand-over stays known.
    fn waits_for_stock(&mut self, known: Option<HandOver>, reason: Reason) -> bool {
        self.plan.record.hand_over = known;
        self.plan.summary.state = State::Waiting;
        self.add_reason(reason);
        true
    }

    /// Reports a DaemonSet controller that acts on a daemon of ours.
    pub(super) fn look_for_stock(&mut self, daemon_set: &Arc<DaemonSet>) {
        self.plan.record.hand_over = None;
        self.plan.record.failed_hand_over = None;
        if daemon_set.source != Source::Api {
            return;
        }
        if let Stock::Here(pod) = self.facts.stock(daemon_set, None) {
            self.add_reason(Reason::StockPodBeside(pod.name.clone()));
            self.plan.summary.hints.push(Hint::KeepControllerAway);
            self.plan.summary.stock_pod = Some(pod.name);
        }
    }

    /// The stock pod is here. It takes over once its images are, if it is bound or the instance may be what prevents that.
    fn hand_over(&mut self, daemon_set: &Arc<DaemonSet>, pod: &StockPod, known: Option<HandOver>) -> bool {
        let done = pod.ready || known.as_ref().is_some_and(|known| known.done);
        let runs = self.plan.record.live().next().is_some();
        if let Some(unbound) = &pod.unbound
            && self.goes_on_beside(pod, unbound, runs)
        {
            return false;
        }
        if runs
            && !pod.runs
            && let Some(why) = self.lacks_images(daemon_set)
        {
            self.plan.record.hand_over = known;
            self.plan.summary.notes.push(Note::HandOverAwaitsImages { pod: pod.name.clone(), why });
            return false;
        }
        let hand_over = HandOver {
            boot: self.context.boot.to_owned(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            done,
            missing: known.and_then(|known| known.missing),
        };
        match &pod.unbound {
            Some(unbound) if !done && self.plan.record.instances.is_empty() => {
                let missing = StockMissing::Unbound(unbound.message.clone());
                let failed = FailedHandOver { boot: hand_over.boot.clone(), uid: hand_over.uid.clone() };
                let waits = self.waits_for_missing(daemon_set, hand_over, missing);
                self.plan.record.failed_hand_over = (!waits).then_some(failed);
                waits
            }
            _ => self.stays_handed_over(
                daemon_set,
                Some(HandOver { missing: None, ..hand_over }),
                Reason::StockPodHere(pod.name.clone()),
            ),
        }
    }

    /// Whether the instance goes on although a stock pod waits for this node: its end would not help that pod, or has not.
    fn goes_on_beside(&mut self, pod: &StockPod, unbound: &Unbound, runs: bool) -> bool {
        let failed = self.plan.record.failed_hand_over.as_ref();
        let has_failed = failed.is_some_and(|failed| failed.uid == pod.uid && failed.boot == self.context.boot);
        let goes_on = has_failed || (runs && !unbound.may_end_with_instance);
        if goes_on {
            let (pod, message) = (pod.name.clone(), unbound.message.clone());
            self.plan.summary.notes.push(Note::NoHandOver { pod, has_ended: has_failed, message });
        }
        goes_on
    }

    /// Nothing of the pod that was handed over to can run; it has never been Ready. Whether the instance still
    /// waits for it.
    fn waits_for_missing(&mut self, daemon_set: &Arc<DaemonSet>, known: HandOver, missing: StockMissing) -> bool {
        let since = known.missing.unwrap_or(self.context.now);
        if self.context.now - since >= MISSING {
            self.add_reason(Reason::HandOverFailed { pod: known.pod, missing });
            return false;
        }
        self.wake(since + MISSING);
        let reason = Reason::HandOverWaits { pod: known.pod.clone(), missing };
        self.stays_handed_over(daemon_set, Some(HandOver { missing: Some(since), ..known }), reason)
    }

    /// The runtime is the only evidence of the stock pod.
    fn waits_for_lost(&mut self, daemon_set: &Arc<DaemonSet>, known: Option<HandOver>, evidence: Evidence) -> bool {
        let Some(known) = known else { return false };
        let now = self.context.now;
        if !known.done {
            // Only this timer causes the runtime to be asked again.
            self.wake(now + Span::from_secs(5));
        }
        match evidence {
            Evidence::Gone if !known.done => self.waits_for_missing(daemon_set, known, StockMissing::NothingRuns),
            Evidence::Gone | Evidence::Running | Evidence::Unknown(_) => {
                let reason = Reason::HandedOverTo(known.pod.clone());
                self.stays_handed_over(daemon_set, Some(HandOver { missing: None, ..known }), reason)
            }
        }
    }

    /// Nothing runs here any more; the record keeps what the instance needs to return without an API server.
    fn stays_handed_over(&mut self, daemon_set: &Arc<DaemonSet>, hand_over: Option<HandOver>, reason: Reason) -> bool {
        let Some(hand_over) = hand_over else { return false };
        self.plan.record.hand_over = Some(hand_over);
        self.unplaced(reason);
        if self.plan.summary.state == State::NotSelected {
            self.plan.summary.state = State::StandingBy;
        }
        let rendering = self.facts.rendering(daemon_set, self.plan.record.next_incarnation, Data::Current);
        match &rendering.result {
            Ok(rendered) => {
                self.plan.references.extend(rendered.pod.references.iter().cloned());
                self.plan.tokens.extend(rendered.pod.tokens.iter().cloned());
            }
            Err(refused) => {
                self.plan.references.extend(refused.references.iter().cloned());
                self.plan.tokens.extend(refused.tokens.iter().cloned());
            }
        }
        true
    }

    /// Which images the stock pod is missing here; they are pulled.
    fn lacks_images(&mut self, daemon_set: &Arc<DaemonSet>) -> Option<ImageReason> {
        let rendering = self.facts.rendering(daemon_set, self.plan.record.next_incarnation, Data::Current);
        rendering.result.as_ref().ok()?;
        self.plan.pull = Some(Arc::clone(&rendering));
        match self.facts.images(&rendering, true) {
            Images::Present | Images::Handed(_) => None,
            Images::Failed(why) | Images::Pulling(why) => Some(why),
        }
    }
}
