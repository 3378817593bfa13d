use crate::core::time::at;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use super::server::Exposed;
use super::*;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::status::AgentStatus;
use crate::core::status::ApiLink;
use crate::core::status::Passes;

fn pass() -> Pass {
    let agent = AgentStatus {
        running: true,
        since: None,
        version: "0.1.0".into(),
        api: ApiLink::NotConfigured,
        api_since: None,
        tokens: None,
        identity: None,
        api_use: None,
        passes: Passes::default(),
    };
    let status = StatusReport {
        schema_version: 1,
        node: "n1".into(),
        kubelet_version: None,
        agent,
        daemons: Vec::new(),
        problems: Vec::new(),
        notes: Vec::new(),
        left_alone: Vec::new(),
        refused: Vec::new(),
    };
    Pass {
        status,
        rules: PodRules::default(),
        ended: at(5_000),
        took: Duration::from_millis(3),
        changes: [1, 2, 3, 4],
        pulls: 0,
        approvals: Approvals::default(),
        api: None,
        tokens: Tokens::default(),
    }
}

/// The whole answer to a request, until the server closes the connection.
fn ask(mut stream: impl Read + Write, head: &str) -> String {
    stream.write_all(format!("{head}\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Connects as soon as the server listens.
fn dial<S>(connect: impl Fn() -> std::io::Result<S>) -> S {
    for _ in 0..500 {
        if let Ok(stream) = connect() {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no server listens");
}

#[test]
fn a_socket_serves_metrics_and_health_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let recorder = MetricsRecorder::serve(Listen::Unix(path.clone()), at(1_000)).unwrap();
    let connect = || dial(|| UnixStream::connect(&path));
    let early = ask(connect(), "GET /healthz HTTP/1.1");
    assert!(early.starts_with("HTTP/1.1 503 ") && early.contains("not ok: no pass has ended yet"), "{early}");
    assert!(ask(connect(), "GET /metrics HTTP/1.1").starts_with("HTTP/1.1 503 "));
    recorder.record(pass());
    recorder.record(pass());
    let text = ask(connect(), "GET /metrics HTTP/1.1");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4"), "{text}");
    for (name, value) in [("passes_total", 2), ("starts_total", 2), ("apply_failures_total", 8)] {
        let line = format!("daemonlet_{name}{{node=\"n1\"}} {value}");
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    let health = ask(connect(), "GET /healthz HTTP/1.1");
    assert!(health.starts_with("HTTP/1.1 200 ") && health.contains("ok: the last pass ended "), "{health}");
    assert!(ask(connect(), "POST /metrics HTTP/1.1").starts_with("HTTP/1.1 405 "));
    assert!(ask(connect(), "GET / HTTP/1.1").starts_with("HTTP/1.1 404 "));
    assert!(!ask(connect(), "HEAD /metrics HTTP/1.1").contains("daemonlet_"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Whoever reaches the port (a pod on the host's network, where it is an address) reads two pages, and nothing else.
#[test]
fn no_request_of_a_neighbour_reads_anything_else_or_stops_the_server() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let recorder = MetricsRecorder::serve(Listen::Tcp(free), at(1_000)).unwrap();
    recorder.record(pass());
    let long = "x".repeat(1 << 16);
    let attempts: [Vec<u8>; 16] = [
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET /metrics/../../etc/shadow HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET //metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PUT /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
        b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"\0\0\0\0\r\n\r\n".to_vec(),
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes(),
        format!("GET /metrics HTTP/1.1\r\nX: {long}\r\n\r\n").into_bytes(),
        format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(2_000)).into_bytes(),
        b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzzzz".to_vec(),
    ];
    for attempt in attempts {
        let mut stream = dial(|| TcpStream::connect(free));
        let name = String::from_utf8_lossy(&attempt[..attempt.len().min(60)]).into_owned();
        // A server that has seen enough closes while the rest is written.
        let _ = stream.write_all(&attempt);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let is_ok = answer.starts_with("HTTP/1.1 200");
        assert!(!is_ok || answer.contains("daemonlet_passes_total"), "{name}: {answer}");
        assert!(!answer.contains("root:"), "{name}: {answer}");
    }
    let answer = ask(dial(|| TcpStream::connect(free)), "GET /healthz HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200 "), "it serves on: {answer}");
}

#[test]
fn silent_clients_take_no_more_than_their_seats_and_nobody_else_waits_long() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let recorder = MetricsRecorder::serve(Listen::Tcp(free), at(1_000)).unwrap();
    recorder.record(pass());
    let silent: Vec<TcpStream> = (0..6).map(|_| dial(|| TcpStream::connect(free))).collect();
    let answer = ask(dial(|| TcpStream::connect(free)), "GET /healthz HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(silent);
}

#[test]
fn an_address_that_is_taken_is_reported_and_a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "mine").unwrap();
    let recorder = MetricsRecorder::serve(Listen::Unix(path.clone()), at(0)).unwrap();
    let complaint = dial(|| recorder.complaint().ok_or(std::io::Error::other("none yet")));
    assert!(complaint.contains("cannot listen: something that is no socket has that name"), "{complaint}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let recorder = MetricsRecorder::serve(Listen::Tcp(taken.local_addr().unwrap()), at(0)).unwrap();
    let complaint = dial(|| recorder.complaint().ok_or(std::io::Error::other("none yet")));
    assert!(complaint.contains("cannot listen: address already in use; trying again"), "{complaint}");
}

#[test]
fn a_loop_that_hangs_is_unhealthy() {
    let mut recorder = MetricsRecorder { started: at(0), since: Instant::now(), inner: Arc::default() };
    recorder.record(pass());
    assert!(recorder.health().works);
    let long_ago = Instant::now().checked_sub(HANGS_AFTER + Duration::from_secs(1)).unwrap();
    recorder.with(|recorded| recorded.last.as_mut().unwrap().1 = long_ago);
    let health = recorder.health();
    assert!(!health.works && health.words == "the last pass ended 181 s ago", "{health:?}");
    recorder.inner = Arc::default();
    assert!(!recorder.health().works);
}

#[test]
fn what_daemons_name_is_one_series_a_kind() {
    let scope = |scope: Scope, lists: u64| ScopeHealth { scope, lists, error: None, since: None };
    let config_map = |name: &str| Scope::Object(ObjectRef::new(Kind::ConfigMap, "tenant", name));
    let scopes = [
        scope(Scope::Node, 2),
        scope(config_map("a"), 1),
        scope(config_map("b"), 0),
        scope(Scope::Pending(ObjectKey::new("tenant", "x")), 1),
    ];
    let found: Vec<_> = watches(scopes.iter()).into_iter().map(|watch| (watch.name, watch.up, watch.lists)).collect();
    let wanted = [("ConfigMap", false, None), ("node", true, Some(2)), ("unbound pods", true, None)];
    assert_eq!(found, wanted.map(|(name, up, lists)| (name.to_owned(), up, lists)));
}
