use serde_json::json;

use super::Kubelet;
use super::KubeletError;
use super::MAX_KEPT;
use super::PodListText;
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
    let reports = read(&list.to_string());
    assert_eq!(
        (reports[0].phase.as_str(), reports[0].reason.as_str(), reports[0].ready),
        ("Failed", "NodePorts", None)
    );
    assert_eq!(reports[1].ready, Some(false));
    assert_eq!(reports[2].uid, "3");
    assert_eq!(read(r#"{"items": null}"#), []);
}

fn fed(text: &str, piece: usize) -> Result<PodListText, String> {
    let mut list = PodListText::new();
    text.as_bytes().chunks(piece).try_for_each(|bytes| list.feed(bytes))?;
    Ok(list)
}

fn read(text: &str) -> Vec<PodReport> {
    let [pieces, whole] = [7, text.len()].map(|piece| fed(text, piece).unwrap().pods().unwrap());
    assert_eq!(pieces, whole);
    whole
}

#[test]
fn of_each_pod_no_more_is_held_than_what_is_read() {
    let pod = |number: usize, source: &str| {
        json!({
            "metadata": {"uid": number.to_string(), "namespace": "a", "name": "b", "annotations":
                {"kubernetes.io/config.source": source, "large": "x".repeat(200 << 10)}, "managedFields": [{"a": {}}]},
            "spec": {"containers": [{"env": [{"name": "A", "value": "x".repeat(100 << 10)}]}]},
            "status": {"phase": "Running", "message": "m", "conditions": [{"type": "Ready", "status": "True"}],
                "hostIPs": [{"ip": "10.0.0.1"}]},
        })
    };
    let items: Vec<_> = (0..100).map(|number| pod(number, if number < 50 { "file" } else { "api" })).collect();
    let text = json!({"kind": "PodList", "metadata": {}, "items": items}).to_string();
    assert!(text.len() > 3 * MAX_KEPT);
    let list = fed(&text, 16 << 10).unwrap();
    assert!(list.kept.capacity() < 64 << 10, "{}", list.kept.capacity());
    let pods = list.pods().unwrap();
    assert_eq!(pods.len(), 100);
    let status =
        json!({"status": {"phase": "Running", "message": "m", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!((pods[7].reported.as_ref(), pods[7].ready), (Some(&status), Some(true)));
    assert_eq!((pods[70].reported.as_ref(), pods[70].phase.as_str()), (None, ""), "it is of the API server");
}

#[test]
fn a_pod_of_which_too_much_is_said_is_there_and_a_list_without_end_is_unknown() {
    let large = json!({"metadata": {"uid": "1"}, "status": {"phase": "Failed", "message": "x".repeat(1 << 20)}});
    let small = json!({"metadata": {"uid": "2"}, "status": {"phase": "Failed"}});
    let pods = read(&json!({"items": [large, small]}).to_string());
    assert_eq!((pods[0].uid.as_str(), pods[0].phase.as_str(), &pods[0].reported), ("1", "", &None));
    assert_eq!(pods[1].phase, "Failed");
    let item = json!({"metadata": {"uid": "1"}, "status": {"message": "x".repeat(100 << 10)}}).to_string();
    let endless = format!("{{\"items\": [{}", format!("{item},").repeat(MAX_KEPT / item.len() + 2));
    assert!(fed(&endless, 16 << 10).is_err_and(|why| why.contains("8 MiB of what is read")));
    let junk = format!("{{\"kind\": \"{}", "x".repeat(MAX_KEPT + 1));
    assert!(fed(&junk, 16 << 10).is_err());
}

#[tokio::test]
async fn without_credentials_nothing_is_known() {
    let root = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::new("https://127.0.0.1:1", root.path().join("absent")).unwrap();
    assert!(matches!(kubelet.running_uids().await.unwrap_err(), KubeletError::Credentials(_)));
}

/// Against a real kubelet, named by `DAEMONLET_TEST_KUBELET` (a URL) and `DAEMONLET_TEST_KUBECONFIG`;
/// prints a note and passes where there is none.
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
