use serde_json::json;

use super::*;
use crate::core::model::Kind;
use crate::core::record::DaemonRecord;
use crate::core::record::Good;
use crate::core::time::at;
use crate::node::agent::versioned_objects::Values;

/// A memory with a Secret in use, and a Secret and a ConfigMap that were kept.
fn remembered_inputs() -> RememberedInputs {
    let reference = |kind, name: &str| ObjectRef::new(kind, "ns", name);
    let used = vec![(reference(Kind::Secret, "a"), json!({"data": {"k": "used"}}))];
    let rollback_data = vec![
        (reference(Kind::ConfigMap, "c"), json!({"data": {"k": "open"}})),
        (reference(Kind::Secret, "a"), json!({"data": {"k": "kept"}})),
    ];
    let daemon = ObjectKey::new("ns", "d");
    RememberedInputs {
        objects: versioned_objects::restore(used),
        unread: [reference(Kind::ConfigMap, "no-room")].into(),
        rollback_data: RollbackDataOf::from([(
            daemon,
            RollbackData { revision: "good".to_owned(), objects: versioned_objects::restore(rollback_data) },
        )]),
        ..RememberedInputs::default()
    }
}

fn values(remembered_inputs: &RememberedInputs) -> Values {
    remembered_inputs
        .rollback_data
        .values()
        .flat_map(|rollback_data| versioned_objects::values(&rollback_data.objects))
        .collect()
}

/// Records of which `revision` was good with the data that is kept.
fn records(revision: &str) -> Records {
    let (daemon, revision) = (ObjectKey::new("ns", "d"), revision.to_owned());
    let good =
        Good { revision, data_version: String::new(), has_rollback_data: true, candidate: None, daemon_set: None };
    let record = DaemonRecord { good: Some(good), ..DaemonRecord::new(daemon.clone(), 0) };
    Records::from([(daemon, record)])
}

#[test]
fn what_is_sealed_is_nowhere_else_and_comes_back_whole() {
    let (remembered_inputs, records) = (remembered_inputs(), records("good"));
    let mut saved = remembered_inputs.to_save(&[]);
    assert!(saved.has_secrets());
    let secrets = saved.take_secrets(&remembered_inputs.rollback_data);
    assert!(!saved.has_secrets());
    let text = serde_json::to_string(&saved).unwrap();
    assert!(!text.contains("used") && !text.contains("{\"k\":\"kept\"}"), "{text}");
    let mut again = RememberedInputs::restore(saved, &records);
    assert!(again.rollback_data.is_empty());
    let closed = again.fingerprint(0);
    again.take(secrets, &records);
    assert_eq!(values(&again), values(&remembered_inputs));
    assert_eq!(again.unread, remembered_inputs.unread);
    assert_eq!(versioned_objects::values(&again.objects), versioned_objects::values(&remembered_inputs.objects));
    assert_ne!(again.fingerprint(0), closed);
}

#[test]
fn what_the_api_server_said_while_the_state_folder_could_not_be_used_counts() {
    let (c, s) = (ObjectRef::new(Kind::ConfigMap, "ns", "c"), ObjectRef::new(Kind::Secret, "ns", "s"));
    let of = |cluster: &str, sealed: bool, text: &str| SavedInputs {
        cluster_uid: Some(cluster.to_owned()),
        sealed,
        objects: vec![(c.clone(), json!(text).into()), (s.clone(), json!(text).into())],
        ..SavedInputs::default()
    };
    for (cluster, sealed, expected) in
        [("one", false, ["new", "new"]), ("one", true, ["new", "old"]), ("two", false, ["old", "old"])]
    {
        let mut saved = of("one", sealed, "old");
        let clocks = Boot::new("b".to_owned(), at(1));
        saved.overlay(SavedInputs { clocks: clocks.clone(), ..of(cluster, false, "new") });
        assert_eq!(saved.clocks, clocks, "whichever cluster it is");
        let found: BTreeMap<_, _> = saved.objects.into_iter().collect();
        assert_eq!([&*found[&c], &*found[&s]], expected.map(|text| json!(text)).each_ref(), "{cluster} {sealed}");
    }
}

#[test]
fn data_of_another_revision_is_not_taken_for_that_of_the_good_one() {
    let remembered_inputs = remembered_inputs();
    let mut saved = remembered_inputs.to_save(&[]);
    let secrets = saved.take_secrets(&remembered_inputs.rollback_data);
    let mut again = RememberedInputs::restore(saved, &records("another"));
    again.take(secrets, &records("another"));
    assert!(again.rollback_data.is_empty());
}

#[test]
fn kubelet_versions_in_the_wild() {
    for (version, expected) in
        [("v1.36.2", Some((1, 36))), ("1.35+", Some((1, 35))), ("v1.34.1-eks-abc", Some((1, 34))), ("x", None)]
    {
        assert_eq!(major_minor(version), expected, "{version}");
    }
}

#[test]
fn a_node_is_read_with_what_decides() {
    let node = node_view(&serde_json::json!({
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
        "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}
    }));
    assert!(node.registered && node.taints.len() == 1 && node.labels["a"] == "b");
    assert_eq!(node.kubelet_version.as_deref(), Some("v1.36.2"));
}

#[test]
fn it_is_remembered_when_the_node_was_registered_anew() {
    let node = |uid: &str, label: &str| NodeView {
        uid: Some(uid.to_owned()),
        labels: [("a".to_owned(), label.to_owned())].into(),
        ..NodeView::default()
    };
    let mut inputs = RememberedInputs::default();
    let at = crate::core::time::at;
    inputs.follow_node(node("u", "b"), None, at(1_000), true);
    inputs.follow_node(node("u", "c"), None, at(2_000), true);
    assert_eq!(inputs.node_since, None, "a first sight and another label are no registration");
    let mut lost = RememberedInputs { incomplete: true, ..RememberedInputs::default() };
    lost.follow_node(node("u", "b"), None, at(1_000), true);
    assert_eq!(lost.node_since, Some(at(1_000)), "it may have been registered anew");
    for (created, since) in [(699_000, None), (701_000, Some(at(1_000_000)))] {
        let mut lost = RememberedInputs { incomplete: true, ..RememberedInputs::default() };
        lost.follow_node(node("u", "b"), Some(at(created)), at(1_000_000), true);
        assert_eq!(lost.node_since, since, "it was registered at {created}");
    }
    let before = inputs.fingerprint(0);
    inputs.follow_node(node("v", "c"), None, at(3_000), true);
    inputs.follow_node(node("v", "d"), None, at(4_000), true);
    assert_eq!(inputs.node_since, Some(at(3_000)));
    assert_ne!(inputs.fingerprint(0), before);
    let mut restored = RememberedInputs::restore(inputs.to_save(&[]), &Records::new());
    assert_eq!(restored.node_since, Some(at(3_000)), "also after a restart of the agent");
    restored.follow_node(node("v", "d"), None, at(400_000), false);
    assert_eq!(restored.node_since, Some(at(3_000)), "nothing has shown it since");
    let mut earlier = RememberedInputs { cluster_uid: None, ..RememberedInputs::default() };
    earlier.follow_node(node("u", "b"), None, at(1_000), true);
    let mut saved = earlier.to_save(&[]);
    saved.overlay(restored.to_save(&[]));
    let mut merged = RememberedInputs::restore(saved, &Records::new());
    merged.follow_node(node("v", "d"), None, at(5_000), true);
    assert_eq!(merged.node_since, Some(at(5_000)), "also where what another process remembers comes between");
    restored.follow_node(node("v", "d"), None, at(400_000), true);
    assert_eq!(restored.node_since, None, "the API server has shown it some minutes later");
}

#[test]
fn what_cannot_be_put_in_json_does_not_keep_the_rest_from_being_saved() {
    use std::os::unix::ffi::OsStrExt;
    let mut saved = remembered_inputs().to_save(&[]);
    let whole = saved.clone();
    let daemon_set = crate::node::agent::decide::tests::daemon_set();
    let path = std::ffi::OsStr::from_bytes(b"/etc/br\xfccke.yaml").into();
    let source = crate::core::model::Source::File { path };
    saved.daemon_sets.push(Arc::new(DaemonSet { source, ..DaemonSet::clone(&daemon_set) }));
    saved.daemon_sets.push(Arc::clone(&daemon_set));
    assert!(serde_json::to_string(&saved).is_err());
    assert_eq!(saved.drop_unencodable(), [format!("DaemonSet {}", daemon_set.key)]);
    assert_eq!(saved, SavedInputs { daemon_sets: vec![daemon_set], ..whole });
    assert!(serde_json::to_string(&saved).is_ok());
}

#[test]
fn what_is_in_use_and_kept_for_a_roll_back_is_in_memory_once_after_a_start_too() {
    let mut inputs = remembered_inputs();
    let reference = |kind, name| ObjectRef::new(kind, "ns", name);
    let config_map = reference(Kind::ConfigMap, "c");
    let kept = inputs.rollback_data.values().next().unwrap().objects[&config_map].clone();
    inputs.objects.insert(config_map.clone(), kept);
    let text = serde_json::to_string(&inputs.to_save(&[])).unwrap();
    let restored = RememberedInputs::restore(serde_json::from_str(&text).unwrap(), &records("good"));
    let kept = &restored.rollback_data.values().next().unwrap().objects;
    let secret = reference(Kind::Secret, "a");
    let is_one = |object| Arc::ptr_eq(&restored.objects[object].value, &kept[object].value);
    assert!(is_one(&config_map) && !is_one(&secret));
    assert_eq!(kept[&secret].value, json!({"data": {"k": "kept"}}).into());
}

#[test]
fn what_the_api_server_said_to_be_gone_is_remembered_while_it_is_in_use() {
    use crate::node::api::Entry;
    use crate::node::api::ScopeState;
    let reference = |name: &str| ObjectRef::new(Kind::ConfigMap, "ns", name);
    let shows = |listed: &[&str], present: &[&str]| {
        let mut api = Snapshot::default();
        for name in listed {
            let listed = ScopeState { lists: 1, ..ScopeState::default() };
            api.scopes.insert(Scope::Object(reference(name)), listed);
        }
        let entry = || Entry { version: 1, value: json!({}).into() };
        api.objects.extend(present.iter().map(|name| (reference(name), entry())));
        api
    };
    let follow = |inputs: &mut RememberedInputs, api: &Snapshot, used: &[&str]| {
        let used = used.iter().map(|name| reference(name)).collect();
        inputs.follow(api, &BTreeMap::new(), &used, |_| false, &Versioned::new(), |_| false);
        inputs.absent.iter().map(|object| object.key.name.clone()).collect::<Vec<_>>()
    };
    let mut inputs = RememberedInputs::default();
    let before = inputs.fingerprint(0);
    assert_eq!(follow(&mut inputs, &shows(&["a", "b", "c"], &["b"]), &["a", "b", "d"]), ["a"]);
    assert_ne!(inputs.fingerprint(0), before);
    let text = serde_json::to_string(&inputs.to_save(&[])).unwrap();
    let mut again = RememberedInputs::restore(serde_json::from_str(&text).unwrap(), &Records::new());
    assert_eq!(again.absent, inputs.absent, "over a restart");
    assert_eq!(follow(&mut again, &shows(&[], &[]), &["a", "b"]), ["a"], "nothing new is said");
    assert_eq!(follow(&mut again.clone(), &shows(&[], &[]), &["b"]), [""; 0], "nothing uses it");
    assert_eq!(follow(&mut again, &shows(&["a"], &["a"]), &["a"]), [""; 0], "it is there");
    let without = serde_json::to_string(&RememberedInputs::default().to_save(&[])).unwrap();
    assert!(!without.contains("absent"), "state of a version that does not know it is read");
}

#[test]
fn what_came_to_be_while_the_state_folder_could_not_be_used_is_absent_no_more() {
    let object = |name: &str| ObjectRef::new(Kind::ConfigMap, "ns", name);
    let absent = |names: &[&str]| names.iter().map(|name| object(name)).collect::<BTreeSet<_>>();
    let mut saved = SavedInputs { absent: absent(&["a", "b"]), ..SavedInputs::default() };
    let objects = vec![(object("a"), json!({}).into())];
    saved.overlay(SavedInputs { objects, absent: absent(&["c"]), ..SavedInputs::default() });
    assert_eq!(saved.absent, absent(&["b", "c"]));
}

#[test]
fn a_file_that_does_not_say_whether_all_is_known_is_damaged() {
    let whole = json!(remembered_inputs().to_save(&[]));
    assert!(serde_json::from_value::<SavedInputs>(whole.clone()).is_ok());
    for field in ["sealed", "incomplete", "coordinated", "coordinationUnknown", "historyUnknown"] {
        let mut lacking = whole.clone();
        assert!(lacking.as_object_mut().unwrap().remove(field).is_some(), "{field} is written");
        assert!(serde_json::from_value::<SavedInputs>(lacking).is_err(), "{field}");
    }
}
