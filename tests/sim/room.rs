//! Other pods on the node, which take the host ports of daemons.
//!
//! Owns whom the kubelet rejects for want of room, and for how long there has been room again. Must not judge.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use super::api;
use super::kubelet::Manifest;
use super::node::Node;
use super::node::SPACE;
use super::others::GUESTS;

/// How long a daemon may wait though it has room, in milliseconds in which nothing stands in the agent's way. While no API
/// server answers, the agent knows no rejection: that time counts less. After an outage it connects within half a minute, and
/// gives the kubelet another half to report the rejection.
const WAITS: i64 = 60_000;
const WITHOUT_API: i64 = 8;
/// After which an agent without an API server judges by the kubelet's silence.
const MAX_EVENT_DELAY: i64 = 120_000;
/// How soon an agent checks for a rejection, in milliseconds.
const REJECTION_CHECK: i64 = 15_000;

/// What stands in the way of daemons.
#[derive(Default)]
pub(crate) struct Room {
    /// Pods that want the port of a daemon, and whether they have it.
    occupants: BTreeMap<String, bool>,
    /// Pods that the kubelet has rejected, as long as they are in its folder; and all that it ever has.
    pub(crate) rejected: BTreeSet<String>,
    ever_rejected: BTreeSet<String>,
    /// Events that are not sent yet, each since when and of what: daemon and revision.
    events: Vec<(i64, (String, u64), Value)>,
    /// Revisions whose rejection was sent while the agent still waited for it, each when last.
    in_time: BTreeMap<(String, u64), i64>,
    /// Those that it may not have read.
    unread: BTreeSet<(String, u64)>,
    /// Whether a rejection was sent so late that the agent may have taken it for a manifest that is no pod's.
    pub(crate) is_rejection_missed: bool,
    sent: usize,
}

impl Room {
    /// The kubelet has another process, which judges anew; at a boot nothing has its port yet.
    pub(crate) fn restart(&mut self, is_boot: bool) {
        self.rejected.clear();
        self.occupants.values_mut().for_each(|has_it| *has_it &= !is_boot);
    }

    /// Whether the kubelet rejects a pod that is to start.
    pub(crate) fn rejects(&mut self, manifest: &Manifest, now: i64) -> bool {
        if self.rejected.contains(&manifest.uid) {
            return true;
        }
        if self.occupants.get(&manifest.daemon) != Some(&true) {
            return false;
        }
        self.rejected.insert(manifest.uid.clone());
        self.ever_rejected.insert(manifest.uid.clone());
        let Manifest { uid, namespace, name, .. } = manifest;
        let event = json!({"kind": "Event", "type": "Warning", "reason": "NodePorts",
            "message": "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports",
            "metadata": {"namespace": namespace}, "source": {"component": "kubelet"},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid}});
        self.events.push((now, (manifest.daemon.clone(), manifest.revision), event));
        true
    }

    /// Pods that wait take the ports that are free. `is_held`: whether a daemon has its own. Gives whether one has.
    pub(crate) fn fill(&mut self, is_held: impl Fn(&str) -> bool, server: &mut api::Server, node: &str) -> bool {
        // The kubelet does not receive what another cluster has for this node.
        let is_own_cluster = !server.is_other;
        let is_free = |(daemon, has_it): &(&String, &mut bool)| is_own_cluster && !**has_it && !is_held(daemon);
        let free = self.occupants.iter_mut().filter(is_free);
        let mut has_changed = false;
        for (daemon, has_it) in free {
            (*has_it, has_changed) = (true, true);
            server.put(
                "pods",
                json!({"kind": "Pod", "metadata": {"name": name(daemon), "namespace": GUESTS}, "spec": {"nodeName": node,
                "containers": [{"name": "main", "image": "img:1", "ports": ports(daemon)}]},
                "status": {"phase": "Running"}}),
            );
        }
        has_changed
    }

    /// Sends what is to be sent.
    pub(crate) fn send(&mut self, server: &mut api::Server, node: &str) {
        let events = if server.is_other { Vec::new() } else { std::mem::take(&mut self.events) };
        for (at, revision, mut event) in events {
            self.sent += 1;
            if server.steady - at <= MAX_EVENT_DELAY {
                self.in_time.insert(revision, server.steady);
            } else {
                self.is_rejection_missed |= !self.in_time.contains_key(&revision);
            }
            event["metadata"]["name"] = format!("event-{}", self.sent).into();
            event["source"]["host"] = node.into();
            server.put("events", event);
        }
    }

    /// An agent checks for a rejection after a while: what it cannot read then it misses.
    pub(crate) fn look(&mut self, server: &api::Server) {
        let is_served = server.reach == api::Reach::Up && !server.is_other && server.refusals.is_empty();
        let missed = self.in_time.iter().filter(|(_, at)| !is_served && server.steady - **at < REJECTION_CHECK);
        self.unread.extend(missed.map(|(revision, _)| revision.clone()));
    }

    /// A daemon has started at a revision, and another one is wanted.
    pub(crate) fn has_returned(&mut self, daemon: &str, wanted: u64) {
        self.is_rejection_missed |= self.unread.contains(&(daemon.to_owned(), wanted));
    }

    /// The sandboxes of those that have their ports.
    pub(crate) fn sandboxes(&self) -> impl Iterator<Item = String> {
        self.occupants.iter().filter(|(_, has_it)| **has_it).map(|(daemon, _)| name(daemon))
    }

    /// Whether a pod has been rejected.
    pub(crate) fn has_rejected(&self, uid: &str) -> bool {
        self.ever_rejected.contains(uid)
    }
}

fn name(daemon: &str) -> String {
    format!("occupant-{}", daemon.rsplit('/').next().unwrap_or_default())
}

/// The ports of a daemon.
pub(crate) fn ports(daemon: &str) -> Value {
    let number: u16 = daemon.rsplit('d').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    json!([{"containerPort": 80, "hostPort": 9_000 + number}])
}

/// For how long daemons have waited though they have room, by the UIDs of their pods.
#[derive(Default)]
pub(crate) struct Waiting(BTreeMap<String, i64>);

impl Waiting {
    /// `passed` milliseconds have passed that count. Gives a daemon that has waited for too long.
    pub(crate) fn pass(&mut self, node: &Node, passed: i64) -> Option<String> {
        let weight =
            if node.is_reachable() && node.server.lock().unwrap().refusals.is_empty() { WITHOUT_API } else { 1 };
        let room = &node.kubelet.room;
        let waits = node.kubelet.taken.values().filter(|manifest| {
            room.rejected.contains(&manifest.uid) && room.occupants.get(&manifest.daemon) != Some(&true)
        });
        let waits: BTreeMap<&str, &str> = waits.map(|m| (m.uid.as_str(), m.daemon.as_str())).collect();
        self.0.retain(|uid, _| waits.contains_key(uid.as_str()));
        waits.into_iter().find_map(|(uid, daemon)| {
            let waited = self.0.entry(uid.to_owned()).or_default();
            *waited += passed * weight;
            (*waited > WAITS * WITHOUT_API).then(|| daemon.to_owned())
        })
    }

    /// The agent's times are others.
    pub(crate) fn wait_anew(&mut self) {
        self.0.clear();
    }
}

impl Node {
    /// Another pod is to have the port of a daemon, as soon as that has none.
    pub(crate) fn occupy(&mut self, daemon: usize, seconds: u16) {
        let name = format!("{SPACE}/{}", self.daemons[daemon].name);
        if self.has_ports && self.is_reachable() {
            self.kubelet.room.occupants.entry(name).or_insert(false);
            self.kubelet.poke(self.steady);
            self.heal_after(seconds, super::node::Heal::Occupant(daemon as u8));
        }
    }

    pub(crate) fn vacate(&mut self, daemon: u8) {
        let daemon = format!("{SPACE}/d{daemon}");
        self.kubelet.room.occupants.remove(&daemon);
        let key = api::id("pods", GUESTS, &name(&daemon));
        match &mut self.other {
            Some(etcd) => drop(etcd.objects.remove(&key)),
            None => self.server.lock().unwrap().delete(&key),
        }
    }
}
