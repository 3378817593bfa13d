//! What waits for a trigger.

use crate::core::update_trigger::UpdateTrigger;

use super::*;

/// What the approvals that a plan writes wait for, by node.
fn when(plan: &ClusterPlan) -> Vec<(String, Option<UpdateTrigger>)> {
    let of = |write: &ObjectWrite| match write {
        ObjectWrite::Approvals { node, spec } => Some((node.clone(), spec.approvals.first().map(|a| a.when))),
        _ => None,
    };
    plan.writes.iter().filter_map(of).filter_map(|(node, when)| Some((node, when?))).collect()
}

#[test]
fn a_trigger_makes_approvals_that_stand_and_what_is_not_understood_holds() {
    let mut view = with_one_released(json!({"daemonlet.dev/update": "drain"}));
    let plan = view.plan(NOW);
    let drain = Some(UpdateTrigger::Drain);
    assert_eq!(when(&plan), NODES.map(|node| (node.to_owned(), drain)), "the budget of one bounds what is claimed");
    for write in &plan.writes {
        let ObjectWrite::Approvals { node, spec } = write else { continue };
        let approvals = serde_json::to_value(&spec.approvals).unwrap();
        view.put(WatchedKind::NodeDaemons, report(node, "one", json!({}), approvals));
    }
    let plan = view.plan(NOW + ms(3_600_000));
    assert!(when(&plan).is_empty() && plan.unclaimed.is_empty(), "they have no time limit");
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("RollingOut", "4 of 4 nodes are left: 4 nodes wait until they are drained")
    );
    let withdrawn = |plan: &ClusterPlan| {
        approved(plan).is_empty() && plan.writes.iter().any(|w| matches!(w, ObjectWrite::Approvals { .. }))
    };
    annotate(&mut view, json!({"daemonlet.dev/update": "drain", "daemonlet.dev/paused": "true"}));
    assert!(withdrawn(&view.plan(NOW + ms(3_600_000))));
    annotate(&mut view, json!({"daemonlet.dev/update": "reboot"}));
    let plan = view.plan(NOW + ms(3_600_000));
    assert!(withdrawn(&plan));
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(reason, "Held");
    assert!(message.ends_with("the annotation daemonlet.dev/update is not understood: \"reboot\""), "{message}");
}

#[test]
fn nodes_of_a_zone_and_canary_nodes_that_wait_for_a_trigger_are_counted() {
    for (annotations, wanted) in [
        (json!({"daemonlet.dev/topology-key": "zone"}), ("RollingOut", "1 node waits for `daemonlet approve`")),
        (
            json!({"daemonlet.dev/canary": "zone=1"}),
            (
                "Held",
                "the canary nodes have to be available for a while, and are not: a; 1 node waits for `daemonlet approve`",
            ),
        ),
    ] {
        let mut annotations = annotations;
        annotations["daemonlet.dev/update"] = json!("manual");
        let mut view = with_one_released(annotations);
        for (name, zone) in NODES.iter().zip(["1", "2", "2", "2"]) {
            let mut node = node(name, "True");
            node["metadata"]["labels"]["zone"] = json!(zone);
            view.put(WatchedKind::Nodes, node);
        }
        let plan = view.plan(NOW);
        assert_eq!(when(&plan), [("a".to_owned(), Some(UpdateTrigger::Manual))]);
        for write in &plan.writes {
            let ObjectWrite::Approvals { node, spec } = write else { continue };
            let approvals = serde_json::to_value(&spec.approvals).unwrap();
            view.put(WatchedKind::NodeDaemons, report(node, "one", json!({}), approvals));
        }
        let (_, reason, message) = condition(&view.plan(NOW), "Progressing");
        assert_eq!((reason.as_str(), message), (wanted.0, format!("4 of 4 nodes are left: {}", wanted.1)));
    }
}

#[test]
fn an_approval_from_before_a_trigger_was_written_is_not_reported_as_unclaimed() {
    for trigger in ["drain", "boot", "manual"] {
        let mut view = with_one_released(json!({}));
        let at = (NOW - UNCLAIMED).to_string();
        view.put(WatchedKind::NodeDaemons, report("b", "one", json!({}), approval("two", &at)));
        let unwritten = ClusterWorld { view: view.view.clone(), state: view.state.clone() }.plan(NOW);
        assert_eq!((unwritten.unclaimed.len(), unwritten.passed_over.len()), (1, 1));
        annotate(&mut view, json!({"daemonlet.dev/update": trigger}));
        let plan = view.plan(NOW);
        assert!(
            plan.writes.iter().any(
                |w| matches!(w, ObjectWrite::Approvals { node, spec } if node == "b" && spec.approvals.is_empty())
            )
        );
        assert_eq!((plan.unclaimed.len(), plan.passed_over.len()), (0, 0), "its node waits for the {trigger}");
        view.put(WatchedKind::NodeDaemons, report("b", "one", json!({}), json!([])));
        let plan = view.plan(NOW);
        assert!(when(&plan).contains(&("b".to_owned(), UpdateTrigger::parse(trigger))));
        assert_eq!(condition(&plan, "Degraded").1, "AsExpected");
    }
}

#[test]
fn a_first_instance_that_waits_for_its_approval_waits_for_no_trigger() {
    let annotations = json!({"daemonlet.dev/update": "boot", "daemonlet.dev/first-install": "100%"});
    let mut view = world(annotations);
    view.put(
        WatchedKind::NodeDaemons,
        json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "2"},
        "spec": {"approvals": []}, "status": {"agentVersion": "1", "daemons": []}}),
    );
    let plan = view.plan(NOW);
    assert!(when(&plan).contains(&("a".to_owned(), None)), "{:?}", when(&plan));
    assert!(when(&plan).contains(&("b".to_owned(), Some(UpdateTrigger::Boot))));
}
