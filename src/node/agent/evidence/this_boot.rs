//! What of the API server's view of a pod the kubelet of this boot has written: it shows how a pod was before a boot until then.
//!
//! Must compare times of this node's clock only.

use serde_json::Value;

use crate::core::json::condition;
use crate::core::json::is_condition_true;
use crate::core::json::list_at;
use crate::core::json::text_at;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::observation::Observation;

/// Whether the pod has become Ready in this boot.
pub(in crate::node::agent) fn is_ready(pod: &Value, observation: &Observation) -> bool {
    is_condition_true(pod, "Ready") && has_changed(pod, "Ready", observation)
}

/// Whether the kubelet of this boot has worked on the pod. It writes no such times for a pod that it rejects.
pub(in crate::node::agent) fn shows_work(pod: &Value, observation: &Observation) -> bool {
    let has_ended = |status: &Value| {
        let ends =
            ["state", "lastState"].iter().filter_map(|state| text_at(status, &[state, "terminated", "finishedAt"]));
        ends.into_iter().any(|time| is_of_this_boot(time, observation))
    };
    // The Node controller, too, changes Ready to False.
    is_ready(pod, observation)
        || has_changed(pod, "PodReadyToStartContainers", observation)
        || ["initContainerStatuses", "containerStatuses"]
            .iter()
            .any(|list| list_at(pod, &["status", list]).iter().any(has_ended))
}

fn has_changed(pod: &Value, kind: &str, observation: &Observation) -> bool {
    let since = condition(pod, kind).and_then(|condition| text_at(condition, &["lastTransitionTime"]));
    since.is_some_and(|since| is_of_this_boot(since, observation))
}

fn is_of_this_boot(time: &str, observation: &Observation) -> bool {
    let (now, boot) = (observation.now, &observation.boot);
    // Times in the API are whole seconds; what is to come was written by a clock of another boot.
    let coarse = Span::from_secs(1);
    let Ok(time) = time.parse::<Timestamp>() else { return false };
    let time = boot.present(time, now);
    time > boot.at - coarse && time <= now + coarse
}
