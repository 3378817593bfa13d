//! A rollout in steps: so many nodes, then a hold, then more.
//!
//! Owns the annotation `daemonlet.dev/steps` and how a rollout goes through its steps. Which step a revision is in is a
//! fact about it, and outlives the coordinator. Must not choose nodes.

use serde::Deserialize;
use serde::Serialize;

use crate::core::annotations::int_or_percent;
use crate::core::duration;
use crate::core::model::IntOrPercent;
use crate::core::model::PROMOTED;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::rollout::resolve;

/// Annotation of a ControllerRevision: the step that its rollout is in, and since when it holds there.
pub const STEP_ANNOTATION: &str = "daemonlet.dev/step";

/// Steps that a rollout has at most.
const STEPS: usize = 64;
/// Characters that are told of a promotion which is void.
const SHOWN: usize = 32;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// How many nodes have the revision at its end; of a percentage rounded up, and at least one.
    pub nodes: IntOrPercent,
    /// How long they have to have it before the next step.
    pub hold: Span,
}

/// Reads `1, 10m; 5%, 30m; 100%`: a number or a share of nodes, and a Go duration where the rollout holds after it.
/// `None`: it is none, or a step is not larger than the one before.
pub fn parse(text: &str) -> Option<Vec<RolloutStep>> {
    let steps: Option<Vec<RolloutStep>> = text.split(';').take(STEPS + 1).map(step).collect();
    let steps = steps.filter(|steps| steps.len() <= STEPS)?;
    let grows = steps.windows(2).all(|pair| match (pair[0].nodes, pair[1].nodes) {
        (IntOrPercent::Int(a), IntOrPercent::Int(b)) | (IntOrPercent::Percent(a), IntOrPercent::Percent(b)) => a < b,
        // Which is larger depends on the cluster.
        _ => true,
    });
    let is_some = |step: &RolloutStep| !matches!(step.nodes, IntOrPercent::Int(0) | IntOrPercent::Percent(0));
    (grows && steps.iter().all(is_some)).then_some(steps)
}

fn step(text: &str) -> Option<RolloutStep> {
    let (nodes, hold) = match text.split_once(',') {
        Some((nodes, hold)) => (nodes, duration::parse(hold.trim())?),
        None => (text, Span::ZERO),
    };
    Some(RolloutStep { nodes: int_or_percent(nodes.trim())?, hold })
}

impl RolloutStep {
    /// How many nodes it has, as it is written.
    pub fn size(&self) -> String {
        match self.nodes {
            IntOrPercent::Int(nodes) => nodes.to_string(),
            IntOrPercent::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// Which hold is ended by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion<'a> {
    /// None.
    None,
    /// That of the step with this number.
    Of(usize),
    /// That of a step which is none of these, as it is written.
    Void(&'a str),
}

impl<'a> Promotion<'a> {
    /// As the annotation says it of a revision, `STEP/SIZE`: it counts while the step with this number has this size.
    pub fn of(written: Option<&'a str>, steps: &[RolloutStep]) -> Self {
        let Some(written) = written else { return Self::None };
        let number = written.split_once('/').and_then(|(number, size)| {
            let number: usize = number.parse().ok()?;
            let step = steps.get(number.checked_sub(1)?)?;
            (int_or_percent(size) == Some(step.nodes)).then_some(number)
        });
        number.map_or(Self::Void(written), Self::Of)
    }

    /// What is told of one that is void.
    fn words(self) -> String {
        match self {
            Self::None | Self::Of(_) => String::new(),
            Self::Void(written) => {
                let shown: String = written.chars().take(SHOWN).collect();
                format!(" ({PROMOTED} names {shown:?}, which is none of these steps)")
            }
        }
    }
}

/// The step that a revision's rollout is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Its number, from 1 on.
    pub step: usize,
    /// Since when all nodes of the step have the revision (RFC 3339), if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The revision's number: a template that comes back has another, and begins anew.
    pub number: i64,
    /// The steps that it is one of, as they are written.
    #[serde(default)]
    pub of: String,
}

impl StepState {
    /// The first step of a revision of this number.
    pub fn first(number: i64, of: &str) -> Self {
        Self { step: 1, since: None, number, of: of.to_owned() }
    }

    /// That of a ControllerRevision of this number, by its annotation; `None`: its rollout begins.
    pub fn of(annotation: Option<&str>, number: i64) -> Option<Self> {
        let known = annotation.and_then(|text| serde_json::from_str::<Self>(text).ok());
        known.filter(|known| known.number == number && known.step > 0)
    }

    /// For the annotation.
    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How far a rollout may go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLimit {
    /// How many nodes may have the revision.
    pub nodes: usize,
    /// Whether there is no step after it.
    pub is_last: bool,
    /// Where it stands, in words.
    pub words: String,
}

/// What is known of the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepFacts<'a> {
    /// Nodes that should run the daemon.
    pub(super) desired: usize,
    /// Those of them that can take the revision, or have it.
    pub(super) able: usize,
    /// Those of them that have it.
    pub(super) have: usize,
    /// Those of them that have it available.
    pub(super) done: usize,
    /// Those of them that have it, and on which it failed or which are away for good: nobody waits for them.
    pub(super) lost: usize,
    /// The first of those that have it and not available; empty if there is none.
    pub(super) unavailable: &'a str,
    /// Whether so many nodes are away, or have a dead agent, that the others do not speak for the step.
    pub(super) is_frozen: bool,
    /// Whether a hold is ended by hand.
    pub(super) promoted: Promotion<'a>,
    /// The time.
    pub(super) now: Timestamp,
}

/// Where a rollout by these steps, and as they are written, is that was in `state`: how far it may go, the state now, and when to look again.
pub(super) fn course(
    (steps, of): (&[RolloutStep], &str),
    state: &StepState,
    facts: StepFacts<'_>,
) -> (StepLimit, StepState, Option<Timestamp>) {
    let mut state = state.clone();
    let last = steps.len().max(1);
    let size = |step: &RolloutStep| resolve(&step.nodes, facts.desired).max(1);
    let before = (state.of != of).then(|| parse(&state.of).unwrap_or_default());
    if let Some(before) = before.filter(|before| before != steps) {
        if facts.is_frozen {
            let words = "its steps were changed, and no other node follows while nodes are unreachable or have a dead \
                         agent, or something else holds the rollout";
            let limit = StepLimit { nodes: facts.have, is_last: false, words: words.to_owned() };
            return (limit, state, None);
        }
        // It goes on in the first step that is not smaller than what is there, and larger than what has held already.
        let of_before = |number: usize| before.get(number.checked_sub(1)?).map(size);
        let passed = of_before(state.step - 1).unwrap_or(0);
        let goes_on = |step: &RolloutStep| size(step) >= facts.have && size(step) > passed;
        let at = steps.iter().position(goes_on).unwrap_or(last - 1);
        // A hold that has begun goes on.
        let is_same = of_before(state.step) == steps.get(at).map(size);
        let since = state.since.take().filter(|_| is_same);
        (state.step, state.since, state.of) = (at + 1, since, of.to_owned());
    }
    state.step = state.step.min(last);
    loop {
        let Some(step) = steps.get(state.step - 1) else {
            let limit = StepLimit { nodes: facts.desired, is_last: true, words: String::new() };
            return (limit, state, None);
        };
        let nodes = size(step);
        let is_last = state.step == last;
        let place = format!("step {} of {last} ({nodes} of {} nodes)", state.step, facts.desired);
        let is_promoted = facts.promoted == Promotion::Of(state.step);
        let limit = |words: String| StepLimit { nodes, is_last, words };
        let waits_for = || match facts.unavailable {
            "" => place.clone(),
            names => format!("{place}: it is not available on {names}"),
        };
        // Where fewer nodes can take it than the step has, those are enough. One at least shows that it works, or a
        // person says so.
        let begun = facts.done + facts.lost;
        let is_shown = facts.done > 0 || is_promoted && begun > 0;
        let is_done = is_shown && begun >= nodes.min(facts.able + facts.lost);
        if is_last || !is_done && state.since.is_none() {
            return (limit(waits_for()), state, None);
        }
        if facts.is_frozen {
            return (limit(format!("{place}: too many nodes are unreachable or have a dead agent")), state, None);
        }
        let since = state.since.as_ref().and_then(|since| since.parse::<Timestamp>().ok());
        // A clock that was set back makes no hold longer.
        let since = since.filter(|since| *since <= facts.now).unwrap_or(facts.now);
        state.since = Some(since.to_string());
        let until = since + step.hold;
        let is_over = is_promoted || until <= facts.now;
        if !is_over {
            let void = facts.promoted.words();
            let words = format!("{place} holds until {until}, or `kubectl daemonlet promote`{void}");
            return (limit(words), state, Some(until));
        }
        if !is_done {
            return (limit(waits_for()), state, None);
        }
        (state.step, state.since) = (state.step + 1, None);
    }
}

#[cfg(test)]
mod tests {
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
    }

    fn facts(done: usize, now: i64) -> StepFacts<'static> {
        StepFacts {
            desired: 40,
            able: 40,
            have: done,
            done,
            lost: 0,
            unavailable: "",
            is_frozen: false,
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
            limit.words.starts_with("step 1 of 3 (1 of 40 nodes) holds until 1970-01-01T00:00:12Z, or"),
            "{limit:?}"
        );
        // Another coordinator reads it: the hold goes on, also while a node is not available.
        let state = StepState::of(Some(&state.annotation()), 7).unwrap();
        assert_eq!(course((&steps, "s"), &state, facts(0, 11_999)).0.nodes, 1);
        assert_eq!(course((&steps, "s"), &state, facts(0, 12_000)).0.nodes, 1, "it does not go on without it");
        let (limit, state, _) = course((&steps, "s"), &state, facts(1, 12_000));
        assert_eq!((limit.nodes, state.step, &state.since), (2, 2, &None));
        let (_, state, _) = course((&steps, "s"), &state, facts(2, 13_000));
        let (limit, last, _) = course((&steps, "s"), &state, facts(2, 33_000));
        assert_eq!((limit.nodes, limit.is_last, last.step), (40, true, 3));
        assert_eq!(StepState::of(Some(&last.annotation()), 8), None, "the same template once more");
    }

    #[test]
    fn a_hold_ends_by_hand_and_nodes_that_cannot_take_it_hold_nobody_up() {
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
        let lost = |done, lost| StepFacts { able: 40 - lost, lost, unavailable: "b", ..facts(done, 1_000) };
        assert_eq!(course((&steps, "s"), &state, lost(1, 1)).1.step, 2);
        let (limit, same, _) = course((&steps, "s"), &state, lost(0, 2));
        assert_eq!((same.step, limit.words.as_str()), (1, "step 1 of 3 (2 of 40 nodes): it is not available on b"));
        assert_eq!(course((&steps, "s"), &state, lost(0, 1)).1.step, 1);
        let promoted = StepFacts { promoted: Promotion::Of(1), ..lost(0, 2) };
        assert_eq!(course((&steps, "s"), &state, promoted).1.step, 2);
        let second = StepState { step: 2, since: Some(at(1_000).to_string()), ..state };
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
        let told = "`kubectl daemonlet promote` (daemonlet.dev/promoted names \"1/5%\", which is none of these steps)";
        assert!(limit.words.ends_with(told), "{limit:?}");
    }

    #[test]
    fn an_outage_goes_through_no_step_and_a_clock_ahead_prolongs_no_hold() {
        let steps = parse("1; 50%, 10s; 100%").unwrap();
        let state = StepState { step: 2, ..StepState::first(1, "s") };
        let away = StepFacts { able: 1, is_frozen: true, ..facts(1, 1_000) };
        assert_eq!(course((&steps, "s"), &state, away).1, state);
        let ahead = StepState { since: Some(at(9_000_000).to_string()), ..state };
        let (_, state, look) = course((&steps, "s"), &ahead, facts(20, 1_000));
        assert_eq!((state.since.as_deref(), look), (Some(at(1_000).to_string().as_str()), Some(at(11_000))));
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
        let since = since.map(|since| at(since).to_string());
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
        assert_eq!(
            edited(before, (2, None), "3, 1h; 50%, 1h; 100%", crashing).0,
            2,
            "nodes on which it crashes have it"
        );
        let unheard = StepFacts { is_frozen: true, have: 3, ..facts(0, 0) };
        assert_eq!(edited(before, (2, None), "1, 1h; 10%; 100%", unheard), (2, false, 3), "nothing new meanwhile");
    }
}
