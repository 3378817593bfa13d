//! What a new process finds, and what it has from the one before.

use crate::core::sources::Unproven;
use crate::node::folders::FolderIdentity;

use super::*;

#[test]
fn what_a_restart_finds_broken_or_missing_is_as_it_was_before() {
    let mut folders = Folders::new();
    folders.write(0, "1.yaml", &daemon_set("a", "old"));
    folders.write(1, "2.yaml", &format!("{}{CONFIG}", daemon_set("a", "new")));
    let good = fs::read(folders.paths[1].join("2.yaml")).unwrap();
    type Spoil = (&'static str, fn(&Path));
    let cases: [Spoil; 4] = [
        ("unreadable text", |file| fs::write(file, b"\xff").unwrap()),
        ("a wrong document", |file| fs::write(file, daemon_set("a", "''") + "---\nkind: [\n").unwrap()),
        ("a dangling link", |file| {
            fs::remove_file(file).unwrap();
            symlink("/nowhere", file).unwrap();
        }),
        ("no folder", |file| {
            fs::rename(file.parent().unwrap(), file.parent().unwrap().with_extension("aside")).unwrap()
        }),
    ];
    for (name, spoil) in cases {
        folders.later();
        let (file, origin) = (folders.paths[1].join("2.yaml"), folders.origin("a"));
        spoil(&file);
        for process in 0..3 {
            restart(&mut folders);
            folders.later();
            assert_eq!((image(&folders.view).as_str(), folders.view.objects().count()), ("new", 1), "{name} {process}");
        }
        // A process that remembers nothing of the file does not go back to the other one either.
        folders.begin(FolderView::default());
        folders.later();
        let unsure = |state: FolderState<'_>| matches!(state, FolderState::Unsure { .. });
        assert!(unsure(folders.view.state(&key("a"), Some(&origin))), "{name}");
        assert!(unsure(folders.view.state_by_path(&key("a"), &file)), "{name}");
        let aside = folders.paths[1].with_extension("aside");
        if aside.exists() {
            fs::rename(&aside, &folders.paths[1]).unwrap();
        }
        let _ = fs::remove_file(&file);
        fs::write(&file, &good).unwrap();
    }
    folders.later();
    fs::remove_file(folders.paths[1].join("2.yaml")).unwrap();
    restart(&mut folders);
    folders.later();
    assert_eq!((image(&folders.view).as_str(), folders.view.objects().count()), ("old", 0), "it was removed");
}

#[test]
fn an_emptied_file_does_not_give_way_to_another_definition_of_what_runs() {
    let mut folders = Folders::new();
    folders.write(0, "1.yaml", &daemon_set("a", "old"));
    folders.write(1, "2.yaml", &daemon_set("a", "new"));
    folders.later();
    let origin = folders.origin("a");
    folders.write(1, "2.yaml", "");
    for first_look in [false, true] {
        if first_look {
            folders.begin(FolderView::default());
        }
        folders.later();
        assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Unsure { .. }), "{first_look}");
        assert!(matches!(folders.view.state(&key("a"), None), FolderState::Present { .. }));
    }
}

#[test]
fn what_another_boot_left_behind_gives_way_to_what_is_in_its_folder_now() {
    let mut folders = Folders::new();
    folders.write(1, "z.yaml", &format!("{}{CONFIG}", daemon_set("a", "old") + &daemon_set("b", "old")));
    folders.later();
    restart(&mut folders);
    let before = &mut folders.view.files[0];
    let mut file = super::super::FileView::clone(before);
    file.mounted.as_mut().unwrap().id.push('x');
    let mounted = file.mounted.clone();
    *before = std::sync::Arc::new(file);
    fs::remove_file(folders.paths[1].join("z.yaml")).unwrap();
    folders.write(1, "a.yaml", &daemon_set("a", "new"));
    for _ in 0..2 {
        folders.later();
        assert_eq!((folders.names(), folders.problems()), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        assert_eq!((image(&folders.view).as_str(), folders.view.objects().count()), ("new", 1));
    }
    let origin = FolderOrigin { path: folders.paths[1].join("z.yaml"), folder: mounted.unwrap() };
    assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Present { .. }));
    folders.begin(FolderView::default());
    folders.later();
    assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Present { .. }), "nothing remembered");
}

#[test]
fn what_lies_below_a_mount_that_is_missing_does_not_count() {
    let mut folders = Folders::new();
    folders.write(1, "z.yaml", &format!("{}{CONFIG}", daemon_set("a", "new")));
    folders.later();
    restart(&mut folders);
    let path = folders.paths[1].join("z.yaml");
    let here = folders.view.files[0].mounted.clone().unwrap();
    // What counted was on a file system that was mounted at its folder.
    let mut file = super::super::FileView::clone(&folders.view.files[0]);
    let point = folders.paths[1].display().to_string();
    file.mounted = Some(FolderIdentity { id: "another".to_owned(), mount_point: point, ..here.clone() });
    let before = file.clone();
    folders.view.files[0] = std::sync::Arc::new(file);
    let masks = || symlink("/dev/null", &path).unwrap();
    let older = || fs::write(&path, daemon_set("a", "older")).unwrap();
    for put in [&older as &dyn Fn(), &masks] {
        fs::remove_file(&path).unwrap();
        put();
        for _ in 0..2 {
            folders.later();
            assert_eq!((image(&folders.view).as_str(), folders.view.objects().count()), ("new", 1));
            assert!(folders.problems()[0].contains("z.yaml: is not read"), "{:?}", folders.problems());
        }
    }
    // The same file system at another place, as in another sandbox, does not count as missing.
    fs::remove_file(&path).unwrap();
    older();
    let same = FolderIdentity { mount_point: folders.paths[1].display().to_string(), ..here };
    folders.view.files[0] = std::sync::Arc::new(super::super::FileView { mounted: Some(same), ..before });
    folders.later();
    folders.later();
    assert_eq!(image(&folders.view), "older");
}

#[test]
fn objects_of_a_folder_that_is_no_longer_configured_stay_until_another_file_has_them() {
    let mut folders = Folders::new();
    folders.write(1, "z.yaml", &format!("{}{CONFIG}", daemon_set("a", "i")));
    folders.later();
    let origin = folders.origin("a");
    restart(&mut folders);
    folders.paths.remove(1);
    folders.later();
    assert_eq!((folders.names().len(), folders.view.objects().count()), (0, 1));
    let reason = Unproven::FolderNotConfigured;
    assert_eq!(folders.view.state(&key("a"), Some(&origin)), FolderState::Unsure { reason });
    folders.write(0, "a.yaml", &CONFIG.replace("k: v", "k: w"));
    folders.later();
    let values: Vec<_> = folders.view.objects().map(|(_, value)| value["data"]["k"].clone()).collect();
    assert_eq!((values, folders.problems()), (vec![serde_json::json!("w")], vec![]));
}

#[test]
fn what_lies_below_a_mount_that_is_missing_takes_the_place_of_nothing_under_another_name_either() {
    for other in ["00.yaml", "zz.yaml"] {
        let mut folders = Folders::new();
        folders.write(1, "m.yaml", &format!("{}{CONFIG}", daemon_set("a", "new")));
        folders.later();
        restart(&mut folders);
        let mut file = super::super::FileView::clone(&folders.view.files[0]);
        let point = folders.paths[1].display().to_string();
        let here = file.mounted.take().unwrap();
        let there = FolderIdentity { id: "another".to_owned(), mount_point: point, ..here };
        file.mounted = Some(there.clone());
        folders.view.files[0] = std::sync::Arc::new(file);
        fs::remove_file(folders.paths[1].join("m.yaml")).unwrap();
        folders.write(1, other, &format!("{}{}", daemon_set("a", "older"), CONFIG.replace("k: v", "k: older")));
        let origin = FolderOrigin { path: folders.paths[1].join("m.yaml"), folder: there };
        for _ in 0..2 {
            folders.later();
            let values: Vec<_> = folders.view.objects().map(|(_, value)| value["data"]["k"].clone()).collect();
            assert_eq!((image(&folders.view).as_str(), values), ("new", vec![serde_json::json!("v")]), "{other}");
            assert!(folders.view.files_by_object().values().all(|file| file.name == "m.yaml"), "{other}");
            assert!(folders.problems()[0].contains("m.yaml: is not read: the file system"), "{:?}", folders.problems());
            assert_eq!(folders.origin("a"), origin);
        }
        // A process that remembers only where it came from.
        folders.begin(FolderView::default());
        folders.later();
        let reason = Unproven::NotMounted;
        assert_eq!(folders.view.state(&key("a"), Some(&origin)), FolderState::Unsure { reason }, "{other}");
    }
}
