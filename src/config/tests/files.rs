//! Which files count, and in which order.

use super::*;

#[test]
fn every_mistake_of_every_file_is_reported_at_once_in_order() {
    let root = TempDir::new().unwrap();
    write(root.path(), "etc/daemonlet/daemonlet.toml", "[log]\nlevl = 1\n[policy]\nx-y-z-q = 1\n");
    write(root.path(), "run/daemonlet/daemonlet.d/10-a.toml", "run-dir = 1\nstate-dir = 2\n");
    let error = load_from(None, root.path(), &FakeHost::default()).unwrap_err();
    let root = root.path().display();
    let expected = format!(
        "{root}/etc/daemonlet/daemonlet.toml:2: unknown key \"log.levl\"\n\
         {root}/etc/daemonlet/daemonlet.toml:4: unknown key \"policy.x-y-z-q\"\n\
         {root}/run/daemonlet/daemonlet.d/10-a.toml:1: run-dir: expected an absolute path, not 1\n\
         {root}/run/daemonlet/daemonlet.d/10-a.toml:2: state-dir: expected an absolute path, not 2"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_that_was_named_must_be_readable() {
    let root = TempDir::new().unwrap();
    let missing = root.path().join("x.toml");
    let error = load_from(Some(&missing), root.path(), &FakeHost::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: cannot be read: no such file or directory", missing.display()));
    let error = load_from(Some(root.path()), root.path(), &FakeHost::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: cannot be read: is a directory", root.path().display()));
}

#[test]
fn what_is_behind_a_link_that_leads_nowhere_is_not_absent() {
    for link in ["etc/daemonlet", "etc/daemonlet/daemonlet.toml", "etc/daemonlet/daemonlet.d"] {
        let root = TempDir::new().unwrap();
        let place = root.path().join(link);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(root.path().join("late"), &place).unwrap();
        let error = load_from(None, root.path(), &FakeHost::default()).unwrap_err();
        let [problem] = &error.problems[..] else { panic!("{link}: {error}") };
        let hint = format!("{} is a link that leads nowhere: correct it, or remove it", place.display());
        assert_eq!(problem.hint.as_deref(), Some(hint.as_str()), "{link}");
        // A folder that is there, and lacks the file, says nothing.
        fs::remove_file(&place).unwrap();
        symlink(root.path(), &place).unwrap();
        assert!(link.ends_with(".toml") || load_from(None, root.path(), &FakeHost::default()).is_ok(), "{link}");
    }
}

#[test]
fn drop_ins_follow_systemds_order() {
    let root = TempDir::new().unwrap();
    let root = root.path();
    write(root, "usr/lib/daemonlet/daemonlet.toml", "state-dir = \"/hidden-by-etc\"\nselector = \"hidden\"");
    write(root, "etc/daemonlet/daemonlet.toml", "state-dir = \"/main\"\nrun-dir = \"/main\"");
    write(root, "usr/lib/daemonlet/daemonlet.d/20-b.toml", "run-dir = \"/masked\"");
    write(root, "run/daemonlet/daemonlet.d/20-b.toml", "");
    write(root, "usr/lib/daemonlet/daemonlet.d/10-a.toml", "kubelet-root = \"/usr\"\nlog.level = \"debug\"");
    write(root, "etc/daemonlet/daemonlet.d/10-a.toml", "kubelet-root = \"/etc\"");
    // The name decides the order, not the folder.
    write(root, "usr/lib/daemonlet/daemonlet.d/90-z.toml", "manifest-dir = \"/last\"");
    write(root, "etc/daemonlet/daemonlet.d/50-m.toml", "manifest-dir = \"/earlier\"");
    write(root, "etc/daemonlet/daemonlet.d/60-n.conf", "not = \"read\"");
    write(root, "etc/daemonlet/daemonlet.d/.60-n.toml", "not = \"read\"");

    let config = load_from(None, root, &FakeHost::default()).unwrap();
    assert_eq!(config.state_dir, Path::new("/main"));
    assert_eq!(config.selector, "");
    assert_eq!(config.run_dir, Path::new("/main"), "the empty file of /run masks the one of /usr/lib");
    assert_eq!(config.kubelet_root, Path::new("/etc"));
    assert_eq!(config.log_level, "info", "the file of the same name is replaced, not merged");
    assert_eq!(config.manifest_dir, Path::new("/last"));
    let origin = ConfigOrigin::File { path: root.join("usr/lib/daemonlet/daemonlet.d/90-z.toml"), line: 1 };
    assert_eq!(config.origins["manifest-dir"], origin);
}

#[test]
fn without_a_main_file_in_etc_the_one_of_usr_lib_counts() {
    let root = TempDir::new().unwrap();
    write(root.path(), "usr/lib/daemonlet/daemonlet.toml", "state-dir = \"/usr\"");
    let config = load_from(None, root.path(), &FakeHost::default()).unwrap();
    assert_eq!(config.state_dir, Path::new("/usr"));
}

#[test]
fn defaults_alone_count_where_no_file_is_named_or_installed() {
    let root = TempDir::new().unwrap();
    assert!(is_without_file(None, root.path()));
    assert!(!is_without_file(Some(Path::new("none.toml")), root.path()), "a missing one is an error");
    write(root.path(), "run/daemonlet/daemonlet.d/a.toml", "run-dir = \"/x\"");
    assert!(!is_without_file(None, root.path()));
}

#[test]
fn a_named_file_has_its_own_drop_ins_and_no_others() {
    let root = TempDir::new().unwrap();
    let file = write(root.path(), "node-7.toml", "state-dir = \"/own\"");
    write(root.path(), "node-7.d/a.toml", "run-dir = \"/own-drop-in\"");
    write(root.path(), "etc/daemonlet/daemonlet.d/a.toml", "kubelet-root = \"/foreign\"");
    let config = load_from(Some(&file), root.path(), &FakeHost::default()).unwrap();
    assert_eq!((config.state_dir, config.run_dir), ("/own".into(), "/own-drop-in".into()));
    assert_eq!(config.kubelet_root, Path::new("/var/lib/kubelet"));
}

#[test]
fn a_fifo_in_the_place_of_a_configuration_is_an_error_and_holds_nothing_up() {
    let folder = TempDir::new().unwrap();
    let fifo = |path: PathBuf| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let file = write(folder.path(), "own/daemonlet.toml", "");
    let drop_in = write(folder.path(), "own/daemonlet.d/x.toml", "");
    fs::remove_file(&drop_in).unwrap();
    fifo(drop_in.clone());
    let problem = |file: Option<&Path>| {
        let error = load_from(file, folder.path(), &FakeHost::default()).unwrap_err();
        assert!(error.problems[0].hint.is_some());
        error.to_string()
    };
    let expected = |path: &Path| format!("{}: cannot be read: it is not a regular file", path.display());
    assert_eq!(problem(Some(&file)), expected(&drop_in));
    assert_eq!(problem(Some(&drop_in)), expected(&drop_in));
    fs::create_dir_all(folder.path().join("etc/daemonlet")).unwrap();
    let main = folder.path().join("etc/daemonlet/daemonlet.toml");
    fifo(main.clone());
    assert_eq!(problem(None), expected(&main));
    // As the kubelet's own configuration is read.
    assert!(RealHost.read(&drop_in).is_err());
}

#[test]
fn the_socket_of_the_agent_is_known_though_the_configuration_is_invalid() {
    let root = TempDir::new().unwrap();
    let socket = |text: &str| {
        let file = write(root.path(), "node.toml", text);
        assert!(load_from(Some(&file), root.path(), &FakeHost::default()).is_err());
        crate::config::socket_of_invalid(Some(&file))
    };
    assert_eq!(socket("state-dir = 1\nrun-dir = \"/x\"\n[policy]\nrun-dir = \"/y\""), Path::new("/x/agent.sock"));
    assert_eq!(socket("run-dir = \"/x\"\nfoo = ["), Path::new("/x/agent.sock"));
    assert_eq!(socket("run-dir = 7"), Path::new("/run/daemonlet/agent.sock"));
    // A drop-in that cannot be read hides no other one.
    write(root.path(), "node.d/10-run.toml", "run-dir = \"/y\"");
    write(root.path(), "node.d/20-bad.toml", "node-nam = 1");
    fs::create_dir(root.path().join("node.d/30-folder.toml")).unwrap();
    assert_eq!(socket("run-dir = \"/x\""), Path::new("/y/agent.sock"));
}
