//! What conditions say, and when they change.

use super::*;

#[test]
fn foreign_conditions_stay_and_times_change_with_the_status_alone() {
    let counters = Counters {
        desired_number_scheduled: 3,
        updated_number_scheduled: 1,
        number_unavailable: 1,
        number_available: 2,
        ..Counters::default()
    };
    let nodes = |count: usize| (0..count).map(|i| format!("n{i}")).collect();
    let causes = Causes::from([("image".to_owned(), nodes(12)), ("probe".to_owned(), nodes(3))]);
    let facts = ConditionFacts {
        revision: "r",
        counters,
        held: None,
        waiting: None,
        claimed: &BTreeMap::new(),
        staged: &BTreeMap::new(),
        are_overlays_left: false,
        causes: &causes,
        trouble: None,
        back: &None,
        released: None,
        halted: None,
        is_aborted: false,
    };
    let first = merge(&[json!({"type": "Foreign", "status": "x"})], &facts, "t1");
    assert_eq!(first.len(), 4);
    assert_eq!(first[0], json!({"type": "Foreign", "status": "x"}));
    assert_eq!(first[1]["message"], "2 of 3 nodes are left");
    assert_eq!(first[3]["message"], "image on 12 nodes: n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, …; probe on 3 nodes");
    assert_eq!(merge(&first, &facts, "t2"), first);
    let halted = Halted { nodes: vec!["a".to_owned()], ..Halted::by_hand("it failed".to_owned()) };
    let all = Counters { updated_number_scheduled: 3, number_unavailable: 0, number_available: 3, ..counters };
    let ended = |halted, is_aborted| {
        let [(_, is_so, reason, message), ..] =
            conditions(&ConditionFacts { counters: all, halted, is_aborted, ..facts.clone() });
        (is_so, reason, message)
    };
    let have = "3 nodes have the current revision";
    assert_eq!(ended(None, false), (false, "Complete", have.to_owned()));
    assert_eq!(ended(Some(&halted), false), (false, "Held", format!("{have}: {halted}")));
    assert_eq!(ended(None, true), (false, "Held", format!("{have}: its rollout was aborted")));
    let by_halt = |hold: RolloutHold| {
        let held = Standstill::Hold(hold);
        let of = merge(&[], &ConditionFacts { held: Some(&held), halted: Some(&halted), ..facts.clone() }, "t1");
        let condition = |kind: &str| of.iter().find(|c| c["type"] == kind).unwrap();
        is_held_by_halt(condition("Progressing"), condition("Halted"))
    };
    assert!(by_halt(RolloutHold::Halted(halted.clone())) && !by_halt(RolloutHold::Paused));
    let of = |first_instances| {
        let released = (Released { name: "net-r".to_owned(), hash: "r".to_owned(), generation: 1 }, first_instances);
        let counters = Counters { updated_number_scheduled: 3, ..counters };
        let [(_, is_so, reason, message), ..] =
            conditions(&ConditionFacts { counters, released: Some(&released), ..facts.clone() });
        (is_so, reason, message)
    };
    let unavailable = (true, "RollingOut", format!("{have}, 2 of them available"));
    assert_eq!(of(FirstInstances::RollingOut), unavailable);
    assert_eq!(of(FirstInstances::Complete), (false, "Complete", have.to_owned()), "it is released");
    let paused = Standstill::Hold(RolloutHold::Paused);
    let progressing = |facts: &ConditionFacts<'_>| conditions(facts)[0].clone();
    // What ends somewhere and has not started anew waits for no overlays.
    let restarts = ConditionFacts { counters: all, held: Some(&paused), ..facts.clone() };
    assert_eq!(progressing(&restarts).3, have);
    let differ = progressing(&ConditionFacts { are_overlays_left: true, ..restarts });
    assert_eq!(differ.3, format!("{have}, and not all have the current overlays: paused"));
    let claimed = BTreeMap::from([("revision undone".to_owned(), 2)]);
    let undone = progressing(&ConditionFacts { claimed: &claimed, ..facts.clone() });
    let message = "2 of 3 nodes are left: 2 nodes have claimed revision undone and replace their pods";
    assert_eq!((undone.1, undone.3.as_str()), (true, message));
    let held = ConditionFacts { held: Some(&paused), ..facts };
    let second = merge(&first, &held, "t2");
    assert_eq!((&second[1]["lastTransitionTime"], &second[2]["lastTransitionTime"]), (&json!("t2"), &json!("t1")));
}

#[test]
fn nodes_that_boot_into_what_is_undone_are_named_and_the_rollout_is_not_over() {
    let counters = |updated| Counters {
        desired_number_scheduled: 3,
        updated_number_scheduled: updated,
        number_available: 3,
        ..Counters::default()
    };
    let back = GoingBack { revision: "old".to_owned(), left: 0, unable: 0, others: 0, empty: 0 };
    let staged = BTreeMap::from([("revision undone".to_owned(), vec!["n1", "n2"])]);
    let paused = Standstill::Hold(RolloutHold::Paused);
    let says = |updated, held, back: &Option<GoingBack>, staged: &BTreeMap<String, Vec<&str>>| {
        let [(_, is_so, reason, message), ..] = conditions(&ConditionFacts {
            revision: "r",
            counters: counters(updated),
            held,
            waiting: None,
            claimed: &BTreeMap::new(),
            staged,
            are_overlays_left: false,
            causes: &Causes::new(),
            trouble: None,
            back,
            released: None,
            halted: None,
            is_aborted: true,
        });
        (is_so, reason, message)
    };
    let words = "; 2 nodes have staged revision undone and start it at their next boot: n1, n2";
    assert_eq!(says(1, None, &None, &staged), (true, "RollingOut", format!("2 of 3 nodes are left{words}")));
    let held = format!("2 of 3 nodes are left: paused{words}");
    assert_eq!(says(1, Some(&paused), &None, &staged), (false, "Held", held));
    let left = format!("it was aborted: no node has it any more{words}");
    assert_eq!(says(3, None, &Some(back.clone()), &staged), (true, "RollingBack", left));
    assert_eq!(says(3, None, &Some(back), &BTreeMap::new()).1, "RolledBack");
    let one = BTreeMap::from([("another revision".to_owned(), vec!["n1"])]);
    let ends = says(2, None, &None, &one).2;
    assert!(ends.ends_with("; 1 node has staged another revision and starts it at its next boot: n1"), "{ends}");
}
