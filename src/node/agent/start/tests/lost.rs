//! State folders of which a part is lost.

use crate::core::validate;
use crate::node::agent::decide::tests;
use crate::node::checkpoint::DamageCause;

use super::*;

#[test]
fn manifests_without_remembered_inputs_were_made_from_some() {
    let node = TestNode::new();
    node.define("net", "i:1");
    assert!(!node.agent().state.inputs.coordination_unknown, "it is new");
    fs::remove_dir_all(node.path("state")).unwrap();
    let agent = node.agent();
    assert_eq!(node.manifests().len(), 1);
    assert!(agent.state.inputs.coordination_unknown, "what it has seen of the cluster is lost");
    drop(agent);
    fs::remove_dir_all(node.path("state")).unwrap();
    fs::remove_dir_all(node.path("m")).unwrap();
    assert!(!node.agent().state.inputs.coordination_unknown, "nothing tells of an agent before it");
}

#[test]
fn a_damaged_record_of_this_boot_may_have_recorded_a_hand_over() {
    let config = tests::config();
    let known = |mode: &str| {
        let mut value = tests::object("d", serde_json::json!({"daemonlet.dev/mode": mode}));
        (value["apiVersion"], value["kind"]) = ("apps/v1".into(), "DaemonSet".into());
        Arc::new(validate::daemon_set(&value, crate::core::model::Source::Api).unwrap())
    };
    for (mode, file, boot, expected) in [
        ("bootstrap", "kube-system_net.json", "b", true),
        ("static", "kube-system_net.json", "b", false),
        ("bootstrap", "kube-system_other.json", "b", false),
        ("bootstrap", "kube-system_net.json", "another", false),
    ] {
        let mut state = tests::state(&config);
        state.records.clear();
        state.inputs.boot = Some(boot.to_owned());
        state.inputs.daemon_sets.insert(tests::key(), known(mode));
        let path = Path::new("/s/daemons").join(file);
        let damaged = [Damaged { path, why: "is cut off".to_owned(), kept: None, cause: DamageCause::Broken }];
        let lost = add_lost_records(&mut state, 0);
        note_lost_hand_overs(&mut state, &lost, &damaged, "b");
        let noted = state.records[&tests::key()].hand_over.as_ref().is_some_and(HandOver::is_unknown);
        assert_eq!((noted, state.unsaved.contains(&tests::key())), (expected, expected), "{mode} {file} {boot}");
    }
}

#[test]
fn where_inputs_are_damaged_the_cluster_is_still_known_and_where_they_are_removed_any_may_answer() {
    let node = TestNode::new();
    node.define("x", "i");
    let mut agent = node.agent();
    agent.state.inputs.cluster_uid = Some("one".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(agent.pass());
    drop(agent);
    let inputs = node.path("state/inputs.json");
    fs::write(&inputs, "{").unwrap();
    let known = |agent: &Agent| (agent.state.inputs.cluster_uid.clone(), agent.state.inputs.history_unknown);
    assert_eq!(known(&node.agent()), (Some("one".to_owned()), true));
    fs::remove_file(&inputs).unwrap();
    assert_eq!(known(&node.agent()), (None, true));
    fs::write(&inputs, "{").unwrap();
    assert_eq!(known(&node.agent()), (None, true), "nor is it known afterwards");
}
