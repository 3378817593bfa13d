//! `daemonlet policy test`: what this node's `[policy]` says about DaemonSets in files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::Subcommand;
use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::render::inputs;
use crate::cli::render::report;
use crate::core::escape;
use crate::core::model::DaemonSet;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::overlays;
use crate::core::policy::Admission;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::policy::namespace_of;
use crate::node::agent;

/// Judge DaemonSets by [policy] before they are applied
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Test(Test),
}

/// Say what this node would refuse of the API server's DaemonSets, by which key, and what grants it
///
/// A Namespace among the files counts with its labels, a ConfigMap with overlays with each of its patches.
/// Not judged: how much of the node its pods may request together. Exit code: 0 nothing refused,
/// 1 something refused, 3 a path unreadable or a document invalid.
#[derive(Debug, Args)]
struct Test {
    #[command(flatten)]
    config: ConfigArgument,
    /// Files, folders (their *.yaml, *.yml and *.json, not recursive), or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let PolicyCommand::Test(arguments) = &arguments.what;
    let policy = agent::policy(&arguments.config.load()?)?;
    let mut inputs = inputs::read(&arguments.files);
    let mut not_taken = std::mem::take(&mut inputs.refused);
    not_taken.append(&mut inputs.invalid);
    let colour = Colour::new(&std::io::stdout());
    let (mut text, mut exit) = (String::new(), report::exit(&not_taken, false));
    let unusable = |key: &ObjectKey| not_taken.iter().any(|entry| entry.key() == Some(key));
    for (key, daemon_set) in inputs.daemon_sets.iter().filter(|(key, _)| !unusable(key)) {
        let of_api = DaemonSet { source: Source::Api, ..DaemonSet::clone(daemon_set) };
        let namespace = inputs.objects.get(&namespace_of(daemon_set)).cloned().unwrap_or_else(|| json!({}));
        let of_api = Arc::new(of_api);
        let list = overlays::config_map(daemon_set).map(|config_map| inputs.objects.get(&config_map));
        let mut said = judged(&policy, &of_api, &namespace);
        let of_template: Vec<String> = said.iter().map(|(why, _)| why.clone()).collect();
        let with_overlays = judged_with_overlays(&policy, &of_api, &namespace, list.flatten());
        said.extend(with_overlays.into_iter().filter(|(why, _)| !of_template.contains(why)).map(|(why, of_patch)| {
            let with = of_patch.source.map_or_else(String::new, |source| format!(" (with {source})"));
            (format!("{why}{with}"), of_patch.hint)
        }));
        if said.is_empty() {
            text.push_str(&format!("{} {key}\n", colour.green("allowed")));
        }
        let unread = (list == Some(None))
            .then(|| "its overlays are not judged: their ConfigMap is not among the files".to_owned());
        let left_alone = match policy.covers(&of_api, None) {
            Covered::No(reason) if said.is_empty() => Some(format!("this node leaves it alone: {reason}")),
            Covered::No(_) | Covered::Yes(_) => None,
        };
        for (why, hint) in &said {
            text.push_str(&format!("{} {key}: {}\n", colour.red("refused"), escape::line(why)));
            text.extend(hint.iter().map(|hint| format!("  {} {}\n", colour.cyan("hint:"), escape::line(hint))));
            exit = exit.max(Exit::Refused);
        }
        text.extend(unread.into_iter().chain(left_alone).map(|note| format!("  note: {}\n", escape::line(&note))));
    }
    output::data(&text)?;
    output::remarks(&report::lines(&not_taken, &BTreeMap::new(), Colour::new(&std::io::stderr())));
    if inputs.daemon_sets.is_empty() && not_taken.is_empty() && inputs.unreadable.is_empty() {
        output::remarks(&inputs::nothing_in(&arguments.files));
    }
    output::errors(&inputs.unreadable);
    Ok(exit.max(if inputs.unreadable.is_empty() { Exit::Success } else { Exit::Unreadable }))
}

/// What is said of a patch.
struct OfPatch {
    /// Where the first one is that it is said of; `None`: it is said of the whole list.
    source: Option<String>,
    hint: Option<String>,
}

/// What [`judged`] says of it with the patches of `list`, whatever nodes they are for.
fn judged_with_overlays(
    policy: &Policy,
    daemon_set: &Arc<DaemonSet>,
    namespace: &Value,
    list: Option<&Value>,
) -> BTreeMap<String, OfPatch> {
    let found = list.map_or(Lookup::Unknown, Lookup::Present);
    let patched = match overlays::each(daemon_set, found) {
        Ok(patched) => patched,
        Err(errors) => {
            let of_list = |hint| OfPatch { source: None, hint };
            return errors.into_iter().map(|error| (error.to_string(), of_list(error.hint))).collect();
        }
    };
    let mut said = BTreeMap::new();
    for daemon_set in patched {
        let last = daemon_set.overlays.as_ref().and_then(|overlays| overlays.sources().pop());
        let source = last.map(|(source, _)| source);
        for (why, hint) in judged(policy, &daemon_set, namespace) {
            said.entry(why).or_insert_with(|| OfPatch { source: source.clone(), hint });
        }
    }
    said
}

/// Why it does not start here, each with what would let it.
fn judged(policy: &Policy, daemon_set: &DaemonSet, namespace: &Value) -> Vec<(String, Option<String>)> {
    if !policy.allows_namespace(&daemon_set.key.namespace) {
        let namespace = &daemon_set.key.namespace;
        let why = format!("namespace {namespace} is not among policy.namespaces");
        return vec![(why, Some(format!("add {namespace:?} to policy.namespaces")))];
    }
    match policy.admit(daemon_set, Lookup::Present(namespace)) {
        Admission::Refused(errors) => errors.into_iter().map(|error| (error.to_string(), error.hint)).collect(),
        Admission::Allowed(_) | Admission::Waits(_) => Vec::new(),
    }
}
