//! Orders of people on a disk that is full.

use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use crate::core::set_aside::DefinitionVersion;
use crate::node::fsx::Doing;
use crate::node::fsx::Simulated;
use crate::node::notify::Notifier;

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
    let answer = wait(agent.answer(&order));
    assert_eq!(
        (answer["released"].clone(), answer["refused"][0]["name"].clone()),
        (json!([]), json!("net")),
        "{answer}"
    );
    disk.heal();
    wait(agent.pass());
    let record = &agent.state.records[&key()];
    assert!(!record.released && record.live().next().is_some(), "what was refused is not done later: {record:?}");
    let answer = wait(agent.answer(&order));
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
    let answer = wait(agent.answer(&order));
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
    assert_eq!(wait(agent.answer(&order))["error"], Value::Null);
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
