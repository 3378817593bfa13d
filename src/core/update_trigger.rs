//! The triggers for which an approved replacement waits on its node: `daemonlet.dev/update`.
//!
//! Owns the values and their words. Must not decide whether a trigger has come: the coordinator grants, the node waits.

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::DaemonSet;
use crate::core::model::UPDATE;

/// The trigger for which a standing approval waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateTrigger {
    /// Its Node is unschedulable.
    Drain,
    /// The node boots.
    Boot,
    /// An administrator runs `daemonlet approve` on the node.
    Manual,
    /// One that this version does not know: it never comes.
    #[serde(other)]
    Unknown,
}

impl UpdateTrigger {
    /// That of an annotation's value, if it is a valid one.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Drain, Self::Boot, Self::Manual].into_iter().find(|trigger| trigger.as_str() == text)
    }

    /// The annotation's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Boot => "boot",
            Self::Manual => "manual",
            Self::Unknown => "unknown",
        }
    }

    /// What a DaemonSet's replacements wait for, by its annotation; `None`: for nothing.
    pub fn of(daemon_set: &DaemonSet) -> Option<Self> {
        daemon_set.annotations.get(UPDATE).map(|text| Self::parse(text).unwrap_or(Self::Unknown))
    }

    /// Why a revision waits on a node.
    pub fn words(self) -> &'static str {
        match self {
            Self::Drain => "the node has to be drained or cordoned first (daemonlet.dev/update: drain)",
            Self::Boot => "it starts at the next boot of the node (daemonlet.dev/update: boot)",
            Self::Manual => "`daemonlet approve` on the node lets it start (daemonlet.dev/update: manual)",
            Self::Unknown => "the value of the annotation daemonlet.dev/update is not known to this version",
        }
    }

    /// What so many nodes wait for.
    pub fn words_of(self, nodes: usize) -> String {
        let (nodes, are) = match nodes {
            1 => ("1 node waits".to_owned(), "it is"),
            nodes => (format!("{nodes} nodes wait"), "they are"),
        };
        match self {
            Self::Drain => format!("{nodes} until {are} drained"),
            Self::Boot => format!("{nodes} for the next boot"),
            Self::Manual => format!("{nodes} for `daemonlet approve`"),
            Self::Unknown => format!("{nodes} for a trigger that is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_or_never_comes() {
        for (text, trigger) in [
            ("drain", Some(UpdateTrigger::Drain)),
            ("boot", Some(UpdateTrigger::Boot)),
            ("manual", Some(UpdateTrigger::Manual)),
            ("unknown", None),
            ("Drain", None),
            ("", None),
        ] {
            assert_eq!(UpdateTrigger::parse(text), trigger, "{text}");
        }
        let read = |text: &str| serde_json::from_str::<UpdateTrigger>(text).unwrap();
        assert_eq!((read("\"boot\""), read("\"reboot\"")), (UpdateTrigger::Boot, UpdateTrigger::Unknown));
        assert_eq!(UpdateTrigger::Drain.words_of(1), "1 node waits until it is drained");
        assert_eq!(UpdateTrigger::Drain.words_of(2), "2 nodes wait until they are drained");
    }
}
