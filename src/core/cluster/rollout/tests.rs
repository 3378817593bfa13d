use crate::core::time::Timestamp;
use crate::core::time::at;
use crate::core::time::ms;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = at(1_000_000);
const PAST: Name = Name::first(0);
const WANTED: Name = Name::first(1);

fn rules(max_unavailable: u32) -> RolloutRules {
    RolloutRules {
        wanted: WANTED,
        max_unavailable: IntOrPercent::Int(max_unavailable),
        max_surge: IntOrPercent::Int(0),
        hold: None,
        partition: IntOrPercent::Int(0),
        first_install: None,
        step: None,
        canary_hold: None,
        is_canary_promoted: false,
        when: None,
        max_unreachable: IntOrPercent::Percent(33),
        exact: false,
    }
}

fn instance(updated: bool, ready: bool) -> InstanceFact {
    let revision = if updated { WANTED } else { PAST };
    InstanceFact { revision, overlays: None, ready_since: ready.then_some(at(0)), created: at(0), ending: false }
}

const OLD: &[InstanceFact] =
    &[InstanceFact { revision: PAST, overlays: None, ready_since: Some(at(0)), created: at(0), ending: false }];
const OLD_BROKEN: &[InstanceFact] =
    &[InstanceFact { revision: PAST, overlays: None, ready_since: None, created: at(0), ending: false }];
const NEW: &[InstanceFact] =
    &[InstanceFact { revision: WANTED, overlays: None, ready_since: Some(at(0)), created: at(0), ending: false }];
const NEW_BROKEN: &[InstanceFact] =
    &[InstanceFact { revision: WANTED, overlays: None, ready_since: None, created: at(0), ending: false }];

fn node<'a>(name: &'a str, instances: &'a [InstanceFact]) -> NodeFact<'a> {
    NodeFact {
        name,
        should_run: true,
        belongs: true,
        ready: true,
        reachable: true,
        able: true,
        lacks: false,
        agent: AgentLiveness::Alive,
        reports: true,
        left_alone: false,
        unreported_until: None,
        zone: None,
        spread: None,
        canary: false,
        instances,
        overlays: None,
        approval: None,
        replacing: false,
        awaits_rollout: false,
        staged: false,
        failed: false,
        late: false,
        broken: false,
        passed_over: false,
        refused_until: None,
    }
}

fn approved(name: &str, at: Timestamp) -> NodeFact<'_> {
    NodeFact { approval: Some(ApprovalFact { revision: WANTED, overlays: None, at, when: None }), ..node(name, OLD) }
}

fn approves(rules: &RolloutRules, nodes: &[NodeFact<'_>]) -> Vec<String> {
    plan(rules, ms(0), nodes, NOW).approve.into_iter().map(|i| nodes[i].name.to_owned()).collect()
}

#[test]
fn the_budget_is_kept_and_unavailable_nodes_come_first() {
    assert_eq!(approves(&rules(2), &[node("c", OLD), node("a", OLD), node("b", OLD)]), ["a", "b"]);
    let nodes = [node("a", OLD), node("b", OLD_BROKEN), node("c", OLD)];
    assert_eq!(approves(&rules(1), &nodes), ["b"], "it takes the slot that there is");
    assert_eq!(approves(&rules(2), &nodes), ["b", "a"]);
    let all_broken = [node("a", OLD_BROKEN), node("b", OLD_BROKEN)];
    assert_eq!(approves(&rules(1), &all_broken), ["a", "b"], "nothing is lost by replacing them");
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", &[])]), NONE, "a node between old and new takes one");
    let waits = NodeFact { awaits_rollout: true, ..node("b", &[]) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), waits]), ["a"], "one that waits for the rollout takes none");
    assert_eq!(approves(&rules(1), &[node("a", OLD), approved("b", NOW)]), NONE);
}

const NONE: [&str; 0] = [];

/// Why a rollout stands still; empty: it does not.
fn said(held: &Option<Standstill>) -> String {
    held.as_ref().map(ToString::to_string).unwrap_or_default()
}
const NO_NODE: [usize; 0] = [];

#[test]
fn what_a_surge_left_beside_an_old_instance_that_serves_is_no_free_slot() {
    let stuck = [OLD[0], InstanceFact { revision: Name::first(2), ..OLD_BROKEN[0] }];
    assert_eq!(approves(&rules(1), &[node("a", &stuck), node("b", &stuck), node("c", OLD)]), ["a"]);
}

#[test]
fn unreachable_on_the_old_revision_takes_no_slot_and_broken_after_the_update_does() {
    let away = NodeFact { reachable: false, ready: false, ..node("away", OLD) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), away.clone()]), ["a"]);
    let exact = RolloutRules { exact: true, ..rules(1) };
    assert_eq!(approves(&exact, &[node("a", OLD), away]), NONE, "upstream's rule");
    let broke = NodeFact { reachable: false, ready: false, ..node("broke", NEW) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), broke]), NONE);
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", NEW_BROKEN)]), NONE);
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", NEW)]), ["a"]);
}

/// What placement says of a node that is not well, if the daemon does not tolerate its taints.
fn tainted<'a>(node: NodeFact<'a>) -> NodeFact<'a> {
    NodeFact { should_run: false, ready: false, ..node }
}

#[test]
fn a_node_that_breaks_under_the_new_revision_counts_also_with_taints_that_are_not_tolerated() {
    let broke = tainted(node("broke", NEW));
    assert_eq!(approves(&rules(1), &[node("a", OLD), broke.clone()]), NONE, "it keeps its slot");
    assert_eq!(approves(&rules(2), &[node("a", OLD), node("b", OLD), broke.clone()]), ["a"]);
    let claims = NodeFact { replacing: true, ..tainted(node("claims", OLD)) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), claims]), NONE, "it may be in the middle");
    assert_eq!(approves(&rules(1), &[node("a", OLD), tainted(node("old", OLD))]), ["a"], "that is not of the rollout");
    let held = |nodes: &[NodeFact<'_>]| said(&plan(&rules(1), ms(0), nodes, NOW).held);
    let words = "the budget is taken by nodes on which it failed or does not become available: broke";
    assert_eq!(held(&[node("a", OLD), broke.clone()]), words);
    let more = ["c", "d", "e", "f", "g"].map(|name| tainted(node(name, NEW)));
    let many: Vec<NodeFact<'_>> = [node("a", OLD), broke.clone()].into_iter().chain(more).collect();
    assert_eq!(held(&many), format!("{words}, c, d, e, f, …"));
    let failed = NodeFact { failed: true, ..node("broke", NEW_BROKEN) };
    assert_eq!(held(&[node("a", OLD), failed]), words);
    assert_eq!(held(&[node("a", OLD), broke.clone(), node("b", NEW_BROKEN)]), "", "one is on its way");
    assert_eq!(held(&[node("b", NEW), broke.clone()]), "", "nobody waits for it");
    let elsewhere = NodeFact { belongs: false, ..broke.clone() };
    assert_eq!(approves(&rules(1), &[node("a", OLD), elsewhere]), ["a"], "the daemon is not for that node any more");
    let canaries = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let canary = |node| NodeFact { canary: true, ..node };
    let nodes = [node("a", OLD), canary(node("b", NEW)), canary(broke)];
    let planned = plan(&canaries, ms(0), &nodes, NOW);
    assert!(planned.approve.is_empty() && said(&planned.held).ends_with("and are not: broke"), "{planned:?}");
}

#[test]
fn nothing_waits_for_a_node_that_waits_for_the_rollout() {
    let canaries = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let waits = || NodeFact { awaits_rollout: true, canary: true, ..node("c", &[]) };
    let tried = NodeFact { canary: true, ..node("b", NEW) };
    assert_eq!(approves(&canaries, &[node("a", OLD), tried, waits()]), ["a"]);
    assert_eq!(approves(&canaries, &[node("a", OLD), waits()]), NONE, "nobody has tried it");
    let promoted = RolloutRules { is_canary_promoted: true, ..canaries.clone() };
    assert_eq!(approves(&promoted, &[node("a", OLD), waits()]), ["a"]);
    let is_open = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).is_open;
    assert!(!is_open(&canaries, &[node("a", OLD), waits()]));
    assert!(is_open(&canaries, &[waits(), node("d", &[])]), "nobody can be kept on the old one");
    assert!(!is_open(&RolloutRules { hold: Some("paused".to_owned()), ..canaries }, &[waits()]));
}

#[test]
fn an_outage_holds_also_where_the_daemon_does_not_tolerate_its_taints() {
    let away = |name| NodeFact { reachable: false, ..tainted(node(name, OLD)) };
    let nodes = [node("a", OLD), node("b", OLD), node("c", OLD), away("d"), away("e"), away("f")];
    let third = RolloutRules { max_unreachable: IntOrPercent::Percent(50), ..rules(1) };
    let planned = plan(&third, ms(0), &nodes, NOW);
    assert_eq!((planned.approve, said(&planned.held).as_str()), (vec![], "3 of 6 nodes are unreachable"));
    let more = RolloutRules { max_unreachable: IntOrPercent::Percent(51), ..rules(1) };
    assert_eq!(approves(&more, &nodes), ["a"]);
}

#[test]
fn a_node_that_may_leave_the_wanted_revision_takes_a_slot() {
    let old = |name| node(name, OLD);
    let replacing = NodeFact { replacing: true, ..node("b", NEW) };
    assert_eq!(approves(&rules(1), &[old("a"), replacing]), NONE, "it has claimed what was wanted before");
    let approval = Some(ApprovalFact { revision: PAST, overlays: None, at: NOW, when: None });
    let approved = NodeFact { approval, ..node("b", NEW) };
    let planned = plan(&rules(1), ms(0), &[old("a"), approved], NOW);
    assert_eq!((planned.approve, planned.withdraw), (vec![], vec![1]), "it may claim it before it is withdrawn");
}

#[test]
fn a_replaced_node_keeps_its_slot_for_a_while() {
    let fresh = [InstanceFact { created: NOW - HOLD + ms(1), ..NEW[0] }];
    let replaced = NodeFact { instances: &fresh, ..approved("b", NOW - ms(5_000)) };
    let nodes = [node("a", OLD), replaced];
    let planned = plan(&rules(1), ms(0), &nodes, NOW);
    assert_eq!((planned.approve, planned.withdraw, planned.look_again), (vec![], vec![], Some(NOW + ms(1))));
    let planned = plan(&rules(1), ms(0), &nodes, NOW + ms(1));
    assert_eq!((planned.approve, planned.withdraw), (vec![0], vec![1]));
}

#[test]
fn min_ready_seconds_count_before_a_slot_is_free() {
    let young = [InstanceFact { ready_since: Some(NOW - ms(9_000)), ..NEW[0] }];
    let nodes = [node("a", OLD), node("b", &young)];
    let planned = plan(&rules(1), ms(10_000), &nodes, NOW);
    assert_eq!((planned.approve.len(), planned.look_again), (0, Some(NOW + ms(1_000))));
    assert_eq!(plan(&rules(1), ms(10_000), &nodes, NOW + ms(1_000)).approve, [0]);
    let ahead = [InstanceFact { ready_since: Some(NOW + ms(600_000)), ..NEW[0] }];
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", &ahead)]), ["a"], "without them no clock is asked");
}

#[test]
fn an_approval_that_nobody_claims_is_withdrawn_and_a_claimed_one_never() {
    let late = approved("a", NOW - UNCLAIMED);
    let planned = plan(&rules(1), ms(0), &[late.clone(), node("b", OLD)], NOW);
    assert_eq!((planned.withdraw, planned.unclaimed, planned.approve), (vec![0], vec![0], vec![]));
    let claimed = NodeFact { replacing: true, ..late };
    let paused = RolloutRules { hold: Some("paused".into()), ..rules(1) };
    assert!(plan(&paused, ms(0), &[claimed], NOW).withdraw.is_empty());
    assert_eq!(plan(&paused, ms(0), &[approved("a", NOW)], NOW).withdraw, [0]);
    let withdrawn_but_replacing = NodeFact { replacing: true, ..node("b", OLD) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), withdrawn_but_replacing]), NONE, "its slot is kept");
}

#[test]
fn approvals_beyond_the_budget_are_taken_back_unless_they_are_claimed() {
    let nodes = [approved("a", NOW), approved("b", NOW), node("c", OLD)];
    let planned = plan(&rules(1), ms(0), &nodes, NOW);
    assert_eq!((planned.withdraw, planned.approve), (vec![1], vec![]));
    let claimed = NodeFact { replacing: true, ..approved("b", NOW) };
    assert_eq!(plan(&rules(1), ms(0), &[approved("a", NOW), claimed.clone()], NOW).withdraw, [0]);
    let both = NodeFact { replacing: true, ..approved("a", NOW) };
    assert!(plan(&rules(1), ms(0), &[both, claimed], NOW).withdraw.is_empty());
    assert!(plan(&rules(2), ms(0), &nodes, NOW).withdraw.is_empty());
}

#[test]
fn holds_say_why() {
    let nodes =
        [node("a", OLD), NodeFact { failed: true, ..node("b", OLD) }, NodeFact { failed: true, ..node("c", OLD) }];
    assert_eq!(approves(&rules(3), &nodes), ["a"], "a node on which it failed is not approved again");
    let paused = RolloutRules { hold: Some("paused".into()), ..rules(1) };
    let planned = plan(&paused, ms(0), &nodes, NOW);
    assert_eq!((planned.approve.len(), said(&planned.held).as_str()), (0, "paused"));
    let kept = RolloutRules { partition: IntOrPercent::Int(2), ..rules(3) };
    let three = [node("a", OLD), node("b", OLD), node("c", OLD)];
    assert_eq!(approves(&kept, &three), ["a"]);
    assert_eq!(approves(&kept, &[node("a", NEW), node("b", OLD), node("c", OLD)]), NONE);
    assert_eq!(
        approves(&RolloutRules { partition: IntOrPercent::Percent(34), ..rules(3) }, &three),
        ["a"],
        "rounded up"
    );
}

#[test]
fn canaries_go_first_and_the_others_when_they_have_settled() {
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
fn canaries_that_are_nowhere_hold_the_rollout() {
    let rules = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let misplaced = NodeFact { canary: true, should_run: false, belongs: false, ..node("z", OLD) };
    let planned = plan(&rules, ms(0), &[node("a", OLD), node("b", OLD_BROKEN), misplaced], NOW);
    assert_eq!((planned.approve, said(&planned.held).as_str()), (vec![], canary::NONE));
    let paused = RolloutRules { hold: Some("paused".to_owned()), ..rules };
    let planned = plan(&paused, ms(0), &[node("a", OLD)], NOW);
    assert_eq!(planned.held, Some(Standstill::NoCanary { also: Some("paused".to_owned()) }), "a pause hides it not");
}

#[test]
fn a_surge_counts_nodes_with_both() {
    let surge = RolloutRules { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1), ..rules(0) };
    let both = [OLD[0], instance(true, false)];
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", &both)]), NONE);
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", OLD_BROKEN), node("c", OLD)]), ["b"]);
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", NEW)]), ["a"]);
}

#[test]
fn upstreams_surge_counts_only_what_is_not_available_yet() {
    let surge = RolloutRules { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1), ..rules(0) };
    let exact = RolloutRules { exact: true, ..surge.clone() };
    let (both, both_available) = ([OLD[0], instance(true, false)], [OLD[0], instance(true, true)]);
    for (instances, takes_a_slot) in [(NEW_BROKEN, false), (&both[..], true), (&both_available[..], false)] {
        let nodes = [node("a", OLD), node("b", instances)];
        assert_eq!(approves(&exact, &nodes).is_empty(), takes_a_slot, "{instances:?}");
        assert_eq!(approves(&surge, &nodes), NONE, "{instances:?}");
    }
    assert_eq!(approves(&exact, &[node("a", OLD), approved("b", NOW)]), NONE, "one on its way does");
    let exact = RolloutRules { exact: true, ..rules(1) };
    assert_eq!(approves(&exact, &[node("a", OLD), node("b", NEW_BROKEN)]), NONE, "and without a surge");
}

#[test]
fn percentages_are_rounded_up_and_zero_is_one() {
    let names: Vec<String> = (0..15).map(|i| format!("n{i:02}")).collect();
    let nodes: Vec<NodeFact<'_>> = names.iter().map(|n| node(n, OLD)).collect();
    let percent = |p| RolloutRules { max_unavailable: IntOrPercent::Percent(p), ..rules(0) };
    assert_eq!(approves(&percent(10), &nodes).len(), 2);
    assert_eq!(approves(&percent(0), &nodes).len(), 1);
}

/// A node as it really is, in the simulation.
#[derive(Clone, Debug)]
struct SimNode {
    instances: Vec<InstanceFact>,
    approval: Option<ApprovalFact>,
    replacing: bool,
    up: bool,
}

proptest! {
    /// Agents that claim, replace and turn ready in any order, nodes that go away and come back: at no
    /// moment have approvals made more nodes unavailable than the budget allows.
    #[test]
    fn a_rollout_never_exceeds_its_budget(
        count in 2_usize..8,
        budget in 1_u32..4,
        steps in proptest::collection::vec((0_usize..8, 0_u8..5), 1..120),
    ) {
        let names: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
        let fresh = SimNode { instances: OLD.to_vec(), approval: None, replacing: false, up: true };
        let mut nodes = vec![fresh; count];
        let mut now = NOW;
        for (at, what) in steps {
            now += ms(700);
            let sim = &mut nodes[at % count];
            match what {
                0 if sim.approval.is_some() && sim.instances.iter().any(|i| i.revision == PAST) => sim.replacing = true,
                1 if sim.replacing => sim.instances.clear(),
                2 if sim.replacing && sim.instances.is_empty() => {
                    let new = InstanceFact { revision: WANTED, overlays: None, ready_since: None, created: now, ending: false };
                    sim.instances.push(new);
                    sim.replacing = false;
                }
                3 => sim.instances.iter_mut().filter(|i| i.revision == WANTED).for_each(|i| i.ready_since = i.ready_since.or(Some(now))),
                4 => sim.up = !sim.up,
                _ => {}
            }
            let facts: Vec<NodeFact<'_>> = nodes.iter().zip(&names).map(|(sim, name)| NodeFact {
                ready: sim.up,
                reachable: sim.up,
                approval: sim.approval,
                replacing: sim.replacing,
                ..node(name, &sim.instances)
            }).collect();
            let planned = plan(&rules(budget), ms(0), &facts, now);
            for index in planned.withdraw {
                nodes[index].approval = None;
            }
            for index in planned.approve {
                nodes[index].approval = Some(ApprovalFact { revision: WANTED, overlays: None, at: now, when: None });
            }
            let ready = |n: &SimNode| n.instances.iter().any(|i| i.ready_since.is_some());
            let ours = nodes.iter().filter(|n| !ready(n)).count();
            prop_assert!(ours <= budget as usize, "{ours} nodes are without a ready instance: {nodes:?}");
        }
    }
}

fn in_zone<'a>(zone: &'a str, fact: NodeFact<'a>) -> NodeFact<'a> {
    NodeFact { zone: Some(zone), ..fact }
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
    assert_eq!(of(new("a1"), away, old("b1"), old("b2")), ["b1", "b2"], "who cannot take a slot holds no zone up");
    for waits in [
        node("a2", &[]),
        NodeFact { passed_over: true, ..old("a2") },
        NodeFact { refused_until: Some(NOW + ms(1)), ..old("a2") },
    ] {
        assert_eq!(of(new("a1"), waits, old("b1"), old("b2")), ["b1", "b2"], "nor who waits, or takes nothing");
    }
    let last = [NodeFact { passed_over: true, ..old("a2") }, NodeFact { passed_over: true, ..old("b2") }];
    assert_eq!(of(new("a1"), last[0].clone(), new("b1"), last[1].clone()), ["a2"], "zone by zone in the end, too");
    let waits = [in_zone("a", new("a1")), in_zone("a", node("a2", OLD)), in_zone("b", old("b1"))];
    let canary = NodeFact { canary: true, ..waits[2].clone() };
    let first = RolloutRules { canary_hold: Some(ms(0)), ..rules(1) };
    assert_eq!(approves(&first, &[waits[0].clone(), waits[1].clone(), canary]), ["b1"], "canaries are of any zone");
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
}

#[test]
fn a_step_bounds_how_many_have_it_and_keeps_the_rollout_closed() {
    let step = |nodes, is_last| Some(StepLimit { nodes, is_last, words: "step 1 holds".to_owned() });
    let first = RolloutRules { step: step(2, false), ..rules(5) };
    let nodes = [node("a", NEW), node("b", OLD), node("c", OLD), node("d", OLD)];
    let planned = plan(&first, ms(0), &nodes, NOW);
    assert_eq!((planned.approve, planned.is_open), (vec![1], false));
    let full = [node("a", NEW), node("b", NEW), node("c", OLD), node("d", OLD)];
    let planned = plan(&first, ms(0), &full, NOW);
    assert_eq!((planned.approve, said(&planned.held).as_str(), planned.is_open), (vec![], "step 1 holds", false));
    let missing = [node("a", OLD), node("b", &[]), node("c", &[]), node("d", OLD)];
    assert_eq!(
        plan(&RolloutRules { step: step(1, false), ..rules(5) }, ms(0), &missing, NOW).approve,
        [0],
        "who runs nothing is no part of it"
    );
    let broken = [node("a", NEW), node("b", NEW_BROKEN), node("c", OLD), node("d", OLD)];
    assert_eq!(
        said(&plan(&first, ms(0), &broken, NOW).held),
        "step 1 holds",
        "it is told also while one is not available"
    );
    let last = RolloutRules { step: step(4, true), ..rules(5) };
    let planned = plan(&last, ms(0), &full, NOW);
    assert_eq!((planned.approve, planned.is_open), (vec![2, 3], true));
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
    let words = "the budget is taken by nodes on which it failed or does not become available: a, b";
    assert_eq!((said(&planned.held).as_str(), planned.stuck), (words, Some((Stuck::Taken, vec![0, 1]))));
    let planned = plan(&few, ms(0), &[broken("a"), given("b"), empty("c")], NOW);
    assert_eq!((said(&planned.held).as_str(), planned.stuck), ("", None), "one is on its way");
    let held = RolloutRules { hold: Some("paused".to_owned()), ..few.clone() };
    let planned = plan(&held, ms(0), &[given("a"), empty("b")], NOW);
    assert_eq!((planned.withdraw, planned.approve, said(&planned.held).as_str()), (vec![0], vec![], "paused"));
    let not_here = NodeFact { able: false, ..empty("a") };
    assert_eq!(approves(&few, &[not_here, empty("b")]), ["b"]);
}

#[test]
fn a_node_is_done_when_its_revision_and_its_overlays_are() {
    let (one, two) = (Some(Name::first(5)), Some(Name::first(6)));
    let of = |overlays| [InstanceFact { overlays, ..NEW[0] }];
    let (plain, patched) = (of(None), of(one));
    let wants = |name, overlays, instances| NodeFact { overlays, ..node(name, instances) };
    let planned = |nodes: &[NodeFact<'_>]| plan(&rules(1), ms(0), nodes, NOW);
    let nodes =
        [wants("a", one, &plain), wants("b", one, &patched), wants("c", None, &plain), wants("d", two, &patched)];
    let found = planned(&nodes);
    assert_eq!((found.approve, found.updated), (vec![0], 2), "within the budget of one");
    let approved = |overlays| Some(ApprovalFact { revision: WANTED, overlays, at: NOW, when: None });
    let given = [NodeFact { approval: approved(one), ..nodes[0].clone() }];
    assert_eq!(planned(&given).withdraw, Vec::<usize>::new());
    let other = [NodeFact { approval: approved(two), ..nodes[0].clone() }];
    assert_eq!(planned(&other).withdraw, [0], "its overlays have changed since");
    let claimed = [NodeFact { replacing: true, ..other[0].clone() }];
    assert_eq!(planned(&claimed).withdraw, Vec::<usize>::new(), "what is claimed goes on");
}

/// A node with an approval that waits for this trigger.
fn standing(name: &str, when: UpdateTrigger) -> NodeFact<'_> {
    NodeFact {
        approval: Some(ApprovalFact { revision: WANTED, overlays: None, at: at(0), when: Some(when) }),
        ..node(name, OLD)
    }
}

fn on(when: UpdateTrigger) -> RolloutRules {
    RolloutRules { when: Some(when), ..rules(1) }
}

#[test]
fn what_waits_for_a_trigger_is_given_to_all_and_takes_a_slot_from_its_claim_on() {
    let drain = on(UpdateTrigger::Drain);
    let three = [node("a", OLD), node("b", OLD), node("c", OLD_BROKEN)];
    let planned = plan(&drain, ms(0), &three, NOW);
    assert_eq!((planned.approve.len(), planned.slots, planned.waiting), (3, 1, 3), "c is unavailable already");
    let nodes = [standing("a", UpdateTrigger::Drain), standing("b", UpdateTrigger::Drain), node("c", NEW)];
    let planned = plan(&drain, ms(0), &nodes, NOW);
    assert_eq!((planned.withdraw, planned.unclaimed), (vec![], vec![]), "without time limit");
    assert_eq!((planned.slots, planned.waiting, planned.look_again), (0, 2, None));
    let claimed = NodeFact { replacing: true, ..standing("a", UpdateTrigger::Drain) };
    let planned = plan(&drain, ms(0), &[claimed, standing("b", UpdateTrigger::Drain)], NOW);
    assert_eq!((planned.slots, planned.waiting, planned.withdraw), (1, 1, vec![]));
}

#[test]
fn what_waits_for_a_trigger_is_withdrawn_when_that_or_the_rollout_ends() {
    let withdrawn = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).withdraw;
    let nodes = [standing("a", UpdateTrigger::Drain)];
    let drain = on(UpdateTrigger::Drain);
    assert_eq!(withdrawn(&RolloutRules { hold: Some("paused".into()), ..drain.clone() }, &nodes), [0]);
    assert_eq!(withdrawn(&RolloutRules { wanted: Name::first(2), ..drain.clone() }, &nodes), [0]);
    for other in [RolloutRules { when: None, ..drain.clone() }, on(UpdateTrigger::Boot)] {
        assert_eq!(withdrawn(&other, &nodes), [0], "its owner has written another trigger, or none");
    }
    let dropped = plan(&drain, ms(0), &[approved("a", NOW), approved("b", NOW)], NOW);
    assert_eq!((dropped.withdraw, dropped.slots), (vec![], 0), "an older resource drops what it waits for");
    assert_eq!(withdrawn(&drain, &[approved("a", NOW - UNCLAIMED)]), [0], "that has its time limit");
    assert_eq!(withdrawn(&drain, &[NodeFact { failed: true, ..nodes[0].clone() }]), [0]);
    assert_eq!(withdrawn(&drain, &[NodeFact { able: false, ..nodes[0].clone() }]), [0], "its agent is dead");
    let away = NodeFact { able: false, reachable: false, ready: false, ..nodes[0].clone() };
    assert_eq!(withdrawn(&drain, &[away]), [0], "a node that is down is given it anew");
}

#[test]
fn steps_partition_and_canaries_bound_what_waits_for_a_trigger() {
    let boot = on(UpdateTrigger::Boot);
    let step = |nodes| Some(StepLimit { nodes, is_last: false, words: "step 1".to_owned() });
    let one = RolloutRules { step: step(1), ..boot.clone() };
    assert_eq!(approves(&one, &[node("a", OLD), node("b", OLD)]), ["a"]);
    let nodes = [standing("a", UpdateTrigger::Boot), standing("b", UpdateTrigger::Boot)];
    assert_eq!(plan(&one, ms(0), &nodes, NOW).withdraw, [1], "the steps were changed");
    let staged = NodeFact { staged: true, ..node("b", OLD) };
    assert_eq!(approves(&one, &[node("a", OLD), staged]), NONE, "what was withdrawn counts until its agent says so");
    let kept = RolloutRules { partition: IntOrPercent::Int(1), ..boot.clone() };
    assert_eq!(approves(&kept, &[node("a", OLD), node("b", OLD)]), ["a"]);
    assert_eq!(plan(&kept, ms(0), &nodes, NOW).withdraw, [1]);
    let canary = RolloutRules { canary_hold: Some(ms(0)), ..boot };
    let first = NodeFact { canary: true, ..standing("b", UpdateTrigger::Boot) };
    let nodes = [standing("a", UpdateTrigger::Boot), first];
    assert_eq!(plan(&canary, ms(0), &nodes, NOW).withdraw, [0]);
}

#[test]
fn what_waits_for_a_trigger_on_a_node_that_is_away_keeps_no_place() {
    let drain = on(UpdateTrigger::Drain);
    let step = Some(StepLimit { nodes: 1, is_last: false, words: "step 1".to_owned() });
    let away = NodeFact { reachable: false, ..standing("a", UpdateTrigger::Drain) };
    let staged = NodeFact { staged: true, ..away.clone() };
    let withdrawn = |node: NodeFact<'_>| plan(&drain, ms(0), &[node, self::node("b", OLD)], NOW).withdraw;
    assert_eq!((withdrawn(away.clone()), withdrawn(staged)), (vec![0], NO_NODE.to_vec()));
    let many = ["a", "b", "c"].map(|name| NodeFact { name, ..away.clone() });
    assert_eq!(plan(&drain, ms(0), &many, NOW).withdraw, NO_NODE, "an outage takes nothing back");
    // Another node takes its place, in the step and in the zones.
    let rest = NodeFact { approval: None, ..away };
    let of = |zone, fact| NodeFact { zone: Some(zone), ..fact };
    let nodes = [of("z1", rest), of("z2", node("b", OLD))];
    assert_eq!(approves(&RolloutRules { step, ..drain }, &nodes), ["b"]);
}

#[test]
fn an_approval_that_nobody_has_claimed_does_not_outlive_how_far_the_rollout_reaches() {
    let nodes = [approved("a", NOW), approved("b", NOW), node("c", OLD)];
    let withdrawn = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).withdraw;
    assert_eq!(withdrawn(&rules(2), &nodes), NO_NODE);
    let kept = |nodes| RolloutRules { partition: IntOrPercent::Int(nodes), ..rules(2) };
    assert_eq!(withdrawn(&kept(1), &nodes), NO_NODE);
    assert_eq!(withdrawn(&kept(2), &nodes), [1]);
    assert_eq!(withdrawn(&kept(3), &nodes), [1, 0]);
    let step = StepLimit { nodes: 1, is_last: false, words: "step 1".to_owned() };
    assert_eq!(withdrawn(&RolloutRules { step: Some(step), ..rules(2) }, &nodes), [1]);
    let canary = RolloutRules { canary_hold: Some(ms(0)), ..rules(2) };
    let first = NodeFact { canary: true, ..nodes[1].clone() };
    assert_eq!(withdrawn(&canary, &[nodes[0].clone(), first]), [0]);
    let claimed = NodeFact { replacing: true, ..nodes[0].clone() };
    assert_eq!(withdrawn(&kept(2), &[claimed, node("b", OLD)]), NO_NODE);
}

#[test]
fn a_right_that_the_coordinator_lacks_is_not_tried_on_every_node() {
    let refused = |name| NodeFact { refused_until: Some(NOW), ..node(name, OLD) };
    let few: Vec<NodeFact<'_>> = ["a", "b"].map(refused).into_iter().chain([node("c", OLD)]).collect();
    assert_eq!(approves(&rules(1), &few), ["c"]);
    let many = ["a", "b", "d", "e", "f", "g", "h", "i", "j"].map(refused).into_iter();
    let many: Vec<NodeFact<'_>> = many.chain([node("c", OLD)]).collect();
    assert_eq!(approves(&rules(1), &many), ["a"]);
    // One that costs nothing to replace is kept back by none of them.
    let broken = many.into_iter().chain([node("z", OLD_BROKEN)]).collect::<Vec<_>>();
    assert_eq!(approves(&rules(1), &broken), ["z"]);
}

#[test]
fn a_slot_that_is_in_doubt_is_neither_given_nor_taken_back() {
    let unheard = |node| NodeFact { agent: AgentLiveness::Unheard, ..node };
    let planned = |nodes: &[NodeFact<'_>]| plan(&rules(1), ms(0), nodes, NOW);
    let nodes = [node("a", OLD), unheard(node("b", NEW)), unheard(node("c", NEW))];
    assert_eq!(planned(&nodes).approve, Vec::<usize>::new(), "they may both have broken");
    let nodes = [approved("a", NOW), unheard(node("b", NEW)), unheard(node("c", NEW))];
    assert_eq!(planned(&nodes).withdraw, Vec::<usize>::new(), "or not");
    let nodes = [approved("a", NOW), node("b", NEW_BROKEN), unheard(node("c", NEW))];
    assert_eq!(planned(&nodes).withdraw, [0], "one certainly has");
    assert_eq!(planned(&[unheard(node("a", OLD)), node("b", OLD), node("c", NEW)]).approve, [1]);
    let surge = RolloutRules {
        max_unavailable: IntOrPercent::Int(0),
        max_surge: IntOrPercent::Int(1),
        exact: true,
        ..rules(0)
    };
    assert_eq!(
        plan(&surge, ms(0), &[node("a", OLD), unheard(node("b", NEW))], NOW).approve,
        [0],
        "upstream's takes none"
    );
    // First installs.
    let few = RolloutRules { first_install: Some(IntOrPercent::Int(1)), ..rules(5) };
    assert_eq!(approves(&few, &[unheard(node("a", NEW)), node("b", &[])]), NONE);
    assert_eq!(approves(&few, &[unheard(node("a", &[])), node("b", &[])]), ["b"]);
    let given = NodeFact { instances: &[], ..approved("b", NOW) };
    assert_eq!(plan(&few, ms(0), &[unheard(node("a", NEW)), given], NOW).withdraw, Vec::<usize>::new());
    // The next zone waits.
    let zones = [in_zone("a", unheard(node("a1", NEW))), in_zone("b", node("b1", OLD))];
    assert_eq!(plan(&rules(5), ms(0), &zones, NOW).approve, Vec::<usize>::new());
}

#[test]
fn what_is_withdrawn_from_a_node_that_is_left_out_keeps_its_slot_until_it_is_gone() {
    let left_out = NodeFact { should_run: false, reachable: false, ready: false, ..approved("a", NOW) };
    let nodes = [left_out.clone(), node("b", OLD)];
    let planned = plan(&rules(1), ms(0), &nodes, NOW);
    assert_eq!((planned.withdraw, planned.approve), (vec![0], vec![]), "it may claim it before that");
    let nodes = [NodeFact { approval: None, ..left_out }, node("b", OLD)];
    assert_eq!(approves(&rules(1), &nodes), ["b"]);
}

#[test]
fn who_has_not_said_what_runs_may_be_one_of_those_that_a_step_allows() {
    let step = |nodes| StepLimit { nodes, words: "step 1 holds".to_owned(), is_last: false };
    let staged = |nodes| RolloutRules { step: Some(step(nodes)), ..rules(5) };
    let unsaid = NodeFact { able: false, unreported_until: Some(NOW + ms(1)), ..node("a", &[]) };
    let plan = plan(&staged(1), ms(0), &[unsaid.clone(), node("b", OLD)], NOW);
    assert_eq!((plan.approve, said(&plan.held).as_str()), (vec![], "step 1 holds"));
    assert_eq!(approves(&staged(2), &[unsaid, node("b", OLD), node("c", OLD)]), ["b"]);
    let never = NodeFact { able: false, ..node("a", &[]) };
    assert_eq!(approves(&staged(1), &[never, node("b", OLD)]), ["b"], "it has no agent");
}

#[test]
fn a_node_that_was_not_well_when_its_report_was_lost_keeps_its_slot() {
    let away = |broken| NodeFact { broken, reachable: false, ready: false, able: false, ..node("a", &[]) };
    assert_eq!(approves(&rules(1), &[away(false), node("b", OLD)]), ["b"]);
    assert_eq!(approves(&rules(1), &[away(true), node("b", OLD)]), NONE);
    assert_eq!(approves(&rules(2), &[away(true), node("b", OLD), node("c", OLD)]), ["b"]);
    let first = RolloutRules { first_install: Some(IntOrPercent::Int(1)), ..rules(1) };
    assert_eq!(approves(&first, &[away(false), node("b", &[])]), ["b"]);
    assert_eq!(approves(&first, &[away(true), node("b", &[])]), NONE);
}

#[test]
fn a_canary_phase_that_is_promoted_does_not_wait_for_who_cannot_take_it() {
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
fn what_waits_for_a_trigger_in_a_zone_whose_turn_it_is_not_is_taken_back() {
    let drained = RolloutRules { when: Some(UpdateTrigger::Drain), ..rules(1) };
    let given = |name, zone| {
        let when = Some(UpdateTrigger::Drain);
        let approval = Some(ApprovalFact { revision: WANTED, overlays: None, at: at(0), when });
        NodeFact { approval, zone, ..node(name, OLD) }
    };
    let of = |zones: [Option<&'static str>; 4]| {
        let nodes: Vec<NodeFact<'_>> = ["a", "b", "c", "d"].into_iter().zip(zones).map(|(n, z)| given(n, z)).collect();
        let withdraw = plan(&drained, ms(0), &nodes, NOW).withdraw;
        withdraw.into_iter().map(|i| nodes[i].name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of([None; 4]), NONE);
    assert_eq!(of([Some("y"), Some("z"), Some("y"), Some("z")]), ["b", "d"]);
}
