//! A pass is left out only where a whole one would decide nothing.

use crate::core::status::Problem;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::manifests_of;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::requests::Reply;
use crate::node::agent::state::AgentState;
use crate::node::api::Link;
use crate::node::api::Snapshot;

use super::*;

fn at_rest() -> (Observation, AgentState, Timestamp) {
    let config = config();
    let mut state = state(&config);
    let observation = Observation { manifests: manifests_of(&state), ..observation(Some(Snapshot::default())) };
    // Nothing says what it is: it stays as it is.
    state.records.values_mut().flat_map(|r| &mut r.instances).for_each(|i| i.daemon_set = None);
    let mut due = Timestamp::MIN;
    for _ in 0..3 {
        let decision = decided(&observation, &state, &config);
        due = decision.due;
        state = AgentState::commit(decision.state, &decision.plan, &EffectOutcome::default(), observation.now);
    }
    (observation, state, due)
}

#[test]
fn what_is_left_out_would_have_decided_nothing() {
    let config = config();
    let (before, state, _) = at_rest();
    let decision = decided(&before, &state, &config);
    assert!(before.now < decision.due, "{:?}", decision.due);
    let later = Observation { now: before.now + Span::from_millis(1), ..before.clone() };
    let steady = before.steady + Span::from_millis(1);
    let later = Observation { steady, random: 0.5, ..later };
    assert!(has_no_news(&later, &before, decision.due));
    let whole = decided(&later, &state, &config);
    assert_eq!(whole.plan, decision.plan);
    assert_eq!(is_at_rest(&whole), is_at_rest(&decision));
}

#[test]
fn anything_that_is_new_or_due_makes_a_whole_pass() {
    let (before, _, due) = at_rest();
    let other = |change: &dyn Fn(&mut Observation)| {
        let mut observation = before.clone();
        change(&mut observation);
        has_no_news(&observation, &before, due)
    };
    assert!(other(&|_| ()));
    let problem = || Problem { object: "x".to_owned(), reason: "y".to_owned(), hint: None };
    let news: [&dyn Fn(&mut Observation); 13] = [
        &|o| o.now = due,
        &|o| o.now -= Span::from_millis(1),
        &|o| o.now += CLOCKS,
        &|o| o.steady = o.steady + CLOCKS,
        &|o| o.replies = vec![Reply::Published(Ok(None))],
        &|o| o.runtime = Knowledge::Current(Arc::default()),
        &|o| o.manifests = Knowledge::Current(Arc::default()),
        &|o| o.manifests = Knowledge::Unreadable("EIO".to_owned().into()),
        &|o| o.volumes = [("uid-1".to_owned(), VolumeDataState::Touched)].into(),
        &|o| o.tokens.fingerprint += 1,
        &|o| o.problems.push(problem()),
        &|o| o.folders.view = Arc::default(),
        &|o| o.seal.retry = true,
    ];
    for (index, change) in news.iter().enumerate() {
        assert!(!other(change), "change {index} went unnoticed");
    }
    let fail = |api: &mut ObservedApi| {
        let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
        let scope = Arc::make_mut(&mut api.snapshot).scopes.get_mut(&crate::node::api::Scope::Pods).unwrap();
        scope.error = Some((failure, Timestamp::MIN));
    };
    let api: [&dyn Fn(&mut ObservedApi); 4] = [
        &|api| api.link = Link::Connecting,
        &|api| api.connections_opened += 1,
        &|api| Arc::make_mut(&mut api.snapshot).content += 1,
        &fail,
    ];
    for (index, change) in api.iter().enumerate() {
        let change = |o: &mut Observation| o.api.iter_mut().for_each(change);
        assert!(!other(&change), "change {index} of the API went unnoticed");
    }
}
