//! Whether the kubelet has taken an instance: what its witnesses say, in the order of their weight.
//!
//! Owns the bounds. Its invariant: a kubelet that is away, that waits for the pod network, or that
//! nobody can see is never taken for one that rejected a pod.

use crate::core::plan::Taken;
use crate::core::record::Millis;

/// An instance that has shown nothing for so long is asked about.
pub const LATE: Millis = 10_000;
/// An instance of which a kubelet at work has shown nothing for so long was not taken.
pub const BOUND: Millis = 30_000;
/// The same while no API server answers, and no mirror pod can show: longer than the kubelet waits for
/// volumes (2 min 3 s), which it does before it makes a sandbox.
pub const BLIND_BOUND: Millis = 150_000;

/// How long the API is not asked again about an instance that the kubelet has had for `waited` milliseconds: where
/// all kubelets of a cluster are late together and stay so, the API server has enough to do.
pub fn ask_again(waited: Millis) -> Millis {
    (waited / 2).clamp(LATE / 2, 60_000)
}

/// What the kubelet itself says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    /// It was rejected: the reason.
    Rejected(String),
    /// It was rejected because the node shuts down.
    ShuttingDown,
    /// The kubelet works on it.
    AtWork,
    /// The kubelet ends lesser pods to make room.
    MakesRoom,
}

/// The witnesses of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witnesses {
    /// Whether its mirror pod, or a sandbox of it, has been seen in this boot of the node.
    pub seen: bool,
    /// Whether somebody was asked since it is late.
    pub asked: bool,
    /// Why nobody can say whether it has a sandbox, if that is so.
    pub blind: Option<String>,
    /// The kubelet's words.
    pub words: Option<Words>,
    /// For how long the kubelet has been seen at work since it could have begun; `None`: it is not.
    pub at_work: Option<Millis>,
    /// Whether it needs the pod network and that is not up.
    pub no_network: bool,
    /// Whether the API server answers.
    pub api_answers: bool,
}

/// The sum of them, `waited` milliseconds after the kubelet could have begun.
pub fn judge(waited: Millis, witnesses: &Witnesses) -> Taken {
    if witnesses.seen {
        return Taken::Yes;
    }
    if waited < LATE || !witnesses.asked {
        return Taken::NotYet;
    }
    match &witnesses.words {
        Some(Words::Rejected(reason)) => return Taken::No(reason.clone()),
        Some(Words::AtWork) => return Taken::Yes,
        Some(Words::ShuttingDown) => return Taken::Unknown("the node shuts down".to_owned()),
        Some(Words::MakesRoom) => return Taken::NotYet,
        None => {}
    }
    if let Some(why) = &witnesses.blind {
        return Taken::Unknown(why.clone());
    }
    let Some(worked) = witnesses.at_work else {
        return Taken::Unknown("the kubelet is not seen at work".to_owned());
    };
    if witnesses.no_network {
        return Taken::Unknown("the pod network is not ready".to_owned());
    }
    let bound = if witnesses.api_answers { BOUND } else { BLIND_BOUND };
    if worked < bound {
        return Taken::NotYet;
    }
    Taken::No(format!(
        "no sandbox within {} s although the kubelet is at work; rejected at admission? (host port, resources, affinity)",
        bound / 1_000
    ))
}

/// Reasons of warnings that the kubelet gives about pods that it works on; any other warning about a
/// pod of which nothing runs is the reason of its rejection (`rejectPod`, reasons of admission handlers).
const AT_WORK: [&str; 17] = [
    "BackOff",
    "ErrImageNeverPull",
    "Failed",
    "FailedAttachVolume",
    "FailedCreatePodContainer",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "FailedMount",
    "FailedPodSandBoxStatus",
    "FailedPostStartHook",
    "FailedSync",
    "InspectFailed",
    "InvalidDiskCapacity",
    "NetworkNotReady",
    "ProbeWarning",
    "Unhealthy",
    "FailedMountOnFilesystemMismatch",
];

/// What an event about a pod says.
pub fn event(is_warning: bool, reason: &str, message: &str) -> Words {
    match reason {
        "NodeShutdown" => Words::ShuttingDown,
        _ if !is_warning || AT_WORK.contains(&reason) => Words::AtWork,
        _ => Words::Rejected(sentence(reason, message)),
    }
}

/// What the kubelet's own list says of a pod.
pub fn report(phase: &str, reason: &str, message: &str) -> Words {
    match phase {
        "Failed" if crate::core::orders::is_shutdown(reason, message) => Words::ShuttingDown,
        "Failed" => Words::Rejected(sentence(reason, message)),
        _ => Words::AtWork,
    }
}

fn sentence(reason: &str, message: &str) -> String {
    let message = message.trim_start_matches("Pod was rejected: ");
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> Witnesses {
        Witnesses {
            seen: false,
            asked: true,
            blind: None,
            words: None,
            at_work: Some(Millis::MAX),
            no_network: false,
            api_answers: true,
        }
    }

    #[test]
    fn the_api_is_asked_often_at_first_and_seldom_about_one_that_stays_late() {
        let asked = std::iter::successors(Some(LATE), |waited| Some(waited + ask_again(*waited)));
        let hour: Vec<Millis> = asked.take_while(|waited| *waited <= 3_600_000).collect();
        assert_eq!(hour[..4], [10_000, 15_000, 22_500, 33_750]);
        assert!(hour.len() < 70, "{} times in an hour", hour.len());
        assert_eq!(ask_again(0), 5_000, "a kubelet that has only just come back");
    }

    #[test]
    fn an_instance_of_which_nothing_shows_is_given_up_in_time() {
        assert_eq!(judge(LATE - 1, &silent()), Taken::NotYet);
        let worked =
            |worked, api_answers| judge(Millis::MAX, &Witnesses { at_work: Some(worked), api_answers, ..silent() });
        assert_eq!(worked(BOUND - 1, true), Taken::NotYet, "the kubelet has only just come back");
        assert!(matches!(worked(BOUND, true), Taken::No(why) if why.contains("within 30 s")));
        assert_eq!(worked(BLIND_BOUND - 1, false), Taken::NotYet, "the kubelet may wait for volumes");
        assert!(matches!(worked(BLIND_BOUND, false), Taken::No(_)));
        assert_eq!(judge(BOUND, &Witnesses { asked: false, ..silent() }), Taken::NotYet);
        assert_eq!(judge(BOUND, &Witnesses { seen: true, ..silent() }), Taken::Yes);
    }

    #[test]
    fn the_kubelets_words_count_at_once() {
        let said = |words| judge(LATE, &Witnesses { words: Some(words), ..silent() });
        assert_eq!(said(Words::Rejected("NodePorts".to_owned())), Taken::No("NodePorts".to_owned()));
        assert_eq!(said(Words::AtWork), Taken::Yes);
        assert!(matches!(said(Words::ShuttingDown), Taken::Unknown(_)));
        assert_eq!(judge(BLIND_BOUND, &Witnesses { words: Some(Words::MakesRoom), ..silent() }), Taken::NotYet);
    }

    #[test]
    fn a_kubelet_that_is_away_or_waits_for_the_network_never_causes_churn() {
        let why = || Some("away".to_owned());
        for witnesses in [
            Witnesses { blind: why(), ..silent() },
            Witnesses { at_work: None, ..silent() },
            Witnesses { no_network: true, ..silent() },
        ] {
            assert!(matches!(judge(Millis::MAX, &witnesses), Taken::Unknown(_)), "{witnesses:?}");
        }
    }

    #[test]
    fn a_rejection_is_told_from_trouble_with_a_pod_that_was_taken() {
        assert_eq!(event(true, "NetworkNotReady", "network is not ready"), Words::AtWork);
        assert_eq!(event(true, "FailedMount", "no such folder"), Words::AtWork);
        assert_eq!(event(false, "Pulled", ""), Words::AtWork);
        assert_eq!(event(true, "NodeShutdown", ""), Words::ShuttingDown);
        let rejected = Words::Rejected("NodePorts: no free port".to_owned());
        assert_eq!(event(true, "NodePorts", "no free port"), rejected);
        assert_eq!(report("Failed", "NodePorts", "Pod was rejected: no free port"), rejected);
        assert_eq!(report("Pending", "", ""), Words::AtWork);
    }
}
