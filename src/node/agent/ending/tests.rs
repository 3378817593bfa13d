use std::sync::Arc;

use serde_json::json;

use crate::core::knowledge::Absence;
use crate::core::record::Mirror;
use crate::core::time::Timestamp;
use crate::core::time::at;
use crate::core::time::ms;
use crate::node::agent::boot::Boot;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::api::Link;
use crate::node::api::Snapshot;

use super::*;

type RuntimeLists = Knowledge<Arc<Vec<RuntimePod>>>;

const NONE: RuntimeLists = Knowledge::Absent(Absence::NotConfigured);
/// When instances end.
const END: i64 = 1_000;

fn lists(uids: &[(&str, bool)]) -> RuntimeLists {
    let pod = |(uid, alive): &(&str, bool)| RuntimePod::test(uid, *alive);
    Knowledge::Current(Arc::new(uids.iter().map(pod).collect()))
}

/// An observation of the boot "b"; `api`: whether one is configured, and whether it answers.
fn observation(runtime: RuntimeLists, api: Option<bool>, now: i64) -> Observation {
    let mut observation = Observation::of(api.map(|_| Snapshot::default()), runtime, now);
    observation.boot = Boot::new("b".to_owned(), at(0));
    if let (Some(observed), Some(false)) = (&mut observation.api, api) {
        observed.link = Link::Connecting;
    }
    observation
}

fn ends(observation: &Observation) -> Ends<'_> {
    Ends {
        observation,
        mirror: None,
        is_kubelets: false,
        has_lost_all: false,
        has_asked: false,
        ended_for: Span::ZERO,
        is_api_current: true,
    }
}

fn instance() -> Instance {
    Instance { started: true, ..Instance::new("u", "p", 0, "", at(0)) }
}

fn ending(boot: &str, confirmed_by: EndConfirmation) -> Instance {
    let phase =
        Phase::Ending { since: at(END), reason: String::new(), boot: boot.to_owned(), returns: true, confirmed_by };
    Instance { phase, ..instance() }
}

fn mirror() -> Mirror {
    Mirror { uid: "m".to_owned(), node_uid: None, version: 1, is_judged: false }
}

fn is_unobservable(end: &EndObservable) -> bool {
    matches!(end, EndObservable::No(_))
}

#[test]
fn without_a_runtime_the_mirror_pod_of_an_api_server_that_answers_shows_the_end() {
    let mirror = json!({});
    for (api, has_mirror, expected) in
        [(None, false, false), (Some(false), true, false), (Some(true), false, false), (Some(true), true, true)]
    {
        let observation = observation(NONE, api, 0);
        let ends = Ends { mirror: has_mirror.then_some(&mirror), ..ends(&observation) };
        assert_eq!(!is_unobservable(&end_observable(&instance(), false, &ends)), expected, "{api:?} {has_mirror}");
        let hung = Observation { runtime: Knowledge::Unreadable("it hangs".to_owned().into()), ..observation.clone() };
        let ends = Ends { observation: &hung, ..ends };
        assert_eq!(!is_unobservable(&end_observable(&instance(), false, &ends)), expected, "{api:?} {has_mirror}");
    }
}

#[test]
fn what_an_api_server_that_answers_never_showed_has_its_grace_period() {
    let of = |lists, now, started| {
        let mut api = Snapshot::default();
        api.scopes.insert(Scope::Pods, crate::node::api::ScopeState { lists, ..Default::default() });
        let mut observation = observation(NONE, Some(true), now);
        observation.api.as_mut().unwrap().snapshot = Arc::new(api);
        let of = |is_api_current| {
            let ends = Ends { is_api_current, ..ends(&observation) };
            end_observable(&Instance { started, ..instance() }, false, &ends)
        };
        assert!(is_unobservable(&of(false)), "it has only just come back");
        of(true)
    };
    assert_eq!(of(1, 30_000, false), EndObservable::By(EndConfirmation::ByTime));
    for (lists, now, started) in [(0, 30_000, false), (1, 29_999, false), (1, 30_000, true)] {
        assert!(is_unobservable(&of(lists, now, started)), "{lists} {now} {started}");
    }
}

#[test]
fn a_runtime_is_asked_lately_and_must_be_the_kubelets() {
    let of = |runtime: RuntimeLists| end_observable(&instance(), false, &ends(&observation(runtime, None, 0)));
    assert_eq!(of(Knowledge::NeverHeard), EndObservable::AskRuntime);
    assert_eq!(of(lists(&[("u", true)])), EndObservable::By(EndConfirmation::Reported));
    assert!(is_unobservable(&of(lists(&[("another", true)]))), "it may be another than the kubelet's");
    let mut old = observation(lists(&[("u", true)]), None, 20_000);
    old.runtime_as_of = at(9_999);
    assert_eq!(end_observable(&instance(), false, &ends(&old)), EndObservable::AskRuntime);
    let age = |millis| {
        let mut old = observation(lists(&[]), Some(true), 20_000);
        old.runtime_as_of = old.now - Span::from_millis(millis);
        let of = |instance: &Instance| end_observable(instance, false, &Ends { is_kubelets: true, ..ends(&old) });
        (of(&instance()), of(&Instance { listed: true, ..instance() }))
    };
    let here = |confirmed_by| EndObservable::By(confirmed_by);
    assert_eq!(age(3_000), (here(EndConfirmation::ByRuntime), here(EndConfirmation::Reported)));
    assert_eq!(age(3_001), (EndObservable::AskRuntime, here(EndConfirmation::Reported)), "it may have started since");
    let young = Instance { created: at(20_000), ..instance() };
    let mut earlier = observation(lists(&[]), None, 20_100);
    earlier.runtime_as_of = at(19_999);
    let of = |has_asked| end_observable(&young, false, &Ends { is_kubelets: true, has_asked, ..ends(&earlier) });
    assert_eq!(
        (of(false), of(true)),
        (EndObservable::AskRuntime, here(EndConfirmation::ByRuntime)),
        "it is asked once, not again and again"
    );

    // One of ours has been listed: it is the kubelet's, unless the kubelet shows what it does not list.
    let observation = observation(lists(&[]), Some(true), 2 * END);
    let running = json!({"status": {"phase": "Running"}});
    let pending = json!({"status": {"phase": "Pending"}});
    let known = |mirror| Ends { is_kubelets: true, mirror, ..ends(&observation) };
    assert_eq!(end_observable(&instance(), false, &known(None)), EndObservable::By(EndConfirmation::ByRuntime));
    let believed = |mirror| sandbox(&ending("b", EndConfirmation::ByRuntime), &Ends { mirror, ..ends(&observation) });
    assert_eq!(believed(None), Evidence::Gone, "another process knows that it had listed one");
    assert_eq!(believed(Some(&running)), Evidence::Running);
    let own = Ends { mirror: Some(&running), ..ends(&observation) };
    assert_eq!(
        end_observable(&instance(), false, &own),
        EndObservable::By(EndConfirmation::Reported),
        "the mirror pod is one"
    );
    let gone = |ends: &Ends<'_>| sandbox(&ending("b", EndConfirmation::Reported), ends);
    let never_started = Instance { started: false, ..ending("b", EndConfirmation::Reported) };
    assert_eq!(sandbox(&never_started, &known(None)), Evidence::Gone);
    assert_ne!(gone(&known(None)), Evidence::Gone, "it showed them before");
    assert_eq!(gone(&known(Some(&running))), Evidence::Running, "the kubelet shows its containers");
    assert_eq!(gone(&Ends { mirror: Some(&pending), ..ends(&observation) }), Evidence::Running);
    let listed = Instance { listed: true, ..ending("b", EndConfirmation::Reported) };
    assert_eq!(sandbox(&listed, &known(Some(&running))), Evidence::Gone, "a mirror pod goes after its pod");
}

#[test]
fn another_runtime_is_waited_out_by_the_mirror_pod_and_without_one_for_ever() {
    let shown = || Instance { mirror: Some(mirror()), ..ending("b", EndConfirmation::Reported) };
    let of = |instance: &Instance, api, waited: i64| {
        let mut observation = observation(lists(&[]), api, END + waited);
        if let Some(api) = &mut observation.api {
            Arc::make_mut(&mut api.snapshot).scopes.entry(Scope::Pods).or_default().lists = 1;
        }
        sandbox(instance, &Ends { ended_for: Span::from_millis(waited), ..ends(&observation) })
    };
    let grace = 30_000 + GONE_AFTER.as_millis();
    assert!(matches!(of(&shown(), Some(true), grace - 1), Evidence::Unknown(_)));
    assert_eq!(of(&shown(), Some(true), grace), Evidence::Gone);
    let long = i64::from(u32::MAX);
    assert!(matches!(of(&shown(), None, long), Evidence::Unknown(_)));
    assert!(matches!(of(&shown(), Some(false), long), Evidence::Unknown(_)), "what is shown is from before an outage");
    let unreadable = |instance: &Instance, waited: i64| {
        let mut observation = observation(Knowledge::Unreadable("hangs".to_owned().into()), Some(true), END + waited);
        if let Some(api) = &mut observation.api {
            Arc::make_mut(&mut api.snapshot).scopes.entry(Scope::Pods).or_default().lists = 1;
        }
        sandbox(instance, &Ends { ended_for: Span::from_millis(waited), ..ends(&observation) })
    };
    let never = Instance { listed: true, ..ending("b", EndConfirmation::Reported) };
    assert!(matches!(unreadable(&never, long), Evidence::Unknown(_)), "it ran and was never shown");
    assert_eq!(unreadable(&Instance { mirror: Some(mirror()), ..never }, grace), Evidence::Gone);
    assert_eq!(
        of(&ending("b", EndConfirmation::ByTime), Some(true), grace),
        Evidence::Gone,
        "only the API server showed it"
    );
    let timed = Instance { listed: true, ..ending("b", EndConfirmation::ByTime) };
    assert!(matches!(unreadable(&timed, grace), Evidence::Unknown(_)));
    assert_eq!(unreadable(&timed, 60_000), Evidence::Gone);
}

#[test]
fn a_runtime_that_lists_nothing_of_what_it_listed_before_is_another_one() {
    let observation = observation(lists(&[("foreign", true)]), Some(false), 5_000);
    let ends = Ends { has_lost_all: true, is_kubelets: true, ..ends(&observation) };
    let listed = |instance| Instance { listed: true, ..instance };
    assert!(is_unobservable(&end_observable(&listed(instance()), false, &ends)));
    for confirmed_by in [EndConfirmation::Reported, EndConfirmation::ByRuntime] {
        assert_ne!(sandbox(&listed(ending("b", confirmed_by)), &ends), Evidence::Gone, "{confirmed_by:?}");
    }
    let ends = Ends { has_lost_all: false, ..ends };
    assert_eq!(sandbox(&listed(ending("b", EndConfirmation::Reported)), &ends), Evidence::Gone);

    let other = Instance { uid: "v".to_owned(), ..instance() };
    let has_lost = |first: &Instance| has_lost_all(ends.observation, [first, &other].into_iter(), false);
    assert!(has_lost(&listed(instance())));
    assert!(!has_lost(&instance()), "none was listed");
    assert!(!has_lost(&listed(ending("b", EndConfirmation::Reported))), "it ends");
    let shows_other = Observation { runtime: lists(&[("v", true)]), ..ends.observation.clone() };
    let ends_now = listed(ending("b", EndConfirmation::Reported));
    assert!(has_lost_all(ends.observation, [&ends_now].into_iter(), true), "it was to run when nothing was listed");
    for before in [false, true] {
        assert!(!has_lost_all(&shows_other, [&listed(instance()), &other].into_iter(), before));
        let silent = Observation { runtime: Knowledge::NeverHeard, ..ends.observation.clone() };
        assert_eq!(has_lost_all(&silent, [&listed(instance())].into_iter(), before), before, "nothing is said");
    }
}

#[test]
fn a_runtime_that_lists_nothing_at_all_though_others_ran_is_another_one() {
    let seen = |runtime| observation(runtime, Some(false), 5_000);
    let ends_now = Instance { listed: true, ..ending("b", EndConfirmation::Reported) };
    let others = |runtime, before| runs_others(&seen(runtime), [&ends_now].into_iter(), before);
    assert!(others(lists(&[("u", true), ("etcd", true)]), false));
    for (uids, why) in [([("u", true)], "it is ours"), ([("etcd", false)], "it has ended")] {
        assert!(!others(lists(&uids), true), "{why}");
    }
    for before in [false, true] {
        assert_eq!(others(lists(&[]), before), before, "it may be another one");
        assert_eq!(has_lost_others(&seen(lists(&[])), before), before);
        assert!(!has_lost_others(&seen(lists(&[("etcd", true)])), before));
        assert!(!has_lost_others(&seen(NONE), before));
    }
}

#[test]
fn before_the_kubelet_of_a_boot_no_confirmation_is_needed() {
    let mut first = observation(Knowledge::NeverHeard, None, 5_000);
    first.is_before_kubelet = true;
    assert_eq!(end_observable(&instance(), false, &ends(&first)), EndObservable::By(EndConfirmation::NeverStarted));
    assert_eq!(sandbox(&ending("b", EndConfirmation::NeverStarted), &ends(&first)), Evidence::Gone);
    first.run_in_this_boot.insert("u".to_owned());
    assert_eq!(end_observable(&instance(), false, &ends(&first)), EndObservable::AskRuntime);
}

#[test]
fn nothing_outlives_its_boot() {
    let alone = observation(NONE, None, 5_000);
    assert_eq!(sandbox(&ending("a", EndConfirmation::Reported), &ends(&alone)), Evidence::Gone);
    let unsure = observation(Knowledge::Unreadable("it hangs".to_owned().into()), Some(false), 5_000);
    assert_eq!(sandbox(&ending("a", EndConfirmation::Reported), &ends(&unsure)), Evidence::Gone);
    for boot in ["b", ""] {
        assert_ne!(sandbox(&ending(boot, EndConfirmation::Reported), &ends(&unsure)), Evidence::Gone, "{boot:?}");
    }
}

#[test]
fn time_alone_confirms_by_the_steady_clock_and_only_where_nothing_else_could() {
    let grace = Span::from_secs(30) + BEYOND_GRACE;
    let of = |confirmed_by, api, ended_for| {
        // The wall clock was set forward by years.
        let observation = observation(NONE, api, i64::from(u32::MAX));
        sandbox(&ending("b", confirmed_by), &Ends { ended_for, ..ends(&observation) })
    };
    for confirmed_by in [EndConfirmation::ByTime, EndConfirmation::NotAccepted] {
        for api in [None, Some(false)] {
            let mut silent = observation(NONE, api, i64::from(u32::MAX));
            silent.api.iter_mut().for_each(|api| api.snapshot = Arc::default());
            let of = |ended_for| sandbox(&ending("b", confirmed_by), &Ends { ended_for, ..ends(&silent) });
            assert!(matches!(of(grace - ms(1)), Evidence::Unknown(_)));
            assert_eq!(of(grace), Evidence::Gone);
        }
    }
    assert_eq!(
        of(EndConfirmation::Reported, None, grace),
        Evidence::Gone,
        "neither runtime nor API server is configured"
    );
    let mut silent = observation(NONE, Some(false), i64::from(u32::MAX));
    silent.api.iter_mut().for_each(|api| api.snapshot = Arc::default());
    let waits = sandbox(&ending("b", EndConfirmation::Reported), &Ends { ended_for: grace, ..ends(&silent) });
    assert!(matches!(waits, Evidence::Unknown(_)), "the API server will answer: {waits:?}");
}

#[test]
fn what_the_kubelet_did_not_accept_needs_no_confirmation_and_the_runtime_counts_at_once() {
    let alone = observation(NONE, None, 0);
    assert_eq!(end_observable(&instance(), true, &ends(&alone)), EndObservable::By(EndConfirmation::NotAccepted));
    let fresh = observation(lists(&[]), None, END);
    assert_eq!(sandbox(&ending("b", EndConfirmation::NotAccepted), &ends(&fresh)), Evidence::Gone);
}

#[test]
fn a_pod_that_the_kubelet_works_on_is_not_gone_before_its_sandbox_was_seen() {
    let mirror = json!({});
    let unseen = Instance { started: false, ..ending("b", EndConfirmation::Reported) };
    let of = |instance: &Instance, mirror: Option<&Value>, now: i64| {
        let observation = observation(lists(&[]), Some(true), now);
        sandbox(instance, &Ends { mirror, is_kubelets: true, ..ends(&observation) })
    };
    assert!(matches!(of(&unseen, Some(&mirror), 5_000), Evidence::Unknown(_)));
    assert_eq!(of(&unseen, None, 5_000), Evidence::Gone);
    let late = END + LETS_GO.as_millis();
    assert_eq!(of(&unseen, Some(&mirror), late), Evidence::Gone, "a kubelet that is away holds nothing up");
    let listed = Instance { listed: true, ..ending("b", EndConfirmation::Reported) };
    assert_eq!(of(&listed, Some(&mirror), 5_000), Evidence::Gone);
}

#[test]
fn a_list_that_is_older_than_the_end_says_nothing() {
    let mut observation = observation(lists(&[]), None, 5_000);
    let of = |observation: &Observation| {
        let listed = Instance { listed: true, ..ending("b", EndConfirmation::Reported) };
        sandbox(&listed, &Ends { is_kubelets: true, ..ends(observation) })
    };
    observation.runtime_as_of = Timestamp::from_millis(END - 1);
    assert!(matches!(of(&observation), Evidence::Unknown(_)));
    observation.runtime_as_of = Timestamp::from_millis(END);
    assert_eq!(of(&observation), Evidence::Gone);
    observation.runtime = lists(&[("u", true)]);
    assert_eq!(of(&observation), Evidence::Running);
}
