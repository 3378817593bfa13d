//! The kubelet and its container runtime, as far as static pods meet them.
//!
//! Follows Kubernetes 1.36: the file source takes each manifest that it can read, kills what is missing from the
//! folder, and starts a new pod of a name only after the old one has ended. Owns which pods run.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use daemonlet::simulation::Simulated;

use super::api;
use super::api::Reach;
use super::bridges::ApiPod;
use super::moves::Blur;

mod manifest;
mod mirror;
mod runtime;

pub(crate) use manifest::Manifest;
pub(crate) use manifest::parse;
use mirror::is_mirror;
use mirror::mirror;
use mirror::status;

/// How long a start takes, and a look at the folder lets wait, in milliseconds.
const STARTS: i64 = 700;
const LOOKS: i64 = 50;
const RELIST: i64 = 20_000;
const HOUSEKEEPING: i64 = 2_000;
/// What the kernel shows of the kubelet's process.
pub(crate) const PROCESS: &str = "/proc/77/stat";
/// The volume of a gate.
const GATE: &str = "daemonlet-gate";

/// What a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting {
        until: i64,
    },
    Running {
        /// By the wall clock of then.
        since: i64,
    },
    Ending {
        until: i64,
    },
    /// Its sandbox stands still; nothing runs.
    Gone,
}

/// A pod of the node.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) manifest: Manifest,
    pub(crate) phase: Phase,
    pub(crate) restarts: u32,
    /// When the runtime made its sandbox and container, by the wall clock in milliseconds.
    made: i64,
    /// Whether its gate is closed: it has a sandbox, and no container.
    pub(crate) is_held: bool,
}

/// What the runtime does when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum RuntimeState {
    #[default]
    Answers,
    Hangs,
    Down,
    /// Another runtime than the kubelet's answers in its place, in the middle of a boot. At a boot the one that the
    /// configuration names is believed.
    Foreign,
}

/// The kubelet and the runtime.
pub(crate) struct Kubelet {
    pub(crate) pods: BTreeMap<String, Pod>,
    /// Pods that the kubelet of this boot has ended: their UIDs do not run again.
    pub(crate) ended: BTreeSet<String>,
    /// Those of them whose manifests were back before.
    returning: BTreeSet<String>,
    pub(crate) runs: bool,
    pub(crate) runtime: RuntimeState,
    folder: std::path::PathBuf,
    root: std::path::PathBuf,
    pub(crate) look_at: i64,
    house_at: i64,
    /// When the machine booted, and whether the kubelet's process is to be seen.
    pub(crate) booted: i64,
    is_seen: bool,
    /// What the last look took, to see that a manifest is another one.
    pub(crate) taken: BTreeMap<String, Manifest>,
    pub(crate) started_pods: Vec<Manifest>,
    /// Pods whose containers have begun to run.
    pub(crate) running_pods: Vec<Manifest>,
    has_listed: bool,
    /// What the last housekeeping saw of the API's pods, and whether pods have changed since.
    kept_at: u64,
    is_untidy: bool,
    /// Manifests by file, with what shows that it is the same file.
    parsed: BTreeMap<String, (String, Option<Manifest>)>,
    pub(crate) room: super::room::Room,
    /// Pods of the API server that it runs, by UID.
    pub(crate) api_pods: BTreeMap<String, ApiPod>,
    /// What the runtime does not know of the pods of these daemons.
    pub(crate) blurred: BTreeMap<String, Blur>,
}

impl Kubelet {
    pub(crate) fn new(folder: &Path, root: &Path) -> Self {
        Self {
            pods: BTreeMap::new(),
            ended: BTreeSet::new(),
            returning: BTreeSet::new(),
            runs: true,
            runtime: RuntimeState::Answers,
            folder: folder.to_owned(),
            root: root.to_owned(),
            look_at: 0,
            house_at: 0,
            booted: 0,
            is_seen: false,
            taken: BTreeMap::new(),
            started_pods: Vec::new(),
            running_pods: Vec::new(),
            has_listed: false,
            kept_at: 0,
            is_untidy: true,
            parsed: BTreeMap::new(),
            room: super::room::Room::default(),
            api_pods: BTreeMap::new(),
            blurred: BTreeMap::new(),
        }
    }

    /// The machine lost its power: nothing runs.
    pub(crate) fn crash(&mut self) {
        self.room.restart(true);
        self.is_untidy = true;
        self.pods.clear();
        self.api_pods.clear();
        self.ended.clear();
        self.returning.clear();
        self.taken.clear();
        self.has_listed = false;
        self.is_seen = false;
    }

    /// The kubelet's process is another one; containers go on running.
    pub(crate) fn restart(&mut self, now: i64) {
        self.room.restart(false);
        self.is_untidy = true;
        self.ended.clear();
        self.returning.clear();
        self.taken.clear();
        self.has_listed = false;
        self.is_seen = false;
        self.look_at = now + 500;
    }

    /// Whether it says that it is at work: it has read its folder.
    pub(crate) fn is_healthy(&self) -> bool {
        self.runs && self.has_listed
    }

    /// Something in the folder has changed.
    pub(crate) fn poke(&mut self, now: i64) {
        self.look_at = self.look_at.min(now + LOOKS);
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> i64 {
        let of_pods = self.pods.values().filter_map(|pod| match pod.phase {
            Phase::Starting { until } | Phase::Ending { until } => Some(until),
            Phase::Running { .. } | Phase::Gone => None,
        });
        let house_at = if self.is_untidy { self.house_at } else { i64::MAX };
        let own = if self.runs { self.look_at.min(house_at) } else { i64::MAX };
        of_pods.fold(own, i64::min)
    }

    /// Does what is due.
    pub(crate) fn step(&mut self, now: i64, disk: &Arc<Simulated>, server: &mut api::Server, node: &str) {
        let before: Vec<Phase> = self.pods.values().map(|pod| pod.phase).collect();
        for (uid, pod) in &mut self.pods {
            match pod.phase {
                Phase::Starting { until } if until <= now && is_closed(disk, &self.root, &pod.manifest) => {
                    pod.is_held = true;
                    pod.phase = Phase::Starting { until: now + HOUSEKEEPING };
                }
                Phase::Starting { until } if until <= now && pod.manifest.is_bad => {
                    pod.is_held = false;
                    pod.phase = Phase::Starting { until: now + (5_000 << pod.restarts.min(6)) };
                    pod.restarts += 1;
                }
                Phase::Starting { until } if until <= now => {
                    pod.is_held = false;
                    self.running_pods.push(pod.manifest.clone());
                    pod.phase = Phase::Running { since: server.now_millis };
                    disk.put(self.root.join("pods").join(uid).join("etc-hosts"), "hosts");
                }
                Phase::Ending { until } if until <= now => {
                    pod.phase = Phase::Gone;
                    self.ended.insert(uid.clone());
                    if self.returning.contains(uid) {
                        self.look_at = self.look_at.min(now + HOUSEKEEPING);
                    }
                }
                _ => {}
            }
        }
        self.room.look(server);
        if !self.runs {
            return;
        }
        if self.has_listed {
            let is_held =
                |daemon: &str| self.pods.values().any(|pod| pod.manifest.daemon == daemon && pod.phase != Phase::Gone);
            self.is_untidy |= self.room.fill(is_held, server, node);
        }
        if self.look_at <= now {
            if !std::mem::replace(&mut self.is_seen, true) {
                let ticks = (now - self.booted) / 10;
                disk.put(PROCESS, format!("77 (kubelet) {}{ticks} 0", "S 1 ".repeat(9) + "S "));
            }
            self.look_at = now + RELIST;
            self.look((now, server.now_millis), disk);
        }
        if !before.iter().eq(self.pods.values().map(|pod| &pod.phase)) || self.kept_at != server.pods_version {
            self.is_untidy = true;
        }
        if self.is_untidy && self.house_at <= now {
            self.house_at = now + HOUSEKEEPING;
            // As the kubelet, which does not know which pods have no manifest before it has read its folder.
            if self.has_listed {
                self.keep_house(server, node);
                self.kept_at = server.pods_version;
                self.is_untidy = false;
            }
        }
    }

    /// What is in the folder now, by UID.
    pub(crate) fn read(&mut self, disk: &Arc<Simulated>) -> BTreeMap<String, Manifest> {
        let disk: &dyn daemonlet::simulation::Disk = &**disk;
        let Ok(names) = disk.list(&self.folder) else { return BTreeMap::new() };
        let mut names: Vec<_> = names.into_iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")).collect();
        names.sort();
        let mut by_name: BTreeMap<(String, String), Manifest> = BTreeMap::new();
        for name in names {
            let Ok(text) = disk.text(self.folder.join(&name)) else { continue };
            let name = name.to_string_lossy().into_owned();
            if self.parsed.get(&name).is_none_or(|(parsed, _)| *parsed != text) {
                let manifest = parse(&name, &text);
                self.parsed.insert(name.clone(), (text, manifest));
            }
            if let Some(manifest) = self.parsed[&name].1.clone() {
                by_name.insert((manifest.namespace.clone(), manifest.name.clone()), manifest);
            }
        }
        by_name.into_values().map(|manifest| (manifest.uid.clone(), manifest)).collect()
    }

    /// What the folder has now is started and ended. `wall`: the wall clock in milliseconds.
    fn look(&mut self, (now, wall): (i64, i64), disk: &Arc<Simulated>) {
        let wanted = self.read(disk);
        for (uid, pod) in &mut self.pods {
            let ends = matches!(pod.phase, Phase::Starting { .. } | Phase::Running { .. });
            if ends && !wanted.contains_key(uid) {
                // After a restart of the kubelet it is an orphan, and gets a second.
                let grace = if self.has_listed { pod.manifest.grace * 1_000 } else { 1_000 };
                // Without containers nothing is waited for.
                let grace = if pod.is_held { 0 } else { grace };
                pod.phase = Phase::Ending { until: now + grace };
            }
        }
        for (uid, manifest) in &wanted {
            let full = |m: &Manifest| (m.namespace.clone(), m.name.clone());
            let is_taken = |pod: &Pod| full(&pod.manifest) == full(manifest) && pod.phase != Phase::Gone;
            let is_taken = self.pods.values().any(is_taken);
            match self.pods.get_mut(uid) {
                Some(pod) if pod.phase == Phase::Gone => {
                    let is_new = !self.ended.contains(uid) || !self.taken.contains_key(uid);
                    if (is_new || self.returning.remove(uid)) && !self.room.rejects(manifest, now) {
                        (pod.phase, pod.made) = (Phase::Starting { until: now + STARTS }, wall);
                        self.started_pods.push(manifest.clone());
                    }
                }
                Some(pod) => {
                    // A manifest that is back while its pod ends is one to start, once that has ended.
                    if matches!(pod.phase, Phase::Ending { .. }) && !self.taken.contains_key(uid) {
                        self.returning.insert(uid.clone());
                    }
                    pod.manifest = manifest.clone();
                }
                None if is_taken => self.look_at = self.look_at.min(now + 500),
                None if self.room.rejects(manifest, now) => self.is_untidy = true,
                None => {
                    disk.put(self.root.join("pods").join(uid).join("etc-hosts"), "hosts");
                    let phase = Phase::Starting { until: now + STARTS };
                    let pod = Pod { manifest: manifest.clone(), phase, restarts: 0, made: wall, is_held: false };
                    self.pods.insert(uid.clone(), pod);
                    self.started_pods.push(manifest.clone());
                }
            }
        }
        self.room.rejected.retain(|uid| wanted.contains_key(uid));
        self.taken = wanted;
        self.has_listed = true;
    }

    /// Mirror pods follow what runs; what is left of ended pods goes.
    fn keep_house(&mut self, server: &mut api::Server, node: &str) {
        self.pods.retain(|uid, pod| pod.phase != Phase::Gone || self.taken.contains_key(uid));
        if server.reach != Reach::Up {
            return;
        }
        self.room.send(server, node);
        let owner = server.get("nodes", "", node).map(|node| node["metadata"]["uid"].clone());
        let known: BTreeMap<(String, String), Pod> = self
            .pods
            .values()
            .map(|pod| ((pod.manifest.namespace.clone(), format!("{}-{node}", pod.manifest.name)), pod.clone()))
            .collect();
        let mirrors: Vec<api::Id> = server
            .etcd
            .objects
            .iter()
            .filter(|(key, pod)| key.0 == "pods" && pod["spec"]["nodeName"] == node && is_mirror(pod))
            .map(|(key, _)| key.clone())
            .collect();
        for key in mirrors {
            let mirror = &server.etcd.objects[&key];
            let pod = known.get(&(key.1.clone(), key.2.clone()));
            let hash = &mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"];
            let is_of = pod.is_some_and(|pod| *hash == pod.manifest.uid && pod.phase != Phase::Gone);
            if !is_of || mirror["metadata"]["deletionTimestamp"].is_string() {
                server.delete(&key);
            }
        }
        let Some(owner) = owner else { return };
        for ((namespace, name), pod) in known {
            let is_running = matches!(pod.phase, Phase::Running { .. });
            if !matches!(pod.phase, Phase::Running { .. } | Phase::Starting { .. }) {
                continue;
            }
            let key = api::id("pods", &namespace, &name);
            let status = status(&pod, is_running);
            match server.etcd.objects.get(&key) {
                None => server.put("pods", mirror(&pod, &name, node, &owner, status)),
                Some(mirror) if mirror["status"] != status => {
                    server.change(&key, |mirror| mirror["status"] = status);
                }
                Some(_) => {}
            }
        }
    }
}

/// Whether a pod's containers cannot be made, for want of the file of its gate.
pub(crate) fn is_closed(disk: &Arc<Simulated>, root: &Path, manifest: &Manifest) -> bool {
    let volumes = root.join("pods").join(&manifest.uid).join("volumes/kubernetes.io~empty-dir");
    let disk: &dyn daemonlet::simulation::Disk = &**disk;
    manifest.has_gate && disk.text(volumes.join(GATE).join("gate")).is_err()
}
