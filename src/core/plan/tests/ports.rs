use super::*;

fn on_port(image: &str, port: u64) -> DaemonSet {
    let mut daemon_set = daemon_set(image);
    daemon_set.template["spec"]["hostNetwork"] = json!(true);
    daemon_set.template["spec"]["containers"][0]["ports"] = json!([{"containerPort": port}]);
    daemon_set
}

fn surging(image: &str, port: u64) -> DaemonSet {
    let mut daemon_set = on_port(image, port);
    daemon_set.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    daemon_set
}

impl Bench {
    fn runs(daemon_set: &DaemonSet) -> Self {
        let mut bench = Self::new();
        bench.pass(&wanted(daemon_set));
        bench.world.ready.insert(format!("uid-{}-0", image(daemon_set)), NOW);
        bench
    }

    fn held(&mut self, port: u64, stays: bool) {
        let port = HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port };
        self.world.held_ports = vec![("kube-system/other".into(), vec![port], stays)];
    }
}

#[test]
fn a_surge_onto_the_same_host_port_is_reported_and_leaves_the_old_instance() {
    let mut bench = Bench::runs(&surging("a", 9100));
    let desired = wanted(&surging("b", 9100));
    assert_eq!(bench.pass(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.state, summary.pod.as_str(), summary.ready), (State::Waiting, "net-0", Some(true)));
    assert!(summary.reasons.to_string().contains("both use host port TCP 9100"), "{}", summary.reasons);
    assert!(summary.hints.contains(&Hint::NoSurge), "{:?}", summary.hints);
    assert_eq!(bench.pass(&wanted(&surging("b", 9101))), ["start uid-b-1"]);
    assert_eq!(bench.pass(&wanted(&on_port("c", 9100)))[0], "end uid-b-1", "without surge the old ones go first");
}

#[test]
fn nothing_is_claimed_for_a_port_that_another_has_and_a_claim_is_given_back() {
    let of_api = |mut daemon_set: DaemonSet| {
        daemon_set.source = Source::Api;
        daemon_set
    };
    let mut bench = Bench::runs(&of_api(on_port("a", 9100)));
    let desired = wanted(&of_api(on_port("b", 9200)));
    bench.held(9200, true);
    for permission in [Permission::Approved, Permission::Claimed] {
        bench.world.permission = Some(permission);
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!((plan.replacing, plan.summary.state), (None, State::Waiting));
        assert!(plan.summary.reasons.to_string().contains("host port TCP 9200 belongs to"), "{}", plan.summary.reasons);
    }
    bench.held(9200, false);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"], "it still has it");
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"), "the old one has ended for this claim");

    let mut bench = Bench::runs(&of_api(surging("a", 9100)));
    let desired = wanted(&of_api(surging("b", 9100)));
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert_eq!(plan.replacing, None);
    assert!(plan.summary.reasons.to_string().contains("both use host port TCP 9100"), "{}", plan.summary.reasons);
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.plan(&desired).replacing, None);
}

#[test]
fn a_port_of_another_daemon_is_waited_for() {
    let mut bench = Bench::new();
    bench.held(9100, true);
    let desired = wanted(&on_port("a", 9100));
    assert_eq!(bench.pass(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!(summary.state, State::Waiting);
    assert!(
        summary.reasons.to_string().contains("host port TCP 9100 belongs to kube-system/other"),
        "{}",
        summary.reasons
    );
    bench.world.held_ports.clear();
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);

    bench.held(9200, true);
    let desired = wanted(&on_port("b", 9200));
    assert_eq!(bench.pass(&desired), NONE, "the old instance stays");
    bench.held(9200, false);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "two that swap their ports do not wait for each other");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"], "it still has it");
    bench.world.held_ports.clear();
    assert_eq!(bench.pass(&desired), ["start uid-b-1"]);
}

#[test]
fn what_policy_refuses_does_not_wait_for_a_port() {
    let mut bench = Bench::new();
    bench.held(9100, true);
    bench.world.forbids = true;
    let desired = wanted(&on_port("a", 9100));
    assert_eq!(bench.pass(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!(summary.state, State::Refused, "{}", summary.reasons);
    assert_eq!(summary.refused_field.as_deref(), Some("image"));
    assert!(summary.hints.is_empty(), "another port would not help: {:?}", summary.hints);
}
