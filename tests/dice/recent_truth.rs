//! What the status of the DaemonSet reports must have been true a moment ago.

use std::collections::VecDeque;

use serde_json::Value;

use daemonlet::core::cluster::released::HALTED;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::json::Json;

use super::agent;
use super::agent::Node;

/// Looks that the status may be behind. A look is 3 s, an instance gets ready in as many, and a status has its turn.
const LATE: usize = 8;
/// Looks before the first judgement: the status may be from the time before.
const FIRST: usize = 20;

/// Nodes that are selected, that have the wanted revision, and that are ready.
type Counts = [usize; 3];

/// What was true at the last looks.
#[derive(Default)]
pub(super) struct RecentTruth {
    looks: usize,
    last: VecDeque<Counts>,
    /// The same without nodes that have claimed a replacement: what they run counts no more, whenever it ends.
    least: VecDeque<Counts>,
}

impl RecentTruth {
    /// Compares what the status reports with what was true at the last looks and is now.
    pub(super) fn look<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>, daemon: &Value) {
        let wanted = agent::hash_of(&daemon["spec"]["template"]);
        let (mut now, mut least) = (Counts::default(), Counts::default());
        for node in nodes.filter(|node| node.placed.should_run(&node.name)) {
            // Of a surge the old one counts, until nothing of it runs.
            let oldest = node.instances().first().map(|(running, _)| running.hash.clone());
            let is_so = [true, oldest == Some(wanted.clone()), node.serves()];
            let stays = [true, !node.has_claimed(), !node.has_claimed()];
            for (which, is_so) in is_so.into_iter().enumerate() {
                now[which] += usize::from(is_so);
                least[which] += usize::from(is_so && stays[which]);
            }
        }
        self.looks += 1;
        self.last.push_front(now);
        self.last.truncate(LATE);
        self.least.push_front(least);
        self.least.truncate(LATE);
        if self.looks < FIRST {
            return;
        }
        let status = &daemon["status"];
        let fields = ["desiredNumberScheduled", "updatedNumberScheduled", "numberReady"];
        let reported: Counts = fields.map(|field| usize::try_from(status[field].as_u64().unwrap_or(0)).unwrap());
        for (which, field) in fields.into_iter().enumerate() {
            // It may have been so between two looks.
            let most = self.last.iter().map(|counts| counts[which]).max();
            let least = self.least.iter().map(|counts| counts[which]).min();
            let was = least <= Some(reported[which]) && Some(reported[which]) <= most;
            assert!(was, "the status reports {field} as {}, and was {:?}", reported[which], self.last);
        }
        let reason = |kind: &str| {
            let found = status.list_at("conditions").iter().find(|c| c.str_at("type") == kind);
            found.map_or("", |c| c.str_at("reason"))
        };
        let was = |of: fn(&Counts) -> bool| self.last.iter().any(of);
        assert!(reason("Progressing") != "Complete" || was(|c| c[0] == c[1]), "Complete: {:?}", self.last);
        assert!(reason("Available") != "AllAvailable" || was(|c| c[0] == c[2]), "AllAvailable: {:?}", self.last);
        let is_newest = RolloutStatus::of(status, 0).released.is_some_and(|released| released.hash == wanted);
        assert!(reason("Released") != "Complete" || is_newest, "another revision is the released one");
        assert_eq!(reason(HALTED), "", "nothing is halted that works");
    }
}
