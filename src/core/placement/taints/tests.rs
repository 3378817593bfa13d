//! Upstream's cases: TestTolerationToleratesTaint, and the rules of AddOrUpdateTolerationInPodSpec.

use super::*;

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: value.into(), effect: effect.into() }
}

fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Value {
    json!({"key": key, "operator": operator, "value": value, "effect": effect})
}

#[test]
fn tolerates_taint() {
    let table = [
        (toleration("foo", "Exists", "", NO_SCHEDULE), taint("foo", "", NO_SCHEDULE), true),
        (toleration("foo", "Exists", "", NO_SCHEDULE), taint("foo", "bar", NO_SCHEDULE), true),
        (toleration("", "Exists", "", NO_SCHEDULE), taint("foo", "bar", NO_SCHEDULE), true),
        (toleration("foo", "Equal", "bar", NO_SCHEDULE), taint("foo", "bar", NO_SCHEDULE), true),
        (toleration("foo", "Equal", "value1", NO_SCHEDULE), taint("foo", "value2", NO_SCHEDULE), false),
        (toleration("foo", "Equal", "bar", NO_SCHEDULE), taint("foo", "bar", NO_EXECUTE), false),
        (toleration("foo", "", "bar", NO_SCHEDULE), taint("foo", "bar", NO_SCHEDULE), true),
        (toleration("foo", "Exists", "", ""), taint("foo", "bar", NO_EXECUTE), true),
        (toleration("foo", "Exists", "", ""), taint("other", "bar", NO_EXECUTE), false),
        (toleration("", "", "bar", ""), taint("foo", "bar", NO_EXECUTE), true),
        (toleration("foo", "In", "bar", NO_SCHEDULE), taint("foo", "bar", NO_SCHEDULE), false),
        (json!({"operator": "Exists", "key": null}), taint("foo", "bar", NO_SCHEDULE), true),
        (json!({}), taint("foo", "", NO_SCHEDULE), true),
        // Comparison operators are an alpha feature: off, they never match.
        (toleration("sla", "Gt", "750", NO_SCHEDULE), taint("sla", "950", NO_SCHEDULE), false),
        (toleration("sla", "Gt", "950", NO_SCHEDULE), taint("sla", "800", NO_SCHEDULE), false),
        (toleration("sla", "Lt", "950", NO_SCHEDULE), taint("sla", "800", NO_SCHEDULE), false),
        (toleration("sla", "Lt", "800", NO_SCHEDULE), taint("sla", "950", NO_SCHEDULE), false),
        (toleration("sla", "Gt", "950", NO_SCHEDULE), taint("sla", "high", NO_SCHEDULE), false),
    ];
    for (toleration, taint, expected) in table {
        assert_eq!(tolerates(&toleration, &taint), expected, "{toleration} {taint:?}");
    }
}

#[test]
fn the_automatic_ones_in_upstreams_order() {
    let text =
        |t: &Value| format!("{}:{}", t["key"].as_str().expect("a key"), t["effect"].as_str().expect("an effect"));
    let six = [
        "node.kubernetes.io/not-ready:NoExecute",
        "node.kubernetes.io/unreachable:NoExecute",
        "node.kubernetes.io/disk-pressure:NoSchedule",
        "node.kubernetes.io/memory-pressure:NoSchedule",
        "node.kubernetes.io/pid-pressure:NoSchedule",
        "node.kubernetes.io/unschedulable:NoSchedule",
    ];
    let got = automatic_tolerations(&[], false);
    assert_eq!(got.iter().map(text).collect::<Vec<_>>(), six);
    assert!(got.iter().all(|t| t["operator"] == "Exists" && t.get("value").is_none()));
    let host = automatic_tolerations(&[], true);
    assert_eq!(host[..6], got[..]);
    assert_eq!(text(&host[6]), "node.kubernetes.io/network-unavailable:NoSchedule");
}

#[test]
fn one_of_the_same_identity_is_replaced_where_it_stands() {
    let key = "node.kubernetes.io/not-ready";
    let ours = json!({"key": key, "operator": "Exists", "effect": NO_EXECUTE});
    let seconds = json!({"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 300});
    let other = json!({"key": "mine", "operator": "Exists"});
    let got = automatic_tolerations(&[seconds.clone(), other.clone()], false);
    assert_eq!((got.len(), &got[0], &got[1]), (7, &ours, &other), "in place, without its seconds");
    let got = automatic_tolerations(&[seconds.clone(), seconds], false);
    assert_eq!((got.len(), &got[0], &got[1]), (7, &ours, &ours), "each one of them");
    for field in ["effect", "operator", "value"] {
        let mut near = ours.clone();
        near[field] = json!(if field == "effect" { NO_SCHEDULE } else { "Equal" });
        let got = automatic_tolerations(std::slice::from_ref(&near), false);
        assert_eq!((got.len(), &got[0]), (7, &near), "another {field} is another toleration");
    }
    let again = automatic_tolerations(&automatic_tolerations(&[], true), true);
    assert_eq!(again.len(), 7, "adding twice is adding once");
}

#[test]
fn every_daemon_tolerates_the_taint_of_a_node_that_waits_and_none_that_ends_it() {
    let check = |effect: &str| check(&[taint(STARTING_TAINT, "", effect)], &[], false).remove(0);
    let starting = check(NO_SCHEDULE);
    assert!(!starting.repels() && starting.automatic);
    assert!(check(NO_EXECUTE).evicts());
    assert_eq!(automatic_tolerations(&[], false).len(), 6, "it is not in a pod");
    assert!(tolerates_starting(&[toleration(STARTING_TAINT, "Exists", "", "")]) && !tolerates_starting(&[]));
}
