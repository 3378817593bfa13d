//! Clocks of nodes and coordinators that are wrong by some minutes, and pods that are available only after a while.
//!
//! Owns these moves, which a source of their own draws, in one of five lives, and what is true of the times that coordinators
//! write.

use serde_json::Value;
use serde_json::json;

use daemonlet::core::json::condition;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use super::Dice;
use super::KNOWN_AFTER;
use super::Life;
use super::WITHDRAWN;
use super::agent;
use super::agent::Node;
use super::agent::Running;
use super::coordinator::Process;

/// By how many seconds a coordinator's clock may be ahead, and a node's.
const COORDINATORS: [i64; 9] = [-300, -60, -20, 0, 0, 0, 20, 60, 300];
const NODES: [i64; 12] = [-240, -60, -20, 0, 0, 0, 0, 0, 0, 20, 60, 240];
/// `minReadySeconds`, where it is not 0.
const MIN_READY: Span = Span::from_secs(30);
/// No clock is wrong by more minutes.
pub(super) const MINUTES: i64 = 6;

/// The source of a seed, where its life has such moves.
pub(super) fn of(seed: u64) -> Option<Dice> {
    (seed % 5 == 4).then_some(Dice(!seed ^ 0xc10c))
}

/// `minReadySeconds`, and since when it is so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinReady {
    is_set: bool,
    since: Timestamp,
}

impl MinReady {
    pub(super) fn seconds(self) -> i64 {
        if self.is_set { MIN_READY.as_secs() } else { 0 }
    }

    /// After this what is reported as ready was known to be available when an approval was given. Where that takes a while, it
    /// counts from when the coordinator has seen it.
    pub(super) fn available_after(self, approved_at: Timestamp) -> Span {
        let may_be_set = self.is_set || approved_at < self.since + WITHDRAWN;
        if may_be_set { MIN_READY + agent::SEEN_AFTER } else { agent::KNOWN_AFTER }
    }

    /// The least that a coordinator may have read when it gave an approval.
    fn least(self, approved_at: Timestamp) -> Span {
        let is_set = self.is_set && self.since + WITHDRAWN <= approved_at;
        if is_set { MIN_READY } else { Span::ZERO }
    }
}

/// What is true of an approval, whatever time it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// When it was given, in whole seconds.
    pub(super) at: Timestamp,
    /// By how much the clock was ahead by which it has its time.
    pub(super) ahead: Span,
    /// When its coordinator took the Lease.
    pub(super) began: Timestamp,
}

impl Given {
    /// Whether its coordinator may have counted what is ready on a node as ready for longer than it was: it has found it so.
    fn may_have_found(&self, node: &Node, ready: Timestamp) -> bool {
        let found = self.began.max(node.made) + KNOWN_AFTER;
        ready <= found && node.clock < self.ahead
    }

    /// Whether its coordinator may have believed the dead agent of a node whose clock is ahead of its own.
    pub(super) fn may_have_believed(&self, node: &Node) -> bool {
        node.clock > self.ahead && self.at < self.began + Span::from_secs(100)
    }
}

/// Gives the condition of a Node its time: it has a new one if it changes.
pub(super) fn date(node: &mut Value, before: Option<&Value>, now: Timestamp, clock: Span) {
    let status = condition(node, "Ready").map(|ready| ready["status"].clone()).unwrap_or_default();
    let before = before.and_then(|before| condition(before, "Ready")).filter(|before| before["status"] == status);
    // The node lifecycle controller writes that nothing is known of it.
    let written = if status == "Unknown" { now } else { now + clock };
    let time = before.map_or_else(|| json!(written.to_string()), |before| before["lastTransitionTime"].clone());
    node["status"]["conditions"][0]["lastTransitionTime"] = time;
}

impl Life {
    /// A new machine of a name.
    pub(super) fn machine(&mut self, name: &str) {
        self.joined += 1;
        let mut node = Node::new(name.to_owned(), self.joined);
        if let Some(clocks) = &mut self.clocks {
            node.clock = Span::from_secs(clocks.one_of(&NODES));
        }
        self.nodes.insert(name.to_owned(), node);
        self.write_node(name);
    }

    /// Perhaps a clock is set, or something of these happens.
    pub(super) fn may_set_clocks(&mut self) {
        if let Some(mut clocks) = self.clocks.take() {
            if clocks.below(60) == 0 {
                self.set_clocks(&mut clocks);
            }
            self.clocks = Some(clocks);
        }
    }

    fn set_clocks(&mut self, clocks: &mut Dice) {
        let (which, ahead) = (clocks.below(2), clocks.one_of(&COORDINATORS));
        match clocks.below(9) {
            0..3 => {
                self.log(format!("the clock of coordinator {which} is ahead by {ahead} s"));
                self.processes[which].clock = Span::from_secs(ahead);
            }
            3 | 4 => {
                self.log(format!(
                    "coordinator {which} dies, and another with a clock that is ahead by {ahead} s starts"
                ));
                self.started += 1;
                self.processes[which] = Process::new(self.started, self.now + Span::from_secs(1));
                self.processes[which].clock = Span::from_secs(ahead);
            }
            5 | 6 => self.mislead(clocks),
            7 => {
                let image = clocks.one_of(&["good-1", "good-2", "good-3"]);
                self.write_min_ready(!self.api.min_ready.is_set, image);
            }
            _ => {
                let image = self.image();
                self.write_min_ready(!self.api.min_ready.is_set, &image);
            }
        }
    }

    /// Another revision is wanted, and coordinators start by whose clock what has been available on a node for long has just
    /// become ready.
    fn mislead(&mut self, clocks: &mut Dice) {
        let names: Vec<&String> = self.nodes.keys().collect();
        let ready = self.nodes[names[clocks.below(names.len())]].running.as_ref().and_then(|running| running.ready);
        let age = ready.map_or(Span::ZERO, |ready| self.now - ready);
        if !(Span::from_secs(75)..Span::from_mins(MINUTES)).contains(&age) {
            return;
        }
        let ahead = Span::from_secs(i64::try_from(clocks.below(20)).unwrap()) - age;
        self.log(format!("coordinators die, and others with clocks that are ahead by {} s start", ahead.as_secs()));
        for which in 0..2 {
            self.started += 1;
            self.processes[which] = Process::new(self.started, self.now + Span::from_secs(1));
            self.processes[which].clock = ahead;
        }
        self.set_min_ready(true);
        let image = clocks.one_of(&["good-1", "good-2", "good-3"]);
        self.template(image, json!({}));
    }

    fn write_min_ready(&mut self, is_set: bool, image: &str) {
        self.set_min_ready(is_set);
        let annotations = self.daemon()["metadata"]["annotations"].clone();
        self.template(image, annotations);
    }

    /// From the next template on pods are available after a while, or at once.
    pub(super) fn set_min_ready(&mut self, is_set: bool) {
        if self.api.min_ready.is_set != is_set {
            self.api.min_ready = MinReady { is_set, since: self.now };
            self.log(format!("minReadySeconds {}", self.api.min_ready.seconds()));
        }
    }

    /// Whether what runs on a node is ready and not available yet, and the coordinator that gave an approval could know that.
    pub(super) fn is_young(&self, node: &Node, running: &Running, given: Option<Given>) -> bool {
        let Some((given, ready)) = given.zip(running.ready) else { return false };
        let is_available = ready + self.api.min_ready.least(given.at) <= self.now;
        !is_available && !given.may_have_found(node, ready) && !self.surged_at(given.at)
    }
}
