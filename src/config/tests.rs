use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

mod files;

/// A host named `Node-1` with the given files.
#[derive(Default)]
struct FakeHost {
    name: Option<&'static str>,
    files: BTreeMap<PathBuf, &'static str>,
}

impl FakeHost {
    fn with(path: &str, text: &'static str) -> Self {
        Self { files: [(PathBuf::from(path), text)].into(), ..Self::default() }
    }
}

impl Host for FakeHost {
    fn host_name(&self) -> io::Result<String> {
        Ok(self.name.unwrap_or("Node-1").to_owned())
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn may_exist(&self, path: &Path) -> bool {
        self.exists(path)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).map(|text| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn write(root: &Path, path: &str, text: &str) -> PathBuf {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// Loads `text` as the file `FILE`; the problems name it so.
fn load_text(text: &str, host: &FakeHost) -> Result<Config, Vec<(String, Option<String>)>> {
    let folder = TempDir::new().unwrap();
    let file = write(folder.path(), "daemonlet.toml", text);
    load_from(Some(&file), folder.path(), host).map_err(|error| {
        let shown = |text: String| text.replace(&file.display().to_string(), "FILE");
        error.problems.into_iter().map(|problem| (shown(problem.message), problem.hint)).collect()
    })
}

fn defaults() -> Config {
    load_text("", &FakeHost::default()).unwrap()
}

/// Each bad file, its message, and its hint (empty: none).
const BAD: &[(&str, &str, &str)] = &[
    ("manfest-dir = \"/x\"", "FILE:1: unknown key \"manfest-dir\"", "did you mean \"manifest-dir\"?"),
    ("\n\nstate_dir = \"/x\"", "FILE:3: unknown key \"state_dir\"", "did you mean \"state-dir\"?"),
    ("[policy]\nnamespace = []", "FILE:2: unknown key \"policy.namespace\"", "did you mean \"policy.namespaces\"?"),
    ("namespaces = []", "FILE:1: unknown key \"namespaces\"", "\"namespaces\" belongs to the section [policy]"),
    (
        "[log]\nstate-dir = \"/x\"",
        "FILE:2: unknown key \"log.state-dir\"",
        "\"state-dir\" belongs to the top of the file, before any [section]",
    ),
    ("[polcy]\nnamespaces = []", "FILE:1: unknown key \"polcy\"", "did you mean \"policy\"?"),
    ("colour = 1", "FILE:1: unknown key \"colour\"", "`daemonlet help configuration` lists every key"),
    ("log = \"info\"", "FILE:1: log: expected a table, [log]", ""),
    ("state-dir = 3", "FILE:1: state-dir: expected an absolute path, not 3", ""),
    ("state-dir = \"\"", "FILE:1: state-dir: must be an absolute path, not \"\"", ""),
    ("state-dir = \"var/lib\"", "FILE:1: state-dir: must be an absolute path, not \"var/lib\"", ""),
    (
        "manifest-dir = \"/m\"\nstate-dir = \"/m/\"",
        "FILE:2: state-dir: /m/ is manifest-dir, too: the kubelet would take for pods what stands there",
        "name another folder",
    ),
    (
        "folders = [\"/a\", \"/etc/kubernetes/manifests\"]",
        "FILE:1: folders: /etc/kubernetes/manifests is manifest-dir, too: the kubelet would take for pods what stands there",
        "name another folder",
    ),
    ("kubeconfig = \"x\"", "FILE:1: kubeconfig: must be an absolute path, not \"x\"", ""),
    (
        "[coordinator]\nkubeconfig = \"in-cluster:token\"",
        "FILE:2: coordinator.kubeconfig: must be an absolute path, not \"token\"",
        "",
    ),
    (
        "[coordinator]\nkubeconfig = 1",
        "FILE:2: coordinator.kubeconfig: expected an absolute path, \"in-cluster\" or \"\", not 1",
        "",
    ),
    ("folders = \"/a\"", "FILE:1: folders: expected a list of absolute paths, not \"/a\"", ""),
    ("folders = [\"/a\", 1]", "FILE:1: folders: expected a list of absolute paths, not 1", ""),
    ("folders = [\"a\"]", "FILE:1: folders: must be an absolute path, not \"a\"", ""),
    (
        "node-name = \"Node_1\"",
        "FILE:1: node-name: \"Node_1\" is no node name: lower-case letters, digits, \"-\" and \".\" only, \
         253 characters at most",
        "",
    ),
    (
        "runtime-endpoint = \"/run/x.sock\"",
        "FILE:1: runtime-endpoint: expected a socket such as \"unix:///run/containerd/containerd.sock\" or \"\", \
         not \"/run/x.sock\"",
        "",
    ),
    ("runtime-endpoint = \"unix://x\"", "FILE:1: runtime-endpoint: must be an absolute path, not \"x\"", ""),
    (
        "kubelet-endpoint = \"http://x\"",
        "FILE:1: kubelet-endpoint: expected a URL such as \"https://127.0.0.1:10250\" or \"\", not \"http://x\"",
        "",
    ),
    ("api-endpoint = \"fd00::1:6443\"", "FILE:1: api-endpoint: expected host:port, not \"fd00::1:6443\"", ""),
    ("api-endpoint = \"https://x:1\"", "FILE:1: api-endpoint: expected host:port, not \"https://x:1\"", ""),
    ("api-endpoint = \"x:0\"", "FILE:1: api-endpoint: expected host:port, not \"x:0\"", ""),
    ("selector = \"a in b\"", "FILE:1: selector: \"a in b\" is no label selector: found \"b\", expected '('", ""),
    (
        "default-mode = \"all\"",
        "FILE:1: default-mode: expected \"labelled\", \"static\" or \"bootstrap\", not \"all\"",
        "",
    ),
    ("default-mode = true", "FILE:1: default-mode: expected \"labelled\", \"static\" or \"bootstrap\", not true", ""),
    ("update-jitter = \"30\"", "FILE:1: update-jitter: expected a duration such as \"30s\" or \"5m\", not \"30\"", ""),
    (
        "[tokens]\ndefault-expiration = \"599s\"",
        "FILE:2: tokens.default-expiration: expected a duration from \"600s\" to \"8760h\", not \"599s\"",
        "",
    ),
    (
        "[tokens]\ndefault-expiration = \"8761h\"",
        "FILE:2: tokens.default-expiration: expected a duration from \"600s\" to \"8760h\", not \"8761h\"",
        "",
    ),
    ("update-jitter = 30", "FILE:1: update-jitter: expected a duration such as \"30s\" or \"5m\", not 30", ""),
    ("max-removals = -1", "FILE:1: max-removals: expected a number, \"half\" or \"off\", not -1", ""),
    ("max-removals = \"all\"", "FILE:1: max-removals: expected a number, \"half\" or \"off\", not \"all\"", ""),
    ("node.labels = []", "FILE:1: node.labels: expected a table of labels such as { zone = \"a\" }, not a list", ""),
    ("node.labels.x = 1", "FILE:1: node.labels: label \"x\": expected a string, not 1", ""),
    ("node.labels.\"a b\" = \"\"", "FILE:1: node.labels: \"a b\" is no label key", ""),
    ("node.labels.a = \"b c\"", "FILE:1: node.labels: label \"a\": \"b c\" is no label value", ""),
    (
        "node.taints = [\"a=b\"]",
        "FILE:1: node.taints: expected a taint such as \"key=value:NoSchedule\", not \"a=b\"",
        "",
    ),
    (
        "node.taints = [\"a=b:No\"]",
        "FILE:1: node.taints: taint \"a=b:No\": the effect must be NoSchedule, PreferNoSchedule or NoExecute, \
         not \"No\"",
        "",
    ),
    (
        "node.kubelet-version = \"new\"",
        "FILE:1: node.kubelet-version: expected a version such as \"v1.36.2\" or \"\", not \"new\"",
        "",
    ),
    ("policy.namespaces = [\"A\"]", "FILE:1: policy.namespaces: \"A\" is no namespace", ""),
    ("policy.inline-secret-env = 1", "FILE:1: policy.inline-secret-env: expected true or false, not 1", ""),
    ("log.level = \"loud\"", "FILE:1: log.level: expected error, warn, info, debug or trace, not \"loud\"", ""),
    ("log.target = \"file\"", "FILE:1: log.target: expected \"auto\", \"journal\" or \"stderr\", not \"file\"", ""),
    ("a = \"", "FILE:1: invalid basic string, expected `\"`", ""),
    ("run-dir = \"/a\"\nrun-dir = \"/b\"", "FILE:2: duplicate key", ""),
];

#[test]
fn each_mistake_has_its_message() {
    for (text, message, hint) in BAD {
        let problems = load_text(text, &FakeHost::default()).unwrap_err();
        let hint = Some(*hint).filter(|hint| !hint.is_empty()).map(str::to_owned);
        assert_eq!(problems, [((*message).to_owned(), hint)], "{text}");
    }
}

#[test]
fn defaults_come_from_the_host() {
    let config = defaults();
    assert_eq!((config.node_name.as_str(), config.is_written("node-name")), ("node-1", false));
    assert_eq!(config.kubeconfig, None);
    assert_eq!(config.manifest_dir, Path::new("/etc/kubernetes/manifests"));
    assert_eq!(config.runtime_endpoint.as_deref(), Some(Path::new("/run/containerd/containerd.sock")));

    let others = ["/run/crio/crio.sock", "/run/cri-dockerd.sock"].map(PathBuf::from);
    assert_eq!((config.is_runtime_guessed(), config.other_runtime_sockets()), (true, others.to_vec()));
    assert_eq!(config.origins["runtime-endpoint"].to_string(), "default: the kubelet's own");

    let config = load_text("", &FakeHost::with("/run/crio/crio.sock", "")).unwrap();
    assert_eq!(config.runtime_endpoint.as_deref(), Some(Path::new("/run/crio/crio.sock")));
    let others = ["/run/containerd/containerd.sock", "/run/cri-dockerd.sock"].map(PathBuf::from);
    assert_eq!((config.is_runtime_guessed(), config.other_runtime_sockets()), (true, others.to_vec()));
    let written = load_text("runtime-endpoint = \"unix:///run/x.sock\"", &FakeHost::default()).unwrap();
    assert_eq!((written.is_runtime_guessed(), written.other_runtime_sockets()), (false, vec![]));
    let config = load_text("", &FakeHost::with("/etc/daemonlet/kubeconfig", "")).unwrap();
    assert_eq!(config.kubeconfig.as_deref(), Some(Path::new("/etc/daemonlet/kubeconfig")));
    let config = load_text("kubeconfig = \"\"", &FakeHost::with("/etc/daemonlet/kubeconfig", "")).unwrap();
    assert_eq!(config.kubeconfig, None, "an empty text is no API, whatever exists");
}

#[test]
fn a_host_name_that_is_no_node_name_is_a_problem() {
    let host = FakeHost { name: Some("my_host"), ..FakeHost::default() };
    let problems = load_text("", &host).unwrap_err();
    assert!(problems[0].0.starts_with("node-name: the host name \"my_host\" is no node name"), "{problems:?}");
    assert_eq!(problems[0].1.as_deref(), Some("set node-name"));
    assert!(load_text("node-name = \"my-host\"", &host).unwrap().is_written("node-name"));
}

#[test]
fn the_default_policy_is_that_of_the_rules() {
    assert_eq!(defaults().policy_rules(), PodRules::default());
}

const KUBELET: &str = "/var/lib/kubelet/config.yaml";

#[test]
fn the_kubelets_file_gives_manifest_dir_and_runtime_endpoint() {
    let text = "kind: KubeletConfiguration\nstaticPodPath: /srv/manifests\n\
                containerRuntimeEndpoint: unix:///run/my.sock\n";
    let config = load_text("", &FakeHost::with(KUBELET, text)).unwrap();
    assert_eq!(config.manifest_dir, Path::new("/srv/manifests"));
    assert_eq!(config.runtime_endpoint.as_deref(), Some(Path::new("/run/my.sock")));
    assert!(!config.is_runtime_guessed() && config.other_runtime_sockets().is_empty());
    let origin = "default: staticPodPath of /var/lib/kubelet/config.yaml";
    assert_eq!(config.origins["manifest-dir"].to_string(), origin);

    let text = "kind: KubeletConfiguration\nstaticPodPath: manifests\n";
    let config = load_text("", &FakeHost::with(KUBELET, text)).unwrap();
    assert_eq!(config.manifest_dir, Path::new("/var/lib/kubelet/manifests"), "relative to the kubelet's file");
}

#[test]
fn a_kubelet_file_that_is_none_is_named_unless_it_is_not_needed() {
    for (text, message) in [
        ("", "/var/lib/kubelet/config.yaml: not a kubelet configuration: it is empty"),
        (
            "kind: Pod\n",
            "/var/lib/kubelet/config.yaml: not a kubelet configuration: its kind is not KubeletConfiguration",
        ),
        (
            "kind: KubeletConfiguration\nstaticPodPath: 5\n",
            "/var/lib/kubelet/config.yaml: not a kubelet configuration: its staticPodPath is not text",
        ),
        (
            "kind: KubeletConfiguration\nstaticPodPath: [/a]\n",
            "/var/lib/kubelet/config.yaml: not a kubelet configuration: its staticPodPath is not text",
        ),
        (
            "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: run/my.sock\n",
            "/var/lib/kubelet/config.yaml: containerRuntimeEndpoint is no Unix socket: \"run/my.sock\"",
        ),
    ] {
        let problems = load_text("", &FakeHost::with(KUBELET, text)).unwrap_err();
        assert_eq!(problems[0].0, message);
        let enough = "manifest-dir = \"/a\"\nruntime-endpoint = \"\"";
        assert_eq!(load_text(enough, &FakeHost::with(KUBELET, text)).unwrap().runtime_endpoint, None);
    }
    let problems = load_text("", &FakeHost::with(KUBELET, "kind: [\n")).unwrap_err();
    assert!(problems[0].0.starts_with("/var/lib/kubelet/config.yaml: line "), "{problems:?}");
}

#[test]
fn each_key_of_the_example_reaches_the_configuration() {
    let examples: BTreeMap<&str, &str> = [
        ("api-endpoint", r#""[fd00::1]:6443""#),
        ("selector", r#""a=b,c!=d,e in (f,g),!h,i""#),
        ("default-mode", r#""bootstrap""#),
        ("kubelet-endpoint", r#""https://127.0.0.1:10250""#),
        ("max-removals", "7"),
        ("node.labels", r#"{ zone = "a" }"#),
        ("node.kubelet-version", r#""v1.36.2""#),
        ("node.taints", r#"["a=b:NoSchedule", "c:NoExecute"]"#),
        ("node.startup-taint", "true"),
        ("node.conditions", "true"),
        ("policy.namespaces", r#"["*"]"#),
        ("policy.trusted-namespaces", r#"["a", "b"]"#),
        ("policy.pod-security", r#""restricted""#),
        (
            "policy.grants",
            r#"{ a = { host-ports = ["9100", "1-2"], host-paths = ["/var/log"], volume-types = ["nfs"], annotations = ["a.test/*"] } }"#,
        ),
        ("policy.local-storage", "true"),
        ("policy.shared-pulls", "true"),
        ("policy.max-grace-period", r#""90s""#),
        ("policy.max-requests", r#""50%""#),
        ("policy.images", r#"["registry.k8s.io/*"]"#),
        ("policy.pod-security-default", r#""baseline""#),
        ("policy.default-node-selector", r#""a=b""#),
        ("policy.release", r#"["a/b", "a/*"]"#),
        ("policy.inline-secret-env", "true"),
        ("policy.admission", r#""dry-run""#),
        ("images.pull-policy", r#""as-written""#),
        ("images.require-prepull", "true"),
        ("images.on-pull-failure", r#""go-on""#),
        ("tokens.default-expiration", r#""7200s""#),
        ("checkpoint.seal", r#""systemd-creds""#),
        ("checkpoint.key", r#""tpm2""#),
        ("log.level", r#""info,daemonlet::node=debug""#),
        ("metrics.listen", r#""[::1]:9465""#),
        ("coordinator.metrics-listen", r#""[::1]:9466""#),
        ("log.target", r#""stderr""#),
        ("coordination", r#""none""#),
        ("update-jitter", r#""1500ms""#),
        ("removals-delay", r#""60s""#),
        ("once-timeout", r#""1s""#),
        ("coordinator.lease-namespace", r#""ns""#),
        ("coordinator.lease-name", r#""lease""#),
        ("coordinator.exact-rollouts", "true"),
        ("coordinator.approve-nodes", "true"),
        ("boot-guard-max", r#""20s""#),
        ("boot.guard", "false"),
        ("boot.kubeconfig", r#"["/a", "/b"]"#),
        ("runtime-endpoint", r#""unix:///run/x.sock""#),
        ("folders", r#"["/a"]"#),
    ]
    .into();
    for key in keys::KEYS {
        let value = examples.get(key.path).copied().unwrap_or(r#""/some/where""#);
        let value = if key.path == "node-name" { r#""some.node""# } else { value };
        let section = if key.section().is_empty() { String::new() } else { format!("[{}]\n", key.section()) };
        let line = format!("{} = {value}\n", key.name());
        let config = load_text(&format!("{section}{line}"), &FakeHost::default()).unwrap();
        assert_ne!(config, Config { origins: config.origins.clone(), ..defaults() }, "{line} changes something");
        let ConfigOrigin::File { .. } = config.origins[key.path] else { panic!("{line} has no origin") };
        assert_eq!(config.origins.len(), keys::KEYS.len());
        let printed: toml::Value = toml::from_str(&config.print()).unwrap();
        let wanted: toml::Value = toml::from_str(&format!("{section}{line}")).unwrap();
        let at = |value: &toml::Value| match key.section() {
            "" => value[key.name()].clone(),
            section => value[section][key.name()].clone(),
        };
        assert_eq!(at(&printed), at(&wanted), "{line}");
    }
}

#[test]
fn the_printed_configuration_reads_back_as_itself() {
    let config = defaults();
    let again = load_text(&config.print(), &FakeHost::default()).unwrap();
    let same = Config { origins: config.origins.clone(), kubelet_file: config.kubelet_file.clone(), ..again };
    assert_eq!(same, config);
}

#[test]
fn the_example_file_is_made_from_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/daemonlet.toml");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, example()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, example(), "run UPDATE_GENERATED=1 cargo test --lib config to write it anew");
    assert_eq!(load_text(&written, &FakeHost::default()).unwrap(), defaults(), "it says nothing by itself");
    let uncommented: String = written
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    load_text(&uncommented, &FakeHost::default()).unwrap();
}

#[test]
fn before_registration_the_node_has_what_the_kubelet_would_set() {
    let text = "node-name = \"n1\"\n[node]\nlabels = { zone = \"a\" }\ntaints = [\"a=b:NoSchedule\"]\n\
                kubelet-version = \"v1.36.2\"\n";
    let node = load_text(text, &FakeHost::default()).unwrap().node_view();
    assert!(!node.registered);
    assert_eq!(node.labels["kubernetes.io/hostname"], "n1");
    assert_eq!(node.labels["kubernetes.io/os"], "linux");
    assert_eq!(node.labels["zone"], "a");
    assert_eq!(node.labels.len(), 6);
    assert_eq!(node.kubelet_version.as_deref(), Some("v1.36.2"));
    assert_eq!(node.taints[0].effect, "NoSchedule");
}
