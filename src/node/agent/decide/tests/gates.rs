//! Gates that could not be closed or opened.

use super::*;

#[test]
fn a_gate_that_could_not_be_closed_is_open() {
    let config = config();
    let (observation, state) = (observation(None), state(&config));
    let mut decision = decided(&observation, &state, &config);
    let record = decision.state.records.get_mut(&key()).unwrap();
    record.in_boot("b").gate_closed = true;
    let uid = record.live().next().unwrap().uid.clone();
    let commit = |left_open: &[&String]| {
        let left_open = left_open.iter().map(|uid| (*uid).clone()).collect();
        let outcome = EffectOutcome { left_open, ..EffectOutcome::default() };
        let state = AgentState::commit(decision.state.clone(), &decision.plan, &outcome, observation.now);
        (state.records[&key()].has_closed_gate(&observation.boot.id), state.unsaved.contains(&key()))
    };
    assert!(commit(&[]).0);
    assert_eq!(commit(&[&uid]), (false, true), "and is saved so");
}

#[test]
fn a_gate_that_could_not_be_opened_is_closed_and_is_opened_again() {
    let config = config();
    let (observation, state) = (observation(None), state(&config));
    let mut decision = decided(&observation, &state, &config);
    Arc::make_mut(&mut decision.plan).daemons[0].record.instances = state.records[&key()].instances.clone();
    let record = &mut Arc::make_mut(&mut decision.plan).daemons[0].record;
    record.in_boot("b").gate_closed = false;
    let uid = record.live().next().unwrap().uid.clone();
    let records = BTreeMap::from([(key(), RecordFate::OnDisk)]);
    let commit = |left_closed: BTreeSet<String>| {
        let outcome = EffectOutcome { left_closed, records: records.clone(), ..EffectOutcome::default() };
        AgentState::commit(decision.state.clone(), &decision.plan, &outcome, observation.now).records[&key()]
            .has_closed_gate(&observation.boot.id)
    };
    assert!(!commit(BTreeSet::new()));
    assert!(commit(BTreeSet::from([uid])));
}
