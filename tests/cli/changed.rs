//! A node whose configuration or folders change beside its agent, or while none runs.

use std::time::Duration;
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::node::GOOD;
use crate::node::Node;

#[test]
fn a_folder_that_is_no_longer_configured_holds_its_daemons_wherever_one_asks() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    assert_eq!(node.ask(&["run", "--once"]).code, 0);
    let config = std::fs::read_to_string(node.0.path("c.toml")).unwrap();
    node.0.write("c.toml", &config.replace(&format!("folders = [\"{}\"]", node.0.text("d")), "folders = []"));
    let because = "its folder is no longer configured; it stays as it is";
    let check = node.ask(&["run", "--check-config"]);
    assert!(check.code == 0 && check.out.contains(&format!("{because}; to end it: `daemonlet release")), "{check:?}");
    for command in [&["run", "--once"][..], &["status"], &["plan"]] {
        let ran = node.ask(command);
        assert!(ran.code == 1 && ran.out.contains("held") && ran.out.contains(because), "{command:?}: {ran:?}");
    }
    assert_eq!(node.ask(&["release", "a/good"]).code, 0);
    node.ask(&["run", "--once"]);
    assert!(node.manifests().is_empty());
}

#[test]
fn an_agent_whose_socket_is_gone_is_not_said_to_be_away_and_makes_it_anew() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let agent = node.start();
    let process = Pid::from_raw(i32::try_from(agent.0.id()).unwrap());
    // The agent does so by itself, too.
    kill(process, Signal::SIGSTOP).unwrap();
    std::fs::remove_dir_all(node.0.path("r")).unwrap();
    let deaf = format!("the agent (process {}) works and does not listen here", agent.0.id());
    for command in [&["status"][..], &["release", "--all"], &["restart", "a/good"]] {
        let ran = node.ask(command);
        assert!(ran.err.contains(&deaf), "{command:?}: {ran:?}");
    }
    let doctor = node.ask(&["doctor"]);
    assert!(
        doctor.out.lines().next().is_some_and(|line| line.starts_with("bad") && line.contains(&deaf)),
        "{doctor:?}"
    );
    kill(process, Signal::SIGHUP).unwrap();
    kill(process, Signal::SIGCONT).unwrap();
    let deadline = Instant::now() + Duration::from_secs(8);
    while node.ask(&["status"]).err.contains(&deaf) {
        assert!(Instant::now() < deadline, "it does not make its socket anew");
        std::thread::sleep(Duration::from_millis(20));
    }
}
