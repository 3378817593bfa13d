//! What must hold in every life, whatever happens.
//!
//! Owns the judgement. Each law has one sentence, which is what a violation is called.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::Path;
use std::path::PathBuf;

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Doing;
use daemonlet::simulation::FileKind;
use daemonlet::simulation::Links;
use serde_json::Value;

use super::api::THEIR_TOKEN;
use super::gates::ClosedGates;
use super::kubelet::Manifest;
use super::kubelet::Phase;
use super::moves::Move;
use super::moves::Piece;
use super::node::KUBELET;
use super::node::MANIFESTS;
use super::node::Node;
use super::node::RUN;
use super::node::SPACE;
use super::node::STATE;
use super::node::foreign;
use super::node::volume_path;
use super::node_conditions::WrongConditions;
use super::others::THEIRS;
use super::room::Waiting;

/// How long a daemon that ran may have no manifest while nothing stands in the way, in milliseconds.
const WITHOUT: i64 = 150_000;

/// How long the startup taint may stay when all its daemons run, in milliseconds: refused writes are made again after 300 s.
const TAINTED: i64 = 330_000;
/// Laws that two looks hold.
const NO_GATE: &str = "no gate stays closed";
const CONDITIONS: &str = "the Node's conditions say which daemons are Ready";

/// A law that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) at: i64,
    pub(crate) law: &'static str,
    pub(crate) what: String,
}

/// The laws, and what they remember of a life.
#[derive(Default)]
pub(crate) struct Laws {
    pub(crate) violation: Option<Violation>,
    /// Whether the agent is to be asked how it is.
    pub(crate) wants_status: bool,
    story: Vec<String>,
    trace: DefaultHasher,
    /// Manifests as they were last seen, by file.
    manifests: BTreeMap<String, Manifest>,
    /// UIDs whose manifest was removed, and when.
    removed: BTreeMap<String, i64>,
    /// Since when a daemon that ran has been without a manifest, in time that counts.
    without: BTreeMap<String, i64>,
    /// Whether what was remembered is lost, and API server and folders have not said all of it since: nothing starts without
    /// its data.
    knows_nothing: bool,
    checked_at: i64,
    /// When an agent last ran.
    up_at: i64,
    /// Daemons that have started since they are wanted: what the Node is not Ready for is their first start alone.
    placed: BTreeSet<String>,
    /// UIDs whose manifest the agent removed, and when: it waited for the disk.
    removed_by_agent: BTreeMap<String, i64>,
    /// The newest data that a volume of a daemon had.
    newest: BTreeMap<(String, String), u64>,
    /// What has happened in this boot: manifests that there were at its beginning, by daemon; daemons whose containers
    /// have run; and whether a process of the agent has ended.
    at_boot: BTreeMap<String, String>,
    ran_in_boot: BTreeSet<String>,
    agent_has_ended: bool,
    closed_gates: ClosedGates,
    /// For how long the Node has had the startup taint though every daemon that asks for it runs, in time that counts.
    tainted: i64,
    wrong_conditions: WrongConditions,
    waiting: Waiting,
    /// Instances whose manifest this process of the agent has written, and how many manifests it has removed.
    begun: BTreeSet<String>,
    ends: u64,
    /// How many problems `status` has shown.
    problems: usize,
    /// Whether the agent was restarted in an unchanged world.
    restarted: bool,
    before_restart: Option<BTreeMap<PathBuf, String>>,
}

impl Laws {
    pub(crate) fn violate(&mut self, at: i64, law: &'static str, what: impl Into<String>) {
        self.violation.get_or_insert(Violation { at, law, what: what.into() });
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace.clone().finish()
    }

    fn note(&mut self, node: &Node, what: String) {
        (node.steady, &what).hash(&mut self.trace);
        if std::env::var_os("DAEMONLET_SIM_STORY").is_some() {
            eprintln!("{:>9.3} {what}", node.steady as f64 / 1_000.0);
        }
        self.story.push(what);
    }

    pub(crate) fn moved(&mut self, node: &Node, what: Move) {
        self.note(node, format!("-- {what:?}"));
        self.knows_nothing |= matches!(what, Move::Damage { piece: Piece::Inputs | Piece::Seal, .. });
        if matches!(what, Move::Damage { piece: Piece::Record, .. }) {
            // Of what has no manifest then, nothing tells that it ran here: its start is a first one.
            let here: BTreeSet<&String> = self.manifests.values().map(|manifest| &manifest.daemon).collect();
            self.placed.retain(|daemon| here.contains(daemon));
        }
        if matches!(what, Move::Clock { .. } | Move::ClockWhileDown { .. } | Move::Suspend { .. }) {
            // The agent's times are by the wall clock.
            self.wait_anew(node);
        }
    }

    /// What starts after others waits anew.
    fn wait_anew(&mut self, node: &Node) {
        let waits = |name: &String| {
            node.daemons.iter().enumerate().any(|(index, daemon)| {
                name.ends_with(&format!("/{}", daemon.name))
                    && node.after.get(&index).is_some_and(|after| !after.is_empty())
            })
        };
        self.without.retain(|name, _| !waits(name));
        self.closed_gates.wait_anew();
        self.waiting.wait_anew();
    }

    pub(crate) fn lose_power(&mut self, node: &mut Node, lost_at: i64) {
        self.note(node, "the machine boots".to_owned());
        // What is lost with the power was removed by nobody.
        self.manifests = by_file(node);
        // Nor does anything tell who removed what the agent had no time to miss.
        if node.has_new_disk {
            node.has_new_disk = false;
            self.removed.clear();
            self.removed_by_agent.clear();
        }
        self.at_boot = self.manifests.values().map(|m| (m.daemon.clone(), m.uid.clone())).collect();
        self.ran_in_boot.clear();
        self.wait_anew(node);
        // Nothing was in the agent's hands while the machine was off.
        self.checked_at = node.steady;
        self.agent_has_ended = false;
        self.begun.clear();
        self.ends = 0;
        let by_agent = &self.removed_by_agent;
        let was_missed = |at: i64| self.up_at - at > 1_000 && !node.forgets();
        self.removed.retain(|uid, at| by_agent.contains_key(uid) || was_missed(*at));
        let back = self.manifests.values().find(|m| self.removed_by_agent.get(&m.uid).is_some_and(|at| *at < lost_at));
        if let Some(manifest) = back {
            let what = format!("{} of {}, with the power", manifest.uid, manifest.daemon);
            self.violate(node.steady, "a UID whose manifest was removed never comes back", what);
        }
    }

    pub(crate) fn agent_ended(&mut self, node: &mut Node) {
        // What it did last is its own.
        self.check(node, false);
        if let Some(uid) = self.closed_gates.process_ended(node).cloned() {
            self.violate(node.steady, NO_GATE, format!("{uid}: its file is not there after the agent's end"));
        }
        self.agent_has_ended = true;
        self.begun.clear();
        self.ends = 0;
    }

    /// The agent could not start.
    pub(crate) fn not_started(&mut self, node: &Node, why: &str) {
        self.note(node, format!("the agent does not start: {why}"));
        if node.is_clear() {
            self.violate(node.steady, "nothing on the disk keeps the agent from starting", why);
        }
    }

    /// Everything that holds at any time.
    pub(crate) fn check(&mut self, node: &mut Node, is_up: bool) {
        let log = std::mem::take(&mut node.effects.lock().unwrap().log);
        let mut touched = false;
        // What stands in the agent's way hides nothing from who judges it.
        let exempt = node.disk.set_exempt(true);
        for (doing, path, by_world) in log {
            (doing as u8).hash(&mut self.trace);
            path.hash(&mut self.trace);
            touched |= self.changed(node, doing, &path, by_world);
        }
        node.disk.set_exempt(exempt);
        for manifest in std::mem::take(&mut node.kubelet.started_pods) {
            self.started(node, &manifest);
        }
        for manifest in std::mem::take(&mut node.kubelet.running_pods) {
            self.in_order(node, &manifest);
        }
        self.one_of_each(node);
        self.not_without(node, is_up);
        self.gates_open(node, is_up);
        self.untainted(node);
        self.taint_goes(node, is_up);
        self.conditions_are_true(node, is_up);
        self.room_is_used(node, is_up);
        if touched {
            node.kubelet.poke(node.steady);
        }
        self.checked_at = node.steady;
        if is_up {
            self.up_at = node.steady;
        }
    }

    /// A change on the disk. Gives whether it is one of the manifest folder.
    fn changed(&mut self, node: &mut Node, doing: Doing, path: &Path, by_world: bool) -> bool {
        if !by_world {
            let own = [STATE, RUN, MANIFESTS, KUBELET];
            // Folders above its own the agent may make.
            let is_own = own.iter().any(|place| path.starts_with(place) || Path::new(place).starts_with(path));
            if !is_own || path.file_name().is_some_and(|name| name == "etcd.yaml") {
                self.violate(node.steady, "files of others are untouched", format!("{doing:?} {}", path.display()));
            }
        }
        if !by_world && doing == Doing::Rename && path.file_name().is_some_and(|name| name == "..data") {
            self.renewed(node, path);
        }
        if path.parent() != Some(Path::new(MANIFESTS)) {
            return false;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.starts_with('.') {
            return false;
        }
        if let (Doing::Remove, Some(was)) = (doing, self.manifests.remove(&file)) {
            self.note(node, format!("{} goes, by {}", was.name, if by_world { "others" } else { "the agent" }));
            self.removed.insert(was.uid.clone(), node.steady);
            if !by_world {
                self.removed_by_agent.insert(was.uid.clone(), node.steady);
                self.ends += 1;
                self.ended_by_agent(node, &was);
            }
        }
        let text = (&*node.disk as &dyn Disk).text(path).unwrap_or_default();
        if let Some(manifest) = super::kubelet::parse(&file, &text).filter(|m| !m.daemon.is_empty()) {
            if !by_world && self.removed.contains_key(&manifest.uid) {
                if node.has_older_state() {
                    // An older state folder does not know that it went, and from here on it is there again.
                    self.removed.remove(&manifest.uid);
                    self.removed_by_agent.remove(&manifest.uid);
                } else {
                    let what = format!("{} of {}", manifest.uid, manifest.daemon);
                    self.violate(node.steady, "a UID whose manifest was removed never comes back", what);
                }
            }
            if !by_world && manifest.revision == THEIRS {
                self.violate(node.steady, "what another cluster defines does not run", manifest.name.clone());
            }
            let is_new = self.manifests.values().all(|known| known.uid != manifest.uid);
            if is_new && !by_world && doing == Doing::Rename {
                self.begun.insert(manifest.uid.clone());
            }
            if self.manifests.get(&file) != Some(&manifest) {
                self.note(node, format!("{} comes, revision {}", manifest.name, manifest.revision));
            }
            self.manifests.insert(file, manifest);
        }
        true
    }

    /// The agent gave a volume another version.
    fn renewed(&mut self, node: &Node, path: &Path) {
        let Some(uid) = path.strip_prefix(KUBELET).ok().and_then(|path| path.iter().nth(1)) else { return };
        let manifest = self.manifests.values().find(|manifest| *manifest.uid == *uid).cloned();
        manifest.iter().for_each(|manifest| self.data_of(node, manifest));
    }

    /// The data of an instance is as new as that of any before it.
    fn data_of(&mut self, node: &Node, manifest: &Manifest) {
        let name = manifest.daemon.rsplit('/').next().unwrap_or_default();
        let Some(daemon) = node.daemons.iter().find(|daemon| daemon.name == name) else { return };
        for volume in &manifest.volumes {
            let token = (&*node.disk as &dyn Disk).text(volume_path(&manifest.uid, volume).join("token"));
            if token.is_ok_and(|token| token.starts_with(THEIR_TOKEN)) {
                let what = format!("{volume} of {name}");
                return self.violate(node.steady, "no volume has another cluster's data", what);
            }
        }
        for volume in ["c", "s"] {
            let text = (&*node.disk as &dyn Disk).text(volume_path(&manifest.uid, volume).join("k"));
            let Some(value) = text.ok().and_then(|text| text.strip_prefix("V=")?.parse::<u64>().ok()) else { continue };
            let newest = self.newest.entry((daemon.name.clone(), volume.to_owned())).or_default();
            if value == THEIRS {
                let what = format!("{volume} of {name}");
                return self.violate(node.steady, "no volume has another cluster's data", what);
            }
            if value < *newest && !daemon.data_may_go_back {
                let what = format!("{volume} of {name} from V={newest} to V={value}");
                return self.violate(node.steady, "nothing goes back by itself", what);
            }
            *newest = value;
        }
    }

    /// Nothing ends without evidence.
    fn ended_by_agent(&mut self, node: &mut Node, was: &Manifest) {
        let name = was.daemon.strip_prefix(&format!("{SPACE}/")).unwrap_or_default().to_owned();
        let steady = node.steady;
        let Some(daemon) = node.daemons.iter_mut().find(|daemon| daemon.name == name) else { return };
        if daemon.wanted() != Some(was.revision) {
            return;
        }
        if node.kubelet.room.has_rejected(&was.uid) {
            return;
        }
        if daemon.allowed > 0 {
            daemon.allowed -= 1;
            return;
        }
        let what = format!("{} of {} at revision {}, which is wanted", was.name, was.daemon, was.revision);
        self.violate(steady, "nothing ends without evidence", what);
    }

    /// Containers run after those of the daemons that theirs starts after.
    fn in_order(&mut self, node: &Node, manifest: &Manifest) {
        self.note(node, format!("{} runs", manifest.name));
        if !self.ran_in_boot.insert(manifest.daemon.clone()) || !node.keeps_order() || self.agent_has_ended {
            return;
        }
        // No start but the first of a boot waits, and nothing that has no gate.
        let waits = self.at_boot.get(&manifest.daemon).is_none_or(|uid| manifest.has_gate && *uid == manifest.uid);
        let index = node.daemons.iter().position(|d| manifest.daemon == format!("{SPACE}/{}", d.name));
        let Some(daemon) = index.filter(|_| waits) else { return };
        for before in node.starts_before(daemon) {
            let name = format!("{SPACE}/{}", node.daemons[before].name);
            let is_known = self.at_boot.contains_key(&name) && node.daemons[before].is_settled();
            if is_known && !self.ran_in_boot.contains(&name) {
                let what = format!("{} runs before {name}", manifest.daemon);
                self.violate(node.steady, "a daemon starts after those that it names", what);
            }
        }
    }

    /// The kubelet starts a pod.
    fn started(&mut self, node: &mut Node, manifest: &Manifest) {
        if manifest.daemon.is_empty() {
            return;
        }
        if !manifest.daemon.starts_with(&format!("{SPACE}/")) {
            self.violate(node.steady, "what policy does not allow does not run", manifest.daemon.clone());
        }
        self.note(node, format!("{} starts, revision {}", manifest.name, manifest.revision));
        let disk: &dyn Disk = &*node.disk;
        let missing = manifest.volumes.iter().find(|volume| {
            let folder = volume_path(&manifest.uid, volume);
            let files: &[&str] = match volume.as_str() {
                "c" => &["k", "l"],
                "s" => &["k"],
                _ => &["token", "ca.crt", "namespace"],
            };
            files.iter().any(|file| disk.text(folder.join(file)).map_or(true, |text| text.is_empty()))
        });
        let of = node.daemons.iter().find(|daemon| manifest.daemon.ends_with(&format!("/{}", daemon.name)));
        let is_removed =
            of.and_then(|d| d.data_removed).is_some_and(|at| node.steady - at < 90_000 || !node.is_clear());
        if let Some(volume) = missing.filter(|_| !is_removed) {
            let what = format!("volume {volume} of {} ({})", manifest.name, manifest.daemon);
            self.violate(node.steady, "data is complete before the manifest that names it", what);
        }
        let containers = manifest.whole["spec"]["containers"].as_array().map_or(0, Vec::len);
        if containers != 2 {
            let what = format!("{} of {} has {containers} containers", manifest.name, manifest.daemon);
            self.violate(node.steady, "what is half written does not count", what);
        }
        let name = manifest.daemon.strip_prefix(&format!("{SPACE}/")).unwrap_or_default().to_owned();
        let steady = node.steady;
        let Some(daemon) = node.daemons.iter_mut().find(|daemon| daemon.name == name) else { return };
        daemon.has_run = true;
        self.placed.insert(manifest.daemon.clone());
        if daemon.wanted() == Some(manifest.revision) && std::mem::take(&mut daemon.is_on_new_disk) {
            daemon.highest = manifest.revision;
        }
        if manifest.revision < daemon.highest {
            let what = format!("{} from revision {} to {}", daemon.name, daemon.highest, manifest.revision);
            self.violate(steady, "nothing goes back by itself", what);
        }
        daemon.highest = daemon.highest.max(manifest.revision);
        let (has, may_go_back) = (super::overlays::of(&manifest.whole), daemon.data_may_go_back);
        if let Some(overlay) = &mut daemon.overlay {
            if has.is_some_and(|has| has < overlay.newest_run) && !may_go_back {
                let what = format!("{name} from overlay {} to {has:?}", overlay.newest_run);
                self.violate(steady, "nothing goes back by itself", what);
            }
            overlay.newest_run = overlay.newest_run.max(has.unwrap_or(0));
        }
        self.data_of(node, manifest);
    }

    /// Never two instances of one daemon.
    fn one_of_each(&mut self, node: &Node) {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        let running = node.kubelet.pods.values().filter(|pod| pod.phase != Phase::Gone);
        for manifest in running.map(|pod| &pod.manifest).filter(|manifest| !manifest.daemon.is_empty()) {
            if let Some(other) = seen.insert(&manifest.daemon, &manifest.name) {
                let what = format!("{other} and {} of {}", manifest.name, manifest.daemon);
                return self.violate(node.steady, "never two instances of one daemon", what);
            }
        }
    }

    /// A daemon that is wanted and once ran is never long without a manifest.
    fn not_without(&mut self, node: &Node, is_up: bool) {
        let passed = node.steady - self.checked_at;
        let here: BTreeSet<&str> = self.manifests.values().map(|manifest| manifest.daemon.as_str()).collect();
        let is_heard = node.is_reachable() && node.server.lock().unwrap().refusals.is_empty();
        self.knows_nothing &= !is_heard || !node.is_mounted;
        let mut late = None;
        for daemon in &node.daemons {
            let name = format!("{SPACE}/{}", daemon.name);
            // Without its overlays or its ConfigMap nothing starts.
            let is_whole = daemon.overlay.as_ref().is_none_or(super::overlays::Overlay::is_as_meant);
            let is_whole = is_whole && daemon.has_config;
            // Of what was being replaced when the state folder was lost nothing tells that it ran here.
            let is_forgotten = node.has_older_state() && !here.contains(name.as_str());
            if daemon.wanted().is_none() || daemon.is_on_new_disk || is_forgotten {
                self.placed.remove(&name);
            }
            // A mode that nobody knows changes nothing, and so starts nothing either.
            let may_wait = (node.not_ready.is_some() || daemon.is_mistyped()) && !self.placed.contains(&name);
            let is_wanted = daemon.has_run && daemon.wanted().is_some() && !may_wait;
            if !is_wanted || here.contains(name.as_str()) || !is_whole {
                self.without.remove(&name);
                continue;
            }
            let without = self.without.entry(name.clone()).or_default();
            *without += if is_up && node.is_clear() && !self.knows_nothing { passed } else { 0 };
            if *without > WITHOUT {
                late = Some(name);
            }
        }
        if let Some(name) = late {
            self.violate(node.steady, "a daemon that is wanted and ran is never long without a manifest", name);
        }
    }

    /// No gate stays closed.
    fn gates_open(&mut self, node: &Node, is_up: bool) {
        let passed = if is_up && node.is_clear() { node.steady - self.checked_at } else { 0 };
        let late = self.closed_gates.pass(node, self.manifests.values(), passed).map(|manifest| manifest.name.clone());
        if let Some(name) = late {
            self.violate(node.steady, NO_GATE, name);
        }
    }

    /// After the faults have ended, the node is as it is wanted.
    pub(crate) fn converged(&mut self, node: &Node) {
        if node.kubelet.room.is_unheard {
            // What returned in its stead stays, until somebody retries the other.
            return;
        }
        for daemon in &node.daemons {
            let name = format!("{SPACE}/{}", daemon.name);
            let runs: Vec<_> = node.kubelet.pods.values().filter(|pod| pod.manifest.daemon == name).collect();
            let runs: Vec<_> = runs.into_iter().filter(|pod| matches!(pod.phase, Phase::Running { .. })).collect();
            let is: Vec<u64> = runs.iter().map(|pod| pod.manifest.revision).collect();
            let wanted: Vec<u64> = daemon.wanted().into_iter().collect();
            let stays = daemon.is_to_run() && wanted.is_empty() && is.len() == 1;
            if is != wanted && !stays {
                let what = format!("{name}: revisions {is:?} run, and {wanted:?} are wanted");
                return self.violate(node.steady, "after the faults the node is as it is wanted", what);
            }
            let Some(pod) = runs.first() else { continue };
            let (has, wants) = (super::overlays::of(&pod.manifest.whole), node.overlay_here(daemon));
            if has != wants {
                let what = format!("{name}: overlay {has:?}, and {wants:?} applies here");
                return self.violate(node.steady, "an instance runs with the overlays of its node", what);
            }
            for (volume, value) in [("c", daemon.config), ("s", daemon.secret)] {
                let path = volume_path(&pod.manifest.uid, volume).join("k");
                let text = (&*node.disk as &dyn Disk).text(&path).unwrap_or_default();
                if text != format!("V={value}") {
                    let what = format!("{name}: {volume} is {text:?}, and V={value} is newest");
                    return self.violate(node.steady, "each volume holds the newest data", what);
                }
            }
            if pod.manifest.volumes.iter().any(|volume| volume == "kube-api-access") {
                let path = volume_path(&pod.manifest.uid, "kube-api-access").join("token");
                let token = (&*node.disk as &dyn Disk).text(&path).unwrap_or_default();
                let server = node.server.lock().unwrap();
                if server.token_ends(&token).is_none_or(|at| at < server.steady) {
                    let what = format!("{name}: the token {token:?} is not in force");
                    drop(server);
                    return self.violate(node.steady, "each volume holds the newest data", what);
                }
            }
        }
        let text = (&*node.disk as &dyn Disk).text(format!("{MANIFESTS}/etcd.yaml")).unwrap_or_default();
        if text != foreign() {
            self.violate(node.steady, "files of others are untouched", "etcd.yaml is another");
        }
        if let Some(open) = opened(node) {
            self.violate(node.steady, "no file of the agent stays open to others", open);
        }
        if node.has_taint() {
            self.violate(node.steady, "no startup taint stays", "the Node has it after the faults");
        }
        if let Some(wrong) = node.wrong_conditions().filter(|_| node.clock_forgotten_in != Some(node.booted)) {
            self.violate(node.steady, CONDITIONS, wrong);
        }
        self.wants_status = true;
    }

    /// The startup taint goes when the daemons that ask for it have run in this boot, or have had their time.
    fn untainted(&mut self, node: &Node) {
        if !std::mem::take(&mut node.server.lock().unwrap().is_untainted) {
            return;
        }
        self.note(node, "the Node has the startup taint no longer".to_owned());
        let Some(taint) = &node.taint else { return };
        for (index, daemon) in node.daemons.iter().enumerate() {
            let name = format!("{SPACE}/{}", daemon.name);
            let is_awaited = taint.is_awaited(node, index) && daemon.wanted().is_some();
            if is_awaited && !self.ran_in_boot.contains(&name) {
                let what = format!("{name} has not run in this boot");
                self.violate(node.steady, "no workload before its daemons", what);
            }
        }
    }

    /// The agent has ended because the machine shuts down.
    pub(crate) fn shut_down(&mut self, node: &Node) {
        self.note(node, "the machine shuts down".to_owned());
        if node.owes_taint && !node.has_taint() {
            let what = "the Node has none after the agent's end";
            self.violate(node.steady, "a machine that shuts down has the startup taint at its next boot", what);
        }
    }

    /// The startup taint goes once the daemons that ask for it run.
    fn taint_goes(&mut self, node: &Node, is_up: bool) {
        let Some(taint) = &node.taint else { return };
        let runs = |name: &str| {
            let of = |pod: &&super::kubelet::Pod| pod.manifest.daemon == format!("{SPACE}/{name}");
            node.kubelet.pods.values().filter(of).any(|pod| matches!(pod.phase, Phase::Running { .. }))
        };
        let mut asked = node.daemons.iter().enumerate().filter(|(index, _)| taint.is_asked(*index));
        let is_well = asked
            .all(|(index, daemon)| daemon.wanted().is_none() || node.is_settled_in_boot(index) && runs(&daemon.name));
        // Else what was Ready may seem to have been so before the boot.
        let is_clock_known = node.clock_forgotten_in != Some(node.booted);
        let may_go = is_up && node.is_clear() && node.can_write_taint() && is_clock_known;
        if !is_well || !may_go || !node.has_taint() {
            return self.tainted = 0;
        }
        self.tainted += node.steady - self.checked_at;
        if self.tainted > TAINTED {
            self.violate(node.steady, "no startup taint stays", "every daemon that asks for it runs");
        }
    }

    /// A daemon that has room again starts.
    fn room_is_used(&mut self, node: &Node, is_up: bool) {
        if !is_up {
            return self.waiting.wait_anew();
        }
        let passed = if node.is_clear() && !self.knows_nothing { node.steady - self.checked_at } else { 0 };
        if let Some(daemon) = self.waiting.pass(node, passed) {
            self.violate(node.steady, "a daemon that has room again starts", daemon);
        }
    }

    /// The conditions of the Node follow its daemons.
    fn conditions_are_true(&mut self, node: &Node, is_up: bool) {
        let passed = if is_up { node.steady - self.checked_at } else { 0 };
        if let Some(wrong) = self.wrong_conditions.pass(node, passed) {
            self.violate(node.steady, CONDITIONS, wrong);
        }
    }

    /// What the agent says is what is.
    pub(crate) fn status(&mut self, node: &Node, status: Option<Value>) {
        let Some(status) = status.filter(|_| !node.kubelet.room.is_unheard) else { return };
        let daemons = status["daemons"].as_array().cloned().unwrap_or_default();
        for daemon in &node.daemons {
            let of = daemons.iter().find(|d| d["name"] == *daemon.name && d["namespace"] == SPACE);
            let state = of.and_then(|d| d["state"].as_str()).unwrap_or("not there").to_owned();
            let runs = daemon.is_to_run();
            if runs != (state == "running") {
                let what =
                    format!("{}: {state}, and {}", daemon.name, if runs { "it runs" } else { "it does not run" });
                if runs || !matches!(state.as_str(), "not there" | "none" | "notHere" | "unselected") {
                    self.violate(node.steady, "what status says is what is", format!("{what}; {}", status));
                    return;
                }
            }
        }
        let problems = status["problems"].as_array().cloned().unwrap_or_default();
        self.problems = problems.len();
        // What a process has set aside at its start, it names for as long as it lives.
        let is_left = |problem: &&Value| self.before_restart.is_none() || problem["object"] != "checkpoint";
        if let Some(problem) = problems.iter().find(|problem| is_left(problem)) {
            self.violate(node.steady, "what status says is what is", format!("a problem is left: {problem}"));
        }
    }

    /// What metrics say is what is; `None`: this life has none.
    pub(crate) fn metrics(&mut self, node: &Node, text: Option<String>) {
        let Some(text) = text.filter(|_| !node.kubelet.room.is_unheard) else { return };
        if std::env::var_os("DAEMONLET_SIM_METRICS").is_some() {
            eprintln!("{text}");
        }
        // Each names the node.
        let of_node = format!("node=\"{}\"", node.name);
        let text = text.replace(&format!(",{of_node}"), "").replace(&format!("{{{of_node}}}"), "");
        let samples: BTreeMap<&str, f64> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?))))
            .collect();
        let running = node.daemons.iter().filter(|daemon| daemon.is_to_run()).count();
        let mut expected = vec![
            ("daemonlet_daemons{state=\"running\"}".to_owned(), running as f64),
            ("daemonlet_problems".to_owned(), self.problems as f64),
            ("daemonlet_api_connected".to_owned(), 1.0),
        ];
        for daemon in node.daemons.iter().filter(|daemon| daemon.is_to_run()) {
            let labels = format!("namespace=\"{SPACE}\",daemonset=\"{}\"", daemon.name);
            expected.push((format!("daemonlet_daemon_ready{{{labels}}}"), 1.0));
        }
        let is_other = |(name, value): &&(String, f64)| samples.get(name.as_str()) != Some(value);
        if let Some((name, value)) = expected.iter().find(is_other) {
            let what = format!("{name} is {:?}, and {value} is true", samples.get(name.as_str()));
            return self.violate(node.steady, "what metrics say is what is", what);
        }
        // What an earlier process had begun, or others have removed, is counted by none, or by this one.
        let counted = |name: &str| samples.get(name).copied().unwrap_or(f64::NAN);
        let (starts, ends) = (counted("daemonlet_starts_total"), counted("daemonlet_ends_total"));
        let begun = self.begun.len() as f64;
        if !(starts <= begun && ends >= self.ends as f64) || self.restarted && starts + ends > 0.0 {
            let what = format!("{starts} starts and {ends} ends, and {begun} and {} are true", self.ends);
            return self.violate(node.steady, "what metrics say is what is", what);
        }
        let of = |prefix: &str| samples.keys().find(|name| name.starts_with(prefix)).map(|name| (*name).to_owned());
        // The cluster has no NodeDaemons.
        let is_watch = |name: &str| name.starts_with("daemonlet_api_watch_up") && !name.contains("nodedaemons");
        let is_down = samples.iter().find(|(name, up)| is_watch(name) && **up != 1.0);
        let wrong = ["daemonlet_volume_refresh_blocked", "daemonlet_failed_revision"].into_iter().find_map(of);
        if let Some(name) = wrong.or_else(|| is_down.map(|(name, _)| (*name).to_owned())) {
            self.violate(node.steady, "what metrics say is what is", name);
        }
    }

    pub(crate) fn begin_restart(&mut self, node: &Node) {
        self.before_restart = Some(snapshot(node));
    }

    /// A restart of the agent in an unchanged world writes no manifest and no data.
    pub(crate) fn end_restart(&mut self, node: &Node) {
        let Some(before) = self.before_restart.take() else { return };
        self.restarted = true;
        let after = snapshot(node);
        if let Some(path) = before.keys().chain(after.keys()).find(|path| before.get(*path) != after.get(*path)) {
            let (was, is) = (before.get(path), after.get(path));
            let what = format!("{}: {was:?} became {is:?}", path.display());
            self.violate(node.steady, "a restart in an unchanged world writes nothing", what);
        }
    }
}

/// A manifest of ours that others may read, or that is another user's.
fn opened(node: &Node) -> Option<String> {
    let disk: &dyn Disk = &*node.disk;
    let me = nix::unistd::geteuid().as_raw();
    let is_open = |name: &std::ffi::OsString| {
        let stat = disk.look_at_link(&Path::new(MANIFESTS).join(name));
        stat.is_ok_and(|stat| stat.kind == FileKind::File && (stat.mode != 0o600 || stat.uid != me))
    };
    let names = disk.list(Path::new(MANIFESTS)).unwrap_or_default().into_iter();
    let mut names = names.filter(|name| *name != "etcd.yaml" && !name.as_encoded_bytes().starts_with(b"."));
    names.find(is_open).map(|name| name.to_string_lossy().into_owned())
}

fn by_file(node: &mut Node) -> BTreeMap<String, Manifest> {
    let exempt = node.disk.set_exempt(true);
    let read = node.kubelet.read(&node.disk);
    node.disk.set_exempt(exempt);
    let read = read.into_values().filter(|manifest| !manifest.daemon.is_empty());
    read.map(|manifest| (manifest.file.clone(), manifest)).collect()
}

/// Every file of manifests and pods' data, with what tells that it was written.
fn snapshot(node: &Node) -> BTreeMap<PathBuf, String> {
    let disk: &dyn Disk = &*node.disk;
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::from(MANIFESTS), Path::new(KUBELET).join("pods")];
    while let Some(folder) = folders.pop() {
        for name in disk.list(&folder).unwrap_or_default() {
            let path = folder.join(name);
            let Ok(stat) = disk.stat(&DiskHandle::Start, &path, Links::Refuse) else { continue };
            // Tokens are renewed when their time has come.
            if path.ends_with("kube-api-access") {
                continue;
            }
            if disk.open_folder(&DiskHandle::Start, &path, Links::Refuse).is_ok() {
                folders.push(path);
            } else {
                files.insert(path, format!("{:?}", stat.stamp));
            }
        }
    }
    files
}
