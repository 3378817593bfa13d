//! Instances whose DaemonSet was deleted without its pods: how the API's pods show that.

use serde_json::Value;

use crate::core::record::DaemonRecord;
use crate::core::sources::ApiState;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::evidence;

/// The state of a DaemonSet that is absent: it was deleted without its pods if the mirror pod of an instance here has no
/// owner. The kubelet makes the Node the owner, the agent the DaemonSet; only the garbage collector removes an
/// owner and sets no other. An agent that was down sees no other sign of it.
pub(super) fn unless_orphaned<'a>(
    state: ApiState<'a>,
    record: &DaemonRecord,
    api: &Snapshot,
    node: &str,
) -> ApiState<'a> {
    if record.live().next().is_none() {
        return state;
    }
    if !api.is_current(&Scope::Pods) {
        // The pods decide. Their state may be older than the DaemonSet's absence, or they cannot be read.
        return ApiState::Unknown;
    }
    let nobodys = |pod: &Value| {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.is_none_or(Vec::is_empty)
    };
    let mut mirrors = record.live().filter_map(|i| evidence::mirror(api, &record.key.namespace, i, node));
    if mirrors.any(nobodys) { ApiState::Orphaned } else { state }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use std::sync::Arc;

    use serde_json::json;

    use crate::core::model::ObjectKey;
    use crate::core::record::Instance;
    use crate::node::api::ApiFailure;
    use crate::node::api::Entry;
    use crate::node::api::FailureKind;
    use crate::node::api::ScopeState;

    use super::*;

    #[test]
    fn a_mirror_pod_that_is_nobodys_is_an_orphan() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances.push(Instance::new("u", "p", 0, "", at(0)));
        let api = |owners: Value| {
            let mut api = Snapshot::default();
            api.scopes.insert(Scope::Pods, ScopeState { lists: 1, ..ScopeState::default() });
            let annotations = json!({"kubernetes.io/config.mirror": "u"});
            let pod = json!({"metadata": {"annotations": annotations, "ownerReferences": owners}});
            api.pods.insert(evidence::mirror_key("a", "p", "n"), Entry { version: 1, value: Arc::new(pod) });
            api
        };
        let absent = || ApiState::Absent { by_event: false };
        let state = |api: &Snapshot| unless_orphaned(absent(), &record, api, "n");
        assert_eq!(state(&api(Value::Null)), ApiState::Orphaned);
        assert_eq!(state(&api(json!([{"kind": "Node"}]))), absent());
        let without_instance = DaemonRecord::new(ObjectKey::new("a", "c"), 0);
        assert_eq!(unless_orphaned(absent(), &without_instance, &Snapshot::default(), "n"), absent());
    }

    #[test]
    fn pods_that_cannot_be_read_leave_it_open_whether_a_daemon_is_an_orphan() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances.push(Instance::new("u", "p", 0, "", at(0)));
        let state = |lists, kind: Option<FailureKind>| {
            let error = kind.map(|kind| (ApiFailure::new(kind, "refused"), at(0)));
            let mut api = Snapshot::default();
            api.scopes.insert(Scope::Pods, ScopeState { lists, error, ..ScopeState::default() });
            unless_orphaned(ApiState::Absent { by_event: false }, &record, &api, "n")
        };
        for lists in [0, 1] {
            for kind in [FailureKind::Server, FailureKind::Forbidden, FailureKind::Unreachable] {
                assert_eq!(state(lists, Some(kind)), ApiState::Unknown, "{lists} {kind:?}");
            }
        }
        assert_eq!(state(0, None), ApiState::Unknown, "not listed yet");
        assert_eq!(state(1, None), ApiState::Absent { by_event: false });
    }
}
