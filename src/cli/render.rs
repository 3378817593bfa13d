//! `daemonlet render`: files in, static pods out; no cluster, no root.
//!
//! A render into a folder replaces what an earlier render wrote there for the same DaemonSets.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::config;
use crate::config::Host;
use crate::config::RealHost;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Lookup;
use crate::core::model::NodeView;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::node;
use crate::core::overlays;
use crate::core::overlays::ListSource;
use crate::core::overlays::OverlayFacts;
use crate::core::placement;
use crate::core::placement::NamespaceSelector;
use crate::core::policy::PodRules;
use crate::core::policy::namespace_of;
use crate::core::render::DEFAULT_TOKEN_EXPIRATION;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::rendering::Revision;

pub(in crate::cli) mod inputs;
pub(in crate::cli) mod report;
mod write;

use inputs::RenderInputs;
use report::Manifests;
use report::RenderEntry;

/// The newest kubelet that is known: what is rendered for when no Node says which it has.
pub(in crate::cli) const NEWEST_KUBELET: (u32, u32) = (1, 36);
/// The oldest kubelet that daemonlet is tested with.
const OLDEST_KUBELET: (u32, u32) = (1, 34);
/// The hint how a folder comes to hold this render alone.
const EMPTY: &str = "render into a folder that is empty or not there yet";
/// The hint how overlays come to apply.
const WITH_NODE: &str = "give a Node with --node FILE";

/// Render DaemonSets as static pods, without a cluster
///
/// Exit code: 0 nothing refused, 1 something refused (--strict refuses more), 3 a path unreadable or a document invalid.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Files, folders (their *.yaml, *.yml and *.json, not recursive), or - for standard input:
    /// DaemonSets and the objects that they refer to
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// A Node manifest that placement is judged by; without it every DaemonSet is rendered
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// The node's name, a part of every pod's UID [default: the Node's, else the host name]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,
    /// The kubelet to render for, such as v1.35.2 [default: the Node's, else the newest that is known]
    #[arg(long, value_name = "VERSION", value_parser = kubelet_version)]
    kubelet_version: Option<(u32, u32)>,
    /// The API server's address for pods with hostNetwork
    #[arg(long, value_name = "HOST:PORT", value_parser = config::endpoint)]
    api_endpoint: Option<crate::core::render::Endpoint>,
    /// Allow Secret values that no file can carry to stand in the manifest
    #[arg(long)]
    inline_secret_env: bool,
    /// How imagePullPolicy Always is written: the agent's images.pull-policy
    #[arg(long, value_name = "POLICY", value_parser = ["if-not-present", "as-written"], default_value = "if-not-present")]
    pull_policy: String,
    /// Write DIR/manifests and DIR/volumes instead of printing the manifests; "json" means --json, "yaml" and "-"
    /// the manifests on standard output
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the outcomes as JSON (schemaVersion 1)
    #[arg(long)]
    json: bool,
    /// Refuse also what has to wait for something, an object that is there twice, a daemonlet.dev/ annotation or label
    /// that is not understood, a DaemonSet of an API version that Kubernetes has removed, overlays without a Node to apply them to, a kubelet older than those that daemonlet is
    /// tested with, input without a DaemonSet, a Node for which none of them is, and a folder that has what an earlier
    /// render wrote for other DaemonSets
    #[arg(long)]
    strict: bool,
}

impl Arguments {
    /// The folder to write to. The words that kubectl takes after `-o` name none.
    fn folder(&self) -> Option<&Path> {
        self.output.as_deref().filter(|output| !["json", "yaml", "-"].iter().any(|word| *output == Path::new(word)))
    }

    fn is_json(&self) -> bool {
        self.json || self.output.as_deref() == Some(Path::new("json"))
    }

    fn is_yaml(&self) -> bool {
        self.output.as_deref() == Some(Path::new("yaml"))
    }
}

fn node_name(text: &str) -> Result<String, String> {
    config::node_name(text)
}

fn kubelet_version(text: &str) -> Result<(u32, u32), String> {
    node::version(text).ok_or_else(|| format!("expected a version such as v1.35.2, not {text:?}"))
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    if arguments.json && arguments.is_yaml() {
        let message = "--json and -o yaml ask for two formats of one output: give one of them";
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    let node = arguments.node.as_deref().map(inputs::node).transpose()?;
    let options = options(arguments, node.as_ref())?;
    let node = node.map(|node| NodeView { name: options.node_name.clone(), ..node });
    let mut inputs = inputs::read(&arguments.files);
    let mut errors = inputs.unreadable.clone();

    let entries = entries(&inputs, node.as_ref(), &options);
    inputs.add_mistakes_on_objects(&entries);
    let (mut written, mut earlier) = (None, Vec::new());
    if let Some(folder) = arguments.folder() {
        let done = write::write(folder, &entries);
        written = Some(done.files);
        errors.extend(done.errors);
        earlier = done.earlier;
    }
    let is_empty = entries.is_empty() && errors.is_empty();
    let mut exit =
        report::exit(&entries, arguments.strict).max(if errors.is_empty() { Exit::Success } else { Exit::Unreadable });
    if arguments.strict {
        let nothing = is_empty.then(|| ("no DaemonSet in what was read, which --strict refuses".to_owned(), None));
        let refused: Vec<_> = nothing
            .into_iter()
            .chain(unselected(&entries, &options.node_name))
            .chain(inputs.doubtful.iter().cloned())
            .chain(unapplied(&inputs, node.as_ref()))
            .chain(old_kubelet(&options).map(|note| (format!("{note}, which --strict refuses"), None)))
            .chain(earlier.iter().map(|note| (format!("{note}, which --strict refuses"), Some(EMPTY.to_owned()))))
            .chain(report::strict(&entries))
            .collect();
        exit = exit.max(if refused.is_empty() { Exit::Success } else { Exit::Refused });
        errors.extend(refused);
    }

    if arguments.is_json() {
        let manifests = written.as_ref().map_or(Manifests::Inline, Manifests::Written);
        output::data(&report::json(&entries, &inputs.unknown_fields, manifests, &options, &errors)?)?;
    } else if let Some(written) = &written {
        let colour = output::Colour::new(&std::io::stdout());
        output::data(&report::lines(&report::without_lost(&entries, written), &inputs.unknown_fields, colour))?;
    } else {
        output::yaml(&report::manifests(&entries))?;
        output::remarks(&report::lines(&entries, &inputs.unknown_fields, output::Colour::new(&std::io::stderr())));
    }
    if is_empty && !arguments.strict {
        output::remarks(&inputs::nothing_in(&arguments.files));
    }
    if let Some(note) = old_kubelet(&options).filter(|_| !arguments.strict) {
        output::remarks(&output::line(format!("note: {note}")));
    }
    if let Some(note) = new_kubelet(&options) {
        output::remarks(&output::line(format!("note: {note}")));
    }
    for note in earlier.iter().filter(|_| !arguments.strict) {
        output::remarks(&output::line(format!("note: {note}")));
    }
    output::errors(&errors);
    Ok(exit)
}

/// Whether there are DaemonSets, and none is for the node.
fn unselected(entries: &[RenderEntry], node: &str) -> Option<(String, Option<String>)> {
    let none = !entries.is_empty() && entries.iter().all(|entry| matches!(entry, RenderEntry::NotSelected { .. }));
    let hint = || "give a Node with the labels and taints of yours, or leave out --strict".to_owned();
    none.then(|| (format!("no DaemonSet is for the node {node}, which --strict refuses"), Some(hint())))
}

/// The DaemonSets whose overlays are not looked at because no Node is given.
fn unapplied(inputs: &RenderInputs, node: Option<&NodeView>) -> Vec<(String, Option<String>)> {
    let patched = inputs.daemon_sets.values().filter(|daemon_set| overlays::config_map(daemon_set).is_some());
    let problem = |daemon_set: &Arc<DaemonSet>| {
        let reason = format!("{}: its overlays are not applied, which --strict refuses", daemon_set.key);
        (reason, Some(WITH_NODE.to_owned()))
    };
    patched.filter(|_| node.is_none()).map(problem).collect()
}

/// The note about a kubelet that is newer than all that daemonlet is tested with.
fn new_kubelet(options: &RenderOptions) -> Option<String> {
    let of = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let version = options.kubelet_version.filter(|version| *version > NEWEST_KUBELET)?;
    let (version, newest) = (of(version), of(NEWEST_KUBELET));
    Some(format!("kubelet {version} is not tested: {newest} is the newest that daemonlet is tested with"))
}

/// The note about a kubelet that is older than that.
fn old_kubelet(options: &RenderOptions) -> Option<String> {
    let of = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let (version, oldest) = (options.kubelet_version?, OLDEST_KUBELET);
    (version < oldest).then(|| {
        let (version, oldest) = (of(version), of(oldest));
        format!("kubelet {version} is not supported: {oldest} is the oldest that daemonlet is tested with")
    })
}

fn options(arguments: &Arguments, node: Option<&NodeView>) -> Result<RenderOptions, CommandFailure> {
    let node_name = match (&arguments.node_name, node) {
        (Some(name), _) => name.clone(),
        (None, Some(node)) => node.name.clone(),
        (None, None) => {
            let name = RealHost.host_name().map(|name| name.to_lowercase()).unwrap_or_default();
            config::node_name(&name)
                .map_err(|why| CommandFailure::new(Exit::Usage, format!("host name: {why}")).hint("give --node-name"))?
        }
    };
    let nodes = || node.and_then(|node| node.kubelet_version.as_deref()).and_then(node::version);
    Ok(RenderOptions {
        node_name,
        kubelet_version: Some(arguments.kubelet_version.or_else(nodes).unwrap_or(NEWEST_KUBELET)),
        api_endpoint: arguments.api_endpoint.clone(),
        has_api: true,
        inline_secret_env: arguments.inline_secret_env,
        pulls: if arguments.pull_policy == "as-written" { PullMode::AsWritten } else { PullMode::First },
        token_expiration: DEFAULT_TOKEN_EXPIRATION,
        rules: PodRules::trusting(),
        topology: node.map(node::topology).unwrap_or_default(),
    })
}

/// What becomes of each DaemonSet, by namespace and name, then what is invalid, by file and line.
fn entries(inputs: &RenderInputs, node: Option<&NodeView>, options: &RenderOptions) -> Vec<RenderEntry> {
    // An object that is not among the inputs may still exist in the cluster.
    let objects = ObjectMap { objects: inputs.objects.clone(), complete: false };
    let tokens: BTreeMap<TokenRequest, String> = BTreeMap::new();
    let mut entries: Vec<RenderEntry> = inputs.refused.clone();
    let refused: BTreeSet<_> = entries.iter().filter_map(|entry| entry.key().cloned()).collect();
    for daemon_set in inputs.daemon_sets.values().filter(|daemon_set| !refused.contains(&daemon_set.key)) {
        entries.push(entry(daemon_set, node, &objects, &tokens, options));
    }
    entries.sort_by(|a, b| a.key().cmp(&b.key()));
    entries.extend(inputs.invalid.iter().cloned());
    entries
}

fn entry(
    daemon_set: &Arc<DaemonSet>,
    node: Option<&NodeView>,
    objects: &ObjectMap,
    tokens: &BTreeMap<TokenRequest, String>,
    options: &RenderOptions,
) -> RenderEntry {
    let key = daemon_set.key.clone();
    let namespace = NamespaceSelector::of(&key.namespace, objects.lookup(&namespace_of(daemon_set)), "");
    let placement = node.map(|node| placement::should_run(node, daemon_set, namespace.as_ref()));
    if let Some(misfit) = placement.and_then(|placement| placement.misfit) {
        return RenderEntry::NotSelected { key, reason: misfit.to_string() };
    }
    let config_map = overlays::config_map(daemon_set);
    let no_labels = BTreeMap::new();
    let daemon_set = &match (&config_map, node) {
        (Some(_), None) => Arc::clone(daemon_set),
        // Refused where the annotation names no ConfigMap.
        (_, node) => {
            let found = config_map.as_ref().map_or(Lookup::Absent, |config_map| objects.lookup(config_map));
            let labels = node.map_or(&no_labels, |node| &node.labels);
            let (list, rules) = (ListSource::Folder, &options.rules);
            let facts = OverlayFacts { found, list, labels, registered: true, last: None, rules };
            overlays::resolve(daemon_set, &facts)
        }
    };
    let mut rendering = rendering::render(daemon_set, &Revision::of(daemon_set), 0, objects, tokens, options);
    if let Ok(rendered) = &mut rendering.result {
        let field = format!("metadata.annotations[{OVERLAYS}]");
        let of_node = daemon_set.overlays.iter().map(|overlays| (overlays.applied(), None));
        let unapplied = config_map.iter().filter(|_| node.is_none()).map(|config_map| {
            let reason = format!("the overlays of {config_map} are not applied: a Node's labels say which apply");
            (reason, Some(WITH_NODE.to_owned()))
        });
        let notes = of_node.chain(unapplied);
        rendered.pod.notes.extend(notes.map(|(reason, hint)| FieldError { field: field.clone(), reason, hint }));
    }
    match rendering.result {
        Ok(rendered) => RenderEntry::Rendered { key, identity: rendering.identity, rendered: Box::new(rendered) },
        Err(refused) => RenderEntry::Refused { key, source: daemon_set.source.clone(), errors: refused.errors },
    }
}
