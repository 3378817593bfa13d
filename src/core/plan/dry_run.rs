//! The API server's word on the pod of a new instance (`policy.admission = "dry-run"`).
//!
//! Owns when it is asked, and what counts while it does not answer. Its invariants:
//! * an answer is taken for a new instance and stays that instance's: nothing restarts because a webhook would answer
//!   otherwise today;
//! * a refusal ends nothing, and keeps counting while nobody can be asked;
//! * nothing that has to start waits for an API server that is away: what it last said of this revision counts, else
//!   the template does. Only what would take the place of a running instance waits;
//! * DaemonSets from folders are the node owner's word: nobody is asked about them, and they start the same with and
//!   without an API server.

use std::sync::Arc;

use crate::core::dry_run::DryRunAnswer;
use crate::core::dry_run::FRESH;
use crate::core::dry_run::Unanswered;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Source;
use crate::core::record::AdmissionAnswer;
use crate::core::record::Instance;
use crate::core::record::Said;

use super::Planner;
use super::State;
use super::progress::Target;

const FIELD: &str = "pod";
const SETTING: &str = "policy.admission = \"dry-run\"";

impl Planner<'_> {
    /// The target's DaemonSet as the next instance is made from it; `None` when the answer forbids it or is awaited:
    /// then the summary says so. `replaces`: an instance ends for it.
    pub(super) fn as_admitted(&mut self, target: &Target, replaces: bool) -> Option<Arc<DaemonSet>> {
        let definition = &target.daemon_set;
        // A roll-back goes by what is on this disk.
        if !self.facts.asks_admission() || definition.source != Source::Api || target.rollback {
            return Some(Arc::clone(definition));
        }
        if let Some(admitted) = self.fresh_answer(target) {
            return self.within_policy(admitted);
        }
        let (question, request_state) = self.facts.admission_dry_run(definition, self.record.next_incarnation);
        self.question = Some(question);
        if let Some(again) = request_state.again {
            self.wake(again);
        }
        match request_state.answer {
            DryRunAnswer::Admitted(template) => {
                let admitted = definition.with_admitted(Some(&template));
                self.remember(target, Said::Admitted(Arc::clone(&admitted)));
                self.within_policy(admitted)
            }
            DryRunAnswer::Refused(words) => {
                self.remember(target, Said::Refused(words.clone()));
                self.refuse_pod(&words)
            }
            DryRunAnswer::Open => match self.last_refusal(target) {
                Some(words) => self.refuse_pod(&words),
                None => {
                    self.summary.state = State::Waiting;
                    self.add_reason("asks the API server whether it takes the pod");
                    None
                }
            },
            DryRunAnswer::Unanswered(why) => self.unanswered(target, replaces, &why),
        }
    }

    /// The answer for this very instance, while it counts.
    fn fresh_answer(&mut self, target: &Target) -> Option<Arc<DaemonSet>> {
        let answer = self.record.answer.as_mut()?;
        let age = self.context.now - answer.at;
        // What ran has ended for its sake: no second thoughts.
        let committed = self.record.instances.iter().all(|i| i.phase.since().is_some());
        let mine = answer.revision == target.revision && answer.incarnation == self.record.next_incarnation;
        let Said::Admitted(admitted) = &mut answer.said else { return None };
        if !mine || !(committed || age < FRESH) {
            return None;
        }
        if !admitted.defines_the_same(&target.daemon_set) {
            *admitted = target.daemon_set.with_admitted(admitted.admitted.as_ref());
        }
        Some(Arc::clone(admitted))
    }

    fn remember(&mut self, target: &Target, said: Said) {
        let (revision, incarnation) = (target.revision.clone(), self.record.next_incarnation);
        let known = self.record.answer.as_ref();
        // The same word again is no news that were worth a write.
        if known.is_none_or(|a| (&a.revision, a.incarnation, &a.said) != (&revision, incarnation, &said)) {
            self.record.answer = Some(AdmissionAnswer { revision, incarnation, at: self.context.now, said });
        }
    }

    fn last_refusal(&self, target: &Target) -> Option<String> {
        let answer = self.record.answer.as_ref().filter(|answer| answer.revision == target.revision)?;
        match &answer.said {
            Said::Refused(words) => Some(words.clone()),
            Said::Admitted(_) => None,
        }
    }

    /// The DaemonSet as admission made it, if the node's owner allows that.
    fn within_policy(&mut self, admitted: Arc<DaemonSet>) -> Option<Arc<DaemonSet>> {
        if self.admitted(&admitted) {
            return Some(admitted);
        }
        self.summary.notes.push(format!("this is of the pod as the API server's admission made it ({SETTING})"));
        None
    }

    fn refuse_pod(&mut self, words: &str) -> Option<Arc<DaemonSet>> {
        let quota = words.contains("exceeded quota").then(|| {
            "an instance that is to be replaced still counts when its successor is asked about: leave room for one pod"
                .to_owned()
        });
        self.refuse(&[FieldError {
            field: FIELD.to_owned(),
            reason: format!("the API server refuses it: {words}"),
            hint: quota.or_else(|| {
                Some(format!("mend what it says; it is asked again, and at once by `daemonlet retry` ({SETTING})"))
            }),
        }]);
        None
    }

    /// Nobody has judged the pod.
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
        if let Some(known) = self.record.admitted(&target.revision).or(carried) {
            let admitted = match known.defines_the_same(&target.daemon_set) {
                true => Arc::clone(known),
                false => target.daemon_set.with_admitted(known.admitted.as_ref()),
            };
            self.note_all(&[note("what it last said of this revision counts")]);
            return self.within_policy(admitted);
        }
        if replaces {
            let waits = note("what runs stays until then");
            self.summary.state = State::Waiting;
            self.summary.notes.extend(waits.hint.iter().map(|hint| format!("hint: {hint}")));
            self.add_reason(&waits.to_string());
            return None;
        }
        self.note_all(&[note("it starts as its template says")]);
        Some(Arc::clone(&target.daemon_set))
    }

    /// The DaemonSet as admission last made it for its revision, or as it is.
    pub(super) fn last_admitted<'d>(&'d self, daemon_set: &'d Arc<DaemonSet>) -> &'d Arc<DaemonSet> {
        if !self.facts.asks_admission() || daemon_set.source != Source::Api {
            return daemon_set;
        }
        self.record.admitted(&self.facts.revision(daemon_set)).unwrap_or(daemon_set)
    }

    /// Says of what runs that the API server has not been asked about it.
    pub(super) fn note_unasked(&mut self, instance: &Instance) {
        let Some(own) = &instance.daemon_set else { return };
        if !self.facts.asks_admission() || own.source != Source::Api || own.admitted.is_some() {
            return;
        }
        self.note_all(&[FieldError {
            field: FIELD.to_owned(),
            reason: format!("it runs as its template says: it started without the API server's word ({SETTING})"),
            hint: Some(format!("`daemonlet restart {}` gives it what admission makes of it", own.key)),
        }]);
    }
}
