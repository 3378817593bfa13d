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
use daemonlet::simulation::FileKind;
use daemonlet::simulation::Links;

use super::gates::ClosedGates;
use super::kubelet::Manifest;
use super::kubelet::Phase;
use super::kubelet::Pod;
use super::moves::Fault;
use super::moves::Move;
use super::moves::Piece;
use super::node::KUBELET;
use super::node::MANIFESTS;
use super::node::Node;
use super::node_conditions::WrongConditions;
use super::room::Waiting;

mod bridged;
mod changes;
mod converged;
mod reports;
mod taint;
mod without;

/// How long a daemon that ran may have no manifest while nothing stands in the way, in milliseconds.
const WITHOUT: i64 = 150_000;

/// After so long what could not be read has been read, in milliseconds.
const LOOKS_AGAIN: i64 = 10_000;
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
    /// For how long API server and folders have yet to say what was remembered and is lost, in time that counts: nothing starts
    /// without its data.
    unknown_for: i64,
    checked_at: i64,
    /// When an agent last ran, and when it was last that none could read the manifests.
    up_at: i64,
    blind_at: i64,
    /// Daemons that have started since they are wanted: what the Node is not Ready for is their first start alone.
    placed: BTreeSet<String>,
    /// UIDs whose manifest the agent removed, and when: it waited for the disk.
    removed_by_agent: BTreeMap<String, i64>,
    /// Instances that have started: at a boot, those of a surge start both.
    started_ever: BTreeSet<String>,
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
    /// For how long of a daemon in mode `bootstrap` nothing has run, or two have, in time that counts.
    unbridged: BTreeMap<String, (i64, i64)>,
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
        if without::is_forgotten_by(what) {
            self.unknown_for = without::SAYS_ALL;
        }
        if matches!(what, Move::Damage { piece: Piece::Record, .. }) {
            // Of what has no manifest then, nothing shows that it ran here: its start is a first one.
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
        // What is lost with the power was removed by no process.
        self.manifests = by_file(node);
        // Nor does anything say who removed what the agent had no time to miss.
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
        let has_looked = self.up_at - self.blind_at > LOOKS_AGAIN;
        let was_missed = |at: i64| self.up_at - at > 1_000 && !node.forgets() && has_looked;
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
        self.returns(node, is_up);
        self.one_is_bridged(node, is_up);
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
        if node.faults.contains(&Fault::ManifestsReadOnly) || node.faults.contains(&Fault::ManifestsUnreadable) {
            self.blind_at = node.steady;
        }
    }

    /// Never two instances of one daemon.
    fn one_of_each(&mut self, node: &Node) {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        let mut beside: BTreeSet<&str> = BTreeSet::new();
        // As with the DaemonSet controller, a surge does not wait for the end of one that never became available.
        let is_ending = |pod: &Pod| matches!(pod.phase, Phase::Ending { .. }) && node.surges(&pod.manifest.daemon);
        let running = node.kubelet.pods.values().filter(|pod| pod.phase != Phase::Gone && !is_ending(pod));
        for manifest in running.map(|pod| &pod.manifest).filter(|manifest| !manifest.daemon.is_empty()) {
            if let Some(other) = seen.insert(&manifest.daemon, &manifest.name)
                && !(node.surges(&manifest.daemon) && beside.insert(&manifest.daemon))
            {
                let what = format!("{other} and {} of {}", manifest.name, manifest.daemon);
                return self.violate(node.steady, "never two instances of one daemon", what);
            }
        }
    }

    /// A revision that fails does not stay where another was good.
    fn returns(&mut self, node: &mut Node, is_up: bool) {
        // The simulated runtime does not say that a container ends again and again.
        let is_reported = node.is_reachable() && node.server.lock().unwrap().refusals.is_empty();
        let passed = if is_up && node.is_clear() && is_reported { node.steady - self.checked_at } else { 0 };
        if let Some(daemon) = node.pass_bad_revisions(passed) {
            self.violate(node.steady, "a revision that fails does not stay", daemon);
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

    /// A daemon that has room again starts.
    fn room_is_used(&mut self, node: &Node, is_up: bool) {
        if !is_up {
            return self.waiting.wait_anew();
        }
        let passed = if node.is_clear() && self.unknown_for <= 0 { node.steady - self.checked_at } else { 0 };
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

/// Every file of manifests and pods' data, with what shows that it was written.
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
