//! What each move does to the node.
//!
//! Must not judge.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use serde_json::json;

use crate::api;
use crate::api::Refusal;
use crate::moves::Home;
use crate::moves::Move;
use crate::moves::RESOURCES;

use super::BACK;
use super::End;
use super::Heal;
use super::LATE_MOUNT;
use super::NAMESPACES;
use super::Node;
use super::SPACE;
use super::STATE_FAULTS;
use super::daemon::Label;
use super::disk::link;
use super::disk::overwrite;
use super::disk::places;
use super::disk::second_file;

/// After so long a change of a file has been read, in milliseconds.
const RESTS: i64 = 2_500;

impl Node {
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
            // What the process received meanwhile goes with it.
            self.forget_data();
        }
        let count = self.daemons.len();
        let index = |daemon: u8| usize::from(daemon) % count;
        match what {
            Move::Apply { daemon } => {
                let daemon = index(daemon);
                // A new one is not listed while DaemonSets are refused.
                let is_listed = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
                // A newer version would count (docs/daemonsets.md).
                if self.daemons[daemon].in_api()
                    && !self.daemons[daemon].overrides
                    && self.is_reachable()
                    && (is_listed || self.daemons[daemon].api.is_some())
                {
                    self.apply(daemon);
                }
            }
            Move::Delete { daemon } => {
                let daemon = index(daemon);
                // What is being read as it is deleted may be a file's change since.
                let is_at_rest = self.steady - self.daemons[daemon].written_at > RESTS;
                if self.daemons[daemon].in_api() && self.is_reachable() && !self.daemons[daemon].overrides && is_at_rest
                {
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
            // A vendor's file would count.
            Move::RemoveFile { daemon } if !self.vendored.contains(&index(daemon)) => {
                let daemon = index(daemon);
                if self.daemons[daemon].file.is_some() && self.can_write(daemon) && !self.daemons[daemon].has_second {
                    self.remove_for_good(&self.path(daemon));
                    self.api_counts_again(daemon);
                    self.daemons[daemon].file = None;
                    self.daemons[daemon].origin_is_lost = self.lacks_inputs();
                }
            }
            Move::RemoveFile { daemon } | Move::Mask { daemon } => {
                let daemon = index(daemon);
                if self.daemons[daemon].file.is_some() && self.can_write(daemon) && !self.daemons[daemon].has_second {
                    let path = self.path(daemon);
                    self.as_world(|disk| link(disk, &path, "/dev/null"));
                    self.api_counts_again(daemon);
                    self.daemons[daemon].file = None;
                    self.daemons[daemon].origin_is_lost = false;
                }
            }
            Move::SecondFile { daemon, seconds } => {
                let daemon = index(daemon);
                let truth = &self.daemons[daemon];
                if truth.home == Home::Folder
                    && truth.file.is_some()
                    && truth.has_run
                    && !truth.has_second
                    && !self.is_folder_away
                    && self.fewer.is_none()
                {
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
                // Nothing is removed from a machine that is off.
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
                let is_listed = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
                if self.daemons[daemon].overrides
                    || in_api && (!self.is_reachable() || !is_listed)
                    || !in_api && !self.can_write(daemon)
                {
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
            Move::FolderAway { seconds } => self.take_folder_away(seconds),
            Move::Overlay { daemon, change, seconds } => self.change_overlay(index(daemon), change, seconds),
            Move::LabelNode { is_big } => self.label_node(is_big),
            Move::Register { seconds } => self.register(seconds),
            Move::Override { daemon, seconds } => self.override_api(index(daemon), seconds),
            Move::ApplyBad { daemon, seconds } => self.apply_bad(index(daemon), seconds),
            Move::CopyEtcd { seconds } => self.copy_etcd(seconds),
            Move::SelectFewer { fewer, seconds } => self.select_fewer(fewer, seconds),
            Move::Occupy { daemon, seconds } => self.occupy(index(daemon), seconds),
            Move::EndReady { why, seconds } => self.end_ready(why, seconds),
            // What the runtime says is evidence, too: it would return from a good revision.
            Move::Blur { daemon, .. } if self.bad_revisions.is_cautious(index(daemon)) => {}
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
}
