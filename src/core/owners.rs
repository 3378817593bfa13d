//! Whose a mirror pod is to be: the DaemonSet's, as a pod of the stock controller is, or the Node's, as the
//! kubelet makes it.
//!
//! Owns when a mirror pod may belong to its DaemonSet: only where nobody else takes it for his own. The
//! DaemonSet controller counts every pod of a DaemonSet as its own: it would delete one that should not run
//! by its reckoning, and make none of its own where one is.

use serde_json::Value;

use crate::core::json::at;
use crate::core::json::list_at;
use crate::core::json::text_at;
use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::STATIC_GATE;
use crate::core::model::Source;
use crate::core::record::Instance;
use crate::core::record::Phase;

/// Whose a mirror pod is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorPodOwner {
    /// The DaemonSet's with this UID.
    DaemonSet(String),
    /// The Node's. One that is already is left as it is.
    Node,
    /// Whoever's it is now.
    AsItIs,
}

/// Annotation by which a kubelet tells whose image a mirror pod is: the UID of the static pod, unless its manifest has
/// none.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What to do where a DaemonSet controller acts on a daemon that is to be left to us.
pub const FIX: &str = "hint: switch the DaemonSet controller off, or keep it away with the node selector \
daemonlet.dev/static: \"true\" in the DaemonSet's template, or label the DaemonSet daemonlet.dev/mode: bootstrap; a pod that \
a controller left behind is deleted by hand";

/// Whether a stock controller that runs beside us is kept away by a node selector that no node satisfies.
pub fn is_gated(daemon_set: &DaemonSet) -> bool {
    at(&daemon_set.template, &["spec", "nodeSelector", STATIC_GATE]).is_some()
}

/// Whether a pod is one that a DaemonSet controller made for the DaemonSet of this name and UID (any without one), and is
/// to stay. A mirror pod may have the same owner; nobody can take away what makes it one.
pub fn is_stock_pod(pod: &Value, name: &str, uid: Option<&str>) -> bool {
    let is = |owner: &Value, field: &str, text: &str| owner.get(field).is_some_and(|v| v == text);
    let own = |owner: &Value| {
        is(owner, "kind", "DaemonSet")
            && is(owner, "name", name)
            && uid.is_none_or(|uid| is(owner, "uid", uid))
            && owner.get("controller").is_some_and(|c| *c == true)
    };
    let phase = text_at(pod, &["status", "phase"]);
    !is_mirror_pod(pod)
        && list_at(pod, &["metadata", "ownerReferences"]).iter().any(own)
        && at(pod, &["metadata", "deletionTimestamp"]).is_none()
        && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether a kubelet made the pod, as the image of a static one.
pub fn is_mirror_pod(pod: &Value) -> bool {
    at(pod, &["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}

/// Whose the mirror pod of `instance` is to be. `mode`: how the daemon is wanted here, if it is; `daemon_set`:
/// the definition in force; `stock_acts`: a pod of the stock controller is here.
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
        let ending = Phase::Ending { since: at(0), reason: String::new() };
        for instance in [Instance { phase: ending, ..instance() }, Instance { orphaned: true, ..instance() }] {
            assert_eq!(owner(&instance, STATIC, &daemon_set(), false), MirrorPodOwner::AsItIs);
        }
        assert_eq!(
            owner(&instance(), None, &daemon_set(), false),
            MirrorPodOwner::AsItIs,
            "nobody says that it is wanted"
        );
        let deleting = DaemonSet { deleting: true, ..daemon_set() };
        assert_eq!(owner(&instance(), STATIC, &deleting, false), MirrorPodOwner::AsItIs);
    }
}
