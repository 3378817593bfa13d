//! Certificate requests of kubelets.

use base64::engine::general_purpose::STANDARD;

use crate::core::enrolment;

use super::*;

/// A certificate request of `kubelet` for the agent of node `of`.
fn certificate_request(name: &str, kubelet: &str, of: &str, status: Value) -> Value {
    let request = enrolment::request(of, &[4; 65], &[0x30, 0]).unwrap();
    json!({"metadata": {"name": name, "resourceVersion": "5"}, "status": status,
        "spec": {"signerName": enrolment::SIGNER, "usages": ["client auth"], "request": STANDARD.encode(request),
            "username": format!("system:node:{kubelet}"), "groups": ["system:nodes"]}})
}

#[test]
fn a_certificate_request_is_approved_for_a_node_that_is_there() {
    let mut coordinator = Coordinator::new();
    // It does not wait for what rollouts wait for.
    coordinator.take(Change::Begin(WatchedKind::NodeDaemons));
    for (name, kubelet, of) in [("own", "a", "a"), ("other-node", "a", "b"), ("early", "late", "late")] {
        let request = certificate_request(name, kubelet, of, json!({}));
        coordinator.changed(WatchedKind::CertificateRequests, request);
    }
    let first = coordinator.pass(vec![]);
    let [sent] = &first.requests[..] else { panic!("{first:?}") };
    let Call::Approve(name, of, approved) = &sent.call else { panic!("{sent:?}") };
    assert_eq!((name.as_str(), of.as_str(), sent.version.as_str()), ("own", "a", "5"));
    assert_eq!(approved["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(approved["metadata"]["resourceVersion"], "5", "what was judged is what is approved");
    let left: Vec<(&str, bool)> = first.notices.iter().filter_map(left).collect();
    assert_eq!(left, [("early", false), ("other-node", true)]);
    coordinator.changed(WatchedKind::Nodes, node("late"));
    let decided = json!({"conditions": [{"type": "Approved"}]});
    let decided = certificate_request("own", "a", "a", decided);
    coordinator.changed(WatchedKind::CertificateRequests, decided);
    let second = coordinator.pass(all(&first, &RequestOutcome::Written));
    assert_eq!(second.notices, [Notice::Approved("own".to_owned(), "a".to_owned())], "the others were reported");
    assert_eq!(targets(&second), ["certificatesigningrequest early"], "its Node has come");
    assert_eq!(coordinator.pass(all(&second, &RequestOutcome::Outdated("its Node is gone".to_owned()))).requests, []);
}
