//! What the DaemonSets of a namespace that is not trusted cost.

use crate::core::bounds::DAEMON_SETS;

use super::*;

fn trusting() -> ClusterSnapshot {
    ClusterSnapshot::default().trusting(vec!["trusted".to_owned()])
}

fn of(namespace: &str, name: &str) -> Value {
    let mut daemon = daemon(json!({}));
    daemon["metadata"] = json!({"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
        "resourceVersion": "5", "labels": {"daemonlet.dev/mode": "static"}});
    daemon
}

fn put(view: &mut ClusterSnapshot, daemon: Value) {
    view.take(Change::Present(WatchedKind::DaemonSets, Box::new(daemon), false));
}

/// How many bytes it takes to write down what is known of DaemonSets.
fn size(view: &ClusterSnapshot) -> usize {
    format!("{:?}{:?}", view.daemons, view.outlines).len()
}

#[test]
fn what_a_namespace_has_too_many_of_is_left_out_until_there_is_room() {
    let mut view = trusting();
    let name = |number: usize| format!("d-{number:03}");
    for number in 0..DAEMON_SETS + 3 {
        for namespace in ["tenant", "trusted"] {
            put(&mut view, of(namespace, &name(number)));
        }
    }
    put(&mut view, of("small", "d"));
    let count = |view: &ClusterSnapshot, namespace: &str| view.daemons_in(namespace).count();
    assert_eq!((count(&view, "tenant"), count(&view, "trusted")), (DAEMON_SETS, DAEMON_SETS + 3));
    let first = ObjectKey::new("tenant", name(DAEMON_SETS));
    let uid = format!("tenant-{}", first.name);
    assert_eq!(view.beyond(), [(&first, uid.as_str(), 3)]);
    // What is known stays known when it changes.
    let mut changed = of("tenant", &name(0));
    changed["metadata"]["generation"] = json!(2);
    put(&mut view, changed);
    assert_eq!(view.daemons[&ObjectKey::new("tenant", name(0))].generation, 2);
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(of("tenant", &name(7)))));
    assert_eq!(view.unread().collect::<Vec<_>>(), [&(WatchedKind::DaemonSets, first.clone())]);
    view.take(Change::Read(WatchedKind::DaemonSets, Box::new(of("tenant", &first.name))));
    assert!(view.daemons.contains_key(&first) && view.unread().next().is_none());
    assert_eq!(view.beyond()[0].2, 2);
    // An agent's report that it runs a DaemonSet that is left out does not make it be read.
    let other = name(DAEMON_SETS + 1);
    let claimed = json!([{"namespace": "tenant", "name": other, "uid": format!("tenant-{other}"), "mode": "static"}]);
    view.put(WatchedKind::NodeDaemons, json!({"metadata": {"name": "a", "uid": "a"}, "status": {"daemons": claimed}}));
    assert!(view.unread().next().is_none());
}

#[test]
fn what_is_over_the_bounds_of_a_tenant_is_refused_and_not_kept() {
    let term = json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]});
    let terms = json!({"nodeSelectorTerms": vec![term; 5_000]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let many: Value = (0..5_000).map(|number| (format!("label-{number}"), json!("x"))).collect();
    let long = json!({"x": "x".repeat(300_000)});
    let large = |namespace: &str| {
        let mut large = [of(namespace, "terms"), of(namespace, "labels"), of(namespace, "annotations")];
        large[0]["spec"]["template"]["spec"]["affinity"] = affinity.clone();
        large[1]["metadata"]["labels"].as_object_mut().unwrap().extend(many.as_object().unwrap().clone());
        large[2]["metadata"]["annotations"] = long.clone();
        large
    };
    let mut view = trusting();
    large("tenant").into_iter().for_each(|daemon| put(&mut view, daemon));
    let refused = |view: &ClusterSnapshot, name: &str| {
        let daemon = &view.daemons[&ObjectKey::new("tenant", name)];
        assert_eq!(daemon.daemon_set.labels.len(), 1, "the mode is kept: the refusal is to be reported");
        daemon.refused.clone().unwrap_or_default()
    };
    assert!(refused(&view, "terms").contains("spec.template.spec.affinity: has 5000 terms; at most 64 are allowed"));
    assert!(refused(&view, "labels").contains("metadata.labels: has 5002 values; at most 512 are allowed"));
    assert!(refused(&view, "annotations").contains("metadata.annotations: has 300001 bytes"));
    assert!(size(&view) < 12_000, "{} bytes", size(&view));
    // The API server bounds annotations itself.
    large("trusted").into_iter().take(2).for_each(|daemon| put(&mut view, daemon));
    assert_eq!(view.daemons_in("trusted").count(), 2);
    assert!(view.daemons_in("trusted").all(|daemon| daemon.refused.is_none()));
}

/// A DaemonSet with an argument of so many KiB.
fn large(namespace: &str, number: usize, kibibytes: usize) -> Value {
    let mut large = of(namespace, &format!("d-{number:03}"));
    large["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(kibibytes << 10)]);
    large["metadata"]["generation"] = json!(kibibytes);
    large
}

/// The numbers of those that are known whole.
fn whole(view: &ClusterSnapshot, namespace: &str) -> Vec<usize> {
    let known = view.daemons_in(namespace).filter(|daemon| daemon.refused.is_none());
    known.map(|daemon| daemon.daemon_set.key.name[2..].parse().unwrap()).collect()
}

fn unread(view: &ClusterSnapshot) -> Vec<String> {
    view.unread_daemons().map(ToString::to_string).collect()
}

#[test]
fn the_daemon_sets_of_a_tenant_have_bounded_room_in_a_coordinator_and_those_that_are_known_come_first() {
    let mut view = trusting();
    for number in (0..30).rev() {
        put(&mut view, large("tenant", number, 200));
        put(&mut view, large("trusted", number, 200));
    }
    assert_eq!(whole(&view, "trusted").len(), 30);
    assert_eq!(whole(&view, "tenant"), (10..30).collect::<Vec<_>>(), "4 MiB");
    let refused = |view: &ClusterSnapshot, number: usize| {
        let key = ObjectKey::new("tenant", format!("d-{number:03}"));
        (view.daemons[&key].refused.clone().unwrap_or_default(), view.daemons[&key].template.value())
    };
    let (why, template) = refused(&view, 9);
    assert!(why.contains("the DaemonSets of namespace tenant would take more than 4194304 bytes"), "{why}");
    assert_eq!((template, unread(&view)), (Value::Null, vec![]));
    // What grows beyond the room stays at what it was, and what makes room lets the first in.
    put(&mut view, large("tenant", 10, 150));
    assert_eq!(unread(&view), Vec::<String>::new(), "not enough for another");
    put(&mut view, large("tenant", 11, 1));
    assert_eq!(unread(&view), ["tenant/d-000"]);
    let read = |view: &mut ClusterSnapshot, daemon| view.take(Change::Read(WatchedKind::DaemonSets, Box::new(daemon)));
    read(&mut view, large("tenant", 0, 200));
    assert_eq!((whole(&view, "tenant").len(), unread(&view)), (21, vec![]));
    put(&mut view, large("tenant", 10, 250));
    let (why, template) = refused(&view, 10);
    assert!(why.contains("would take more than"), "{why}");
    assert_eq!(template, large("tenant", 10, 150)["spec"]["template"]);
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(large("tenant", 12, 200))));
    assert_eq!(unread(&view), ["tenant/d-001"]);
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(large("tenant", 1, 200))));
    assert_eq!(unread(&view), ["tenant/d-002"], "it is gone");
    put(&mut view, large("tenant", 10, 150));
    assert!(whole(&view, "tenant").contains(&10));
}

#[test]
fn all_tenants_have_bounded_room_in_a_coordinator_together_and_each_has_a_share() {
    let mut view = trusting();
    for tenant in ["a", "b", "c", "d", "e"] {
        (0..25).for_each(|number| put(&mut view, large(tenant, number, 200)));
    }
    assert_eq!(["a", "b", "c", "d", "e"].map(|tenant| whole(&view, tenant).len()), [20, 20, 20, 20, 1]);
    let key = ObjectKey::new("e", "d-001");
    assert!(view.daemons[&key].refused.as_ref().unwrap().contains("more than 16777216 (each may have 262144)"));
    // Annotations of what is refused take none of it.
    let mut wrong = of("e", "wrong");
    wrong["spec"]["template"]["spec"]["restartPolicy"] = json!("Sometimes");
    wrong["metadata"]["annotations"] = json!({"x": "x".repeat(200 << 10)});
    put(&mut view, wrong);
    let daemon = &view.daemons[&ObjectKey::new("e", "wrong")];
    assert!(daemon.refused.as_ref().unwrap().contains("restartPolicy") && daemon.daemon_set.annotations.is_empty());
    for number in 0..2 {
        view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(large("b", number, 200))));
    }
    assert_eq!(unread(&view), ["b/d-020"]);
}

#[test]
fn of_a_namespace_its_node_selector_is_kept_once_for_all_its_daemon_sets() {
    let mut view = trusting();
    let long = "x".repeat(100_000);
    let selector = format!("a={}", "b".repeat(1_000));
    let annotations = json!({"x": long, "openshift.io/node-selector": selector});
    view.put(WatchedKind::Namespaces, json!({"metadata": {"name": "tenant", "annotations": annotations}}));
    assert!(format!("{:?}", view.namespaces).len() < 1_200);
    (0..3).for_each(|number| put(&mut view, large("tenant", number, 1)));
    let known = view.namespaces["tenant"].as_ref().unwrap();
    let is_shared = |daemon: &WatchedDaemon| daemon.selector.as_ref().is_some_and(|own| Arc::ptr_eq(own, known));
    assert!(view.daemons.values().all(is_shared));
}

#[test]
fn a_template_is_kept_as_text_and_what_placement_reads_as_values() {
    let mut daemon = of("trusted", "d");
    daemon["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    daemon["spec"]["template"]["spec"]["containers"][0]["args"] = json!(vec!["x"; 1_000]);
    let mut view = trusting();
    put(&mut view, daemon.clone());
    let known = view.daemons.values().next().unwrap();
    assert_eq!(known.daemon_set.template, json!({"spec": {"nodeSelector": {"zone": "a"}}}));
    assert_eq!(known.template.value(), daemon["spec"]["template"]);
}

#[test]
fn what_is_not_even_read_is_refused_and_what_it_was_before_stays() {
    let mut view = trusting();
    put(&mut view, of("tenant", "d"));
    let known = view.daemons.values().next().unwrap().daemon_set.template.clone();
    let mut cut = of("tenant", "d");
    (cut["spec"], cut["status"]) = (json!(["spec", "has more than 524288 bytes as JSON"]), json!({"numberReady": 3}));
    put(&mut view, cut);
    let daemon = view.daemons.values().next().unwrap();
    assert!(daemon.refused.as_ref().unwrap().contains("spec: has more than 524288 bytes as JSON"));
    assert_eq!((&daemon.daemon_set.template, &daemon.status["numberReady"]), (&known, &json!(3)));
    put(&mut view, of("tenant", "d"));
    let daemon = view.daemons.values().next().unwrap();
    assert_eq!(daemon.refused, None);
}

#[test]
fn the_status_of_a_tenants_daemon_sets_takes_of_its_room() {
    let with = |namespace: &str, name: &str, conditions: usize| {
        let mut daemon = of(namespace, name);
        daemon["status"] =
            json!({"numberReady": 1, "conditions": vec![json!({"type": "a", "status": "b"}); conditions]});
        daemon
    };
    let mut view = trusting();
    for number in 0..20 {
        put(&mut view, with("tenant", &format!("d-{number:03}"), 20));
    }
    assert_eq!(whole(&view, "tenant").len(), 20, "what is usual takes none");
    for namespace in ["tenant", "trusted"] {
        for number in 0..20 {
            put(&mut view, with(namespace, &format!("d-{number:03}"), 2_000));
        }
    }
    let kept = |view: &ClusterSnapshot, namespace: &str| {
        view.daemons_in(namespace).filter(|daemon| daemon.status["numberReady"] == 1).count()
    };
    assert_eq!((kept(&view, "trusted"), kept(&view, "tenant")), (20, 2));
    let refused = view.daemons_in("tenant").filter(|daemon| daemon.refused.is_some()).count();
    assert_eq!(refused, 18, "the rest is refused");
    // One that becomes small again is coordinated again.
    put(&mut view, with("tenant", "d-019", 1));
    assert!(whole(&view, "tenant").contains(&19));
}
