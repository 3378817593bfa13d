//! What ends the process that runs, and what is recorded of the disk until then.

use std::path::PathBuf;

use daemonlet::simulation::Doing;

use crate::api::Reach;

/// What ends the process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM, and a start after so long.
    Stop {
        back: i64,
    },
    /// SIGKILL.
    Kill {
        back: i64,
    },
    PowerLoss {
        kept: u8,
        reach: Reach,
    },
    /// SIGTERM, and the machine boots again.
    Shutdown {
        reach: Reach,
    },
}

/// What is recorded of the disk, and when the process is to die of it.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) log: Vec<(Doing, PathBuf, bool)>,
    /// Changes that the agent may still make before `end`.
    pub(crate) left: Option<(u64, End)>,
    pub(crate) ended: Option<End>,
    pub(super) by_world: bool,
}

/// Ends the process in the middle of an effect.
pub(crate) struct Killed;
