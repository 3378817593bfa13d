//! Asking again before something is removed: a GET for one daemon, a second list for many.

use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::record::Millis;
use crate::core::sources::Confirmation;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::Agent;
use super::Answer;
use super::Removals;
use super::definitions;

impl Agent {
    /// Asks the API server itself about a daemon that its view lacks or does not cover any more.
    pub(super) fn ask(&mut self, key: &ObjectKey, record: Option<&DaemonRecord>, at: Millis) {
        let (Some(api), Some(about)) = (self.api.clone(), self.definitions.ask(key, at)) else { return };
        tracing::info!(daemonset = %key, "asking the API server itself whether {key} is gone");
        let record = record.cloned().unwrap_or_else(|| DaemonRecord::new(key.clone()));
        let (policy, known, answers) = (self.policy.clone(), self.memory.cluster_uid.clone(), self.answers.clone());
        tokio::spawn(async move {
            let (cluster_uid, confirmation) = match api.cluster_uid().await {
                Err(failure) => (None, Confirmation::Failed(failure.to_string())),
                Ok(uid) if known.as_ref().is_some_and(|known| *known != uid) => (
                    None,
                    Confirmation::Failed("another cluster answers (UID of the namespace kube-system)".to_owned()),
                ),
                Ok(uid) => {
                    let live = api.get_daemon_set(&record.key).await;
                    (Some(uid), definitions::confirm(live, &record, &policy))
                }
            };
            let _ = answers.send(Answer { key: record.key, about, confirmation, cluster_uid });
        });
    }

    pub(super) fn hold_removals(&mut self, held: bool, at: Millis) {
        if !held {
            self.removals = None;
            return;
        }
        let delay = i64::try_from(self.config.removals_delay.as_millis()).unwrap_or(i64::MAX);
        let removals = self.removals.get_or_insert(Removals { at: at.saturating_add(delay), asked: None });
        if removals.asked.is_none()
            && at >= removals.at
            && let Some(api) = &self.api
        {
            removals.asked = Some(api.relist_fresh());
        }
    }

    pub(super) fn has_second_list(&self, api: Option<&Snapshot>) -> bool {
        let asked = self.removals.and_then(|r| r.asked);
        asked.zip(api).is_some_and(|(asked, api)| api.lists(&Scope::DaemonSets) > asked)
    }
}
