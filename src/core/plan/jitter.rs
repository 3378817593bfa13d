//! A node's turn among others: a delay that differs from node to node.
//!
//! Owns how long a change of template or overlays waits if it needs no approval. Must not decide whether it needs one.

use crate::core::model::Source;
use crate::core::overlays::ListSource;
use crate::core::record::Instance;
use crate::core::record::PendingUpdate;
use crate::core::time::Span;

use super::Planner;
use super::Reason;
use super::overlays::is_same_template;
use super::progress::Target;

impl Planner<'_> {
    /// The per-node delay of a change of `old` that needs no approval. DaemonSets from folders never wait.
    pub(super) fn not_yet(&mut self, target: &Target, old: &Instance) -> Option<Reason> {
        let (daemon_set, wanted) = (&target.daemon_set, target.revision.as_str());
        // One edit of the API's list would replace a folder's daemon on all nodes at once.
        let of_a_list = || {
            let list = daemon_set.overlays.as_ref().map(|overlays| overlays.list);
            list == Some(ListSource::Api) && is_same_template(&old.revision, wanted)
        };
        let is_of_the_api = daemon_set.source == Source::Api || of_a_list();
        if !is_of_the_api || self.context.update_jitter <= Span::ZERO {
            return None;
        }
        let now = self.context.now;
        let since = match &self.plan.record.pending_update {
            Some(pending) if pending.revision == wanted => pending.since,
            _ => {
                self.plan.record.pending_update = Some(PendingUpdate { revision: wanted.to_owned(), since: now });
                now
            }
        };
        let at = since + jitter(&self.context.node.name, wanted, self.context.update_jitter);
        if now >= at {
            return None;
        }
        self.wake(at);
        Some(Reason::TurnIn(Span::from_secs((at - now).as_secs_ceil())))
    }
}

/// A delay in `0..bound` that depends only on node and revision.
pub fn jitter(node: &str, revision: &str, bound: Span) -> Span {
    let digest = crate::core::rendering::digest(format!("{node}\n{revision}").as_bytes());
    let number = digest.bytes().take(12).fold(0_i64, |n, b| n * 16 + i64::from((b as char).to_digit(16).unwrap_or(0)));
    Span::from_millis(number % bound.as_millis().max(1))
}
