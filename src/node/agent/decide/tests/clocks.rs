//! Clocks that are set, and machines that sleep.

use super::*;

#[test]
fn a_clock_set_forward_and_a_machine_that_was_suspended_make_nothing_older() {
    const HOURS: i64 = 36_000;
    let config = config();
    let made = |state: &AgentState| state.records[&key()].instances[0].created;
    let later = |boot_moved: i64, steady: i64| {
        let before = observation(None);
        let mut boot = Boot::new("b".to_owned(), Timestamp::from_secs(1));
        boot.at += Span::from_secs(boot_moved);
        let (now, steady) = (before.now + Span::from_secs(HOURS + 10), Span::from_secs(steady));
        Observation { boot, now, steady, ..before }
    };
    let absorbed = |state: &mut AgentState, observation: &Observation| {
        let mut log = Log::default();
        state.absorb(observation, &config, &mut log);
        made(state) - Timestamp::from_secs(1_000)
    };
    // An agent that runs all the time: by its steady clock 10 s have passed.
    for boot_moved in [HOURS, 0] {
        let mut running = state(&config);
        assert_eq!(absorbed(&mut running, &observation(None)), Span::ZERO);
        let passed = observation(None).steady.as_secs() + 10;
        assert_eq!(absorbed(&mut running, &later(boot_moved, passed)), Span::from_secs(HOURS), "{boot_moved}");
    }
    // One that starts: its steady clock says nothing of the time before.
    for (boot, boot_moved, expected) in [("b", HOURS, HOURS), ("b", 0, 0), ("another", HOURS, 0)] {
        let mut started = state(&config);
        started.inputs.clocks = Boot::new(boot.to_owned(), Timestamp::from_secs(1));
        assert_eq!(absorbed(&mut started, &later(boot_moved, 0)), Span::from_secs(expected), "{boot} {boot_moved}");
    }
}

#[test]
fn a_pass_is_due_by_the_steady_clock() {
    let seen = crate::node::agent::wake::ClockReading::now(Timestamp::from_secs(100));
    let wait = |due: i64| seen.until(Timestamp::from_secs(due)) - seen.until(Timestamp::MIN);
    assert_eq!(wait(107), std::time::Duration::from_secs(7));
    assert_eq!((wait(0), wait(1_000_000)), (std::time::Duration::ZERO, std::time::Duration::from_secs(60)));
}
