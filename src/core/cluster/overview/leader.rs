//! Who holds the coordinator's Lease, as a text.
//!
//! Owns when a Lease counts as expired. Must not read a clock.

use serde::Serialize;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// Annotation of the coordinator's Lease: the kinds of objects that its holder cannot list, read or write, if there are
/// some. It decides from what it last saw of them, or not at all.
pub const CANNOT_LIST: &str = "daemonlet.dev/cannot-list";

/// A Lease that was not renewed for this long has expired; a part of it is for clocks that differ.
const EXPIRED: Span = Span::from_secs(30);

/// Who holds the coordinator's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Its name; empty: no coordinator holds it.
    pub holder: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// When it last renewed it (RFC 3339).
    pub renewed: String,
    /// Kinds of objects that it cannot list, read or write; empty: none.
    pub cannot_list: String,
    /// Why that is not known; empty: it is.
    pub unknown: String,
}

impl Leader {
    /// From the Lease.
    pub fn of(lease: &Value) -> Self {
        let text = |field: &str| lease.str_at(["spec", field]).to_owned();
        Self {
            holder: text("holderIdentity"),
            since: text("acquireTime"),
            renewed: text("renewTime"),
            cannot_list: lease.str_at(["metadata", "annotations", CANNOT_LIST]).to_owned(),
            unknown: String::new(),
        }
    }

    /// Whether it was not renewed for longer than it lasts, by a clock that shows `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        !self.holder.is_empty() && self.renewed.parse::<Timestamp>().is_ok_and(|renewed| now - renewed > EXPIRED)
    }

    /// In one line, at `now`; and whether rollouts may stand still because no coordinator sees everything.
    pub fn words(&self, now: Timestamp) -> (String, bool) {
        let silent = self.renewed.parse::<Timestamp>().ok().map(|renewed| now - renewed);
        match silent {
            _ if !self.unknown.is_empty() => (format!("unknown: {}", self.unknown), false),
            _ if self.holder.is_empty() => ("none holds the Lease, so no rollout goes on".to_owned(), true),
            Some(silent) if silent > EXPIRED => {
                let (holder, seconds) = (&self.holder, silent.as_secs_ceil());
                (format!("{holder} has not renewed its Lease for {seconds} s: no rollout goes on"), true)
            }
            _ if !self.cannot_list.is_empty() => {
                let Self { holder, since, cannot_list, .. } = self;
                (
                    format!("{holder} since {since}, which cannot list, read or write {cannot_list}: its log says why"),
                    true,
                )
            }
            _ => (format!("{} since {}", self.holder, self.since), false),
        }
    }
}
