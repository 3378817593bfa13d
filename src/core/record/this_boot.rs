//! What has happened to a daemon since the node booted, as far as start order, startup taint and Node
//! conditions need it.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::DaemonRecord;

/// Kept only for a daemon that has `daemonlet.dev/after`, `daemonlet.dev/startup-taint` or `daemonlet.dev/node-condition`,
/// or that another one's `after` names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThisBoot {
    /// The boot (`boot_id`).
    pub boot: String,
    /// How long the machine was up when it was looked at before there was a kubelet: what says that it was Ready before is
    /// of an earlier boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_kubelet: Option<Span>,
    /// Whether an instance of it has had a manifest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// Whether it was Ready once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
    /// Whether its containers ran for long enough once while readiness was not reported: enough for daemons that start after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steady: bool,
    /// Whether the gates of its instances are closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate_closed: bool,
    /// Since when its start waits for other daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<Timestamp>,
    /// Since when the node keeps workload away until it is Ready; moved along by the time in which the API server did not
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_since: Option<Timestamp>,
    /// Since when that time does not run, because the API server does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

impl ThisBoot {
    /// How long the node has waited for it while the API server answered.
    pub fn awaited_for(&self, now: Timestamp) -> Span {
        self.awaited_since.map_or(Span::ZERO, |since| self.silent_since.unwrap_or(now) - since)
    }

    /// The node waits for it while the API server answers.
    pub fn await_answered(&mut self, now: Timestamp) {
        self.awaited_since = Some(now - self.awaited_for(now));
        self.silent_since = None;
    }

    /// The node waits for it while the API server does not answer.
    pub fn await_silent(&mut self, now: Timestamp) {
        if self.awaited_since.is_some() {
            self.silent_since.get_or_insert(now);
        }
    }
}

impl DaemonRecord {
    /// Whether its instances wait at their gates in this `boot`.
    pub fn has_closed_gate(&self, boot: &str) -> bool {
        self.this_boot.as_ref().is_some_and(|this| this.gate_closed && this.boot == boot)
    }

    /// Notes that the gates of these pods, which were to close, are open: the pods start without waiting. Gives its key if one
    /// is its own.
    pub fn leave_open(&mut self, uids: &BTreeSet<String>) -> Option<ObjectKey> {
        let has_one = self.live().any(|instance| uids.contains(&instance.uid));
        let this = self.this_boot.as_mut().filter(|_| has_one)?;
        (this.gate_closed, this.waits_since) = (false, None);
        Some(self.key.clone())
    }

    /// Notes that the gates of these pods, which were to open, are closed: they are opened again. Gives its key if one is
    /// its own.
    pub fn leave_closed(&mut self, uids: &BTreeSet<String>) -> Option<ObjectKey> {
        let has_one = self.live().any(|instance| uids.contains(&instance.uid));
        let this = self.this_boot.as_mut().filter(|_| has_one)?;
        this.gate_closed = true;
        Some(self.key.clone())
    }

    /// What has happened in `boot`; what is remembered of an earlier one is dropped.
    pub fn in_boot(&mut self, boot: &str) -> &mut ThisBoot {
        let this = self.this_boot.get_or_insert_default();
        if this.boot != boot {
            *this = ThisBoot { boot: boot.to_owned(), ..ThisBoot::default() };
        }
        this
    }
}
