//! State folders that cannot be used, or that others may write to.

use super::*;

#[test]
fn a_state_folder_that_cannot_be_used_stops_nothing_and_ends_nothing() {
    type Spoil = (&'static str, fn(&Path), fn(&Path));
    let cases: [Spoil; 5] = [
        ("group may write", |s| chmod(s, 0o770), |s| chmod(s, 0o700)),
        ("records of others", |s| chmod(&s.join("daemons"), 0o707), |s| chmod(&s.join("daemons"), 0o700)),
        ("a file", |s| swap(s, |s| fs::write(s, "x").unwrap()), back),
        ("a dangling link", |s| swap(s, |s| symlink("/nowhere/at/all", s).unwrap()), back),
        (
            "records are a file",
            |s| swap(&s.join("daemons"), |s| fs::write(s, "x").unwrap()),
            |s| back(&s.join("daemons")),
        ),
    ];
    for (name, spoil, mend) in cases {
        let node = TestNode::new();
        node.define("net", "i:1");
        node.define("log", "i:1");
        drop(node.agent());
        let before = node.manifests();
        assert_eq!(before.len(), 2, "{name}");
        spoil(&node.path("state"));
        // One is changed, one is gone, one is new; one comes without its manifest.
        node.define("net", "i:2");
        fs::remove_file(node.path("ds/log.yaml")).unwrap();
        fs::File::open(node.path("ds")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        node.define("new", "i:1");
        let agent = node.agent();
        let problems = texts(&agent);
        assert!(problems.iter().any(|p| p.contains("until it can be used, nothing is ended")), "{name}: {problems:?}");
        assert!(before.keys().all(|file| node.manifests().contains_key(file)), "{name}");
        let number = node.number_of("new");
        assert!(number > 1_000_000_000, "{name}: {number}");
        assert_eq!(node.manifests().len(), 3, "{name}");
        drop(agent);
        // The next one does not use its number again either.
        node.remove_manifest("new");
        std::thread::sleep(Duration::from_millis(1_100));
        let mut agent = node.agent();
        assert!(node.number_of("new") > number, "{name}");
        assert!(!agent.executor.is_readable_again, "{name}");
        mend(&node.path("state"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(agent.pass());
        assert!(agent.executor.is_readable_again, "{name}: {:?}", texts(&agent));
        assert!(before.keys().all(|file| node.manifests().contains_key(file)), "{name}");
        drop(agent);
        let mut agent = node.agent();
        assert_eq!(texts(&agent), Vec::<String>::new(), "{name}");
        std::thread::sleep(Duration::from_millis(1_100));
        runtime.block_on(agent.pass());
        let net = [ObjectKey::new("a", "net")];
        assert_eq!(waiting(&agent), net, "{name}: the change counts, but the end of the old one cannot be observed");
        let left: Vec<String> = node.manifests().into_keys().map(|file| file[..6].to_owned()).collect();
        assert_eq!(left, ["a_net-", "a_new-"], "{name}: what is gone has ended");
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn swap(path: &Path, put: fn(&Path)) {
    fs::rename(path, path.with_extension("aside")).unwrap();
    put(path);
}

fn back(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::rename(path.with_extension("aside"), path).unwrap();
}

#[test]
fn a_state_folder_that_others_may_write_to_is_not_used_while_that_is_so() {
    let node = TestNode::new();
    node.define("net", "i:1");
    let mut agent = node.agent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    chmod(&node.path("state"), 0o777);
    node.define("net", "i:2");
    node.define("new", "i:1");
    agent.inputs.reread(false);
    runtime.block_on(agent.pass());
    assert_eq!((node.number_of("net"), node.number_of("new")), (0, 0));
    assert!(!node.path("state/daemons/a_new.json").exists());
    assert!(texts(&agent).iter().any(|p| p.contains("can be written to by others")), "{:?}", texts(&agent));
    chmod(&node.path("state"), 0o700);
    runtime.block_on(agent.pass());
    assert_eq!(texts(&agent), Vec::<String>::new());
    assert!(node.path("state/daemons/a_new.json").exists());
    assert!(Agent::new(agent.config.clone(), Arc::new(Notifier::from_environment())).is_err(), "it is locked again");
}

#[test]
fn folders_that_others_could_replace_are_reported() {
    let node = TestNode::new();
    chmod(node.root.path(), 0o777);
    let problems = texts(&node.agent());
    let root = node.root.path().display().to_string();
    for folder in ["ds", "m", "state"] {
        let why = format!("write to {root}, and so put another folder in the place of {root}/{folder}");
        assert!(problems.iter().any(|text| text.contains(&why)), "{problems:?}");
    }
    chmod(node.root.path(), 0o755);
    assert_eq!(texts(&node.agent()), Vec::<String>::new());
}

#[test]
fn the_plan_of_an_agent_has_the_problems_of_the_pass_that_it_makes() {
    let node = TestNode::new();
    let mut agent = node.agent();
    chmod(&node.path("state"), 0o777);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plan = runtime.block_on(agent.answer(&SocketOperation::Plan.into()));
    assert!(plan["problems"].to_string().contains("until it can be used, nothing is ended"), "{plan}");
}

#[test]
fn the_plan_of_an_agent_does_not_announce_an_end_that_its_disk_does_not_take() {
    type Obstacle = fn(&TestNode);
    let obstacles: [(Obstacle, &str, usize); 2] = [
        (|node| chmod(&node.path("state"), 0o777), "the state folder cannot be used: nothing is changed", 1),
        (|node| fs::create_dir(node.path("state/daemons/a_log.json.tmp")).unwrap(), "cannot write ", 0),
    ];
    for (obstacle, why, problems) in obstacles {
        let node = TestNode::new();
        node.define("net", "i:1");
        node.define("log", "i:1");
        let mut agent = node.agent();
        obstacle(&node);
        fs::remove_file(node.path("ds/log.yaml")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        agent.inputs.reread(false);
        runtime.block_on(agent.pass());
        std::thread::sleep(Duration::from_millis(1_100));
        let plan = runtime.block_on(agent.answer(&SocketOperation::Plan.into()));
        assert_eq!(plan["changes"], serde_json::json!([]), "{plan}");
        let held: Vec<_> = plan["held"].as_array().unwrap().iter().filter(|held| held["name"] == "log").collect();
        assert_eq!((held.len(), held[0]["state"].as_str()), (1, Some("waiting")), "{plan}");
        assert!(held[0]["reason"].as_str().unwrap().starts_with(why), "{plan}");
        assert_eq!(plan["problems"].as_array().unwrap().len(), problems, "{plan}");
    }
}

#[test]
fn an_answer_without_an_agent_uses_what_is_remembered_though_the_records_are_lost() {
    let node = TestNode::new();
    let agent = node.agent();
    let config = agent.config.clone();
    drop(agent);
    fs::remove_dir_all(node.path("state/daemons")).unwrap();
    assert!(Agent::to_answer(config.clone()).unwrap().executor.state.is_some());
    assert!(!node.path("state/daemons").exists());
    swap(&node.path("state"), |state| symlink("/nowhere/at/all", state).unwrap());
    assert!(Agent::to_answer(config).is_err(), "what the link leads to may be there later");
}
