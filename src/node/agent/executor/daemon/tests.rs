//! One instance in the place of another before the kubelet starts.

use crate::core::plan::Reason;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::core::identity::Identity;
use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::render::GATE_FILE;
use crate::core::render::RenderedPod;
use crate::core::render::open_gate;
use crate::core::rendering::DataDigests;
use crate::core::time::at;
use crate::core::yaml;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::daemon_set;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::executor::state_folder::StateFolder;
use crate::node::agent::gates::Gates;
use crate::node::agent::sealing::Sealing;
use crate::node::checkpoint::CheckpointStore;
use crate::node::fsx;
use crate::node::fsx::Real;
use crate::node::fsx::Shared;
use crate::node::manifests::ManifestDir;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

use super::*;

const OLD: &str = "0f8fad5b-d9cb-569f-a165-70867728950e";
const NEW: &str = "1f8fad5b-d9cb-569f-a165-70867728950e";

/// The rendering of an instance with a gate.
fn rendering(uid: &str, pod_name: &str) -> Arc<RenderResult> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "kube-system", "name": pod_name, "uid": uid, "labels": {},
            "annotations": {"daemonlet.dev/daemonset": "kube-system/net", "daemonlet.dev/incarnation": "1"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let text = format!("# Written by a test\n{}", yaml::write(&pod));
    let file = manifest::file_name("kube-system", pod_name);
    let pod = RenderedPod {
        pod,
        volumes: vec![open_gate()],
        references: BTreeSet::new(),
        tokens: BTreeSet::new(),
        waiting_for: Vec::new(),
        absent: Vec::new(),
        held: Vec::new(),
        notes: Vec::new(),
        data_version: String::new(),
        images: Vec::new(),
        pull_secrets: Vec::new(),
        has_gate: true,
        guesses_kubelet: false,
    };
    let identity = Identity { uid: uid.to_owned(), pod_name: pod_name.to_owned() };
    let (digest, data_digest) = (String::new(), String::new());
    let rendered = Rendered { file, text, data_digest, digest, pod };
    let result = Ok(rendered);
    Arc::new(RenderResult { identity, revision: "b".to_owned(), result, data: DataDigests::default() })
}

fn executor(folder: &Path) -> Executor {
    executor_on(Real::shared(), folder)
}

fn executor_on(files: Shared, folder: &Path) -> Executor {
    let inputs = CheckpointStore::open(&files, &folder.join("state")).unwrap();
    let records = inputs.folder("daemons").unwrap();
    let volumes = Volumes::new(files.clone(), VolumesRoot::kubelet(folder.join("kubelet")));
    let mut executor = Executor::new(files.clone(), volumes, Some(StateFolder { inputs, records }), Sealing::new(None));
    executor.manifests = Some(ManifestDir::open(&files, &folder.join("manifests"), &mut None).unwrap());
    executor
}

/// What begins the new instance and ends the old one, whose manifest is there.
fn swap(executor: &mut Executor) -> DaemonPlan {
    let old = rendering(OLD, "net-aaaaa");
    executor.write_manifest(&rendered(&old).unwrap().file, rendered(&old).unwrap()).unwrap();
    let mut record = DaemonRecord::new(key(), 2);
    let (since, boot) = (at(1), "b".to_owned());
    let confirmed_by = EndConfirmation::NeverStarted;
    let phase = Phase::Ending { since, reason: String::new(), boot, returns: true, confirmed_by };
    record.instances.push(Instance { phase, ..Instance::new(OLD, "net-aaaaa", 0, "a", at(0)) });
    record.instances.push(Instance::new(NEW, "net-bbbbb", 1, "b", at(1)));
    let (uid, pod, reason) = (OLD.to_owned(), "net-aaaaa".to_owned(), Reason::NewerHere);
    let start = Action::Start { rendering: rendering(NEW, "net-bbbbb"), reason: reason.clone() };
    DaemonPlan { actions: vec![start, Action::End { uid, pod, reason, successor: None }], ..DaemonPlan::new(record) }
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder.join("manifests")).unwrap();
    let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".yaml"));
    names.sort();
    names
}

#[test]
fn without_a_record_on_the_disk_there_are_never_two_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let (mut executor, config) = (executor(folder.path()), config());
    let plan = swap(&mut executor);
    let decision = decided(&observation(None), &state(&config), &config);
    let in_the_way = folder.path().join("state/daemons/kube-system_net.json.tmp");
    std::fs::create_dir_all(in_the_way.join("x")).unwrap();
    let mut outcome = EffectOutcome::default();
    executor.apply(&plan, &decision, &config, &mut outcome).unwrap_err();
    assert_eq!(names(folder.path()), ["kube-system_net-aaaaa.yaml"]);
    assert!(!outcome.records.contains_key(&plan.key), "what was known before stays in force");
    std::fs::remove_dir_all(in_the_way).unwrap();
    executor.apply(&plan, &decision, &config, &mut outcome).unwrap();
    assert_eq!(names(folder.path()), ["kube-system_net-bbbbb.yaml"]);
    assert_eq!(outcome.records.get(&plan.key), Some(&RecordFate::OnDisk));
    assert!(folder.path().join("state/daemons/kube-system_net.json").exists());
}

#[test]
fn a_new_instance_whose_gate_closes_has_its_manifest_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut executor, mut config) = (executor(folder.path()), config());
    (config.run_dir, config.kubelet_root) = (folder.path().join("run"), folder.path().join("kubelet"));
    std::fs::create_dir(&config.run_dir).unwrap();
    let mut plan = swap(&mut executor);
    let mut decision = decided(&observation(None), &state(&config), &config);
    let gate = |uid: &str| {
        let volume = format!("kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/daemonlet-gate/{GATE_FILE}");
        folder.path().join(volume).exists()
    };
    executor.apply(&plan, &decision, &config, &mut EffectOutcome::default()).unwrap();
    assert!(gate(NEW));
    plan.actions.push(Action::CloseGate { uid: NEW.to_owned(), pod: "net-bbbbb".to_owned() });
    Arc::make_mut(&mut decision.plan).daemons = vec![plan.clone()];
    decision.gates = Gates::of(&decision.plan, &observation(None), false);
    executor.apply(&plan, &decision, &config, &mut EffectOutcome::default()).unwrap();
    assert!(!gate(NEW) && config.run_dir.join("closed-gates").join(NEW).exists());
    crate::node::agent::open_gates(&config.run_dir).unwrap();
    assert!(gate(NEW), "an agent that ends leaves no gate closed");
    let mut outcome = EffectOutcome { left_open: BTreeSet::from([NEW.to_owned()]), ..EffectOutcome::default() };
    executor.apply(&plan, &decision, &config, &mut outcome).unwrap();
    assert!(gate(NEW), "one that could not be closed is no reason against the start");
}

#[test]
fn without_a_record_that_can_be_put_in_json_there_is_no_manifest() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let (mut executor, config) = (executor(folder.path()), config());
    let mut record = DaemonRecord::new(key(), 2);
    let path = std::ffi::OsStr::from_bytes(b"/etc/br\xfccke.yaml").into();
    let mut daemon_set = DaemonSet::clone(&daemon_set());
    daemon_set.source = Source::File { path };
    let mut instance = Instance::new(NEW, "net-bbbbb", 1, "b", at(1));
    instance.daemon_set = Some(Arc::new(daemon_set));
    record.instances.push(instance);
    let start = Action::Start { rendering: rendering(NEW, "net-bbbbb"), reason: Reason::NotRunning(None) };
    let plan = DaemonPlan { actions: vec![start], ..DaemonPlan::new(record) };
    let decision = decided(&observation(None), &state(&config), &config);
    let mut outcome = EffectOutcome::default();
    let failure = executor.apply(&plan, &decision, &config, &mut outcome).unwrap_err();
    assert!(failure.cause.to_string().contains("cannot be put in JSON"), "{failure:?}");
    assert_eq!(names(folder.path()), [""; 0]);
    assert_eq!(outcome.counts.starts, 0);
}

#[test]
fn a_refresh_that_writes_nothing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (mut executor, config) = (executor(folder.path()), config());
    let decision = decided(&observation(None), &state(&config), &config);
    let kept = BTreeSet::new();
    let refresh = Action::Refresh { rendering: rendering(OLD, "net-aaaaa"), volumes: true, manifest: false, kept };
    let plan = DaemonPlan { actions: vec![refresh], ..DaemonPlan::new(DaemonRecord::new(key(), 2)) };
    let mut refreshes = || {
        let mut outcome = EffectOutcome::default();
        executor.apply(&plan, &decision, &config, &mut outcome).unwrap();
        (outcome.counts.refreshes, outcome.refreshed.len())
    };
    assert_eq!([refreshes(), refreshes()], [(1, 1), (0, 0)]);
}

#[test]
fn a_disk_without_room_for_the_new_instance_keeps_the_old_one() {
    let config = config();
    let decision = decided(&observation(None), &state(&config), &config);
    for full in ["/n/kubelet", "/n/manifests"] {
        let disk = fsx::Simulated::shared();
        disk.make_folder(Path::new("/n/kubelet/pods"));
        let mut executor = executor_on(Arc::clone(&disk) as Shared, Path::new("/n"));
        let mut plan = swap(&mut executor);
        plan.record.instances.truncate(1);
        let (uid, pod, reason) = (OLD.to_owned(), "net-aaaaa".to_owned(), Reason::NewerHere);
        let successor = Some(rendering(NEW, "net-bbbbb"));
        plan.actions = vec![Action::End { uid, pod, reason, successor }];
        for doing in [fsx::Doing::Create, fsx::Doing::Write] {
            disk.fail(doing, Path::new(full), nix::errno::Errno::ENOSPC);
        }
        let mut outcome = EffectOutcome::default();
        let failure = executor.apply(&plan, &decision, &config, &mut outcome).unwrap_err();
        assert!(failure.cause.to_string().contains("the old instance stays"), "{}", failure.cause);
        assert!(failure.hint.unwrap().contains("is full"));
        let has_manifest =
            |executor: &mut Executor| !executor.manifests.as_mut().unwrap().scan().unwrap().ours.is_empty();
        assert!(has_manifest(&mut executor), "{full}");
        assert!(outcome.records.is_empty() && outcome.counts.ends == 0, "what was known before stays in force");
        disk.mend(Path::new(full));
        executor.apply(&plan, &decision, &config, &mut outcome).unwrap();
        assert!(!has_manifest(&mut executor), "{full}");
    }
}

#[test]
fn what_runs_from_a_file_of_others_is_neither_ended_nor_written_and_nothing_starts_beside_it() {
    let config = config();
    let decision = decided(&observation(None), &state(&config), &config);
    let folder = tempfile::tempdir().unwrap();
    let mut executor = executor(folder.path());
    let mut plan = swap(&mut executor);
    let (ours, other) = (manifest::file_name("kube-system", "net-aaaaa"), folder.path().join("manifests/other.yaml"));
    std::fs::remove_file(folder.path().join("manifests").join(&ours)).unwrap();
    let text = format!("kind: Pod\nmetadata: {{name: other, uid: {OLD}}}\n");
    std::fs::write(&other, &text).unwrap();
    let refresh = Action::Refresh {
        rendering: rendering(OLD, "net-aaaaa"),
        volumes: false,
        manifest: true,
        kept: BTreeSet::new(),
    };
    let end = plan.actions.pop().unwrap();
    let start = plan.actions.pop().unwrap();
    for actions in [vec![refresh], vec![end.clone()], vec![start, end]] {
        executor.manifests.as_mut().unwrap().scan().unwrap();
        plan.actions = actions;
        let failure = executor.apply(&plan, &decision, &config, &mut EffectOutcome::default()).unwrap_err();
        assert!(failure.cause.to_string().contains("other.yaml is not daemonlet's"), "{}", failure.cause);
        assert_eq!(names(folder.path()), ["other.yaml"]);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
    }
}
