//! The owner of a mirror pod: the DaemonSet, as for pods of the DaemonSet controller, or the Node, as the kubelet sets it.
//! Owns when a mirror pod may belong to its DaemonSet: only if no DaemonSet controller claims it. The DaemonSet controller
//! counts every pod owned by a DaemonSet: it would delete one that, by its rules, should not run, and would not create
//! its own beside it.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::STATIC_GATE;
use crate::core::model::Source;
use crate::core::record::Instance;
use crate::core::record::Phase;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorPodOwner {
    /// The DaemonSet with this UID.
    DaemonSet(String),
    /// The Node. If it already is the owner, nothing changes.
    Node,
    /// The present owner.
    AsItIs,
}

/// Annotation with which the kubelet marks a mirror pod: the UID of the static pod, unless the manifest has none.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotation in which the kubelet says where it has a pod from. It overwrites what a manifest or the API says
/// (`kubelet/config.podStorage.merge`).
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// The value of [`SOURCE_ANNOTATION`] for a pod of the API server.
pub const FROM_API: &str = "api";
/// The condition of a pod that the kubelet ends for others (`v1.DisruptionTarget`).
pub const DISRUPTION: &str = "DisruptionTarget";

/// The hint when a DaemonSet controller acts on a daemon that it should leave to daemonlet.
pub const FIX: &str = "switch the DaemonSet controller off, or keep it away with the node selector \
daemonlet.dev/static: \"true\" in the DaemonSet's template, or label the DaemonSet daemonlet.dev/mode: bootstrap; a pod that \
a controller left behind is deleted by hand";

/// Whether a node selector that matches no node keeps the DaemonSet controller away.
pub fn is_gated(daemon_set: &DaemonSet) -> bool {
    daemon_set.template.at(["spec", "nodeSelector", STATIC_GATE]).is_some()
}

/// Whether a DaemonSet controller created this pod for the DaemonSet of this name and UID (`None`: any), and it is to
/// stay. A mirror pod may have the same owner; the kubelet's annotation distinguishes it and cannot be removed.
pub fn is_stock_pod(pod: &Value, name: &str, uid: Option<&str>) -> bool {
    let is = |owner: &Value, field: &str, text: &str| owner.get(field).is_some_and(|v| v == text);
    let own = |owner: &Value| {
        is(owner, "kind", "DaemonSet")
            && is(owner, "name", name)
            && uid.is_none_or(|uid| is(owner, "uid", uid))
            && owner.get("controller").is_some_and(|c| *c == true)
    };
    let phase = pod.text_at(["status", "phase"]);
    !is_mirror_pod(pod)
        && pod.list_at(["metadata", "ownerReferences"]).iter().any(own)
        && pod.at(["metadata", "deletionTimestamp"]).is_none()
        && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether the pod is a mirror pod of the kubelet.
pub fn is_mirror_pod(pod: &Value) -> bool {
    pod.at(["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}

/// The owner that the mirror pod of `instance` should have. `mode`: how the daemon is wanted here, if it is;
/// `daemon_set`: the definition in force; `stock_acts`: a pod of the DaemonSet controller is here.
pub fn owner(instance: &Instance, mode: Option<Mode>, daemon_set: &DaemonSet, stock_acts: bool) -> MirrorPodOwner {
    let stays = instance.phase == Phase::Live && !instance.orphaned && instance.restart.is_none();
    match (mode, &daemon_set.source, &daemon_set.uid) {
        _ if !stays || daemon_set.deleting => MirrorPodOwner::AsItIs,
        (None, ..) => MirrorPodOwner::AsItIs,
        (Some(Mode::Static), Source::Api, Some(uid)) if !stock_acts && !is_gated(daemon_set) => {
            MirrorPodOwner::DaemonSet(uid.clone())
        }
        _ => MirrorPodOwner::Node,
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use std::collections::BTreeMap;

    use serde_json::json;

    use crate::core::model::ObjectKey;
    use crate::core::model::UpdateStrategy;

    use super::*;

    fn daemon_set() -> DaemonSet {
        DaemonSet {
            key: ObjectKey::new("a", "b"),
            uid: Some("d1".to_owned()),
            generation: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            deleting: false,
            finalizers: Vec::new(),
            selector: json!({}),
            template: json!({}),
            update_strategy: UpdateStrategy::OnDelete,
            min_ready_seconds: 0,
            admitted: None,
            overlays: None,
            gate: Default::default(),
            rollout: Default::default(),
            source: Source::Api,
        }
    }

    fn instance() -> Instance {
        Instance::new("u", "p", 0, "", at(0))
    }

    const STATIC: Option<Mode> = Some(Mode::Static);

    #[test]
    fn an_instance_that_stays_belongs_to_its_daemon_set() {
        assert_eq!(owner(&instance(), STATIC, &daemon_set(), false), MirrorPodOwner::DaemonSet("d1".to_owned()));
    }

    #[test]
    fn nothing_belongs_to_a_daemon_set_that_somebody_else_acts_on() {
        assert_eq!(owner(&instance(), STATIC, &daemon_set(), true), MirrorPodOwner::Node);
        assert_eq!(owner(&instance(), Some(Mode::Bootstrap), &daemon_set(), false), MirrorPodOwner::Node);
        let template = json!({"spec": {"nodeSelector": {"daemonlet.dev/static": "true"}}});
        assert_eq!(owner(&instance(), STATIC, &DaemonSet { template, ..daemon_set() }, false), MirrorPodOwner::Node);
        let source = Source::File { path: "/etc/x.yaml".into() };
        assert_eq!(owner(&instance(), STATIC, &DaemonSet { source, ..daemon_set() }, false), MirrorPodOwner::Node);
        assert_eq!(owner(&instance(), STATIC, &DaemonSet { uid: None, ..daemon_set() }, false), MirrorPodOwner::Node);
    }

    #[test]
    fn what_goes_or_is_orphaned_is_left_as_it_is() {
        let ending = Phase::ending(at(0), "");
        for instance in [Instance { phase: ending, ..instance() }, Instance { orphaned: true, ..instance() }] {
            assert_eq!(owner(&instance, STATIC, &daemon_set(), false), MirrorPodOwner::AsItIs);
        }
        assert_eq!(owner(&instance(), None, &daemon_set(), false), MirrorPodOwner::AsItIs, "no source wants it");
        let deleting = DaemonSet { deleting: true, ..daemon_set() };
        assert_eq!(owner(&instance(), STATIC, &deleting, false), MirrorPodOwner::AsItIs);
    }
}
