//! The watch on folders.

use crate::node::folders::FoldersWatch;

use super::*;

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
