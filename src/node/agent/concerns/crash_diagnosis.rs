//! Which crashed containers are diagnosed: their exit code and last log line.
//!
//! Owns when that is asked for. The diagnosis itself is a request.

use std::collections::BTreeMap;

use crate::core::health;
use crate::core::health::CrashDiagnosis;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::evidence;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;

/// An instance that goes on crashing is diagnosed no more often than this.
const AGAIN: Span = Span::from_secs(10);

/// The diagnoses of instances, by pod UID.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(in super::super) struct CrashDiagnoses {
    by_uid: BTreeMap<String, DiagnosisState>,
    questions: Vec<Request>,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct DiagnosisState {
    /// Container and how often it had been started.
    at: (String, u64),
    asked: Timestamp,
    under_way: bool,
    diagnosis: Option<CrashDiagnosis>,
}

impl CrashDiagnoses {
    /// The diagnosis of an instance.
    pub(in super::super) fn of(&self, uid: &str) -> Option<&CrashDiagnosis> {
        self.by_uid.get(uid)?.diagnosis.as_ref()
    }

    /// Whether the first diagnosis of an instance is under way: it is worth to wait for.
    pub(in super::super) fn is_pending(&self, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|state| state.under_way && state.diagnosis.is_none())
    }

    /// Takes what was found, and asks about the containers that have ended since; forgets instances that crash no more.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records, node: &str) {
        self.questions.clear();
        let crashing = crashing(observation, records, node);
        for reply in &observation.replies {
            let Reply::CrashDiagnosed { uid, diagnosis } = reply else { continue };
            if let Some(state) = self.by_uid.get_mut(uid) {
                state.under_way = false;
                state.diagnosis = Some(diagnosis.clone());
            }
        }
        self.by_uid.retain(|uid, _| crashing.contains_key(uid));
        for (uid, at) in crashing {
            let known = self.by_uid.get(&uid);
            let is_early = |asked| (Span::ZERO..AGAIN).contains(&(observation.now - asked));
            if known.is_some_and(|state| state.at == at || state.under_way || is_early(state.asked)) {
                continue;
            }
            let diagnosis = known.and_then(|state| state.diagnosis.clone());
            self.questions.push(Request::DiagnoseCrash { uid: uid.clone(), container: at.0.clone() });
            self.by_uid.insert(uid, DiagnosisState { at, asked: observation.now, under_way: true, diagnosis });
        }
    }

    /// The diagnoses that are due.
    pub(in super::super) fn requests(&self) -> Vec<Request> {
        self.questions.clone()
    }
}

/// The container that crashes of each instance, and how often it had been started.
fn crashing(observation: &Observation, records: &Records, node: &str) -> BTreeMap<String, (String, u64)> {
    let mut crashing = BTreeMap::new();
    if !observation.can_ask_runtime {
        return crashing;
    }
    for (record, instance) in records.values().flat_map(|r| r.live().map(move |i| (r, i))) {
        if instance.available.is_some() {
            continue;
        }
        let mirror =
            observation.snapshot().and_then(|api| evidence::mirror(api, &record.key.namespace, instance, node));
        let reported = mirror.and_then(health::crashing).map(|(name, restarts)| (name.to_owned(), restarts));
        let seen = || {
            let pod = observation.runtime_pod(&instance.uid)?;
            let template = instance.daemon_set.as_ref()?.pod_template();
            let crashed = health::crashed(template, &pod.fact, instance.created)?;
            Some((crashed.name.clone(), u64::from(crashed.restarts)))
        };
        crashing.extend(reported.or_else(seen).map(|container| (instance.uid.clone(), container)));
    }
    crashing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::observation;
    use crate::node::agent::decide::tests::shows_mirror;
    use crate::node::agent::decide::tests::state;

    use super::*;

    #[test]
    fn a_container_that_goes_on_crashing_is_diagnosed_again_after_a_while_and_forgotten_once_it_runs() {
        let records = state(&config()).records;
        let instance = &records[&key()].instances[0];
        let mut diagnoses = CrashDiagnoses::default();
        let mut asked = |restarts: u64, seconds: i64, replies: Vec<Reply>| {
            let waits = if restarts > 0 { json!({"waiting": {"reason": "CrashLoopBackOff"}}) } else { json!({}) };
            let status = json!({"name": "c", "restartCount": restarts, "ready": restarts == 0, "state": waits});
            let pod = json!({"metadata": {"uid": "m"}, "status": {"containerStatuses": [status]}});
            let seen = observation(Some(shows_mirror(instance, pod)));
            let (now, can_ask_runtime) = (seen.now + Span::from_secs(seconds), true);
            diagnoses.observe(&Observation { now, can_ask_runtime, replies, ..seen }, &records, "n1");
            let exit_code = diagnoses.of("uid-1").and_then(|diagnosis| diagnosis.exit_code);
            (diagnoses.requests().len(), diagnoses.is_pending("uid-1"), exit_code)
        };
        let diagnosed = || {
            let diagnosis = CrashDiagnosis { exit_code: Some(3), ..CrashDiagnosis::default() };
            vec![Reply::CrashDiagnosed { uid: "uid-1".to_owned(), diagnosis }]
        };
        assert_eq!(asked(0, 0, vec![]), (0, false, None), "it runs");
        assert_eq!(asked(2, 1, vec![]), (1, true, None));
        assert_eq!(asked(3, 2, vec![]), (0, true, None), "the answer is outstanding");
        assert_eq!(asked(3, 3, diagnosed()), (0, false, Some(3)), "it was asked a moment ago");
        assert_eq!(asked(3, 11, vec![]), (1, false, Some(3)));
        assert_eq!(asked(0, 12, vec![]), (0, false, None));
        assert_eq!(asked(0, 13, diagnosed()), (0, false, None), "it comes too late");
    }
}
