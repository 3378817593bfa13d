use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use tempfile::TempDir;

use super::FirstLook;
use super::FolderIdentity;
use super::FolderOrigin;
use super::FolderView;
use super::FoldersWatch;
use super::RecalledFile;
use super::Rests;
use super::ScanTime;
use super::read;
use crate::core::model::ObjectKey;
use crate::core::sources::FolderState;
use crate::node::fsx::Real;

/// Three folders, of which the first two exist.
struct Folders {
    _root: TempDir,
    paths: Vec<PathBuf>,
    view: FolderView,
    rests: Rests,
    /// The steady clock, in milliseconds.
    steady: u64,
}

impl Folders {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["usr", "run", "etc"].iter().map(|name| root.path().join(name)).collect();
        fs::create_dir(&paths[0]).unwrap();
        fs::create_dir(&paths[1]).unwrap();
        Self { _root: root, paths, view: FolderView::default(), rests: Rests::default(), steady: 0 }
    }

    fn write(&self, folder: usize, name: &str, text: &str) {
        fs::write(self.paths[folder].join(name), text).unwrap();
    }

    /// Reads after the last change, and once more long after it.
    fn later(&mut self) -> &FolderView {
        self.at_once();
        self.after(100_000)
    }

    /// Reads in the middle of changes.
    fn at_once(&mut self) -> &FolderView {
        self.after(1)
    }

    /// Reads so many milliseconds after the last reading.
    fn after(&mut self, millis: u64) -> &FolderView {
        self.steady += millis;
        self.look(Duration::ZERO, None)
    }

    /// Reads so long after now by the wall clock.
    fn look(&mut self, ahead: Duration, first: Option<FirstLook>) -> &FolderView {
        let look = ScanTime { steady: Duration::from_millis(self.steady), wall: SystemTime::now() + ahead, first };
        self.view = read(&Real::shared(), &self.paths, &self.view, &mut self.rests, look);
        &self.view
    }

    /// Another process begins with `view`.
    fn begin(&mut self, view: FolderView) {
        (self.view, self.rests) = (view, Rests::default());
    }

    fn names(&self) -> Vec<String> {
        self.view.daemon_sets().map(|daemon_set| daemon_set.key.name.clone()).collect()
    }

    fn problems(&self) -> Vec<String> {
        self.view
            .all_problems()
            .map(|problem| problem.to_string().replace(&*self._root.path().to_string_lossy(), ""))
            .collect()
    }

    fn origin(&self, name: &str) -> FolderOrigin {
        self.view.origin_of(&key(name)).unwrap()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn daemon_set(name: &str, image: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  \
         template:\n    metadata: {{labels: {{a: b}}}}\n    spec: {{containers: [{{name: c, image: {image}}}]}}\n"
    )
}

#[test]
fn a_later_folders_file_replaces_an_earlier_ones_and_an_empty_one_masks() {
    let mut folders = Folders::new();
    folders.write(0, "a.yaml", &daemon_set("a", "old"));
    folders.write(0, "b.yaml", &daemon_set("b", "old"));
    folders.write(0, "c.yml", &daemon_set("c", "old"));
    folders.write(1, "a.yaml", &daemon_set("a", "new"));
    folders.write(1, "b.yaml", "");
    symlink("/dev/null", folders.paths[1].join("c.yml")).unwrap();
    folders.write(1, ".hidden.yaml", "x");
    folders.write(1, "a.yaml.bak", "x");
    folders.write(1, "a.yaml~", "x");
    folders.later();
    assert_eq!(folders.names(), ["a"]);
    let file = folders.view.file_of(&key("a")).unwrap();
    assert_eq!(file.path, folders.paths[1].join("a.yaml"));
    assert_eq!(folders.view.masked, ["b.yaml", "c.yml"]);
    assert_eq!(folders.view.empty, ["b.yaml"]);
    assert_eq!(folders.view.notes.len(), 2);
    assert_eq!(folders.problems(), Vec::<String>::new());
    assert_eq!(folders.view.recheck, None);
}

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
            assert!(matches!(state, FolderState::Unsure { reason } if reason.contains("remove the file")), "{text:?}");
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
                let recalled = RecalledFile { path, fingerprint, mounted, daemon_sets, objects: Vec::new() };
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
fn a_file_whose_name_is_not_utf_8_is_refused_and_hides_no_other() {
    use std::os::unix::ffi::OsStrExt;
    let mut folders = Folders::new();
    let path = |name: &[u8]| folders.paths[0].join(std::ffi::OsStr::from_bytes(name));
    let names: [&[u8]; 2] = [b"br\xfccke.yaml", b"br\xfdcke.yaml"];
    for name in names {
        fs::write(path(name), daemon_set("bad", "i")).unwrap();
    }
    folders.write(0, "a.yaml", &daemon_set("a", "i"));
    folders.later();
    assert_eq!(folders.names(), ["a"]);
    let problems = folders.problems();
    for name in ["br\\xfccke.yaml", "br\\xfdcke.yaml"] {
        let told = problems.iter().any(|p| p.starts_with(&format!("/usr/{name}: is not read: its name is not UTF-8")));
        assert!(told, "{problems:?}");
    }
    assert!(folders.view.problems.iter().all(|problem| serde_json::to_string(problem).is_ok()));
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
    }
}

#[test]
fn what_changes_and_then_cannot_be_read_does_not_wait_to_count() {
    let mut folders = Folders::new();
    folders.write(0, "a.yaml", &daemon_set("a", "i"));
    folders.later();
    folders.write(0, "a.yaml", &daemon_set("a", "other"));
    assert_eq!(folders.at_once().held().count(), 1);
    let path = folders.paths[0].join("a.yaml");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert_eq!(folders.later().held().count(), 0);
    assert_eq!(image(&folders.view), "i");
}

#[test]
fn the_last_definition_wins_and_the_other_is_reported() {
    let mut folders = Folders::new();
    folders.write(0, "2.yaml", &daemon_set("a", "two"));
    folders.write(1, "1.yaml", &daemon_set("a", "one"));
    folders.later();
    let daemon_set = folders.view.daemon_sets().next().unwrap();
    assert_eq!(daemon_set.template["spec"]["containers"][0]["image"], "two");
    assert_eq!(folders.problems().len(), 1);
    assert!(folders.problems()[0].starts_with("/run/1.yaml: DaemonSet default/a is defined again in "));
}

#[test]
fn a_file_that_turns_bad_keeps_what_it_last_defined() {
    let mut folders = Folders::new();
    let good = daemon_set("a", "one") + &daemon_set("b", "one");
    folders.write(0, "x.yaml", &good);
    folders.later();
    // A document that cannot be read may be any of them; one that can be is taken in its new form.
    folders.write(0, "x.yaml", &(daemon_set("a", "two") + "---\nkind: [\n"));
    folders.later();
    assert_eq!(folders.names(), ["a", "b"]);
    assert_eq!(folders.view.daemon_sets().next().unwrap().template["spec"]["containers"][0]["image"], "two");
    assert_eq!(folders.problems().len(), 1);
    assert!(folders.view.is_incomplete());
    // A document that is read but wrong keeps its own object, not the one that is left out.
    folders.write(0, "x.yaml", &daemon_set("b", "''"));
    folders.later();
    assert_eq!(folders.names(), ["b"]);
    assert!(folders.problems()[0].contains("DaemonSet default/b: spec.template.spec.containers[0].image: required"));
    // Not text at all, then good again.
    fs::write(folders.paths[0].join("x.yaml"), b"a: \xff").unwrap();
    folders.later();
    assert_eq!(folders.names(), ["b"]);
    assert!(folders.problems()[0].contains("line 1 is not UTF-8"));
    folders.write(0, "x.yaml", &daemon_set("c", "one"));
    folders.later();
    assert_eq!((folders.names(), folders.problems()), (vec!["c".to_owned()], vec![]));
}

#[test]
fn a_file_that_says_nothing_any_more_has_not_changed() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "one"));
    folders.later();
    let fingerprint = folders.view.files[0].fingerprint.clone();
    for nonsense in ["\0\0\0\0", "kind: [\n"] {
        folders.write(0, "x.yaml", nonsense);
        folders.later();
        assert_eq!((folders.names(), &folders.view.files[0].fingerprint), (vec!["a".to_owned()], &fingerprint));
    }
    folders.write(0, "x.yaml", &(daemon_set("a", "one") + "# wanted again\n"));
    folders.later();
    assert_ne!(folders.view.files[0].fingerprint, fingerprint);
}

#[test]
fn what_is_being_written_loses_nothing() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &(daemon_set("a", "one") + &daemon_set("b", "one")));
    folders.later();
    for text in ["", &daemon_set("a", "one")[..40], &daemon_set("a", "one")] {
        folders.write(0, "x.yaml", text);
        folders.at_once();
        assert_eq!(folders.names(), ["a", "b"], "with {text:?}");
        assert!(folders.view.recheck.is_some());
    }
    fs::remove_file(folders.paths[0].join("x.yaml")).unwrap();
    folders.at_once();
    assert_eq!(folders.names(), ["a", "b"]);
    folders.later();
    assert_eq!(folders.names(), Vec::<String>::new());
}

/// A file of a DaemonSet and its data, of which the beginning is a definition, too.
fn whole(image: &str) -> String {
    format!("{}        - {{name: d, image: {image}}}\n{}", half(image), CONFIG.replace("k: v", &format!("k: {image}")))
}

fn half(image: &str) -> String {
    let text = daemon_set("a", image);
    let (head, _) = text.split_once("spec: {containers").unwrap();
    format!("{head}spec:\n        containers:\n        - {{name: c, image: {image}}}\n")
}

/// The image, the number of containers and the data in force.
fn in_force(view: &FolderView) -> (String, usize, String) {
    let daemon_set = view.daemon_set(&key("a")).unwrap();
    let containers = daemon_set.template["spec"]["containers"].as_array().unwrap().len();
    let data = view.objects().next().map(|(_, object)| object["data"]["k"].as_str().unwrap().to_owned());
    (image(view), containers, data.unwrap_or_default())
}

fn holds(view: &FolderView, image: &str) -> bool {
    in_force(view) == (image.to_owned(), 2, image.to_owned())
}

#[test]
fn a_change_counts_as_a_whole_once_it_was_the_same_for_a_second() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &whole("one"));
    assert!(holds(folders.at_once(), "one"), "nothing was known of it: a first start does not wait");
    folders.later();
    folders.write(0, "x.yaml", &half("two"));
    for millis in [1, 500, 499] {
        assert!(holds(folders.after(millis), "one"), "{millis}");
    }
    folders.write(0, "x.yaml", &whole("two"));
    for millis in [0, 1, 500, 498] {
        let view = folders.after(millis);
        assert!(holds(view, "one") && view.is_held, "{millis}");
    }
    let left = folders.view.recheck.unwrap();
    assert_eq!(left, Duration::from_millis(1));
    let view = folders.after(1);
    assert!(holds(view, "two") && !view.is_held && view.recheck.is_none());
    // The clock of files stands still, or goes back: they are compared with no clock.
    for modified in [0, 4_000_000_000] {
        folders.write(0, "x.yaml", &half("three"));
        let file = fs::File::options().write(true).open(folders.paths[0].join("x.yaml")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified)).unwrap();
        assert!(holds(folders.at_once(), "two"), "{modified}");
        folders.write(0, "x.yaml", &whole("two"));
        folders.later();
    }
}

#[test]
fn what_changed_between_two_processes_rests_too() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &whole("one"));
    folders.later();
    folders.write(0, "x.yaml", &half("two"));
    for _ in 0..3 {
        restart(&mut folders);
        assert!(holds(folders.at_once(), "one"));
    }
    restart(&mut folders);
    assert_eq!(in_force(folders.later()), ("two".to_owned(), 1, String::new()), "it is what somebody wants");
    folders.write(0, "x.yaml", &whole("two"));
    folders.later();
    restart(&mut folders);
    let view = folders.at_once();
    assert!(holds(view, "two") && !view.is_held && !view.is_restless(&key("a")), "what did not change counts at once");
    // The first process of a boot takes what is old, and lets the rest rest.
    folders.write(0, "x.yaml", &whole("three"));
    let first = [(FirstLook::OfBoot, 0, "two"), (FirstLook::OfProcess, 100, "two"), (FirstLook::OfBoot, 100, "three")];
    for (first, ahead, image) in first {
        restart(&mut folders);
        assert!(holds(folders.look(Duration::from_secs(ahead), Some(first)), image), "{first:?} {ahead}");
    }
    // Who looks once is to know what follows.
    folders.write(0, "x.yaml", &whole("four"));
    restart(&mut folders);
    assert!(holds(folders.look(Duration::ZERO, Some(FirstLook::Only)), "four"));
}

#[test]
fn a_file_of_which_nothing_was_known_takes_the_place_of_nothing_before_it_rests() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &whole("one"));
    folders.later();
    folders.write(1, "y.yaml", &(half("two") + CONFIG));
    let view = folders.at_once();
    assert!(holds(view, "one") && !view.is_restless(&key("a")));
    folders.later();
    assert_eq!(in_force(&folders.view), ("two".to_owned(), 1, "v".to_owned()));
    // Nor does a file of its name in a later folder.
    folders.write(1, "x.yaml", &half("three"));
    assert_eq!(image(folders.at_once()), "two");
    fs::remove_file(folders.paths[1].join("y.yaml")).unwrap();
    assert_eq!(image(folders.at_once()), "two");
    assert_eq!(image(folders.later()), "three");
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    assert_eq!(image(folders.at_once()), "three");
    assert!(holds(folders.later(), "one"));
    folders.begin(FolderView::default());
    assert!(folders.at_once().is_restless(&key("a")), "whether something runs with another is not known here");
}

#[test]
fn of_a_file_that_defines_something_twice_the_last_definition_counts_before_it_rests_too() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &format!("{}---\n{}", half("one"), half("two")));
    assert_eq!(image(folders.at_once()), "two");
    assert_eq!(image(folders.later()), "two");
}

#[test]
fn a_file_that_never_rests_keeps_its_last_version_and_is_reported() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &whole("one"));
    folders.later();
    for round in 0..25 {
        folders.write(0, "x.yaml", &whole(&format!("i{round}")));
        assert!(holds(folders.after(500), "one"), "{round}");
        let reported: Vec<String> = folders.problems();
        assert_eq!(reported.len(), usize::from(round >= 20), "{round}: {reported:?}");
    }
    assert!(folders.problems()[0].starts_with("/usr/x.yaml: changes all the time"), "{:?}", folders.problems());
    folders.later();
    assert!(holds(&folders.view, "i24") && folders.problems().is_empty());
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    let mut folders = Folders::new();
    folders.write(0, "x.yaml", &daemon_set("a", "one"));
    folders.later();
    let before = std::sync::Arc::clone(&folders.view.files[0]);
    folders.later();
    assert!(std::sync::Arc::ptr_eq(&before, &folders.view.files[0]));
    folders.write(0, "x.yaml", &daemon_set("a", "two"));
    folders.later();
    assert_ne!(before.fingerprint, folders.view.files[0].fingerprint);
}

#[test]
fn what_a_file_defined_that_has_just_gone_starts_nothing() {
    let mut folders = Folders::new();
    folders.write(1, "x.yaml", &daemon_set("a", "one"));
    folders.later();
    let origin = folders.origin("a");
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    folders.at_once();
    for origin in [None, Some(&origin)] {
        assert!(matches!(folders.view.state(&key("a"), origin), FolderState::Unsure { .. }), "{origin:?}");
    }
    folders.later();
    assert!(matches!(folders.view.state(&key("a"), Some(&origin)), FolderState::Absent));
}

#[test]
fn absence_is_evidence_only_in_the_folder_that_it_was_in() {
    let mut folders = Folders::new();
    folders.write(1, "x.yaml", &daemon_set("a", "one"));
    folders.later();
    let origin = folders.origin("a");
    let word = |view: &FolderView, origin: &FolderOrigin| match view.state(&key("a"), Some(origin)) {
        FolderState::Present { .. } => "present".to_owned(),
        FolderState::Absent => "absent".to_owned(),
        FolderState::Unsure { reason } => reason.to_owned(),
    };
    assert_eq!(word(&folders.view, &origin), "present");
    // The folder is gone: what it said stays, also for an agent that starts anew.
    let aside = folders.paths[1].with_extension("aside");
    fs::rename(&folders.paths[1], &aside).unwrap();
    assert_eq!(word(folders.later(), &origin), "present");
    folders.begin(FolderView::default());
    assert_eq!(word(folders.later(), &origin), "its folder is missing");
    fs::rename(&aside, &folders.paths[1]).unwrap();
    // The file is bad, and nobody knows its last version.
    folders.write(1, "x.yaml", "kind: [");
    assert_eq!(word(folders.later(), &origin), "its file is not valid");
    // Another file system.
    fs::remove_file(folders.paths[1].join("x.yaml")).unwrap();
    folders.begin(FolderView::default());
    let mut elsewhere = origin.clone();
    elsewhere.folder.id.push('x');
    assert_eq!(word(folders.later(), &elsewhere), "its folder is now on another file system");
    folders.write(1, ".other", "");
    assert_eq!(word(folders.at_once(), &origin), "its folder is being changed");
    assert_eq!(word(folders.later(), &origin), "absent");
    assert_eq!(folders.view.state(&key("a"), None), FolderState::Absent);
    // Masked from another folder.
    symlink("/dev/null", folders.paths[0].join("x.yaml")).unwrap();
    assert_eq!(word(folders.later(), &elsewhere), "absent");
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
fn what_cannot_be_read_is_reported() {
    let mut folders = Folders::new();
    symlink("/nowhere", folders.paths[0].join("x.yaml")).unwrap();
    fs::write(&folders.paths[2], "a file where a folder should be").unwrap();
    nix::unistd::mkfifo(&folders.paths[0].join("fifo.yaml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    folders.later();
    let mut problems = folders.problems();
    problems.sort();
    assert_eq!(problems.len(), 3);
    assert!(problems[0].starts_with("/etc: cannot be read; what it last defined stays in force: Not a directory"));
    assert!(problems[1].starts_with("/usr/fifo.yaml: cannot be read") && problems[1].contains("not a regular file"));
    assert!(problems[2].starts_with("/usr/x.yaml: cannot be read"));
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

/// What another process would go on with after this one.
fn restart(folders: &mut Folders) {
    let recalled = |file: &std::sync::Arc<super::FileView>| RecalledFile {
        path: file.path.clone(),
        fingerprint: file.fingerprint.clone(),
        mounted: file.mounted.clone(),
        daemon_sets: file.daemon_sets.clone(),
        objects: file.objects.clone(),
    };
    folders.begin(FolderView::default().with_recalled(folders.view.files.iter().map(recalled)));
}

fn image(view: &FolderView) -> String {
    let daemon_set = view.daemon_sets().next().unwrap();
    daemon_set.template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

const CONFIG: &str = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: v}\n";

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
    let mut file = super::FileView::clone(before);
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
    let mut file = super::FileView::clone(&folders.view.files[0]);
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
    // The same file system at another place, as another sandbox shows it, is none that is missing.
    fs::remove_file(&path).unwrap();
    older();
    let same = FolderIdentity { mount_point: folders.paths[1].display().to_string(), ..here };
    folders.view.files[0] = std::sync::Arc::new(super::FileView { mounted: Some(same), ..before });
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
    let reason = "its folder is no longer configured";
    assert_eq!(folders.view.state(&key("a"), Some(&origin)), FolderState::Unsure { reason });
    folders.write(0, "a.yaml", &CONFIG.replace("k: v", "k: w"));
    folders.later();
    let values: Vec<_> = folders.view.objects().map(|(_, value)| value["data"]["k"].clone()).collect();
    assert_eq!((values, folders.problems()), (vec![serde_json::json!("w")], vec![]));
}

async fn wakes(watch: &mut FoldersWatch) -> bool {
    tokio::time::timeout(Duration::from_secs(3), watch.changed()).await.is_ok()
}

async fn drain(watch: &mut FoldersWatch) {
    while tokio::time::timeout(Duration::from_millis(200), watch.changed()).await.is_ok() {}
}

#[tokio::test]
async fn a_watch_sees_files_and_folders_come_and_go() {
    let folders = Folders::new();
    let etc: &Path = &folders.paths[2];
    let mut watch = FoldersWatch::new(Real::shared(), &[folders.paths[0].clone(), etc.join("deep/daemonsets.d")]);
    assert_eq!(watch.trouble(), None);
    drain(&mut watch).await;
    folders.write(0, "x.yaml", "a");
    assert!(wakes(&mut watch).await, "a file in a folder that was there");
    drain(&mut watch).await;
    fs::read(folders.paths[0].join("x.yaml")).unwrap();
    assert!(!wakes_soon(&mut watch).await, "reading is no change");
    fs::create_dir_all(etc.join("deep/daemonsets.d")).unwrap();
    assert!(wakes(&mut watch).await, "a folder that appears");
    drain(&mut watch).await;
    fs::write(etc.join("deep/daemonsets.d/y.yaml"), "a").unwrap();
    assert!(wakes(&mut watch).await, "a file in a folder that was not there");
    drain(&mut watch).await;
    fs::remove_dir_all(etc.join("deep")).unwrap();
    drain(&mut watch).await;
    fs::create_dir_all(etc.join("deep/daemonsets.d")).unwrap();
    drain(&mut watch).await;
    fs::write(etc.join("deep/daemonsets.d/y.yaml"), "a").unwrap();
    assert!(wakes(&mut watch).await, "a file in a folder that was made anew");
}

async fn wakes_soon(watch: &mut FoldersWatch) -> bool {
    tokio::time::timeout(Duration::from_millis(300), watch.changed()).await.is_ok()
}
