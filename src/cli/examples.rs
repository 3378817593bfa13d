//! The examples below the help of each command, and in its manual page.

/// Examples of one command.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

/// By command; each with what it is for.
const OF_DAEMONLET: [Examples; 25] = [
    (
        "init",
        &[
            ("daemonlet init", "ask, write the configuration, and show the plan of the first pass"),
            ("daemonlet init --mode static --namespaces kube-system,kube-flannel", "take the rest as it is by default"),
            ("daemonlet init --kubeconfig none --output /tmp/try.toml", "no API server, another file"),
        ],
    ),
    (
        "install",
        &[
            ("daemonlet install", "on a host without a package of it"),
            ("daemonlet install --root /host", "in a container that has the host's file system there"),
        ],
    ),
    ("completion", &[("daemonlet completion bash > /etc/bash_completion.d/daemonlet", "without a package")]),
    (
        "run",
        &[
            ("daemonlet run", "run the agent, as its unit does"),
            ("daemonlet run --check-config", "before `systemctl reload daemonlet`"),
            ("daemonlet run --print-config", "each value, and the file that set it"),
        ],
    ),
    ("coordinator", &[("daemonlet coordinator --config /etc/daemonlet/daemonlet.toml", "grant rollout budgets")]),
    (
        "enroll",
        &[
            ("daemonlet enroll", "ask with the kubelet's kubeconfig"),
            ("daemonlet enroll --from /etc/daemonlet/bootstrap.conf --timeout 10m", "ask with a bootstrap token"),
        ],
    ),
    (
        "render",
        &[
            ("daemonlet render -f kube-flannel.yml --node-name n1", "print what node n1 would get"),
            ("daemonlet render -f manifests --node node.yaml -o out", "judge placement, and write files"),
            ("daemonlet render -f manifests --strict --json --kubelet-version v1.35.2", "a gate in CI"),
        ],
    ),
    ("plan", &[("daemonlet plan", "what the next pass would do"), ("daemonlet plan --json", "the same for a script")]),
    ("policy", &[("daemonlet policy test -f exporter.yaml", "what this node would refuse")]),
    ("policy test", &[("daemonlet policy test -f exporter.yaml", "what this node would refuse, and what grants it")]),
    (
        "status",
        &[
            ("daemonlet status", "a line for each daemon"),
            ("daemonlet status -o wide", "with whole reasons"),
            ("daemonlet status --watch", "go on until interrupted"),
        ],
    ),
    ("explain", &[("daemonlet explain kube-system/kube-proxy", "why it does or does not run here")]),
    ("doctor", &[("daemonlet doctor", "check node and cluster; as root, it checks all")]),
    ("restart", &[("daemonlet restart kube-system/kube-proxy", "end the pod and start a new one")]),
    ("boot-guard", &[("daemonlet boot-guard --clean", "remove what a killed boot guard left")]),
    (
        "generate",
        &[("daemonlet generate rbac -f kube-flannel.yml | kubectl apply -f -", "the rights that flannel's data need")],
    ),
    ("generate crd", &[("daemonlet generate crd | kubectl apply -f -", "let the coordinator approve rollouts")]),
    (
        "generate unit-dropin",
        &[("daemonlet generate unit-dropin > paths.conf", "a drop-in for /etc/systemd/system/daemonlet.service.d")],
    ),
    (
        "generate rbac",
        &[("daemonlet generate rbac -f kube-flannel.yml | kubectl apply -f -", "the rights that flannel's data need")],
    ),
    ("retry", &[("daemonlet retry kube-system/kube-proxy", "after you have fixed what made it fail")]),
    ("approve", &[("daemonlet approve kube-system/gpu-driver", "once nothing on this node needs the old one")]),
    (
        "release",
        &[
            ("daemonlet release kube-system/kube-proxy", "end one daemon that is held"),
            ("daemonlet release --all", "end all of them"),
        ],
    ),
    (
        "support-bundle",
        &[
            ("daemonlet support-bundle --list", "what would be in it"),
            ("daemonlet support-bundle -o bundle.tar.gz --no-data", "without the values of ConfigMaps"),
        ],
    ),
    ("replay", &[("daemonlet replay bundle.tar.gz", "decide its passes again")]),
    ("teardown", &[("daemonlet teardown --dry-run", "what would end"), ("daemonlet teardown --timeout 10m", "end it")]),
];

/// Of the plugin; the empty name is the plugin itself.
const OF_PLUGIN: [Examples; 9] = [
    (
        "",
        &[
            ("kubectl daemonlet", "the whole cluster"),
            ("kubectl daemonlet -n kube-system -o json", "one namespace, for a script"),
        ],
    ),
    (
        "explain",
        &[
            ("kubectl daemonlet explain n1", "what runs on node n1, and why"),
            ("kubectl daemonlet explain n1 kube-system/kube-proxy", "one DaemonSet there"),
        ],
    ),
    (
        "diff",
        &[
            ("kubectl daemonlet diff n1 n2", "every DaemonSet with overlays on nodes n1 and n2"),
            ("kubectl daemonlet diff n1 n2 monitoring/node-agent", "one of them"),
        ],
    ),
    ("doctor", &[("kubectl daemonlet doctor", "whether each admission policy is in force")]),
    ("pause", &[("kubectl daemonlet pause kube-system/kube-proxy", "no more nodes follow")]),
    ("resume", &[("kubectl daemonlet resume kube-system/kube-proxy", "they follow again")]),
    ("promote", &[("kubectl daemonlet promote kube-system/kube-proxy", "go on to the next step")]),
    ("abort", &[("kubectl daemonlet abort kube-system/kube-proxy", "back to the released revision")]),
    ("retry", &[("kubectl daemonlet retry kube-system/kube-proxy", "after you have fixed what made it fail")]),
];

/// `daemonlet` with examples.
pub(super) fn of_daemonlet(command: clap::Command) -> clap::Command {
    with(command, "", &OF_DAEMONLET)
}

/// `kubectl daemonlet` with examples.
pub(super) fn of_plugin(command: clap::Command) -> clap::Command {
    with(command, "", &OF_PLUGIN)
}

/// `command`, which is called `path` in `all`, and everything below it.
fn with(command: clap::Command, path: &str, all: &[Examples]) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = match all.iter().find(|(name, _)| *name == path) {
        Some((_, examples)) => command.after_help(text(examples)),
        None => command,
    };
    below.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |one| with(one, path.trim_start(), all))
    })
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(command, what)| format!("\n  # {what}\n  {command}"));
    format!("Examples:{}", lines.collect::<String>())
}
