//! What is wrong with a record, and what to do about it.

use crate::node::checkpoint::DamageCause;

use super::*;

#[test]
fn what_is_no_fault_of_the_disk_is_not_called_one() {
    let (_root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    let path = store.path().join("a.json");
    let right = fs::read_to_string(&path).unwrap();
    let hint = |text: &str, mode: u32| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let Loaded::Damaged(damaged) = store.load::<Record>("a") else { panic!("{text} is used") };
        damaged.hint().unwrap()
    };
    for (hint, says) in [
        (hint(&right.replace("checkpoint/1", "checkpoint/2"), 0o600), "another version of the agent"),
        (hint(&right, 0o666), "who may write to it"),
        (hint(&right[..right.len() - 1], 0o600), "errors of the disk"),
    ] {
        assert!(hint.contains(says), "{hint}");
    }
    store.save("a", &7).unwrap();
    let Loaded::Damaged(damaged) = store.load::<Record>("a") else { panic!("it is used") };
    assert_eq!(damaged.cause, DamageCause::OtherVersion);
}
