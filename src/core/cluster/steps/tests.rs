use super::*;
use crate::core::time::at;

#[test]
fn steps_are_numbers_or_shares_that_grow_each_with_its_hold() {
    let minutes = |minutes: i64| Span::from_secs(minutes * 60);
    let steps = parse("1, 10m; 5%, 30m ;25%,1h; 100%").unwrap();
    let wanted = [
        (IntOrPercent::Int(1), minutes(10)),
        (IntOrPercent::Percent(5), minutes(30)),
        (IntOrPercent::Percent(25), minutes(60)),
        (IntOrPercent::Percent(100), Span::ZERO),
    ];
    assert_eq!(steps, wanted.map(|(nodes, hold)| RolloutStep { nodes, hold }));
    for wrong in ["", "1,", "1; 1", "5%; 4%", "0; 100%", "101%", "1, soon", "1, 1m, 1m", "1; ; 100%", "all"] {
        assert_eq!(parse(wrong), None, "{wrong:?}");
    }
    assert_eq!(parse(&format!("1;{}100%", " ".repeat(4 << 10))), None, "a ControllerRevision repeats it");
}

fn facts(done: usize, now: i64) -> StepFacts<'static> {
    StepFacts {
        desired: 40,
        able: 40,
        away: 0,
        have: done,
        kept: done,
        done,
        lost: 0,
        unavailable: &[],
        is_frozen: false,
        is_closed: false,
        promoted: Promotion::None,
        now: at(now),
    }
}

#[test]
fn each_step_holds_from_when_its_nodes_have_it() {
    let steps = parse("1, 10s; 5%, 20s; 100%").unwrap();
    let state = StepState::first(7, "s");
    let (limit, state, _) = course((&steps, "s"), &state, facts(0, 1_000));
    assert_eq!((limit.nodes, limit.is_last, state.step, &state.since), (1, false, 1, &None));
    let (limit, state, look) = course((&steps, "s"), &state, facts(1, 2_000));
    assert_eq!((limit.nodes, state.step, look), (1, 1, Some(at(12_000))));
    assert!(
        limit.status.to_string().starts_with("step 1 of 3 (1 of 40 nodes) holds until 1970-01-01T00:00:12Z, or"),
        "{limit:?}"
    );
    // Another coordinator reads it: the hold goes on, also while a node is not available.
    let state = StepState::of(Some(&state.annotation()), 7).unwrap();
    let restarted = |now| StepFacts { have: 1, kept: 1, ..facts(0, now) };
    assert!(course((&steps, "s"), &state, restarted(11_999)).1.since.is_some());
    assert_eq!(course((&steps, "s"), &state, restarted(12_000)).0.nodes, 1, "it does not go on without it");
    let (limit, state, _) = course((&steps, "s"), &state, facts(1, 12_000));
    assert_eq!((limit.nodes, state.step, &state.since), (2, 2, &None));
    let (_, state, _) = course((&steps, "s"), &state, facts(2, 13_000));
    let (limit, last, _) = course((&steps, "s"), &state, facts(2, 33_000));
    assert_eq!((limit.nodes, limit.is_last, last.step), (40, true, 3));
    assert_eq!(StepState::of(Some(&last.annotation()), 8), None, "the same template once more");
}

#[test]
fn a_promoted_step_does_not_wait_for_nodes_that_are_away() {
    let steps = parse("50%; 90%, 1h; 100%").unwrap();
    let state = StepState { step: 2, ..StepState::first(1, "s") };
    let away = |promoted| StepFacts { away: 6, promoted, ..facts(34, 1_000) };
    let step = |facts| course((&steps, "s"), &state, facts).1.step;
    assert_eq!(step(away(Promotion::None)), 2, "they may come back and take it");
    assert_eq!(step(away(Promotion::Of(2))), 3);
    assert_eq!(step(StepFacts { away: 5, ..away(Promotion::Of(2)) }), 2, "one is left that can take it");
}

#[test]
fn a_hold_ends_by_hand_and_nodes_that_cannot_take_the_revision_do_not_delay_it() {
    let steps = parse("2, 1h; 50%, 1h; 100%").unwrap();
    let state = StepState::first(1, "s");
    let promoted = |step, done| StepFacts { promoted: Promotion::Of(step), ..facts(done, 1_000) };
    assert_eq!(course((&steps, "s"), &state, promoted(1, 2)).1.step, 2);
    assert_eq!(course((&steps, "s"), &state, promoted(2, 2)).1.step, 1, "of another step");
    let few = StepFacts { able: 5, ..facts(5, 1_000) };
    let second = StepState { step: 2, ..StepState::first(1, "s") };
    assert!(course((&steps, "s"), &second, few).1.since.is_some());
    let fewer = StepState { step: 9, ..StepState::first(1, "s") };
    assert_eq!(course((&steps, "s"), &fewer, facts(0, 0)).1.step, 3, "the annotation had more of them");
}

#[test]
fn nodes_on_which_it_failed_hold_no_step_up_and_one_that_is_available_or_a_person_shows_that_it_works() {
    let steps = parse("2; 50%, 1h; 100%").unwrap();
    let state = StepState::first(1, "s");
    let lost = |done, lost| StepFacts { able: 40 - lost, lost, unavailable: &["b"], ..facts(done, 1_000) };
    assert_eq!(course((&steps, "s"), &state, lost(1, 1)).1.step, 2);
    let (limit, same, _) = course((&steps, "s"), &state, lost(0, 2));
    assert_eq!(
        (same.step, limit.status.to_string().as_str()),
        (1, "step 1 of 3 (2 of 40 nodes): it is not available on b")
    );
    assert_eq!(course((&steps, "s"), &state, lost(0, 1)).1.step, 1);
    let promoted = StepFacts { promoted: Promotion::Of(1), ..lost(0, 2) };
    assert_eq!(course((&steps, "s"), &state, promoted).1.step, 2);
    let second = StepState { step: 2, since: Some(at(1_000)), ..state };
    let later = StepFacts { now: at(3_601_000), ..lost(19, 1) };
    assert_eq!(course((&steps, "s"), &second, later).1.step, 3, "also after the hold");
}

#[test]
fn what_is_promoted_is_a_step_of_this_number_and_size() {
    let steps = parse("1, 1h; 5%, 1h; 5; 100%").unwrap();
    for (written, wanted) in [
        ("1/1", Promotion::Of(1)),
        ("2/5%", Promotion::Of(2)),
        ("3/5", Promotion::Of(3)),
        ("2/5", Promotion::Void("2/5")),
        ("1/5%", Promotion::Void("1/5%")),
        ("0/1", Promotion::Void("0/1")),
        ("9/1", Promotion::Void("9/1")),
        ("2", Promotion::Void("2")),
        ("", Promotion::Void("")),
    ] {
        assert_eq!(Promotion::of(Some(written), &steps), wanted, "{written}");
    }
    assert_eq!(Promotion::of(None, &steps), Promotion::None);
    assert_eq!(steps.iter().map(RolloutStep::size).collect::<Vec<_>>(), ["1", "5%", "5", "100%"]);
    let void = StepFacts { promoted: Promotion::Void("1/5%"), ..facts(1, 1_000) };
    let (limit, state, _) = course((&steps, "s"), &StepState::first(1, "s"), void);
    assert_eq!(state.step, 1);
    let hint = "`kubectl daemonlet promote` (daemonlet.dev/promoted names \"1/5%\", which is none of these steps)";
    assert!(limit.status.to_string().ends_with(hint), "{limit:?}");
}

#[test]
fn an_outage_goes_through_no_step_and_a_clock_ahead_prolongs_no_hold() {
    let steps = parse("1; 50%, 10s; 100%").unwrap();
    let state = StepState { step: 2, ..StepState::first(1, "s") };
    let away = StepFacts { able: 1, is_frozen: true, ..facts(1, 1_000) };
    assert_eq!(course((&steps, "s"), &state, away).1, state);
    let ahead = StepState { since: Some(at(9_000_000)), ..state };
    let (_, state, look) = course((&steps, "s"), &ahead, facts(20, 1_000));
    assert_eq!((state.since, look), (Some(at(1_000)), Some(at(11_000))));
}

#[test]
fn changed_steps_go_on_where_as_many_nodes_are() {
    let state = StepState { step: 2, ..StepState::first(1, "1, 10m; 5%, 1h; 25%, 1h; 100%") };
    let steps = parse("5%, 1h; 100%").unwrap();
    let (limit, state, _) = course((&steps, "5%, 1h; 100%"), &state, facts(1, 1_000));
    assert_eq!((limit.nodes, limit.is_last, state.step), (2, false, 1));
}

/// Where a rollout is after its steps were `before` and are `after`: the step, whether its hold goes on, and the limit.
fn edited(
    before: &str,
    (step, since): (usize, Option<i64>),
    after: &str,
    facts: StepFacts<'_>,
) -> (usize, bool, usize) {
    let since = since.map(at);
    let state = StepState { step, since, ..StepState::first(1, before) };
    let (limit, state, _) = course((&parse(after).unwrap(), after), &state, facts);
    (state.step, state.since.is_some(), limit.nodes)
}

#[test]
fn an_edit_repeats_no_step_that_has_held_and_skips_none_that_has_not() {
    let before = "1, 1h; 25%, 1h; 100%";
    assert_eq!(edited(before, (2, None), "1,60m;25%,1h ;100%", facts(1, 0)), (2, false, 10), "the same steps");
    assert_eq!(edited(before, (2, None), "1, 1h; 10%, 1h; 100%", facts(1, 0)), (2, false, 4));
    assert_eq!(edited(before, (2, None), "1, 1h; 10%, 1h; 50%; 100%", facts(6, 0)), (3, false, 20));
    assert_eq!(edited(before, (1, Some(5)), "1, 2h; 10%, 1h; 100%", facts(1, 9)), (1, true, 1), "its hold goes on");
    assert_eq!(edited(before, (2, Some(5)), "1, 1h; 25%, 1h; 50%; 100%", facts(10, 9)), (2, true, 10));
    assert_eq!(edited(before, (3, None), "1; 5%", facts(12, 0)), (2, false, 2), "smaller than what is there");
    let crashing = StepFacts { have: 6, ..facts(1, 0) };
    assert_eq!(edited(before, (2, None), "3, 1h; 50%, 1h; 100%", crashing).0, 2, "nodes on which it crashes have it");
    let frozen = StepFacts { is_frozen: true, have: 3, ..facts(0, 0) };
    assert_eq!(edited(before, (2, None), "1, 1h; 10%; 100%", frozen), (2, false, 3), "nothing new meanwhile");
}

#[test]
fn a_step_that_grows_during_its_hold_holds_anew_once_its_new_nodes_have_it() {
    let steps = parse("5%, 10s; 100%").unwrap();
    let of = |desired, done, now| StepFacts { desired, able: desired, ..facts(done, now) };
    let (_, state, look) = course((&steps, "s"), &StepState::first(1, "s"), of(40, 2, 1_000));
    assert_eq!((state.size, look), (2, Some(at(11_000))));
    let (_, same, look) = course((&steps, "s"), &state, of(30, 2, 2_000));
    assert_eq!((same.size, same.since.is_some(), look), (2, true, Some(at(11_000))));
    let (limit, grown, _) = course((&steps, "s"), &state, of(60, 2, 9_000));
    assert_eq!((limit.nodes, &grown.since, grown.size), (3, &None, 0));
    let (limit, grown, look) = course((&steps, "s"), &grown, of(60, 3, 11_000));
    assert_eq!((limit.nodes, grown.step, look), (3, 1, Some(at(21_000))));
    // What another version has noted goes on as it was.
    let former = StepState { size: 0, ..state };
    assert_eq!(course((&steps, "s"), &former, of(60, 2, 9_000)).2, Some(at(11_000)));
}

#[test]
fn a_hold_begins_anew_when_its_nodes_leave_and_others_take_their_places() {
    let steps = parse("2, 10s; 100%").unwrap();
    let next = |state: &StepState, facts| course((&steps, "s"), state, facts);
    let (_, state, look) = next(&StepState::first(1, "s"), facts(2, 1_000));
    assert_eq!(look, Some(at(11_000)));
    let (limit, left, _) = next(&state, facts(1, 8_000));
    assert_eq!((limit.nodes, left.step, &left.since), (2, 1, &None));
    assert_eq!(next(&left, facts(2, 10_000)).2, Some(at(20_000)));
    // Where no other node can take it, those that are left are enough.
    assert_eq!(next(&state, StepFacts { able: 1, ..facts(1, 8_000) }).2, Some(at(11_000)));
}
