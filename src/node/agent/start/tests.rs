//! Agents that start on what they find.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::Taint;
use crate::core::plan::Action;
use crate::core::plan::State;
use crate::core::render::Endpoint;
use crate::core::set_aside::DefinitionVersion;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::boot::Boot;
use crate::node::agent::configured::render_options;
use crate::node::agent::decide::tests::config;
use crate::node::socket::SocketOperation;

use super::*;

mod lost;
mod state_folder;

/// A node of which everything is below one folder.
struct TestNode {
    root: tempfile::TempDir,
}

impl TestNode {
    fn new() -> Self {
        let node = Self { root: tempfile::tempdir().unwrap() };
        for folder in ["ds", "kubelet"] {
            fs::create_dir(node.path(folder)).unwrap();
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn define(&self, name: &str, image: &str) {
        let text = format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}, namespace: a}}\nspec:\n  selector: \
             {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec: \
             {{automountServiceAccountToken: false, containers: [{{name: c, image: \"{image}\"}}]}}\n"
        );
        fs::write(self.path("ds").join(format!("{name}.yaml")), text).unwrap();
    }

    /// An agent that starts and makes a pass.
    fn agent(&self) -> Agent {
        let file = self.path("c.toml");
        let root = self.root.path().display();
        let folders = format!("folders = [\"{root}/ds\"]\nmanifest-dir = \"{root}/m\"\nstate-dir = \"{root}/state\"\n");
        let own = format!("run-dir = \"{root}/run\"\nkubelet-root = \"{root}/kubelet\"\nruntime-endpoint = \"\"\n");
        let text =
            format!("node-name = \"n1\"\nkubeconfig = \"\"\n{folders}{own}[node]\nkubelet-version = \"v1.36.2\"\n");
        fs::write(&file, text).unwrap();
        let config = crate::config::load(Some(&file)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut agent = Agent::new(config, Arc::new(Notifier::from_environment())).unwrap();
            agent.pass().await;
            agent
        })
    }

    /// The manifests in the kubelet's folder, with the numbers of their instances.
    fn manifests(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.path("m")).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let number = text.lines().find_map(|l| l.trim().strip_prefix("daemonlet.dev/incarnation: "));
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(name, number.unwrap().trim_matches(['"', '\'']).parse().unwrap());
        }
        found
    }

    fn number_of(&self, name: &str) -> u64 {
        let prefix = format!("a_{name}-");
        let found: Vec<u64> =
            self.manifests().iter().filter(|(f, _)| f.starts_with(&prefix)).map(|(_, n)| *n).collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", self.manifests());
        found[0]
    }

    fn remove_manifest(&self, name: &str) {
        let file = self.manifests().into_keys().find(|file| file.starts_with(&format!("a_{name}-"))).unwrap();
        fs::remove_file(self.path("m").join(file)).unwrap();
    }
}

/// The daemons that wait.
fn waiting(agent: &Agent) -> Vec<ObjectKey> {
    let daemons = agent.last.plan.daemons.iter();
    daemons.filter(|daemon| daemon.summary.state == State::Waiting).map(|daemon| daemon.key.clone()).collect()
}

fn texts(agent: &Agent) -> Vec<String> {
    agent.last.problems.iter().map(|problem| problem.reason.clone()).collect()
}

#[test]
fn a_manifest_that_another_folder_hides_is_not_said_to_be_removed() {
    let node = TestNode::new();
    node.define("net", "i");
    let mut agent = node.agent();
    fs::rename(node.path("m"), node.path("hidden")).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(agent.pass());
    let record = format!("{:?}", agent.last.plan.daemons[0].record);
    assert!(record.contains("its manifest is not in the manifest folder any more"), "{record}");
}

#[test]
fn after_its_inputs_are_lost_an_agent_does_not_know_whether_the_cluster_has_approvals() {
    let node = TestNode::new();
    node.define("x", "i");
    assert!(!node.agent().state.inputs.coordination_unknown, "nothing was remembered before");
    assert!(!node.agent().state.inputs.coordination_unknown);
    let file = node.path("state/inputs.json");
    assert!(file.exists());
    fs::write(&file, "{").unwrap();
    assert!(node.agent().state.inputs.coordination_unknown);
}

#[test]
fn a_damaged_record_touches_no_other_daemon_and_its_numbers_are_not_used_again() {
    type Spoil = (&'static str, fn(&Path));
    let spoils: [Spoil; 6] = [
        ("folder", |file| fs::create_dir_all(file.join("x")).unwrap()),
        ("fifo", |file| nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRUSR).unwrap()),
        ("empty", |file| fs::write(file, "").unwrap()),
        ("zeros", |file| fs::write(file, [0; 512]).unwrap()),
        ("other format", |file| fs::write(file, "daemonlet-checkpoint/9 sha256:x\n{}\n").unwrap()),
        ("dangling link", |file| symlink("/nowhere", file).unwrap()),
    ];
    for (name, spoil) in spoils {
        let node = TestNode::new();
        node.define("net", "i:1");
        node.define("log", "i:1");
        drop(node.agent());
        assert_eq!((node.number_of("net"), node.number_of("log")), (0, 0), "{name}");
        let log = node.manifests().into_keys().find(|file| file.starts_with("a_log-")).unwrap();
        let record = node.path("state/daemons/a_net.json");
        fs::remove_file(&record).unwrap();
        spoil(&record);
        node.remove_manifest("net");
        drop(node.agent());
        // The bound: 1 above the highest number, and 1,000 more.
        assert_eq!((node.number_of("net"), node.number_of("log")), (1_001, 0), "{name}");
        assert!(node.manifests().contains_key(&log), "{name}");
        // An agent that dies before it has a record, and the next one.
        fs::remove_file(&record).unwrap();
        node.remove_manifest("net");
        node.define("new", "i:1");
        drop(node.agent());
        assert_eq!(node.number_of("new"), 1_001, "{name}: what was lost is lost for every name");
    }
}

#[test]
fn where_the_floor_is_lost_numbers_go_on_far_above_all_that_are_known() {
    for damage in [None, Some("x")] {
        let node = TestNode::new();
        node.define("net", "i:1");
        drop(node.agent());
        assert_eq!(node.number_of("net"), 0, "as `render` has it");
        let floor = node.path("state/floor.json");
        let text = fs::read_to_string(&floor).unwrap();
        assert!(text.contains("\"bound\":1001"), "{text}");
        fs::remove_file(&floor).unwrap();
        if let Some(damage) = damage {
            fs::write(&floor, damage).unwrap();
        }
        node.define("new", "i:1");
        drop(node.agent());
        assert_eq!((node.number_of("net"), node.number_of("new")), (0, 1_000_001), "{damage:?}");
        let text = fs::read_to_string(&floor).unwrap();
        assert!(text.contains("\"nextIncarnation\":1000001"), "{text}");
        // The whole state folder: what manifests show.
        fs::remove_dir_all(node.path("state")).unwrap();
        node.define("third", "i:1");
        drop(node.agent());
        assert_eq!(node.number_of("third"), 2_000_002, "{damage:?}");
    }
}

#[test]
fn the_first_pass_knows_the_address_that_the_kubeconfig_has() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let context = "contexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n";
    let clusters = "clusters: [{name: k, cluster: {server: \"https://10.0.0.1:6443\"}}]\ncurrent-context: c\n";
    std::fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\n{context}{clusters}")).unwrap();
    let mut config = config();
    assert_eq!(render_options(&config, false).api_endpoint, None);
    config.kubeconfig = Some(kubeconfig);
    let of_kubeconfig = Endpoint { host: "10.0.0.1".to_owned(), port: 6443 };
    assert_eq!(render_options(&config, false).api_endpoint, Some(of_kubeconfig));
    let own = Endpoint { host: "api.example".to_owned(), port: 443 };
    config.api_endpoint = Some(own.clone());
    assert_eq!(render_options(&config, false).api_endpoint, Some(own));
}

#[test]
fn a_file_that_is_half_written_when_an_agent_starts_replaces_nothing() {
    let inputs = |node: &TestNode| node.path("state/inputs.json");
    type Spoil = fn(&TestNode, &[u8]);
    let cases: [(&str, Spoil); 3] = [
        ("as it was", |_, _| ()),
        ("without inputs", |node, _| fs::remove_file(node.path("state/inputs.json")).unwrap()),
        ("with older inputs", |node, older| fs::write(node.path("state/inputs.json"), older).unwrap()),
    ];
    for (name, spoil) in cases {
        let node = TestNode::new();
        node.define("net", "i:0");
        drop(node.agent());
        let older = fs::read(inputs(&node)).unwrap();
        fs::remove_dir_all(node.path("state")).unwrap();
        fs::remove_dir_all(node.path("m")).unwrap();
        node.define("net", "i:1");
        drop(node.agent());
        let before = node.manifests();
        spoil(&node, &older);
        node.define("net", "i:2");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..2 {
            let mut agent = node.agent();
            runtime.block_on(agent.pass());
            assert_eq!(node.manifests(), before, "{name}");
            let changes = agent.view().plan_report().changes;
            let pending = changes.iter().filter(|change| change.action.starts_with("read "));
            assert_eq!(pending.count(), usize::from(name != "without inputs"), "{name}: {changes:?}");
        }
        let mut agent = node.agent();
        std::thread::sleep(Duration::from_millis(1_100));
        runtime.block_on(agent.pass());
        assert_eq!(
            waiting(&agent).len(),
            1,
            "{name}: it counts once it rests, and the end of the old one cannot be observed"
        );
    }
}

#[test]
fn what_is_noted_of_volumes_stays_while_nobody_knows_what_they_are_to_have() {
    let node = TestNode::new();
    let text = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: net, namespace: a}\nspec:\n  selector: \
                {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: \
                {automountServiceAccountToken: false, containers: [{name: c, image: i, volumeMounts: [{name: v, \
                mountPath: /v}]}], volumes: [{name: v, configMap: {name: conf}}]}\n---\napiVersion: v1\nkind: \
                ConfigMap\nmetadata: {name: conf, namespace: a}\ndata: {k: v}\n";
    let file = node.path("ds/net.yaml");
    fs::write(&file, text).unwrap();
    // It rests, and what is noted of a start is noted.
    (0..3).for_each(|_| drop(node.agent()));
    let record = || fs::read_to_string(node.path("state/daemons/a_net.json")).unwrap();
    let before = record();
    assert!(before.contains(r#""volumes":["v"]"#), "{before}");
    fs::write(&file, "kind: [").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut agent = node.agent();
    let reason = |agent: &Agent| agent.last.plan.daemons[0].summary.reasons.to_string();
    assert!(reason(&agent).contains("keeps its last data"), "{}", reason(&agent));
    assert_eq!(record(), before, "the file is being changed");
    std::thread::sleep(Duration::from_millis(1_100));
    runtime.block_on(agent.pass());
    assert!(!reason(&agent).contains("keeps its last data"), "{}", reason(&agent));
    let actions = &agent.last.plan.daemons[0].actions;
    assert!(!actions.iter().any(|action| matches!(action, Action::Refresh { .. })), "{actions:?}");
    assert_eq!(record(), before);
}

#[test]
fn what_runs_does_not_go_back_to_what_an_older_state_folder_remembers_of_a_folder_that_is_gone() {
    let node = TestNode::new();
    node.define("net", "i:0");
    drop(node.agent());
    let saved = ["state/inputs.json", "state/daemons/a_net.json"].map(|file| {
        let path = node.path(file);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        (path, bytes)
    });
    node.remove_manifest("net");
    node.define("net", "i:1");
    drop(node.agent());
    let runs = node.manifests();
    for (path, bytes) in saved {
        fs::write(path, bytes).unwrap();
    }
    fs::rename(node.path("ds"), node.path("away")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..2 {
        let mut agent = node.agent();
        runtime.block_on(agent.pass());
        assert_eq!((node.manifests(), waiting(&agent).len()), (runs.clone(), 0), "{:?}", texts(&agent));
    }
}

#[test]
fn an_agent_that_was_killed_over_a_definition_twice_sets_it_aside_and_one_that_was_not_forgets() {
    let definition = |name: &str| DefinitionVersion { key: ObjectKey::new("a", name), template: "t".to_owned() };
    let node = TestNode::new();
    let is_marked = || {
        fs::read_dir(node.path("state"))
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("at-work"))
    };
    let agent_after = |marked: &[DefinitionVersion]| {
        let mut agent = node.agent();
        agent.executor.mark(marked);
        assert!(is_marked());
        drop(agent);
        let agent = node.agent();
        assert!(!is_marked(), "it is counted once");
        agent.state.set_aside.clone()
    };
    assert!(agent_after(&[definition("x")]).knows(&ObjectKey::new("a", "x")));
    let set_aside = agent_after(&[definition("x")]);
    let words = serde_json::to_string(&set_aside).unwrap();
    assert!(words.contains("\"times\":2") && words.contains("Killed"), "{words}");
    assert_eq!(node.agent().state.set_aside, set_aside, "over restarts");

    let mut agent = node.agent();
    agent.executor.mark(&[definition("y")]);
    agent.executor.unmark();
    assert!(!is_marked());
    let written = || fs::metadata(node.path("state")).unwrap().modified().unwrap();
    let before = written();
    agent.executor.mark(&[]);
    agent.executor.unmark();
    assert_eq!(written(), before, "a pass without new definitions of tenants writes nothing for it");
    drop(agent);
    assert!(!node.agent().state.set_aside.knows(&ObjectKey::new("a", "y")), "its work was done");
}

#[test]
fn that_the_kubelet_was_not_ready_in_another_boot_says_nothing() {
    let mut agent = TestNode::new().agent();
    let this = agent.inputs.boot_id().to_owned();
    let mut after = |boot: &str| {
        let keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "reserved"];
        let taint = |key: &str| Taint { key: key.into(), value: String::new(), effect: "NoSchedule".into() };
        agent.state.inputs.node = Some(NodeView { taints: keys.map(taint).into(), ..agent.state.node.clone() });
        agent.state.inputs.boot = Some(boot.to_owned());
        agent.state.inputs.clocks.id = boot.to_owned();
        agent.inputs.go_on_in_boot(&mut agent.state);
        let taints = &agent.state.inputs.node.as_ref().unwrap().taints;
        taints.iter().map(|taint| taint.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(after(&this).len(), 3, "no other kubelet was started since");
    assert_eq!(after("another"), ["reserved"]);
}

#[test]
fn what_an_agent_of_this_boot_has_seen_of_the_clock_counts_though_it_could_save_nothing() {
    let mut agent = TestNode::new().agent();
    let mut clocks = Boot::new(agent.inputs.boot_id().to_owned(), Timestamp::from_secs(1_000));
    clocks.follow(Timestamp::from_secs(5_000), Span::from_secs(10));
    agent.state.inputs.boot = Some("the last one".to_owned());
    agent.state.inputs.clocks = clocks.clone();
    assert_eq!(agent.inputs.go_on_in_boot(&mut agent.state).as_deref(), Some("the last one"));
    assert_eq!(agent.state.inputs.clocks, clocks);
}
