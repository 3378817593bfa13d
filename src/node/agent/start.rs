//! The agent's beginning: what is opened and read before the first pass.
//!
//! Owns what is fatal: another agent on the same state, and a configuration that names something impossible. Everything
//! else is a problem that is shown and tried again.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::clock;
use crate::config::Config;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::render::Pulls;
use crate::core::render::RenderOptions;
use crate::node::api;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Loaded;
use crate::node::checkpoint::Store;
use crate::node::cri::Cri;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;
use crate::node::fsx::Shared;
use crate::node::kubelet::Kubelet;
use crate::node::notify::Notifier;
use crate::node::socket::SocketError;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

use super::Agent;
use super::concerns::manifests_lost_at_boot::ManifestsLostAtBoot;
use super::executor::Executor;
use super::executor::FLOOR;
use super::executor::Floor;
use super::executor::StateFolder;
use super::executor::problem;
use super::failure;
use super::inputs::Inputs;
use super::inputs::Purpose;
use super::remembered_inputs::INPUTS;
use super::remembered_inputs::RememberedInputs;
use super::remembered_inputs::SavedInputs;
use super::render_cache::Options;
use super::render_cache::RenderCache;
use super::report::Reporter;
use super::requests::Requests;
use super::sealing::Opened;
use super::sealing::Sealing;
use super::state::AgentState;
use super::state::InputsOnDisk;

/// The folder of daemon records in the state folder.
const DAEMONS: &str = "daemons";

/// Why the agent cannot work at all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state folder cannot be used.
    #[error("state-dir: cannot use it")]
    State(#[from] CheckpointError),
    /// Another agent has it.
    #[error("state-dir {}: another daemonlet has it", path.display())]
    Locked {
        /// The state folder.
        path: PathBuf,
    },
    /// The state folder cannot be locked.
    #[error("state-dir {}: cannot lock it", path.display())]
    Lock {
        /// The state folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("run-dir: cannot serve the socket")]
    Socket(#[from] SocketError),
    /// The runtime endpoint is not one.
    #[error("runtime-endpoint: not usable")]
    Runtime(#[from] crate::node::cri::CriError),
    /// The kubelet's endpoint is not one.
    #[error("kubelet-endpoint: not usable")]
    Kubelet(#[from] crate::node::kubelet::KubeletError),
    /// The label selector is none.
    #[error("selector: {0}")]
    Selector(String),
    /// There is no event loop.
    #[error("cannot start the event loop")]
    Loop(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] std::io::Error),
}

impl AgentError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            AgentError::State(error) => error.hint(),
            _ => None,
        }
    }
}

impl Agent {
    /// Opens what the agent works on and reads what it remembers. Writes nothing but folders.
    ///
    /// # Errors
    /// When another agent has the state folder, or the configuration names something impossible.
    pub fn new(config: Config, notifier: Arc<Notifier>) -> Result<Self, AgentError> {
        let files = Real::shared();
        let state = open_state(&files, &config)?;
        Self::with(config, files, Some(state), Purpose::Work, notifier)
    }

    /// An agent that answers questions and changes nothing: it may run beside the one that works.
    ///
    /// # Errors
    /// When the state folder cannot be read, or the configuration names something impossible.
    pub(super) fn to_answer(config: Config) -> Result<Self, AgentError> {
        let files = Real::shared();
        let state = match Store::open_read_only(&files, &config.state_dir)? {
            Some(inputs) => inputs.folder(DAEMONS).ok().map(|records| StateFolder { inputs, records, lock: None }),
            None => None,
        };
        Self::with(config, files, state, Purpose::Answer, Arc::new(Notifier::from_environment()))
    }

    pub(super) fn with(
        config: Config,
        files: Shared,
        folder: Option<StateFolder>,
        purpose: Purpose,
        notifier: Arc<Notifier>,
    ) -> Result<Self, AgentError> {
        let cri = match &config.runtime_endpoint {
            Some(endpoint) => Some(Arc::new(Cri::connect(&endpoint.to_string_lossy())?)),
            None => None,
        };
        let kubelet = match (&config.kubelet_endpoint, &config.kubeconfig) {
            (Some(endpoint), Some(kubeconfig)) => Some(Arc::new(Kubelet::new(endpoint, kubeconfig)?)),
            _ => None,
        };
        let policy = policy(&config)?;
        let options = Options::new(render_options(&config, cri.is_some()));
        let wake = Arc::new(Notify::new());
        let volumes = Volumes::new(Arc::clone(&files), VolumesRoot::kubelet(&config.kubelet_root));
        let mut executor =
            Executor::new(Arc::clone(&files), volumes, folder, Sealing::new(config.seal_with().map(str::to_owned)));
        let mut inputs = Inputs::new(&config, cri.clone(), kubelet.clone(), Arc::clone(&files), &wake);
        let requests = Requests::new(&config, policy.clone(), cri, kubelet, files, &wake);
        let mut state = AgentState::new(&config, policy, options, clock::now(), purpose);
        recall(&mut state, &mut executor, &mut inputs)?;
        let reporter = Reporter::new(&config, notifier);
        Ok(Self {
            config,
            inputs,
            state,
            render_cache: RenderCache::default(),
            executor,
            requests,
            reporter,
            last: super::LastPass::default(),
        })
    }
}

/// The policy of the configuration.
fn policy(config: &Config) -> Result<Policy, AgentError> {
    let policy = Policy::new(config.default_mode, &config.selector, config.policy_namespaces.clone())
        .map_err(|error| AgentError::Selector(error.to_string()))?;
    Ok(policy
        .with_rules(config.policy_rules())
        .with_defaults(config.pod_security_default, config.default_node_selector.clone()))
}

fn render_options(config: &Config, has_runtime: bool) -> RenderOptions {
    RenderOptions {
        node_name: config.node_name.clone(),
        kubelet_version: None,
        // The first pass, from disk alone, knows it too: else it would write manifests without it.
        api_endpoint: config.api_endpoint.clone().or_else(|| api::endpoint(config.kubeconfig.as_deref()?).ok()?),
        has_api: config.kubeconfig.is_some(),
        inline_secret_env: config.inline_secret_env,
        pulls: match (has_runtime, config.pull_as_written) {
            (false, _) => Pulls::ByKubelet,
            (true, true) => Pulls::AsWritten,
            (true, false) => Pulls::First,
        },
    }
}

/// Reads records and inputs; what cannot be trusted is set aside, and reported for as long as the agent runs.
fn recall(state: &mut AgentState, executor: &mut Executor, inputs: &mut Inputs) -> Result<(), AgentError> {
    let mut damaged = Vec::new();
    let mut rewrite = false;
    if let Some(folder) = executor.state.take() {
        for loaded in folder.records.load_all::<DaemonRecord>()? {
            match loaded {
                Loaded::Present(record) => drop(state.records.insert(record.key.clone(), record)),
                Loaded::Damaged(why) => damaged.push(why),
                Loaded::Absent => {}
            }
        }
        match folder.inputs.load::<Floor>(FLOOR)? {
            Loaded::Present(floor) => state.floor = floor.next_incarnation,
            Loaded::Absent => {}
            Loaded::Damaged(why) => {
                // It was never above the highest record: the lowest went first and not all of them.
                state.floor = state.records.values().map(|r| r.next_incarnation).max().unwrap_or(0);
                executor.floor_is_unsaved();
                damaged.push(why);
            }
        }
        match folder.inputs.load::<SavedInputs>(INPUTS)? {
            Loaded::Present(mut saved) => {
                let (sealed, is_plain) = (saved.sealed, saved.has_secrets());
                inputs.import_tokens(std::mem::take(&mut saved.tokens));
                state.inputs = RememberedInputs::restore(saved, &state.records);
                let sealing = &mut executor.sealing;
                match if sealed { sealing.load(&folder.inputs, state.started)? } else { Opened::Nothing } {
                    Opened::Secrets(mut secrets) => {
                        inputs.import_tokens(std::mem::take(&mut secrets.tokens));
                        state.inputs.files.add(std::mem::take(&mut secrets.files));
                        state.inputs.take(secrets, &state.records);
                    }
                    Opened::Damaged(why) => damaged.push(why),
                    Opened::Nothing => {}
                }
                // Sealing was switched on or off: what is on disk is to be as the owner says.
                rewrite = sealed != sealing.is_on() || sealed && is_plain;
            }
            Loaded::Damaged(why) => damaged.push(why),
            Loaded::Absent => {}
        }
        executor.state = Some(folder);
    }
    inputs.recall_files(&state.inputs.files);
    let fingerprint = |state: &AgentState| state.inputs.fingerprint(inputs.tokens().fingerprint());
    let saved = if rewrite { 0 } else { fingerprint(state) };
    let last_boot = state.inputs.boot.replace(inputs.boot_id().to_owned());
    state.concerns.manifests_lost_at_boot = ManifestsLostAtBoot::new(last_boot.as_deref(), inputs.boot_id());
    let saved_but_for_boot = (!rewrite).then(|| fingerprint(state));
    state.inputs_on_disk = InputsOnDisk { saved, saved_but_for_boot, due: None };
    state.startup_problems.extend(damaged.iter().map(|why| problem("checkpoint", failure::of(why, None))));
    Ok(())
}

/// Opens the state folder, made if it is not there, and locks it.
///
/// # Errors
/// When others could write to it, or another agent has it.
pub(super) fn open_state(files: &Shared, config: &Config) -> Result<StateFolder, AgentError> {
    Store::make(files, &config.state_dir)?;
    // Before anything in it is touched: another agent may be at work.
    let lock = lock(files, config)?;
    let inputs = Store::open(files, &config.state_dir)?;
    let records = inputs.folder(DAEMONS)?;
    Ok(StateFolder { inputs, records, lock: Some(lock) })
}

/// Locks the state folder for this process.
fn lock(files: &Shared, config: &Config) -> Result<Dir, AgentError> {
    let path = config.state_dir.clone();
    let locked = Dir::open(files, &path).and_then(|dir| Ok((dir.lock()?, dir)));
    match locked.map_err(|error| AgentError::Lock { path: path.clone(), source: error.source })? {
        (true, dir) => Ok(dir),
        (false, _) => Err(AgentError::Locked { path }),
    }
}

#[cfg(test)]
mod tests {
    use crate::core::render::Endpoint;
    use crate::node::agent::decide::tests::config;

    use super::render_options;

    #[test]
    fn the_first_pass_knows_the_address_that_the_kubeconfig_has() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let context = "contexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n";
        let clusters = "clusters: [{name: k, cluster: {server: \"https://10.0.0.1:6443\"}}]\ncurrent-context: c\n";
        std::fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\n{context}{clusters}")).unwrap();
        let mut config = config();
        assert_eq!(render_options(&config, false).api_endpoint, None);
        config.kubeconfig = Some(kubeconfig);
        let of_kubeconfig = Endpoint { host: "10.0.0.1".to_owned(), port: 6443 };
        assert_eq!(render_options(&config, false).api_endpoint, Some(of_kubeconfig));
        let own = Endpoint { host: "api.example".to_owned(), port: 443 };
        config.api_endpoint = Some(own.clone());
        assert_eq!(render_options(&config, false).api_endpoint, Some(own));
    }
}
