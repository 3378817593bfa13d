//! A new table of strings, with what is still referred to.
//!
//! Owns the list of what has names. A name that is not renumbered here would mean another string.

use crate::core::cluster::names::Name;

use super::ClusterSnapshot;
use super::NodeReport;
use super::ReportedDaemon;
use super::WatchedDaemon;

impl ClusterSnapshot {
    /// Makes a new table of strings when most of the old one is of no use any more.
    pub(super) fn renumber(&mut self) {
        if !self.names.is_crowded() {
            return;
        }
        let old = std::mem::take(&mut self.names);
        let names = &mut self.names;
        let mut new = |name: &mut Name| *name = names.of(old.text(*name));
        for daemon in self.daemons.values_mut() {
            of_daemon(daemon, &mut new);
        }
        for report in self.nodes.values_mut().filter_map(|entry| entry.report.as_mut()) {
            of_report(report, &mut new);
        }
        self.names.set_baseline();
    }
}

fn of_daemon(daemon: &mut WatchedDaemon, new: &mut impl FnMut(&mut Name)) {
    let names = [&mut daemon.key, &mut daemon.uid_name, &mut daemon.wanted];
    names.into_iter().chain(&mut daemon.released).for_each(new);
}

fn of_report(report: &mut NodeReport, new: &mut impl FnMut(&mut Name)) {
    for (key, uid, fact) in &mut report.approvals {
        [key, uid, &mut fact.revision].into_iter().chain(&mut fact.overlays).for_each(&mut *new);
    }
    for (key, reported) in &mut report.daemons {
        new(key);
        of_reported(reported, new);
    }
    for first_seen in [&mut report.appeared, &mut report.became_ready, &mut report.unclaimed] {
        let renumbered = std::mem::take(first_seen).into_iter().map(|((mut key, at), seen)| {
            new(&mut key);
            ((key, at), seen)
        });
        *first_seen = renumbered.collect();
    }
    // They are found by number.
    report.daemons.sort_by_key(|(key, _)| *key);
}

fn of_reported(reported: &mut ReportedDaemon, new: &mut impl FnMut(&mut Name)) {
    for instance in &mut reported.instances {
        new(&mut instance.revision);
        instance.overlays.iter_mut().for_each(&mut *new);
    }
    let names = reported.uid.iter_mut().chain(&mut reported.overlays).chain(&mut reported.previous);
    let failed = reported.failed.iter_mut().map(|(revision, _)| revision);
    let missing = reported.missing.iter_mut().flat_map(|(revision, text)| [revision, text]);
    let pairs = reported.replacing.iter_mut().chain(&mut reported.returning);
    let claim = pairs.flat_map(|(revision, overlays)| std::iter::once(revision).chain(overlays));
    names.chain(&mut reported.staged).chain(claim).chain(failed).chain(missing).for_each(new);
}
