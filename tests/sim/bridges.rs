//! Daemons in mode `bootstrap`, and who takes over from them: the DaemonSet controller, the scheduler, and the kubelet for pods
//! of the API server.
//!
//! Owns these pods. Must not judge.

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use super::api;
use super::node::Node;
use super::node::SPACE;

/// How long the controller, the scheduler and the kubelet take, in milliseconds.
const TAKES: i64 = 1_000;

/// What the scheduler does with a pod of the DaemonSet controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Binding {
    /// It binds the pod so much later.
    After { seconds: u16 },
    /// It binds the pod once the instance has ended, which has its port.
    WithoutInstance,
    /// It never does: there is too little memory, whoever ends.
    Full,
    /// It never does, for a taint.
    Tainted,
}

/// A daemon in mode `bootstrap`.
pub(crate) struct Bridge {
    pub(crate) name: String,
    pub(crate) binding: Binding,
    /// The controller's pod, and how many it has made.
    pub(crate) pod: Option<ControllersPod>,
    made: u64,
    /// When the controller makes the next.
    next_at: Option<i64>,
    /// The boot in which its node was renamed: what was handed over to a pod under the former name does not return in it.
    pub(crate) renamed_in: Option<i64>,
    /// So many ends of an instance are explained beyond the hand-over.
    pub(crate) allowed: u32,
    /// The pods for which an instance has ended in vain, each with its boot.
    pub(crate) ended_for: Vec<(String, i64)>,
}

/// A pod of the DaemonSet controller.
pub(crate) struct ControllersPod {
    key: api::Id,
    pub(crate) uid: String,
    node: String,
    bind_at: Option<i64>,
    pub(crate) is_bound: bool,
    /// Whether the scheduler has said that the instance may be what prevents that.
    pub(crate) may_end_instance: bool,
}

/// A pod of the API server.
#[derive(Clone, Debug)]
pub(crate) struct ApiPod {
    pub(crate) name: String,
    /// When its containers run, if they do not yet.
    pub(crate) until: Option<i64>,
    /// When they were made, by the wall clock in milliseconds.
    pub(crate) made: i64,
}

impl Bridge {
    pub(crate) fn new(number: usize, binding: Binding) -> Self {
        let name = format!("b{number}");
        Self { name, binding, pod: None, made: 0, next_at: None, renamed_in: None, allowed: 0, ended_for: Vec::new() }
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{SPACE}/{}", self.name)
    }

    fn spec(&self) -> Value {
        json!({"terminationGracePeriodSeconds": 2, "automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": "img:1", "env": [{"name": "REV", "value": "1"}]},
            {"name": "side", "image": "img:1"}]})
    }

    /// Why the scheduler does not bind its pod, while the node has an instance or has none.
    fn refusal(&self, has_instance: bool) -> Option<&'static str> {
        match self.binding {
            Binding::After { .. } => None,
            Binding::WithoutInstance => has_instance
                .then_some("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."),
            Binding::Full => Some("0/1 nodes are available: 1 Insufficient memory."),
            Binding::Tainted => Some("0/1 nodes are available: 1 node(s) had untolerated taint {a: b}."),
        }
    }

    /// Whether the controller's pod is what runs in the end.
    pub(crate) fn is_handed_over_in_the_end(&self) -> bool {
        matches!(self.binding, Binding::After { .. } | Binding::WithoutInstance)
    }
}

impl Node {
    /// The DaemonSets of these daemons.
    pub(crate) fn put_bridges(&mut self) {
        for bridge in &self.bridges {
            let labels = json!({"app": bridge.name});
            let metadata = json!({"name": bridge.name, "namespace": SPACE,
                "labels": {"app": bridge.name, "daemonlet.dev/mode": "bootstrap"}});
            let template = json!({"metadata": {"labels": labels}, "spec": bridge.spec()});
            self.server.lock().unwrap().put(
                "daemonsets",
                json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
                    "spec": {"selector": {"matchLabels": labels}, "template": template}}),
            );
        }
    }

    /// When one of these has something to do.
    pub(crate) fn bridges_due(&self) -> i64 {
        let of = |bridge: &Bridge| {
            let bind_at = bridge.pod.as_ref().and_then(|pod| pod.bind_at);
            bind_at.into_iter().chain(bridge.next_at).min().unwrap_or(i64::MAX)
        };
        let starts = self.kubelet.api_pods.values().filter_map(|pod| pod.until).min().unwrap_or(i64::MAX);
        let acts = self.is_reachable();
        self.bridges.iter().filter(|_| acts).map(of).fold(starts, i64::min)
    }

    /// Controller, scheduler and kubelet do what is due.
    pub(crate) fn step_bridges(&mut self) {
        let (now, wall) = (self.steady, self.steady + self.wall.get());
        for run in self.kubelet.api_pods.values_mut().filter(|run| run.until.is_some_and(|until| until <= now)) {
            (run.until, run.made) = (None, wall);
        }
        if self.other.is_some() || self.bridges.is_empty() {
            return;
        }
        let mut bridges = std::mem::take(&mut self.bridges);
        if self.is_reachable() {
            for bridge in &mut bridges {
                self.control(bridge);
                self.schedule(bridge);
            }
        }
        self.run_bound(&bridges);
        self.bridges = bridges;
    }

    fn control(&self, bridge: &mut Bridge) {
        let now = self.steady;
        let mut server = self.server.lock().unwrap();
        if let Some(pod) = &bridge.pod {
            let is_there = server.etcd.objects.contains_key(&pod.key);
            if is_there && pod.node == self.name {
                return;
            }
            server.delete(&pod.key);
            bridge.pod = None;
        }
        let Some(owner) = server.get("daemonsets", SPACE, &bridge.name).map(|set| set["metadata"]["uid"].clone())
        else {
            return;
        };
        if *bridge.next_at.get_or_insert(now + TAKES) > now {
            return;
        }
        bridge.next_at = None;
        bridge.made += 1;
        let name = format!("{}-of-controller-{}", bridge.name, bridge.made);
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.name]}]});
        let mut spec = bridge.spec();
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        let key = api::id("pods", SPACE, &name);
        server.put(
            "pods",
            json!({"kind": "Pod", "metadata": {"name": name, "namespace": SPACE, "labels": {"app": bridge.name},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": bridge.name, "uid": owner,
                        "controller": true}]},
                "spec": spec, "status": {"phase": "Pending"}}),
        );
        let uid = server.etcd.objects[&key]["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let bind_at = match bridge.binding {
            Binding::After { seconds } => now + TAKES + i64::from(seconds) * 1_000,
            _ => now + TAKES,
        };
        bridge.pod = Some(ControllersPod {
            key,
            uid,
            node: self.name.clone(),
            bind_at: Some(bind_at),
            is_bound: false,
            may_end_instance: false,
        });
    }

    fn schedule(&self, bridge: &mut Bridge) {
        let has_instance = self.kubelet.pods.values().any(|pod| pod.manifest.daemon == bridge.full_name());
        let (refusal, now) = (bridge.refusal(has_instance), self.steady);
        let may_end = matches!(bridge.binding, Binding::WithoutInstance | Binding::Full);
        let Some(pod) = bridge.pod.as_mut().filter(|pod| !pod.is_bound) else { return };
        let mut server = self.server.lock().unwrap();
        let Some(object) = server.etcd.objects.get(&pod.key).cloned() else { return };
        match (refusal, pod.bind_at) {
            (None, None) => pod.bind_at = Some(now + TAKES),
            (_, Some(at)) if at > now => {}
            (Some(_), None) => {}
            (None, Some(_)) => {
                (pod.bind_at, pod.is_bound) = (None, true);
                // Who watches pods that are not bound receives its end.
                server.delete(&pod.key);
                let mut bound = object;
                bound["spec"]["nodeName"] = self.name.as_str().into();
                bound["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True"}]);
                server.put("pods", bound);
            }
            (Some(why), Some(_)) => {
                (pod.bind_at, pod.may_end_instance) = (None, may_end);
                server.change(&pod.key, |object| {
                    object["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
                        "reason": "Unschedulable", "message": why}]);
                });
            }
        }
    }

    /// The kubelet runs what is bound, once it has received that.
    fn run_bound(&mut self, bridges: &[Bridge]) {
        let (now, is_served) = (self.steady, self.is_reachable() && self.kubelet.is_healthy());
        let bound = bridges.iter().filter_map(|bridge| bridge.pod.as_ref()).filter(|pod| pod.is_bound);
        let bound: Vec<&ControllersPod> = bound.collect();
        if is_served {
            self.kubelet.api_pods.retain(|uid, _| bound.iter().any(|pod| pod.uid == *uid));
        }
        let mut server = self.server.lock().unwrap();
        for pod in bound {
            let wall = server.now_millis;
            if is_served && !self.kubelet.api_pods.contains_key(&pod.uid) {
                let begun = ApiPod { name: pod.key.2.clone(), until: Some(now + TAKES), made: wall };
                self.kubelet.api_pods.insert(pod.uid.clone(), begun);
                server.change(&pod.key, |object| object["status"] = api_status(false, 0));
            }
            let Some(run) = self.kubelet.api_pods.get(&pod.uid) else { continue };
            let is_ready = server
                .etcd
                .objects
                .get(&pod.key)
                .is_some_and(|object| *object.pointer("/status/phase").unwrap_or(&Value::Null) == "Running");
            if run.until.is_none() && is_served && !is_ready {
                let since = run.made;
                server.change(&pod.key, |object| object["status"] = api_status(true, since));
            }
        }
    }
}

fn api_status(is_running: bool, since: i64) -> Value {
    let since = jiff::Timestamp::from_second(since / 1_000).unwrap_or_default().to_string();
    let state = match is_running {
        true => json!({"running": {"startedAt": since}}),
        false => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    let ready = if is_running { "True" } else { "False" };
    json!({"phase": if is_running { "Running" } else { "Pending" },
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready, "lastTransitionTime": since}],
        "containerStatuses": [{"name": "main", "ready": is_running, "restartCount": 0, "state": state, "image": "img", "imageID": "img"}]})
}
