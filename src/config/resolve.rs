//! Settings into a [`Config`]: defaults filled in, from the host where they depend on it.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::config::ConfigError;
use crate::config::Host;
use crate::config::Id;
use crate::config::LogTarget;
use crate::config::Origin;
use crate::config::Problem;
use crate::config::check;
use crate::config::read;
use crate::config::read::Settings;
use crate::config::value::Setting;
use crate::core::model::Mode;
use crate::core::pass::MaxRemovals;
use crate::core::policy::HostNamespace;
use crate::core::policy::Rules;
use crate::core::policy::pod_security::Level;
use crate::core::yaml;

const OWN_KUBECONFIG: &str = "/etc/daemonlet/kubeconfig";
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// The sockets that kubeadm looks for (`cmd/kubeadm/app/constants`).
const SOCKETS: [&str; 3] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock"];
/// Where kubeadm's kubelet has its own, then where those of images without kubeadm have it.
const KUBELET_KUBECONFIGS: [&str; 3] =
    ["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/kubeconfig"];

/// Fills in what `settings` leave open.
pub(super) fn resolve(settings: &Settings, host: &dyn Host) -> Result<Config, ConfigError> {
    let mut get = Getter { settings, origins: Default::default() };
    let mut problems = Vec::new();

    let node_name_explicit = settings.contains_key(&Id::NodeName);
    let node_name = match get.text(Id::NodeName) {
        Some(name) => name,
        None => get.note(Id::NodeName, "default: the host name", host_name(host, &mut problems)),
    };
    let kubeconfig = match get.text(Id::Kubeconfig) {
        Some(path) => path,
        None if host.exists(Path::new(OWN_KUBECONFIG)) => {
            get.note(Id::Kubeconfig, "default: the file exists", OWN_KUBECONFIG.to_owned())
        }
        None => get.note(Id::Kubeconfig, &format!("default: {OWN_KUBECONFIG} does not exist"), String::new()),
    };
    let kubelet_config = get.path_or(Id::KubeletConfig, "/var/lib/kubelet/config.yaml");
    let needs_kubelet = [Id::ManifestDir, Id::RuntimeEndpoint].iter().any(|id| !settings.contains_key(id));
    let kubelet = if needs_kubelet { kubelet(&kubelet_config, host, &mut problems) } else { Kubelet::default() };
    let from_kubelet = |field: &str| format!("default: {field} of {}", kubelet_config.display());

    let manifest_dir = match (get.text(Id::ManifestDir), kubelet.static_pod_path) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(path)) => get.note(Id::ManifestDir, &from_kubelet("staticPodPath"), path),
        (None, None) => get.note(Id::ManifestDir, "default", PathBuf::from(MANIFESTS)),
    };
    let runtime_endpoint = match (get.text(Id::RuntimeEndpoint), kubelet.runtime_endpoint) {
        (Some(url), _) => socket_path(&url),
        (None, Some(url)) => {
            get.note(Id::RuntimeEndpoint, &from_kubelet("containerRuntimeEndpoint"), socket_path(&url))
        }
        (None, None) => {
            let (why, socket) = match SOCKETS.iter().find(|socket| host.exists(Path::new(socket))) {
                Some(socket) => ("default: the socket exists", *socket),
                None => ("default: the kubelet's own", SOCKETS[0]),
            };
            get.note(Id::RuntimeEndpoint, why, Some(PathBuf::from(socket)))
        }
    };

    let seal = get.text_or(Id::CheckpointSeal, "none");
    let seal_key = get.text_or(Id::CheckpointKey, "auto");
    let config = Config {
        seal_with: (seal == "systemd-creds").then(|| seal_key.clone()),
        seal_key,
        node_name,
        node_name_explicit,
        kubeconfig: non_empty(kubeconfig).map(PathBuf::from),
        manifest_dir,
        kubelet_config: kubelet_config.clone(),
        kubelet_root: get.path_or(Id::KubeletRoot, "/var/lib/kubelet"),
        state_dir: get.path_or(Id::StateDir, "/var/lib/daemonlet"),
        runtime_endpoint,
        kubelet_endpoint: non_empty(get.text_or(Id::KubeletEndpoint, "")),
        run_dir: get.path_or(Id::RunDir, "/run/daemonlet"),
        folders: get
            .texts_or(
                Id::Folders,
                &["/usr/lib/daemonlet/daemonsets.d", "/run/daemonlet/daemonsets.d", "/etc/daemonlet/daemonsets.d"],
            )
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        selector: get.text_or(Id::Selector, ""),
        default_mode: match get.text_or(Id::DefaultMode, "labelled").as_str() {
            "static" => Some(Mode::Static),
            "bootstrap" => Some(Mode::Bootstrap),
            _ => None,
        },
        api_endpoint: check::endpoint(&get.text_or(Id::ApiEndpoint, "")).ok(),
        update_jitter: get.duration_or(Id::UpdateJitter, 30),
        max_removals: get.max_removals(),
        removals_delay: get.duration_or(Id::RemovalsDelay, 30),
        once_timeout: get.duration_or(Id::OnceTimeout, 10),
        boot_guard: !matches!(get.take(Id::BootGuard), Some(Setting::Bool(false))),
        boot_guard_max: get.duration_or(Id::BootGuardMax, 300),
        boot_kubeconfig: get
            .texts_or(Id::BootKubeconfig, &KUBELET_KUBECONFIGS)
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        node_labels: match get.take(Id::NodeLabels) {
            Some(Setting::Map(labels)) => labels,
            _ => Default::default(),
        },
        node_taints: match get.take(Id::NodeTaints) {
            Some(Setting::Taints(taints)) => taints,
            _ => Vec::new(),
        },
        kubelet_version: non_empty(get.text_or(Id::KubeletVersion, "")),
        policy_namespaces: get.texts_or(Id::PolicyNamespaces, &["kube-system"]),
        policy_rules: get.rules(),
        pod_security_default: Level::from_name(&get.text_or(Id::PodSecurityDefault, "")).unwrap_or_default(),
        default_node_selector: get.text_or(Id::DefaultNodeSelector, ""),
        dry_run_admission: get.text_or(Id::PolicyAdmission, "") == "dry-run",
        inline_secret_env: matches!(get.take(Id::InlineSecretEnv), Some(Setting::Bool(true))),
        pull_as_written: get.text_or(Id::PullPolicy, "") == "as-written",
        require_prepull: matches!(get.take(Id::RequirePrepull), Some(Setting::Bool(true))),
        replace_unpulled: get.text_or(Id::OnPullFailure, "") == "go-on",
        credential_provider_config: non_empty(get.text_or(Id::CredentialProviderConfig, "")).map(PathBuf::from),
        credential_provider_bin_dir: non_empty(get.text_or(Id::CredentialProviderBinDir, "")).map(PathBuf::from),
        coordinator_kubeconfig: non_empty(get.text_or(Id::CoordinatorKubeconfig, "")).map(PathBuf::from),
        lease_namespace: get.text_or(Id::LeaseNamespace, "kube-system"),
        lease_name: get.text_or(Id::LeaseName, "daemonlet-coordinator"),
        exact_rollouts: matches!(get.take(Id::ExactRollouts), Some(Setting::Bool(true))),
        metrics_listen: get.text_or(Id::MetricsListen, "").parse().ok(),
        approve_nodes: matches!(get.take(Id::ApproveNodes), Some(Setting::Bool(true))),
        log_level: get.text_or(Id::LogLevel, "info"),
        log_target: match get.text_or(Id::LogTarget, "auto").as_str() {
            "journal" => LogTarget::Journal,
            "stderr" => LogTarget::Stderr,
            _ => LogTarget::Auto,
        },
        origins: get.origins,
    };
    if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
}

/// Takes settings, and notes where each value came from.
struct Getter<'a> {
    settings: &'a Settings,
    origins: std::collections::BTreeMap<Id, Origin>,
}

impl Getter<'_> {
    fn take(&mut self, id: Id) -> Option<Setting> {
        let written = self.settings.get(&id);
        let origin = match written {
            Some(written) => Origin::File { path: written.path.clone(), line: written.line },
            None => Origin::Default("default".to_owned()),
        };
        self.origins.insert(id, origin);
        written.map(|written| written.setting.clone())
    }

    fn note<T>(&mut self, id: Id, why: &str, value: T) -> T {
        self.origins.insert(id, Origin::Default(why.to_owned()));
        value
    }

    fn text(&mut self, id: Id) -> Option<String> {
        match self.take(id) {
            Some(Setting::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn text_or(&mut self, id: Id, default: &str) -> String {
        self.text(id).unwrap_or_else(|| default.to_owned())
    }

    fn path_or(&mut self, id: Id, default: &str) -> PathBuf {
        PathBuf::from(self.text_or(id, default))
    }

    fn texts_or(&mut self, id: Id, default: &[&str]) -> Vec<String> {
        match self.take(id) {
            Some(Setting::Texts(texts)) => texts,
            _ => default.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    fn flag_or(&mut self, id: Id, default: bool) -> bool {
        match self.take(id) {
            Some(Setting::Bool(flag)) => flag,
            _ => default,
        }
    }

    fn list_or(&mut self, id: Id, default: Vec<String>) -> Vec<String> {
        match self.take(id) {
            Some(Setting::Texts(texts)) => texts,
            _ => default,
        }
    }

    /// What `[policy]` says about pods.
    fn rules(&mut self) -> Rules {
        let default = Rules::default();
        Rules {
            trusted_namespaces: self.list_or(Id::TrustedNamespaces, default.trusted_namespaces),
            privileged: self.flag_or(Id::PolicyPrivileged, default.privileged),
            host_namespaces: match self.take(Id::PolicyHostNamespaces) {
                Some(Setting::Texts(words)) => words.iter().filter_map(|w| HostNamespace::from_name(w)).collect(),
                _ => default.host_namespaces,
            },
            host_paths: self.list_or(Id::PolicyHostPaths, default.host_paths),
            capabilities: self.list_or(Id::PolicyCapabilities, default.capabilities),
            images: self.list_or(Id::PolicyImages, default.images),
        }
    }

    fn duration_or(&mut self, id: Id, seconds: u64) -> Duration {
        match self.take(id) {
            Some(Setting::Duration(duration)) => duration,
            _ => Duration::from_secs(seconds),
        }
    }

    fn max_removals(&mut self) -> MaxRemovals {
        match self.take(Id::MaxRemovals) {
            Some(Setting::Number(number)) => MaxRemovals::Count(number),
            Some(Setting::Text(word)) if word == "off" => MaxRemovals::Off,
            _ => MaxRemovals::HalfAndTwo,
        }
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The path of a socket; the kubelet still takes one without a scheme.
fn socket_path(url: &str) -> Option<PathBuf> {
    non_empty(url.strip_prefix("unix://").unwrap_or(url).to_owned()).map(PathBuf::from)
}

fn host_name(host: &dyn Host, problems: &mut Vec<Problem>) -> String {
    let name = match host.host_name() {
        Ok(name) => name.trim().to_lowercase(),
        Err(error) => {
            let message = format!("node-name: the host name cannot be read: {}", read::reason(&error));
            problems.push(Problem { message, hint: Some("set node-name".to_owned()) });
            return String::new();
        }
    };
    if let Err(why) = check::node_name(&name) {
        let message = format!("node-name: the host name {why}");
        problems.push(Problem { message, hint: Some("set node-name".to_owned()) });
    }
    name
}

/// What the kubelet's own configuration file says.
#[derive(Default)]
struct Kubelet {
    static_pod_path: Option<PathBuf>,
    runtime_endpoint: Option<String>,
}

/// Reads the kubelet's file at `path`; a missing one says nothing, a bad one is a problem: guessing
/// another folder than the kubelet's would leave every daemon unstarted.
fn kubelet(path: &Path, host: &dyn Host, problems: &mut Vec<Problem>) -> Kubelet {
    let mut bad = |why: String| {
        let message = format!("{}: {why}", path.display());
        let hint = "manifest-dir and runtime-endpoint default to what this file says; set both to do without it";
        problems.push(Problem { message, hint: Some(hint.to_owned()) });
        Kubelet::default()
    };
    let text = match host.read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Kubelet::default(),
        Err(error) => return bad(format!("the kubelet's configuration cannot be read: {}", read::reason(&error))),
    };
    let document = match yaml::read_documents(&text).into_iter().next().map(|document| document.value) {
        Some(Ok(document)) => document,
        Some(Err(error)) => {
            return bad(format!("line {}: not a kubelet configuration: {}", error.line, error.message));
        }
        None => return bad("not a kubelet configuration: it is empty".to_owned()),
    };
    if document["kind"] != "KubeletConfiguration" {
        return bad("not a kubelet configuration: its kind is not KubeletConfiguration".to_owned());
    }
    let text = |field: &str| document[field].as_str().filter(|text| !text.is_empty());
    let endpoint = text("containerRuntimeEndpoint");
    if let Some(url) = endpoint
        && !socket_path(url).is_some_and(|socket| socket.is_absolute())
    {
        return bad(format!("containerRuntimeEndpoint is no Unix socket: \"{url}\""));
    }
    Kubelet {
        // The kubelet takes a relative path from the folder of its file (`resolveRelativePaths`).
        static_pod_path: text("staticPodPath").map(|folder| path.parent().unwrap_or(Path::new("/")).join(folder)),
        runtime_endpoint: endpoint.map(str::to_owned),
    }
}
