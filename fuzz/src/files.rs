//! Input files: bytes to documents, to DaemonSets, to manifests, and those read back.

use std::path::Path;

use daemonlet::core::input;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::Taint;

use super::mutate;
use super::whole;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = input::parse_file(Path::new("/etc/daemonlet/daemonsets.d/fuzz.yaml"), text);
    // What YAML 1.1 takes for the end of a line.
    let lines = text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1;
    for problem in &file.problems {
        assert!(!problem.reason.is_empty(), "{problem:?}");
        assert!(problem.line <= lines + 1, "{problem}");
    }
    let mut objects = ObjectMap { objects: file.objects.into_iter().collect(), complete: true };
    let node = NodeView {
        name: "node-1".to_owned(),
        labels: [("kubernetes.io/os".to_owned(), "linux".to_owned()), ("a".to_owned(), "7".to_owned())].into(),
        taints: vec![Taint { key: "a".to_owned(), value: String::new(), effect: "NoExecute".to_owned() }],
        ..NodeView::default()
    };
    for daemon_set in file.daemon_sets {
        whole::follow(daemon_set, &mut objects, &node);
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::documents(data, max, seed) } else { None }
}
