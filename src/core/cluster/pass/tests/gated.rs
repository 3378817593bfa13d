//! DaemonSets whose node selector leaves them to the DaemonSet controller, which writes their history.

use super::*;

fn gated() -> Value {
    let mut daemon = daemon_set("two", json!({}), json!({}));
    daemon["spec"]["template"]["spec"]["nodeSelector"]["daemonlet.dev/static"] = json!("true");
    daemon["metadata"]["generation"] = json!(4);
    daemon
}

#[test]
fn a_history_that_no_daemon_set_controller_writes_is_reported() {
    let mut view = world(json!({}));
    view.put(WatchedKind::DaemonSets, gated());
    let degraded = |plan: &ClusterPlan| condition(plan, "Degraded").1;
    let plan = view.plan(NOW);
    assert_eq!((degraded(&plan).as_str(), plan.troubles.len()), ("AsExpected", 0), "it may be about to");
    let words = condition(&plan, "Progressing").2;
    assert!(words.ends_with("its ControllerRevision is not in the API yet"), "{words}");
    assert!(plan.look_again.is_some_and(|at| at <= NOW + ms(30_000)));
    assert_eq!(degraded(&view.plan(NOW + ms(29_999))), "AsExpected");
    let plan = view.plan(NOW + ms(30_000));
    let (status, reason, words) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NoControllerRevision"));
    assert!(words.contains("start the DaemonSet controller") && words.contains("daemonlet.dev/static"), "{words}");
    assert_eq!((plan.troubles.len(), is_ours(&plan)), (1, false));
    // It is there after all.
    let mut written = revision("two", 3);
    written["metadata"]["name"] = json!("net-as-the-controller-names-it");
    written["data"] = history::data(&gated()["spec"]["template"]);
    view.put(WatchedKind::Revisions, written);
    let plan = view.plan(NOW + ms(31_000));
    assert_eq!((degraded(&plan).as_str(), plan.awaited.len()), ("AsExpected", 0));
}
