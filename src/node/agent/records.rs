//! What the node remembers of its daemons: a record each.
//!
//! Owns the form that all of the agent hands around. Must not know who reads or writes them.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;

/// What the node remembers of each daemon.
pub(super) type Records = BTreeMap<ObjectKey, DaemonRecord>;
