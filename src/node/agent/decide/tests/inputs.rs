//! What is remembered for the next start.

use std::time::SystemTime;

use crate::core::sources::Confirmation;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::api::Definition;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;

use super::*;

#[test]
fn what_the_api_server_has_of_what_is_known_is_remembered_though_the_manifest_folder_cannot_be_read() {
    let config = config();
    let mut state = state(&config);
    let namespace = ObjectRef::new(Kind::Namespace, "", &key().namespace);
    let entry = |version| Entry { version, value: Arc::new(json!({})) };
    state.inputs.objects.insert(namespace.clone(), entry(1));
    let mut snapshot = Snapshot::default();
    snapshot.objects.insert(namespace.clone(), entry(2));
    snapshot.scopes.entry(Scope::DaemonSets).or_default().lists = 1;
    let unreadable =
        Observation { manifests: Knowledge::Unreadable("EIO".to_owned().into()), ..observation(Some(snapshot)) };
    let decision = decided(&unreadable, &state, &config);
    assert_eq!(decision.state.inputs.objects.get(&namespace).map(|entry| entry.version), Some(2));
    assert!(!decision.requests.iter().any(|r| matches!(r, Request::Follow { .. })), "all that was needed still may be");
}

#[test]
fn inputs_stay_incomplete_until_every_object_in_use_was_listed() {
    let config = config();
    let mut state = state(&config);
    state.inputs.incomplete = true;
    let after = |api: &Snapshot| decided(&observation(Some(api.clone())), &state, &config);
    let mut api = Snapshot::default();
    assert!(after(&api).state.inputs.incomplete);
    api.scopes.entry(crate::node::api::Scope::DaemonSets).or_default().lists = 1;
    let decision = after(&api);
    assert!(decision.state.inputs.incomplete, "no object is listed");
    for object in decision.plan.daemons.iter().flat_map(|daemon| &daemon.references) {
        api.scopes.entry(crate::node::api::Scope::Object(object.clone())).or_default().lists = 1;
    }
    assert!(after(&api).state.inputs.incomplete, "the Node is not listed");
    api.scopes.entry(crate::node::api::Scope::Node).or_default().lists = 1;
    assert!(!after(&api).state.inputs.incomplete);
    assert!(!decided(&observation(None), &state, &config).state.inputs.incomplete, "there is no API server to ask");
}

#[test]
fn a_file_that_overrides_gives_way_once_to_a_newer_version_of_the_api_and_comes_back_only_when_it_changes() {
    let config = config();
    let mut state = state(&config);
    let folder = tempfile::tempdir().unwrap();
    let write = |image: &str| {
        let mut file = object("", json!({}));
        file["apiVersion"] = json!("apps/v1");
        file["kind"] = json!("DaemonSet");
        file["metadata"]["annotations"] = json!({"daemonlet.dev/override": "true"});
        file["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        std::fs::write(folder.path().join("net.json"), file.to_string()).unwrap();
    };
    let mut now = 2_000_000;
    // Whose version counts after each of some passes.
    let mut passes = |state: &mut AgentState, of_api: Option<(&str, u64)>| -> Vec<DefinedIn> {
        let seen = |_| {
            let api = of_api.map(|(image, version)| {
                let mut object = object("d", json!({}));
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                let definition = Definition::of(&object, version);
                let mut api = Snapshot::default();
                api.daemon_sets.insert(key(), definition);
                api
            });
            let mut observation = observation(Some(api.unwrap_or_default()));
            now += 1_000;
            observation.now = Timestamp::from_millis(now);
            let look = ScanTime {
                steady: Duration::from_secs(9),
                wall: SystemTime::now() + Duration::from_secs(3600),
                first: None,
            };
            let dir = [folder.path().to_owned()];
            let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
            observation.folders.view = Arc::new(view);
            let decision = decided(&observation, state, &config);
            let source = decision.daemon(&key()).unwrap().summary.source.clone().unwrap();
            let outcome = EffectOutcome { records: [(key(), RecordFate::OnDisk)].into(), ..EffectOutcome::default() };
            *state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
            if source == DefinedIn::Api { DefinedIn::Api } else { DefinedIn::File { path: "".into() } }
        };
        (0..3).map(seen).collect()
    };
    let (api, file) = (DefinedIn::Api, DefinedIn::File { path: "".into() });
    let all = |source: &DefinedIn| vec![source.clone(); 3];
    write("file:1");
    assert_eq!(passes(&mut state, Some(("i:1", 1))), all(&file));
    assert_eq!(passes(&mut state, Some(("i:2", 2))), all(&api), "it is newer, and nothing goes back");
    state.inputs = RememberedInputs::restore(state.inputs.to_save(&[]), &state.records);
    assert_eq!(passes(&mut state, None), all(&api), "nor at a start without the API server");
    write("file:2");
    assert_eq!(passes(&mut state, None), all(&file), "the owner wants this one now");
    assert_eq!(passes(&mut state, Some(("i:2", 2))), all(&file), "of the same version as before");
    assert_eq!(passes(&mut state, Some(("i:3", 3))), all(&api));
}

#[test]
fn where_what_the_api_had_is_lost_what_it_lacks_ends_once_a_second_list_agrees() {
    let config = config();
    // Whether the daemon ends in passes over these lists, and what is then unknown, if it was before.
    let passes = |was_unknown: bool, lists: &[u64]| -> Vec<(bool, bool)> {
        let mut state = state(&config);
        state.inputs.history_unknown = was_unknown;
        state.records.get_mut(&key()).unwrap().instances[0].daemon_set = Some(labelled("i:1"));
        let about = state.definitions.version(&key());
        let seen = |(pass, lists): (usize, &u64)| {
            let mut snapshot = Snapshot::default();
            snapshot.scopes.entry(Scope::DaemonSets).or_default().lists = *lists;
            snapshot.etcd_rollback_detection.is_known = *lists > 0;
            let confirmation = Confirmation::Gone;
            let gone = Reply::RemovalConfirmed { key: key(), about, cluster: None, confirmation };
            let mut observation = observation(Some(snapshot));
            observation.now += Span::from_secs(40 * i64::try_from(pass).unwrap());
            observation.manifests = manifests_of(&state);
            observation.replies = vec![gone, Reply::Relisting { lists: 1 }];
            let decision = decided(&observation, &state, &config);
            let ends = decision.daemon(&key()).unwrap().actions.iter().any(|a| matches!(a, Action::End { .. }));
            state = AgentState::commit(decision.state, &decision.plan, &EffectOutcome::default(), observation.now);
            (ends, state.inputs.history_unknown)
        };
        lists.iter().enumerate().map(seen).collect()
    };
    assert_eq!(passes(false, &[0, 1, 1]), [(false, false), (false, false), (true, false)], "a GET has to confirm it");
    let held = (false, true);
    assert_eq!(passes(true, &[0, 1, 1, 1, 2, 2]), [held, held, held, held, (true, true), held]);
}

#[test]
fn what_the_api_had_is_known_again_once_a_list_lacks_nothing() {
    let config = config();
    let mut state = state(&config);
    state.inputs.history_unknown = true;
    let known = |lists: u64| {
        let mut snapshot = Snapshot::default();
        let labels = json!({"daemonlet.dev/mode": "static"});
        snapshot.daemon_sets.insert(key(), Definition::of(&object("d", labels), 1));
        snapshot.scopes.entry(Scope::DaemonSets).or_default().lists = lists;
        snapshot.etcd_rollback_detection.is_known = lists > 0;
        !decided(&observation(Some(snapshot)), &state, &config).state.inputs.history_unknown
    };
    assert_eq!([0, 1].map(known), [false, true]);
    assert!(decided(&observation(None), &state, &config).state.inputs.history_unknown);
}
