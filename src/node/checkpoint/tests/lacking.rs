//! State folders of which a part is not there.

use super::*;

#[test]
fn half_a_state_folder_is_not_none_and_the_end_of_a_link_may_be_there_later() {
    let (root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    let look = |path: &Path| CheckpointStore::open_read_only(&Real::shared(), path);
    let above = look(&root.path().join("state")).unwrap().unwrap();
    assert_eq!(above.folder_read_only("daemons").unwrap().load_all(|_| None).unwrap(), [Loaded::Present(record(1))]);
    let lacking = above.folder_read_only("other").unwrap();
    assert_eq!(lacking.load_all::<Record>(|_| None).unwrap(), []);
    assert!(!lacking.path().exists());
    let link = root.path().join("link");
    symlink(root.path().join("nowhere"), &link).unwrap();
    assert!(matches!(look(&link), Err(CheckpointError::Folder { .. })));
}
