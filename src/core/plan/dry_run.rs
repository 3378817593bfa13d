//! Dry runs of new instances' pods at the API server (`policy.admission = "dry-run"`).
//!
//! Owns when the API server is asked, and what applies without an answer. Its invariants:
//! * An answer is used for one new instance and stays with it: nothing restarts because a webhook would answer
//!   differently today.
//! * A refusal ends nothing, and stays in force while no API server can be asked.
//! * No start waits for an unreachable API server: its last answer for this revision applies, else the template. Only
//!   the replacement of a running instance waits.
//! * DaemonSets from folders are not checked, unless the API's overlays patch them: they start the same with and
//!   without an API server.

use std::sync::Arc;

use crate::core::dry_run::DryRunAnswer;
use crate::core::dry_run::FRESH;
use crate::core::dry_run::Unanswered;
use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::record::AdmissionAnswer;
use crate::core::record::AdmissionVerdict;
use crate::core::record::Instance;
use crate::core::upstream::api_server;

use super::Hint;
use super::Note;
use super::Planner;
use super::Reason;
use super::State;
use super::progress::Target;

const FIELD: &str = "pod";
pub(super) const SETTING: &str = "policy.admission = \"dry-run\"";

impl Planner<'_> {
    /// The target's DaemonSet as the next instance is made from it; `None` if the answer forbids it or is pending,
    /// which the summary then says. `replaces`: an instance ends for it.
    pub(super) fn as_admitted(&mut self, target: &Target, replaces: bool) -> Option<Arc<DaemonSet>> {
        let definition = &target.daemon_set;
        // A roll-back uses the data on this disk.
        if !self.facts.asks_admission() || definition.author() == Author::NodeOwner || target.rollback {
            return Some(Arc::clone(definition));
        }
        if let Some(admitted) = self.fresh_answer(target) {
            return self.within_policy(admitted);
        }
        let (question, request_state) = self.facts.admission_dry_run(definition, self.plan.record.next_incarnation);
        self.plan.question = Some(question);
        if let Some(again) = request_state.again {
            self.wake(again);
        }
        match request_state.answer {
            DryRunAnswer::Admitted(template) => {
                let admitted = definition.with_admitted(Some(&template));
                self.remember(target, AdmissionVerdict::Admitted(Arc::clone(&admitted)));
                self.within_policy(admitted)
            }
            DryRunAnswer::Refused(words) => {
                self.remember(target, AdmissionVerdict::Refused(words.clone()));
                self.refuse_pod(&words)
            }
            DryRunAnswer::Open => match self.last_refusal(target) {
                Some(words) => self.refuse_pod(&words),
                None => {
                    self.plan.summary.state = State::Waiting;
                    self.add_reason(Reason::AsksAdmission);
                    None
                }
            },
            DryRunAnswer::Unanswered(why) => self.unanswered(target, replaces, &why),
        }
    }

    /// The answer for this instance, while it is valid.
    fn fresh_answer(&mut self, target: &Target) -> Option<Arc<DaemonSet>> {
        let answer = self.plan.record.answer.as_mut()?;
        let age = self.context.now - answer.at;
        // The previous instance has ended for it: the answer is final.
        let committed = self.plan.record.instances.iter().all(|i| i.phase.since().is_some());
        let mine = answer.revision == target.revision && answer.incarnation == self.plan.record.next_incarnation;
        let AdmissionVerdict::Admitted(admitted) = &mut answer.said else { return None };
        if !mine || !(committed || age < FRESH) {
            return None;
        }
        if !admitted.defines_the_same(&target.daemon_set) {
            *admitted = target.daemon_set.with_admitted(admitted.admitted.as_ref());
        }
        Some(Arc::clone(admitted))
    }

    fn remember(&mut self, target: &Target, said: AdmissionVerdict) {
        let (revision, incarnation) = (target.revision.clone(), self.plan.record.next_incarnation);
        let known = self.plan.record.answer.as_ref();
        // The same answer again is not worth a write.
        if known.is_none_or(|a| (&a.revision, a.incarnation, &a.said) != (&revision, incarnation, &said)) {
            self.plan.record.answer = Some(AdmissionAnswer { revision, incarnation, at: self.context.now, said });
        }
    }

    fn last_refusal(&self, target: &Target) -> Option<String> {
        let answer = self.plan.record.answer.as_ref().filter(|answer| answer.revision == target.revision)?;
        match &answer.said {
            AdmissionVerdict::Refused(words) => Some(words.clone()),
            AdmissionVerdict::Admitted(_) => None,
        }
    }

    /// The DaemonSet as admission changed it, if this node's policy allows that.
    fn within_policy(&mut self, admitted: Arc<DaemonSet>) -> Option<Arc<DaemonSet>> {
        if self.admitted(&admitted) {
            return Some(admitted);
        }
        self.plan.summary.notes.push(Note::AsAdmitted);
        None
    }

    fn refuse_pod(&mut self, words: &str) -> Option<Arc<DaemonSet>> {
        let quota = api_server::is_over_quota(words).then(|| {
            "the old instance still counts while its successor is checked: leave room for one more pod".to_owned()
        });
        self.refuse(&[FieldError {
            field: FIELD.to_owned(),
            reason: format!("the API server refuses it: {words}"),
            hint: quota.or_else(|| {
                Some(format!("correct what it says; the agent asks again later, `daemonlet retry` at once ({SETTING})"))
            }),
        }]);
        None
    }

    /// The API server gave no answer about the pod.
    fn unanswered(&mut self, target: &Target, replaces: bool, why: &Unanswered) -> Option<Arc<DaemonSet>> {
        if let Some(words) = self.last_refusal(target) {
            return self.refuse_pod(&words);
        }
        let note = |what: &str| FieldError {
            field: FIELD.to_owned(),
            reason: format!("the API server could not be asked about it: {}; {what}", why.why),
            hint: why.hint.clone(),
        };
        let carried = target.daemon_set.admitted.is_some().then_some(&target.daemon_set);
        if let Some(known) = self.plan.record.admitted(&target.revision).or(carried) {
            let admitted = match known.defines_the_same(&target.daemon_set) {
                true => Arc::clone(known),
                false => target.daemon_set.with_admitted(known.admitted.as_ref()),
            };
            self.note_all(&[note("its last answer for this revision applies")]);
            return self.within_policy(admitted);
        }
        if replaces {
            let waits = note("what runs stays until then");
            self.plan.summary.state = State::Waiting;
            self.plan.summary.hints.extend(waits.hint.clone().map(Hint::Field));
            self.add_reason(Reason::Refused(vec![waits]));
            return None;
        }
        self.note_all(&[note("it starts as its template says")]);
        Some(Arc::clone(&target.daemon_set))
    }

    /// The DaemonSet as admission last changed it for its revision, else unchanged.
    pub(super) fn last_admitted<'d>(&'d self, daemon_set: &'d Arc<DaemonSet>) -> &'d Arc<DaemonSet> {
        if !self.facts.asks_admission() || daemon_set.author() == Author::NodeOwner {
            return daemon_set;
        }
        self.plan.record.admitted(&self.facts.revision(daemon_set)).unwrap_or(daemon_set)
    }

    /// Notes for a running instance that the API server has not checked it.
    pub(super) fn note_unasked(&mut self, instance: &Instance) {
        let Some(own) = &instance.daemon_set else { return };
        if !self.facts.asks_admission() || own.author() == Author::NodeOwner || own.admitted.is_some() {
            return;
        }
        self.note_all(&[FieldError {
            field: FIELD.to_owned(),
            reason: format!("it runs as its template says: it started without the API server's check ({SETTING})"),
            hint: Some(format!("`daemonlet restart {}` starts it again, as admission changes it", own.key)),
        }]);
    }
}
