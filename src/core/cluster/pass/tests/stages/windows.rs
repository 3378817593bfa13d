//! Windows: what closes with one, and what goes on.

use super::*;

#[test]
fn a_clock_that_jumps_ahead_moves_windows_and_ends_no_hold() {
    let steps = json!({"daemonlet.dev/steps": STEPS});
    let mut view = with_one_released(steps);
    let since = StepState { since: Some(NOW), size: 1, ..StepState::first(2, STEPS) };
    view.put(WatchedKind::Revisions, in_step(&since));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({}), approval("two", &NOW.to_string())));
    view.state.ahead = ms(3_600_000);
    let plan = view.plan(NOW + ms(1_000));
    assert_eq!((step(&plan), plan.unclaimed.len()), (None, 0));
    let mut view = with_one_released(json!({"daemonlet.dev/window": "Tue 22:00-23:00"}));
    view.state.ahead = ms(3_600_000);
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), []);
    assert!(plan.look_again.is_some_and(|at| at > NOW && at <= NOW + ms(60_000)), "{:?}", plan.look_again);
}

#[test]
fn a_clock_that_is_set_back_moves_windows() {
    // It is 22:13 by the time of the term, and 21:13 by the wall clock.
    for (window, opens) in [("Tue 22:00-23:00", false), ("Tue 21:00-21:20", true)] {
        let mut view = with_one_released(json!({"daemonlet.dev/window": window}));
        view.state.ahead = ms(-3_600_000);
        let plan = view.plan(NOW);
        assert_eq!(approved(&plan).len(), usize::from(opens), "{window}");
        assert!(plan.look_again.is_some_and(|at| at > NOW && at <= NOW + ms(60_000)), "{:?}", plan.look_again);
    }
}

#[test]
fn a_window_that_closes_takes_back_what_is_not_claimed() {
    let mut view = with_one_released(json!({"daemonlet.dev/window": "Tue 22:00-23:00"}));
    let plan = view.plan(NOW);
    assert!(plan.look_again.unwrap() <= NOW + ms(60_000), "it looks whether the window closes");
    let at = (NOW + ms(45 * 60_000)).to_string();
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", &at)));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({"replacing": hash("two")}), approval("two", &at)));
    let plan = view.plan(NOW + ms(47 * 60_000));
    let specs: Vec<_> = plan.writes.iter().filter(|write| matches!(write, ObjectWrite::Approvals { .. })).collect();
    assert!(
        matches!(specs[..], [ObjectWrite::Approvals { node, spec }] if node == "a" && spec.approvals.is_empty()),
        "{specs:?}"
    );
}

#[test]
fn a_step_that_is_done_after_its_window_has_closed_begins_its_hold() {
    let mut view = with_one_released(json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/window": "Sun"}));
    view.put(WatchedKind::Revisions, in_step(&StepState::first(2, STEPS)));
    assert_eq!(step(&view.plan(NOW)), None, "no node has it");
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let noted = step(&view.plan(NOW + ms(5_000)));
    let begun = StepState { since: Some(NOW + ms(5_000)), size: 1, ..StepState::first(2, STEPS) };
    assert_eq!(noted.as_ref(), Some(&begun));
    view.put(WatchedKind::Revisions, in_step(&begun));
    let plan = view.plan(NOW + ms(605_000));
    assert_eq!((approved(&plan), step(&plan)), (vec![], None), "no step follows before the window opens");
    annotate(&mut view, json!({"daemonlet.dev/steps": STEPS}));
    let plan = view.plan(NOW + ms(605_000));
    assert_eq!((approved(&plan).len(), step(&plan).map(|state| state.step)), (1, Some(2)));
}
