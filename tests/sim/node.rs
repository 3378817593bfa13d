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

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Simulated;

use super::api;
use super::api::Reach;
use super::bad_revisions::BadRevisions;
use super::bridges::Bridge;
use super::etcd_backup::EtcdBackup;
use super::kubelet::Kubelet;
use super::kubelet::RuntimeState;
use super::moves::Draw;
use super::moves::Fault;
use super::moves::Fewer;
use super::moves::Home;
use super::moves::Life;
use super::moves::NotReady;
use super::overlays::Overlay;
use super::startup_taint::StartupTaint;

mod act;
mod daemon;
mod definitions;
mod disk;
mod end;
mod heal;
mod layout;
mod order;
mod power;
mod state;

pub(crate) use daemon::Daemon;
pub(crate) use daemon::Label;
pub(crate) use disk::base64;
pub(crate) use disk::foreign;
pub(crate) use disk::from_base64;
pub(crate) use disk::volume_path;
pub(crate) use end::Effects;
pub(crate) use end::End;
pub(crate) use end::Killed;
pub(crate) use heal::Heal;

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
pub(crate) const NAMESPACES: &str = "namespaces";
/// What the sealed secrets are in.
const SEALED: &str = "secrets.json";
/// How long no agent runs after a file of its state was damaged, in milliseconds.
const BACK: i64 = 1_000;
/// Faults with which nothing new is remembered.
const STATE_FAULTS: [Fault; 3] = [Fault::StateFull, Fault::StateReadOnly, Fault::StateBroken];
/// 2026-01-01.
const BEGIN: i64 = 1_767_225_600_000;

/// The node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: Arc<Simulated>,
    pub(crate) server: api::Shared,
    pub(crate) kubelet: Kubelet,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) effects: Arc<Mutex<Effects>>,
    pub(crate) poke: Arc<tokio::sync::Notify>,
    /// Milliseconds since the life began, which is never set.
    pub(crate) steady: i64,
    /// The wall clock's distance from it, and the wall clock.
    pub(crate) wall: Rc<Cell<i64>>,
    pub(crate) clock: Rc<Cell<i64>>,
    pub(crate) booted: i64,
    /// What the manifest folder did not take when it booted: without removals the kubelet starts what lacks its data.
    pub(crate) manifests_at_boot: Option<Fault>,
    /// How long the machine has been suspended in this boot, which no steady clock shows, and in all.
    pub(crate) suspended: Rc<Cell<i64>>,
    suspended_in_all: i64,
    pub(crate) heals: Vec<(i64, Heal)>,
    pub(crate) draw: Draw,
    revisions: u64,
    pub(crate) other: Option<api::Etcd>,
    pub(crate) etcd_backup: Option<EtcdBackup>,
    pub(crate) bad_revisions: BadRevisions,
    /// Daemons in mode `bootstrap`.
    pub(crate) bridges: Vec<Bridge>,
    /// Daemons of which the next instance starts beside the last one.
    pub(crate) surging: BTreeSet<usize>,
    pub(crate) end: Option<End>,
    /// A copy of the state folder, to come back as a backup, and the name that the node had.
    backup: Option<(String, BTreeMap<PathBuf, Vec<u8>>)>,
    pub(crate) is_mounted: bool,
    pub(crate) faults: Vec<Fault>,
    pub(crate) is_state_open: bool,
    /// When the state folder became an older one.
    pub(crate) restored_at: Option<i64>,
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
    /// When the clock was last set, and the latest time that it showed before it was set back.
    pub(crate) clock_set_at: i64,
    /// The boot in which it was forgotten that the clock was set.
    pub(crate) clock_forgotten_in: Option<i64>,
    /// Whether the clock at this boot was behind the latest time that it had shown before.
    boots_behind: bool,
    /// Whether an agent runs.
    pub(crate) has_agent: bool,
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
    /// Whether the API server last showed the agent of this boot that it is not.
    pub(crate) seems_unready: bool,
    pub(crate) is_shutting_down: bool,
    /// Whether the agent that ends with the machine is to leave the startup taint.
    pub(crate) owes_taint: bool,
    /// Daemons that a vendor's folder defines, too; whether the owner's folder is moved away; and whether anything
    /// of the state folder was lost in this life.
    pub(crate) vendored: BTreeSet<usize>,
    pub(crate) is_folder_away: bool,
    pub(crate) has_lost_state: bool,
    /// Daemons that run on a big node alone; whether the Node has its label; and what the configuration leaves out.
    pub(crate) selective: BTreeSet<usize>,
    pub(crate) is_labelled: bool,
    pub(crate) fewer: Option<Fewer>,
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
            manifests_at_boot: None,
            suspended: Rc::default(),
            suspended_in_all: 0,
            heals: Vec::new(),
            draw: Draw::new(life.seed ^ 0x5eed),
            revisions: 0,
            other: None,
            etcd_backup: None,
            bad_revisions: BadRevisions::new(&life.cautious),
            bridges: life.bridged.iter().enumerate().map(|(number, binding)| Bridge::new(number, *binding)).collect(),
            surging: life.surging.iter().map(|daemon| usize::from(*daemon)).collect(),
            end: None,
            backup: None,
            is_mounted: true,
            faults: Vec::new(),
            is_state_open: false,
            restored_at: None,
            is_wiped: false,
            has_new_disk: false,
            has_new_root: false,
            after,
            ordered_at: -1,
            clock_set_at: -1,
            clock_forgotten_in: None,
            boots_behind: false,
            has_agent: false,
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
            is_big: !life.selective.is_empty(),
            not_ready: None,
            seems_unready: false,
            is_shutting_down: false,
            owes_taint: false,
            vendored: life.vendored.iter().map(|daemon| usize::from(*daemon)).collect(),
            is_folder_away: false,
            has_lost_state: false,
            selective: life.selective.iter().map(|daemon| usize::from(*daemon)).collect(),
            is_labelled: true,
            fewer: None,
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
                of_file: BTreeSet::new(),
                written_at: i64::MIN / 2,
                file_counts: true,
                config: 1,
                secret: 1,
                has_config: true,
                overrides: false,
                is_hurt: false,
                has_second: false,
                allowed: 0,
                data_may_go_back: false,
                data_removed: None,
                has_run: false,
                highest: 0,
                is_on_new_disk: false,
                is_restored: false,
                overlay: life.overlaid.contains(&(index as u8)).then(Overlay::default),
                origin_is_lost: false,
                fits: true,
                held_by_config: None,
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
        node.put_bridges();
        node.lay_out_vendor();
        node
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

    /// Whether what is wanted can be known without the state folder: no file defines an older revision than the API's, or
    /// one that was deleted there, of what has no manifest.
    pub(crate) fn is_plain(&mut self) -> bool {
        let here: Vec<String> = self.kubelet.read(&self.disk).into_values().map(|manifest| manifest.daemon).collect();
        let is_here = |daemon: &Daemon| here.iter().any(|here| *here == format!("{SPACE}/{}", daemon.name));
        let lacks = |daemon: &Daemon| daemon.home == Home::Both && daemon.wanted().is_some() && !is_here(daemon);
        !self.daemons.iter().any(|daemon| lacks(daemon) || daemon.is_kept_away())
    }

    /// A file is removed, and that has been written to the disk.
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

    /// Whether it cannot be known if the kubelet has run in this boot, so that what ended at it, because its data is sealed,
    /// may have run: the clock was set back before it (not-mended).
    pub(crate) fn may_doubt_ends(&self) -> bool {
        self.is_sealed && self.boots_behind
    }

    /// Whether the state folder may know less than the kubelet of this boot.
    pub(crate) fn has_older_state(&self) -> bool {
        self.restored_at.is_some_and(|at| at >= self.booted)
    }

    pub(crate) fn is_late(&self, daemon: usize) -> bool {
        self.daemons[daemon].home == Home::Folder && daemon % 2 == 1
    }

    fn path(&self, daemon: usize) -> PathBuf {
        let folder = if self.is_late(daemon) { LATE } else { FOLDER };
        Path::new(folder).join(format!("d{daemon}.yaml"))
    }

    /// The revision that is defined next.
    pub(crate) fn following_revision(&self) -> u64 {
        self.revisions + 1
    }

    fn next_revision(&mut self) -> u64 {
        self.revisions += 1;
        self.revisions
    }

    /// The manifest of a daemon in the kubelet's folder.
    pub(crate) fn manifest_of(&mut self, daemon: usize) -> Option<PathBuf> {
        let name = format!("{SPACE}/{}", self.daemons[daemon].name);
        let found = self.kubelet.read(&self.disk).into_values().find(|manifest| manifest.daemon == name)?;
        Some(Path::new(MANIFESTS).join(found.file))
    }

    pub(crate) fn full_name(&self, daemon: usize) -> String {
        format!("{SPACE}/{}", self.daemons[daemon].name)
    }
}
