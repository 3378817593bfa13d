use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use tempfile::TempDir;

use super::FileRole;
use super::FirstLook;
use super::FolderOrigin;
use super::FolderView;
use super::Mask;
use super::RecalledFile;
use super::Rests;
use super::ScanTime;
use super::read;
use crate::core::model::ObjectKey;
use crate::core::sources::FolderState;
use crate::node::fsx::Real;

mod absence;
mod empty;
mod rest;
mod restart;
mod watch;

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

/// What another process would go on with after this one.
fn restart(folders: &mut Folders) {
    let recalled = |file: &std::sync::Arc<super::FileView>| RecalledFile {
        role: file.role(),
        path: file.path.clone(),
        fingerprint: file.fingerprint.clone(),
        mounted: file.mounted.clone(),
        daemon_sets: file.daemon_sets.clone(),
        objects: file.objects.clone(),
    };
    let mask = |mask: &Mask| RecalledFile {
        role: FileRole::Masks,
        path: mask.path.clone(),
        fingerprint: String::new(),
        mounted: mask.mounted.clone(),
        daemon_sets: Vec::new(),
        objects: Vec::new(),
    };
    let masks = folders.view.masks.iter().map(mask);
    folders.begin(FolderView::default().with_recalled(folders.view.files.iter().map(recalled).chain(masks)));
}

fn image(view: &FolderView) -> String {
    let daemon_set = view.daemon_sets().next().unwrap();
    daemon_set.template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

const CONFIG: &str = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: v}\n";

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
fn a_mask_before_a_file_of_a_later_folder_masks_nothing_and_a_note_says_so() {
    let mut folders = Folders::new();
    symlink("/dev/null", folders.paths[0].join("a.yaml")).unwrap();
    symlink("/dev/null", folders.paths[0].join("b.yaml")).unwrap();
    folders.write(1, "a.yaml", &daemon_set("a", "new"));
    symlink("/dev/null", folders.paths[1].join("b.yaml")).unwrap();
    folders.later();
    assert_eq!(folders.names(), ["a"]);
    let [mask, file] = [0, 1].map(|folder| folders.paths[folder].join("a.yaml"));
    let note = "is in a later folder, and the later folder counts";
    assert_eq!(folders.view.notes, [format!("{} masks nothing: {} {note}", mask.display(), file.display())]);
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
        let is_reported =
            problems.iter().any(|p| p.starts_with(&format!("/usr/{name}: is not read: its name is not UTF-8")));
        assert!(is_reported, "{problems:?}");
    }
    assert!(folders.view.problems.iter().all(|problem| serde_json::to_string(problem).is_ok()));
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
