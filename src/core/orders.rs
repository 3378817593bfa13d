//! Whether an event on a mirror pod orders a restart.
//!
//! Owns the exceptions. If a live instance's mirror pod is deleted or reaches a terminal phase, a user wants a new
//! pod, unless the event is a consequence of something else being deleted. Must not do I/O: the answers of direct
//! requests to the API server are arguments.

use crate::core::record::Noted;
use crate::core::record::NotedEvent;
use crate::core::record::RestartCause;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::upstream::kubelet;

/// How long a pod that a node shutdown ended has to run again once the node is back: its kubelet restarts it, but
/// reports that late.
const COMES_BACK: Span = Span::from_secs(60);
/// When to ask again about an event that is not decided.
pub const ASK_AGAIN: Span = Span::from_secs(5);

/// The answer of a direct request for one object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ObjectState {
    /// It exists.
    There {
        uid: String,
        /// Whether it is being deleted (a namespace: is terminating).
        going: bool,
    },
    /// It does not exist.
    Gone,
    Unknown(NoAnswer),
}

/// Why a direct request gave no answer that proves anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum NoAnswer {
    /// With the words of the API server or the connection.
    #[error("{0}")]
    Failed(String),
    #[error("another cluster answers")]
    AnotherCluster,
    #[error("the API server's answer has no UID")]
    NoUid,
}

/// The answers about everything that a mirror pod depends on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Survey {
    /// The DaemonSet, and its remembered UID; `None` for a daemon that only a folder defines.
    pub daemon_set: Option<(ObjectState, Option<String>)>,
    /// The own Node.
    pub node: ObjectState,
    /// Whether the Node reports that it is shutting down.
    pub shutting_down: bool,
    pub node_ready: bool,
    pub namespace: ObjectState,
    /// Whether the mirror pod is (still) in a terminal phase.
    pub ended: bool,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartVerdict {
    /// A new incarnation is to replace it.
    Order(RestartCause),
    /// Nothing.
    Dismiss(NoRestart),
    /// Undecided so far.
    Later(NoRestart),
}

/// Why an event orders no restart; of objects it has the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRestart {
    #[error("daemonlet deleted it")]
    OwnDeletion,
    #[error("the API server was restored from a backup that is older than the pod")]
    SetBack,
    #[error("its DaemonSet is gone and its pods are kept")]
    Orphaned,
    #[error("the {0} could not be read: {1}")]
    Unread(&'static str, NoAnswer),
    #[error("the {0} is gone")]
    Gone(&'static str),
    #[error("the {0} is being deleted")]
    Going(&'static str),
    #[error("the {0} is not the one that the pod belonged to")]
    Another(&'static str),
    #[error("the node is shutting down")]
    ShuttingDown,
    #[error("the node was shut down, and the pod runs again")]
    RunsAgain,
}

/// Judges a noted event. `own`: the agent itself deleted that mirror pod.
pub fn judge(noted: &Noted, own: bool, survey: &Survey, now: Timestamp) -> RestartVerdict {
    if own {
        return RestartVerdict::Dismiss(NoRestart::OwnDeletion);
    }
    if noted.seen == (NotedEvent::Gone { set_back: true }) {
        return RestartVerdict::Dismiss(NoRestart::SetBack);
    }
    let objects = [
        ("Node", &survey.node, noted.node_uid.as_ref()),
        ("Namespace", &survey.namespace, None),
        ("DaemonSet", daemon_set(survey).0, daemon_set(survey).1),
    ];
    for (kind, live, known) in objects {
        match live {
            ObjectState::Unknown(why) => {
                return RestartVerdict::Later(NoRestart::Unread(kind, why.clone()));
            }
            ObjectState::Gone => return RestartVerdict::Dismiss(NoRestart::Gone(kind)),
            ObjectState::There { going: true, .. } => {
                return RestartVerdict::Dismiss(NoRestart::Going(kind));
            }
            ObjectState::There { uid, .. } if known.is_some_and(|known| known != uid) => {
                return RestartVerdict::Dismiss(NoRestart::Another(kind));
            }
            ObjectState::There { .. } => {}
        }
    }
    match &noted.seen {
        NotedEvent::Deleting | NotedEvent::Gone { .. } if survey.shutting_down => {
            RestartVerdict::Dismiss(NoRestart::ShuttingDown)
        }
        NotedEvent::Deleting | NotedEvent::Gone { .. } => RestartVerdict::Order(RestartCause::Deleted),
        NotedEvent::Succeeded => RestartVerdict::Order(RestartCause::Succeeded),
        NotedEvent::Failed { reason, message } if kubelet::ended_by_shutdown(reason, message) => {
            after_shutdown(noted, survey, now)
        }
        NotedEvent::Failed { .. } if survey.shutting_down => RestartVerdict::Dismiss(NoRestart::ShuttingDown),
        NotedEvent::Failed { reason, message } => {
            let words: Vec<&str> = [reason.as_str(), message.as_str()].into_iter().filter(|w| !w.is_empty()).collect();
            RestartVerdict::Order(RestartCause::Failed { message: words.join(": ") })
        }
    }
}

/// A folder's daemon has no DaemonSet in the API.
fn daemon_set(survey: &Survey) -> (&ObjectState, Option<&String>) {
    const NONE: &ObjectState = &ObjectState::There { uid: String::new(), going: false };
    survey.daemon_set.as_ref().map_or((NONE, None), |(live, known)| (live, known.as_ref()))
}

/// After a reboot the kubelet runs the pod again. If the shutdown was cancelled, the pod stays as it is.
fn after_shutdown(noted: &Noted, survey: &Survey, now: Timestamp) -> RestartVerdict {
    if !survey.ended {
        return RestartVerdict::Dismiss(NoRestart::RunsAgain);
    }
    if survey.shutting_down || !survey.node_ready || now - noted.at < COMES_BACK {
        return RestartVerdict::Later(NoRestart::ShuttingDown);
    }
    RestartVerdict::Order(RestartCause::Failed { message: "a node shutdown that was cancelled".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use crate::core::time::ms;

    fn noted(seen: NotedEvent) -> Noted {
        Noted {
            mirror_uid: "m".to_owned(),
            node_uid: Some("n1".to_owned()),
            daemon_set_uid: Some("d1".to_owned()),
            seen,
            at: at(0),
        }
    }

    fn there(uid: &str) -> ObjectState {
        ObjectState::There { uid: uid.to_owned(), going: false }
    }

    fn going(uid: &str) -> ObjectState {
        ObjectState::There { uid: uid.to_owned(), going: true }
    }

    fn survey() -> Survey {
        Survey {
            daemon_set: Some((there("d1"), Some("d1".to_owned()))),
            node: there("n1"),
            shutting_down: false,
            node_ready: true,
            namespace: there("s1"),
            ended: true,
        }
    }

    fn verdict(seen: NotedEvent, survey: &Survey) -> RestartVerdict {
        judge(&noted(seen), false, survey, at(0))
    }

    fn failed(reason: &str, message: &str) -> NotedEvent {
        NotedEvent::Failed { reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn a_deletion_or_a_terminal_phase_orders_a_restart() {
        let gone = NotedEvent::Gone { set_back: false };
        assert_eq!(verdict(NotedEvent::Deleting, &survey()), RestartVerdict::Order(RestartCause::Deleted));
        assert_eq!(verdict(gone, &survey()), RestartVerdict::Order(RestartCause::Deleted));
        assert_eq!(verdict(NotedEvent::Succeeded, &survey()), RestartVerdict::Order(RestartCause::Succeeded));
        let message = "NodePorts: no port".to_owned();
        assert_eq!(
            verdict(failed("NodePorts", "no port"), &survey()),
            RestartVerdict::Order(RestartCause::Failed { message })
        );
        let folder = Survey { daemon_set: None, ..survey() };
        assert_eq!(
            verdict(NotedEvent::Deleting, &folder),
            RestartVerdict::Order(RestartCause::Deleted),
            "a folder's daemon"
        );
    }

    #[test]
    fn what_goes_with_something_else_orders_nothing() {
        let own = |live: ObjectState| Some((live, Some("d1".to_owned())));
        let exceptions = [
            Survey { node: ObjectState::Gone, ..survey() },
            Survey { node: going("n1"), ..survey() },
            Survey { node: there("n2"), ..survey() },
            Survey { namespace: ObjectState::Gone, ..survey() },
            Survey { namespace: going("s1"), ..survey() },
            Survey { daemon_set: own(ObjectState::Gone), ..survey() },
            Survey { daemon_set: own(going("d1")), ..survey() },
            Survey { daemon_set: own(there("d2")), ..survey() },
            Survey { shutting_down: true, ..survey() },
        ];
        for exception in exceptions {
            for seen in [NotedEvent::Deleting, NotedEvent::Gone { set_back: false }, failed("Evicted", "")] {
                assert!(matches!(verdict(seen, &exception), RestartVerdict::Dismiss(_)), "{exception:?}");
            }
        }
        assert!(
            judge(&noted(NotedEvent::Deleting), true, &survey(), at(0))
                == RestartVerdict::Dismiss(NoRestart::OwnDeletion),
            "our own"
        );
        assert!(
            verdict(NotedEvent::Gone { set_back: true }, &survey()) == RestartVerdict::Dismiss(NoRestart::SetBack),
            "a restored backup"
        );
    }

    #[test]
    fn nothing_is_ordered_while_nobody_answers() {
        let unknown = || ObjectState::Unknown(NoAnswer::Failed("refused".to_owned()));
        for survey in [
            Survey { node: unknown(), ..survey() },
            Survey { namespace: unknown(), ..survey() },
            Survey { daemon_set: Some((unknown(), None)), ..survey() },
        ] {
            assert!(matches!(verdict(NotedEvent::Deleting, &survey), RestartVerdict::Later(_)), "{survey:?}");
        }
    }

    #[test]
    fn a_pod_that_a_shutdown_ended_comes_back_by_itself_unless_the_shutdown_was_called_off() {
        let ended = || failed("Terminated", "Pod was terminated in response to imminent node shutdown.");
        let verdict = |survey: Survey, after| judge(&noted(ended()), false, &survey, at(0) + after);
        assert!(matches!(verdict(Survey { shutting_down: true, ..survey() }, COMES_BACK), RestartVerdict::Later(_)));
        assert!(matches!(verdict(survey(), COMES_BACK - ms(1)), RestartVerdict::Later(_)));
        assert!(matches!(verdict(Survey { node_ready: false, ..survey() }, COMES_BACK), RestartVerdict::Later(_)));
        let runs_again = RestartVerdict::Dismiss(NoRestart::RunsAgain);
        assert_eq!(verdict(Survey { ended: false, ..survey() }, ms(1)), runs_again);
        assert!(matches!(verdict(survey(), COMES_BACK), RestartVerdict::Order(RestartCause::Failed { .. })));
    }
}
