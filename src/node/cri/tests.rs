use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::ContainerState;
use super::Cri;
use super::CriError;
use super::SandboxState;
use super::messages;

fn at(path: &Path) -> Cri {
    Cri::connect(&format!("unix://{}", path.display())).unwrap()
}

#[test]
fn an_endpoint_is_the_path_of_a_socket() {
    for endpoint in ["/run/x.sock", "unix:///run/x.sock"] {
        Cri::connect(endpoint).unwrap();
    }
    for endpoint in ["", "x.sock", "unix://x.sock", "tcp://127.0.0.1:1", "unix:/"] {
        let error = Cri::connect(endpoint).unwrap_err();
        assert!(error.hint().unwrap().contains("unix:///run/containerd"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_socket_is_no_answer() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("cri.sock");
    let error = at(&socket).sandboxes().await.unwrap_err();
    let expected = format!("container runtime at {} does not answer ListPodSandbox: retrying", socket.display());
    assert_eq!(error.to_string(), expected);
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), std::io::Error::from_raw_os_error(2).to_string(), "and nothing else");
    assert!(error.hint().unwrap().contains("does not exist"), "{error:?}");
}

#[tokio::test]
async fn a_runtime_that_starts_later_is_found_at_any_of_its_sockets_and_no_other_takes_its_place() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = ["first.sock", "second.sock"].map(|name| root.path().join(name));
    let (alone, cri) = (at(&first), at(&first).or_at(vec![second.clone()]));
    let asked = async |cri: &Cri| {
        let limit = Duration::from_millis(100);
        let request = messages::VersionRequest::default();
        let reply: Result<messages::VersionResponse, _> = cri.channel.call("Version", &request, limit).await;
        reply.unwrap_err().to_string()
    };
    let silent = |socket: &Path| format!("at {} has not answered", socket.display());
    assert!(asked(&cri).await.contains(&format!("at {} does not answer", first.display())), "there is none yet");
    let _second = std::os::unix::net::UnixListener::bind(&second).unwrap();
    let answer = asked(&cri).await;
    assert!(answer.contains(&silent(&second)), "{answer}");
    let _first = std::os::unix::net::UnixListener::bind(&first).unwrap();
    std::fs::remove_file(&second).unwrap();
    let answer = asked(&cri).await;
    assert!(answer.contains(&second.display().to_string()), "it may only be restarting: {answer}");
    assert!(asked(&alone).await.contains(&silent(&first)));
}

#[tokio::test]
async fn a_silent_socket_is_given_up_in_time() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("cri.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let limit = Duration::from_millis(100);
    let request = messages::VersionRequest::default();
    let reply: Result<messages::VersionResponse, _> = at(&socket).channel.call("Version", &request, limit).await;
    let error = reply.unwrap_err();
    assert!(matches!(error, CriError::Timeout { .. }), "{error:?}");
    let expected = "has not answered Version within 0 s: retrying";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn only_what_the_runtime_says_has_stopped_has_stopped() {
    for (number, state) in [(0, SandboxState::Ready), (1, SandboxState::NotReady), (7, SandboxState::Ready)] {
        let sandbox = messages::PodSandbox { state: number, ..messages::PodSandbox::default() };
        assert_eq!(super::Sandbox::from(sandbox).state, state);
    }
    assert_eq!(ContainerState::from(9), ContainerState::Unknown);
}

#[test]
fn restarts_are_those_that_the_kubelet_counts() {
    let mut container = messages::Container {
        metadata: Some(messages::ContainerMetadata { name: "c".to_owned(), attempt: 2 }),
        ..messages::Container::default()
    };
    assert_eq!(super::Container::from(container.clone()).restarts, 2);
    container.annotations = BTreeMap::from([(super::RESTART_COUNT.to_owned(), "5".to_owned())]);
    assert_eq!(super::Container::from(container).restarts, 5);
}

/// Against a real runtime, named by `DAEMONLET_TEST_CRI`; prints a note and passes where there is none.
#[tokio::test]
async fn a_real_runtime_answers() {
    let Ok(endpoint) = std::env::var("DAEMONLET_TEST_CRI") else {
        eprintln!("skipped: DAEMONLET_TEST_CRI names no runtime");
        return;
    };
    let cri = Cri::connect(&endpoint).unwrap();
    let runtime = cri.version().await.unwrap();
    assert!(!runtime.name.is_empty());
    let sandboxes = cri.sandboxes().await.unwrap();
    let containers = cri.containers(None).await.unwrap();
    eprintln!("{runtime:?} {sandboxes:#?} {containers:#?}");
    for container in &containers {
        assert!(sandboxes.iter().any(|sandbox| sandbox.id == container.sandbox_id && sandbox.uid == container.pod_uid));
        let status = cri.container_status(&container.id).await.unwrap().unwrap();
        assert_eq!(status.state, container.state);
        let of_pod = cri.containers(Some(&container.pod_uid)).await.unwrap();
        assert!(of_pod.contains(container) && of_pod.iter().all(|c| c.pod_uid == container.pod_uid));
    }
    assert_eq!(cri.container_status("0000").await.unwrap(), None);
    cri.stop_sandbox("0000").await.unwrap();
    cri.remove_sandbox("0000").await.unwrap();
}
