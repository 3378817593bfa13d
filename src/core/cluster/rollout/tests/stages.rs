//! Canaries, zones, steps and first installs.

use super::*;

#[test]
fn canaries_go_first_and_the_others_after_their_hold() {
    let canary = |instances| NodeFact { canary: true, ..node("z", instances) };
    let rules = RolloutRules { canary_hold: Some(ms(1_000)), ..rules(5) };
    assert_eq!(approves(&rules, &[node("a", OLD), canary(OLD)]), ["z"]);
    let young = [InstanceFact { ready_since: Some(NOW - ms(1)), ..NEW[0] }];
    let nodes = [node("a", OLD), canary(&young)];
    let planned = plan(&rules, ms(0), &nodes, NOW);
    assert_eq!((planned.approve.len(), planned.look_again), (0, Some(NOW + ms(999))));
    assert_eq!(approves(&rules, &[node("a", OLD), canary(NEW)]), ["a"]);
}

#[test]
fn canaries_that_are_on_their_way_hold_nothing() {
    let rules = RolloutRules { canary_hold: Some(ms(1_000)), ..rules(5) };
    let held = |first: NodeFact<'_>| {
        let canary = NodeFact { canary: true, ..first };
        plan(&rules, ms(0), &[canary, node("b", OLD)], NOW).held
    };
    for moves in [approved("a", NOW), NodeFact { replacing: true, ..node("a", &[]) }, node("a", NEW_BROKEN)] {
        assert_eq!(held(moves.clone()), None, "{moves:?}");
        let waits = Some(Standstill::Canary { waiting: vec!["a".to_owned()] });
        assert_eq!(held(NodeFact { late: true, ..moves.clone() }), waits);
        assert_eq!(held(NodeFact { failed: true, replacing: true, ..moves }), waits);
    }
    let young = [InstanceFact { ready_since: Some(NOW - ms(1)), ..NEW[0] }];
    assert_eq!(held(node("a", &young)), Some(Standstill::Canary { waiting: Vec::new() }), "its time counts");
}

#[test]
fn canaries_that_are_nowhere_hold_the_rollout() {
    let rules = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let misplaced = NodeFact { canary: true, should_run: false, belongs: false, ..node("z", OLD) };
    let planned = plan(&rules, ms(0), &[node("a", OLD), node("b", OLD_BROKEN), misplaced], NOW);
    assert_eq!((planned.approve, said(&planned.held).as_str()), (vec![], canary::NONE));
    let paused = RolloutRules { hold: Some(RolloutHold::Paused), ..rules };
    let planned = plan(&paused, ms(0), &[node("a", OLD)], NOW);
    assert_eq!(planned.held, Some(Standstill::NoCanary { also: Some(RolloutHold::Paused) }), "a pause hides it not");
}

#[test]
fn an_old_instance_that_takes_the_budget_from_the_canaries_is_named() {
    let rules = RolloutRules { canary_hold: Some(ms(0)), ..rules(1) };
    let canary = NodeFact { canary: true, ..node("z", OLD) };
    let planned = plan(&rules, ms(0), &[node("a", OLD), node("b", OLD_BROKEN), canary.clone()], NOW);
    let message = "the budget is taken by nodes where what runs is not available, and whose turn has not come: b";
    assert_eq!((planned.approve.len(), said(&planned.held).as_str(), planned.stuck), (0, message, None));
    // One that has failed, too, does not come back by itself.
    let failed = NodeFact { failed: true, ..node("a", NEW_BROKEN) };
    let planned = plan(&rules, ms(0), &[failed, node("b", OLD_BROKEN), canary], NOW);
    assert_eq!((planned.held.is_some(), planned.stuck), (true, Some((Stuck::Taken, vec![0]))));
}

#[test]
fn one_zone_comes_after_the_other() {
    let all = |a1, a2, b1, b2| [in_zone("a", a1), in_zone("a", a2), in_zone("b", b1), in_zone("b", b2)];
    let of = |a1, a2, b1, b2| approves(&rules(3), &all(a1, a2, b1, b2));
    let old = |name| node(name, OLD);
    let new = |name| node(name, NEW);
    assert_eq!(of(old("a1"), old("a2"), old("b1"), old("b2")), ["a1", "a2"], "the first by name");
    assert_eq!(of(old("a1"), old("a2"), old("b1"), node("b2", OLD_BROKEN)), ["b2", "b1"], "the worst first");
    assert_eq!(of(old("a1"), node("a2", OLD_BROKEN), new("b1"), old("b2")), ["b2"], "what was begun is ended first");
    assert_eq!(of(approved("a1", NOW), new("a2"), old("b1"), old("b2")), NONE);
    assert_eq!(of(new("a1"), node("a2", NEW_BROKEN), old("b1"), old("b2")), NONE, "it has to be available");
    assert_eq!(of(new("a1"), new("a2"), old("b1"), old("b2")), ["b1", "b2"]);
    let away = NodeFact { reachable: false, ready: false, ..old("a2") };
    assert_eq!(
        of(new("a1"), away, old("b1"), old("b2")),
        ["b1", "b2"],
        "a node that cannot take a slot holds up no zone"
    );
    for waits in [
        node("a2", &[]),
        NodeFact { passed_over: Some(NOW), ..old("a2") },
        NodeFact { refused_until: Some(NOW + ms(1)), ..old("a2") },
    ] {
        assert_eq!(
            of(new("a1"), waits, old("b1"), old("b2")),
            ["b1", "b2"],
            "nor does one that waits, or takes nothing"
        );
    }
    let last = [NodeFact { passed_over: Some(NOW), ..old("a2") }, NodeFact { passed_over: Some(NOW), ..old("b2") }];
    assert_eq!(of(new("a1"), last[0].clone(), new("b1"), last[1].clone()), ["a2"], "zone by zone in the end, too");
    let waits = [in_zone("a", new("a1")), in_zone("a", node("a2", OLD)), in_zone("b", old("b1"))];
    let canary = NodeFact { canary: true, ..waits[2].clone() };
    let first = RolloutRules { canary_hold: Some(ms(0)), ..rules(1) };
    assert_eq!(approves(&first, &[waits[0].clone(), waits[1].clone(), canary]), ["b1"], "canaries are of any zone");
}

#[test]
fn a_zone_in_which_nothing_is_on_its_way_is_named() {
    let zones = |a1, a2, b1| [in_zone("a", a1), in_zone("a", a2), in_zone("b", b1)];
    let lost = NodeFact { ready: false, reachable: false, ..node("a1", NEW) };
    let planned = plan(&rules(2), ms(0), &zones(lost.clone(), node("a2", NEW), node("b1", OLD)), NOW);
    assert_eq!((planned.approve.len(), said(&planned.held).as_str()), (0, "zone a is not available yet"));
    assert_eq!(planned.stuck, Some((Stuck::Taken, vec![0])));
    let planned = plan(&rules(2), ms(0), &zones(node("a1", NEW_BROKEN), node("a2", NEW), node("b1", OLD)), NOW);
    assert_eq!((planned.held, planned.stuck), (None, None), "it may become available");
    let few = RolloutRules { first_install: Some(IntOrPercent::Int(2)), ..rules(2) };
    let planned = plan(&few, ms(0), &zones(lost, node("a2", NEW), node("b1", &[])), NOW);
    assert_eq!((planned.approve, planned.stuck), (vec![], Some((Stuck::Taken, vec![0]))), "first instances, too");
}

#[test]
fn what_is_left_and_cannot_go_on_says_so() {
    let away = |name| NodeFact { ready: false, reachable: false, ..node(name, OLD) };
    let broken = NodeFact { failed: true, ..node("a", NEW_BROKEN) };
    let planned = plan(&rules(2), ms(0), &[broken.clone(), away("b")], NOW);
    assert_eq!(said(&planned.held), "1 node cannot take it", "a node that broke keeps its slot");
    let planned = plan(&rules(2), ms(0), &[node("a", NEW_BROKEN), away("b")], NOW);
    assert_eq!(planned.held, None, "one is on its way");
    let paused = RolloutRules { hold: Some(RolloutHold::Paused), ..rules(2) };
    let planned = plan(&paused, ms(0), &[broken, NodeFact { failed: true, ..node("b", OLD) }], NOW);
    assert_eq!(said(&planned.held), "1 node cannot take it");
    let planned = plan(&paused, ms(0), &[node("a", NEW_BROKEN), away("b")], NOW);
    assert_eq!(said(&planned.held), "paused");
    assert_eq!(plan(&paused, ms(0), &[node("a", NEW)], NOW).held, None, "all have it");
    // A node that starts nothing before the rollout is open.
    let waits = NodeFact { awaits_rollout: true, ..node("d", &[]) };
    let staged = RolloutRules { step: Some(StepLimit { is_last: true, ..step(1) }), ..rules(2) };
    assert!(is_held_by_step(&plan(&staged, ms(0), &[node("a", NEW), waits.clone()], NOW).held));
    let kept = RolloutRules { partition: IntOrPercent::Int(1), ..rules(2) };
    let kept = RolloutRules { partition: IntOrPercent::Int(5), ..kept };
    assert_eq!(said(&plan(&kept, ms(0), &[node("a", NEW), waits], NOW).held), "1 node is kept on the old revision");
}

#[test]
fn an_old_instance_that_does_not_end_is_named_where_it_takes_the_budget() {
    let ending = [InstanceFact { ending: true, ..OLD[0] }, NEW[0]];
    let surge = RolloutRules { max_surge: IntOrPercent::Int(1), ..rules(0) };
    let ends = |ends_late| [NodeFact { ends_late, ..node("a", &ending) }, node("b", OLD)];
    let planned = plan(&surge, ms(0), &ends(false), NOW);
    assert_eq!((planned.approve.len(), planned.stuck), (0, None), "it has its time");
    assert_eq!(plan(&surge, ms(0), &ends(true), NOW).stuck, Some((Stuck::Taken, vec![0])));
}

#[test]
fn partition_and_canaries_keep_overlays_while_another_node_returns_to_the_released_revision() {
    const D1: Option<Name> = Some(Name::first(2));
    let patched = |name| NodeFact { overlays: D1, ..node(name, NEW) };
    let nodes = |d: NodeFact<'static>| [patched("a"), patched("b"), patched("c"), d];
    let returns = || NodeFact { overlays: D1, ..node("d", OLD) };
    let failed = || NodeFact { failed: true, ..returns() };
    let released = RolloutRules { is_released: true, ..rules(4) };
    let kept = RolloutRules { partition: IntOrPercent::Int(2), ..released.clone() };
    assert_eq!(approves(&kept, &nodes(returns())), ["a", "d"], "two of the three whose overlays changed are kept");
    assert_eq!(approves(&RolloutRules { is_released: false, ..kept.clone() }, &nodes(returns())), ["a", "b"]);
    assert_eq!(approves(&RolloutRules { partition: IntOrPercent::Int(4), ..kept }, &nodes(failed())), NONE);
    let canary = RolloutRules { canary_hold: Some(ms(0)), ..released };
    let first = || [NodeFact { canary: true, ..patched("a") }, patched("b"), patched("c"), returns()];
    assert_eq!(approves(&canary, &first()), ["a", "d"]);
    let approval = Some(ApprovalFact { revision: WANTED, overlays: D1, at: NOW, when: None });
    let given = first().map(|node| NodeFact { approval, ..node });
    assert_eq!(plan(&canary, ms(0), &given, NOW).withdraw, [1, 2], "nor is it withdrawn from one that returns");
}

#[test]
fn a_step_is_spread_over_racks() {
    let of = |rack, fact| NodeFact { spread: Some(rack), ..fact };
    let nodes = |first: NodeFact<'static>| {
        [
            of("r1", first),
            of("r1", node("b", OLD)),
            of("r1", node("c", OLD)),
            of("r2", node("d", OLD)),
            of("r3", node("e", OLD)),
        ]
    };
    assert_eq!(approves(&rules(3), &nodes(node("a", OLD))), ["a", "d", "e"]);
    assert_eq!(approves(&rules(2), &nodes(node("a", NEW))), ["d", "e"], "its rack has one already");
    assert_eq!(approves(&rules(4), &nodes(node("a", OLD))), ["a", "d", "e", "b"]);
    // Only the zone that is updated counts: in the other one no node of `r2` and `r3` is left.
    let done = ["w", "x", "y"].map(|name| in_zone("y", of("r1", node(name, NEW))));
    let zone = [in_zone("z", of("r1", node("a", OLD))), in_zone("z", of("r2", node("b", NEW)))];
    let all = [&done[..], &zone, &[in_zone("z", of("r2", node("c", OLD)))]].concat();
    assert_eq!(approves(&rules(1), &all), ["a"]);
    // Of two racks the one comes first in which no node is on its way.
    let done = ["w", "x", "y"].map(|name| of("r1", node(name, NEW)));
    let racks = [of("r1", node("b", OLD)), of("r2", approved("c", NOW)), of("r2", node("a", OLD))];
    assert_eq!(approves(&rules(2), &[&done[..], &racks].concat()), ["b"]);
    // What takes a slot because it is not available waits as any other.
    let broken = |rack, name| of(rack, node(name, OLD_BROKEN));
    assert_eq!(approves(&rules(5), &[broken("r1", "a"), broken("r1", "b"), broken("r2", "c")])[0], "a");
}

#[test]
fn no_more_nodes_are_kept_than_have_the_old_revision() {
    let kept = RolloutRules { partition: IntOrPercent::Int(3), ..rules(1) };
    let nodes = [node("a", NEW), node("b", NEW), node("c", OLD), node("d", OLD)];
    assert_eq!(said(&plan(&kept, ms(0), &nodes, NOW).held), "2 nodes are kept on the old revision");
}

#[test]
fn a_step_bounds_how_many_have_it_and_keeps_the_rollout_closed() {
    let step = |nodes, is_last| Some(StepLimit { is_last, ..step(nodes) });
    let first = RolloutRules { step: step(2, false), ..rules(5) };
    let nodes = [node("a", NEW), node("b", OLD), node("c", OLD), node("d", OLD)];
    let planned = plan(&first, ms(0), &nodes, NOW);
    assert_eq!((planned.approve, planned.is_open), (vec![1], false));
    let full = [node("a", NEW), node("b", NEW), node("c", OLD), node("d", OLD)];
    let planned = plan(&first, ms(0), &full, NOW);
    assert_eq!((planned.approve, is_held_by_step(&planned.held), planned.is_open), (vec![], true, false));
    let missing = [node("a", OLD), node("b", &[]), node("c", &[]), node("d", OLD)];
    assert_eq!(
        plan(&RolloutRules { step: step(1, false), ..rules(5) }, ms(0), &missing, NOW).approve,
        [0],
        "who runs nothing is no part of it"
    );
    let broken = [node("a", NEW), node("b", NEW_BROKEN), node("c", OLD), node("d", OLD)];
    assert!(is_held_by_step(&plan(&first, ms(0), &broken, NOW).held), "it says so also while one is not available");
    let last = RolloutRules { step: step(4, true), ..rules(5) };
    let planned = plan(&last, ms(0), &full, NOW);
    assert_eq!((planned.approve, planned.is_open), (vec![2, 3], true));
}

#[test]
fn a_step_and_a_partition_hold_once_nothing_is_on_its_way() {
    let steps = RolloutRules { step: Some(step(1)), ..rules(2) };
    let between = NodeFact { replacing: true, ..node("a", &[]) };
    let held =
        |rules: &RolloutRules, first: NodeFact<'_>| said(&plan(rules, ms(0), &[first, node("b", OLD)], NOW).held);
    assert_eq!(held(&steps, between.clone()), "", "it is being replaced");
    let late = [NodeFact { late: true, ..between }, node("b", OLD)];
    assert!(is_held_by_step(&plan(&steps, ms(0), &late, NOW).held));
    let partition = RolloutRules { partition: IntOrPercent::Int(1), ..rules(2) };
    assert_eq!(held(&partition, node("a", NEW_BROKEN)), "", "it may become available");
    for away in
        [NodeFact { ready: false, ..node("a", NEW) }, NodeFact { ready: false, reachable: false, ..node("a", NEW) }]
    {
        assert_eq!(held(&partition, away), "1 node is kept on the old revision");
    }
}

#[test]
fn a_step_is_not_held_while_its_pods_start() {
    let place = StepPlace { number: 1, last: 2, nodes: 1, desired: 2 };
    let waits = StepStatus::Waits { place, unavailable: vec!["a".to_owned()] };
    let waits = RolloutRules { step: Some(StepLimit { status: waits, ..step(1) }), ..rules(2) };
    let held = |rules: &RolloutRules, first| plan(rules, ms(0), &[first, node("b", OLD)], NOW).held.is_some();
    let surging = [OLD[0], instance(true, false)];
    for starts in [NEW_BROKEN, &surging] {
        assert!(!held(&waits, node("a", starts)), "{starts:?}");
        assert!(held(&waits, NodeFact { late: true, ..node("a", starts) }), "{starts:?}");
        assert!(held(&waits, NodeFact { ready: false, ..node("a", starts) }), "{starts:?}");
    }
    let holds = RolloutRules { step: Some(step(1)), ..rules(2) };
    assert!(held(&holds, node("a", NEW_BROKEN)), "its time counts though a pod is restarted");
}

#[test]
fn a_first_install_that_was_approved_late_is_not_stuck_before_it_begins() {
    let few = RolloutRules { first_install: Some(IntOrPercent::Int(1)), ..rules(1) };
    let given = NodeFact { late: true, instances: &[], ..approved("a", NOW) };
    let planned = plan(&few, ms(0), &[given.clone(), node("b", &[])], NOW);
    assert_eq!((planned.held, planned.stuck, planned.approve), (None, None, vec![]));
    let begun = NodeFact { replacing: true, ..given };
    assert_eq!(plan(&few, ms(0), &[begun, node("b", &[])], NOW).stuck, Some((Stuck::Taken, vec![0])));
}

#[test]
fn first_installs_are_counted_until_they_are_available() {
    let few = RolloutRules { first_install: Some(IntOrPercent::Int(2)), ..rules(5) };
    let empty = |name| node(name, &[]);
    let nodes = [empty("a"), empty("b"), empty("c"), empty("d")];
    assert_eq!(approves(&rules(5), &nodes), NONE, "they start by themselves");
    assert_eq!(approves(&few, &nodes), ["a", "b"]);
    let given = |name| NodeFact { instances: &[], ..approved(name, NOW) };
    assert_eq!(approves(&few, &[given("a"), empty("b"), empty("c")]), ["b"]);
    assert_eq!(approves(&few, &[node("a", NEW), empty("b"), empty("c"), empty("d")]), ["b", "c"]);
    let broken = |name| NodeFact { failed: true, ..node(name, NEW_BROKEN) };
    assert_eq!(approves(&few, &[broken("a"), broken("b"), empty("c")]), NONE);
    let claimed = |name| NodeFact { replacing: true, reachable: false, ..given(name) };
    assert_eq!(approves(&few, &[claimed("a"), claimed("b"), empty("c")]), NONE, "whatever becomes of them");
    let share = RolloutRules { first_install: Some(IntOrPercent::Percent(1)), ..rules(5) };
    assert_eq!(approves(&share, &nodes), ["a"], "at least one");
    let planned = plan(&share, ms(0), &[given("a"), given("b")], NOW);
    assert_eq!((planned.withdraw, planned.approve), (vec![1], vec![]), "fewer are allowed by now");
    let planned = plan(&few, ms(0), &[broken("a"), broken("b"), empty("c")], NOW);
    let message = "the budget is taken by nodes on which it failed or does not become available: a, b";
    assert_eq!((said(&planned.held).as_str(), planned.stuck), (message, Some((Stuck::Taken, vec![0, 1]))));
    let planned = plan(&few, ms(0), &[broken("a"), given("b"), empty("c")], NOW);
    assert_eq!((said(&planned.held).as_str(), planned.stuck), ("", None), "one is on its way");
    let held = RolloutRules { hold: Some(RolloutHold::Paused), ..few.clone() };
    let planned = plan(&held, ms(0), &[given("a"), empty("b")], NOW);
    assert_eq!((planned.withdraw, planned.approve, said(&planned.held).as_str()), (vec![0], vec![], "paused"));
    let not_here = NodeFact { able: false, ..empty("a") };
    assert_eq!(approves(&few, &[not_here, empty("b")]), ["b"]);
}

#[test]
fn a_node_without_a_report_may_be_one_of_those_that_a_step_allows() {
    let staged = |nodes| RolloutRules { step: Some(step(nodes)), ..rules(5) };
    let unsaid = NodeFact { able: false, unreported_until: Some(NOW + ms(1)), ..node("a", &[]) };
    let plan = plan(&staged(1), ms(0), &[unsaid.clone(), node("b", OLD)], NOW);
    assert_eq!((plan.approve, is_held_by_step(&plan.held)), (vec![], true));
    assert_eq!(approves(&staged(2), &[unsaid, node("b", OLD), node("c", OLD)]), ["b"]);
    let never = NodeFact { able: false, ..node("a", &[]) };
    assert_eq!(approves(&staged(1), &[never, node("b", OLD)]), ["b"], "it has no agent");
}

#[test]
fn a_promoted_canary_phase_does_not_wait_for_nodes_that_cannot_take_the_revision() {
    let canary = |it: NodeFact<'static>| NodeFact { canary: true, ..it };
    let unable = canary(NodeFact { able: false, ..node("b", OLD) });
    let nodes = [canary(node("a", NEW)), unable, node("c", OLD)];
    let by_hand = RolloutRules { canary_hold: Some(ms(0)), is_canary_promoted: true, ..rules(5) };
    assert_eq!(approves(&by_hand, &nodes), ["c"]);
    assert_eq!(approves(&RolloutRules { is_canary_promoted: false, ..by_hand.clone() }, &nodes), NONE);
    let on_its_way = [canary(node("a", NEW_BROKEN)), node("c", OLD)];
    assert_eq!(approves(&by_hand, &on_its_way), NONE, "it can take it, and is waited for");
}

#[test]
fn the_last_canary_node_that_goes_after_the_canary_phase_keeps_none_of_the_others() {
    let rules = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let (open, by_hand) =
        (RolloutRules { was_open: true, ..rules.clone() }, RolloutRules { is_canary_promoted: true, ..rules.clone() });
    let begun = [node("a", NEW), node("c", OLD)];
    assert_eq!(said(&plan(&rules, ms(0), &begun, NOW).held), canary::NONE, "the selector may be misspelt");
    assert_eq!(approves(&open, &begun), ["c"]);
    assert_eq!(approves(&by_hand, &begun), ["c"]);
    assert_eq!(
        approves(&open, &[node("a", NEW_BROKEN), node("c", OLD)]),
        NONE,
        "an earlier revision may have been open"
    );
    let another = NodeFact { canary: true, ..node("d", OLD) };
    assert_eq!(
        approves(&open, &[node("a", NEW), node("c", OLD), another]),
        ["d"],
        "another one goes before the others"
    );
}

#[test]
fn a_node_that_is_kept_and_breaks_is_on_no_way() {
    let rules = RolloutRules { partition: IntOrPercent::Int(2), ..rules(2) };
    let planned = plan(&rules, ms(0), &[node("a", NEW), node("b", OLD), node("c", OLD_BROKEN)], NOW);
    assert_eq!((planned.approve, planned.held), (vec![], Some(Standstill::Partition(2))));
    let nodes = [node("a", NEW_BROKEN), node("b", OLD), node("c", OLD_BROKEN)];
    assert_eq!(plan(&rules, ms(0), &nodes, NOW).held, None, "another one is");
}

#[test]
fn a_restart_gives_its_place_in_a_step_to_no_other_node() {
    let ends = [InstanceFact { ending: true, ..NEW[0] }];
    let old_ends = [InstanceFact { ending: true, ..OLD[0] }];
    let returns = |revision| NodeFact { returning: Some((revision, None)), ..node("a", &[]) };
    let two = RolloutRules { step: Some(step(2)), ..rules(3) };
    let of = |a| approves(&two, &[a, node("b", NEW), node("c", OLD), node("d", OLD)]);
    assert_eq!(of(node("a", &ends)), NONE);
    assert_eq!(of(returns(WANTED)), NONE);
    // What returns is the old one, or nothing does.
    assert_eq!(of(returns(OLD[0].revision)), ["c"]);
    assert_eq!(of(node("a", &old_ends)), ["c"]);
    assert_eq!(of(node("a", &[])), ["c"]);
}

#[test]
fn a_node_that_went_back_by_itself_gives_its_place_to_no_other() {
    let nodes = || [NodeFact { failed: true, ..node("a", OLD) }, node("b", OLD), node("c", OLD), node("d", OLD)];
    let by = |size| RolloutRules { step: Some(step(size)), ..rules(4) };
    assert_eq!(approves(&by(1), &nodes()), NONE);
    assert_eq!(approves(&by(2), &nodes()), ["b"], "the step has another node");
    let kept = |number| RolloutRules { partition: IntOrPercent::Int(number), ..rules(4) };
    assert_eq!(approves(&kept(3), &nodes()), NONE);
    assert_eq!(approves(&kept(2), &nodes()), ["b"]);
    assert_eq!(approves(&rules(4), &nodes()), ["b", "c", "d"]);
}
