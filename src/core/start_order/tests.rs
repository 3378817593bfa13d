use std::sync::Arc;

use serde_json::json;

use crate::core::model::Source;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::ThisBoot;
use crate::core::time::at;
use crate::core::validate;

use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("a", name)
}

fn keys(names: &str) -> BTreeSet<ObjectKey> {
    names.split_whitespace().map(key).collect()
}

/// An order from lines such as `b: a c`; a daemon that is named and has no line is unknown.
fn order(lines: &[&str]) -> StartOrder {
    order_of(lines, "")
}

/// The same, where `tenants` are not trusted.
fn order_of(lines: &[&str], tenants: &str) -> StartOrder {
    let definition = |line: &&str| {
        let (name, after) = line.split_once(':').unwrap();
        let after: Vec<String> = after.split_whitespace().map(|name| format!("a/{name}")).collect();
        let annotations = match after.is_empty() {
            true => json!({}),
            false => json!({AFTER: after.join(", ")}),
        };
        let value = json!({
            "metadata": {"namespace": "a", "name": name, "annotations": annotations},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
            },
        });
        validate::daemon_set(&value, Source::Api).map(Arc::new).unwrap()
    };
    let definitions: Vec<Arc<DaemonSet>> = lines.iter().map(definition).collect();
    let known = definitions.iter().map(|daemon_set| &daemon_set.key).collect();
    let tenants = keys(tenants);
    StartOrder::of(definitions.iter().map(Arc::as_ref), &known, |daemon_set| !tenants.contains(&daemon_set.key))
}

#[test]
fn a_list_has_full_names_only() {
    assert_eq!(daemons("a/x, a/y ,a/x"), Ok(keys("x y")));
    for invalid in ["", "x", ",", "a/x b/y", "a/x; a/y", "a/x, y", "A/x", "a/x/y", "/x", "a/"] {
        assert!(daemons(invalid).is_err(), "{invalid:?}");
    }
    assert_eq!(daemons("a/x, a/y,"), Ok(keys("x y")));
    for (text, why) in [
        ("net", "\"net\" has no namespace"),
        ("a/x; a/y", "\"a/x; a/y\" is not one name: commas separate names"),
        ("", "it names no DaemonSet"),
    ] {
        assert_eq!(daemons(text), Err(why.to_owned()));
    }
    let many = |count: usize| (0..count).map(|n| format!("a/x{n}")).collect::<Vec<_>>().join(",");
    assert_eq!((daemons(&many(32)).map(|named| named.len()), daemons(&many(33)).is_err()), (Ok(32), true));
    assert_eq!(timeout("1m30s"), Some(Span::from_secs(90)));
    assert_eq!((timeout("0"), timeout("2")), (None, None));
}

#[test]
fn a_daemon_comes_after_those_that_are_known() {
    let order = order(&["c: b x", "b: a", "a:"]);
    let after = &order.after[&key("c")];
    assert_eq!((&after.daemons, &after.unknown), (&keys("b"), &keys("x")));
    assert_eq!((after.timeout, after.circle.len()), (TIMEOUT, 0));
    let (a, b, c) = (key("a"), key("b"), key("c"));
    let other = key("z");
    assert_eq!(order.sorted([&c, &other, &b, &a].into_iter()), [&other, &a, &b, &c]);
    assert_eq!([&a, &b, &c].map(|key| order.turn(key, &[], &[]).is_named), [true, true, false]);
    assert_eq!(order.turn(&a, &[], &[]).after, None);
}

#[test]
fn a_circle_is_broken_by_name_order_and_nothing_else_is() {
    let order = order(&["a: c", "b: a", "c: b", "d: a e", "e: e", "z: d"]);
    let before = |name: &str| order.after[&key(name)].daemons.clone();
    let circle = |name: &str| BTreeSet::clone(&order.after[&key(name)].circle);
    assert_eq!((before("a"), before("b"), before("c")), (keys(""), keys("a"), keys("b")));
    assert_eq!((circle("a"), circle("c")), (keys("a b c"), keys("a b c")));
    assert_eq!((before("d"), circle("d")), (keys("a e"), keys("")), "it leads into circles and is in none");
    assert_eq!((before("e"), circle("e")), (keys(""), keys("e")), "one alone");
    assert_eq!((before("z"), circle("z")), (keys("d"), keys("")));
}

#[test]
fn no_tenant_makes_a_circle_that_changes_the_order_of_what_is_trusted() {
    // The owner wants b after a, and c after b; the tenant's t and u lead back from a to c.
    let order = order_of(&["a: t", "b: a", "c: b", "t: u x", "u: c a t", "x:", "v: c", "y: z", "z: y"], "t u v y z");
    let of = |name: &str| &order.after[&key(name)];
    let before = |name: &str| of(name).daemons.clone();
    assert_eq!((before("a"), before("b"), before("c")), (keys("t"), keys("a"), keys("b")), "as its owner wants");
    assert_eq!((before("u"), &of("u").overruled), (keys("t"), &keys("a c")));
    assert!(["a", "b", "c"].iter().all(|name| of(name).circle.is_empty() && of(name).overruled.is_empty()));
    assert_eq!((before("t"), before("v")), (keys("x"), keys("c")), "a tenant waits where it makes no circle");
    assert_eq!(*of("t").circle, keys("t u"), "what is left is a circle of tenants, broken by name order");
    assert_eq!((before("y"), before("z")), (keys(""), keys("y")));
    let all = ["u", "t", "c", "b", "a"].map(key);
    assert_eq!(order.sorted(all.iter()), ["t", "u", "a", "b", "c"].map(key).iter().collect::<Vec<_>>());
}

/// So many daemons, of which each names those that `named` gives for it.
fn many(count: usize, named: impl Fn(usize) -> Vec<usize>) -> StartOrder {
    let name = |number: usize| format!("d{number:04}");
    let line = |number: usize| {
        let named: Vec<String> = named(number).into_iter().map(name).collect();
        format!("{}: {}", name(number), named.join(" "))
    };
    let lines: Vec<String> = (0..count).map(line).collect();
    order(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn thousands_that_name_each_other_cost_no_more_than_the_names_that_they_give() {
    let chain = many(3_000, |number| (number.saturating_sub(32)..number).collect());
    assert!(chain.after.values().all(|after| after.circle.is_empty()));
    let last = key("d2999");
    assert_eq!(chain.after[&last].daemons.len(), 32);
    let keys: Vec<ObjectKey> = (0..3_000).rev().map(|number| key(&format!("d{number:04}"))).collect();
    assert_eq!(chain.sorted(keys.iter()), keys.iter().rev().collect::<Vec<_>>());

    let circle = many(3_000, |number| (1..=32).map(|before| (number + 3_000 - before) % 3_000).collect());
    let (first, last) = (&circle.after[&key("d0000")], &circle.after[&last]);
    assert_eq!((first.daemons.len(), last.daemons.len(), last.circle.len()), (0, 32, 3_000));
    assert!(circle.after.values().all(|after| Arc::ptr_eq(&after.circle, &first.circle)), "it is there once");
    assert_eq!(circle.sorted(keys.iter()), keys.iter().rev().collect::<Vec<_>>());
}

#[test]
fn only_a_daemon_that_may_still_be_ready_in_this_boot_is_waited_for() {
    let order = order(&["b: a", "a:"]);
    let name = key("a");
    let awaited = |state, runs: bool, this_boot: Option<ThisBoot>| {
        let mut record = DaemonRecord { this_boot, ..DaemonRecord::new(name.clone(), 0) };
        record.instances.extend(runs.then(|| Instance::new("u", "a-x", 0, "r", at(0))));
        let mut plan = DaemonPlan::new(record);
        plan.summary.state = state;
        !order.awaited(&key("b"), &BTreeMap::from([(&name, plan)]), "now").is_empty()
    };
    for (state, without, with) in [
        (State::NotSelected, false, false),
        (State::StandingBy, false, false),
        (State::Refused, false, true),
        (State::NotAccepted, true, true),
        (State::Stopping, false, false),
        (State::Orphaned, false, false),
        (State::Unknown, false, true),
        (State::Held, false, true),
        (State::Waiting, true, true),
        (State::Starting, true, true),
        (State::Failing, true, true),
        (State::Running, true, true),
    ] {
        assert_eq!((awaited(state, false, None), awaited(state, true, None)), (without, with), "{state:?}");
    }
    for (runs, is_awaited) in [(false, false), (true, true)] {
        let mut plan = DaemonPlan::new(DaemonRecord::new(name.clone(), 0));
        plan.record.instances.extend(runs.then(|| Instance::new("u", "a-x", 0, "r", at(0))));
        (plan.summary.state, plan.summary.awaits_approval) = (State::Waiting, true);
        let planned = BTreeMap::from([(&name, plan)]);
        assert_eq!(!order.awaited(&key("b"), &planned, "now").is_empty(), is_awaited, "its first install is withheld");
        assert!(order.absent(&key("b"), &planned).is_empty());
    }
    let mut elsewhere = DaemonPlan::new(DaemonRecord::new(name.clone(), 0));
    elsewhere.summary.state = State::NotSelected;
    assert_eq!(order.absent(&key("b"), &BTreeMap::from([(&name, elsewhere)])), std::slice::from_ref(&name));
    let ready = |boot: &str| Some(ThisBoot { boot: boot.to_owned(), ready: true, ..ThisBoot::default() });
    assert!(!awaited(State::Failing, true, ready("now")));
    assert!(awaited(State::Failing, true, ready("earlier")));
    let steady = |boot: &str| Some(ThisBoot { boot: boot.to_owned(), steady: true, ..ThisBoot::default() });
    assert!(!awaited(State::Starting, true, steady("now")), "readiness is not reported");
    assert!(awaited(State::Starting, true, steady("earlier")));
}
