//! SIGHUP: the configuration is read again; and the other reasons for which an agent starts over.
//!
//! Owns which configuration can be used. One that cannot is reported and changes nothing. One that differs from the
//! one in force makes the process start over with it (the caller of [`super::Agent::run`] does that); like a
//! restart, that does not touch the daemons.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;

use crate::config;
use crate::config::Config;
use crate::config::ConfigOrigin;
use crate::core::status::Problem;
use crate::node::fsx;
use crate::node::fsx::Real;
use crate::node::socket;

use super::error::AgentError;
use super::executor::Executor;
use super::executor::state_folder;
use super::failure;
use super::state::AgentState;

/// How long the files of the configuration may take: a file system may hang.
const READ: Duration = Duration::from_secs(10);

/// [`Problem::object`] where the configuration on disk is not in force.
const CONFIGURATION: &str = "configuration";

/// Why an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked it to stop.
    Stopped,
    /// Its configuration has changed, or its state folder can be read only now: the process is to start over.
    Reconfigured,
    /// It cannot write where the kubelet reads any more: another start of the service can.
    Outdated,
}

/// Keeps SIGHUP waiting until the program that takes over listens: by default it would end it.
pub fn block_sighup() {
    let _ = hangup().thread_block();
}

/// Delivers a SIGHUP that waited, once the agent has its receiver.
pub(super) fn unblock_sighup() {
    let _ = hangup().thread_unblock();
}

fn hangup() -> SigSet {
    SigSet::from(Signal::SIGHUP)
}

/// What the configuration on disk is now.
pub(super) enum Reread {
    /// The one that is in force, and where its values come from now.
    Same(BTreeMap<&'static str, ConfigOrigin>),
    /// Another one, which an agent can start with, and what it would hold.
    Another(Vec<String>),
    /// None that can be used: what is wrong with it.
    Unusable(Vec<Problem>),
}

/// Reads the configuration from `file` again, as [`config::load`] takes it. `held_with`: what an agent with another one would
/// hold.
pub(super) async fn reread(
    file: Option<&Path>,
    in_force: &Config,
    held_with: impl AsyncFnOnce(Config) -> Result<Vec<String>, AgentError>,
) -> Reread {
    let problem = |reason, hint| Problem { object: CONFIGURATION.to_owned(), reason, hint };
    let path = file.map(Path::to_owned);
    let read = tokio::time::timeout(READ, fsx::aside(move || config::load(path.as_deref()))).await;
    let mut config = match read {
        Err(_) | Ok(Err(_)) => {
            let reason = "the configuration cannot be read: its files gave no answer within 10 seconds; the one in \
                          force stays in force";
            let hint = "see to the file system that it is on, then send SIGHUP again";
            return Reread::Unusable(vec![problem(reason.to_owned(), Some(hint.to_owned()))]);
        }
        Ok(Ok(Ok(config))) => config,
        Ok(Ok(Err(error))) => {
            return Reread::Unusable(error.problems.into_iter().map(|p| problem(p.message, p.hint)).collect());
        }
    };
    if let Some(problem) = loses_node_name(&config, in_force) {
        return Reread::Unusable(vec![problem]);
    }
    config.keep_node_name(&in_force.node_name);
    if says_the_same(&config, in_force) {
        return Reread::Same(config.origins);
    }
    // A running agent had better find what would keep the next one from starting.
    let held = held_with(config.clone()).await;
    match held.and_then(|held| try_folders(&config, in_force).map(|()| held)) {
        Ok(held) => Reread::Another(held),
        Err(error) => {
            let failure = failure::of(&error, None);
            Reread::Unusable(vec![problem(failure.cause.to_string(), failure.hint)])
        }
    }
}

/// Tells that a configuration is refused, for these `problems`.
pub(super) fn refused(problems: Vec<Problem>) -> Vec<Problem> {
    for Problem { reason, hint, .. } in &problems {
        tracing::error!(hint = hint.as_deref(), "{reason}; the configuration before it stays in force");
    }
    problems
}

/// Tries the folders of `config` that an agent has to itself, where they are not those in force.
fn try_folders(config: &Config, in_force: &Config) -> Result<(), AgentError> {
    if config.run_dir != in_force.run_dir {
        socket::try_listen(&config.run_dir)?;
    }
    if config.state_dir != in_force.state_dir {
        state_folder::try_other(&Real::shared(), config, &in_force.state_dir)?;
    }
    Ok(())
}

/// Whether the agent is to start over without a changed configuration.
pub(super) fn starts_over(state: &AgentState, executor: &mut Executor, config: &Config) -> Option<Ended> {
    if state.concerns.mount_namespace.outdated().next().is_some() {
        return Some(Ended::Outdated);
    }
    if !executor.is_readable_again {
        return None;
    }
    tracing::info!("the state folder can be used again: starting over with what is in it");
    executor.add_to_inputs(config, state);
    Some(Ended::Reconfigured)
}

/// What is wrong if the node's name is written no more and the host has another one: a file that was emptied by mistake
/// would make this another node.
fn loses_node_name(config: &Config, in_force: &Config) -> Option<Problem> {
    let (host, node) = (&config.node_name, &in_force.node_name);
    let is_lost = host != node && in_force.is_written("node-name") && !config.is_written("node-name");
    is_lost.then(|| Problem {
        object: CONFIGURATION.to_owned(),
        reason: format!(
            "node-name is not written any more, and the host is named {host}: the node stays {node}, and the \
             configuration in force stays in force"
        ),
        hint: Some(rename_hint(host, node)),
    })
}

/// What is to be told while the host has another name than the node, which keeps its own.
pub fn kept_node_name(config: &Config) -> Option<Problem> {
    let (host, node) = (config.passed_over_host_name()?, &config.node_name);
    Some(Problem {
        object: CONFIGURATION.to_owned(),
        reason: format!("node-name is not written, and the host is named {host} now: the node stays {node}"),
        hint: Some(rename_hint(host, node)),
    })
}

/// How the node keeps its name, and how it gets the host's.
fn rename_hint(host: &str, node: &str) -> String {
    format!(
        "write node-name = \"{node}\", then `systemctl reload daemonlet`; if the node is to be named {host}, \
         `systemctl restart daemonlet`"
    )
}

/// Whether both have the same values, wherever those were read.
fn says_the_same(one: &Config, other: &Config) -> bool {
    let values = |config: &Config| Config { origins: BTreeMap::new(), replaced: Vec::new(), ..config.clone() };
    values(one) == values(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with these folders.
    fn with_folders(root: &Path, state: &str, run: &str) -> Config {
        let (state_dir, run_dir) = (root.join(state), root.join(run));
        Config { state_dir, run_dir, ..Config::default() }
    }

    #[tokio::test]
    async fn folders_that_no_agent_could_start_with_are_refused_and_left_as_they_are() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let in_force = with_folders(root, "state", "run");
        let another = state_folder::lock(&Real::shared(), &with_folders(root, "taken", "run"), None).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
        std::fs::create_dir(root.join("odd")).unwrap();
        std::fs::write(root.join("odd/agent.sock"), "x").unwrap();
        std::fs::create_dir(root.join("open")).unwrap();
        std::fs::set_permissions(root.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(root.join("state"), root.join("link")).unwrap();
        std::fs::create_dir(root.join("state")).unwrap();
        let _lock = state_folder::lock(&Real::shared(), &in_force, None).unwrap();
        let names = || {
            let names = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let before = names();
        for (state, run, refusal) in [
            ("state", "run", ""),
            ("state", "new", ""),
            ("new", "run", ""),
            ("link", "run", ""),
            ("state", "file", "cannot listen on"),
            ("state", "file/below", "cannot listen on"),
            ("state", "odd", "something that is no socket"),
            ("file", "run", "not a directory"),
            ("file/below", "run", "not a directory"),
            ("open", "run", "can be written to by others"),
            ("taken", "run", "another daemonlet has it"),
        ] {
            let tried = try_folders(&with_folders(root, state, run), &in_force);
            let message = tried.err().map(|error| failure::of(&error, None).cause.to_string()).unwrap_or_default();
            assert!(message.contains(refusal) && message.is_empty() == refusal.is_empty(), "{state} {run}: {message}");
            assert_eq!(names(), before, "{state} {run}");
        }
        drop(another);
    }

    #[test]
    fn a_kubelets_file_that_can_be_used_again_is_another_configuration() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, kubelet) = (scratch.path().join("c.toml"), scratch.path().join("config.yaml"));
        std::fs::write(&file, format!("node-name = \"n1\"\nkubelet-config = {kubelet:?}\n")).unwrap();
        std::fs::write(&kubelet, "").unwrap();
        assert!(config::load(Some(&file)).is_err(), "a reload is refused");
        let in_force = config::load_to_start(Some(&file)).unwrap();
        std::fs::write(&kubelet, "kind: KubeletConfiguration\n").unwrap();
        assert!(!says_the_same(&config::load(Some(&file)).unwrap(), &in_force));
    }

    #[test]
    fn a_node_name_that_is_lost_from_the_configuration_does_not_rename_the_node() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let load = |text: &str| {
            std::fs::write(file.path(), format!("{text}manifest-dir = \"/m\"\n")).unwrap();
            config::load(Some(file.path())).unwrap()
        };
        let (n1, n2, host) = (load("node-name = \"a-name-of-no-host\"\n"), load("node-name = \"another\"\n"), load(""));
        let lost = loses_node_name(&host, &n1).unwrap();
        assert!(lost.reason.contains("the node stays a-name-of-no-host"), "{}", lost.reason);
        assert!(loses_node_name(&n2, &n1).is_none(), "its owner renames it");
        assert!(loses_node_name(&n1, &host).is_none(), "its owner names it");
        assert!(loses_node_name(&host, &host).is_none());
    }

    #[tokio::test]
    async fn a_host_that_gets_another_name_does_not_rename_its_node() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let load = |text: &str| {
            std::fs::write(file.path(), format!("{text}manifest-dir = \"/m\"\n")).unwrap();
            config::load(Some(file.path())).unwrap()
        };
        let mut in_force = load("");
        let host = std::mem::replace(&mut in_force.node_name, "former".to_owned());
        async fn name(config: Config) -> Result<Vec<String>, AgentError> {
            Ok(vec![config.node_name])
        }
        let Reread::Same(origins) = reread(Some(file.path()), &in_force, name).await else {
            panic!("it is another configuration")
        };
        in_force.origins = origins;
        let told = kept_node_name(&in_force).unwrap();
        assert_eq!(
            told.reason,
            format!("node-name is not written, and the host is named {host} now: the node stays former")
        );
        let with_more = load("update-jitter = \"1s\"\n");
        let Reread::Another(names) = reread(Some(file.path()), &in_force, name).await else { panic!("it differs") };
        assert_eq!(names, ["former"], "nor with another change");
        assert!(kept_node_name(&with_more).is_none());
        load("node-name = \"former\"\n");
        let Reread::Same(origins) = reread(Some(file.path()), &in_force, name).await else {
            panic!("it is another configuration")
        };
        in_force.origins = origins;
        assert!(kept_node_name(&in_force).is_none(), "its owner has written it");
        load("node-name = \"another\"\n");
        let renamed = reread(Some(file.path()), &in_force, name).await;
        assert!(matches!(renamed, Reread::Another(names) if names == ["another"]), "its owner renames it");
    }
}
