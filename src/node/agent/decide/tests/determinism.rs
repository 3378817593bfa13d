//! The same observation and state give the same decision, whatever the cache holds and the order of concerns is.

use crate::node::agent::replay::tests::update_seen_by;

use super::*;

#[test]
fn the_same_observation_and_state_give_the_same_decision_whatever_the_cache_holds() {
    let mut cache = RenderCache::default();
    let (mut passes, mut pulls) = (0, false);
    let mut is_same = |observation: &Observation, state: &AgentState, config: &Config| {
        // Then a new instance waits for its images.
        let observation = &Observation { can_ask_runtime: passes % 2 > 0, ..observation.clone() };
        let first = decide(observation, state, config, &mut cache);
        pulls |= first.plan.daemons.iter().any(|daemon| daemon.pull.is_some());
        let again = decide(observation, state, config, &mut cache);
        let empty = decided(observation, state, config);
        cache.shrink();
        let shrunk = decide(observation, state, config, &mut cache);
        for (other, why) in [(again, "again"), (empty, "an empty cache"), (shrunk, "what was written is given up")] {
            other.assert_same(&first, why);
            assert_eq!((&other.requests, &other.log), (&first.requests, &first.log), "{why}");
        }
        passes += 1;
    };
    let config = config();
    is_same(&observation(Some(Snapshot::default())), &state(&config), &config);
    update_seen_by(|observation, state, config| (0..2).for_each(|_| is_same(observation, state, config)));
    assert!(passes == 17 && pulls, "{passes} passes");
}

/// Asserts that any of some orders of the concerns gives the same decision. Gives how many requests it has.
fn is_same_in_any_order(observation: &Observation, state: &AgentState, config: &Config) -> usize {
    let mut order = Concern::ALL;
    let first = decide_in_order(&order, observation, state, config, &mut RenderCache::default());
    let mut seed = 1_u64;
    for _ in 0..40 {
        for end in (1..order.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(end, usize::try_from(seed >> 33).unwrap() % (end + 1));
        }
        let other = decide_in_order(&order, observation, state, config, &mut RenderCache::default());
        other.assert_same(&first, &format!("{order:?}"));
    }
    first.requests.len()
}

#[test]
fn the_order_in_which_concerns_are_asked_changes_nothing() {
    let config = config();
    let mut ending = state(&config);
    ending.tear_down();
    let mut unsure = state(&config);
    unsure.inputs.daemon_sets.insert(key(), daemon_set());
    for state in [state(&config), ending, unsure] {
        for api in [None, Some(Snapshot::default())] {
            for runtime in [Knowledge::NeverHeard, Knowledge::Current(Arc::default())] {
                let observation = Observation { runtime, ..observation(api.clone()) };
                is_same_in_any_order(&observation, &state, &config);
            }
        }
    }
}

#[test]
fn the_order_of_concerns_changes_nothing_while_a_new_revision_takes_the_place_of_an_instance() {
    let mut most = 0;
    update_seen_by(|observation, state, config| most = most.max(is_same_in_any_order(observation, state, config)));
    assert!(most > 1, "a pass asks for more than one thing: {most}");
}
