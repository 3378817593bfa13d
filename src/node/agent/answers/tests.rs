//! Orders of people on a disk that is full.

use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use crate::core::set_aside::DefinitionVersion;
use crate::node::fsx::Doing;
use crate::node::fsx::Simulated;
use crate::node::notify::Notifier;
use crate::node::socket::OrderDeadline;

use super::*;

const STATE: &str = "/var/lib/daemonlet";

/// A node with one daemon, whose agents find its definition in `/ds`.
fn disk() -> Arc<Simulated> {
    let disk = Simulated::shared();
    for folder in ["/run", "/var/lib", "/kubelet", "/m", "/ds"] {
        disk.make_folder(Path::new(folder));
    }
    disk.put("/proc/sys/kernel/random/boot_id", format!("{:032x}\n", 0));
    disk.put("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda rw\n");
    disk.put("/proc/1/stat", format!("1 (init) {}0 0", "S 1 ".repeat(10)));
    disk.put("/ds/net.yaml", definition("i:1"));
    disk
}

/// The file with the daemon, with this image.
fn definition(image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: net, namespace: a}}\nspec:\n  selector: {{matchLabels: {{a: \
         b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec: {{automountServiceAccountToken: false, containers: \
         [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

/// An agent that reads DaemonSets in `folder`, after its first pass.
fn agent(disk: &Arc<Simulated>, folder: &str) -> Agent {
    let text = format!(
        "node-name = \"n1\"\nkubeconfig = \"\"\nfolders = [\"{folder}\"]\nmanifest-dir = \"/m\"\nstate-dir = \
         \"{STATE}\"\nrun-dir = \"/run/daemonlet\"\nkubelet-root = \"/kubelet\"\nruntime-endpoint = \
         \"unix:///nowhere.sock\"\n[node]\nkubelet-version = \"v1.36.2\"\n"
    );
    let config = Config::from_toml(text).unwrap();
    let mut agent = Agent::on(Arc::<Simulated>::clone(disk), config, Arc::new(Notifier::from_environment())).unwrap();
    wait(agent.pass());
    agent
}

fn wait<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

fn key() -> ObjectKey {
    ObjectKey::new("a", "net")
}

fn instances(agent: &Agent) -> Vec<(u64, bool)> {
    let record = &agent.state.records[&key()];
    record.instances.iter().map(|instance| (instance.incarnation, instance.restart.is_some())).collect()
}

#[test]
fn a_release_that_the_disk_does_not_take_ends_nothing_later() {
    let disk = disk();
    drop(agent(&disk, "/ds"));
    disk.end_process();
    let mut agent = agent(&disk, "/none");
    let order = SocketOperation::Release { daemons: [key()].into() };
    disk.fail(Doing::Write, STATE, Errno::ENOSPC);
    let answer = wait(agent.answer(&order.clone().into()));
    assert_eq!(
        (answer["released"].clone(), answer["refused"][0]["name"].clone()),
        (json!([]), json!("net")),
        "{answer}"
    );
    disk.heal();
    wait(agent.pass());
    let record = &agent.state.records[&key()];
    assert!(!record.released && record.live().next().is_some(), "what was refused is not done later: {record:?}");
    let answer = wait(agent.answer(&order.clone().into()));
    assert_eq!(
        (answer["released"][0]["name"].clone(), answer["refused"].clone()),
        (json!("net"), json!([])),
        "{answer}"
    );
    assert!(agent.state.records[&key()].live().next().is_none());
}

#[test]
fn a_restart_that_is_not_on_disk_counts_and_says_so() {
    let disk = disk();
    let mut agent = agent(&disk, "/ds");
    assert_eq!(instances(&agent), [(0, false)]);
    disk.fail(Doing::Write, STATE, Errno::ENOSPC);
    let order = SocketOperation::Restart { namespace: "a".to_owned(), name: "net".to_owned() };
    let answer = wait(agent.answer(&order.clone().into()));
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("a/net: the restart counts, but is not on disk yet"), "{answer}");
    assert_eq!(instances(&agent), [(0, true)]);
}

#[test]
fn a_restart_reads_a_file_that_was_just_written() {
    let disk = disk();
    let mut agent = agent(&disk, "/ds");
    disk.put("/ds/net.yaml", definition("i:2"));
    let order = SocketOperation::Restart { namespace: "a".to_owned(), name: "net".to_owned() };
    assert_eq!(wait(agent.answer(&order.clone().into()))["error"], Value::Null);
    let read = agent.last.observation.folders.get(&key()).map(|daemon_set| daemon_set.pod_template().to_string());
    assert!(read.as_ref().is_some_and(|template| template.contains("i:2")), "{read:?}");
}

#[test]
fn a_retry_that_fails_leaves_what_is_set_aside() {
    let disk = disk();
    let mut agent = agent(&disk, "/ds");
    let set_aside = &mut agent.state.set_aside;
    let version = DefinitionVersion { key: key(), template: "1".to_owned() };
    set_aside.note_killed(vec![version]);
    let before = set_aside.clone();
    assert!(set_aside.forget(&key()));
    set_aside.restore(&key(), &before);
    assert_eq!(*set_aside, before);
}

/// A request with a deadline so long from now.
fn within(span: Span, request: SocketOperation) -> RequestLine {
    RequestLine { request, deadline: Some(OrderDeadline::after(span)) }
}

#[test]
fn an_order_that_is_too_old_changes_nothing() {
    let disk = disk();
    let mut agent = agent(&disk, "/ds");
    agent.state.set_aside.note_killed(vec![DefinitionVersion { key: key(), template: "1".to_owned() }]);
    let set_aside = agent.state.set_aside.clone();
    let (namespace, name) = (|| "a".to_owned(), || "net".to_owned());
    let retry = SocketOperation::Retry { namespace: namespace(), name: name() };
    let restart = SocketOperation::Restart { namespace: namespace(), name: name() };
    let release = SocketOperation::Release { daemons: [key()].into() };
    let slow = Err(json!({"error": "the agent was too slow to begin: nothing is changed"}));
    let late = |order: &SocketOperation| within(Span::ZERO, order.clone());
    for order in [&retry, &restart, &release] {
        assert_eq!(wait(agent.answer_in_time(&late(order))), slow, "before it is looked at: {order:?}");
    }
    // The deadline goes by while the agent observes.
    assert_eq!(wait(agent.retry(&key(), &late(&retry))), slow);
    assert_eq!(wait(agent.restart(&key(), &late(&restart))), slow);
    assert_eq!((instances(&agent), &agent.state.set_aside), (vec![(0, false)], &set_aside));
    let in_time = |order| within(Span::from_mins(1), order);
    assert_eq!(wait(agent.answer(&in_time(retry)))["error"], Value::Null);
    assert_eq!(wait(agent.answer(&in_time(restart)))["error"], Value::Null);
    assert!(instances(&agent)[0].1 && !agent.state.set_aside.knows(&key()), "{:?}", instances(&agent));
}

#[test]
fn a_release_that_is_too_old_ends_nothing_later() {
    let disk = disk();
    drop(agent(&disk, "/ds"));
    disk.end_process();
    let mut agent = agent(&disk, "/none");
    let late = within(Span::ZERO, SocketOperation::Release { daemons: [key()].into() });
    assert!(wait(agent.release(&[key()].into(), &late)).is_err());
    wait(agent.pass());
    let record = &agent.state.records[&key()];
    assert!(!record.released && record.live().next().is_some(), "{record:?}");
}

#[test]
fn only_the_revision_that_was_seen_to_wait_is_approved() {
    let disk = disk();
    let by_hand =
        |image| definition(image).replace("{name: net,", "{annotations: {daemonlet.dev/update: manual}, name: net,");
    disk.put("/ds/net.yaml", by_hand("i:1"));
    let mut agent = agent(&disk, "/ds");
    let change = |agent: &mut Agent, image| {
        disk.put("/ds/net.yaml", by_hand(image));
        wait(agent.read_what_comes_to_rest());
        let status = agent.reporter.status(&agent.view());
        status.daemons[0].awaits_approve.clone().expect("it waits")
    };
    let approve = |revision: &String| {
        let revision = Some(revision.clone());
        RequestLine::from(SocketOperation::Approve { namespace: "a".to_owned(), name: "net".to_owned(), revision })
    };
    let seen = change(&mut agent, "i:2");
    let late = within(Span::ZERO, approve(&seen).request);
    assert!(wait(agent.approve(&key(), Some(&seen), &late)).is_err());
    let newer = change(&mut agent, "i:3");
    let refused = format!("a/net is not approved: not {seen} but revision {newer} waits for this by now");
    assert_eq!(wait(agent.answer(&approve(&seen))), json!({"error": refused}));
    assert_eq!(agent.state.records[&key()].by_hand, None);
    assert_eq!(wait(agent.answer(&approve(&newer)))["revision"], json!(newer));
    assert_eq!(agent.state.records[&key()].by_hand, Some(newer));
}
