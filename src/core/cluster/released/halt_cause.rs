//! Why a revision is halted.
//!
//! Owns the texts. Must not decide that it is.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::core::cluster::conditions::count;

/// Why a revision is halted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HaltCause {
    /// It failed.
    Failed(FailedNodes),
    /// As it was written by hand, or stands in a condition.
    Written(String),
}

/// How many nodes a revision failed on, and how many of them are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FailedNodes {
    pub nodes: usize,
    /// Of these, those whose Nodes were deleted.
    pub deleted: usize,
    /// Those from which the daemon was taken away.
    pub taken_away: usize,
    /// Those that are lost in a way that is not known.
    pub more: usize,
}

impl fmt::Display for FailedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the revision failed on {}", count(self.nodes))?;
        match (self.deleted, self.taken_away, self.more) {
            (0, 0, 0) => Ok(()),
            (deleted, 0, 0) => write!(f, ", {deleted} of them deleted"),
            (0, taken, 0) => write!(f, ", {taken} of them not to run it any more"),
            (deleted, taken, 0) => write!(f, ", {deleted} of them deleted and {taken} not to run it any more"),
            // Of those whose names are not noted it is not known in which way they are lost.
            (deleted, taken, more) => {
                write!(f, ", {} of them deleted or not to run it any more", deleted + taken + more)
            }
        }
    }
}

impl fmt::Display for HaltCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failed) => failed.fmt(f),
            Self::Written(text) => f.write_str(text),
        }
    }
}
