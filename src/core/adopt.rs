//! Manifests and sandboxes of ours that no record knows: the agent lost its state, or died between writing manifest and
//! record.
//!
//! Owns the rule that our manifests in the folder become instances again and are never removed as garbage, and that
//! what runs without a manifest ends before another one starts.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Timestamp;
use crate::core::validate;

/// A manifest of ours in the folder, as the file describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptableManifest<'a> {
    pub uid: &'a str,
    pub pod_name: &'a str,
    /// The incarnation number.
    pub incarnation: u64,
    /// The revision's hash.
    pub revision: &'a str,
}

/// Adds `found` to the record unless it is there. Its template is unknown: it takes the wanted one if the revision is
/// the same, else it is replaced in the normal order. A manifest with a known instance's pod name but another UID is a
/// modified copy; it ends, because the kubelet would treat it as that pod.
///
/// Where `found` is later than everything that the record knows, the record is from a backup: what it has for live, and
/// has no manifest (`is_there`), ended after the backup was made. Returns whether the record changed.
pub fn adopt(
    record: &mut DaemonRecord,
    found: &AdoptableManifest<'_>,
    now: Timestamp,
    is_there: impl Fn(&str) -> bool,
) -> bool {
    if let Some(known) = record.instances.iter_mut().find(|i| i.uid == found.uid) {
        // Its manifest could not be read before.
        if known.is_adopted && known.revision.is_empty() {
            known.revision = found.revision.to_owned();
        }
        return false;
    }
    if found.incarnation >= record.next_incarnation {
        for instance in record.instances.iter_mut().filter(|i| i.phase == Phase::Live && !is_there(&i.uid)) {
            let reason = "what is remembered of it is older than its successor's manifest".to_owned();
            instance.phase = Phase::Ending {
                since: now,
                reason,
                boot: String::new(),
                returns: false,
                confirmed_by: EndConfirmation::ByTime,
            };
        }
    }
    let is_copy = record.instances.iter().any(|i| i.pod_name == found.pod_name);
    let phase = match is_copy {
        true => Phase::ending(now, "its UID was changed in the manifest"),
        false => Phase::Live,
    };
    let instance = Instance::new(found.uid, found.pod_name, found.incarnation, found.revision, now);
    record.instances.push(Instance { phase, is_adopted: true, ..instance });
    record.instances.sort_by_key(|i| i.incarnation);
    record.next_incarnation = record.next_incarnation.max(found.incarnation.saturating_add(1));
    true
}

/// Adds `found`, which runs and has no manifest, to the record unless it is there: it ends, and its number is used up.
/// Returns whether the record changed.
pub fn adopt_ending(record: &mut DaemonRecord, found: &AdoptableManifest<'_>, now: Timestamp, boot: &str) -> bool {
    if record.instance(found.uid).is_some() || record.ended.contains_key(found.uid) {
        return false;
    }
    let phase = Phase::Ending {
        since: now,
        reason: "it runs, and neither a manifest nor a record of it is there".to_owned(),
        boot: boot.to_owned(),
        returns: false,
        confirmed_by: EndConfirmation::Reported,
    };
    let instance = Instance::new(found.uid, found.pod_name, found.incarnation, found.revision, now);
    record.instances.push(Instance { phase, started: true, listed: true, ..instance });
    record.instances.sort_by_key(|i| i.incarnation);
    record.next_incarnation = record.next_incarnation.max(found.incarnation.saturating_add(1));
    true
}

/// Moves orphaned instances of other daemons that `daemon_set` selects to its record, which starts from `floor` if it
/// is new. The rule is upstream's adoption: no controller, and labels that match. They keep name, UID and definition,
/// so nothing restarts. `present`: whether the DaemonSet of a record still exists; then its own orphans are its own.
/// Returns whether anything changed.
pub fn adopt_orphans(
    records: &mut BTreeMap<ObjectKey, DaemonRecord>,
    daemon_set: &DaemonSet,
    floor: u64,
    present: impl Fn(&ObjectKey) -> bool,
) -> bool {
    let key = &daemon_set.key;
    let selected = |instance: &Instance| {
        let own = instance.daemon_set.as_ref().map(|d| validate::template_labels(&d.template));
        instance.phase == Phase::Live
            && instance.orphaned
            && own.is_some_and(|labels| validate::selects(&daemon_set.selector, &labels))
    };
    let has_own = records.get(key).is_some_and(|r| r.live().next().is_some());
    let mut found: Vec<Instance> = Vec::new();
    for record in records.values_mut().filter(|r| r.key.namespace == key.namespace && r.key != *key) {
        if !has_own && !present(&record.key) && record.instances.iter().any(selected) {
            found.extend(record.instances.extract_if(.., |i| selected(i)));
        }
    }
    if found.is_empty() {
        return false;
    }
    let record = records.entry(key.clone()).or_insert_with(|| DaemonRecord::new(key.clone(), floor));
    for instance in found {
        record.next_incarnation = record.next_incarnation.max(instance.incarnation.saturating_add(1));
        record.instances.push(Instance { orphaned: false, ..instance });
    }
    record.instances.sort_by_key(|i| i.incarnation);
    true
}

/// Removes adopted instances from the record they came from, if the agent died between the two writes.
pub fn drop_adopted(records: &mut BTreeMap<ObjectKey, DaemonRecord>) {
    let of = |r: &DaemonRecord| -> BTreeSet<String> {
        let foreign = |i: &&Instance| i.daemon_set.as_ref().is_some_and(|d| d.key != r.key);
        r.instances.iter().filter(foreign).map(|i| i.uid.clone()).collect()
    };
    let adopted: BTreeSet<String> = records.values().flat_map(of).collect();
    let own = |r: &DaemonRecord, i: &Instance| i.daemon_set.as_ref().is_none_or(|d| d.key == r.key);
    for record in records.values_mut().filter(|r| r.instances.iter().any(|i| own(r, i) && adopted.contains(&i.uid))) {
        record.instances.retain(|i| !adopted.contains(&i.uid));
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use std::sync::Arc;

    use serde_json::json;

    use crate::core::model::Source;

    use super::*;

    fn named(name: &str, app: &str) -> DaemonSet {
        let template =
            json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "a", "uid": name},
            "spec": {"selector": {"matchLabels": {"app": app}}, "template": template}});
        validate::daemon_set(&value, Source::Api).unwrap()
    }

    fn orphaned() -> BTreeMap<ObjectKey, DaemonRecord> {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "old"), 0);
        let daemon_set = Some(Arc::new(named("old", "net")));
        record.instances.push(Instance { orphaned: true, daemon_set, ..Instance::new("u", "old-1", 3, "r", at(0)) });
        [(record.key.clone(), record)].into()
    }

    #[test]
    fn a_manifest_from_after_the_backup_ends_what_the_backup_has_for_live() {
        for (incarnation, is_there, ends) in [(7, false, true), (7, true, false), (2, false, false)] {
            let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
            record.instances.push(Instance::new("old", "b-old", 4, "r", at(0)));
            record.next_incarnation = 5;
            let found = AdoptableManifest { uid: "new", pod_name: "b-new", incarnation, revision: "r" };
            assert!(adopt(&mut record, &found, at(7), |_| is_there));
            let old = record.instance("old").unwrap();
            assert_eq!(old.phase != Phase::Live, ends, "{incarnation} {is_there}");
        }
    }

    #[test]
    fn orphans_go_to_a_daemon_set_that_selects_them() {
        let mut records = orphaned();
        assert!(!adopt_orphans(&mut records, &named("new", "other"), 0, |_| false), "another selector");
        assert!(!adopt_orphans(&mut records, &named("new", "net"), 0, |_| true), "their own is there");
        let before = records.clone();
        assert!(adopt_orphans(&mut records, &named("new", "net"), 0, |_| false));
        let new = &records[&ObjectKey::new("a", "new")];
        assert_eq!((new.instances[0].uid.as_str(), new.instances[0].orphaned), ("u", false));
        assert_eq!(new.next_incarnation, 4);
        assert!(records[&ObjectKey::new("a", "old")].instances.is_empty());
        // A crash after the first of the two writes.
        let mut halfway = records.clone();
        halfway.extend(before);
        drop_adopted(&mut halfway);
        assert_eq!(halfway, records);
        assert!(!adopt_orphans(&mut records, &named("third", "net"), 0, |_| false), "no orphan any more");
    }

    #[test]
    fn an_unknown_manifest_becomes_an_instance_and_its_number_is_used_up() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let found = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        assert!(adopt(&mut record, &found, at(7), |_| true));
        assert_eq!(record.next_incarnation, 4);
        assert!(!adopt(&mut record, &found, at(8), |_| true), "the second look finds it known");
        assert_eq!(record.instances.len(), 1);
    }

    #[test]
    fn of_what_was_found_before_its_manifest_could_be_read_the_revision_is_known_with_it() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let found = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "" };
        let mut adopt_with = |revision| {
            adopt(&mut record, &AdoptableManifest { revision, ..found.clone() }, at(7), |_| true);
            record.instances[0].revision.clone()
        };
        assert_eq!(["", "r", "s"].map(&mut adopt_with), ["", "r", "r"]);
    }

    #[test]
    fn what_runs_without_manifest_and_record_ends_and_its_number_is_used_up() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let found = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "" };
        assert!(adopt_ending(&mut record, &found, at(7), "boot"));
        assert!(!adopt_ending(&mut record, &found, at(8), "boot"), "the second look finds it known");
        assert_eq!((record.next_incarnation, record.live().count(), record.ending().count()), (4, 0, 1));
        record.instances.clear();
        record.ended.insert("u".to_owned(), at(8));
        assert!(!adopt_ending(&mut record, &found, at(9), "boot"), "it has ended");
    }

    #[test]
    fn a_number_past_all_numbers_does_not_begin_again_at_none() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        adopt(
            &mut record,
            &AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: u64::MAX, revision: "r" },
            at(7),
            |_| true,
        );
        record.end("u", &Phase::ending(at(8), "why"));
        assert_eq!(record.next_incarnation, u64::MAX);
    }

    #[test]
    fn a_manifest_whose_uid_was_changed_is_no_second_instance() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let ours = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        adopt(&mut record, &ours, at(7), |_| true);
        assert!(adopt(&mut record, &AdoptableManifest { uid: "v", ..ours }, at(8), |_| true));
        assert_eq!(record.live().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["u"]);
        assert_eq!(record.ending().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["v"]);
    }
}
