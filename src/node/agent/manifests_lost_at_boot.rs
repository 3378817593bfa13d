//! Manifests that went with a disk: the machine booted on an empty manifest folder.
//!
//! Owns telling this from a manifest that somebody removed. A UID whose manifest was removed is never
//! used again, because the kubelet finishes that pod. A kubelet that has never seen the UID in this boot
//! has nothing to finish: there the instance comes back as it was, under its own identity.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use std::time::SystemTime;

use crate::core::manifest;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::State;
use crate::core::record::DaemonRecord;
use crate::node::fsx::Shared;
use crate::node::manifests::Scan;

/// Times of files are coarser than the clock.
const COARSE: Duration = Duration::from_secs(1);

/// Which manifests went with the disk.
#[derive(Debug, Default)]
pub(super) struct ManifestsLostAtBoot {
    /// Since when the machine is up, until the first look; `None`: what is missing was removed.
    booted: Option<SystemTime>,
    uids: BTreeSet<String>,
}

impl ManifestsLostAtBoot {
    /// For an agent that last ran in the boot `last` and now runs in `boot`. Without two names that differ
    /// no manifest counts as lost.
    pub(super) fn new(files: &Shared, last: Option<&str>, boot: &str) -> Self {
        let another = last.is_some_and(|last| !last.is_empty() && !boot.is_empty() && last != boot);
        Self { booted: another.then(|| booted(files)).flatten(), uids: BTreeSet::new() }
    }

    /// Follows the manifest folder: the first look finds what is missing, and what has been written is not
    /// missing any more.
    pub(super) fn follow(
        &mut self,
        files: &Shared,
        records: &BTreeMap<ObjectKey, DaemonRecord>,
        scan: &Scan,
        kubelet_root: &Path,
    ) {
        if let Some(booted) = self.booted.take() {
            for record in records.values() {
                let file = |pod: &str| manifest::file_name(&record.key.namespace, pod);
                let lost = record.live().filter(|i| !scan.unreadable.contains_key(&file(&i.pod_name)));
                let unknown = lost.filter(|i| !kubelet_knows(files, &kubelet_root.join("pods").join(&i.uid), booted));
                self.uids.extend(unknown.map(|i| i.uid.clone()));
            }
        }
        if self.uids.is_empty() {
            return;
        }
        for manifest in scan.ours.values() {
            self.uids.remove(&manifest.uid);
        }
        let live: BTreeSet<&str> = records.values().flat_map(DaemonRecord::live).map(|i| i.uid.as_str()).collect();
        self.uids.retain(|uid| live.contains(uid.as_str()));
    }

    /// Gives up what no plan writes: its template or its identity is not known any more, and it starts
    /// anew. Gives whether there was any.
    pub(super) fn give_up(&mut self, plan: &Plan) -> bool {
        let before = self.uids.len();
        let idle = |d: &&DaemonPlan| {
            d.actions.is_empty() && d.summary.waiting_for.is_empty() && d.summary.state != State::Refused
        };
        for instance in plan.daemons.iter().filter(idle).flat_map(|d| d.record.live()) {
            self.uids.remove(&instance.uid);
        }
        before != self.uids.len()
    }

    /// The instances whose manifests are to be written again as they were.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.uids.iter().map(String::as_str)
    }
}

/// Whether the kubelet has made a container of the pod since the machine booted: each gets a hosts file
/// and a folder of its own below the pod's.
fn kubelet_knows(files: &Shared, pod: &Path, booted: SystemTime) -> bool {
    let changed = |path: &Path| match files.look_at_link(path) {
        Ok(stat) => stat.stamp.modified() + COARSE >= booted,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    if changed(&pod.join("etc-hosts")) {
        return true;
    }
    let folder = pod.join("containers");
    match files.list(&folder) {
        Ok(containers) => containers.iter().any(|container| changed(&folder.join(container))),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// When the machine booted, by the age of its first process: the kernel's own uptime is the host's where
/// the machine is a container.
fn booted(files: &Shared) -> Option<SystemTime> {
    let stat = files.text("/proc/1/stat").ok()?;
    let started: f64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    let up = super::planning::uptime().to_duration().as_secs_f64();
    let age = Duration::try_from_secs_f64((up - started / ticks as f64).max(0.0)).ok()?;
    SystemTime::now().checked_sub(age)
}

#[cfg(test)]
mod tests {
    use crate::core::record::Instance;
    use crate::core::record::Phase;
    use crate::core::time::at;

    use super::*;
    use crate::node::fsx::Real;

    fn records() -> BTreeMap<ObjectKey, DaemonRecord> {
        let key = ObjectKey::new("a", "b");
        let mut record = DaemonRecord::new(key.clone(), 0);
        let found = |uid: &str, incarnation| crate::core::adopt::AdoptableManifest {
            uid: if uid == "live" { "live" } else { "ending" },
            pod_name: if uid == "live" { "b-11111" } else { "b-00000" },
            incarnation,
            revision: "r",
        };
        crate::core::adopt::adopt(&mut record, &found("ending", 0), at(0));
        crate::core::adopt::adopt(&mut record, &found("live", 1), at(0));
        let ending = |i: &&mut Instance| i.uid == "ending";
        for instance in record.instances.iter_mut().filter(ending) {
            instance.phase = Phase::Ending { since: at(0), reason: String::new() };
        }
        BTreeMap::from([(key, record)])
    }

    fn uids(manifests_lost_at_boot: &ManifestsLostAtBoot) -> Vec<&str> {
        manifests_lost_at_boot.uids().collect()
    }

    #[test]
    fn only_another_boot_takes_manifests_away_without_anybody() {
        let root = tempfile::tempdir().unwrap();
        for (last, boot, expected) in
            [(Some("x"), "y", vec!["live"]), (Some("y"), "y", vec![]), (None, "y", vec![]), (Some("x"), "", vec![])]
        {
            let mut manifests_lost_at_boot = ManifestsLostAtBoot::new(&Real::shared(), last, boot);
            manifests_lost_at_boot.follow(&Real::shared(), &records(), &Scan::default(), root.path());
            assert_eq!(uids(&manifests_lost_at_boot), expected, "{last:?} {boot:?}");
        }
    }

    #[test]
    fn what_is_missing_later_was_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut manifests_lost_at_boot = ManifestsLostAtBoot::new(&Real::shared(), Some("x"), "y");
        manifests_lost_at_boot.follow(&Real::shared(), &BTreeMap::new(), &Scan::default(), root.path());
        manifests_lost_at_boot.follow(&Real::shared(), &records(), &Scan::default(), root.path());
        assert!(uids(&manifests_lost_at_boot).is_empty());
    }

    #[test]
    fn a_pod_that_the_kubelet_has_run_in_this_boot_was_removed() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("pods/live");
        std::fs::create_dir_all(pod.join("containers/c")).unwrap();
        let before = SystemTime::now() + Duration::from_secs(60);
        assert!(!kubelet_knows(&Real::shared(), &pod, before), "older than the boot");
        assert!(kubelet_knows(&Real::shared(), &pod, SystemTime::UNIX_EPOCH));
        assert!(
            !kubelet_knows(&Real::shared(), &root.path().join("pods/other"), SystemTime::UNIX_EPOCH),
            "no folder at all"
        );
        std::fs::remove_dir(pod.join("containers/c")).unwrap();
        std::fs::create_dir(pod.join("volumes")).unwrap();
        assert!(!kubelet_knows(&Real::shared(), &pod, SystemTime::UNIX_EPOCH), "volume data is our own");
        std::fs::write(pod.join("etc-hosts"), "").unwrap();
        assert!(kubelet_knows(&Real::shared(), &pod, SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn the_machine_booted_in_the_past() {
        let booted = booted(&Real::shared()).unwrap();
        assert!(booted < SystemTime::now() && booted > SystemTime::UNIX_EPOCH);
    }
}
