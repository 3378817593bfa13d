//! The taint that keeps workload away from a node until its daemons have run there (`daemonlet.dev/startup-taint`).
//!
//! Owns who asks for it. Must not judge.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::Node;

pub(crate) const KEY: &str = "daemonlet.dev/starting";
/// How long a node waits for a daemon.
const TIMEOUT: i64 = 600_000;

/// Which daemons ask for it, and since when.
#[derive(Clone, Debug)]
pub(crate) struct StartupTaint {
    asked: BTreeMap<usize, i64>,
}

impl StartupTaint {
    pub(crate) fn new(asked: &[u8]) -> Self {
        Self { asked: asked.iter().map(|daemon| (usize::from(*daemon), 0)).collect() }
    }

    /// The API server says again of a daemon what it said before.
    pub(crate) fn go_back(&mut self, daemon: usize, before: &Self, now: i64) {
        match (before.is_asked(daemon), self.is_asked(daemon)) {
            (true, false) => _ = self.asked.insert(daemon, now),
            (false, true) => _ = self.asked.remove(&daemon),
            (true, true) | (false, false) => {}
        }
    }

    pub(crate) fn is_asked(&self, daemon: usize) -> bool {
        self.asked.contains_key(&daemon)
    }

    /// Whether an agent that has received everything waits for a daemon, and no such wait can have come to its end.
    pub(crate) fn is_awaited(&self, node: &Node, daemon: usize) -> bool {
        let Some(since) = self.asked.get(&daemon) else { return false };
        let is_known = *since < node.booted && !node.forgets() && !node.has_older_state();
        // What is refused, for overlays that are none, is not waited for.
        let overlay = node.daemons[daemon].overlay.as_ref();
        let is_refused = overlay.is_some_and(|overlay| !overlay.is_as_meant());
        is_known && !is_refused && node.is_settled_in_boot(daemon) && node.steady - node.booted < TIMEOUT
    }
}

/// Whether a Node has the taint.
pub(crate) fn is_on(node: &Value) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|taint| taint["key"] == KEY))
}

impl Node {
    /// Whether it has the taint now.
    pub(crate) fn has_taint(&self) -> bool {
        self.server.lock().unwrap().get("nodes", "", &self.name).is_some_and(is_on)
    }

    /// Whether an agent can know what it is to write, and write it.
    pub(crate) fn can_write_taint(&self) -> bool {
        let server = self.server.lock().unwrap();
        let is_served = server.has_taint_policy && server.refusals.is_empty();
        drop(server);
        is_served && self.is_reachable() && self.has_folders()
    }

    /// Whether an agent that ends because the machine shuts down leaves it.
    pub(crate) fn leaves_taint(&self) -> bool {
        let Some(taint) = &self.taint else { return false };
        let is_known = |since: i64| since < self.steady - 60_000 && !self.forgets() && !self.has_older_state();
        let is_asked = |daemon: usize| taint.asked.get(&daemon).is_some_and(|since| is_known(*since));
        let mut daemons = 0..self.daemons.len();
        let is_here = daemons.any(|daemon| is_asked(daemon) && self.is_settled_in_boot(daemon));
        is_here && self.is_clear() && self.can_write_taint()
    }

    /// A DaemonSet asks for it, or not any more; it changes with that.
    pub(crate) fn ask_taint(&mut self, daemon: usize, is_asked: bool) {
        let in_api = self.daemons[daemon].in_api();
        let is_listed = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
        let steady = self.steady;
        let can_be = if in_api { self.is_reachable() && is_listed } else { self.can_write(daemon) };
        // A newer version in the API would count.
        let can_be = can_be && !self.daemons[daemon].overrides;
        let Some(taint) = self.taint.as_mut().filter(|_| can_be) else { return };
        match is_asked {
            true => _ = taint.asked.entry(daemon).or_insert(steady),
            false => _ = taint.asked.remove(&daemon),
        }
        if in_api { self.apply(daemon) } else { self.write_file(daemon) }
    }

    /// Whether nothing happens to a daemon in this boot.
    pub(crate) fn is_settled_in_boot(&self, daemon: usize) -> bool {
        let truth = &self.daemons[daemon];
        truth.is_settled() && !truth.is_on_new_disk
    }
}
