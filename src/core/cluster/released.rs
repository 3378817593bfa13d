//! What the status of a DaemonSet says of its rollouts: the conditions `Released` and `Halted`.
//!
//! Owns how they are written and read. The coordinator writes them; agents decide by them which revision a first
//! instance has, also while coordinator and API server are away.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::named::named;
use crate::core::time::Timestamp;
use crate::core::time::rfc3339;

mod halt_cause;

pub use halt_cause::FailedNodes;
pub use halt_cause::HaltCause;

/// The condition that names the released revision.
pub const RELEASED: &str = "Released";
/// The condition that the rollout of the current revision is halted.
pub const HALTED: &str = "Halted";
/// The reason of that condition where the revision failed.
pub const FAILED: &str = "Failed";
/// The reason of that condition where people took the rollout back.
pub const ABORTED: &str = "Aborted";
/// Annotation of a ControllerRevision: its rollout is halted, since when, why, and on which nodes it failed.
pub const HALTED_ANNOTATION: &str = "daemonlet.dev/halted";

/// Annotation of a ControllerRevision: the UID of the DaemonSet and the generation of it at which it was last released. The
/// one with the highest generation is the released one where the status does not say which that is.
pub const RELEASED_ANNOTATION: &str = "daemonlet.dev/released";

/// A revision that every node which could take it has had available.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Released {
    /// The name of its ControllerRevision.
    pub name: String,
    /// The hash that agents give instances of it.
    pub hash: String,
    /// The generation of the DaemonSet at which the coordinator said so.
    pub generation: i64,
}

/// Annotation of a ControllerRevision: nodes, with commas between them, whose failures of it no longer count, because
/// its halt was ended by hand. The coordinator removes a node that no longer reports a failure.
pub const RETRIED_ANNOTATION: &str = "daemonlet.dev/retried";

/// Stands for all nodes that the revision has broken, or may have, when the coordinator reads it: it replaces this by
/// their names.
pub const ALL_RETRIED: &str = "*";

/// Bytes of names of nodes whose failures no longer count: less than is read of an annotation.
pub const RETRIED_BYTES: usize = 60 << 10;

named! {
    /// What first instances of a newer revision do: the reason of the condition `Released`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum FirstInstances {
        /// There is none: the current revision is the released one.
        Complete = "Complete",
        /// They start it at once.
        RollingOut = "RollingOut",
        /// They take the released one: the rollout is paused, halted, partitioned, in its canary phase, or taken back.
        Held = "Held",
    }
}

impl FirstInstances {
    /// What the condition `Released` says. A reason that is not known holds, too: a newer coordinator may have written it.
    pub(super) fn of(condition: &Value) -> Self {
        Self::from_name(condition.str_at("reason")).unwrap_or(Self::Held)
    }
}

/// What the status of a DaemonSet says of its rollouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RolloutStatus {
    /// The released revision, if one ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Released>,
    /// Whether first instances take it although a newer one is wanted.
    #[serde(default)]
    pub is_held: bool,
    /// Why the rollout of the current revision is halted, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// Whether a released revision is known and the coordinator has not looked at the newest generation yet.
    #[serde(default)]
    pub is_behind: bool,
}

impl RolloutStatus {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it says that first instances take the newest revision.
    pub fn is_open(&self) -> bool {
        self.released.is_some() && !self.is_held && !self.is_behind
    }

    /// Reads the status of a DaemonSet of this generation.
    pub fn of(status: &Value, generation: i64) -> Self {
        let condition = |kind: &str| {
            let conditions = status.list_at("conditions");
            conditions.iter().find(|c| c.str_at("type") == kind)
        };
        let found = condition(RELEASED);
        let released = found.and_then(|c| read(c.str_at("message")));
        let halted = condition(HALTED).filter(|c| c.str_at("status") == "True").map(|c| c.str_at("message").to_owned());
        Self {
            is_held: found.is_some_and(|c| FirstInstances::of(c) == FirstInstances::Held),
            is_behind: released.as_ref().is_some_and(|released| released.generation < generation),
            released,
            halted,
        }
    }
}

/// The condition `Released`: (status, reason, message).
pub fn condition(released: &Released, first_instances: FirstInstances) -> (bool, &'static str, String) {
    let is_complete = first_instances == FirstInstances::Complete;
    let Released { name, hash, generation } = released;
    let message = format!("ControllerRevision {name} (hash {hash}) at generation {generation}");
    (is_complete, first_instances.as_str(), message)
}

/// The reverse of [`condition`]; `None` for any other message.
fn read(message: &str) -> Option<Released> {
    let parts: Vec<&str> = message.split(' ').collect();
    let ["ControllerRevision", name, "(hash", hash, "at", "generation", generation] = parts[..] else { return None };
    let (hash, generation) = (hash.strip_suffix(')')?, generation.parse().ok()?);
    let is_word =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    (is_word(name) && is_word(hash)).then(|| Released { name: name.to_owned(), hash: hash.to_owned(), generation })
}

/// How a message of the condition `Halted` begins.
const OF_REVISION: &str = "revision ";

/// The message of the condition `Halted`: it names the revision that it is about.
pub fn halted_message(revision: &str, words: &str) -> String {
    format!("{OF_REVISION}{revision}: {words}")
}

/// The reverse of [`halted_message`]: the revision, and the words.
pub(super) fn halt_of(message: &str) -> Option<(&str, &str)> {
    message.strip_prefix(OF_REVISION)?.split_once(": ")
}

/// The words of the condition `Halted` of this `reason`, if it is about the revision with this hash.
fn halted_words<'a>(status: &'a Value, revision: &str, reason: &str) -> Option<&'a str> {
    let is_it = |c: &&Value| c.str_at("type") == HALTED && c.str_at("status") == "True" && c.str_at("reason") == reason;
    let message = status.list_at("conditions").iter().find(is_it)?.str_at("message");
    let (named, words) = halt_of(message)?;
    (named == revision).then_some(words)
}

/// Whether the status of a DaemonSet says that people took back the rollout of the revision with this hash.
pub fn is_aborted(status: &Value, revision: &str) -> bool {
    halted_words(status, revision, ABORTED).is_some()
}

/// Why a rollout is halted, as the ControllerRevision keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted {
    /// Since when, if that is known.
    pub time: Option<Timestamp>,
    pub cause: HaltCause,
    /// Nodes on which it failed, at most ten.
    pub nodes: Vec<String>,
}

/// The annotation. The sentence is for people; what it is made of counts, if it is there.
#[derive(Serialize, Deserialize)]
struct HaltedAnnotation {
    #[serde(with = "rfc3339")]
    time: Option<Timestamp>,
    cause: String,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<FailedNodes>,
}

impl Halted {
    /// From the annotation; what cannot be read halts, too.
    pub fn of(annotation: &str) -> Self {
        match serde_json::from_str(annotation) {
            Ok(HaltedAnnotation { time, cause, nodes, failed }) => {
                Self { time, cause: failed.map_or(HaltCause::Written(cause), HaltCause::Failed), nodes }
            }
            Err(_) => Self::by_hand(annotation.chars().take(256).collect()),
        }
    }

    /// By a text of which no more is known.
    pub fn by_hand(text: String) -> Self {
        Self { time: None, cause: HaltCause::Written(text), nodes: Vec::new() }
    }

    pub fn annotation(&self) -> String {
        let failed = match self.cause {
            HaltCause::Failed(failed) => Some(failed),
            HaltCause::Written(_) => None,
        };
        let (time, nodes) = (self.time, self.nodes.clone());
        json!(HaltedAnnotation { time, cause: self.cause.to_string(), nodes, failed }).to_string()
    }

    /// The halt of the revision with this hash by its failures, as the status of a DaemonSet shows it; its
    /// ControllerRevision may not.
    pub fn of_status(status: &Value, revision: &str) -> Option<Self> {
        halted_words(status, revision, FAILED).map(Self::read)
    }

    /// The reverse of its `Display`; what is not understood is the cause. A cause without nodes that itself ends like
    /// a list of them cannot be told from one with nodes.
    fn read(message: &str) -> Self {
        let (time, rest) = match message.split_once(": ") {
            Some(("halted", rest)) => (None, rest),
            Some((head, rest)) if let Some(("halted since", time)) = head.rsplit_once(' ') => (time.parse().ok(), rest),
            _ => (None, message),
        };
        let are_nodes = |nodes: &str| nodes.split(", ").all(|node| dns::subdomain(node).is_none());
        let named = rest.rsplit_once(": ").filter(|(_, nodes)| are_nodes(nodes));
        let (cause, nodes) = named.unwrap_or((rest, ""));
        let nodes = nodes.split(", ").filter(|node| !node.is_empty()).map(str::to_owned).collect();
        Self { time, cause: HaltCause::Written(cause.to_owned()), nodes }
    }
}

/// In one line.
impl fmt::Display for Halted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.time.map(|time| format!(" since {time}")).unwrap_or_default();
        let on = if self.nodes.is_empty() { "" } else { ": " };
        write!(f, "halted{since}: {}{on}{}", self.cause, self.nodes.join(", "))
    }
}

/// A halt as a coordinator remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHalt {
    /// The hash of the revision.
    pub revision: String,
    pub halted: Halted,
    /// UID of the ControllerRevision that says it, if one does.
    pub written_on: Option<String>,
}

impl KnownHalt {
    /// Whether it stands although the ControllerRevision of this UID, if there is one, does not have it. It does if it
    /// was never written, or if the ControllerRevision that had it is gone: only removing it from a ControllerRevision
    /// ends it.
    pub fn stands(&self, revision: Option<&str>) -> bool {
        self.written_on.is_none() || self.written_on.as_deref() != revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_halt_is_read_as_it_was_written(
            time in prop::option::of(0_i64..2_000_000_000),
            cause in "[a-zA-Z0-9 ,:.-]{0,30}",
            nodes in prop::collection::vec("[a-z0-9]{1,3}([.-][a-z0-9]{1,3})?", 0..4),
        ) {
            prop_assume!(!nodes.is_empty() || !cause.contains(": "));
            let halted = Halted { time: time.map(Timestamp::from_secs), cause: HaltCause::Written(cause), nodes };
            prop_assert_eq!(Halted::read(&halted.to_string()), halted.clone());
            let message = halted_message("b2", &halted.to_string());
            let status = json!({"conditions": [{"type": HALTED, "status": "True", "reason": FAILED, "message": message}]});
            prop_assert_eq!(Halted::of_status(&status, "b2"), Some(halted));
        }

        #[test]
        fn a_released_revision_is_read_as_it_was_written(
            name in "[a-z0-9.-]{1,9}",
            hash in "[a-z0-9]{1,9}",
            generation: i64,
        ) {
            let released = Released { name, hash, generation };
            let (_, _, message) = condition(&released, FirstInstances::Held);
            prop_assert_eq!(read(&message), Some(released));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let released = Released { name: "net-7d4f".to_owned(), hash: "7d4f".to_owned(), generation: 3 };
        for (first, is_held) in
            [(FirstInstances::Complete, false), (FirstInstances::RollingOut, false), (FirstInstances::Held, true)]
        {
            let (status, reason, message) = condition(&released, first);
            assert_eq!(status, first == FirstInstances::Complete);
            let status = json!({"conditions": [
                {"type": "Available", "status": "True"},
                {"type": "Released", "status": "x", "reason": reason, "message": message}]});
            let read = RolloutStatus::of(&status, 3);
            assert_eq!((read.released.as_ref(), read.is_held, read.is_behind), (Some(&released), is_held, false));
            assert!(RolloutStatus::of(&status, 4).is_behind);
        }
        let (_, _, message) = condition(&released, FirstInstances::RollingOut);
        for reason in ["", "Frozen"] {
            let status = json!({"conditions": [{"type": "Released", "reason": reason, "message": message}]});
            let read = RolloutStatus::of(&status, 3);
            assert!(read.is_held && !read.is_open(), "a newer coordinator holds for {reason:?}");
        }
        for message in
            ["", "ControllerRevision a (hash b)", "ControllerRevision a (hash ) at generation 1", "a (hash b)"]
        {
            let status = json!({"conditions": [{"type": "Released", "reason": "Held", "message": message}]});
            assert_eq!(RolloutStatus::of(&status, 1).released, None, "{message}");
            assert!(!RolloutStatus::of(&status, 1).is_behind, "nothing was ever released");
        }
    }

    #[test]
    fn a_halt_is_read_whatever_stands_there() {
        let failed = |cause| Halted { time: Some(at(5_000)), cause, nodes: vec!["a".to_owned()] };
        let counted = failed(HaltCause::Failed(FailedNodes { nodes: 2, deleted: 1, ..FailedNodes::default() }));
        let words = "the revision failed on 2 nodes, 1 of them deleted";
        let in_words = failed(HaltCause::Written(words.to_owned()));
        for halted in [&counted, &in_words] {
            assert_eq!(Halted::of(&halted.annotation()), *halted);
            assert_eq!(halted.to_string(), format!("halted since 1970-01-01T00:00:05Z: {words}: a"));
        }
        let shown = r#"{"cause":"the revision failed on 2 nodes, 1 of them deleted","nodes":["a"],"time":"1970-01-01T00:00:05Z"}"#;
        assert_eq!(in_words.annotation(), shown, "what is written by hand stays as it is");
        assert_eq!(Halted::of("by hand").to_string(), "halted: by hand");
        assert_eq!(Halted::of("{}").to_string(), "halted: {}");
    }

    #[test]
    fn a_halt_is_read_from_the_condition_that_is_about_the_revision() {
        let of = |time: &str, cause: &str, nodes: &[&str]| Halted {
            time: time.parse().ok(),
            cause: HaltCause::Written(cause.to_owned()),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        };
        for halted in [
            of("2026-11-21T10:00:00Z", "the revision failed on 2 nodes, 1 of them deleted", &["a", "b.example.org"]),
            of("2026-11-21T10:00:00Z", "because: of This", &[]),
            of("", "by hand", &[]),
        ] {
            let status = |reason: &str, message: &str| {
                json!({"observedGeneration": 3, "conditions": [
                    {"type": "Halted", "status": "True", "reason": reason, "message": message}]})
            };
            let message = halted_message("b2", &halted.to_string());
            assert_eq!(Halted::of_status(&status("Failed", &message), "b2"), Some(halted.clone()));
            assert_eq!(Halted::of_status(&status("Failed", &message), "c3"), None, "of another template");
            assert_eq!(Halted::of_status(&status("Aborted", &message), "b2"), None);
            let aborted = |revision| is_aborted(&status("Aborted", &message), revision);
            assert!(aborted("b2") && !aborted("c3"));
            assert_eq!(Halted::of_status(&status("Failed", &halted.to_string()), "b2"), None, "it names no revision");
        }
        assert_eq!(Halted::read("what is this"), Halted::by_hand("what is this".to_owned()));
        assert_eq!(Halted::of_status(&json!({}), ""), None);
    }
}
