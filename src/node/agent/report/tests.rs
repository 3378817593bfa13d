//! What is reported of a pass.

use std::time::Duration;

use serde_json::json;

use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::record::DaemonRecord;
use crate::core::status::LeftAloneCause;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::manifests_of;
use crate::node::agent::decide::tests::object;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::decision::Decision;
use crate::node::agent::observed_folders::ObservedFolders;
use crate::node::agent::versioned_objects;
use crate::node::api::Definition;
use crate::node::api::Entry;
use crate::node::api::Snapshot;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;

use super::*;

#[test]
fn the_author_of_a_misspelt_mode_reads_of_it_wherever_the_node_is_asked_and_nothing_is_done() {
    let config = config();
    let mut known = state(&config);
    known.records.clear();
    let mut api = Snapshot::default();
    let mut add = |name: &str, mode: &str, change: fn(&mut Value)| {
        let mut object = object("d", json!({"daemonlet.dev/mode": mode}));
        object["metadata"]["name"] = json!(name);
        change(&mut object);
        api.daemon_sets.insert(ObjectKey::new("kube-system", name), Definition::of(&object, 1));
    };
    for name in ["net", "x-1", "x-2", "x-3"] {
        add(name, "statik", |_| {});
    }
    let invalid = |object: &mut Value| object["spec"]["template"] = json!(7);
    add("x-4", "statik", invalid);
    add("x-5", "static", invalid);
    let observation = observation(Some(api));
    let decision = decided(&observation, &known, &config);
    assert!(decision.plan.daemons.is_empty(), "{:?}", decision.plan.daemons);
    let look = |decision: &Decision| {
        let last =
            LastPass { observation: observation.clone(), plan: Arc::clone(&decision.plan), ..LastPass::default() };
        let view = ReportInputs { config: &config, state: &decision.state, last: &last, api: None };
        (view.plan_report(), view.left_alone(), view.explain(&key()))
    };
    let (plan, left_alone, explained) = look(&decision);
    assert!(plan.changes.is_empty() && plan.held.is_empty(), "{plan:?}");
    for alone in [plan.left_alone, left_alone.clone()] {
        let [alone] = alone.as_slice() else { panic!("{alone:?}") };
        assert_eq!((alone.cause, alone.count), (LeftAloneCause::UnknownMode, 5), "one of them is invalid besides");
        assert_eq!(alone.daemon_sets, ["kube-system/net", "kube-system/x-1", "kube-system/x-2"]);
        assert!(alone.hint.starts_with("the modes are static and bootstrap: kubectl "), "{}", alone.hint);
    }
    let status = explained.status.expect("it is known");
    assert_eq!((status.state, status.reason.as_str()), (State::LeftAlone, "unknown mode"));
    assert!(status.hints[0].contains("daemonset net "), "{:?}", status.hints);
    assert!(
        explained.problems[0].reason.contains("\"statik\" is neither static nor bootstrap"),
        "{:?}",
        explained.problems
    );

    // A node that has run it, and of which nothing is left, says the same.
    known.records.insert(key(), DaemonRecord { api_uid: Some("d".to_owned()), ..DaemonRecord::new(key(), 7) });
    let decision = decided(&observation, &known, &config);
    let planned = &decision.daemon(&key()).expect("it has a record").summary;
    assert_eq!((planned.state, &planned.source), (crate::core::plan::State::LeftAlone, &None), "{planned:?}");
    let (plan, again, explained) = look(&decision);
    assert!(plan.changes.is_empty() && plan.held.is_empty() && again == left_alone, "{plan:?} {again:?}");
    assert_eq!(explained.status.map(|status| status.state), Some(State::LeftAlone));
}

#[test]
fn an_override_with_a_slip_on_a_folders_object_is_named_though_the_apis_counts() {
    let config = config();
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = object("", json!({}));
    (daemon["apiVersion"], daemon["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
    let spec = &mut daemon["spec"]["template"]["spec"];
    (spec["hostNetwork"], spec["automountServiceAccountToken"]) = (json!(true), json!(false));
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
    let metadata = json!({"name": "c", "namespace": "kube-system", "annotations": {"daemonlet.dev/overide": "true"}});
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "folder"}});
    std::fs::write(folder.path().join("net.json"), daemon.to_string()).unwrap();
    std::fs::write(folder.path().join("c.json"), config_map.to_string()).unwrap();
    let mut api = Snapshot::default();
    let of_api = json!({"metadata": {"name": "c"}, "data": {"k": "api"}});
    let reference = ObjectRef::new(Kind::ConfigMap, "kube-system", "c");
    api.objects.insert(reference, Entry { version: 1, value: Arc::new(of_api) });
    let of_node = json!({"metadata": {"name": "n1", "uid": "n"}});
    api.node = Some(Entry { version: 1, value: Arc::new(of_node) });
    let mut known = state(&config);
    known.records.clear();
    let mut observation = observation(Some(api));
    observation.manifests = manifests_of(&known);
    let wall = std::time::SystemTime::now() + Duration::from_secs(3600);
    let look = ScanTime { steady: Duration::from_secs(9), wall, first: None };
    let dir = [folder.path().to_owned()];
    let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
    let objects = view.objects().map(|(reference, value)| (reference.clone(), Arc::clone(value))).collect();
    let objects = Arc::new(versioned_objects::restore(objects));
    observation.folders = ObservedFolders { view: Arc::new(view), objects, again_at: None };
    let decision = decided(&observation, &known, &config);
    let last = LastPass { observation, plan: Arc::clone(&decision.plan), ..LastPass::default() };
    let view = ReportInputs { config: &config, state: &decision.state, last: &last, api: None };
    let status = view.explain(&key()).status.expect("it is planned");
    let slip = format!(
        "{}: ConfigMap kube-system/c: metadata.annotations[daemonlet.dev/overide]: it has no meaning on a ConfigMap \
         (hint: did you mean daemonlet.dev/override?)",
        folder.path().join("c.json").display()
    );
    assert!(status.notes.contains(&slip), "{status:?}");
}
