//! Own manifests that the record does not know: made by an agent that lost its state or died between
//! manifest and record.
//!
//! Owns the rule that what is in the folder and ours becomes an instance again, never garbage.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Timestamp;
use crate::core::validate;

/// A manifest of ours in the folder, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptableManifest<'a> {
    /// The pod's UID.
    pub uid: &'a str,
    /// The pod's name.
    pub pod_name: &'a str,
    /// The incarnation number.
    pub incarnation: u64,
    /// The revision's hash.
    pub revision: &'a str,
}

/// Adds `found` to the record if it is not there. The instance's template is not known then; it takes
/// the wanted one when the revision is the same, else it is replaced in order. One that has the pod's
/// name of a known instance and another UID is no instance of ours but a changed copy, and ends: the
/// kubelet would take it for that pod. Gives whether the record changed.
pub fn adopt(record: &mut DaemonRecord, found: &AdoptableManifest<'_>, now: Timestamp) -> bool {
    if record.instance(found.uid).is_some() {
        return false;
    }
    let is_copy = record.instances.iter().any(|i| i.pod_name == found.pod_name);
    let phase = match is_copy {
        true => Phase::Ending { since: now, reason: "its UID was changed by somebody else".to_owned() },
        false => Phase::Live,
    };
    record
        .instances
        .push(Instance { phase, ..Instance::new(found.uid, found.pod_name, found.incarnation, found.revision, now) });
    record.instances.sort_by_key(|i| i.incarnation);
    record.next_incarnation = record.next_incarnation.max(found.incarnation.saturating_add(1));
    true
}

/// Gives the orphaned instances of other daemons that `daemon_set` selects to its record (upstream's adoption:
/// no controller, and labels that match), new from `floor` if there is none. They keep name, UID and the definition that they were made from, so
/// that nothing restarts. `present`: whether the DaemonSet of a record is there: it has its own orphans back.
/// Gives whether anything changed.
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

/// Takes instances that another record has adopted out of the one that they came from: an agent died between
/// the two writes.
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
        assert!(!adopt_orphans(&mut records, &named("third", "net"), 0, |_| false), "nobody's orphan any more");
    }

    #[test]
    fn an_unknown_manifest_becomes_an_instance_and_its_number_is_used_up() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let found = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        assert!(adopt(&mut record, &found, at(7)));
        assert_eq!(record.next_incarnation, 4);
        assert!(!adopt(&mut record, &found, at(8)), "the second look finds it known");
        assert_eq!(record.instances.len(), 1);
    }

    #[test]
    fn a_number_past_all_numbers_does_not_begin_again_at_none() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        adopt(
            &mut record,
            &AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: u64::MAX, revision: "r" },
            at(7),
        );
        record.end("u", at(8), "why");
        assert_eq!(record.next_incarnation, u64::MAX);
    }

    #[test]
    fn a_manifest_whose_uid_was_changed_is_no_second_instance() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let ours = AdoptableManifest { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        adopt(&mut record, &ours, at(7));
        assert!(adopt(&mut record, &AdoptableManifest { uid: "v", ..ours }, at(8)));
        assert_eq!(record.live().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["u"]);
        assert_eq!(record.ending().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["v"]);
    }
}
