//! SIGHUP: the configuration is read again.
//!
//! Owns what of it can be used. One that cannot is told and changes nothing; one that differs from the
//! one in force makes the process start over with it (whoever called [`Agent::run`] sees to that), which
//! is what a restart does to the daemons: nothing.

use std::path::Path;

use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;

use crate::config;
use crate::config::Config;
use crate::core::status::Problem;

use super::Agent;
use super::apply;
use super::offline;

/// What [`Problem::object`] is called where the configuration on disk is not in force.
const CONFIGURATION: &str = "configuration";

/// Why an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// Its configuration has changed: the process is to start over.
    Reconfigured,
}

/// Keeps SIGHUP waiting until the program that takes over listens: by default it would end it.
pub fn block_sighup() {
    let _ = hangup().thread_block();
}

/// Takes the SIGHUP that waited, once somebody listens.
pub(super) fn listen() {
    let _ = hangup().thread_unblock();
}

fn hangup() -> SigSet {
    SigSet::from(Signal::SIGHUP)
}

impl Agent {
    /// Reads the configuration from `file` again, and with it everything that is read anyway: folders,
    /// and the API's objects by fresh lists. True if the agent is to end and start over.
    pub(super) fn reload(&mut self, file: Option<&Path>) -> bool {
        self.notifier.reloading();
        self.startup_problems.retain(|problem| problem.object != CONFIGURATION);
        match self.read_again(file) {
            Ok(config) if !says_the_same(&config, &self.config) => {
                tracing::info!("the configuration has changed: starting over with it");
                return true;
            }
            Ok(_) => tracing::info!("the configuration is the same: folders and the API's objects are read again"),
            Err(problems) => {
                for Problem { reason, hint, .. } in &problems {
                    tracing::error!(hint = hint.as_deref(), "{reason}; the configuration before it stays in force");
                }
                self.startup_problems.extend(problems);
            }
        }
        self.folders.reread();
        if let Some(api) = &self.api {
            api.relist_fresh();
        }
        self.notifier.ready(&self.status_line());
        false
    }

    /// Whether the configuration on disk could not be used at the last reload.
    pub(super) fn keeps_configuration(&self) -> bool {
        self.startup_problems.iter().any(|problem| problem.object == CONFIGURATION)
    }

    fn read_again(&self, file: Option<&Path>) -> Result<Config, Vec<Problem>> {
        let problem = |reason, hint| Problem { object: CONFIGURATION.to_owned(), reason, hint };
        let config = config::load(file)
            .map_err(|error| error.problems.into_iter().map(|p| problem(p.message, p.hint)).collect::<Vec<_>>())?;
        if !says_the_same(&config, &self.config) {
            // What would keep an agent from starting is better found by one that runs.
            offline::offline(config.clone()).map_err(|error| {
                let failure = apply::failure(&error, None);
                vec![problem(failure.message, failure.hint)]
            })?;
        }
        Ok(config)
    }
}

/// Whether both have the same values, wherever those were read.
fn says_the_same(one: &Config, other: &Config) -> bool {
    let values = |config: &Config| Config { origins: std::collections::BTreeMap::new(), ..config.clone() };
    values(one) == values(other)
}
