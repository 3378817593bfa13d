use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::steps::StepPlace;
use crate::core::cluster::steps::StepStatus;
use crate::core::time::Timestamp;
use crate::core::time::at;
use crate::core::time::ms;
use proptest::prelude::*;

use super::*;

mod clocks;
mod stages;
mod surge;
mod taints;
mod triggers;

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
        is_released: false,
        when: None,
        max_unreachable: IntOrPercent::Percent(33),
        was_open: false,
        exact: false,
    }
}

const fn fact(revision: Name, ready_since: Option<Timestamp>) -> InstanceFact {
    InstanceFact {
        revision,
        overlays: None,
        ready_since,
        was_ready: false,
        is_found: false,
        created: at(0),
        ending: false,
    }
}

fn instance(updated: bool, ready: bool) -> InstanceFact {
    fact(if updated { WANTED } else { PAST }, ready.then_some(at(0)))
}

const OLD: &[InstanceFact] = &[fact(PAST, Some(at(0)))];
const OLD_BROKEN: &[InstanceFact] = &[fact(PAST, None)];
const NEW: &[InstanceFact] = &[fact(WANTED, Some(at(0)))];
const NEW_BROKEN: &[InstanceFact] = &[fact(WANTED, None)];

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
        claim: None,
        returning: None,
        awaits_rollout: false,
        staged: None,
        failed: false,
        ends_late: false,
        late: false,
        broken: false,
        passed_over: None,
        refused_until: None,
    }
}

fn approved(name: &str, at: Timestamp) -> NodeFact<'_> {
    NodeFact { approval: Some(ApprovalFact { revision: WANTED, overlays: None, at, when: None }), ..node(name, OLD) }
}

fn approves(rules: &RolloutRules, nodes: &[NodeFact<'_>]) -> Vec<String> {
    plan(rules, ms(0), nodes, NOW).approve.into_iter().map(|i| nodes[i].name.to_owned()).collect()
}

fn in_zone<'a>(zone: &'a str, fact: NodeFact<'a>) -> NodeFact<'a> {
    NodeFact { zone: Some(zone), ..fact }
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
/// A step of so many nodes that is not the last one.
fn step(nodes: usize) -> StepLimit {
    StepLimit { nodes, is_last: false, status: StepStatus::Changed }
}

/// Whether a rollout is held by its step.
fn is_held_by_step(held: &Option<Standstill>) -> bool {
    matches!(held, Some(Standstill::Step(StepStatus::Changed)))
}

fn said(held: &Option<Standstill>) -> String {
    held.as_ref().map(ToString::to_string).unwrap_or_default()
}
const NO_NODE: [usize; 0] = [];

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
fn an_unclaimed_approval_is_withdrawn_and_a_claimed_one_never() {
    let late = approved("a", NOW - UNCLAIMED);
    let planned = plan(&rules(1), ms(0), &[late.clone(), node("b", OLD)], NOW);
    assert_eq!((planned.withdraw, planned.unclaimed, planned.approve), (vec![0], vec![0], vec![]));
    let claimed = NodeFact { replacing: true, ..late };
    let paused = RolloutRules { hold: Some(RolloutHold::Paused), ..rules(1) };
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
    let paused = RolloutRules { hold: Some(RolloutHold::Paused), ..rules(1) };
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
                    let new = InstanceFact { created: now, ..fact(WANTED, None) };
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

#[test]
fn an_unclaimed_approval_does_not_outlive_how_far_the_rollout_reaches() {
    let nodes = [approved("a", NOW), approved("b", NOW), node("c", OLD)];
    let withdrawn = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).withdraw;
    assert_eq!(withdrawn(&rules(2), &nodes), NO_NODE);
    let kept = |nodes| RolloutRules { partition: IntOrPercent::Int(nodes), ..rules(2) };
    assert_eq!(withdrawn(&kept(1), &nodes), NO_NODE);
    assert_eq!(withdrawn(&kept(2), &nodes), [1]);
    assert_eq!(withdrawn(&kept(3), &nodes), [1, 0]);
    assert_eq!(withdrawn(&RolloutRules { step: Some(step(1)), ..rules(2) }, &nodes), [1]);
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
    let unknown = |node| NodeFact { agent: AgentLiveness::Unknown, ..node };
    let planned = |nodes: &[NodeFact<'_>]| plan(&rules(1), ms(0), nodes, NOW);
    let nodes = [node("a", OLD), unknown(node("b", NEW)), unknown(node("c", NEW))];
    assert_eq!(planned(&nodes).approve, Vec::<usize>::new(), "they may both have broken");
    let nodes = [approved("a", NOW), unknown(node("b", NEW)), unknown(node("c", NEW))];
    assert_eq!(planned(&nodes).withdraw, Vec::<usize>::new(), "or not");
    let nodes = [approved("a", NOW), node("b", NEW_BROKEN), unknown(node("c", NEW))];
    assert_eq!(planned(&nodes).withdraw, [0], "one certainly has");
    assert_eq!(planned(&[unknown(node("a", OLD)), node("b", OLD), node("c", NEW)]).approve, [1]);
    let surge = RolloutRules {
        max_unavailable: IntOrPercent::Int(0),
        max_surge: IntOrPercent::Int(1),
        exact: true,
        ..rules(0)
    };
    assert_eq!(
        plan(&surge, ms(0), &[node("a", OLD), unknown(node("b", NEW))], NOW).approve,
        [0],
        "upstream's takes none"
    );
    // First installs.
    let few = RolloutRules { first_install: Some(IntOrPercent::Int(1)), ..rules(5) };
    assert_eq!(approves(&few, &[unknown(node("a", NEW)), node("b", &[])]), NONE);
    assert_eq!(approves(&few, &[unknown(node("a", &[])), node("b", &[])]), ["b"]);
    let given = NodeFact { instances: &[], ..approved("b", NOW) };
    assert_eq!(plan(&few, ms(0), &[unknown(node("a", NEW)), given], NOW).withdraw, Vec::<usize>::new());
    // The next zone waits.
    let zones = [in_zone("a", unknown(node("a1", NEW))), in_zone("b", node("b1", OLD))];
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
fn a_node_that_was_not_well_when_its_report_was_lost_keeps_its_slot() {
    let away = |broken| NodeFact { broken, reachable: false, ready: false, able: false, ..node("a", &[]) };
    assert_eq!(approves(&rules(1), &[away(false), node("b", OLD)]), ["b"]);
    assert_eq!(approves(&rules(1), &[away(true), node("b", OLD)]), NONE);
    assert_eq!(approves(&rules(2), &[away(true), node("b", OLD), node("c", OLD)]), ["b"]);
    let first = RolloutRules { first_install: Some(IntOrPercent::Int(1)), ..rules(1) };
    assert_eq!(approves(&first, &[away(false), node("b", &[])]), ["b"]);
    assert_eq!(approves(&first, &[away(true), node("b", &[])]), NONE);
}
