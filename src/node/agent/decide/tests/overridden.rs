//! A DaemonSet that the API server deletes while a folder's overrides it.

use crate::core::sources::Confirmation;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::api::Definition;
use crate::node::api::ScopeState;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;

use super::*;

struct OverridingNode {
    config: Config,
    state: AgentState,
    folder: tempfile::TempDir,
    passes: i64,
}

/// What the API server says of the DaemonSet.
#[derive(Clone, Copy, PartialEq)]
enum OverriddenSays {
    Nothing,
    Gone,
    Has(&'static str),
}

impl OverridingNode {
    fn new() -> Self {
        let config = config();
        let state = state(&config);
        Self { config, state, folder: tempfile::tempdir().unwrap(), passes: 0 }
    }

    fn write(&self, image: &str, overrides: bool) {
        let mut file = object("", json!({}));
        (file["apiVersion"], file["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
        file["metadata"]["annotations"] = json!({"daemonlet.dev/override": overrides.to_string()});
        file["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        std::fs::write(self.folder.path().join("net.json"), file.to_string()).unwrap();
    }

    fn empty(&self) {
        std::fs::write(self.folder.path().join("net.json"), "").unwrap();
    }

    /// The instance was made from the file.
    fn run_the_files(&mut self) {
        let path = self.folder.path().join("net.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let file = validate::daemon_set(&serde_json::from_str(&text).unwrap(), DefinedIn::File { path }).unwrap();
        let record = self.state.records.get_mut(&key()).unwrap();
        record.instances.iter_mut().for_each(|instance| instance.daemon_set = Some(Arc::new(file.clone())));
    }

    /// Whose definition counts after some passes in which the API server answers every question, and whether something
    /// ends.
    fn passes(&mut self, says: OverriddenSays) -> (&'static str, bool) {
        let (mut replies, mut ends, mut of) = (Vec::new(), false, "nothing");
        for _ in 0..3 {
            self.passes += 1;
            let mut api = Snapshot::default();
            if let OverriddenSays::Has(image) = says {
                let mut object = object("d", json!({"daemonlet.dev/mode": "static"}));
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                let version = image.bytes().fold(0, |version, byte| version * 256 + u64::from(byte));
                api.daemon_sets.insert(key(), Definition::of(&object, version));
            }
            if says != OverriddenSays::Nothing {
                for scope in [Scope::DaemonSets, Scope::Pods] {
                    api.scopes.insert(scope, ScopeState { lists: 1, ..ScopeState::default() });
                }
            }
            let mut observation = observation(Some(api));
            observation.now = Timestamp::from_millis(2_000_000 + self.passes * 1_000);
            observation.manifests = manifests_of(&self.state);
            observation.replies = std::mem::take(&mut replies);
            let wall = std::time::SystemTime::now() + Duration::from_secs(3600);
            let look = ScanTime { steady: Duration::from_secs(9), wall, first: None };
            let dir = [self.folder.path().to_owned()];
            let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
            observation.folders.view = Arc::new(view);
            let decision = decided(&observation, &self.state, &self.config);
            for request in &decision.requests {
                if let Request::ConfirmRemoval { key, about, cluster, .. } = request {
                    let (key, about, cluster) = (key.clone(), *about, cluster.clone());
                    let confirmation = Confirmation::Gone;
                    replies.push(Reply::RemovalConfirmed { key, about, cluster, confirmation });
                }
            }
            let daemon = decision.daemon(&key()).unwrap();
            // What replaces it ends it to return.
            ends |= daemon.record.live().next().is_none() && !daemon.record.has_ended_to_return();
            of = match &daemon.summary.source {
                Some(DefinedIn::Api) => "api",
                Some(_) => "file",
                None => "nothing",
            };
            let outcome = EffectOutcome { records: [(key(), RecordFate::OnDisk)].into(), ..EffectOutcome::default() };
            self.state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
            self.state.inputs = RememberedInputs::restore(self.state.inputs.to_save(&[]), &self.state.records);
        }
        (of, ends)
    }
}

#[test]
fn what_was_deleted_under_an_override_is_over_once_a_get_says_so() {
    let mut node = OverridingNode::new();
    node.write("i:1", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("file", false));
    assert_eq!(node.passes(OverriddenSays::Gone), ("file", false));
    assert_eq!((&node.state.records[&key()].api_uid, node.state.inputs.daemon_sets.len()), (&None, 0));
    let mut offline =
        OverridingNode { config: config(), state: node.state.clone(), folder: tempfile::tempdir().unwrap(), passes: 9 };
    offline.write("i:2", false);
    assert_eq!(offline.passes(OverriddenSays::Nothing), ("file", false), "the deleted version does not come back");
    node.write("i:1", false);
    assert_eq!(node.passes(OverriddenSays::Gone), ("file", false), "the file goes on alone");
}

#[test]
fn what_the_api_has_after_it_deleted_what_a_file_overrode_is_newer() {
    let mut node = OverridingNode::new();
    node.write("i:2", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("file", false));
    assert_eq!(node.passes(OverriddenSays::Gone), ("file", false));
    assert_eq!(node.passes(OverriddenSays::Nothing), ("file", false));
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("api", false));
    node.write("i:3", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("file", false), "the file has changed");
}

#[test]
fn what_runs_by_an_override_stays_while_its_file_is_empty_until_the_api_has_something_newer() {
    let mut node = OverridingNode::new();
    node.write("i:2", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("file", false));
    node.run_the_files();
    node.empty();
    for says in [OverriddenSays::Has("i:1"), OverriddenSays::Nothing, OverriddenSays::Has("i:1")] {
        assert_eq!(node.passes(says), ("file", false));
    }
    assert_eq!(node.passes(OverriddenSays::Has("i:3")), ("api", false));
    assert_eq!(node.passes(OverriddenSays::Has("i:3")), ("api", false), "the file does not come back");
}

#[test]
fn a_file_that_gave_way_and_is_emptied_for_a_while_does_not_come_back() {
    let mut node = OverridingNode::new();
    node.write("i:2", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:1")), ("file", false));
    assert_eq!(node.passes(OverriddenSays::Has("i:3")), ("api", false));
    node.empty();
    assert_eq!(node.passes(OverriddenSays::Has("i:3")), ("api", false));
    node.write("i:2", true);
    assert_eq!(node.passes(OverriddenSays::Has("i:3")), ("api", false));
}
