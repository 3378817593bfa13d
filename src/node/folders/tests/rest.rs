//! Changes count once a file rests.

use super::*;

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
    assert_eq!(in_force(folders.later()), ("two".to_owned(), 1, String::new()), "the new version is in force");
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
