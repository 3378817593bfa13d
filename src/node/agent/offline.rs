//! Questions about a node on which no agent runs, or asked beside the agent that runs.
//!
//! Owns the answers that the first pass of a starting agent gives, and what may be written without one: records that are
//! marked. Must not make a pass.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use serde_json::json;

use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::node::fsx::Real;
use crate::node::manifests;
use crate::node::socket::SocketOperation;

use super::Agent;
use super::error::AgentError;
use super::last_pass::LastPass;
use super::release::entry;
use super::release::held;
use super::release::select;
use super::report::to_json;
use super::teardown::Leftover;
use super::teardown::Teardown;
use super::teardown::cleared;
use super::teardown::leftover;
use super::teardown::manifest_of;

/// The answer to `request` while no agent runs: from checkpoint, folders and manifests. Changes nothing.
///
/// # Errors
/// When the state folder cannot be read.
pub fn answer_offline(config: Config, request: &SocketOperation) -> Result<Value, AgentError> {
    let mut agent = Agent::to_answer(config)?;
    let decision = agent.decide_now()?;
    let (due, plan, problems) = (decision.due, decision.plan, decision.problems);
    // What the pass would know; its effects are not carried out.
    agent.state = decision.state;
    agent.last = LastPass { plan, problems, due, ..std::mem::take(&mut agent.last) };
    let view = agent.view();
    Ok(match request {
        SocketOperation::Status => to_json(&agent.reporter.status(&view)),
        SocketOperation::Plan => to_json(&agent.reporter.plan(&view)),
        SocketOperation::Explain { namespace, name } => to_json(&view.explain(&ObjectKey::new(namespace, name))),
        SocketOperation::Retry { .. } => json!({"error": "the agent does not run: nothing is changed"}),
        SocketOperation::Approve { .. } => json!({"error": "the agent does not run: nothing is approved"}),
        SocketOperation::Recording => json!({"error": "no agent is running here: nothing is recorded"}),
        SocketOperation::Release { .. } => json!({"error": "the state folder is not locked: nothing is released"}),
        SocketOperation::Restart { namespace, name } => {
            json!({"error": format!("{namespace}/{name} is not restarted: no agent is running here")})
        }
    })
}

/// Marks what is to be released while no agent runs.
///
/// # Errors
/// When the state folder cannot be used, or an agent has it.
pub fn release_offline(config: Config, keys: &BTreeSet<ObjectKey>) -> Result<Value, AgentError> {
    let mut agent = Agent::to_mark(config)?;
    let decision = agent.decide_now()?;
    let mut selected = select(&agent.config.node_name, &agent.state.records, &decision.plan, keys);
    for record in &selected.records {
        if let Err(failure) = agent.executor.save_record(record) {
            return Ok(json!({"error": format!("{}: {}; it is not released", record.key, failure.cause)}));
        }
        selected.report.released.push(entry(&record.key, "it ends when the agent starts"));
    }
    selected.report.agent_running = false;
    Ok(to_json(&selected.report))
}

/// The agent's process that works on the state folder of `config`, as far as the kernel says so.
pub fn worker(config: &Config) -> Option<u32> {
    let files = Real::shared();
    let process = manifests::holder(&files, files.look(&config.state_dir).ok()?.stamp.inode())?;
    // A teardown and a single pass hold the lock, too, and serve no socket.
    let command = files.text(Path::new("/proc").join(process.to_string()).join("cmdline")).ok()?;
    let arguments: Vec<&str> = command.split('\0').collect();
    (arguments.contains(&"run") && !arguments.contains(&"--once")).then_some(process)
}

/// What a configuration would hold: a line for each daemon that it no longer selects.
///
/// # Errors
/// When the state folder cannot be read.
pub fn held_by(config: Config) -> Result<Vec<String>, AgentError> {
    let mut agent = Agent::to_answer(config)?;
    let decision = agent.decide_now()?;
    Ok(held(&decision.plan))
}

/// What a teardown would find. Changes nothing, and may be asked while an agent runs.
///
/// # Errors
/// When the state folder cannot be read.
pub fn teardown_offline(config: Config) -> Result<Teardown, AgentError> {
    let mut agent = Agent::to_answer(config)?;
    agent.state.tear_down();
    let decision = agent.decide_now()?;
    let scan = agent.last.observation.manifests.current().map(std::convert::AsRef::as_ref);
    let found = decision.plan.daemons.iter().flat_map(|daemon| {
        let ending = daemon.record.ending().map(|instance| Leftover {
            manifest: manifest_of(&daemon.key, instance, scan),
            ..leftover(&daemon.key, instance)
        });
        ending.chain(daemon.record.ended.keys().map(|uid| cleared(&daemon.key, uid)))
    });
    let (found, problems, is_unread) = (found.collect(), decision.problems.clone(), scan.is_none());
    Ok(Teardown { node: agent.config.node_name.clone(), found, problems, is_unread, ..Teardown::default() })
}
