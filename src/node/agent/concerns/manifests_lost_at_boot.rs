//! Manifests that were lost with a disk: the machine booted with an empty manifest folder.
//!
//! Owns the distinction from a manifest that was removed. A UID whose manifest was removed is never
//! used again, because the kubelet finishes that pod. A kubelet that has never seen the UID in this boot
//! has nothing to finish: there the instance comes back as it was, under its own identity.

use std::collections::BTreeSet;

use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::State;
use crate::core::record::DaemonRecord;

use super::super::observation::Observation;
use super::super::records::Records;

/// Which manifests went with the disk.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct ManifestsLostAtBoot {
    /// Whether the machine has booted since the agent last ran, until the first scan; else missing manifests were removed.
    is_open: bool,
    uids: BTreeSet<String>,
}

impl ManifestsLostAtBoot {
    /// For an agent that last ran in the boot `last` and now runs in `boot`. Without two names that differ
    /// no manifest counts as lost.
    pub(in super::super) fn new(last: Option<&str>, boot: &str) -> Self {
        let is_open = last.is_some_and(|last| !last.is_empty() && !boot.is_empty() && last != boot);
        Self { is_open, uids: BTreeSet::new() }
    }

    /// Whether it matters which instances the kubelet has run in this boot.
    pub(in super::super) fn asks(&self) -> bool {
        self.is_open
    }

    /// Follows the manifest folder: the first scan finds the missing manifests, and one that has been written is not
    /// missing any more.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records) {
        let Some(scan) = observation.manifests.current() else { return };
        if std::mem::take(&mut self.is_open) {
            for record in records.values() {
                let lost = record.live().filter(|i| !scan.is_unreadable(&record.key.namespace, &i.pod_name));
                let unknown = lost.filter(|i| !observation.run_in_this_boot.contains(&i.uid));
                self.uids.extend(unknown.map(|i| i.uid.clone()));
            }
        }
        if self.uids.is_empty() {
            return;
        }
        self.uids.retain(|uid| !scan.has(uid));
        let live: BTreeSet<&str> = records.values().flat_map(DaemonRecord::live).map(|i| i.uid.as_str()).collect();
        self.uids.retain(|uid| live.contains(uid.as_str()));
    }

    /// Gives up manifests that no plan writes: the template or the identity is not known any more, and the daemon starts
    /// anew. Gives whether there were any.
    pub(in super::super) fn give_up(&mut self, plan: &Plan) -> bool {
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
    pub(in super::super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.uids.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::core::adopt;
    use crate::core::adopt::AdoptableManifest;
    use crate::core::knowledge::Knowledge;
    use crate::core::model::ObjectKey;
    use crate::core::record::Instance;
    use crate::core::record::Phase;
    use crate::core::time::at;
    use crate::node::manifests::Scan;

    use super::*;

    fn records() -> Records {
        let key = ObjectKey::new("a", "b");
        let mut record = DaemonRecord::new(key.clone(), 0);
        let found = |uid: &str, incarnation| AdoptableManifest {
            uid: if uid == "live" { "live" } else { "ending" },
            pod_name: if uid == "live" { "b-11111" } else { "b-00000" },
            incarnation,
            revision: "r",
        };
        adopt::adopt(&mut record, &found("ending", 0), at(0), |_| true);
        adopt::adopt(&mut record, &found("live", 1), at(0), |_| true);
        let ending = |i: &&mut Instance| i.uid == "ending";
        for instance in record.instances.iter_mut().filter(ending) {
            instance.phase = Phase::ending(at(0), "");
        }
        Records::from([(key, record)])
    }

    /// An empty manifest folder, and what the kubelet has run in this boot.
    fn observation(run: &[&str]) -> Observation {
        Observation {
            manifests: Knowledge::Current(Arc::new(Scan::default())),
            run_in_this_boot: run.iter().map(|uid| (*uid).to_owned()).collect(),
            ..Observation::default()
        }
    }

    fn uids(lost: &ManifestsLostAtBoot) -> Vec<&str> {
        lost.uids().collect()
    }

    #[test]
    fn only_another_boot_takes_manifests_away_without_anybody() {
        for (last, boot, expected) in
            [(Some("x"), "y", vec!["live"]), (Some("y"), "y", vec![]), (None, "y", vec![]), (Some("x"), "", vec![])]
        {
            let mut lost = ManifestsLostAtBoot::new(last, boot);
            lost.observe(&observation(&[]), &records());
            assert_eq!(uids(&lost), expected, "{last:?} {boot:?}");
        }
    }

    #[test]
    fn what_is_missing_later_was_removed() {
        let mut lost = ManifestsLostAtBoot::new(Some("x"), "y");
        lost.observe(&observation(&[]), &Records::new());
        lost.observe(&observation(&[]), &records());
        assert!(uids(&lost).is_empty());
    }

    #[test]
    fn what_the_kubelet_has_run_in_this_boot_was_removed() {
        let mut lost = ManifestsLostAtBoot::new(Some("x"), "y");
        lost.observe(&observation(&["live"]), &records());
        assert!(uids(&lost).is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_read_decides_nothing() {
        let mut lost = ManifestsLostAtBoot::new(Some("x"), "y");
        let unreadable = Observation { manifests: Knowledge::Unreadable("EIO".to_owned().into()), ..observation(&[]) };
        lost.observe(&unreadable, &records());
        assert!(uids(&lost).is_empty() && lost.asks());
        lost.observe(&observation(&[]), &records());
        assert_eq!(uids(&lost), ["live"]);
    }
}
