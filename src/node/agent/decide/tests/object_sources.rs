//! Which source of an object counts from pass to pass, and after a start.

use crate::node::agent::objects::Objects;
use crate::node::agent::observed_folders::ObservedFolders;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::agent::versioned_objects;
use crate::node::api::ScopeState;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;

use super::*;

/// An agent whose folder has a DaemonSet and the ConfigMap that it mounts; the API server may have that, too.
struct Node {
    config: Config,
    state: AgentState,
    folder: tempfile::TempDir,
    passes: i64,
}

/// What the API server says of the ConfigMap.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    Gone,
    Has(&'static str),
}

fn config_map() -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, "kube-system", "c")
}

impl Node {
    fn new() -> Self {
        let config = config();
        let mut state = state(&config);
        state.records.clear();
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = object("", json!({}));
        (daemon["apiVersion"], daemon["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
        daemon["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
        std::fs::write(folder.path().join("net.json"), daemon.to_string()).unwrap();
        Self { config, state, folder, passes: 0 }
    }

    fn write(&self, text: &str, annotations: &Value) {
        let file = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": text},
            "metadata": {"namespace": "kube-system", "name": "c", "annotations": annotations}});
        std::fs::write(self.folder.path().join("c.json"), file.to_string()).unwrap();
    }

    fn restart(&mut self) {
        self.state.inputs = RememberedInputs::restore(self.state.inputs.to_save(&[]), &self.state.records);
    }

    /// Whose data the daemon has after each of some passes.
    fn passes(&mut self, says: Says) -> Vec<String> {
        (0..3).map(|_| self.pass(says)).collect()
    }

    fn pass(&mut self, says: Says) -> String {
        self.passes += 1;
        let mut api = Snapshot::default();
        if let Says::Has(text) = says {
            // Of each content there is one version.
            let version = text.bytes().fold(0, |version, byte| version * 256 + u64::from(byte));
            let value = json!({"metadata": {"name": "c"}, "data": {"k": text}});
            api.objects.insert(config_map(), Entry { version, value: Arc::new(value) });
        }
        if !matches!(says, Says::Nothing) {
            api.scopes.insert(Scope::Object(config_map()), ScopeState { lists: 1, ..ScopeState::default() });
        }
        let mut observation = observation(Some(api));
        observation.now = Timestamp::from_millis(2_000_000 + self.passes * 1_000);
        let wall = std::time::SystemTime::now() + Duration::from_secs(3600);
        let look = ScanTime { steady: Duration::from_secs(9), wall, first: None };
        let dir = [self.folder.path().to_owned()];
        let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
        let objects = view.objects().map(|(reference, value)| (reference.clone(), Arc::clone(value))).collect();
        let objects = Arc::new(versioned_objects::restore(objects));
        observation.folders = ObservedFolders { view: Arc::new(view), objects, again_at: None };
        let decision = decided(&observation, &self.state, &self.config);
        assert!(decision.daemon(&key()).unwrap().references.contains(&config_map()));
        let outcome = EffectOutcome { records: [(key(), RecordFate::OnDisk)].into(), ..EffectOutcome::default() };
        self.state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
        let objects = Objects::today(&observation, &self.state.inputs, &self.state.policy);
        objects.entry(&config_map()).unwrap().value["data"]["k"].as_str().unwrap().to_owned()
    }
}

#[test]
fn what_was_deleted_in_the_api_does_not_come_back_where_a_folders_object_counts_again() {
    let mut node = Node::new();
    node.write("folder", &json!({}));
    assert_eq!(node.passes(Says::Has("api")), ["api"; 3]);
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["api"; 3], "the folder's is older");
    assert_eq!(node.passes(Says::Gone), ["folder"; 3], "it counts again");
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["folder"; 3], "also at a start without the API server");
    assert_eq!(node.passes(Says::Gone), ["folder"; 3]);
    assert_eq!(node.passes(Says::Has("api")), ["api"; 3]);
}

#[test]
fn an_object_that_overrides_gives_way_once_to_a_newer_version_of_the_api_and_comes_back_only_when_its_file_changes() {
    let (mut node, overrides) = (Node::new(), json!({"daemonlet.dev/override": "true"}));
    node.write("file-1", &overrides);
    assert_eq!(node.passes(Says::Has("api-1")), ["file-1"; 3]);
    assert_eq!(node.passes(Says::Has("api-2")), ["api-2"; 3], "it is newer, and nothing goes back");
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["api-2"; 3], "nor at a start without the API server");
    assert_eq!(node.passes(Says::Has("api-2")), ["api-2"; 3]);
    let file = node.folder.path().join("c.json");
    let text = std::fs::read(&file).unwrap();
    std::fs::write(&file, b"\xff").unwrap();
    assert_eq!(node.passes(Says::Nothing), ["api-2"; 3]);
    std::fs::write(&file, text).unwrap();
    assert_eq!(node.passes(Says::Nothing), ["api-2"; 3], "what could not be read has not changed");
    node.write("file-2", &overrides);
    assert_eq!(node.passes(Says::Nothing), ["file-2"; 3], "the owner wants this one now");
    assert_eq!(node.passes(Says::Has("api-2")), ["file-2"; 3], "of the same version as before");
    assert_eq!(node.passes(Says::Gone), ["file-2"; 3]);
    assert_eq!(node.passes(Says::Has("api-3")), ["api-3"; 3], "also where it is another object");
    assert_eq!(node.passes(Says::Gone), ["file-2"; 3]);
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["file-2"; 3]);
}

#[test]
fn what_the_api_deletes_under_an_override_does_not_come_back() {
    let (mut node, overrides) = (Node::new(), json!({"daemonlet.dev/override": "true"}));
    node.write("file-1", &overrides);
    assert_eq!(node.passes(Says::Has("api-1")), ["file-1"; 3]);
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["file-1"; 3]);
    assert_eq!(node.passes(Says::Gone), ["file-1"; 3]);
    node.restart();
    node.write("file-2", &json!({}));
    assert_eq!(node.passes(Says::Nothing), ["file-2"; 3], "it overrides no more, and nothing is before it");
    node.write("file-3", &overrides);
    assert_eq!(node.passes(Says::Has("api-1")), ["file-3"; 3]);
    assert_eq!(node.passes(Says::Gone), ["file-3"; 3]);
    assert_eq!(node.passes(Says::Has("api-1")), ["api-1"; 3], "another object, though it has the same");
}
