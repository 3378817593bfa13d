//! What is kept of certificate requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::core::enrolment;
use crate::core::enrolment::ApprovalVerdict;

use super::*;

#[test]
fn of_a_certificate_request_that_is_left_alone_no_more_is_kept_than_whose_it_is_and_why() {
    let asked = |name: &str, groups: Value, more: Value| {
        let csr = STANDARD.encode(enrolment::request("n1", &[4; 65], &[0x30, 0]).unwrap());
        json!({"metadata": {"name": name, "resourceVersion": "1", "annotations": more},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
                "username": "system:bootstrap:abcdef", "groups": groups, "request": csr}})
    };
    let bootstrap = || json!([enrolment::BOOTSTRAP_GROUP]);
    let long = || json!({"x": "x".repeat(100_000)});
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::CertificateRequests, asked("small", bootstrap(), json!({})));
    view.put(WatchedKind::CertificateRequests, asked("large", bootstrap(), long()));
    view.put(WatchedKind::CertificateRequests, asked("stranger", json!([]), long()));
    let small = &view.certificate_requests["small"];
    assert!(small.object.is_some() && matches!(&small.verdict, ApprovalVerdict::IfNodeExists(node) if node == "n1"));
    for name in ["large", "stranger"] {
        let request = &view.certificate_requests[name];
        assert!(request.object.is_none() && format!("{request:?}").len() < 1_000, "{name}: {request:?}");
        assert!(matches!(request.verdict, ApprovalVerdict::LeaveAlone(_)));
    }
}
