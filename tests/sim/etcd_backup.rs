//! A backup of etcd, which is restored: the API server says again what it said before, with the versions of then.
//!
//! Owns what is true after that. Must not judge.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::api;
use super::node::Daemon;
use super::node::Heal;
use super::node::Node;
use super::startup_taint::StartupTaint;

/// How much is written in the cluster after a backup, of what no node here receives: the versions of then are not reached again.
const WRITTEN_SINCE: u64 = 10_000;
/// After how many seconds what the backup lacks is there again.
const AGAIN: u16 = 25;

/// What there was in the API server.
pub(crate) struct EtcdBackup {
    etcd: api::Etcd,
    node: String,
    is_big: bool,
    daemons: Vec<Daemon>,
    after: BTreeMap<usize, BTreeSet<usize>>,
    taint: Option<StartupTaint>,
}

impl Node {
    /// What etcd has now is to come back so much later.
    pub(crate) fn copy_etcd(&mut self, seconds: u16) {
        if self.etcd_backup.is_some() || !self.may_go_back() {
            return;
        }
        let mut server = self.server.lock().unwrap();
        self.etcd_backup = Some(EtcdBackup {
            etcd: server.etcd.clone(),
            node: self.name.clone(),
            is_big: self.is_big,
            daemons: self.daemons.clone(),
            after: self.after.clone(),
            taint: self.taint.clone(),
        });
        server.etcd.version += WRITTEN_SINCE;
        drop(server);
        self.heal_after(seconds, Heal::EtcdBackup);
    }

    /// Whether what the API server says alone says what of its is wanted.
    fn may_go_back(&self) -> bool {
        let is_odd = |daemon: &Daemon| daemon.overrides || daemon.is_mistyped();
        self.other.is_none() && self.is_labelled && !self.daemons.iter().any(is_odd)
    }

    pub(crate) fn restore_etcd(&mut self) {
        let Some(backup) = self.etcd_backup.take() else { return };
        if backup.node != self.name || !self.may_go_back() {
            return;
        }
        self.server.lock().unwrap().restore(backup.etcd);
        self.bad_revisions.go_back();
        (0..self.daemons.len()).for_each(|daemon| self.heal_after(AGAIN, Heal::Better(daemon as u8)));
        for (daemon, before) in backup.daemons.iter().enumerate().filter(|(_, daemon)| daemon.in_api()) {
            self.go_back(daemon, before);
            let after = backup.after.get(&daemon).cloned().unwrap_or_default();
            if self.after.get(&daemon).cloned().unwrap_or_default() != after {
                self.ordered_at = self.steady;
                self.after.insert(daemon, after);
            }
            if let (Some(taint), Some(before)) = (&mut self.taint, &backup.taint) {
                taint.go_back(daemon, before, self.steady);
            }
        }
        if self.is_big != backup.is_big {
            self.be_big(backup.is_big);
        }
        // The controllers go on with what they know.
        self.write_condition();
    }

    /// Of this daemon the API server has again what it had.
    fn go_back(&mut self, daemon: usize, before: &Daemon) {
        let truth = &mut self.daemons[daemon];
        if (truth.api, truth.label) != (before.api, before.label) {
            // What was being replaced is replaced once more.
            truth.allowed += 1;
            truth.is_restored = true;
            truth.file_counts &= before.api.is_some() || truth.api.is_none();
            (truth.api, truth.label, truth.held) = (before.api, before.label, None);
        }
        let is_older = (truth.config, truth.secret) != (before.config, before.secret);
        (truth.config, truth.secret) = (before.config, before.secret);
        let has_lost_config = std::mem::replace(&mut truth.has_config, before.has_config) && !before.has_config;
        truth.data_may_go_back |= is_older || has_lost_config;
        let mut has_lost_overlay = false;
        if let (Some(overlay), Some(before)) = (&mut truth.overlay, &before.overlay) {
            has_lost_overlay = overlay.is_as_meant() && !before.is_as_meant();
            if overlay.go_back(before) {
                truth.allowed += 1;
                truth.data_may_go_back = true;
            }
        }
        for (_, heal) in
            [(has_lost_config, Heal::Config(daemon as u8)), (has_lost_overlay, Heal::Overlay(daemon as u8))]
                .into_iter()
                .filter(|(is_lost, _)| *is_lost)
        {
            self.heal_after(AGAIN, heal);
        }
    }
}
