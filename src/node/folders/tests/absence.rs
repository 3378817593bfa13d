//! When absence is evidence, and what cannot be read is not.

use super::*;
use crate::node::folders::file;
use crate::node::tests::faults;

#[test]
fn absence_is_evidence_only_in_the_folder_that_it_was_in() {
    let mut folders = Folders::new();
    folders.write(1, "x.yaml", &daemon_set("a", "one"));
    folders.later();
    let origin = folders.origin("a");
    let state = |view: &FolderView, origin: &FolderOrigin| match view.state(&key("a"), Some(origin)) {
        FolderState::Present { .. } => "present".to_owned(),
        FolderState::Absent => "absent".to_owned(),
        FolderState::Unsure { reason } => reason.to_string(),
    };
    assert_eq!(state(&folders.view, &origin), "present");
    // The folder is gone: its definitions stay, also for an agent that starts anew.
    let aside = folders.paths[1].with_extension("aside");
    fs::rename(&folders.paths[1], &aside).unwrap();
    assert_eq!(state(folders.later(), &origin), "present");
    folders.begin(FolderView::default());
    assert_eq!(state(folders.later(), &origin), "its folder is missing");
    fs::rename(&aside, &folders.paths[1]).unwrap();
    // The file is bad, and its last version is not known.
    folders.write(1, "x.yaml", "kind: [");
    assert_eq!(state(folders.later(), &origin), "its file is not valid");
    // Another file system.
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    folders.begin(FolderView::default());
    let mut elsewhere = origin.clone();
    elsewhere.folder.id.push('x');
    assert_eq!(state(folders.later(), &elsewhere), "its folder is now on another file system");
    folders.write(1, ".other", "");
    assert_eq!(state(folders.at_once(), &origin), "its folder is being changed");
    assert_eq!(state(folders.later(), &origin), "absent");
    assert_eq!(folders.view.state(&key("a"), None), FolderState::Absent);
    // Masked from another folder.
    symlink("/dev/null", folders.paths[0].join("x.yaml")).unwrap();
    assert_eq!(state(folders.later(), &elsewhere), "absent");
}

#[test]
fn a_folder_in_trouble_uncovers_no_earlier_file() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
    folders.write(1, "x.yaml", &daemon_set("a", "owner"));
    folders.later();
    let image =
        |view: &FolderView| view.daemon_sets().next().unwrap().template["spec"]["containers"][0]["image"].clone();
    fs::rename(&folders.paths[1], folders.paths[1].with_extension("aside")).unwrap();
    assert_eq!(image(folders.later()), "owner");
    fs::create_dir(&folders.paths[1]).unwrap();
    folders.later();
    assert_eq!(image(folders.later()), "vendor");
}

#[test]
fn a_file_that_is_kept_before_an_earlier_one_is_named_and_can_be_let_go() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
    folders.write(1, "x.yaml", &daemon_set("a", "owner"));
    folders.write(1, "y.yaml", &daemon_set("b", "owner"));
    folders.later();
    let aside = folders.paths[1].with_extension("aside");
    fs::rename(&folders.paths[1], &aside).unwrap();
    let view = folders.later();
    let file = |view: &FolderView| view.file_of(&key("a")).unwrap().path.clone();
    assert!(view.file_of(&key("a")).unwrap().has_vanished() && !view.is_held && view.recheck.is_none());
    assert!(matches!(&view.notes[..], [note] if note.contains("x.yaml is passed over")), "{:?}", view.notes);
    assert_eq!(view.without_vanished(&[key("c")].into()).map(|_| ()), None);
    let view = view.without_vanished(&[key("a")].into()).unwrap();
    folders.begin(view);
    assert_eq!(file(folders.later()), folders.paths[0].join("x.yaml"));
    assert_eq!((folders.names(), folders.view.notes.len()), (vec!["a".to_owned(), "b".to_owned()], 0));
    fs::rename(&aside, &folders.paths[1]).unwrap();
    folders.later();
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    assert!(folders.at_once().is_held, "its folder is being changed");
    assert!(!folders.later().is_held && file(&folders.view) == folders.paths[0].join("x.yaml"));
}

#[test]
fn what_a_link_to_dev_null_masks_stays_masked_while_its_folder_is_in_trouble() {
    for restarts in [false, true] {
        let mut folders = Folders::new();
        folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
        symlink("/dev/null", folders.paths[1].join("x.yaml")).unwrap();
        let aside = folders.paths[1].with_extension("aside");
        let later = |folders: &mut Folders| {
            if restarts {
                restart(folders);
            }
            folders.later().daemon_sets().count()
        };
        assert_eq!(later(&mut folders), 0);
        fs::rename(&folders.paths[1], &aside).unwrap();
        assert_eq!((later(&mut folders), later(&mut folders)), (0, 0), "it is missing");
        fs::write(&folders.paths[1], "no folder").unwrap();
        assert_eq!(later(&mut folders), 0, "it cannot be listed");
        fs::remove_file(&folders.paths[1]).unwrap();
        fs::rename(&aside, &folders.paths[1]).unwrap();
        assert_eq!(later(&mut folders), 0, "it is back");
        fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
        assert_eq!((later(&mut folders), folders.view.masks.len()), (1, 0), "the link is removed");
    }
}

#[test]
fn what_masked_in_an_earlier_boot_alone_masks_no_more() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
    symlink("/dev/null", folders.paths[1].join("x.yaml")).unwrap();
    assert_eq!(folders.later().daemon_sets().count(), 0);
    fs::remove_dir_all(&folders.paths[1]).unwrap();
    for (boot, daemons) in [(Real::shared().boot_id(), 0), (None, 0), (Some("an earlier one".to_owned()), 1)] {
        let mut before = folders.view.clone();
        before.masks[0].mounted.as_mut().unwrap().boot = boot.clone();
        folders.begin(before);
        assert_eq!(folders.later().daemon_sets().count(), daemons, "{boot:?}");
    }
}

#[test]
fn a_file_hides_another_over_a_restart_though_nothing_of_it_runs() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
    folders.write(1, "x.yaml", &daemon_set("a", "owner"));
    folders.later();
    folders.view.files.iter_mut().for_each(|file| std::sync::Arc::make_mut(file).daemon_sets.clear());
    let aside = folders.paths[1].with_extension("aside");
    fs::rename(&folders.paths[1], &aside).unwrap();
    for _ in 0..2 {
        restart(&mut folders);
        assert_eq!(folders.later().daemon_sets().count(), 0, "its folder is missing");
        assert!(folders.view.may_define_more());
    }
    fs::rename(&aside, &folders.paths[1]).unwrap();
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    restart(&mut folders);
    assert_eq!(image(folders.later()), "vendor", "it is removed");
}

#[test]
fn what_cannot_be_read_is_reported() {
    let mut folders = Folders::new();
    symlink("/nowhere", folders.paths[0].join("x.yaml")).unwrap();
    fs::write(&folders.paths[2], "a file where a folder should be").unwrap();
    nix::unistd::mkfifo(&folders.paths[0].join("fifo.yaml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    folders.later();
    let mut problems = folders.problems();
    problems.sort();
    assert_eq!(problems.len(), 3);
    assert_eq!(problems[0], "/etc: cannot be read: not a directory");
    assert_eq!(problems[1], "/usr/fifo.yaml: cannot be read: it is not a regular file");
    assert_eq!(problems[2], "/usr/x.yaml: cannot be read: no such file or directory");
    let of = |end: &str| folders.view.all_problems().find(|problem| problem.file.ends_with(end)).unwrap();
    let hint = |end: &str| of(end).hint.clone().unwrap();
    assert_eq!(hint("x.yaml"), "correct the link, or remove it");
    assert_eq!(hint("etc"), "make it a folder, or take it out of `folders`");
    assert_eq!(hint("fifo.yaml"), "put a regular file in its place, or remove it");
}

#[test]
fn every_way_not_to_be_read_is_said_once_with_what_to_do() {
    let path = Path::new("/etc/daemonlet/daemonsets.d/x.yaml");
    for number in [2, 5, 13, 20, 40] {
        let error = std::io::Error::from_raw_os_error(number);
        for problem in [file::unreadable(path, &error, None), file::unlisted(path, &error, true)] {
            assert_eq!(faults(&problem.to_string()), Vec::<String>::new(), "{problem}");
            assert_eq!(faults(&problem.hint.unwrap()), Vec::<String>::new());
        }
    }
}

#[test]
fn a_file_that_cannot_be_looked_at_says_nothing_at_the_first_look_either() {
    let text = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: net, namespace: kube-system}\nspec:\n  \
        selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    \
        spec: {containers: [{name: c, image: i}]}\n";
    let (mut folders, key) = (Folders::new(), ObjectKey::new("kube-system", "net"));
    folders.write(0, "net.yaml", text);
    let origin = folders.later().origin_of(&key).unwrap();
    // A process that starts knows where the daemon came from, and nothing of the file.
    let first_look = |folders: &mut Folders| {
        folders.begin(FolderView::default());
        folders.later();
    };
    let unsure = |folders: &Folders| matches!(folders.view.state(&key, Some(&origin)), FolderState::Unsure { .. });
    symlink("/nowhere", folders.paths[1].join("net.yaml")).unwrap();
    first_look(&mut folders);
    assert!(unsure(&folders), "a dangling link hides it in another folder");
    fs::remove_file(folders.paths[1].join("net.yaml")).unwrap();
    fs::remove_file(folders.paths[0].join("net.yaml")).unwrap();
    symlink("net.yaml", folders.paths[0].join("net.yaml")).unwrap();
    first_look(&mut folders);
    assert!(unsure(&folders), "a loop in its own place");
    fs::remove_file(folders.paths[0].join("net.yaml")).unwrap();
    first_look(&mut folders);
    assert_eq!(folders.view.state(&key, Some(&origin)), FolderState::Absent, "it is gone");
}

#[test]
fn what_could_never_be_looked_at_hides_no_other_file_once_it_is_removed() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "vendor"));
    let link = folders.paths[1].join("x.yaml");
    symlink("/nowhere", &link).unwrap();
    folders.later();
    assert_eq!(folders.names(), Vec::<String>::new(), "it may define something else");
    fs::remove_file(&link).unwrap();
    folders.at_once();
    assert_eq!(folders.names(), Vec::<String>::new(), "the folder is being changed");
    folders.later();
    assert_eq!((folders.names(), folders.view.is_unread()), (vec!["a".to_owned()], false));
    // Nor does it where no other file has its name.
    let link = folders.paths[1].join("y.yaml");
    symlink("/nowhere", &link).unwrap();
    folders.later();
    assert!(folders.view.is_unread());
    fs::remove_file(&link).unwrap();
    folders.later();
    assert!(!folders.view.is_unread());
}
