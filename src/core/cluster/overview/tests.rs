use serde_json::json;

use super::*;
use crate::core::status::LeftAloneCause;

fn node(name: &str, ready: bool, taint: bool) -> Value {
    let taints = if taint { json!([{"key": "only", "effect": "NoSchedule"}]) } else { json!([]) };
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]}})
}

fn daemon_set(image: &str) -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": "net", "uid": "u", "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "x", "image": image}]}}}})
}

fn report(node: &str, phase: &str, revision: &str, ready: bool) -> Value {
    let mut instance = json!({"pod": format!("net-x-{node}"), "revision": revision, "created": "2026-11-21T10:00:00Z"});
    if ready {
        instance["readySince"] = json!("2026-11-21T10:00:10Z");
    }
    json!({"metadata": {"name": node}, "status": {"agentVersion": "0.1.0", "ready": "1/1", "daemons": [
        {"namespace": "kube-system", "name": "net", "uid": "u", "mode": "static", "phase": phase,
            "message": if phase == "failing" { "it crashes" } else { "" }, "instances": [instance]}]}})
}

#[test]
fn a_rollout_is_counted_over_the_nodes_that_have_a_part_in_it() {
    let wanted =
        ClusterOverview::new(&[], &[daemon_set("net:2")], &[], &[]).daemons.into_values().next().unwrap().revision;
    let cluster = ClusterOverview::new(
        &[
            node("n1", true, false),
            node("n2", true, false),
            node("n3", false, false),
            node("n4", true, false),
            node("n5", true, true),
            node("n6", true, false),
        ],
        &[daemon_set("net:2")],
        &[
            report("n1", "running", &wanted, true),
            report("n2", "failing", &wanted, false),
            report("n3", "running", "old", true),
            json!({"metadata": {"name": "n6"}}),
        ],
        &[],
    );
    let overview = cluster.overview(None);
    let rollout = &overview.daemon_sets[0];
    assert_eq!((rollout.desired, rollout.updated, rollout.updated_ready, rollout.ready), (5, 2, 1, 1));
    assert_eq!(rollout.revision, wanted);
    let places: Vec<(&str, &str, bool, &str)> =
        rollout.nodes.iter().map(|p| (p.node.as_str(), p.word(), p.is_bad(), p.reason.as_str())).collect();
    assert_eq!(
        places,
        [
            ("n1", "running", false, ""),
            ("n2", "failing", true, "it crashes"),
            ("n3", "running", false, "the node is not Ready"),
            ("n4", "missing", true, "no agent: the node has no NodeDaemons"),
            ("n6", "missing", true, "the node's agent says nothing of it: see `daemonlet explain` there"),
        ]
    );
    assert!(cluster.overview(Some("default")).daemon_sets.is_empty());
}

#[test]
fn what_a_node_has_claimed_takes_away_what_runs_there() {
    let count = |claim: &str, surge: u32| {
        let mut daemon = daemon_set("net:2");
        let budget = json!({"maxUnavailable": 1 - surge, "maxSurge": surge});
        daemon["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": budget});
        let of = |revision: &str| {
            let mut claims = report("n1", "running", revision, true);
            claims["status"]["daemons"][0]["replacing"] = json!(claim);
            let daemons = [daemon.clone()];
            let cluster = ClusterOverview::new(&[node("n1", true, false)], &daemons, &[claims], &[]);
            let rollout = cluster.overview(None).daemon_sets.remove(0);
            (rollout.updated, rollout.ready, rollout.revision)
        };
        let wanted = of("").2;
        let (updated, ready, _) = of(&wanted);
        (updated, ready)
    };
    assert_eq!(count("undone", 0), (0, 0), "it goes on to a revision that is undone");
    assert_eq!(count("undone", 1), (0, 1), "the old one of a surge serves");
}

#[test]
fn on_the_node_of_a_silent_agent_the_mirror_pod_says_who_is_ready() {
    let nodes: Vec<Value> = ["n1", "n2", "n3", "n4"].map(|name| node(name, true, false)).into();
    let mut odd = report("n4", "running", "old", true);
    odd["status"]["daemons"][0]["instances"][0]["pod"] = json!("../../secrets/a");
    let reports = ["n1", "n2", "n3"].map(|name| report(name, "running", "old", true));
    let mut cluster = ClusterOverview::new(&nodes, &[], &[&reports[..], &[odd]].concat(), &[]);
    let lease = |name: &str, time: &str| {
        let renewed = format!("2026-11-21T10:{time}.000000Z");
        json!({"metadata": {"name": name}, "spec": {"renewTime": renewed}})
    };
    // n3 has none, as an agent without the right to write it.
    let leases = [lease("n1", "12:00"), lease("n2", "08:40"), lease("n4", "01:00")];
    cluster.take_leases(&leases, None);
    assert_eq!(cluster.mirror_pods(), [], "no node's clock speaks for others; and a path is no name");
    cluster.take_leases(&leases, Some("2026-11-21T10:10:10Z".parse().unwrap()));
    assert_eq!(cluster.mirror_pods(), [], "clocks differ");
    cluster.take_leases(&leases, Some("2026-11-21T10:10:11Z".parse().unwrap()));
    let places = |cluster: &ClusterOverview| cluster.overview(None).daemon_sets.remove(0).nodes;
    let ready = |cluster: &ClusterOverview| places(cluster).iter().map(|p| (p.ready, p.is_bad())).collect::<Vec<_>>();
    assert_eq!(ready(&cluster), [(true, false), (false, true), (true, false), (false, true)]);
    let lookup = cluster.mirror_pods().remove(0);
    assert_eq!((lookup.node.as_str(), lookup.pod.to_string().as_str()), ("n2", "kube-system/net-x-n2"));
    let pod = |node: &str| {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        json!({"spec": {"nodeName": node}, "status": {"conditions": conditions}})
    };
    cluster.take_mirror_pod(lookup.clone(), &pod("n1"));
    assert!(!ready(&cluster)[1].0, "another node's");
    cluster.take_mirror_pod(lookup, &pod("n2"));
    assert_eq!(ready(&cluster)[1], (true, true));
    assert!(
        places(&cluster)[1].reason.starts_with("the node's agent has not renewed its Lease since 2026-11-21T10:08:40")
    );
    // A node that lists one pod a thousand times has it looked up once, and after the first of others.
    let mut odd = report("n1", "running", "old", true);
    let daemon = odd["status"]["daemons"][0].clone();
    odd["status"]["daemons"] = json!(vec![daemon; 1_000]);
    let mut cluster = ClusterOverview::new(&nodes, &[], &[odd, report("n2", "running", "old", true)], &[]);
    cluster.take_leases(&[lease("n1", "01:00"), lease("n2", "01:00")], Some("2026-11-21T12:00:00Z".parse().unwrap()));
    let looked_up: Vec<String> = cluster.mirror_pods().into_iter().map(|lookup| lookup.node).collect();
    assert_eq!(looked_up, ["n1", "n2"]);
    cluster.take_leases(&[lease("n1", "01:00"), lease("n2", "08:00"), lease("n3", "08:10")], None);
    assert!(cluster.nodes["n1"].silent_since.is_some() && cluster.nodes["n2"].silent_since.is_none());
}

#[test]
fn a_node_whose_daemon_the_stock_controller_runs_lacks_nothing() {
    let mut stands_by = report("n1", "standingBy", "", false);
    stands_by["status"]["daemons"][0]["instances"] = json!([]);
    let cluster = ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:2")], &[stands_by], &[]);
    let rollout = &cluster.overview(None).daemon_sets[0];
    assert_eq!((rollout.desired, rollout.updated, rollout.ready), (0, 0, 0));
    assert_eq!((rollout.nodes[0].word(), rollout.nodes[0].is_bad()), ("standing by", false));
}

#[test]
fn what_only_folders_know_is_shown_too_and_what_is_not_ours_is_not() {
    let mut stock = daemon_set("stock:1");
    stock["metadata"]["name"] = json!("stock");
    stock["metadata"]["labels"] = json!({});
    let cluster =
        ClusterOverview::new(&[node("n1", true, false)], &[stock], &[report("n1", "running", "any", true)], &[]);
    let overview = cluster.overview(None);
    let shown: Vec<_> =
        overview.daemon_sets.iter().map(|r| (r.name.as_str(), r.in_api, r.updated, r.desired)).collect();
    assert_eq!(shown, [("net", false, 1, 1)]);
}

#[test]
fn a_misspelt_mode_is_shown_once_for_all_daemon_sets_that_no_agent_runs() {
    let of_mode = |name: String, mode: &str| {
        let mut object = daemon_set("net:1");
        (object["metadata"]["name"], object["metadata"]["uid"]) = (json!(name), json!("u"));
        object["metadata"]["labels"] = json!({"daemonlet.dev/mode": mode});
        object
    };
    let mut objects: Vec<Value> = (0..5).map(|n| of_mode(format!("x-{n}"), "statik")).collect();
    objects.extend([of_mode("net".to_owned(), "Static"), of_mode("good".to_owned(), "static")]);
    let reports = [report("n1", "running", "any", true)];
    let cluster = ClusterOverview::new(&[node("n1", true, false)], &objects, &reports, &[]);
    let overview = cluster.overview(None);
    let shown: Vec<&str> = overview.daemon_sets.iter().map(|rollout| rollout.name.as_str()).collect();
    assert_eq!(shown, ["good", "net"]);
    let [alone] = overview.left_alone.as_slice() else { panic!("{:?}", overview.left_alone) };
    assert_eq!((alone.cause, alone.count), (LeftAloneCause::UnknownMode, 5));
    assert_eq!(alone.daemon_sets, ["kube-system/x-0", "kube-system/x-1", "kube-system/x-2"]);
    assert!(alone.hint.ends_with("daemonset x-0 daemonlet.dev/mode=static"), "{}", alone.hint);
    assert!(cluster.overview(Some("default")).left_alone.is_empty());
}

#[test]
fn claims_and_failures_are_reasons() {
    let mut replacing = report("n1", "replacing", "old", true);
    replacing["status"]["daemons"][0]["replacing"] = json!("new");
    replacing["status"]["daemons"][0]["failed"] = json!({"revision": "bad", "cause": "image", "message": "not found"});
    let cluster = ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:2")], &[replacing], &[]);
    let overview = cluster.overview(None);
    assert_eq!(
        overview.daemon_sets[0].nodes[0].reason,
        "is being replaced by revision new; revision bad failed here (image: not found)"
    );
}

#[test]
fn a_daemon_that_fails_says_so_once() {
    let mut failing = report("n1", "failing", "bad", false);
    failing["status"]["daemons"][0]["message"] = json!("image: not found");
    failing["status"]["daemons"][0]["failed"] = json!({"revision": "bad", "cause": "image", "message": "not found"});
    let reason = |report: &serde_json::Value| {
        let cluster =
            ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:2")], std::slice::from_ref(report), &[]);
        cluster.overview(None).daemon_sets[0].nodes[0].reason.clone()
    };
    assert_eq!(reason(&failing), "image: not found");
    failing["status"]["daemons"][0]["failed"]["revision"] = json!("another");
    assert_eq!(reason(&failing), "image: not found; revision another failed here (image: not found)");
}

#[test]
fn a_namespace_keeps_its_daemons_off_nodes() {
    let namespace = json!({"metadata": {"name": "kube-system",
        "annotations": {"scheduler.alpha.kubernetes.io/node-selector": "zone=a"}}});
    let cluster = ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:2")], &[], &[namespace]);
    assert_eq!(cluster.overview(None).daemon_sets[0].desired, 0);
}

#[test]
fn what_an_approved_revision_waits_for_is_said() {
    let reason = |when: Value, more: Value| {
        let mut report = report("n1", "running", "old", true);
        report["spec"] = json!({"approvals": [{"namespace": "kube-system", "name": "net", "uid": "u", "revision": "new",
            "approvedAt": "2026-11-21T10:00:00Z", "when": when}]});
        for (field, value) in more.as_object().into_iter().flatten() {
            report["status"]["daemons"][0][field] = value.clone();
        }
        let cluster = ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:2")], &[report], &[]);
        cluster.overview(None).daemon_sets[0].nodes[0].reason.clone()
    };
    let drain = "revision new waits: the node has to be drained or cordoned first (daemonlet.dev/update: drain)";
    assert_eq!(reason(json!("drain"), json!({})), drain);
    let staged = reason(json!("boot"), json!({"staged": "new"}));
    assert!(staged.ends_with("at the next boot of the node (daemonlet.dev/update: boot); its images are on the node"));
    assert_eq!(reason(json!("drain"), json!({"replacing": "new"})), "is being replaced by revision new");
    assert_eq!(reason(Value::Null, json!({})), "", "one that waits for nothing");
}

#[test]
fn a_report_of_very_many_daemons_is_shown_in_its_time() {
    let daemons: Vec<Value> =
        (0..100_000).rev().map(|n| json!({"namespace": "a", "name": format!("{n:06}")})).collect();
    let report = json!({"metadata": {"name": "n1"}, "status": {"daemons": daemons}});
    let began = std::time::Instant::now();
    let overview = ClusterOverview::new(&[node("n1", true, false)], &[], &[report], &[]).overview(None);
    assert_eq!(overview.daemon_sets.len(), 100_000);
    assert!(overview.daemon_sets.iter().all(|rollout| rollout.nodes.len() == 1));
    // Each in turn among all of them takes minutes.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn of_two_daemons_of_one_name_the_one_of_the_uid_counts() {
    let with =
        |uid: &str, message: &str| json!({"namespace": "kube-system", "name": "net", "uid": uid, "message": message});
    let other = json!({"namespace": "kube-system", "name": "a"});
    let message = |daemons: Value| {
        let report = json!({"metadata": {"name": "n1"}, "status": {"daemons": daemons}});
        let cluster = ClusterOverview::new(&[node("n1", true, false)], &[daemon_set("net:1")], &[report], &[]);
        cluster.report(&cluster.nodes["n1"], &ObjectKey::new("kube-system", "net")).map(|d| d.message.clone())
    };
    assert_eq!(message(json!([with("v", "old"), other, with("u", "new")])).as_deref(), Some("new"));
    assert_eq!(message(json!([with("", "any"), other])).as_deref(), Some("any"));
    assert_eq!(message(json!([with("v", "old"), other])), None);
}

#[test]
fn of_a_daemon_set_no_more_is_kept_than_placement_reads_and_a_large_one_is_named() {
    let mut large = daemon_set("net:1");
    large["spec"]["template"]["spec"]["containers"][0]["env"] =
        (0..9_000).map(|n| json!({"name": format!("e{n}"), "value": "v"})).collect();
    large["metadata"]["annotations"] = json!({"x": "y".repeat(200 << 10), "daemonlet.dev/paused": "true"});
    let add = |object: &Value| {
        let mut cluster = ClusterOverview::default();
        cluster.add(object.clone());
        cluster
    };
    let kept = add(&large);
    let daemon = &kept.daemons[&ObjectKey::new("kube-system", "net")];
    assert!(daemon.weight() < 4096, "{daemon:?}");
    assert!(is_paused(&daemon.daemon_set) && kept.too_large.is_empty());
    assert_ne!(daemon.revision, add(&daemon_set("net:1")).daemons.into_values().next().unwrap().revision);
    large["spec"]["template"]["spec"]["tolerations"] = json!(vec![json!({"operator": "Exists"}); 1_000]);
    let cut = json!({"metadata": {"name": "net", "namespace": "kube-system"}, "spec": null, "status": null, "tooLarge": true});
    for object in [large, cut] {
        let cluster = add(&object);
        assert_eq!((cluster.daemons.len(), cluster.too_large), (0, vec![ObjectKey::new("kube-system", "net")]));
    }
}
