//! Whether the kubelet has accepted an instance, from everything known about it, strongest evidence first.
//!
//! Owns the time bounds. Invariant: a kubelet that is down, waits for the pod network, or cannot be observed never
//! counts as one that rejected a pod, or did not accept its manifest.

use crate::core::plan::Accepted;
use crate::core::plan::ShownNothing;
use crate::core::plan::Unseen;
use crate::core::time::Span;
use crate::core::upstream::kubelet;

/// An instance that has shown no sign of life for this long is asked about.
pub const LATE: Span = Span::from_secs(10);
/// One that is likely to be rejected, because the node has too little for it, is asked about so soon.
pub const SOON: Span = Span::from_secs(1);
/// If a working kubelet has shown nothing of an instance for this long, it has not accepted it.
pub const BOUND: Span = Span::from_secs(30);
/// The same bound while no new mirror pod can appear: no API server answers, or the one of an earlier boot is there.
/// Longer than the kubelet waits for volumes (2 min 3 s), which it does before it creates a sandbox.
pub const BOUND_WITHOUT_API: Span = Span::from_secs(150);

/// How long to wait before the API is asked again about an instance that the kubelet has had, and the API server could
/// have shown, for `waited`. The pause grows, because in an outage all agents of a cluster ask at once.
pub fn ask_again(waited: Span) -> Span {
    (waited / 2).clamp(LATE / 2, Span::from_secs(60))
}

/// The kubelet's report about a pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum KubeletReport {
    /// It was rejected: the reason.
    Rejected(String),
    /// It was rejected because the node has no room for it: the reason.
    NoRoom(String),
    /// It was rejected because the node is shutting down.
    ShuttingDown,
    AtWork,
    /// The kubelet is preempting pods of lower priority to make room.
    MakesRoom,
}

/// The evidence about one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptanceEvidence {
    /// Whether its mirror pod, or a sandbox of it, has been seen in this boot of the node.
    pub seen: bool,
    /// Whether the runtime, the kubelet or the API has been asked since the instance is late.
    pub asked: bool,
    /// Why it is unknown whether the instance has a sandbox, if it is.
    pub no_runtime_view: Option<Unseen>,
    /// The kubelet's own report, if there is one.
    pub report: Option<KubeletReport>,
    /// From when the kubelet could have started the instance, and was first seen at work, until it was last seen so;
    /// `None`: it has not been.
    pub at_work: Option<Span>,
    /// Whether it needs the pod network and the pod network is not ready.
    pub no_network: bool,
    /// For how long the API server has answered, if it does and a new mirror pod can appear. The kubelet's events come late
    /// after an outage.
    pub api_answered: Option<Span>,
}

/// Judges the evidence when the kubelet could have started the instance `waited` ago.
pub fn judge(waited: Span, evidence: &AcceptanceEvidence) -> Accepted {
    if evidence.seen {
        return Accepted::Yes;
    }
    if !evidence.asked {
        return Accepted::NotYet;
    }
    match &evidence.report {
        Some(KubeletReport::Rejected(reason)) => return Accepted::Rejected(reason.clone()),
        Some(KubeletReport::NoRoom(reason)) => return Accepted::NoRoom(reason.clone()),
        Some(KubeletReport::AtWork) => return Accepted::Yes,
        Some(KubeletReport::ShuttingDown) => return Accepted::Unknown(Unseen::ShuttingDown),
        Some(KubeletReport::MakesRoom) => return Accepted::NotYet,
        None if waited < LATE => return Accepted::NotYet,
        None => {}
    }
    if let Some(why) = &evidence.no_runtime_view {
        return Accepted::Unknown(why.clone());
    }
    let Some(worked) = evidence.at_work else {
        return Accepted::Unknown(Unseen::NoKubelet);
    };
    if evidence.no_network {
        return Accepted::Unknown(Unseen::NoNetwork);
    }
    let (bound, silent) = match evidence.api_answered {
        Some(answered) => (BOUND, worked.min(answered)),
        None => (BOUND_WITHOUT_API, worked),
    };
    if silent < bound {
        return Accepted::NotYet;
    }
    Accepted::No(ShownNothing(bound))
}

/// What an event about a pod means.
pub fn event(is_warning: bool, reason: &str, message: &str) -> KubeletReport {
    match reason {
        "NodeShutdown" => KubeletReport::ShuttingDown,
        _ if !is_warning || kubelet::works_on(reason) => KubeletReport::AtWork,
        _ => rejected(reason, message),
    }
}

fn rejected(reason: &str, message: &str) -> KubeletReport {
    let why = kubelet::rejection(reason, message);
    if kubelet::has_no_room(reason) { KubeletReport::NoRoom(why) } else { KubeletReport::Rejected(why) }
}

/// What an entry in the kubelet's own pod list means.
pub fn report(phase: &str, reason: &str, message: &str) -> KubeletReport {
    match phase {
        "Failed" if kubelet::ended_by_shutdown(reason, message) => KubeletReport::ShuttingDown,
        "Failed" => rejected(reason, message),
        _ => KubeletReport::AtWork,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::ms;

    fn nothing_known() -> AcceptanceEvidence {
        AcceptanceEvidence {
            seen: false,
            asked: true,
            no_runtime_view: None,
            report: None,
            at_work: Some(Span::MAX),
            no_network: false,
            api_answered: Some(Span::MAX),
        }
    }

    #[test]
    fn the_api_is_asked_often_at_first_and_seldom_about_one_that_stays_late() {
        let asked = std::iter::successors(Some(LATE), |waited| Some(*waited + ask_again(*waited)));
        let hour: Vec<Span> = asked.take_while(|waited| *waited <= ms(3_600_000)).collect();
        assert_eq!(hour[..4], [10_000, 15_000, 22_500, 33_750].map(ms));
        assert!(hour.len() < 70, "{} times in an hour", hour.len());
        assert_eq!(ask_again(ms(0)), ms(5_000), "a kubelet that has only just come back");
    }

    #[test]
    fn an_instance_of_which_nothing_shows_is_given_up_in_time() {
        assert_eq!(judge(LATE - ms(1), &nothing_known()), Accepted::NotYet);
        let after = |worked, api_answered| {
            judge(Span::MAX, &AcceptanceEvidence { at_work: Some(worked), api_answered, ..nothing_known() })
        };
        let worked = |worked, api_answers: bool| after(worked, api_answers.then_some(Span::MAX));
        assert_eq!(worked(BOUND - ms(1), true), Accepted::NotYet, "the kubelet has only just come back");
        assert_eq!(worked(BOUND, true), Accepted::No(ShownNothing(BOUND)));
        assert_eq!(worked(BOUND_WITHOUT_API - ms(1), false), Accepted::NotYet, "the kubelet may wait for volumes");
        assert!(matches!(worked(BOUND_WITHOUT_API, false), Accepted::No(_)));
        let late = after(BOUND_WITHOUT_API, Some(BOUND - ms(1)));
        assert_eq!(late, Accepted::NotYet, "the kubelet's events come once the API server is back");
        assert!(matches!(after(BOUND_WITHOUT_API, Some(BOUND)), Accepted::No(_)));
        assert_eq!(judge(BOUND, &AcceptanceEvidence { asked: false, ..nothing_known() }), Accepted::NotYet);
        assert_eq!(judge(BOUND, &AcceptanceEvidence { seen: true, ..nothing_known() }), Accepted::Yes);
    }

    #[test]
    fn the_kubelets_words_count_at_once() {
        let said = |report| judge(SOON, &AcceptanceEvidence { report: Some(report), ..nothing_known() });
        assert_eq!(said(KubeletReport::Rejected("NodePorts".to_owned())), Accepted::Rejected("NodePorts".to_owned()));
        assert_eq!(said(KubeletReport::NoRoom("NodePorts".to_owned())), Accepted::NoRoom("NodePorts".to_owned()));
        assert_eq!(said(KubeletReport::AtWork), Accepted::Yes);
        assert!(matches!(said(KubeletReport::ShuttingDown), Accepted::Unknown(_)));
        assert_eq!(
            judge(BOUND_WITHOUT_API, &AcceptanceEvidence { report: Some(KubeletReport::MakesRoom), ..nothing_known() }),
            Accepted::NotYet
        );
    }

    #[test]
    fn a_kubelet_that_is_away_or_waits_for_the_network_never_causes_churn() {
        let why = || Some(Unseen::NoSandboxes);
        for evidence in [
            AcceptanceEvidence { no_runtime_view: why(), ..nothing_known() },
            AcceptanceEvidence { at_work: None, ..nothing_known() },
            AcceptanceEvidence { no_network: true, ..nothing_known() },
        ] {
            assert!(matches!(judge(Span::MAX, &evidence), Accepted::Unknown(_)), "{evidence:?}");
        }
    }

    #[test]
    fn a_rejection_is_no_trouble_with_a_pod_that_was_accepted() {
        assert_eq!(event(true, "NetworkNotReady", "network is not ready"), KubeletReport::AtWork);
        assert_eq!(event(true, "FailedMount", "no such folder"), KubeletReport::AtWork);
        assert_eq!(event(false, "Pulled", ""), KubeletReport::AtWork);
        assert_eq!(event(true, "NodeShutdown", ""), KubeletReport::ShuttingDown);
        let no_room = KubeletReport::NoRoom("NodePorts: no free port".to_owned());
        assert_eq!(event(true, "NodePorts", "no free port"), no_room);
        assert_eq!(report("Failed", "NodePorts", "Pod was rejected: no free port"), no_room);
        assert_eq!(report("Failed", "NodeAffinity", ""), KubeletReport::Rejected("NodeAffinity".to_owned()));
        assert!(matches!(event(true, "OutOfexample.org/dongle", ""), KubeletReport::NoRoom(_)));
        assert_eq!(report("Pending", "", ""), KubeletReport::AtWork);
    }
}
