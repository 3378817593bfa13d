//! The agent's beginning: what is opened and read before the first pass.
//!
//! Owns what is fatal: another agent on the same state, and a socket that cannot be made. Everything
//! else is a problem that is shown and tried again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::core::pass::Plan;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::render::Pulls;
use crate::core::render::RenderOptions;
use crate::core::status::Passes;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::ApiOptions;
use crate::node::api::Tokens;
use crate::node::checkpoint;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Loaded;
use crate::node::cri::Cri;
use crate::node::enrolment::AgentIdentity;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::Shared;
use crate::node::images::Pins;
use crate::node::images::Puller;
use crate::node::images::Sources;
use crate::node::kubelet::Kubelet;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::ManifestError;
use crate::node::notify;
use crate::node::notify::Notifier;
use crate::node::notify::Watchdog;
use crate::node::socket::SocketError;

use super::Agent;
use super::apply;
use super::apply::Disk;
use super::crash_diagnosis::CrashDiagnoses;
use super::definitions::ApiDefinitions;
use super::evidence::Runtime;
use super::failing::ApiFreshness;
use super::folder::Folders;
use super::manifests_lost_at_boot::ManifestsLostAtBoot;
use super::now;
use super::pod_status_source::PodStatusSource;
use super::remembered_inputs::INPUTS;
use super::remembered_inputs::RememberedInputs;
use super::remembered_inputs::SavedInputs;
use super::render_cache::Options;
use super::render_cache::RenderCache;
use super::report;
use super::sealing::Found;
use super::volume_check_schedule::VolumeCheckSchedule;

/// The folder of daemon records in the state folder.
pub(super) const DAEMONS: &str = "daemons";

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
        let files = fsx::Real::shared();
        let state = open_state(&files, &config)?;
        let disk = Disk::new(files, &config.kubelet_root, Some(state.inputs), Some(state.records));
        let mut agent = Self::with(config, disk, notifier)?;
        agent.lock = Some(state.lock);
        agent.recall()?;
        agent.open_manifests();
        Ok(agent)
    }

    pub(super) fn with(config: Config, disk: Disk, notifier: Arc<Notifier>) -> Result<Self, AgentError> {
        let files = Arc::clone(&disk.files);
        let cri = match &config.runtime_endpoint {
            Some(endpoint) => Some(Arc::new(Cri::connect(&endpoint.to_string_lossy())?)),
            None => None,
        };
        let kubelet = match (&config.kubelet_endpoint, &config.kubeconfig) {
            (Some(endpoint), Some(kubeconfig)) => Some(Arc::new(Kubelet::new(endpoint, kubeconfig)?)),
            _ => None,
        };
        let pod_status_source = match (&cri, kubelet.clone()) {
            (Some(cri), kubelet) => Some(PodStatusSource::Runtime(Arc::clone(cri), kubelet)),
            (None, Some(kubelet)) => Some(PodStatusSource::Kubelet(kubelet)),
            (None, None) => None,
        };
        let policy = Policy::new(config.default_mode, &config.selector, config.policy_namespaces.clone())
            .map_err(|error| AgentError::Selector(error.to_string()))?
            .with_rules(config.policy_rules())
            .with_defaults(config.pod_security_default, config.default_node_selector.clone());
        let (answers, answered) = mpsc::unbounded_channel();
        let wake = Arc::new(Notify::new());
        let provider_config = config.credential_provider_config.as_deref();
        let sources =
            Sources::new(&config.kubelet_root, provider_config, config.credential_provider_bin_dir.as_deref());
        let options = RenderOptions {
            node_name: config.node_name.clone(),
            kubelet_version: None,
            api_endpoint: config.api_endpoint.clone(),
            has_api: config.kubeconfig.is_some(),
            inline_secret_env: config.inline_secret_env,
            pulls: match (&cri, config.pull_as_written) {
                (None, _) => Pulls::ByKubelet,
                (Some(_), true) => Pulls::AsWritten,
                (Some(_), false) => Pulls::First,
            },
        };
        Ok(Self {
            policy,
            started: now(),
            boot: files.boot_id().unwrap_or_default(),
            manifests_lost_at_boot: ManifestsLostAtBoot::default(),
            disk,
            render_cache: RenderCache::default(),
            options: Options::new(options),
            api: None,
            tokens: Tokens::default(),
            definitions: ApiDefinitions::default(),
            folders: Folders::new(Arc::clone(&files), config.folders.clone()),
            pins: Pins::new(cri.clone(), Arc::clone(&wake)),
            admission_dry_runs: Default::default(),
            puller: Puller::new(cri.clone(), sources, Arc::clone(&wake)),
            cri,
            kubelet,
            pod_status_source,
            runtime: Runtime::None,
            runtime_at: Timestamp::MIN,
            runtime_asked: None,
            api_freshness: ApiFreshness::default(),
            crash_diagnoses: CrashDiagnoses::default(),
            last_pass: now(),
            last_pass_steady: std::time::Instant::now(),
            pass_number: 0,
            remembered_inputs: RememberedInputs::default(),
            saved: 0,
            saved_but_for_boot: None,
            save_at: None,
            volume_check_schedule: VolumeCheckSchedule::new(),
            node: config.node_view(),
            plan: Plan { daemons: Vec::new(), removals_held: false },
            failures: BTreeMap::new(),
            problems: Vec::new(),
            startup_problems: Vec::new(),
            removals: None,
            passes: Passes::default(),
            cluster: super::confirm::Cluster::default(),
            history: super::history::History::default(),
            sealing: super::sealing::Sealing::new(config.seal_with().map(str::to_owned)),
            coordination: super::Coordination::default(),
            identity: AgentIdentity::default(),
            reported: report::Reported::default(),
            patched: super::mirror::Patched::default(),
            kubelet_resync: super::kubelet_resync::KubeletResync::default(),
            orders: super::orders::Orders::default(),
            owners: super::owners::Owners::default(),
            reported_stock_pods: super::stock::ReportedStockPods::default(),
            acceptance: super::acceptance::Acceptance::default(),
            mirror_pod_deletions: super::mirror_pod_deletions::MirrorPodDeletions::default(),
            stuck_sandboxes: super::stuck_sandboxes::StuckSandboxes::default(),
            preempted: super::preempted::Preempted::default(),
            offline: false,
            metrics: None,
            draining: false,
            watchdog: Watchdog::new(Arc::clone(&notifier), notify::watchdog_interval()),
            notifier,
            wake,
            answers,
            answered,
            lock: None,
            config,
        })
    }

    /// Reads records and inputs; what cannot be trusted is set aside, and said for as long as the agent runs.
    pub(super) fn recall(&mut self) -> Result<(), AgentError> {
        let mut damaged = Vec::new();
        let mut rewrite = false;
        if let Some(store) = &self.disk.records_store {
            for loaded in store.load_all::<DaemonRecord>()? {
                match loaded {
                    Loaded::Present(record) => drop(self.disk.records.insert(record.key.clone(), record)),
                    Loaded::Damaged(why) => damaged.push(why),
                    Loaded::Absent => {}
                }
            }
        }
        if let Some(store) = self.disk.inputs_store.take() {
            let floor = self.disk.recall_floor(&store);
            self.disk.inputs_store = Some(store);
            damaged.extend(floor?);
        }
        if let Some(store) = &self.disk.inputs_store {
            match store.load::<SavedInputs>(INPUTS)? {
                Loaded::Present(saved) => {
                    let (sealed, is_plain) = (saved.sealed, saved.has_secrets());
                    self.remembered_inputs = RememberedInputs::restore(saved, &self.tokens, &self.disk.records);
                    match if sealed { self.sealing.load(store)? } else { Found::Nothing } {
                        Found::Secrets(secrets) => {
                            self.remembered_inputs.take(secrets, &self.tokens, &self.disk.records)
                        }
                        Found::Damaged(why) => damaged.push(why),
                        Found::Nothing => {}
                    }
                    // Sealing was switched on or off: what is on disk is to be as the owner says.
                    rewrite = sealed != self.sealing.is_on() || sealed && is_plain;
                }
                Loaded::Damaged(why) => damaged.push(why),
                Loaded::Absent => {}
            }
        }
        self.saved = if rewrite { 0 } else { self.remembered_inputs.fingerprint(&self.tokens) };
        self.manifests_lost_at_boot =
            ManifestsLostAtBoot::new(&self.disk.files, self.remembered_inputs.boot.as_deref(), &self.boot);
        self.remembered_inputs.boot = Some(self.boot.clone());
        self.saved_but_for_boot = (!rewrite).then(|| self.remembered_inputs.fingerprint(&self.tokens));
        let problem = |why: &dyn std::error::Error| Problem {
            object: "checkpoint".to_owned(),
            reason: apply::failure(why, None).message,
            hint: None,
        };
        self.startup_problems.extend(damaged.iter().map(|why| problem(why)));
        Ok(())
    }

    /// Opens the manifest folder; failing that, the next pass tries again.
    pub(super) fn open_manifests(&mut self) {
        match ManifestDir::open(&self.disk.files, &self.config.manifest_dir) {
            Ok(manifests) => self.disk.manifests = Some(manifests),
            Err(error) => self.manifest_problem(&error),
        }
    }

    /// Watches the manifest folder where it is not watched yet; failing that, the next pass tries again.
    pub(super) fn watch_manifests(&mut self) {
        let wake = Arc::clone(&self.wake);
        let Some(manifests) = self.disk.manifests.as_mut().filter(|manifests| !manifests.is_watched()) else { return };
        if let Err(error) = manifests.watch(move || wake.notify_one()) {
            self.manifest_problem(&error);
        }
    }

    fn manifest_problem(&mut self, error: &ManifestError) {
        let failure = apply::failure(error, error.hint());
        self.problems.push(Problem {
            object: "manifest folder".to_owned(),
            reason: failure.message,
            hint: failure.hint,
        });
    }

    /// Whether there is an API server to talk to.
    pub(super) fn api_is_configured(&self) -> bool {
        self.config.kubeconfig.is_some()
    }

    /// Starts to watch the folders.
    pub(super) fn watch(&mut self) {
        self.folders.watch(Arc::clone(&self.wake));
    }

    /// Starts connecting to the API server, if there is one.
    pub(super) fn start_api(&mut self) {
        let Some(kubeconfig) = self.config.kubeconfig.clone() else { return };
        let options = ApiOptions {
            kubeconfig,
            node_name: self.config.node_name.clone(),
            selector: (!self.config.selector.is_empty()).then(|| self.config.selector.clone()),
            known: self.remembered_inputs.objects.keys().cloned().collect(),
            namespaces_bind: !self.config.default_node_selector.is_empty(),
        };
        let api = Api::start(options);
        api.store().had_reached(self.remembered_inputs.reached);
        // The tokens of the checkpoint go to the manager that renews them.
        api.tokens().import(self.tokens.export());
        self.tokens = api.tokens().clone();
        self.identity.start(&self.config, api.connector().clone());
        // A lost or new connection is worth a pass, though no object changed.
        let (mut link, wake) = (api.connector().link(), Arc::clone(&self.wake));
        tokio::spawn(async move {
            while link.changed().await.is_ok() {
                wake.notify_one();
            }
        });
        self.api = Some(api);
    }
}

/// The state folder, opened for work.
pub(super) struct State {
    pub(super) inputs: checkpoint::Store,
    pub(super) records: checkpoint::Store,
    pub(super) lock: Dir,
}

/// Opens the state folder, made if it is not there, and locks it.
///
/// # Errors
/// When others could write to it, or another agent has it.
pub(super) fn open_state(files: &Shared, config: &Config) -> Result<State, AgentError> {
    checkpoint::Store::make(files, &config.state_dir)?;
    // Before anything in it is touched: another agent may be at work.
    let lock = lock(files, config)?;
    let inputs = checkpoint::Store::open(files, &config.state_dir)?;
    let records = inputs.folder(DAEMONS)?;
    Ok(State { inputs, records, lock })
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
