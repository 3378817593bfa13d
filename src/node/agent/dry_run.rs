//! Questions to the API server about the pods of new instances: sent, and the replies kept for the next pass.
//!
//! Owns the requests that are under way. Must not decide: `crate::core::dry_run` says when one is due and what a reply
//! means, `crate::core::plan` what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::dry_run::AdmissionDryRun;
use crate::core::dry_run::DryRunReply;
use crate::core::dry_run::DryRunVerdict;
use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::dry_run::judge;
use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;
use crate::node::api::Link;

use super::Agent;
use super::inbox::Inbox;
use super::now;

/// Questions, by daemon.
#[derive(Default)]
pub(super) struct AdmissionDryRuns {
    known: BTreeMap<ObjectKey, AdmissionDryRun>,
    replies: Inbox<(Question, DryRunReply)>,
}

impl AdmissionDryRuns {
    /// Where a question stands.
    pub(super) fn request_state(
        &self,
        question: &Question,
        now: Timestamp,
        node: &str,
        link: Option<&str>,
    ) -> RequestState {
        let known = self
            .known
            .get(&question.daemon_set.key)
            .filter(|admission_dry_run| admission_dry_run.about() == question.about);
        match known {
            Some(admission_dry_run) => admission_dry_run.request_state(now, node, link),
            None => AdmissionDryRun::new(&question.about, now).request_state(now, node, link),
        }
    }

    /// Whether an answer is outstanding.
    pub(super) fn is_open(&self, key: &ObjectKey) -> bool {
        self.known.get(key).is_some_and(AdmissionDryRun::is_open)
    }

    /// The next time is the first. Gives whether anything had been asked.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.known.remove(key).is_some()
    }

    /// Takes `question` for put, if it is due.
    fn put(&mut self, question: &Question, now: Timestamp, node: &str, link: Option<&str>) -> bool {
        if !self.request_state(question, now, node, link).due {
            return false;
        }
        let admission_dry_run = self.known.entry(question.daemon_set.key.clone());
        let admission_dry_run = admission_dry_run.or_insert_with(|| AdmissionDryRun::new(&question.about, now));
        if admission_dry_run.about() != question.about {
            *admission_dry_run = AdmissionDryRun::new(&question.about, now);
        }
        admission_dry_run.put(now);
        true
    }
}

impl Agent {
    /// Why the API server cannot be asked now, if so.
    pub(super) fn unlinked(&self) -> Option<String> {
        let Some(api) = self.api.as_ref() else { return Some("it has not been connected to yet".to_owned()) };
        if self.cluster.is_another() {
            return Some("another cluster answers".to_owned());
        }
        match &*api.connector().link().borrow() {
            Link::Up => None,
            _ => Some("there is no connection to it".to_owned()),
        }
    }

    /// Takes the replies that have come; those to questions that nobody has any more are dropped.
    pub(super) fn take_verdicts(&mut self) {
        for (question, reply) in self.admission_dry_runs.replies.take() {
            let (key, verdict) = (&question.daemon_set.key, judge(&question.daemon_set, &reply));
            match &verdict {
                DryRunVerdict::Admitted(_) => {
                    tracing::debug!(daemonset = %key, "the API server takes the pod of {key}")
                }
                DryRunVerdict::Refused(words) => {
                    tracing::debug!(daemonset = %key, "the API server refuses it: {words}")
                }
                DryRunVerdict::Unanswered(why) => {
                    tracing::warn!(daemonset = %key, hint = why.hint, "the API server could not be asked about the pod of {key}: {}", why.why);
                }
            }
            if let Some(admission_dry_run) =
                self.admission_dry_runs.known.get_mut(key).filter(|i| i.about() == question.about)
            {
                admission_dry_run.answered(verdict, now());
            }
        }
    }

    /// Puts the questions of the plan that are due.
    pub(super) fn put_questions(&mut self) {
        let unlinked = self.unlinked();
        let asked = |key: &ObjectKey| self.plan.daemons.iter().any(|d| d.key == *key && d.question.is_some());
        self.admission_dry_runs.known.retain(|key, admission_dry_run| admission_dry_run.is_open() || asked(key));
        let Some(api) = self.api.clone().filter(|_| !self.offline) else { return };
        let at = now();
        for question in self.plan.daemons.iter().filter_map(|daemon| daemon.question.as_ref()) {
            if !self.admission_dry_runs.put(question, at, &self.config.node_name, unlinked.as_deref()) {
                continue;
            }
            let (api, question) = (api.clone(), question.clone());
            let (replies, wake) = (self.admission_dry_runs.replies.clone(), Arc::clone(&self.wake));
            tokio::spawn(async move {
                let namespace = &question.daemon_set.key.namespace;
                let reply = api.dry_run_pod(namespace, question.pod.clone()).await;
                replies.put((question, reply), &wake);
            });
        }
    }
}
