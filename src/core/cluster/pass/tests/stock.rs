//! What agents report of a DaemonSet controller at work, and when it is believed.

use super::*;

fn stock_pod(name: &str, node: &str, owner: &str, annotations: Value) -> Option<Value> {
    let owner = json!([{"kind": "DaemonSet", "name": "net", "uid": owner, "controller": true}]);
    Some(
        json!({"metadata": {"namespace": "kube-system", "name": name, "ownerReferences": owner, "annotations": annotations},
        "spec": {"nodeName": node}}),
    )
}

#[test]
fn a_report_that_a_stock_controller_acts_counts_once_its_pod_was_seen() {
    let tells = |pod: &str| report("b", "one", json!({"stockPod": pod}), json!([]));
    let none = json!({});
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    for (pod, holds) in [
        (None, false),
        (stock_pod("net-x", "b", "other", none.clone()), false),
        (stock_pod("net-x", "a", "u", none.clone()), false),
        (stock_pod("net-y", "b", "u", none.clone()), false),
        (stock_pod("net-x", "b", "u", mirror), false),
        (stock_pod("net-x", "b", "u", none.clone()), true),
    ] {
        let mut view = world(json!({}));
        view.put(WatchedKind::NodeDaemons, tells("net-x"));
        let plan = view.plan(NOW);
        let claim = plan.lookups[0].clone();
        assert_eq!((claim.node.as_str(), claim.pod.as_str(), plan.lookups.len()), ("b", "net-x", 1));
        assert!(is_ours(&plan), "the pod was not looked up yet");
        assert_eq!(view.plan(NOW + ms(1)).lookups, [], "it is asked for already");
        view.state.claims.answered(claim, pod.as_ref());
        let plan = view.plan(NOW + ms(2));
        assert_eq!(!is_ours(&plan), holds, "{pod:?}");
        assert!(!plan.writes.iter().any(|w| matches!(w, ObjectWrite::Revision { .. })));
        // The pod may go while its agent still reports it.
        let again = plan.look_again.unwrap();
        assert!(again <= NOW + ms(30_000), "{again}");
        let lookups = view.plan(NOW + ms(30_000)).lookups;
        view.state.claims.answered(lookups[0].clone(), None);
        assert!(is_ours(&view.plan(NOW + ms(30_001))), "{pod:?}");
    }
}

#[test]
fn of_many_that_lie_one_that_does_not_is_found() {
    let mut view = world(json!({}));
    for number in 0..20 {
        let name = format!("m{number:02}");
        view.put(WatchedKind::Nodes, node(&name, "True"));
        view.put(WatchedKind::NodeDaemons, report(&name, "one", json!({"stockPod": format!("net-{name}")}), json!([])));
    }
    let mut asked = BTreeSet::new();
    for round in 0..3 {
        let plan = view.plan(NOW + ms(round));
        assert!(plan.lookups.len() <= 8 && is_ours(&plan));
        asked.extend(plan.lookups.iter().map(|claim| claim.node.clone()));
        for claim in plan.lookups {
            let pod = (claim.node == "m19").then(|| stock_pod(&claim.pod, "m19", "u", json!({}))).flatten();
            view.state.claims.answered(claim, pod.as_ref());
        }
    }
    assert_eq!(asked.len(), 20);
    let plan = view.plan(NOW + ms(3));
    assert!(!is_ours(&plan));
    assert!(condition(&plan, "Degraded").2.contains("pod net-m19 of a DaemonSet controller is on node m19"));
    let plan = view.plan(NOW + ms(40_000));
    assert_eq!(plan.lookups.len(), 1, "the one that holds is enough");
    view.put(WatchedKind::NodeDaemons, report("m19", "one", json!({}), json!([])));
    assert!(is_ours(&view.plan(NOW + ms(40_001))), "its agent no longer reports it");
}
