//! What is kept of the cluster's DaemonSets while the checks run, and the rights that they need.
//!
//! Owns the bounds: otherwise anyone who may write DaemonSets could fill the memory of this process.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::doctor::api::MOST_RIGHTS;
use crate::core::doctor::api::Right;
use crate::core::doctor::api::rights_of;
use crate::core::doctor::stock::part_examined;
use crate::core::field_filter::is_too_large;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::model::STATIC_GATE;
use crate::core::owners;
use crate::core::placement;
use crate::core::policy::trusts;
use crate::core::status::StatusReport;

/// So many pods of one DaemonSet are named.
const MOST_PODS: usize = 5;

/// The modes of the daemons that the agent knows, by namespace and name.
pub(super) type Modes = BTreeMap<(String, String), Mode>;

pub(super) fn modes(status: Option<&StatusReport>) -> Modes {
    let known = status.into_iter().flat_map(|status| &status.daemons);
    known.filter_map(|d| Some(((d.namespace.clone(), d.name.clone()), d.mode?))).collect()
}

pub(super) fn name_of(set: &Value) -> (String, String) {
    let [namespace, name] = ["namespace", "name"].map(|field| set.str_at(["metadata", field]).to_owned());
    (namespace, name)
}

/// What is kept of the DaemonSets of the cluster, within bounds.
#[derive(Default)]
pub(super) struct FoundDaemonSets {
    /// Those that run here according to the agent, by their UIDs, with pods of the DaemonSet controller.
    pub(super) daemons: BTreeMap<String, (Value, Mode, Vec<String>)>,
    /// The rights that they need.
    pub(super) trusted_rights: BTreeSet<Right>,
    pub(super) tenant_rights: BTreeSet<Right>,
    /// How many of them need others.
    pub(super) left_out: usize,
    /// Those that the DaemonSet controller runs and that do not tolerate the taint of a node that waits.
    pub(super) intolerant: Vec<String>,
}

impl FoundDaemonSets {
    pub(super) fn add(&mut self, set: &Value, modes: &Modes, trusted: &[String]) {
        let (namespace, name) = name_of(set);
        let mode = modes.get(&(namespace.clone(), name.clone())).copied();
        if is_too_large(set) {
            self.left_out += usize::from(mode.is_some());
            if mode != Some(Mode::Static) {
                self.intolerant.push(format!("{namespace}/{name} (perhaps: it is too large to be read)"));
            }
            return;
        }
        let template = set.at(["spec", "template"]).unwrap_or(&Value::Null);
        if let Some(mode) = mode {
            let mut rights = rights_of(&namespace, template);
            if trusts(trusted, &namespace) {
                self.trusted_rights.append(&mut rights);
            } else if self.tenant_rights.len() + rights.len() <= MOST_RIGHTS {
                self.tenant_rights.append(&mut rights);
            } else {
                self.left_out += 1;
            }
            let uid = set.str_at(["metadata", "uid"]).to_owned();
            self.daemons.insert(uid, (part_examined(set), mode, Vec::new()));
        }
        let is_gated = template.at(["spec", "nodeSelector", STATIC_GATE]).is_some();
        let is_stock = !is_gated && mode != Some(Mode::Static);
        if is_stock && !placement::tolerates_starting(template.list_at(["spec", "tolerations"])) {
            self.intolerant.push(format!("{namespace}/{name}"));
        }
    }

    /// A pod of the node: that of the DaemonSet controller, if it made it and it is not ending.
    pub(super) fn add_pod(&mut self, pod: &Value) {
        if owners::is_mirror_pod(pod) || pod.at(["metadata", "deletionTimestamp"]).is_some_and(|at| !at.is_null()) {
            return;
        }
        for owner in pod.list_at(["metadata", "ownerReferences"]) {
            let Some((_, _, pods)) = self.daemons.get_mut(owner.str_at("uid")) else { continue };
            if pods.len() < MOST_PODS {
                pods.push(pod.str_at(["metadata", "name"]).to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_set_of_the_controller_that_does_not_tolerate_the_taint_is_named() {
        let set = |name: &str, spec: Value| json!({"metadata": {"namespace": "a", "name": name}, "spec": {"template": {"spec": spec}}});
        let starting = json!([{"key": "daemonlet.dev/starting", "operator": "Exists"}]);
        let sets = [
            set("plain", json!({})),
            set("handed", json!({"tolerations": []})),
            set("tolerant", json!({"tolerations": starting})),
            set("any", json!({"tolerations": [{"operator": "Exists"}]})),
            set("static", json!({})),
            set("gated", json!({"nodeSelector": {STATIC_GATE: "true"}})),
        ];
        let mode = |name: &str, mode| (("a".to_owned(), name.to_owned()), mode);
        let modes = BTreeMap::from([mode("static", Mode::Static), mode("handed", Mode::Bootstrap)]);
        let mut found = FoundDaemonSets::default();
        sets.iter().for_each(|set| found.add(set, &modes, &[]));
        assert_eq!(found.intolerant, ["a/plain", "a/handed"]);
    }

    #[test]
    fn only_living_pods_of_the_controller_count() {
        let pod = |name: &str, extra: Value| {
            let mut metadata = json!({"name": name, "ownerReferences": [{"uid": "u"}], "deletionTimestamp": null});
            metadata.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"metadata": metadata})
        };
        let mut found = FoundDaemonSets::default();
        found.daemons.insert("u".to_owned(), (Value::Null, Mode::Static, Vec::new()));
        for pod in [
            pod("theirs", json!({})),
            pod("ours", json!({"annotations": {"kubernetes.io/config.mirror": "x"}})),
            pod("ending", json!({"deletionTimestamp": "2026-11-21T10:00:00Z"})),
            pod("another", json!({"ownerReferences": [{"uid": "v"}]})),
        ] {
            found.add_pod(&pod);
        }
        assert_eq!(found.daemons["u"].2, ["theirs"]);
        (0..100).for_each(|number| found.add_pod(&pod(&format!("p{number}"), json!({}))));
        assert_eq!(found.daemons["u"].2.len(), MOST_PODS);
    }

    #[test]
    fn of_the_daemon_sets_of_tenants_so_many_rights_are_asked_for_and_no_template_is_kept() {
        let mut found = FoundDaemonSets::default();
        let mut modes = Modes::new();
        let mut add = |namespace: &str, name: &str, names: usize| {
            modes.insert((namespace.to_owned(), name.to_owned()), Mode::Static);
            let volumes: Vec<Value> =
                (0..names).map(|n| json!({"secret": {"secretName": format!("{name}-{n}")}})).collect();
            let set = json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")},
                "spec": {"template": {"spec": {"volumes": volumes}}}});
            found.add(&set, &modes, &["kube-system".to_owned()]);
        };
        add("team", "a", 100);
        add("team", "b", 100);
        add("team", "c", 10);
        add("kube-system", "d", 300);
        modes.insert(("team".to_owned(), "e".to_owned()), Mode::Static);
        let cut = |name: &str| json!({"metadata": {"namespace": "team", "name": name, "uid": name}, "spec": null, "tooLarge": true});
        found.add(&cut("e"), &modes, &[]);
        assert!(found.tenant_rights.len() <= MOST_RIGHTS);
        let has = |name: &str| found.tenant_rights.iter().any(|right| right.name == name);
        assert!(has("a-0") && !has("b-0") && has("c-0"));
        assert_eq!((found.left_out, found.daemons.len()), (2, 4), "one has no room, and one is too large");
        found.add(&cut("stock"), &modes, &[]);
        assert_eq!(
            found.intolerant,
            ["team/stock (perhaps: it is too large to be read)"],
            "none of ours, which are static"
        );
        assert!(found.trusted_rights.len() > 900, "what is trusted is asked for whatever others need");
        let kept: usize = found.daemons.values().map(|(part, ..)| part.to_string().len()).sum();
        assert!(kept < 2048, "{kept}");
    }
}
