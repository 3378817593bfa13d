//! One node: its disk, its kubelet, its API server, its clocks, and what the daemons of this life are to be.
//!
//! Owns the truth that a life is judged by, and what each move does to the node. Must not judge.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Mutex;

use base64::Engine;
use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Doing;
use daemonlet::simulation::Links;
use daemonlet::simulation::Owner;
use daemonlet::simulation::PowerLossKeeps;
use daemonlet::simulation::Simulated;
use nix::errno::Errno;
use serde_json::Value;
use serde_json::json;

use super::api;
use super::api::Reach;
use super::api::Refusal;
use super::kubelet::Kubelet;
use super::kubelet::RuntimeState;
use super::moves::Damage;
use super::moves::Draw;
use super::moves::Fault;
use super::moves::Home;
use super::moves::Hurt;
use super::moves::Life;
use super::moves::Move;
use super::moves::NotReady;
use super::moves::OwnFile;
use super::moves::Piece;
use super::moves::RESOURCES;
use super::overlays::Overlay;
use super::startup_taint::StartupTaint;

pub(crate) const SPACE: &str = "kube-system";
pub(crate) const STATE: &str = "/var/lib/daemonlet";
pub(crate) const RUN: &str = "/run/daemonlet";
pub(crate) const MANIFESTS: &str = "/etc/kubernetes/manifests";
pub(crate) const KUBELET: &str = "/var/lib/kubelet";
pub(crate) const FOLDER: &str = "/etc/daemonlet/daemonsets.d";
const LATE_MOUNT: &str = "/mnt/late";
const LATE: &str = "/mnt/late/daemonsets.d";
/// The file system that is mounted late.
const LATE_SYSTEM: u64 = 7;
/// Where the Namespace is whose UID says which cluster answers.
const NAMESPACES: &str = "namespaces";
/// What the sealed secrets are in.
const SEALED: &str = "secrets.json";
/// How long no agent runs after a file of its state was damaged, in milliseconds.
const BACK: i64 = 1_000;
/// Faults with which nothing new is remembered.
const STATE_FAULTS: [Fault; 3] = [Fault::StateFull, Fault::StateReadOnly, Fault::StateBroken];
/// 2026-01-01.
const BEGIN: i64 = 1_767_225_600_000;

/// What the label of a DaemonSet in the API says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Static,
    None,
    /// An unknown value: nothing changes.
    Mistyped,
}

/// What is true of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) home: Home,
    /// The revision of the API's DaemonSet.
    pub(crate) api: Option<u64>,
    pub(crate) label: Label,
    /// What was in force when the label was mistyped.
    held: Option<u64>,
    /// The revision that its file defines.
    pub(crate) file: Option<u64>,
    /// Whether its file counts though the API's DaemonSet was deleted.
    file_counts: bool,
    /// What its ConfigMap and its Secret hold.
    pub(crate) config: u64,
    pub(crate) secret: u64,
    pub(crate) has_config: bool,
    pub(crate) is_hurt: bool,
    has_second: bool,
    /// So many ends of an instance are explained beyond what the revision explains.
    pub(crate) allowed: u32,
    /// What tells of its newest data is lost or cannot be kept.
    pub(crate) data_may_go_back: bool,
    /// When somebody removed its data: until it is noticed, that is missing.
    pub(crate) data_removed: Option<i64>,
    /// Whether it has run in this life.
    pub(crate) has_run: bool,
    pub(crate) highest: u64,
    /// Whether nothing is remembered of it, so that what the API server defines may follow another of its folder.
    pub(crate) is_on_new_disk: bool,
    pub(crate) overlay: Option<Overlay>,
    /// Whether it still ran when its file was gone and what was remembered was lost: the next agent does not know that
    /// there was one, and only a person ends it.
    pub(crate) origin_is_lost: bool,
}

impl Daemon {
    /// The revision that is to run; `None`: nothing of it.
    pub(crate) fn wanted(&self) -> Option<u64> {
        let of_api = match self.label {
            Label::Static => self.api,
            Label::Mistyped => self.api.and(self.held),
            Label::None => None,
        };
        match self.home {
            Home::Api => of_api,
            Home::Folder => self.file,
            Home::Both => of_api.or(self.file.filter(|_| self.file_counts && self.api.is_none())),
        }
    }

    /// Whether nothing but its record tells that its file does not count.
    fn is_kept_away(&self) -> bool {
        self.home == Home::Both && self.api.is_none() && !self.file_counts && self.file.is_some()
    }

    /// Whether an instance of it is there in the end.
    pub(crate) fn is_to_run(&self) -> bool {
        self.wanted().is_some() || self.origin_is_lost
    }

    /// Whether it runs, nothing of it is in doubt, and the revision that is wanted has run.
    pub(crate) fn is_settled(&self) -> bool {
        self.wanted() == Some(self.highest) && self.has_run && !self.is_hurt && !self.is_mistyped()
    }

    pub(crate) fn is_mistyped(&self) -> bool {
        self.label == Label::Mistyped
    }

    pub(crate) fn in_folder(&self) -> bool {
        self.home != Home::Api
    }

    pub(crate) fn in_api(&self) -> bool {
        self.home != Home::Folder
    }
}

/// What ends the process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM, and a start after so long.
    Stop {
        back: i64,
    },
    /// SIGKILL.
    Kill {
        back: i64,
    },
    PowerLoss {
        kept: u8,
        reach: Reach,
    },
    /// SIGTERM, and the machine boots again.
    Shutdown {
        reach: Reach,
    },
}

/// Something that ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heal {
    File(u8),
    SecondFile(u8),
    Mount,
    Reach,
    Refusal(u8),
    Cluster,
    Runtime,
    Disk(Fault),
    State,
    Config(u8),
    FinishWriting(u8),
    Backup,
    Etc,
    StockPod(u8),
    Seal,
    TaintPolicy,
    Overlay(u8),
    Occupant(u8),
    Ready,
    Blur(u8),
}

/// What is told of the disk, and when the process is to die of it.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) log: Vec<(Doing, PathBuf, bool)>,
    /// Changes that the agent may still make before `end`.
    pub(crate) left: Option<(u64, End)>,
    pub(crate) ended: Option<End>,
    by_world: bool,
}

/// Ends the process in the middle of an effect.
pub(crate) struct Killed;

/// The node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: Arc<Simulated>,
    pub(crate) server: api::Shared,
    pub(crate) kubelet: Kubelet,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) effects: Arc<Mutex<Effects>>,
    pub(crate) poke: Arc<tokio::sync::Notify>,
    /// Milliseconds since the life began, which nobody sets.
    pub(crate) steady: i64,
    /// The wall clock's distance from it, and the wall clock.
    pub(crate) wall: Rc<Cell<i64>>,
    pub(crate) clock: Rc<Cell<i64>>,
    pub(crate) booted: i64,
    /// How long the machine has been suspended in this boot, which no steady clock shows, and in all.
    pub(crate) suspended: Rc<Cell<i64>>,
    suspended_in_all: i64,
    heals: Vec<(i64, Heal)>,
    pub(crate) draw: Draw,
    revisions: u64,
    pub(crate) other: Option<api::Etcd>,
    pub(crate) end: Option<End>,
    /// A copy of the state folder, to come back as a backup, and the name that the node had.
    backup: Option<(String, BTreeMap<PathBuf, Vec<u8>>)>,
    pub(crate) is_mounted: bool,
    faults: Vec<Fault>,
    pub(crate) is_state_open: bool,
    /// The boot in which the state folder became an older one.
    pub(crate) restored_in: Option<i64>,
    /// Whether the folders below `/etc` are gone.
    pub(crate) is_wiped: bool,
    /// Whether the disk below `/var` is another one when the machine boots, or boots for the first time with it.
    pub(crate) has_new_disk: bool,
    /// The same for the disk of the kubelet's root alone.
    pub(crate) has_new_root: bool,
    /// Which daemons start after which others, and since when that holds.
    pub(crate) after: BTreeMap<usize, BTreeSet<usize>>,
    pub(crate) ordered_at: i64,
    /// Whether Secrets are sealed, and whether that can be done now.
    pub(crate) is_sealed: bool,
    pub(crate) seals: bool,
    /// Whether what seals can be run all the same, and says no.
    pub(crate) refuses_to_seal: bool,
    pub(crate) has_metrics: bool,
    /// When somebody last set the clock, and the latest time that it showed before it was set back.
    pub(crate) clock_set_at: i64,
    /// The boot in which it was forgotten that the clock was set.
    pub(crate) clock_forgotten_in: Option<i64>,
    /// When a record was last damaged.
    damaged_at: i64,
    /// When the inputs that the agent remembers were last damaged.
    inputs_damaged_at: Option<i64>,
    latest: i64,
    /// Whether the agent has a systemd unit, which opens gates when it ends; and whether the list of those is lost.
    pub(crate) has_unit: bool,
    pub(crate) forgets_gates: bool,
    /// `None`: agents do not write it.
    pub(crate) taint: Option<StartupTaint>,
    /// Daemons that name a condition of the Node.
    pub(crate) conditioned: BTreeSet<usize>,
    /// Whether each daemon has a host port.
    pub(crate) has_ports: bool,
    /// Whether the Node has the label that overlays are for.
    pub(crate) is_big: bool,
    /// Why the Node is not Ready.
    pub(crate) not_ready: Option<NotReady>,
    pub(crate) is_shutting_down: bool,
    /// Whether the agent that ends with the machine is to leave the startup taint.
    pub(crate) owes_taint: bool,
}

impl Node {
    pub(crate) fn new(life: &Life) -> Self {
        let disk = Simulated::shared();
        disk.set_one_journal(life.one_journal);
        let server: api::Shared = Arc::default();
        let kubelet = Kubelet::new(Path::new(MANIFESTS), Path::new(KUBELET));
        let mut after: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (daemon, before) in &life.after {
            after.entry(usize::from(*daemon)).or_default().insert(usize::from(*before));
        }
        let mut node = Self {
            name: "n1".to_owned(),
            disk,
            server,
            kubelet,
            daemons: Vec::new(),
            effects: Arc::default(),
            poke: Arc::default(),
            steady: 0,
            wall: Rc::new(Cell::new(BEGIN)),
            clock: Rc::new(Cell::new(BEGIN)),
            booted: 0,
            suspended: Rc::default(),
            suspended_in_all: 0,
            heals: Vec::new(),
            draw: Draw::new(life.seed ^ 0x5eed),
            revisions: 0,
            other: None,
            end: None,
            backup: None,
            is_mounted: true,
            faults: Vec::new(),
            is_state_open: false,
            restored_in: None,
            is_wiped: false,
            has_new_disk: false,
            has_new_root: false,
            after,
            ordered_at: -1,
            clock_set_at: -1,
            clock_forgotten_in: None,
            damaged_at: -60_000,
            inputs_damaged_at: None,
            latest: 0,
            is_sealed: life.sealed,
            seals: true,
            refuses_to_seal: false,
            has_metrics: life.seed.is_multiple_of(4),
            has_unit: !life.seed.is_multiple_of(3),
            forgets_gates: false,
            taint: life.tainted.as_deref().map(StartupTaint::new),
            has_ports: life.crowded,
            conditioned: super::node_conditions::of(&life.conditioned),
            is_big: false,
            not_ready: None,
            is_shutting_down: false,
            owes_taint: false,
        };
        node.lay_out();
        node.server.lock().unwrap().poke = Some(Arc::clone(&node.poke));
        node.settle_cluster();
        for (index, home) in life.daemons.iter().enumerate() {
            node.daemons.push(Daemon {
                name: format!("d{index}"),
                home: *home,
                api: None,
                label: Label::Static,
                held: None,
                file: None,
                file_counts: true,
                config: 1,
                secret: 1,
                has_config: true,
                is_hurt: false,
                has_second: false,
                allowed: 0,
                data_may_go_back: false,
                data_removed: None,
                has_run: false,
                highest: 0,
                is_on_new_disk: false,
                overlay: life.overlaid.contains(&(index as u8)).then(Overlay::default),
                origin_is_lost: false,
            });
            if node.daemons[index].in_folder() {
                node.write_objects(index);
                node.write_file(index);
            }
            if node.daemons[index].in_api() {
                node.put_objects(index);
                node.apply(index);
            }
        }
        node
    }

    /// Folders, what the kernel shows, and files of others.
    fn lay_out(&mut self) {
        let disk = &self.disk;
        for folder in ["/run", "/var/lib", KUBELET, MANIFESTS, FOLDER, LATE_MOUNT, "/tmp"] {
            disk.make_folder(Path::new(folder));
        }
        disk.mount(Path::new(LATE_MOUNT), LATE_SYSTEM);
        disk.make_folder(Path::new(LATE));
        disk.put_device(Path::new("/dev/null"));
        disk.put("/proc/sys/kernel/random/boot_id", format!("{:032x}\n", 0));
        disk.put("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda rw\n");
        disk.put("/proc/1/stat", format!("1 (init) {}0 0", "S 1 ".repeat(10)));
        disk.put(format!("{MANIFESTS}/etcd.yaml"), foreign());
        disk.put(format!("{FOLDER}/README.txt"), "for people");
        disk.set_volatile("/run");
        let (effects, poke) = (Arc::clone(&self.effects), Arc::clone(&self.poke));
        disk.observe(Some(Arc::new(move |doing, path: &Path| {
            let mut effects = effects.lock().unwrap();
            let by_world = effects.by_world;
            if doing != Doing::Sync {
                effects.log.push((doing, path.to_owned(), by_world));
                if std::env::var_os("DAEMONLET_SIM_DISK").is_some() && !by_world {
                    eprintln!("          {doing} {}", path.display());
                }
                poke.notify_one();
            }
            if by_world {
                return;
            }
            if let Some((left, end)) = effects.left {
                effects.left = (left > 0).then(|| (left - 1, end));
                if left == 0 {
                    effects.ended = Some(end);
                    drop(effects);
                    std::panic::panic_any(Killed);
                }
            }
        })));
    }

    fn settle_cluster(&mut self) {
        let mut server = self.server.lock().unwrap();
        let named = |kind: &str, namespace: &str, name: &str| {
            let mut object = json!({"kind": kind, "metadata": {"name": name}});
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            object
        };
        for namespace in [SPACE, super::others::GUESTS, super::others::OUTSIDERS] {
            server.put("namespaces", named("Namespace", "", namespace));
        }
        server.put("serviceaccounts", named("ServiceAccount", SPACE, "default"));
        let mut ca = named("ConfigMap", SPACE, "kube-root-ca.crt");
        ca["data"] = json!({"ca.crt": "CA"});
        server.put("configmaps", ca);
        let mut service = named("Service", "default", "kubernetes");
        service["spec"] = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]});
        server.put("services", service);
        drop(server);
        self.put_node();
    }

    pub(crate) fn put_node(&self) {
        let labels = json!({"kubernetes.io/hostname": self.name, "size": if self.is_big { "big" } else { "small" }});
        let mut node = json!({"kind": "Node", "metadata": {"name": self.name, "labels": labels}});
        if self.taint.is_some() {
            // The kubelet's --register-with-taints.
            node["spec"] = json!({"taints": [{"key": super::startup_taint::KEY, "effect": "NoSchedule"}]});
        }
        node["status"] = json!({"nodeInfo": {"kubeletVersion": "v1.36.2"},
            "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.lock().unwrap().put("nodes", node);
        if self.not_ready.is_some() {
            self.write_condition();
        }
    }

    /// It is `steady` now.
    pub(crate) fn set_time(&mut self, steady: i64) {
        self.steady = steady;
        self.clock.set(steady + self.wall.get());
    }

    /// Does something to the disk that the agent does not.
    pub(crate) fn as_world<T>(&self, act: impl FnOnce(&Arc<Simulated>) -> T) -> T {
        let before = std::mem::replace(&mut self.effects.lock().unwrap().by_world, true);
        let exempt = self.disk.set_exempt(true);
        let done = act(&self.disk);
        self.disk.set_exempt(exempt);
        self.effects.lock().unwrap().by_world = before;
        done
    }

    /// When something ends by itself next.
    pub(crate) fn due(&self) -> i64 {
        self.heals.iter().map(|(at, _)| *at).fold(self.kubelet.due(), i64::min)
    }

    /// Does what is due by now.
    pub(crate) fn step(&mut self) {
        let now = self.steady;
        while let Some(index) = self.heals.iter().position(|(at, _)| *at <= now) {
            let (_, heal) = self.heals.swap_remove(index);
            self.heal(heal);
        }
        self.effects.lock().unwrap().by_world = true;
        let exempt = self.disk.set_exempt(true);
        let mut server = self.server.lock().unwrap();
        (server.now_millis, server.steady) = (now + self.wall.get(), now + self.suspended_in_all);
        self.kubelet.step(now, &self.disk, &mut server, &self.name);
        drop(server);
        self.disk.set_exempt(exempt);
        self.effects.lock().unwrap().by_world = false;
    }

    /// All faults end now.
    pub(crate) fn heal_all(&mut self) {
        for (_, heal) in std::mem::take(&mut self.heals) {
            self.heal(heal);
        }
        self.effects.lock().unwrap().left = None;
        for index in 0..self.daemons.len() {
            // What somebody mistyped, he corrects.
            if self.daemons[index].label == Label::Mistyped {
                self.label(index, Label::Static);
            }
        }
    }

    /// Whether nothing stands in the way of the agent's work.
    pub(crate) fn is_clear(&self) -> bool {
        self.faults.is_empty()
            && (self.seals || !self.is_sealed)
            && self.kubelet.runtime == RuntimeState::Answers
            && !self.is_state_open
    }

    pub(crate) fn is_reachable(&self) -> bool {
        self.server.lock().unwrap().reach == Reach::Up && self.other.is_none()
    }

    pub(crate) fn heal_after(&mut self, seconds: u16, heal: Heal) {
        self.heals.push((self.steady + i64::from(seconds) * 1_000, heal));
    }

    fn heal(&mut self, heal: Heal) {
        match heal {
            Heal::File(daemon) => self.restore_file(usize::from(daemon)),
            Heal::SecondFile(daemon) => {
                self.daemons[usize::from(daemon)].has_second = false;
                self.remove_for_good(Path::new(&second_file(daemon)));
            }
            Heal::Mount => {
                self.is_mounted = true;
                self.as_world(|disk| disk.mount(Path::new(LATE_MOUNT), LATE_SYSTEM));
            }
            Heal::Reach => self.server.lock().unwrap().set_reach(Reach::Up),
            Heal::Refusal(resource) => {
                self.server.lock().unwrap().refusals.remove(RESOURCES[usize::from(resource)]);
            }
            Heal::Cluster => self.swap_cluster_back(),
            Heal::Runtime => self.kubelet.runtime = RuntimeState::Answers,
            Heal::Disk(fault) => {
                self.faults.retain(|other| *other != fault);
                for (_, path, _) in places(fault) {
                    self.disk.mend(Path::new(path));
                }
            }
            Heal::State => {
                self.is_state_open = false;
                self.chmod_state(0o700);
            }
            Heal::Backup => {
                self.forget_data();
                if !self.is_reachable() {
                    // What it said since is not known: what it said before counts until it is heard again.
                    self.daemons.iter_mut().filter(|daemon| daemon.in_api()).for_each(|daemon| daemon.allowed += 1);
                }
                // Which UIDs were used since, and what a file defined that says nothing now, is not known either.
                self.restored_in = Some(self.booted);
                let fileless = self.daemons.iter_mut().filter(|daemon| daemon.file.is_none());
                fileless.for_each(|daemon| (daemon.highest, daemon.data_may_go_back) = (0, true));
                self.forget_clock();
                let (name, backup) = self.backup.take().unwrap_or_default();
                if name != self.name {
                    // Of what was replaced since for the node's name it does not say so: that is replaced once more.
                    self.daemons.iter_mut().for_each(|daemon| daemon.allowed += 1);
                }
                let inputs = backup.get(&Path::new(STATE).join("inputs.json"));
                let inputs = String::from_utf8_lossy(inputs.map_or(&[], Vec::as_slice)).into_owned();
                for daemon in 0..self.daemons.len() {
                    // It may say again where a daemon came from.
                    let is_known = inputs.contains(&*self.path(daemon).to_string_lossy());
                    self.daemons[daemon].origin_is_lost &= !is_known;
                }
                for (path, data) in backup {
                    self.as_world(|disk| super::machine::remove_tree(disk, &path));
                    self.as_world(|disk| disk.put(path, data));
                }
                self.end = Some(End::Kill { back: 1_000 });
            }
            Heal::Etc => self.restore_etc(),
            Heal::Seal => self.seals = true,
            Heal::TaintPolicy => self.server.lock().unwrap().has_taint_policy = true,
            Heal::Ready => self.be_ready(),
            Heal::Blur(daemon) => drop(self.kubelet.blurred.remove(&self.full_name(usize::from(daemon)))),
            Heal::Overlay(daemon) => self.heal_overlay(usize::from(daemon)),
            Heal::StockPod(daemon) => self.end_stock_pod(daemon),
            Heal::Occupant(daemon) => self.vacate(daemon),
            Heal::Config(daemon) => {
                self.daemons[usize::from(daemon)].has_config = true;
                if self.other.is_none() {
                    self.put_objects(usize::from(daemon));
                }
            }
            Heal::FinishWriting(daemon) => {
                let daemon = usize::from(daemon);
                if let Some(revision) = self.daemons[daemon].file {
                    let text = self.file_text(daemon, revision);
                    let path = self.path(daemon);
                    if self.can_write(daemon) {
                        self.as_world(|disk| overwrite(disk, &path, text.as_bytes()));
                    }
                }
            }
        }
    }

    fn swap_cluster_back(&mut self) {
        if let Some(etcd) = self.other.take() {
            let mut server = self.server.lock().unwrap();
            server.etcd = etcd;
            server.is_other = false;
            server.forget();
            drop(server);
            self.write_condition();
        }
        for daemon in 0..self.daemons.len() {
            if self.daemons[daemon].in_api() && self.daemons[daemon].has_config {
                self.put_objects(daemon);
            }
        }
    }

    /// The machine begins to shut down, and the agent is to leave the startup taint, or need not.
    pub(crate) fn begin_shutdown(&mut self, owes_taint: bool) {
        (self.is_shutting_down, self.owes_taint) = (true, owes_taint);
        // What was to end the process has no time to.
        self.effects.lock().unwrap().left = None;
    }

    /// At the boot after a shutdown, volumes have no Secrets where these are sealed, and what seals may come later than the
    /// agent. What needs a Secret that nobody knows waits for it then.
    pub(crate) fn lose_secrets(&mut self) {
        if !self.is_sealed {
            return;
        }
        self.allow_anew();
        if self.draw.below(3) > 0 {
            return;
        }
        (self.seals, self.refuses_to_seal) = (false, self.draw.below(2) == 0);
        self.daemons.iter_mut().for_each(|daemon| daemon.allowed += 1);
        let seconds = 20 + self.draw.one_of(&[0, 2, 8, 70]);
        self.heal_after(seconds, Heal::Seal);
    }

    /// The machine has lost its power and boots.
    pub(crate) fn lose_power(&mut self, kept: u8, reach: Reach) {
        let number = self.draw.next();
        self.as_world(|disk| {
            disk.crash(match kept {
                0 => PowerLossKeeps::Nothing,
                1 => PowerLossKeeps::Names,
                2 => PowerLossKeeps::Torn(number),
                _ => PowerLossKeeps::All,
            });
        });
        self.kubelet.crash();
        self.as_world(|disk| disk.unlink(&DiskHandle::Start, Path::new(super::kubelet::PROCESS)).is_ok());
        self.take_disk();
        // An end that was to come has come.
        self.effects.lock().unwrap().left = None;
        self.set_time(self.steady + 20_000);
        self.booted = self.steady;
        self.suspended.set(0);
        self.forgets_gates = false;
        (self.is_shutting_down, self.owes_taint) = (false, false);
        self.kubelet.booted = self.steady;
        self.kubelet.forget_foreign();
        self.kubelet.look_at = self.steady + 300;
        self.is_mounted = false;
        let late = self.draw.one_of(&[0, 1, 4, 40, 400]);
        self.heal_after(late, Heal::Mount);
        if reach != Reach::Up {
            self.server.lock().unwrap().set_reach(reach);
            self.heal_after(90, Heal::Reach);
        }
        self.server.lock().unwrap().break_connections();
    }

    /// One move, which was to happen at `at`; what cannot happen now does not.
    pub(crate) fn act(&mut self, at: i64, what: Move) {
        let ends = matches!(
            what,
            Move::Kill { .. }
                | Move::KillAt { .. }
                | Move::RestartAgent
                | Move::PowerLoss { .. }
                | Move::Shutdown { .. }
                | Move::Rename { .. }
                | Move::Wipe { .. }
                | Move::OtherVersion { .. }
                | Move::ClockWhileDown { .. }
        );
        if ends && self.is_state_open {
            // What was heard meanwhile goes with the process.
            self.forget_data();
        }
        let count = self.daemons.len();
        let index = |daemon: u8| usize::from(daemon) % count;
        match what {
            Move::Apply { daemon } => {
                let daemon = index(daemon);
                // One that is new is not heard of while DaemonSets are refused.
                let is_heard = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
                if self.daemons[daemon].in_api()
                    && self.is_reachable()
                    && (is_heard || self.daemons[daemon].api.is_some())
                {
                    self.apply(daemon);
                }
            }
            Move::Delete { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].in_api() && self.is_reachable() {
                    let key = api::id("daemonsets", SPACE, &self.daemons[daemon].name);
                    self.server.lock().unwrap().delete(&key);
                    self.daemons[daemon].api = None;
                    self.daemons[daemon].file_counts = false;
                }
            }
            Move::Label { daemon, is_static } => {
                let label = if is_static { Label::Static } else { Label::None };
                self.label(index(daemon), label);
            }
            Move::MistypeLabel { daemon } => self.label(index(daemon), Label::Mistyped),
            Move::DeletePod { daemon, force } => self.delete_pod(index(daemon), force),
            Move::ChangeConfigMap { daemon } => {
                let daemon = index(daemon);
                self.daemons[daemon].config += 1;
                self.carry_objects(daemon, |daemon| daemon.config -= 1);
            }
            Move::ChangeSecret { daemon } => {
                let daemon = index(daemon);
                self.daemons[daemon].secret += 1;
                self.carry_objects(daemon, |daemon| daemon.secret -= 1);
            }
            Move::DropConfigMap { daemon, seconds } => {
                let daemon = index(daemon);
                if self.daemons[daemon].in_api() && self.is_reachable() && self.daemons[daemon].has_config {
                    let key = api::id("configmaps", SPACE, &format!("c-{}", self.daemons[daemon].name));
                    self.server.lock().unwrap().delete(&key);
                    self.daemons[daemon].has_config = false;
                    // The folder's counts again.
                    self.daemons[daemon].data_may_go_back |= self.daemons[daemon].home == Home::Both;
                    self.heal_after(seconds, Heal::Config(daemon as u8));
                }
            }
            Move::RecreateNode => {
                if self.is_reachable() {
                    self.server.lock().unwrap().delete(&api::id("nodes", "", &self.name));
                    self.put_node();
                    // What is being replaced starts with the overlays that it had, until the new Node has its labels.
                    for daemon in 0..count {
                        let is_between = self.daemons[daemon].overlay.is_some() && self.manifest_of(daemon).is_none();
                        self.daemons[daemon].allowed += u32::from(is_between);
                    }
                }
            }
            Move::Write { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].in_folder() && self.can_write(daemon) {
                    self.write_file(daemon);
                }
            }
            Move::WriteSlowly { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].in_folder() && self.can_write(daemon) && self.daemons[daemon].file.is_some() {
                    self.write_half(daemon);
                }
            }
            Move::WriteObjects { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].home == Home::Folder && self.can_write(daemon) {
                    self.daemons[daemon].config += 1;
                    self.daemons[daemon].secret += 1;
                    self.write_objects(daemon);
                }
            }
            Move::HurtFile { daemon, hurt, seconds } => {
                let daemon = index(daemon);
                if self.daemons[daemon].file.is_some() && self.can_write(daemon) {
                    self.hurt(daemon, hurt);
                    // What is being replaced comes back as it was, and is replaced once the file can be read.
                    let is_away = self.manifest_of(daemon).is_none();
                    self.daemons[daemon].allowed += u32::from(is_away);
                    self.heal_after(seconds, Heal::File(daemon as u8));
                }
            }
            Move::RemoveFile { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].file.is_some() && self.can_write(daemon) && !self.daemons[daemon].has_second {
                    self.remove_for_good(&self.path(daemon));
                    self.daemons[daemon].file = None;
                    self.daemons[daemon].origin_is_lost = self.lacks_inputs();
                }
            }
            Move::Mask { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].file.is_some() && self.can_write(daemon) && !self.daemons[daemon].has_second {
                    let path = self.path(daemon);
                    self.as_world(|disk| link(disk, &path, "/dev/null"));
                    self.daemons[daemon].file = None;
                    self.daemons[daemon].origin_is_lost = false;
                }
            }
            Move::SecondFile { daemon, seconds } => {
                let daemon = index(daemon);
                let truth = &self.daemons[daemon];
                if truth.home == Home::Folder && truth.file.is_some() && truth.has_run && !truth.has_second {
                    let text = self.file_text(daemon, 0);
                    self.as_world(|disk| disk.put(second_file(daemon as u8), text));
                    self.daemons[daemon].has_second = true;
                    self.heal_after(seconds, Heal::SecondFile(daemon as u8));
                }
            }
            Move::UnmountFolder { seconds } => {
                if self.is_mounted {
                    self.is_mounted = false;
                    self.as_world(|disk| disk.unmount(Path::new(LATE_MOUNT)));
                    self.heal_after(seconds, Heal::Mount);
                }
            }
            Move::RemoveManifest { daemon } => {
                let daemon = index(daemon);
                // Nobody removes anything from a machine that is off.
                let is_off = at < self.booted;
                if let Some(path) = self.manifest_of(daemon).filter(|_| !is_off && !self.needs_state(daemon)) {
                    self.remove_for_good(&path);
                    self.daemons[daemon].allowed += 1;
                }
            }
            Move::EmptyManifest { daemon } => {
                let daemon = index(daemon);
                if let Some(path) = self.manifest_of(daemon).filter(|_| !self.is_state_open) {
                    self.as_world(|disk| overwrite(disk, &path, b""));
                    // Whether it is mended before the kubelet sees it is chance.
                    self.daemons[daemon].allowed += 1;
                }
            }
            Move::RemoveData { daemon } => self.remove_data(index(daemon)),
            Move::Reach { reach, seconds } => {
                self.server.lock().unwrap().set_reach(reach);
                self.heals.retain(|(_, heal)| *heal != Heal::Reach);
                self.heal_after(seconds, Heal::Reach);
            }
            Move::Refuse { resource, refusal, seconds } => {
                let resource = usize::from(resource) % RESOURCES.len();
                // Who may not ask which cluster answers believes it (docs/limits.md).
                let hides = |refusal: Refusal| RESOURCES[resource] == NAMESPACES && refusal == Refusal::Forbidden;
                if hides(refusal) && self.other.is_some() {
                    return;
                }
                let mut server = self.server.lock().unwrap();
                server.refusals.insert(RESOURCES[resource].to_owned(), refusal);
                if refusal != Refusal::Silence {
                    server.end_watches();
                }
                drop(server);
                self.heal_after(seconds, Heal::Refusal(resource as u8));
            }
            Move::EndWatches => self.server.lock().unwrap().end_watches(),
            Move::Compact => self.server.lock().unwrap().compact(),
            Move::RestartServer => self.server.lock().unwrap().forget(),
            Move::OtherCluster { seconds, alike } => {
                // What remembers no cluster knows no other one (not-mended).
                if self.is_reachable() && self.knows_cluster() && !self.is_cluster_hidden() {
                    let mut server = self.server.lock().unwrap();
                    let another = server.etcd.another();
                    let true_one = std::mem::replace(&mut server.etcd, another);
                    let mut space = json!({"kind": "Namespace", "metadata": {"name": SPACE}});
                    space["metadata"]["uid"] = "another-cluster".into();
                    server.put("namespaces", space);
                    if alike {
                        self.put_theirs(&mut server, &true_one);
                    }
                    server.is_other = true;
                    server.forget();
                    drop(server);
                    self.other = Some(true_one);
                    self.heal_after(seconds, Heal::Cluster);
                }
            }
            Move::Kill { seconds } => self.end = Some(End::Kill { back: i64::from(seconds) * 1_000 }),
            Move::KillAt { effect } => {
                self.effects.lock().unwrap().left = Some((u64::from(effect), End::Kill { back: 1_000 }));
            }
            Move::RestartAgent => self.end = Some(End::Stop { back: 100 }),
            Move::PowerLoss { kept, effect, reach } => {
                let end = End::PowerLoss { kept, reach };
                match effect {
                    None => self.end = Some(end),
                    Some(effect) => self.effects.lock().unwrap().left = Some((u64::from(effect), end)),
                }
            }
            Move::Shutdown { reach } => self.end = Some(End::Shutdown { reach }),
            Move::RestartKubelet => self.kubelet.restart(self.steady),
            Move::Runtime { state, seconds } => {
                self.kubelet.runtime = state;
                self.heal_after(seconds, Heal::Runtime);
            }
            Move::Clock { seconds } => self.set_clock(seconds),
            Move::Damage { piece, damage } => self.damage(piece, damage),
            Move::DiskFault { fault, seconds } => {
                if !self.faults.contains(&fault) {
                    if STATE_FAULTS.contains(&fault) {
                        self.forget_data();
                    }
                    self.faults.push(fault);
                    for (doing, path, errno) in places(fault) {
                        self.disk.fail(*doing, *path, *errno);
                    }
                    self.heal_after(seconds, Heal::Disk(fault));
                }
            }
            // Without its state folder the node knows no other cluster (not-mended).
            Move::OpenState { seconds } if self.is_plain() && self.other.is_none() => {
                self.is_state_open = true;
                self.chmod_state(0o770);
                self.heal_after(seconds, Heal::State);
                self.end = Some(End::Stop { back: 100 });
            }
            Move::OpenState { .. } => {}
            Move::CopyState { seconds } => {
                let now: BTreeMap<PathBuf, Vec<u8>> = self.state_files();
                self.backup = Some((self.name.clone(), now));
                self.heal_after(seconds, Heal::Backup);
            }
            Move::Rename { renaming, reach } => self.rename(renaming, reach),
            Move::Wipe { place, seconds } => self.wipe(place, seconds),
            Move::OtherVersion { version } => self.change_version(version),
            Move::Tenant { number, tenant } => self.change_tenant(number, tenant),
            Move::StockPod { daemon, seconds } => self.put_stock_pod(index(daemon), seconds),
            Move::Unseal { seconds, refused } => {
                (self.seals, self.refuses_to_seal) = (false, refused);
                self.heal_after(seconds, Heal::Seal);
            }
            Move::After { daemon, before } => {
                let (daemon, before) = (index(daemon), before.map(index));
                let in_api = self.daemons[daemon].in_api();
                let is_heard = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
                if in_api && (!self.is_reachable() || !is_heard) || !in_api && !self.can_write(daemon) {
                    return;
                }
                self.ordered_at = self.steady;
                self.after.insert(daemon, before.into_iter().filter(|before| *before != daemon).collect());
                if in_api { self.apply(daemon) } else { self.write_file(daemon) }
            }
            Move::AskTaint { daemon, is_asked } => self.ask_taint(index(daemon), is_asked),
            Move::DropTaintPolicy { seconds } => {
                self.server.lock().unwrap().has_taint_policy = false;
                self.heal_after(seconds, Heal::TaintPolicy);
            }
            Move::Overlay { daemon, change, seconds } => self.change_overlay(index(daemon), change, seconds),
            Move::LabelNode { is_big } => self.label_node(is_big),
            Move::Occupy { daemon, seconds } => self.occupy(index(daemon), seconds),
            Move::EndReady { why, seconds } => self.end_ready(why, seconds),
            Move::Blur { daemon, blur, seconds } => {
                let daemon = index(daemon);
                self.kubelet.blurred.insert(self.full_name(daemon), blur);
                self.heal_after(seconds, Heal::Blur(daemon as u8));
            }
            Move::Open { daemon, file, is_given } => self.open_file(index(daemon), file, is_given),
            Move::Suspend { seconds, is_cut } => self.suspend(seconds, is_cut),
            Move::ClockWhileDown { seconds } => {
                self.set_clock(seconds);
                if self.forgets() {
                    self.forget_clock();
                }
                self.end = Some(End::Kill { back: BACK });
            }
        }
    }

    /// Whether the state folder, which can be used, says which cluster the node belongs to.
    fn knows_cluster(&self) -> bool {
        let server = self.server.lock().unwrap();
        let uid = server.get("namespaces", "", SPACE).and_then(|space| space["metadata"]["uid"].as_str());
        let inputs = (&*self.disk as &dyn Disk).text(Path::new(STATE).join("inputs.json")).unwrap_or_default();
        !self.is_state_open && uid.is_some_and(|uid| inputs.contains(uid))
    }

    /// Whether what is wanted can be told without the state folder: no file defines an older revision than the API's, or
    /// one that was deleted there, of what has no manifest.
    pub(crate) fn is_plain(&mut self) -> bool {
        let here: Vec<String> = self.kubelet.read(&self.disk).into_values().map(|manifest| manifest.daemon).collect();
        let is_here = |daemon: &Daemon| here.iter().any(|here| *here == format!("{SPACE}/{}", daemon.name));
        let lacks = |daemon: &Daemon| daemon.home == Home::Both && daemon.wanted().is_some() && !is_here(daemon);
        !self.daemons.iter().any(|daemon| lacks(daemon) || daemon.is_kept_away())
    }

    /// Somebody removes a file, and that has been written to the disk.
    fn remove_for_good(&self, path: &Path) {
        self.as_world(|disk| {
            if disk.unlink(&DiskHandle::Start, path).is_ok() {
                path.parent().into_iter().for_each(|folder| disk.sync_folder(folder));
            }
        });
    }

    /// Whether the kubelet's root takes no data.
    pub(crate) fn takes_no_data(&self) -> bool {
        [Fault::PodsFull, Fault::PodsReadOnly, Fault::PodsBroken].iter().any(|fault| self.faults.contains(fault))
    }

    /// Whether nothing new can be remembered.
    pub(crate) fn forgets(&self) -> bool {
        self.is_state_open || STATE_FAULTS.iter().any(|fault| self.faults.contains(fault))
    }

    /// Whether daemons that start now have to keep their order: nobody has waited as long as they may, and what the agent
    /// knows of the order is what is true.
    pub(crate) fn keeps_order(&self) -> bool {
        self.booted > 0
            && self.steady - self.booted < 115_000
            && self.ordered_at < self.booted - 120_000
            && self.clock_set_at < self.booted
            // Of what was adopted without a record it is not known that it has a gate.
            && self.damaged_at < self.booted - 60_000
            // Without its inputs an agent does not know in which boot another last ran: it closes no gate.
            && self.inputs_damaged_at.is_none_or(|at| at < self.booted - 60_000)
            // What was touched at a time that is still to come may have been touched in this boot.
            && self.latest < self.booted + self.wall.get()
            && !self.forgets()
            && !self.has_older_state()
            // Then nothing is planned, and no gate closed.
            && !self.faults.contains(&Fault::ManifestsUnreadable)
    }

    /// The daemons that have to be Ready before `daemon` starts.
    pub(crate) fn starts_before(&self, daemon: usize) -> Vec<usize> {
        let after = |daemon: usize| self.after.get(&daemon).into_iter().flatten().copied();
        let reaches = |from: usize, to: usize| {
            let (mut open, mut reached) = (vec![from], BTreeSet::new());
            while let Some(next) = open.pop() {
                open.extend(after(next).filter(|before| reached.insert(*before)));
            }
            reached.contains(&to)
        };
        after(daemon).filter(|before| *before < daemon || !reaches(*before, daemon)).collect()
    }

    /// Whether the state folder may know less than the kubelet of this boot.
    pub(crate) fn has_older_state(&self) -> bool {
        self.restored_in == Some(self.booted)
    }

    /// Whether nothing but its manifest tells which revision of a daemon is wanted: the folder's is older than the API's,
    /// and what was remembered of that cannot be used.
    fn needs_state(&self, daemon: usize) -> bool {
        self.is_state_open && self.daemons[daemon].home == Home::Both
    }

    /// What the API server, or a folder that cannot be read, last said is not remembered, but what it said before: until
    /// it is heard again, that counts.
    pub(crate) fn forget_data(&mut self) {
        let is_unreadable = self.faults.contains(&Fault::FolderUnreadable);
        for daemon in 0..self.daemons.len() {
            let is_unheard = self.daemons[daemon].in_api() || self.is_late(daemon) || is_unreadable;
            self.daemons[daemon].data_may_go_back |= is_unheard;
        }
    }

    pub(crate) fn can_write(&self, daemon: usize) -> bool {
        let is_there = if self.is_late(daemon) { self.is_mounted } else { !self.is_wiped };
        is_there && !self.faults.contains(&Fault::FolderUnreadable)
    }

    pub(crate) fn is_late(&self, daemon: usize) -> bool {
        self.daemons[daemon].home == Home::Folder && daemon % 2 == 1
    }

    fn path(&self, daemon: usize) -> PathBuf {
        let folder = if self.is_late(daemon) { LATE } else { FOLDER };
        Path::new(folder).join(format!("d{daemon}.yaml"))
    }

    fn next_revision(&mut self) -> u64 {
        self.revisions += 1;
        self.revisions
    }

    pub(crate) fn apply(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let truth = &mut self.daemons[daemon];
        (truth.api, truth.label, truth.held) = (Some(revision), Label::Static, None);
        let object = self.definition(daemon, revision, true);
        self.server.lock().unwrap().put("daemonsets", object);
    }

    fn label(&mut self, daemon: usize, label: Label) {
        if self.daemons[daemon].home != Home::Api || self.daemons[daemon].api.is_none() || !self.is_reachable() {
            return;
        }
        let truth = &mut self.daemons[daemon];
        if label == Label::Mistyped {
            truth.held = truth.wanted();
        }
        // From off to on again quickly, an instance may end, or not.
        truth.allowed += u32::from(label != Label::Mistyped && truth.label != label);
        truth.label = label;
        let key = api::id("daemonsets", SPACE, &truth.name);
        let word = match label {
            Label::Static => Value::from("static"),
            Label::None => Value::Null,
            Label::Mistyped => Value::from("Static"),
        };
        self.server.lock().unwrap().change(&key, |object| match word {
            Value::Null => drop(object["metadata"]["labels"].as_object_mut().map(|l| l.remove("daemonlet.dev/mode"))),
            word => object["metadata"]["labels"]["daemonlet.dev/mode"] = word,
        });
    }

    fn delete_pod(&mut self, daemon: usize, force: bool) {
        if !self.is_reachable() {
            return;
        }
        let prefix = format!("{}-", self.daemons[daemon].name);
        let mut server = self.server.lock().unwrap();
        let is_here = |pod: &Value| {
            let is_mirror = pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string();
            is_mirror && pod["spec"]["nodeName"] == *self.name
        };
        let pods = server.etcd.objects.iter().filter(|(key, _)| key.0 == "pods" && key.2.starts_with(&prefix));
        let mut keys = pods.filter(|(_, pod)| is_here(pod)).map(|(key, _)| key.clone());
        let Some(key) = keys.next() else { return };
        match force {
            true => server.delete(&key),
            false => server.change(&key, |pod| {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }),
        }
        drop(server);
        self.daemons[daemon].allowed += 1;
        self.kubelet.poke(self.steady);
    }

    /// The objects of a daemon go where it has them; where that cannot be now, `back` undoes it.
    pub(crate) fn carry_objects(&mut self, daemon: usize, back: impl FnOnce(&mut Daemon)) {
        match self.daemons[daemon].home {
            Home::Folder if self.can_write(daemon) => self.write_objects(daemon),
            Home::Api | Home::Both if self.is_reachable() && self.daemons[daemon].has_config => {
                self.put_objects(daemon)
            }
            _ => back(&mut self.daemons[daemon]),
        }
    }

    fn objects(&self, daemon: usize) -> Vec<Value> {
        let Daemon { name, config, secret, overlay, .. } = &self.daemons[daemon];
        let metadata = |prefix: &str| json!({"name": format!("{prefix}-{name}"), "namespace": SPACE});
        let overlay = overlay.as_ref().and_then(|overlay| overlay.text());
        let overlay = overlay.map(|text| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("o"), "data": {"overlays.yaml": text}})
        });
        let own = [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("c"),
                "data": {"k": format!("V={config}"), "l": format!("V={config}")}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"),
                "data": {"k": base64(format!("V={secret}"))}}),
        ];
        own.into_iter().chain(overlay).collect()
    }

    pub(crate) fn put_objects(&mut self, daemon: usize) {
        let objects = self.objects(daemon);
        let mut server = self.server.lock().unwrap();
        for object in objects {
            let resource = if object["kind"] == "Secret" { "secrets" } else { "configmaps" };
            server.put(resource, object);
        }
    }

    pub(crate) fn write_objects(&mut self, daemon: usize) {
        let text: String = self.objects(daemon).iter().map(|object| format!("---\n{object}\n")).collect();
        let path = self.path(daemon).with_file_name(format!("d{daemon}-objects.yaml"));
        self.as_world(|disk| replace(disk, &path, text.as_bytes()));
    }

    pub(crate) fn write_file(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let text = self.file_text(daemon, revision);
        let path = self.path(daemon);
        self.unhurt(daemon);
        self.as_world(|disk| replace(disk, &path, text.as_bytes()));
        let truth = &mut self.daemons[daemon];
        (truth.file, truth.file_counts) = (Some(revision), true);
    }

    /// A save in two steps: what is there first is a whole definition, and a wrong one.
    fn write_half(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let text = self.file_text(daemon, revision);
        let path = self.path(daemon);
        self.unhurt(daemon);
        let cut = text.find("      - name: side").unwrap_or(text.len() / 2);
        self.as_world(|disk| overwrite(disk, &path, &text.as_bytes()[..cut]));
        let truth = &mut self.daemons[daemon];
        (truth.file, truth.file_counts) = (Some(revision), true);
        let after = self.draw.one_of(&[50, 300, 900]);
        self.heals.push((self.steady + after, Heal::FinishWriting(daemon as u8)));
    }

    fn restore_file(&mut self, daemon: usize) {
        if !self.daemons[daemon].is_hurt {
            return;
        }
        if !self.can_write(daemon) {
            return self.heal_after(10, Heal::File(daemon as u8));
        }
        self.rewrite_file(daemon);
    }

    /// Its file is again as it was meant.
    pub(crate) fn rewrite_file(&mut self, daemon: usize) {
        self.unhurt(daemon);
        if let Some(revision) = self.daemons[daemon].file {
            let (path, text) = (self.path(daemon), self.file_text(daemon, revision));
            self.as_world(|disk| replace(disk, &path, text.as_bytes()));
        }
    }

    fn unhurt(&mut self, daemon: usize) {
        self.daemons[daemon].is_hurt = false;
        self.disk.mend(&self.path(daemon));
    }

    fn hurt(&mut self, daemon: usize, hurt: Hurt) {
        let Some(revision) = self.daemons[daemon].file else { return };
        let (path, text) = (self.path(daemon), self.file_text(daemon, revision));
        self.daemons[daemon].is_hurt = true;
        match hurt {
            Hurt::Empty => self.as_world(|disk| overwrite(disk, &path, b"")),
            Hurt::Half => self.as_world(|disk| overwrite(disk, &path, &text.as_bytes()[..text.len() / 3])),
            Hurt::Zeros => self.as_world(|disk| overwrite(disk, &path, &vec![0; text.len()])),
            Hurt::DanglingLink => self.as_world(|disk| link(disk, &path, "/mnt/nowhere/file.yaml")),
            Hurt::LinkLoop => self.as_world(|disk| link(disk, &path, &path.to_string_lossy())),
            Hurt::Unreadable => self.disk.fail(Doing::Open, &path, Errno::EIO),
            Hurt::StaleHandle => self.disk.fail(Doing::Read, &path, Errno::ESTALE),
        }
    }

    fn file_text(&self, daemon: usize, revision: u64) -> String {
        let mut object = self.definition(daemon, revision, false);
        let containers = object["spec"]["template"]["spec"]["containers"].take();
        let mut text = String::from("apiVersion: apps/v1\nkind: DaemonSet\n");
        text += &format!("metadata: {}\nspec:\n  selector: {}\n", object["metadata"], object["spec"]["selector"]);
        text += &format!("  template:\n    metadata: {}\n    spec:\n", object["spec"]["template"]["metadata"]);
        for (name, value) in object["spec"]["template"]["spec"].as_object().into_iter().flatten() {
            if name != "containers" {
                text += &format!("      {name}: {value}\n");
            }
        }
        text += "      containers:\n";
        for container in containers.as_array().into_iter().flatten() {
            text += &format!("      - name: {}\n", container["name"].as_str().unwrap_or_default());
            for (name, value) in container.as_object().into_iter().flatten().filter(|(name, _)| *name != "name") {
                text += &format!("        {name}: {value}\n");
            }
        }
        text
    }

    pub(crate) fn definition(&self, daemon: usize, revision: u64, in_api: bool) -> Value {
        let name = &self.daemons[daemon].name;
        let labels = json!({"app": name});
        let mut mode = json!({"app": name});
        if in_api {
            mode["daemonlet.dev/mode"] = "static".into();
        }
        let before = self.after.get(&daemon).into_iter().flatten().map(|before| format!("{SPACE}/d{before}"));
        let before: Vec<String> = before.collect();
        let mut annotations = match before.is_empty() {
            true => json!({}),
            false => json!({"daemonlet.dev/after": before.join(", ")}),
        };
        if self.taint.as_ref().is_some_and(|taint| taint.is_asked(daemon)) {
            annotations["daemonlet.dev/startup-taint"] = "true".into();
        }
        if self.conditioned.contains(&daemon) {
            annotations["daemonlet.dev/node-condition"] = super::node_conditions::kind(daemon).into();
        }
        if self.daemons[daemon].overlay.is_some() {
            annotations["daemonlet.dev/overlays"] = format!("o-{name}").into();
        }
        let ports = if self.has_ports { super::room::ports(name) } else { json!([]) };
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": SPACE, "labels": mode, "annotations": annotations},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "automountServiceAccountToken": self.daemons[daemon].home == Home::Api,
                "terminationGracePeriodSeconds": 1 + daemon as i64 * 2,
                "volumes": [
                    {"name": "c", "configMap": {"name": format!("c-{name}")}},
                    {"name": "s", "secret": {"secretName": format!("s-{name}")}}],
                "containers": [
                    {"name": "main", "image": "img:1", "env": [{"name": "REV", "value": revision.to_string()}], "ports": ports,
                        "volumeMounts": [{"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}]},
                    {"name": "side", "image": "img:1"}]}}}})
    }

    /// The manifest of a daemon in the kubelet's folder.
    pub(crate) fn manifest_of(&mut self, daemon: usize) -> Option<PathBuf> {
        let name = format!("{SPACE}/{}", self.daemons[daemon].name);
        let found = self.kubelet.read(&self.disk).into_values().find(|manifest| manifest.daemon == name)?;
        Some(Path::new(MANIFESTS).join(found.file))
    }

    fn remove_data(&mut self, daemon: usize) {
        let name = format!("{SPACE}/{}", self.daemons[daemon].name);
        let Some(manifest) = self.kubelet.read(&self.disk).into_values().find(|m| m.daemon == name) else { return };
        let file = volume_path(&manifest.uid, "c").join("k");
        self.daemons[daemon].data_removed = Some(self.steady);
        self.as_world(|disk| disk.unlink(&DiskHandle::Start, &file)).unwrap_or_default();
    }

    pub(crate) fn state_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let disk: &dyn Disk = &*self.disk;
        for folder in [STATE.to_owned(), format!("{STATE}/daemons")] {
            for name in disk.list(Path::new(&folder)).unwrap_or_default() {
                let path = Path::new(&folder).join(name);
                if let Ok(data) = disk.load(&path, u64::MAX) {
                    files.insert(path, data);
                }
            }
        }
        files
    }

    fn full_name(&self, daemon: usize) -> String {
        format!("{SPACE}/{}", self.daemons[daemon].name)
    }

    fn set_clock(&mut self, seconds: i64) {
        self.clock_set_at = self.steady;
        self.latest = self.latest.max(self.clock.get());
        self.wall.set(self.wall.get() + seconds * 1_000);
    }

    /// Nothing tells that the clock was another one in this boot (not-mended).
    pub(crate) fn forget_clock(&mut self) {
        if self.clock_set_at >= self.booted {
            self.clock_forgotten_in = Some(self.booted);
        }
    }

    fn suspend(&mut self, seconds: u32, is_cut: bool) {
        let seconds = i64::from(seconds);
        self.set_clock(seconds);
        self.suspended.set(self.suspended.get() + seconds * 1_000);
        self.suspended_in_all += seconds * 1_000;
        self.kubelet.booted -= seconds * 1_000;
        if is_cut {
            self.server.lock().unwrap().break_connections();
        }
    }

    /// A manifest, or data of a pod, becomes everybody's to write, or another user's.
    fn open_file(&mut self, daemon: usize, file: OwnFile, is_given: bool) {
        let name = self.full_name(daemon);
        let Some(manifest) = self.kubelet.read(&self.disk).into_values().find(|m| m.daemon == name) else { return };
        let path = match file {
            OwnFile::Manifest => Path::new(MANIFESTS).join(manifest.file),
            OwnFile::Data => volume_path(&manifest.uid, "c").join("..data/k"),
        };
        self.as_world(|disk| if is_given { give(disk, &path) } else { chmod(disk, &path, 0o666) });
    }

    fn chmod_state(&mut self, mode: u32) {
        if let Ok(folder) = self.disk.open_folder(&DiskHandle::Start, Path::new(STATE), Links::Follow) {
            self.as_world(|disk| disk.set_mode(&folder, mode)).unwrap_or_default();
        }
    }

    /// The agent is killed, a piece of its state is damaged, and it starts.
    /// Whether the agent may not ask which cluster answers.
    fn is_cluster_hidden(&self) -> bool {
        self.server.lock().unwrap().refusals.get(NAMESPACES) == Some(&Refusal::Forbidden)
    }

    /// Whether no agent runs, and the next one has to do without its inputs.
    fn lacks_inputs(&self) -> bool {
        self.inputs_damaged_at.is_some_and(|at| self.steady - at <= BACK)
    }

    /// What runs without its file, because the agent could not write down its end or had no time to, nobody remembers to
    /// have had one.
    fn lose_origins(&mut self) {
        for daemon in 0..self.daemons.len() {
            let path = self.path(daemon);
            let is_away = self.as_world(|disk| (&**disk as &dyn Disk).look_at_link(&path).is_err());
            let is_folders = self.daemons[daemon].home == Home::Folder && self.daemons[daemon].file.is_none();
            if is_folders && is_away && self.manifest_of(daemon).is_some() {
                self.daemons[daemon].origin_is_lost = true;
            }
        }
    }

    fn damage(&mut self, piece: Piece, damage: Damage) {
        let record = || {
            let disk: &dyn Disk = &*self.disk;
            let mut names = disk.list(Path::new(&format!("{STATE}/daemons"))).unwrap_or_default();
            names.sort();
            names.first().map(|name| Path::new(STATE).join("daemons").join(name))
        };
        let path = match piece {
            Piece::Inputs => Some(Path::new(STATE).join("inputs.json")),
            Piece::Floor => Some(Path::new(STATE).join("floor.json")),
            Piece::Record => record(),
            Piece::Seal => Some(Path::new(STATE).join(SEALED)),
        };
        let is_of =
            |daemon: &Daemon| path.as_ref().is_some_and(|path| path.ends_with(format!("{SPACE}_{}.json", daemon.name)));
        if self.daemons.iter().any(|daemon| daemon.is_kept_away() && is_of(daemon)) {
            return;
        }
        // Without its inputs the agent knows no cluster.
        if self.other.is_some() && piece == Piece::Inputs {
            return;
        }
        let Some(path) = path else { return };
        let disk: &dyn Disk = &*self.disk;
        let Ok(data) = disk.load(&path, u64::MAX) else { return };
        self.end = Some(End::Kill { back: BACK });
        if piece == Piece::Inputs {
            self.forget_clock();
            self.inputs_damaged_at = Some(self.steady);
            self.lose_origins();
        }
        if piece == Piece::Seal {
            self.forget_data();
            self.allow_anew();
        }
        if piece == Piece::Record {
            self.damaged_at = self.steady;
        }
        self.as_world(|disk| match damage {
            Damage::Gone => disk.unlink(&DiskHandle::Start, &path).unwrap_or_default(),
            Damage::Empty => overwrite(disk, &path, b""),
            Damage::Zeros => overwrite(disk, &path, &vec![0; data.len()]),
            Damage::Half => overwrite(disk, &path, &data[..data.len() / 2]),
            Damage::Open => chmod(disk, &path, 0o666),
            Damage::Foreign => give(disk, &path),
            Damage::Folder => {
                disk.unlink(&DiskHandle::Start, &path).unwrap_or_default();
                disk.make_folder(&path);
            }
        });
    }
}

/// Where a volume's data is.
pub(crate) fn volume_path(uid: &str, volume: &str) -> PathBuf {
    Path::new(KUBELET).join("pods").join(uid).join("volumes/kubernetes.io~empty-dir").join(volume)
}

fn second_file(daemon: u8) -> String {
    format!("{FOLDER}/aa-{daemon}.yaml")
}

/// Somebody's own static pod.
pub(crate) fn foreign() -> &'static str {
    "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: kube-system, uid: foreign}\nspec: {containers: [{name: e, image: e}]}\n"
}

fn places(fault: Fault) -> &'static [(Doing, &'static str, Errno)] {
    match fault {
        Fault::StateReadOnly => &[
            (Doing::Create, STATE, Errno::EROFS),
            (Doing::Rename, STATE, Errno::EROFS),
            (Doing::Remove, STATE, Errno::EROFS),
            (Doing::Write, STATE, Errno::EROFS),
        ],
        Fault::StateFull => &[(Doing::Create, STATE, Errno::ENOSPC), (Doing::Write, STATE, Errno::ENOSPC)],
        Fault::ManifestsFull => &[(Doing::Create, MANIFESTS, Errno::ENOSPC), (Doing::Write, MANIFESTS, Errno::ENOSPC)],
        Fault::ManifestsUnreadable => &[(Doing::Read, MANIFESTS, Errno::EIO), (Doing::Open, MANIFESTS, Errno::EIO)],
        Fault::PodsFull => &[(Doing::Create, KUBELET, Errno::ENOSPC), (Doing::Write, KUBELET, Errno::ENOSPC)],
        Fault::StateBroken => &[(Doing::Write, STATE, Errno::EIO), (Doing::Sync, STATE, Errno::EIO)],
        Fault::ManifestsReadOnly => &[
            (Doing::Create, MANIFESTS, Errno::EROFS),
            (Doing::Rename, MANIFESTS, Errno::EROFS),
            (Doing::Remove, MANIFESTS, Errno::EROFS),
            (Doing::Write, MANIFESTS, Errno::EROFS),
            (Doing::SetAttributes, MANIFESTS, Errno::EROFS),
        ],
        Fault::ManifestsBroken => &[(Doing::Write, MANIFESTS, Errno::EIO), (Doing::Sync, MANIFESTS, Errno::EIO)],
        Fault::PodsReadOnly => &[
            (Doing::Create, KUBELET, Errno::EROFS),
            (Doing::Rename, KUBELET, Errno::EROFS),
            (Doing::Remove, KUBELET, Errno::EROFS),
            (Doing::Write, KUBELET, Errno::EROFS),
            (Doing::SetAttributes, KUBELET, Errno::EROFS),
        ],
        Fault::PodsBroken => &[(Doing::Write, KUBELET, Errno::EIO), (Doing::Sync, KUBELET, Errno::EIO)],
        Fault::FolderUnreadable => &[(Doing::Open, FOLDER, Errno::EIO), (Doing::Read, FOLDER, Errno::EIO)],
    }
}

fn chmod(disk: &Arc<Simulated>, path: &Path, mode: u32) {
    let file = disk.open_file(&DiskHandle::Start, path, Links::Refuse);
    file.and_then(|file| disk.set_mode(&file, mode)).unwrap_or_default();
}

/// The file is nobody's.
fn give(disk: &Arc<Simulated>, path: &Path) {
    let nobody = Owner { uid: Some(65_534), gid: None };
    disk.set_owner_at(&DiskHandle::Start, path, nobody).unwrap_or_default();
}

/// As an editor saves: a new file takes the place of the old one.
fn replace(disk: &Arc<Simulated>, path: &Path, data: &[u8]) {
    let aside = path.with_file_name(".aside");
    disk.put(&aside, data);
    disk.rename(&DiskHandle::Start, &aside, &DiskHandle::Start, path).unwrap_or_default();
    if let Ok(folder) = disk.open_folder(&DiskHandle::Start, path.parent().unwrap_or(path), Links::Follow) {
        disk.sync(&folder).unwrap_or_default();
    }
}

/// As `>` does: the same file with another content.
fn overwrite(disk: &Arc<Simulated>, path: &Path, data: &[u8]) {
    disk.overwrite(path, data);
}

fn link(disk: &Arc<Simulated>, path: &Path, target: &str) {
    disk.unlink(&DiskHandle::Start, path).unwrap_or_default();
    disk.create_link(Path::new(target), &DiskHandle::Start, path).unwrap_or_default();
    if let Ok(folder) = disk.open_folder(&DiskHandle::Start, path.parent().unwrap_or(path), Links::Follow) {
        disk.sync(&folder).unwrap_or_default();
    }
}

pub(crate) fn base64(data: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(data)
}

pub(crate) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
