//! Own manifests that the record does not know: made by an agent that lost its state or died between
//! manifest and record.
//!
//! Owns the rule that what is in the folder and ours becomes an instance again, never garbage.

use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Millis;
use crate::core::record::Phase;

/// A manifest of ours in the folder, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
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
pub fn adopt(record: &mut DaemonRecord, found: &Found<'_>, now: Millis) -> bool {
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

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectKey;

    use super::*;

    #[test]
    fn an_unknown_manifest_becomes_an_instance_and_its_number_is_used_up() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"));
        let found = Found { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        assert!(adopt(&mut record, &found, 7));
        assert_eq!(record.next_incarnation, 4);
        assert!(!adopt(&mut record, &found, 8), "the second look finds it known");
        assert_eq!(record.instances.len(), 1);
    }

    #[test]
    fn a_number_past_all_numbers_does_not_begin_again_at_none() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"));
        adopt(&mut record, &Found { uid: "u", pod_name: "b-xxxxx", incarnation: u64::MAX, revision: "r" }, 7);
        record.end("u", 8, "why");
        assert_eq!(record.next_incarnation, u64::MAX);
    }

    #[test]
    fn a_manifest_whose_uid_was_changed_is_no_second_instance() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"));
        let ours = Found { uid: "u", pod_name: "b-xxxxx", incarnation: 3, revision: "r" };
        adopt(&mut record, &ours, 7);
        assert!(adopt(&mut record, &Found { uid: "v", ..ours }, 8));
        assert_eq!(record.live().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["u"]);
        assert_eq!(record.ending().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["v"]);
    }
}
