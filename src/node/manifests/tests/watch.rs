//! The watch on the manifest folder.

use inotify::Inotify;
use inotify::WatchMask;
use tokio::sync::Notify;

use super::*;

/// Waits for a wake-up; gives whether there was one.
async fn woken(wakes: &Notify, patience: Duration) -> bool {
    tokio::time::timeout(patience, wakes.notified()).await.is_ok()
}

#[tokio::test]
async fn the_watch_tells_of_others_and_not_of_ourselves() {
    let (_root, mut dir) = fresh();
    let wakes = Arc::new(Notify::new());
    let waker = Arc::clone(&wakes);
    dir.watch(move || waker.notify_one()).unwrap();
    let (long, short) = (Duration::from_secs(10), Duration::from_millis(100));
    let foreign = async |what: &str, act: &dyn Fn()| {
        act();
        assert!(woken(&wakes, long).await, "{what}");
        while woken(&wakes, short).await {}
    };
    let path = dir.path().join(NAME);
    put(&mut dir, &pod("a"));
    assert!(!woken(&wakes, short).await, "our own write");
    foreign("edit", &|| fs::write(&path, bytes(&pod("b"))).unwrap()).await;
    put(&mut dir, &pod("a"));
    foreign("mode", &|| fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap()).await;
    foreign("removal", &|| fs::remove_file(&path).unwrap()).await;
    put(&mut dir, &pod("a"));
    assert!(!woken(&wakes, short).await, "what we made anew");
    put(&mut dir, &pod("c"));
    dir.scan().unwrap();
    dir.remove(NAME).unwrap();
    assert!(!woken(&wakes, short).await, "a write and a removal, reported together");
    let other = dir.path().join("other");
    foreign("another file", &|| fs::write(&other, "").unwrap()).await;
    dir.write(NAME, &bytes(&pod("a")), &pod("a")).unwrap();
    dir.remove(NAME).unwrap();
    dir.write(NAME, &bytes(&pod("a")), &pod("a")).unwrap();
    fs::read(&other).unwrap();
    fs::read_dir(dir.path()).unwrap().for_each(drop);
    assert!(!woken(&wakes, short).await, "our own writes and removals, and what is only read");
    let folder = dir.path().to_owned();
    foreign("folder", &|| fs::remove_dir_all(&folder).unwrap()).await;
    dir.scan().unwrap();
    while woken(&wakes, short).await {}
    foreign("file in the new folder", &|| fs::write(folder.join("x"), "").unwrap()).await;
    foreign("the new folder is moved away", &|| fs::rename(&folder, folder.with_extension("away")).unwrap()).await;
    dir.scan().unwrap();
    while woken(&wakes, short).await {}
    fs::write(folder.with_extension("away").join("y"), "").unwrap();
    assert!(!woken(&wakes, short).await, "what is in the folder that was moved away");
    foreign("file in the next folder", &|| fs::write(folder.join("z"), "").unwrap()).await;
}

/// What the kubelet's inotify sees of one write and one removal.
#[test]
fn the_kubelet_sees_one_event_for_each_step() {
    let (_root, mut dir) = fresh();
    let mut inotify = Inotify::init().unwrap();
    let reading = WatchMask::ACCESS | WatchMask::OPEN | WatchMask::CLOSE;
    inotify.watches().add(dir.path(), WatchMask::ALL_EVENTS.difference(reading)).unwrap();
    let steps: [fn(&mut ManifestDir); 3] =
        [|dir| put(dir, &pod("a")), |dir| put(dir, &pod("b")), |dir| assert!(dir.remove(NAME).unwrap())];
    for step in steps {
        step(&mut dir);
        let mut buffer = [0; 4_096];
        let seen: Vec<_> = inotify.read_events(&mut buffer).unwrap().collect();
        assert!(matches!(&seen[..], [event] if event.name == Some(NAME.as_ref())), "{seen:?}");
    }
}
