//! Which source of an object counts from pass to pass, and after a start.

use crate::core::model::Author;
use crate::core::policy::PodRules;
use crate::node::agent::objects::Objects;
use crate::node::agent::observed_folders::ObservedFolders;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::agent::versioned_objects;
use crate::node::api::ScopeState;
use crate::node::folders;
use crate::node::folders::FirstLook;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;

use super::*;

/// An agent whose folder has a DaemonSet and an object that it names; the API server may have that, too.
struct Node {
    object: ObjectRef,
    config: Config,
    state: AgentState,
    folder: tempfile::TempDir,
    passes: i64,
    is_before_kubelet: bool,
    link: Link,
    /// Whether the API server says that it has no DaemonSet, and the files rest.
    is_listed: bool,
    reported: String,
}

/// What the API server says of the object.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    Gone,
    Has(&'static str),
}

fn config_map() -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, "kube-system", "c")
}

/// Overlays that set an image.
fn overlays(image: &str) -> String {
    json!([{"nodes": {"matchLabels": {}}, "patch": {"spec": {"containers": [{"name": "c", "image": image}]}}}])
        .to_string()
}

impl Node {
    fn new() -> Self {
        Self::naming(config_map(), |daemon| {
            daemon["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
        })
    }

    fn naming(object: ObjectRef, name: impl FnOnce(&mut Value)) -> Self {
        let config = config();
        let mut state = state(&config);
        state.records.clear();
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = self::object("", json!({}));
        (daemon["apiVersion"], daemon["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
        let spec = &mut daemon["spec"]["template"]["spec"];
        (spec["hostNetwork"], spec["automountServiceAccountToken"]) = (json!(true), json!(false));
        name(&mut daemon);
        std::fs::write(folder.path().join("net.json"), daemon.to_string()).unwrap();
        Self {
            object,
            config,
            state,
            folder,
            passes: 0,
            is_before_kubelet: false,
            link: Link::Up,
            is_listed: false,
            reported: String::new(),
        }
    }

    /// Leaves the namespace among those of the policy, and trusts it no more.
    fn distrust(&mut self) {
        let rules = PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() };
        self.state.policy = Policy::default().with_rules(rules).into();
    }

    fn write(&self, text: &str, annotations: &Value) {
        let mut file = self.value(text);
        (file["apiVersion"], file["kind"]) = (json!("v1"), json!(self.object.kind.as_str()));
        (file["metadata"]["namespace"], file["metadata"]["annotations"]) = (json!("kube-system"), annotations.clone());
        std::fs::write(self.folder.path().join("c.json"), file.to_string()).unwrap();
    }

    fn value(&self, text: &str) -> Value {
        match self.object.kind {
            Kind::Secret => json!({"metadata": {"name": "c"}, "data": {"k": text}}),
            _ => json!({"metadata": {"name": "c"}, "data": {"k": text, "overlays.yaml": overlays(text)}}),
        }
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
        let of_node = json!({"metadata": {"name": "n1", "uid": "n"}});
        api.node = Some(Entry { version: 1, value: Arc::new(of_node) });
        if self.is_listed {
            api.scopes.entry(Scope::DaemonSets).or_default().lists = 1;
        }
        if let Says::Has(text) = says {
            // Of each content there is one version.
            let version = text.bytes().fold(0, |version, byte| version * 256 + u64::from(byte));
            api.objects.insert(self.object.clone(), Entry { version, value: Arc::new(self.value(text)) });
        }
        if !matches!(says, Says::Nothing) {
            api.scopes.insert(Scope::Object(self.object.clone()), ScopeState { lists: 1, ..ScopeState::default() });
        }
        let mut observation = observation(Some(api));
        observation.manifests = manifests_of(&self.state);
        (observation.is_before_kubelet, observation.steady) = (self.is_before_kubelet, Span::from_secs(60));
        observation.api.as_mut().unwrap().link = self.link.clone();
        observation.now = Timestamp::from_millis(2_000_000 + self.passes * 1_000);
        let wall = std::time::SystemTime::now() + Duration::from_secs(3600);
        let look =
            ScanTime { steady: Duration::from_secs(9), wall, first: self.is_listed.then_some(FirstLook::OfBoot) };
        let dir = [self.folder.path().to_owned()];
        let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
        let objects = view.objects().map(|(reference, value)| (reference.clone(), Arc::clone(value))).collect();
        let objects = Arc::new(versioned_objects::restore(objects));
        observation.folders = ObservedFolders { view: Arc::new(view), objects, again_at: None };
        let decision = decided(&observation, &self.state, &self.config);
        let planned = decision.daemon(&key()).unwrap();
        self.reported = planned.summary.reasons.to_string();
        assert!(planned.references.contains(&self.object), "{}", self.reported);
        let outcome = EffectOutcome { records: [(key(), RecordFate::OnDisk)].into(), ..EffectOutcome::default() };
        self.state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
        let objects = Objects::today(&observation, &self.state.inputs, &self.state.policy);
        let entry = objects.entry(&self.object);
        entry.map_or_else(String::new, |entry| entry.value["data"]["k"].as_str().unwrap().to_owned())
    }

    /// The one instance that runs.
    fn instance(&self) -> &Instance {
        let mut live = self.state.records[&key()].live();
        let instance = live.next().unwrap_or_else(|| panic!("{}", self.reported));
        assert!(live.next().is_none());
        instance
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

/// A DaemonSet that may do anything to the node and names `kind`, in a namespace that is not trusted.
fn privileged(kind: Kind, name: fn(&mut Value)) -> Node {
    let mut node = Node::naming(ObjectRef::new(kind, "kube-system", "c"), |daemon| {
        let spec = &mut daemon["spec"]["template"]["spec"];
        (spec["hostPID"], spec["containers"][0]["securityContext"]) = (json!(true), json!({"privileged": true}));
        name(daemon);
    });
    node.distrust();
    node
}

#[test]
fn who_writes_in_a_namespace_that_is_not_trusted_takes_over_no_object_of_a_folder() {
    fn of_volume(daemon: &mut Value, source: Value) {
        daemon["spec"]["template"]["spec"]["volumes"] = json!([source]);
    }
    for (kind, name) in [
        (
            Kind::ConfigMap,
            (|daemon| of_volume(daemon, json!({"name": "v", "configMap": {"name": "c"}}))) as fn(&mut Value),
        ),
        (Kind::Secret, |daemon| of_volume(daemon, json!({"name": "v", "secret": {"secretName": "c"}}))),
    ] {
        let mut node = privileged(kind, name);
        let object = node.object.clone();
        node.write("mine", &json!({}));
        assert_eq!(node.passes(Says::Gone), ["mine"; 3], "{object}");
        let uid = node.instance().uid.clone();
        for says in [Says::Has("evil"), Says::Has("more"), Says::Nothing, Says::Gone, Says::Has("evil")] {
            assert_eq!(node.passes(says), ["mine"; 3], "{object}");
            assert!(!node.state.inputs.objects.contains_key(&object), "{object} is remembered");
            node.restart();
        }
        assert_eq!(node.instance().uid, uid, "{object}: nothing ends for it");
        node.write("ours", &json!({}));
        assert_eq!(node.passes(Says::Has("evil")), ["ours"; 3], "{object}: the owner's change counts");
    }
}

#[test]
fn overlays_of_a_namespace_that_is_not_trusted_do_not_hold_up_the_node_owners() {
    for (text, first) in [("mine", Says::Gone), ("ours", Says::Has("evil"))] {
        let mut node = privileged(Kind::ConfigMap, |daemon| {
            daemon["metadata"]["annotations"] = json!({"daemonlet.dev/overlays": "c"});
        });
        node.write(text, &json!({}));
        for says in [first, Says::Has("evil"), Says::Nothing] {
            node.passes(says);
            let runs = node.instance().daemon_set.as_ref().unwrap();
            let overlays = runs.overlays.as_ref().unwrap();
            assert_eq!((overlays.patches.len(), runs.author()), (1, Author::NodeOwner));
            assert!(format!("{:?}", overlays.patches).contains(text), "{overlays:?}");
        }
    }
}

#[test]
fn what_waits_for_labels_of_the_node_asks_for_its_list_of_overlays() {
    let mut node = Node::naming(config_map(), |daemon| {
        daemon["metadata"]["annotations"] = json!({"daemonlet.dev/overlays": "c"});
    });
    // Only the manifest of what runs is known.
    let mut record = state(&node.config).records.remove(&key()).unwrap();
    (record.api_uid, record.instances[0].daemon_set) = (None, None);
    node.state.records.insert(key(), record);
    node.state.inputs.lost();
    (node.is_listed, node.config.kubeconfig) = (true, Some("/k".into()));
    node.pass(Says::Nothing);
    let waits = "labels that others may have yet to add to the Node";
    assert!(node.reported.contains(waits), "{}", node.reported);
}

#[test]
fn what_was_remembered_of_a_namespace_counts_no_more_once_that_is_not_trusted() {
    let mut node = Node::new();
    node.write("mine", &json!({}));
    assert_eq!(node.passes(Says::Has("theirs")), ["theirs"; 3]);
    let uid = node.instance().uid.clone();
    node.distrust();
    node.restart();
    assert_eq!(node.passes(Says::Nothing), ["mine"; 3]);
    assert_eq!(node.instance().uid, uid, "it gets the data of the folder, and stays");
    assert!(!node.state.inputs.objects.contains_key(&node.object), "{:?}", node.state.inputs.objects);
    assert_eq!(node.passes(Says::Has("theirs")), ["mine"; 3]);
    std::fs::remove_file(node.folder.path().join("c.json")).unwrap();
    assert_eq!(node.passes(Says::Has("theirs")), ["theirs"; 3], "the folder has none");
    assert_eq!(node.instance().uid, uid);
}

#[test]
fn a_first_instance_waits_some_seconds_for_the_api_servers_answer_about_optional_objects() {
    let optional = || {
        Node::naming(config_map(), |daemon| {
            let source = json!({"name": "c", "optional": true});
            daemon["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "configMap": source}]);
        })
    };
    // In how many passes, one in a second, it has started.
    let starts = |node: &mut Node, says: Says| {
        (1..=9).find(|_| {
            node.pass(says);
            node.state.records[&key()].live().next().is_some()
        })
    };
    let mut node = optional();
    node.passes(Says::Nothing);
    assert!(node.state.records[&key()].instances.is_empty(), "{}", node.reported);
    assert!(node.reported.contains("waits for ConfigMap kube-system/c"), "{}", node.reported);
    let uid = [Says::Has("api"), Says::Has("api")].map(|says| {
        assert_eq!(node.pass(says), "api");
        node.instance().uid.clone()
    });
    assert_eq!(uid[0], uid[1]);
    assert_eq!(starts(&mut optional(), Says::Gone), Some(1));
    assert_eq!(starts(&mut optional(), Says::Nothing), Some(6), "it does not answer");
    let before_kubelet = &mut Node { is_before_kubelet: true, ..optional() };
    assert_eq!(starts(before_kubelet, Says::Nothing), Some(1), "a boot waits for nothing");
    let away = &mut Node { link: Link::Connecting, ..optional() };
    assert_eq!(starts(away, Says::Nothing), Some(1), "it has been away for a minute");
}
