//! A node's turn among others: a delay that is another on each node.
//!
//! Owns how long a template change waits that needs no approval. Must not decide whether it needs one.

use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::record::PendingUpdate;
use crate::core::time::Span;

use super::Planner;

impl Planner<'_> {
    /// The per-node delay of a template change that needs no approval; daemons from folders never wait.
    pub(super) fn not_yet(&mut self, daemon_set: &DaemonSet, wanted: &str) -> Option<String> {
        if daemon_set.source != Source::Api || self.context.update_jitter <= Span::ZERO {
            return None;
        }
        let now = self.context.now;
        let since = match &self.record.pending_update {
            Some(pending) if pending.revision == wanted => pending.since,
            _ => {
                self.record.pending_update = Some(PendingUpdate { revision: wanted.to_owned(), since: now });
                now
            }
        };
        let at = since + jitter(&self.context.node.name, wanted, self.context.update_jitter);
        if now >= at {
            return None;
        }
        self.wake(at);
        Some(format!("its turn on this node comes in {} s (`update-jitter`)", (at - now).as_secs_ceil()))
    }
}

/// A delay in `0..bound` that depends only on node and revision.
pub fn jitter(node: &str, revision: &str, bound: Span) -> Span {
    let digest = crate::core::rendering::digest(format!("{node}\n{revision}").as_bytes());
    let number = digest.bytes().take(12).fold(0_i64, |n, b| n * 16 + i64::from((b as char).to_digit(16).unwrap_or(0)));
    Span::from_millis(number % bound.as_millis().max(1))
}
