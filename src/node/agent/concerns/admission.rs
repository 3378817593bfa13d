//! Questions to the API server about the pods of new instances (`policy.admission = "dry-run"`).
//!
//! Owns which are under way. `crate::core::dry_run` decides when one is due and what a reply means; `crate::core::plan`
//! decides what follows.

use std::collections::BTreeMap;

use crate::core::dry_run::AdmissionDryRun;
use crate::core::dry_run::DryRunVerdict;
use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::dry_run::judge;
use crate::core::knowledge::Unlinked;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::time::Timestamp;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

/// Questions, by daemon.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct AdmissionDryRuns(BTreeMap<ObjectKey, AdmissionDryRun>);

impl AdmissionDryRuns {
    /// Takes the replies that have come; those to questions that are not asked any more are dropped.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        for reply in &observation.replies {
            let Reply::DryRun { question, reply } = reply else { continue };
            let (key, verdict) = (&question.daemon_set.key, judge(&question.daemon_set, reply));
            match &verdict {
                DryRunVerdict::Admitted(_) => log.debug("the API server accepts its pod"),
                DryRunVerdict::Refused(words) => log.debug(format!("the API server refuses its pod: {words}")),
                DryRunVerdict::Unanswered(why) => log
                    .warn(format!("the API server could not be asked about its pod: {}", why.why))
                    .hint(why.hint.as_deref()),
            }
            .daemonset(key);
            if let Some(known) = self.0.get_mut(key).filter(|known| known.about() == question.about) {
                known.answered(verdict, observation.now);
            }
        }
    }

    /// How far a question is; `unlinked`: why the API server cannot be asked now, if so.
    pub(in super::super) fn state(
        &self,
        question: &Question,
        now: Timestamp,
        node: &str,
        unlinked: Option<Unlinked>,
    ) -> RequestState {
        let known = self.0.get(&question.daemon_set.key).filter(|known| known.about() == question.about);
        match known {
            Some(known) => known.request_state(now, node, unlinked),
            None => AdmissionDryRun::new(&question.about, now).request_state(now, node, unlinked),
        }
    }

    /// Whether an answer is outstanding.
    pub(in super::super) fn is_open(&self, key: &ObjectKey) -> bool {
        self.0.get(key).is_some_and(AdmissionDryRun::is_open)
    }

    /// The next time is the first. Gives whether anything had been asked.
    pub(in super::super) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// The questions of the plan that are due.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        plan: &Plan,
        node: &str,
        unlinked: Option<Unlinked>,
    ) -> Vec<Request> {
        let asks = |key: &ObjectKey| plan.daemons.iter().any(|d| d.key == *key && d.question.is_some());
        self.0.retain(|key, known| known.is_open() || asks(key));
        let mut requests = Vec::new();
        for question in plan.daemons.iter().filter_map(|daemon| daemon.question.as_ref()) {
            if !self.state(question, observation.now, node, unlinked).due {
                continue;
            }
            let new = || AdmissionDryRun::new(&question.about, observation.now);
            let known = self.0.entry(question.daemon_set.key.clone()).or_insert_with(new);
            if known.about() != question.about {
                *known = new();
            }
            known.put(observation.now);
            requests.push(Request::DryRun(question.clone()));
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use crate::core::dry_run::DryRunAnswer;
    use crate::core::dry_run::DryRunReply;
    use crate::core::model::Lookup;
    use crate::core::plan::DaemonPlan;
    use crate::core::record::DaemonRecord;
    use crate::node::agent::decide::tests::daemon_set;
    use crate::node::agent::decide::tests::key;

    use super::*;

    fn asks(question: &Question) -> Plan {
        let record = DaemonRecord::new(key(), 0);
        let daemon = DaemonPlan { question: Some(question.clone()), ..DaemonPlan::new(record) };
        Plan { daemons: vec![daemon], ..Plan::default() }
    }

    fn refused(question: &Question) -> Observation {
        let (message, question) = ("pods \"net-\" is forbidden: no".to_owned(), question.clone());
        let reply = DryRunReply::Status { code: 403, message, names_object: true };
        Observation { replies: vec![Reply::DryRun { question, reply }], ..Observation::default() }
    }

    #[test]
    fn a_question_is_put_once_and_a_reply_to_another_one_is_no_answer() {
        let [first, second] = [0, 1].map(|number| Question::new(&daemon_set(), "r", "n1", number, Lookup::Unknown));
        let (mut dry_runs, now) = (AdmissionDryRuns::default(), Observation::default());
        let mut ask = |question: &Question, unlinked| dry_runs.requests(&now, &asks(question), "n1", unlinked);
        assert_eq!(ask(&first, Some(Unlinked::NoConnection)), [], "there is no connection");
        assert_eq!(ask(&first, None), [Request::DryRun(first.clone())]);
        assert_eq!(ask(&first, None), [], "the answer is outstanding");
        assert_eq!(ask(&second, None), [Request::DryRun(second.clone())], "it is about another pod");
        dry_runs.observe(&refused(&first), &mut Log::default());
        assert!(dry_runs.is_open(&key()), "that is not asked any more");
        dry_runs.observe(&refused(&second), &mut Log::default());
        assert!(!dry_runs.is_open(&key()));
        let answer = dry_runs.state(&second, now.now, "n1", None).answer;
        assert!(matches!(answer, DryRunAnswer::Refused(_)), "{answer:?}");
        assert_eq!(dry_runs.requests(&now, &Plan::default(), "n1", None), []);
        assert!(!dry_runs.forget(&key()), "what no plan asks is forgotten");
    }
}
