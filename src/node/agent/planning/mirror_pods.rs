//! Daemons of which the API server does not show how they are, although it answers.
//!
//! Owns why that is: without a mirror pod that takes the kubelet's reports the cluster does not see them. Must not judge
//! how they are: [`crate::node::agent::evidence`] does.

use std::fmt;

use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::SYSTEM_CLASS;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Facts;
use crate::core::plan::Note;
use crate::core::policy::Admission;
use crate::core::qos::QosClass;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::node::agent::evidence;
use crate::node::agent::evidence::MIRROR_LATE;
use crate::node::agent::failing;
use crate::node::agent::observed_state::ObservedState;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

/// Within this time the kubelet tries again to create a mirror pod, although nothing else happens to the pod
/// (`syncFrequency` with its jitter).
const TRIED_AGAIN: Span = Span::from_secs(100);

/// Why the API server does not show how an instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unreported {
    /// It lacks an object that the pod names, and so has no mirror pod. A file may have the object.
    Lacks { object: ObjectRef, file: Option<String> },
    /// It has no mirror pod.
    NoMirrorPod,
    /// Its mirror pod has another QoS class.
    OtherClass { own: QosClass, namespace: String },
}

impl Unreported {
    fn note(&self) -> Note {
        let hint = match self {
            Self::Lacks { file: Some(file), .. } => format!("kubectl apply -f {file}"),
            Self::Lacks { object, file: None } => format!("create the {}", object.kind),
            Self::NoMirrorPod => {
                "the kubelet's log says why: journalctl -u kubelet | grep \"Failed creating a mirror pod\"".to_owned()
            }
            Self::OtherClass { .. } => {
                "write requests and limits of all containers in the template, as the LimitRange gives them".to_owned()
            }
        };
        Note::Field(FieldError { field: "mirror pod".to_owned(), reason: self.to_string(), hint: Some(hint) })
    }
}

impl fmt::Display for Unreported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks { object, .. } if object.kind == Kind::RuntimeClass => {
                write!(f, "the API server has no {object}: it takes no mirror pod, and the kubelet starts no container")
            }
            Self::Lacks { object, .. } => {
                write!(
                    f,
                    "the API server has no {object} and takes no mirror pod: kubectl does not show how the pod is"
                )
            }
            Self::NoMirrorPod => {
                f.write_str("the API server has none and may refuse it: kubectl does not show how the pod is")
            }
            Self::OtherClass { own, namespace } => write!(
                f,
                "it is not {}, as the pod is, so the kubelet cannot report in it: a LimitRange of namespace {namespace} gave it \
                 other resources",
                own.as_str()
            ),
        }
    }
}

/// Notes at each daemon that runs here why the API server does not show how it is.
pub(super) fn note(facts: &ObservedState<'_>, plan: &mut Plan) {
    let observation = facts.observation;
    let answers = |api: &&Snapshot| observation.api_answers() && api.lists(&Scope::Pods) > 0;
    // A kubelet that the API server does not know, or not any more, makes no mirror pods.
    let is_kubelet_there = |api: &&Snapshot| api.node.is_some() && failing::unresponsive_kubelet(api).is_none();
    let Some(api) = observation.snapshot().filter(answers).filter(is_kubelet_there) else { return };
    for daemon in &mut plan.daemons {
        let why = daemon.record.live().find_map(|instance| unreported(facts, api, daemon, instance));
        daemon.summary.notes.extend(why.map(|why| why.note()));
    }
}

fn unreported(
    facts: &ObservedState<'_>,
    api: &Snapshot,
    daemon: &DaemonPlan,
    instance: &Instance,
) -> Option<Unreported> {
    let observation = facts.observation;
    let namespace = &daemon.key.namespace;
    if let Some(mirror) = evidence::mirror(api, namespace, instance, &facts.config.node_name) {
        let own = evidence::other_class(mirror, instance)?;
        return Some(Unreported::OtherClass { own, namespace: namespace.clone() });
    }
    let waited = observation.now - instance.created.max(observation.boot.at);
    let has_answered = facts.state.concerns.api_freshness.has_answered_for(waited.min(TRIED_AGAIN), observation.now);
    if waited < MIRROR_LATE || !has_answered {
        return None;
    }
    let is_in_pod = |object: &&ObjectRef| match object.kind {
        Kind::PriorityClass => !object.key.name.starts_with(SYSTEM_CLASS),
        kind => matches!(kind, Kind::RuntimeClass | Kind::Namespace),
    };
    let mut objects = daemon.references.iter().filter(is_in_pod);
    if let Some(object) = objects.find(|object| api.lookup(object) == Lookup::Absent) {
        let file = observation.folders.file_of(object);
        return Some(Unreported::Lacks { object: object.clone(), file });
    }
    let runs = observation.runtime_pod(&instance.uid).is_some_and(|pod| pod.alive);
    // Then another note says so.
    let is_known = |daemon_set| matches!(facts.admission(daemon_set), Admission::Allowed(notes) if !notes.is_empty());
    (runs && !instance.daemon_set.as_ref().is_some_and(is_known)).then_some(Unreported::NoMirrorPod)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use serde_json::json;

    use crate::core::knowledge::Knowledge;
    use crate::core::plan::Summary;
    use crate::core::time::Timestamp;
    use crate::node::agent::decide::tests;
    use crate::node::agent::outcome::EffectOutcome;
    use crate::node::agent::runtime_pods::RuntimePod;
    use crate::node::agent::state::AgentState;
    use crate::node::api::Entry;
    use crate::node::api::ScopeState;

    use super::*;

    fn entry(value: Value) -> Entry {
        Entry { version: 1, value: Arc::new(value) }
    }

    /// What is reported of a daemon `millis` after an API server began to answer that shows `mirror` and lacks `absent`.
    fn reported(mirror: Option<Value>, absent: &[ObjectRef], millis: i64) -> Summary {
        let config = tests::config();
        let mut state = tests::state(&config);
        let instance = state.records[&tests::key()].live().next().unwrap().clone();
        let mut snapshot = Snapshot::default();
        let ready = json!({"type": "Ready", "status": "True"});
        snapshot.node = Some(entry(json!({"metadata": {"name": "n1", "uid": "n"}, "status": {"conditions": [ready]}})));
        let pod = evidence::mirror_key(&tests::key().namespace, &instance.pod_name, &config.node_name);
        snapshot.pods.extend(mirror.map(|mirror| (pod, entry(mirror))));
        for object in absent {
            snapshot.scopes.insert(Scope::Object(object.clone()), ScopeState { lists: 1, ..ScopeState::default() });
        }
        let mut last = None;
        for now in [0, millis] {
            let mut observation = tests::observation(Some(snapshot.clone()));
            observation.now += Span::from_millis(now);
            observation.manifests = tests::manifests_of(&state);
            let running_since = Some(Timestamp::from_secs(1_000));
            let pod = RuntimePod { running_since, ..RuntimePod::test(&instance.uid, true) };
            observation.runtime = Knowledge::Current(Arc::new(vec![pod]));
            let decision = tests::decided(&observation, &state, &config);
            last = decision.daemon(&tests::key()).map(|daemon| daemon.summary.clone());
            state = AgentState::commit(decision.state, &decision.plan, &EffectOutcome::default(), observation.now);
        }
        last.unwrap()
    }

    fn notes(summary: &Summary) -> Vec<String> {
        summary.notes.iter().map(ToString::to_string).filter(|note| note.starts_with("mirror pod: ")).collect()
    }

    fn mirror(class: &str) -> Value {
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "uid-1"}},
            "status": {"phase": "Pending", "qosClass": class, "conditions": []}})
    }

    #[test]
    fn a_mirror_pod_that_the_api_server_does_not_have_is_named_once_the_kubelet_had_time_for_it() {
        let none = &notes(&reported(None, &[], 100_000))[..];
        assert!(matches!(none, [note] if note.contains("may refuse it") && note.contains("journalctl")), "{none:?}");
        assert_eq!(notes(&reported(None, &[], 99_999)), [""; 0], "it may have come back just now");
        assert_eq!(notes(&reported(Some(mirror("BestEffort")), &[], 100_000)), [""; 0]);
    }

    #[test]
    fn what_the_api_server_lacks_of_it_is_named() {
        let namespace = ObjectRef::new(Kind::Namespace, "", &tests::key().namespace);
        let lacks = &notes(&reported(None, &[namespace], 100_000))[..];
        assert!(matches!(lacks, [note] if note.contains("the API server has no Namespace kube-system")), "{lacks:?}");
    }

    #[test]
    fn a_mirror_pod_of_another_class_says_nothing_of_readiness_and_a_note_names_the_limit_range() {
        let own = reported(Some(mirror("BestEffort")), &[], 1_000);
        assert_eq!((own.ready, notes(&own)), (Some(false), vec![]));
        let other = reported(Some(mirror("Burstable")), &[], 1_000);
        assert_eq!(other.ready, None, "its containers run: {}", other.reasons);
        let named = &notes(&other)[..];
        assert!(matches!(named, [note] if note.contains("a LimitRange of namespace kube-system")), "{named:?}");
    }
}
