//! What ends by itself, and when.

use std::path::Path;

use crate::api::Reach;
use crate::kubelet::RuntimeState;
use crate::moves::Fault;
use crate::moves::RESOURCES;

use super::End;
use super::LATE_MOUNT;
use super::LATE_SYSTEM;
use super::Node;
use super::STATE;
use super::daemon::Label;
use super::disk::overwrite;
use super::disk::places;
use super::disk::second_file;

/// Something that ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heal {
    File(u8),
    SecondFile(u8),
    Mount,
    Folder,
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
    Label,
    Selection,
    Override(u8),
    EtcdBackup,
    Better(u8),
}

impl Node {
    /// When something ends by itself next.
    pub(crate) fn due(&self) -> i64 {
        self.heals.iter().map(|(at, _)| *at).fold(self.kubelet.due().min(self.bridges_due()), i64::min)
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
        self.step_bridges();
        self.show_readiness();
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
            // A label that an operator mistyped is corrected.
            if self.daemons[index].label == Label::Mistyped {
                self.label(index, Label::Static);
            }
        }
    }

    pub(crate) fn heal_after(&mut self, seconds: u16, heal: Heal) {
        self.heals.push((self.steady + i64::from(seconds) * 1_000, heal));
    }

    fn heal(&mut self, heal: Heal) {
        match heal {
            Heal::File(daemon) => self.restore_file(usize::from(daemon)),
            Heal::SecondFile(_) if self.is_folder_away => self.heal_after(10, heal),
            Heal::SecondFile(daemon) => {
                self.daemons[usize::from(daemon)].has_second = false;
                self.remove_for_good(Path::new(&second_file(daemon)));
            }
            Heal::Mount => {
                self.is_mounted = true;
                self.as_world(|disk| disk.mount(Path::new(LATE_MOUNT), LATE_SYSTEM));
            }
            Heal::Folder => self.put_folder_back(),
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
                for (doing, path, errno) in self.faults.iter().flat_map(|fault| places(*fault)) {
                    self.disk.fail(*doing, *path, *errno);
                }
            }
            Heal::State => {
                self.is_state_open = false;
                self.chmod_state(0o700);
            }
            Heal::Backup => {
                self.forget_data();
                if !self.is_reachable() {
                    // What it said since is not known: what it said before counts until it answers again.
                    self.daemons.iter_mut().filter(|daemon| daemon.in_api()).for_each(|daemon| daemon.allowed += 1);
                }
                // Which UIDs were used since, and what a file defined that says nothing now, is not known either.
                self.restored_at = Some(self.steady);
                self.has_lost_state = true;
                // Nor which revision it had of what has no manifest.
                for daemon in 0..self.daemons.len() {
                    let says_nothing = self.daemons[daemon].file.is_none() || self.daemons[daemon].is_hurt;
                    if says_nothing || self.revision_of(daemon).is_none() {
                        (self.daemons[daemon].highest, self.daemons[daemon].data_may_go_back) = (0, true);
                    }
                }
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
                    self.as_world(|disk| crate::machine::remove_tree(disk, &path));
                    self.as_world(|disk| disk.put(path, data));
                }
                self.end = Some(End::Kill { back: 1_000 });
            }
            Heal::Label => self.get_label(),
            Heal::Selection => self.select_all(),
            Heal::Better(daemon) => self.apply_better(usize::from(daemon)),
            Heal::EtcdBackup => self.restore_etcd(),
            Heal::Override(daemon) => self.end_override(usize::from(daemon)),
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
            // An editor tries again.
            Heal::FinishWriting(daemon) if !self.takes_a_file(usize::from(daemon)) => {
                self.heals.push((self.steady + 300, heal));
            }
            Heal::FinishWriting(daemon) => {
                let daemon = usize::from(daemon);
                if let Some(revision) = self.daemons[daemon].file {
                    let text = self.file_text(daemon, revision);
                    let path = self.path(daemon);
                    self.as_world(|disk| overwrite(disk, &path, text.as_bytes()));
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
}
