//! JSON from the API server, an object a line: a Node, a pod, DaemonSets and what they refer to.

use daemonlet::core::convert;
use daemonlet::core::convert::DocumentObject;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::Source;
use daemonlet::core::node;
use daemonlet::core::validate;
use daemonlet::node::agent::fuzzing as agent;
use daemonlet::node::api::fuzzing as api;
use daemonlet::node::api::fuzzing::StoredKind;
use daemonlet::node::socket::SocketOperation;

use super::mutate;
use super::whole;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let mut node = NodeView { name: "node-1".to_owned(), ..NodeView::default() };
    let mut objects = ObjectMap::default();
    let mut daemon_sets = Vec::new();
    for line in data.split(|byte| *byte == b'\n') {
        let _ = serde_json::from_slice::<SocketOperation>(line);
        let _ = api::kept(line, StoredKind::Pod);
        let Some(value) = api::kept(line, StoredKind::Object) else { continue };
        match value["kind"].as_str() {
            Some("DaemonSet") => daemon_sets.extend(api::kept(line, StoredKind::DaemonSet)),
            Some("Node") => {
                let kept = api::kept(line, StoredKind::Node).unwrap_or_default();
                node = agent::node_view(&kept);
                let strict = node::view(&kept);
                assert!(strict.is_err() || strict.is_ok_and(|strict| strict.labels == node.labels));
                let version = node.kubelet_version.as_deref().unwrap_or_default();
                let _ = (agent::kubelet_version(version), node::version(version));
            }
            _ => {
                for object in convert::objects(value) {
                    if let Ok(DocumentObject::Other(reference, value)) = object {
                        objects.objects.insert(reference, value);
                    }
                }
            }
        }
    }
    for value in daemon_sets {
        if let Ok(daemon_set) = validate::daemon_set(&value, Source::Api) {
            whole::follow(daemon_set, &mut objects, &node);
        }
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::lines(data, max, seed) } else { None }
}
