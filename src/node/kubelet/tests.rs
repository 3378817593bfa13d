use serde_json::json;

use super::Kubelet;
use super::KubeletError;
use super::PodList;
use super::PodReport;

#[test]
fn an_endpoint_is_an_https_url() {
    for endpoint in ["https://127.0.0.1:10250", "https://[::1]:10250/", "https://node1"] {
        Kubelet::new(endpoint, "").unwrap();
    }
    for endpoint in ["", "http://127.0.0.1:10255", "127.0.0.1:10250", "https://x/pods"] {
        let error = Kubelet::new(endpoint, "").unwrap_err();
        assert!(matches!(error, KubeletError::Endpoint { .. }), "{endpoint}");
        assert!(error.hint().unwrap().contains("https://127.0.0.1:10250"));
    }
}

#[test]
fn a_rejected_pod_and_one_without_a_status_are_read() {
    let list = json!({"items": [
        {"metadata": {"uid": "1", "namespace": "a", "name": "b"},
         "status": {"phase": "Failed", "reason": "NodePorts", "message": "Pod was rejected", "conditions": null}},
        {"metadata": {"uid": "2"}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"metadata": {"uid": "3"}},
    ]});
    let list: PodList = serde_json::from_value(list).unwrap();
    let reports: Vec<PodReport> = list.items.unwrap().into_iter().map(PodReport::from).collect();
    assert_eq!(
        (reports[0].phase.as_str(), reports[0].reason.as_str(), reports[0].ready),
        ("Failed", "NodePorts", None)
    );
    assert_eq!(reports[1].ready, Some(false));
    assert_eq!(reports[2].uid, "3");
    let empty: PodList = serde_json::from_str(r#"{"items": null}"#).unwrap();
    assert!(empty.items.is_none());
}

#[tokio::test]
async fn without_credentials_nothing_is_known() {
    let root = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::new("https://127.0.0.1:1", root.path().join("absent")).unwrap();
    assert!(matches!(kubelet.running_uids().await.unwrap_err(), KubeletError::Credentials(_)));
}

/// Against a real kubelet, named by `DAEMONLET_TEST_KUBELET` (a URL) and `DAEMONLET_TEST_KUBECONFIG`;
/// says a word and passes where there is none.
#[tokio::test]
async fn a_real_kubelet_answers() {
    let (Ok(endpoint), Ok(kubeconfig)) =
        (std::env::var("DAEMONLET_TEST_KUBELET"), std::env::var("DAEMONLET_TEST_KUBECONFIG"))
    else {
        eprintln!("skipped: DAEMONLET_TEST_KUBELET and DAEMONLET_TEST_KUBECONFIG name no kubelet");
        return;
    };
    let kubelet = Kubelet::new(&endpoint, kubeconfig).unwrap();
    let pods = kubelet.pods().await.unwrap();
    let running = kubelet.running_uids().await.unwrap();
    eprintln!("{pods:#?} {running:?}");
    for pod in pods.iter().filter(|pod| pod.ready == Some(true)) {
        assert!(running.contains(&pod.uid));
    }
}
