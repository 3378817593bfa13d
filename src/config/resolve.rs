//! Defaults that depend on the host.

use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;

use crate::config::Config;
use crate::config::ConfigOrigin;
use crate::config::ConfigProblem;
use crate::config::Host;
use crate::config::KubeletFile;
use crate::config::check;
use crate::config::read;
use crate::core::model::FieldError;
use crate::core::policy;
use crate::core::yaml;

const OWN_KUBECONFIG: &str = "/etc/daemonlet/kubeconfig";
/// The sockets that kubeadm looks for (`cmd/kubeadm/app/constants`).
const SOCKETS: [&str; 3] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock"];

/// Replaces the defaults of `config` that depend on the host.
pub(super) fn resolve(config: &mut Config, host: &dyn Host) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    if !config.is_written("node-name") {
        config.node_name = host_name(host).unwrap_or_else(|message| {
            problems.push(ConfigProblem { message, hint: Some("set node-name".to_owned()) });
            String::new()
        });
        config.rests_on("node-name", "the host name");
    }
    if !config.is_written("kubeconfig") {
        // One that cannot be read now is read later: a node without an API server decides otherwise.
        let exists = host.may_exist(Path::new(OWN_KUBECONFIG));
        config.kubeconfig = exists.then(|| PathBuf::from(OWN_KUBECONFIG));
        match exists {
            true => config.rests_on("kubeconfig", "the file is there"),
            false => config.rests_on("kubeconfig", &format!("{OWN_KUBECONFIG} does not exist")),
        }
    }
    let open = ["manifest-dir", "runtime-endpoint"].map(|key| !config.is_written(key));
    if open == [false, false] {
        problems.extend(shared_folders(config));
        return problems;
    }
    let kubelet = match kubelet(&config.kubelet_config, host) {
        Ok(settings) => {
            config.kubelet_file = if settings.is_some() { KubeletFile::Read } else { KubeletFile::Missing };
            settings.unwrap_or_default()
        }
        Err(why) => {
            let message = format!("{}: {why}", config.kubelet_config.display());
            let hint = "manifest-dir and runtime-endpoint default to what this file says; set both to do without it";
            config.kubelet_file = KubeletFile::Unusable(ConfigProblem { message, hint: Some(hint.to_owned()) });
            KubeletSettings::default()
        }
    };
    let field = |name: &str| format!("{name} of {}", config.kubelet_config.display());
    let (folder_field, socket_field) = (field("staticPodPath"), field("containerRuntimeEndpoint"));
    if let (true, Some(folder)) = (open[0], kubelet.static_pod_path) {
        config.manifest_dir = folder;
        config.rests_on("manifest-dir", &folder_field);
    }
    if open[1] {
        let existing = || SOCKETS.iter().find(|socket| host.exists(Path::new(socket)));
        let key = "runtime-endpoint";
        match (kubelet.runtime_endpoint, existing()) {
            (Some(url), _) => {
                config.runtime_endpoint = socket_path(&url);
                config.rests_on(key, &socket_field);
            }
            (None, Some(socket)) => {
                config.runtime_endpoint = Some(PathBuf::from(socket));
                config.origins.insert(key, ConfigOrigin::Guessed("the socket exists"));
            }
            (None, None) => {
                config.runtime_endpoint = Some(PathBuf::from(SOCKETS[0]));
                config.origins.insert(key, ConfigOrigin::Guessed("the kubelet's own"));
            }
        }
    }
    problems.extend(shared_folders(config));
    problems
}

/// The folders that are the kubelet's manifest folder, too: the kubelet would take their files for pods.
fn shared_folders(config: &Config) -> Vec<ConfigProblem> {
    let own = [("state-dir", &config.state_dir), ("run-dir", &config.run_dir)];
    let all = own.into_iter().chain(config.folders.iter().map(|folder| ("folders", folder)));
    let shared = all.filter(|(_, folder)| folder.components().eq(config.manifest_dir.components()));
    let problem = |(key, folder): (&'static str, &PathBuf)| ConfigProblem {
        message: format!(
            "{}: {key}: {} is manifest-dir, too: the kubelet would take for pods what stands there",
            config.origins.get(key).map(ToString::to_string).unwrap_or_default(),
            folder.display()
        ),
        hint: Some("name another folder".to_owned()),
    };
    shared.map(problem).collect()
}

impl Config {
    /// Leaves the node the name `in_force`, which an agent has, where none is written: another one replaces every daemon.
    pub(crate) fn keep_node_name(&mut self, in_force: &str) {
        if self.is_written("node-name") || self.node_name == in_force {
            return;
        }
        let host = std::mem::replace(&mut self.node_name, in_force.to_owned());
        self.origins.insert("node-name", ConfigOrigin::FormerHostName(host));
    }

    /// The host's name, where the node keeps another one.
    pub(crate) fn passed_over_host_name(&self) -> Option<&str> {
        match self.origins.get("node-name") {
            Some(ConfigOrigin::FormerHostName(host)) => Some(host),
            _ => None,
        }
    }

    fn rests_on(&mut self, key: &'static str, what: &str) {
        self.origins.insert(key, ConfigOrigin::Default(format!("default: {what}")));
    }

    /// Whether nothing that is written says that the kubelet uses the container runtime.
    pub(crate) fn is_runtime_guessed(&self) -> bool {
        matches!(self.origins.get("runtime-endpoint"), Some(ConfigOrigin::Guessed(_)))
    }

    /// The sockets, beside that of `runtime-endpoint`, at which the container runtime may be: at a boot it has none yet.
    pub(crate) fn other_runtime_sockets(&self) -> Vec<PathBuf> {
        let others = SOCKETS.iter().filter(|_| self.is_runtime_guessed()).map(PathBuf::from);
        others.filter(|socket| self.runtime_endpoint.as_ref() != Some(socket)).collect()
    }
}

impl Config {
    /// The entries of `[policy]` that are written and give more than they seem to.
    pub fn broad_grants(&self) -> Vec<FieldError> {
        let images = self.is_written("policy.images").then(|| policy::broad_images(&self.policy_images));
        let own = [&self.state_dir, &self.run_dir, &self.kubelet_root, &self.manifest_dir];
        let own = own.into_iter().chain(&self.folders).chain(&self.kubeconfig).chain(&self.coordinator_kubeconfig);
        let own: Vec<&Path> = own.map(PathBuf::as_path).collect();
        policy::broad_paths(&self.grants, &own).into_iter().chain(images.into_iter().flatten()).collect()
    }

    /// What is valid and gives more than it seems to, or has no effect: what a later file replaced, a namespace of `[policy]` that
    /// none of its DaemonSets can come from, and what the Node is to have although no API server is configured.
    pub fn remarks(&self) -> Vec<ConfigProblem> {
        let is_selected = |name: &&String| {
            *name == "*" || self.policy_namespaces.iter().any(|namespace| namespace == "*" || namespace == *name)
        };
        let of = |key: &'static str, named: Vec<&String>| {
            let origin = self.origins.get(key).filter(|_| self.is_written(key));
            let remark = move |name: &String| ConfigProblem {
                message: format!(
                    "{}: {key}: {name:?} has no effect: it is not among policy.namespaces",
                    origin.map(ToString::to_string).unwrap_or_default()
                ),
                hint: Some(format!("add {name:?} to policy.namespaces, or remove it from {key}")),
            };
            let without_effect = named.into_iter().filter(|name| origin.is_some() && !is_selected(name));
            without_effect.map(remark).collect::<Vec<_>>()
        };
        let mut remarks = self.replaced.clone();
        remarks.extend(of("policy.trusted-namespaces", self.trusted_namespaces.iter().collect()));
        remarks.extend(of("policy.grants", self.grants.keys().collect()));
        remarks.extend(self.broad_grants().into_iter().map(|broad| {
            let key = if broad.field == "policy.images" { "policy.images" } else { "policy.grants" };
            let origin = self.origins.get(key).map(ToString::to_string).unwrap_or_default();
            ConfigProblem { message: format!("{origin}: {broad}"), hint: broad.hint }
        }));
        let of_node = [("node.startup-taint", self.startup_taint), ("node.conditions", self.node_conditions)];
        let idle = of_node.into_iter().filter(|(_, is_on)| *is_on && self.kubeconfig.is_none());
        remarks.extend(idle.map(|(key, _)| ConfigProblem {
            message: format!(
                "{}: {key} has no effect: the agent has no API server",
                self.origins.get(key).map(ToString::to_string).unwrap_or_default()
            ),
            hint: Some("set kubeconfig, or remove the key".to_owned()),
        }));
        remarks
    }
}

/// The path of a socket; the kubelet still takes one without a scheme.
fn socket_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("unix://").unwrap_or(url);
    (!path.is_empty()).then(|| PathBuf::from(path))
}

fn host_name(host: &dyn Host) -> Result<String, String> {
    match host.host_name() {
        Ok(name) => {
            check::node_name(&name.trim().to_lowercase()).map_err(|why| format!("node-name: the host name {why}"))
        }
        Err(error) => Err(format!("node-name: the host name cannot be read: {}", read::reason(&error))),
    }
}

/// What the kubelet's own configuration file says.
#[derive(Default)]
struct KubeletSettings {
    static_pod_path: Option<PathBuf>,
    runtime_endpoint: Option<String>,
}

/// Reads the kubelet's file at `path`; `None`: there is none. A bad one is an error: guessing another folder than the
/// kubelet's would leave every daemon unstarted.
fn kubelet(path: &Path, host: &dyn Host) -> Result<Option<KubeletSettings>, String> {
    let text = match host.read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("the kubelet's configuration cannot be read: {}", read::reason(&error))),
    };
    let document = match yaml::read_documents(&text).into_iter().next().map(|document| document.value) {
        Some(Ok(document)) => document,
        Some(Err(error)) => {
            return Err(format!("line {}: not a kubelet configuration: {}", error.line, error.message));
        }
        None => return Err("not a kubelet configuration: it is empty".to_owned()),
    };
    if document["kind"] != "KubeletConfiguration" {
        return Err("not a kubelet configuration: its kind is not KubeletConfiguration".to_owned());
    }
    let text = |field: &str| match &document[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err(format!("not a kubelet configuration: its {field} is not text")),
    };
    let endpoint = text("containerRuntimeEndpoint")?;
    if let Some(url) = endpoint
        && !socket_path(url).is_some_and(|socket| socket.is_absolute())
    {
        return Err(format!("containerRuntimeEndpoint is no Unix socket: \"{url}\""));
    }
    Ok(Some(KubeletSettings {
        // The kubelet takes a relative path from the folder of its file (`resolveRelativePaths`).
        static_pod_path: text("staticPodPath")?.map(|folder| path.parent().unwrap_or(Path::new("/")).join(folder)),
        runtime_endpoint: endpoint.map(str::to_owned),
    }))
}
