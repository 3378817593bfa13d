//! What a client sends to the agent's socket.

use daemonlet::node::socket;
use serde_json::Value;

use super::mutate;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let said = socket::replies(data).expect("a connection");
    let said = String::from_utf8(said).expect("text");
    let lines = data.split(|byte| *byte == b'\n').count() + data.len() / (64 << 10);
    assert!(said.lines().count() <= lines, "more replies than requests");
    for line in said.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|reply| reply.is_object()), "{line}");
        assert!(line.len() < 70_000, "a reply to nonsense is {} bytes long", line.len());
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::lines(data, max, seed) } else { None }
}
