//! Whether somebody can say when an instance is gone, and whether it is.
//!
//! Owns who is believed. The container runtime comes first, or the kubelet in its place; last the mirror pod. A runtime
//! that does not list what the kubelet runs is another one, and says nothing.

use serde_json::Value;

use crate::core::knowledge::Knowledge;
use crate::core::plan::Evidence;
use crate::core::plan::GONE_AFTER;
use crate::core::plan::Witness;
use crate::core::record::GoneBy;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Span;
use crate::node::api::Scope;

use super::evidence;
use super::observation::Observation;

/// How long a mirror pod counts as the kubelet's word that it still works on a pod that ends.
const LETS_GO: Span = Span::from_secs(15);
/// How long after its grace period an instance counts as gone where nothing but time can tell.
const BEYOND_GRACE: Span = Span::from_secs(30);
/// A list of the runtime that is older says nothing about who can be asked now.
const RECENT: Span = Span::from_secs(10);
/// One that is older may be of before an instance that it does not have.
const FRESH: Span = Span::from_secs(3);

/// What there is to say of one instance's end.
pub(super) struct Ends<'a> {
    pub(super) observation: &'a Observation,
    /// Its mirror pod.
    pub(super) mirror: Option<&'a Value>,
    /// Whether the runtime has listed any instance of ours: else it may be another than the kubelet's.
    pub(super) is_kubelets: bool,
    /// Whether the runtime was asked for this very pass.
    pub(super) has_asked: bool,
    /// How long this process has seen the instance end.
    pub(super) ended_for: Span,
}

impl Ends<'_> {
    /// Whether the kubelet shows containers of an instance that the runtime does not list.
    fn is_contradicted(&self) -> bool {
        self.observation.api_answers() && self.mirror.is_some_and(evidence::has_started)
    }

    /// Whether the runtime can say of `instance` that nothing of it runs.
    fn believes_runtime(&self, instance: &Instance) -> bool {
        match instance.phase {
            _ if instance.listed => true,
            Phase::Ending { gone_by: GoneBy::NotAccepted, .. } => true,
            Phase::Ending { gone_by: GoneBy::Runtime, .. } => !self.is_contradicted(),
            _ => self.is_kubelets && !self.is_contradicted(),
        }
    }
}

/// Whether somebody can say when `instance`, which runs, is gone. `not_accepted`: the kubelet did not accept it.
pub(super) fn witness(instance: &Instance, not_accepted: bool, ends: &Ends<'_>) -> Witness {
    let observation = ends.observation;
    if observation.is_before_kubelet && !observation.run_in_this_boot.contains(&instance.uid) {
        return Witness::Here(GoneBy::Unseen);
    }
    if not_accepted {
        return Witness::Here(GoneBy::NotAccepted);
    }
    let (age, is_seen) = (observation.now - observation.runtime_as_of, instance.listed);
    let is_before_it = observation.runtime_as_of < instance.created;
    let is_unasked = !ends.has_asked && (age > FRESH || is_before_it);
    let runtime = match &observation.runtime {
        Knowledge::Current(_) if age > RECENT => return Witness::Ask,
        Knowledge::Current(_) if is_unasked && !is_seen => return Witness::Ask,
        Knowledge::Current(_) if observation.runtime_pod(&instance.uid).is_some() => {
            return Witness::Here(GoneBy::Witness);
        }
        Knowledge::Current(_) if is_seen && !ends.is_contradicted() => return Witness::Here(GoneBy::Witness),
        Knowledge::Current(_) if ends.believes_runtime(instance) && !ends.is_contradicted() => {
            return Witness::Here(GoneBy::Runtime);
        }
        Knowledge::Current(_) => "the container runtime does not list it (is it the one that the kubelet uses?)",
        Knowledge::NeverHeard | Knowledge::Remembered(..) => return Witness::Ask,
        Knowledge::Unreadable(_) => "the container runtime does not answer",
        Knowledge::Absent(_) => "runtime-endpoint is not set",
    };
    let api = match &observation.api {
        Some(_) if observation.api_answers() && ends.mirror.is_some() => return Witness::Here(GoneBy::Witness),
        Some(_) if observation.api_answers() => "the API server has no mirror pod of it",
        Some(_) => "the API server does not answer",
        None => "no API server is configured",
    };
    Witness::Nobody(format!("nobody could say when its pod has ended: {runtime}, and {api}"))
}

/// Whether anything of an instance that ends still runs.
///
/// The mirror pod is the last evidence: gone for longer than the kubelet's housekeeping period, and for the pod's whole
/// grace period, as nobody can tell who deleted it.
pub(super) fn sandbox(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let Phase::Ending { since, boot, gone_by, .. } = &instance.phase else { return Evidence::Running };
    let today = &observation.boot.id;
    // Nothing outlives a boot.
    if *gone_by == GoneBy::Unseen || !boot.is_empty() && !today.is_empty() && boot != today {
        return Evidence::Gone;
    }
    let waited = observation.now - *since;
    match &observation.runtime {
        Knowledge::Current(_) if ends.believes_runtime(instance) => match observation.runtime_pod(&instance.uid) {
            Some(pod) if pod.alive => Evidence::Running,
            // What was said before it ended may be older than its sandbox.
            _ if *since > observation.runtime_as_of => {
                Evidence::Unknown("the list of what runs is older than its end".to_owned())
            }
            // A sandbox that is being made is in no list yet: the kubelet drops the mirror pod when it is done.
            _ if !instance.started && waited < LETS_GO && ends.mirror.is_some() => {
                Evidence::Unknown("the kubelet may still be about to start it".to_owned())
            }
            _ => Evidence::Gone,
        },
        Knowledge::NeverHeard | Knowledge::Remembered(..) => {
            Evidence::Unknown(evidence::why_unknown(&observation.runtime))
        }
        Knowledge::Current(_) | Knowledge::Unreadable(_) | Knowledge::Absent(_) => by_mirror(instance, ends),
    }
}

fn by_mirror(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let is_listed = observation.snapshot().is_some_and(|api| api.lists(&Scope::Pods) > 0);
    match (is_listed, ends.mirror) {
        (false, _) => return by_time(instance, ends),
        (true, Some(_)) => return Evidence::Running,
        (true, None) => {}
    }
    let waited = instance.phase.since().map_or(Span::ZERO, |since| observation.now - since);
    waited_out(waited, evidence::grace_period(instance) + GONE_AFTER)
}

/// Where nobody can say, and never could, the grace period and some more by the steady clock; else somebody is waited
/// for who can.
fn by_time(instance: &Instance, ends: &Ends<'_>) -> Evidence {
    let observation = ends.observation;
    let is_alone = matches!(observation.runtime, Knowledge::Absent(_)) && observation.api.is_none();
    let is_timed =
        is_alone || matches!(instance.phase, Phase::Ending { gone_by: GoneBy::Time | GoneBy::NotAccepted, .. });
    match (&observation.runtime, is_timed) {
        (_, true) => waited_out(ends.ended_for, evidence::grace_period(instance) + BEYOND_GRACE),
        (Knowledge::Unreadable(why), _) => Evidence::Unknown(why.clone()),
        (Knowledge::Current(_), _) => Evidence::Unknown("the container runtime has never listed it".to_owned()),
        _ => {
            let why = "no runtime endpoint is configured, and no API server shows its mirror pod";
            Evidence::Unknown(why.to_owned())
        }
    }
}

fn waited_out(waited: Span, grace: Span) -> Evidence {
    match waited >= grace {
        true => Evidence::Gone,
        false => {
            Evidence::Unknown(format!("its grace period is waited out for {} s more", (grace - waited).as_secs_ceil()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use crate::core::knowledge::Absence;
    use crate::core::time::Timestamp;
    use crate::core::time::at;
    use crate::core::time::ms;
    use crate::node::agent::evidence::RuntimePod;
    use crate::node::agent::observation::Boot;
    use crate::node::api::Link;
    use crate::node::api::Snapshot;

    use super::*;

    type Runtime = Knowledge<Arc<Vec<RuntimePod>>>;

    const NONE: Runtime = Knowledge::Absent(Absence::NotConfigured);
    /// When instances end.
    const END: i64 = 1_000;

    fn lists(uids: &[(&str, bool)]) -> Runtime {
        let pod = |(uid, alive): &(&str, bool)| RuntimePod {
            uid: (*uid).to_owned(),
            alive: *alive,
            running_since: None,
            sandboxes: Vec::new(),
            crashing: false,
            fact: Default::default(),
            reported: None,
        };
        Knowledge::Current(Arc::new(uids.iter().map(pod).collect()))
    }

    /// An observation of the boot "b"; `api`: whether one is configured, and whether it answers.
    fn observation(runtime: Runtime, api: Option<bool>, now: i64) -> Observation {
        let mut observation = Observation::of(api.map(|_| Snapshot::default()), runtime, now);
        observation.boot = Boot { id: "b".to_owned(), at: at(0) };
        if let (Some(observed), Some(false)) = (&mut observation.api, api) {
            observed.link = Link::Connecting;
        }
        observation
    }

    fn ends(observation: &Observation) -> Ends<'_> {
        Ends { observation, mirror: None, is_kubelets: false, has_asked: false, ended_for: Span::ZERO }
    }

    fn instance() -> Instance {
        Instance { started: true, ..Instance::new("u", "p", 0, "", at(0)) }
    }

    fn ending(boot: &str, gone_by: GoneBy) -> Instance {
        let phase =
            Phase::Ending { since: at(END), reason: String::new(), boot: boot.to_owned(), returns: true, gone_by };
        Instance { phase, ..instance() }
    }

    fn is_nobody(witness: &Witness) -> bool {
        matches!(witness, Witness::Nobody(_))
    }

    #[test]
    fn without_a_runtime_the_mirror_pod_of_an_api_server_that_answers_is_the_witness() {
        let mirror = json!({});
        for (api, has_mirror, expected) in
            [(None, false, false), (Some(false), true, false), (Some(true), false, false), (Some(true), true, true)]
        {
            let observation = observation(NONE, api, 0);
            let ends = Ends { mirror: has_mirror.then_some(&mirror), ..ends(&observation) };
            assert_eq!(!is_nobody(&witness(&instance(), false, &ends)), expected, "{api:?} {has_mirror}");
            let hung = Observation { runtime: Knowledge::Unreadable("it hangs".to_owned()), ..observation.clone() };
            let ends = Ends { observation: &hung, ..ends };
            assert_eq!(!is_nobody(&witness(&instance(), false, &ends)), expected, "{api:?} {has_mirror}");
        }
    }

    #[test]
    fn a_runtime_is_asked_lately_and_must_be_the_kubelets() {
        let of = |runtime: Runtime| witness(&instance(), false, &ends(&observation(runtime, None, 0)));
        assert_eq!(of(Knowledge::NeverHeard), Witness::Ask);
        assert_eq!(of(lists(&[("u", true)])), Witness::Here(GoneBy::Witness));
        assert!(is_nobody(&of(lists(&[("another", true)]))), "it may be another than the kubelet's");
        let mut old = observation(lists(&[("u", true)]), None, 20_000);
        old.runtime_as_of = at(9_999);
        assert_eq!(witness(&instance(), false, &ends(&old)), Witness::Ask);
        let age = |millis| {
            let mut old = observation(lists(&[]), Some(true), 20_000);
            old.runtime_as_of = old.now - Span::from_millis(millis);
            let of = |instance: &Instance| witness(instance, false, &Ends { is_kubelets: true, ..ends(&old) });
            (of(&instance()), of(&Instance { listed: true, ..instance() }))
        };
        let here = |gone_by| Witness::Here(gone_by);
        assert_eq!(age(3_000), (here(GoneBy::Runtime), here(GoneBy::Witness)));
        assert_eq!(age(3_001), (Witness::Ask, here(GoneBy::Witness)), "it may have started since");
        let young = Instance { created: at(20_000), ..instance() };
        let mut earlier = observation(lists(&[]), None, 20_100);
        earlier.runtime_as_of = at(19_999);
        let of = |has_asked| witness(&young, false, &Ends { is_kubelets: true, has_asked, ..ends(&earlier) });
        assert_eq!(
            (of(false), of(true)),
            (Witness::Ask, here(GoneBy::Runtime)),
            "it is asked once, not again and again"
        );

        // One of ours has been listed: it is the kubelet's, unless the kubelet shows what it does not list.
        let observation = observation(lists(&[]), Some(true), 2 * END);
        let running = json!({"status": {"phase": "Running"}});
        let pending = json!({"status": {"phase": "Pending"}});
        let known = |mirror| Ends { is_kubelets: true, mirror, ..ends(&observation) };
        assert_eq!(witness(&instance(), false, &known(None)), Witness::Here(GoneBy::Runtime));
        let believed = |mirror| sandbox(&ending("b", GoneBy::Runtime), &Ends { mirror, ..ends(&observation) });
        assert_eq!(believed(None), Evidence::Gone, "another process knows that it had listed one");
        assert_eq!(believed(Some(&running)), Evidence::Running);
        let own = Ends { mirror: Some(&running), ..ends(&observation) };
        assert_eq!(witness(&instance(), false, &own), Witness::Here(GoneBy::Witness), "the mirror pod is one");
        let gone = |ends: &Ends<'_>| sandbox(&ending("b", GoneBy::Witness), ends);
        assert_eq!(gone(&known(Some(&pending))), Evidence::Gone);
        assert_eq!(gone(&known(Some(&running))), Evidence::Running, "the kubelet shows its containers");
        assert_eq!(gone(&Ends { mirror: Some(&pending), ..ends(&observation) }), Evidence::Running);
        let listed = Instance { listed: true, ..ending("b", GoneBy::Witness) };
        assert_eq!(sandbox(&listed, &known(Some(&running))), Evidence::Gone, "a mirror pod goes after its pod");
    }

    #[test]
    fn a_false_witness_is_waited_out_by_the_mirror_pod_and_without_one_for_ever() {
        let of = |api, now| sandbox(&ending("b", GoneBy::Witness), &ends(&observation(lists(&[]), api, now)));
        let grace = 30_000 + GONE_AFTER.as_millis();
        assert!(matches!(of(Some(true), END + grace - 1), Evidence::Unknown(_)));
        assert_eq!(of(Some(true), END + grace), Evidence::Gone);
        assert!(matches!(of(None, i64::from(u32::MAX)), Evidence::Unknown(_)));
    }

    #[test]
    fn before_the_kubelet_of_a_boot_nobody_is_needed() {
        let mut first = observation(Knowledge::NeverHeard, None, 5_000);
        first.is_before_kubelet = true;
        assert_eq!(witness(&instance(), false, &ends(&first)), Witness::Here(GoneBy::Unseen));
        assert_eq!(sandbox(&ending("b", GoneBy::Unseen), &ends(&first)), Evidence::Gone);
        first.run_in_this_boot.insert("u".to_owned());
        assert_eq!(witness(&instance(), false, &ends(&first)), Witness::Ask);
    }

    #[test]
    fn nothing_outlives_its_boot() {
        let alone = observation(NONE, None, 5_000);
        assert_eq!(sandbox(&ending("a", GoneBy::Witness), &ends(&alone)), Evidence::Gone);
        let unsure = observation(Knowledge::Unreadable("it hangs".to_owned()), Some(false), 5_000);
        assert_eq!(sandbox(&ending("a", GoneBy::Witness), &ends(&unsure)), Evidence::Gone);
        for boot in ["b", ""] {
            assert_ne!(sandbox(&ending(boot, GoneBy::Witness), &ends(&unsure)), Evidence::Gone, "{boot:?}");
        }
    }

    #[test]
    fn time_alone_tells_by_the_steady_clock_and_only_where_nobody_else_could() {
        let grace = Span::from_secs(30) + BEYOND_GRACE;
        let of = |gone_by, api, ended_for| {
            // The wall clock was set forward by years.
            let observation = observation(NONE, api, i64::from(u32::MAX));
            sandbox(&ending("b", gone_by), &Ends { ended_for, ..ends(&observation) })
        };
        for gone_by in [GoneBy::Time, GoneBy::NotAccepted] {
            for api in [None, Some(false)] {
                let mut silent = observation(NONE, api, i64::from(u32::MAX));
                silent.api.iter_mut().for_each(|api| api.snapshot = Arc::default());
                let of = |ended_for| sandbox(&ending("b", gone_by), &Ends { ended_for, ..ends(&silent) });
                assert!(matches!(of(grace - ms(1)), Evidence::Unknown(_)));
                assert_eq!(of(grace), Evidence::Gone);
            }
        }
        assert_eq!(of(GoneBy::Witness, None, grace), Evidence::Gone, "neither runtime nor API server is configured");
        let mut silent = observation(NONE, Some(false), i64::from(u32::MAX));
        silent.api.iter_mut().for_each(|api| api.snapshot = Arc::default());
        let waits = sandbox(&ending("b", GoneBy::Witness), &Ends { ended_for: grace, ..ends(&silent) });
        assert!(matches!(waits, Evidence::Unknown(_)), "the API server will answer: {waits:?}");
    }

    #[test]
    fn what_the_kubelet_did_not_accept_needs_nobody_and_the_runtime_counts_at_once() {
        let alone = observation(NONE, None, 0);
        assert_eq!(witness(&instance(), true, &ends(&alone)), Witness::Here(GoneBy::NotAccepted));
        let fresh = observation(lists(&[]), None, END);
        assert_eq!(sandbox(&ending("b", GoneBy::NotAccepted), &ends(&fresh)), Evidence::Gone);
    }

    #[test]
    fn a_pod_that_the_kubelet_works_on_is_not_gone_before_its_sandbox_was_seen() {
        let mirror = json!({});
        let unseen = Instance { started: false, ..ending("b", GoneBy::Witness) };
        let of = |instance: &Instance, mirror: Option<&Value>, now: i64| {
            let observation = observation(lists(&[]), Some(true), now);
            sandbox(instance, &Ends { mirror, is_kubelets: true, ..ends(&observation) })
        };
        assert!(matches!(of(&unseen, Some(&mirror), 5_000), Evidence::Unknown(_)));
        assert_eq!(of(&unseen, None, 5_000), Evidence::Gone);
        let late = END + LETS_GO.as_millis();
        assert_eq!(of(&unseen, Some(&mirror), late), Evidence::Gone, "a kubelet that is away holds nothing up");
        assert_eq!(of(&ending("b", GoneBy::Witness), Some(&mirror), 5_000), Evidence::Gone);
    }

    #[test]
    fn a_list_that_is_older_than_the_end_says_nothing() {
        let mut observation = observation(lists(&[]), None, 5_000);
        let of = |observation: &Observation| {
            sandbox(&ending("b", GoneBy::Witness), &Ends { is_kubelets: true, ..ends(observation) })
        };
        observation.runtime_as_of = Timestamp::from_millis(END - 1);
        assert!(matches!(of(&observation), Evidence::Unknown(_)));
        observation.runtime_as_of = Timestamp::from_millis(END);
        assert_eq!(of(&observation), Evidence::Gone);
        observation.runtime = lists(&[("u", true)]);
        assert_eq!(of(&observation), Evidence::Running);
    }
}
