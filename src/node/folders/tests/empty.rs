//! Files that are empty, or no files at all.

use super::*;
use crate::core::sources::Unproven;

#[test]
fn an_empty_file_ends_nothing_that_runs_and_a_link_to_dev_null_does() {
    let mut folders = Folders::new();
    folders.write(0, "a.yaml", &daemon_set("a", "i"));
    folders.later();
    let origin = folders.origin("a");
    for place in [0, 1] {
        // A full disk leaves such a file in its own place; in the other it may be meant as a mask.
        folders.write(place, "a.yaml", "");
        for first_look in [false, true] {
            if first_look {
                folders.begin(FolderView::default());
            }
            folders.later();
            assert_eq!(folders.names(), [""; 0], "it starts nothing");
            assert!(
                matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Unsure { .. }),
                "{place} {first_look}"
            );
            assert!(matches!(folders.view.state(&key("a"), None), FolderState::Absent), "what does not run is masked");
        }
        fs::remove_file(folders.paths[place].join("a.yaml")).unwrap();
        folders.write(0, "a.yaml", &daemon_set("a", "i"));
        folders.later();
        assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Present { .. }));
    }
    let path = folders.paths[0].join("a.yaml");
    assert!(!folders.view.is_masked(&path));
    symlink("/dev/null", folders.paths[1].join("a.yaml")).unwrap();
    folders.later();
    assert!(folders.view.is_masked(&path));
    assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Absent));
}

#[test]
fn the_problem_of_a_broken_file_that_is_emptied_is_that_it_has_no_document() {
    let mut folders = Folders::new();
    folders.write(0, "a.yaml", &daemon_set("a", "i"));
    folders.later();
    folders.write(0, "a.yaml", "{{");
    folders.later();
    assert!(folders.problems()[0].starts_with("/usr/a.yaml:1:"), "{:?}", folders.problems());
    for text in ["", "# nothing\n"] {
        folders.write(0, "a.yaml", text);
        for _ in 0..2 {
            folders.later();
            let problems = folders.problems();
            assert!(matches!(&problems[..], [one] if one.contains("has no document")), "{problems:?}");
        }
    }
    fs::remove_file(folders.paths[0].join("a.yaml")).unwrap();
    folders.later();
    assert_eq!(folders.problems(), [""; 0]);
}

#[test]
fn a_file_without_a_document_is_an_empty_one() {
    for text in ["# nothing\n", "---\n", "---\n# a\n---\n", "null\n", " \n\n", "\u{feff}", "\u{feff}# x\n---\n"] {
        let mut folders = Folders::new();
        folders.write(0, "a.yaml", &daemon_set("a", "i"));
        folders.later();
        let origin = folders.origin("a");
        folders.write(0, "a.yaml", text);
        for first_look in [false, false, true] {
            if first_look {
                folders.begin(FolderView::default());
            }
            folders.later();
            let state = folders.view.state(&key("a"), Some(&origin));
            assert!(matches!(state, FolderState::Unsure { reason: Unproven::FileEmpty }), "{text:?}");
            assert!(matches!(folders.view.state(&key("a"), None), FolderState::Absent), "{text:?}");
            assert_eq!(
                (folders.names().len(), folders.problems().len(), folders.view.recheck),
                (0, 0, None),
                "{text:?}"
            );
        }
        fs::remove_file(folders.paths[0].join("a.yaml")).unwrap();
        folders.later();
        assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Absent), "{text:?}");
    }
    // One that still has documents, and lost one, ends that one.
    let mut folders = Folders::new();
    folders.write(0, "a.yaml", &(daemon_set("a", "i") + &daemon_set("b", "i")));
    folders.later();
    let origin = folders.origin("a");
    folders.write(0, "a.yaml", &("# only b\n".to_owned() + &daemon_set("b", "i")));
    folders.later();
    assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Absent));
    assert_eq!(folders.names(), ["b"]);
}

#[test]
fn what_is_no_file_in_the_place_of_a_file_ends_nothing() {
    type Put = fn(&Path);
    let cases: [Put; 5] = [
        |path| fs::create_dir(path).unwrap(),
        |path| symlink("/", path).unwrap(),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| symlink("/dev/full", path).unwrap(),
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
    ];
    for (index, put) in cases.into_iter().enumerate() {
        let mut folders = Folders::new();
        folders.write(0, "a.yaml", &daemon_set("a", "i"));
        folders.later();
        let (origin, file) = (folders.origin("a"), std::sync::Arc::clone(&folders.view.files[0]));
        let path = folders.paths[0].join("a.yaml");
        fs::remove_file(&path).unwrap();
        put(&path);
        for first_look in [false, false, true] {
            if first_look {
                // Another process knows of it what is remembered.
                let (path, fingerprint) = (file.path.clone(), file.fingerprint.clone());
                let (mounted, daemon_sets) = (file.mounted.clone(), file.daemon_sets.clone());
                let objects = Vec::new();
                let role = FileRole::Defines;
                let recalled = RecalledFile { role, path, fingerprint, mounted, daemon_sets, objects };
                folders.begin(FolderView::default().with_recalled([recalled].into_iter()));
            }
            folders.later();
            assert_eq!(folders.names(), ["a"], "{index} {first_look}");
            let state = folders.view.state(&key("a"), Some(&origin));
            assert!(!matches!(state, FolderState::Absent), "{index} {first_look}");
            let problems = folders.problems();
            assert!(
                problems.len() == 1 && problems[0].contains("/usr/a.yaml: cannot be read"),
                "{index}: {problems:?}"
            );
        }
        let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
        folders.later();
        assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Absent), "{index}");
    }
    // A folder where no file was known is ignored.
    let mut folders = Folders::new();
    fs::create_dir(folders.paths[0].join("b.yaml")).unwrap();
    folders.later();
    assert_eq!((folders.problems().len(), folders.view.notes.len(), folders.view.recheck), (0, 1, None));
}

#[test]
fn objects_of_a_file_that_was_emptied_stay() {
    let mut folders = Folders::new();
    let object = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: v}\n";
    folders.write(0, "a.yaml", &format!("{}{object}", daemon_set("a", "i")));
    folders.later();
    folders.write(0, "a.yaml", "");
    for _ in 0..2 {
        folders.later();
        assert_eq!((folders.names().len(), folders.view.objects().count()), (0, 1));
        assert_eq!(folders.view.held().count(), 0, "no change of it waits to count");
        let problems = folders.problems();
        assert!(matches!(&problems[..], [one] if one.contains("has no document")), "{problems:?}");
    }
}
