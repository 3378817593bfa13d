//! `daemonlet policy test`: what this node's `[policy]` says about DaemonSets in files.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::Subcommand;
use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::render::NEWEST_KUBELET;
use crate::cli::render::inputs;
use crate::cli::render::report;
use crate::config;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectMap;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::outline;
use crate::core::overlays;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::policy::namespace_of;
use crate::core::render::Missing;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::rendering::Revision;
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
/// What no static pod can have is refused, too, as for the newest kubelet that is known.
/// Every rule that is broken is named, also where `status` names the first ones only.
/// Not judged: how much of the node its pods may request together, what the cluster's admission says, and what
/// comes of objects that are not among the files, which are named. Exit code: 0 nothing refused,
/// 1 something refused or no DaemonSet in the files, 3 a path unreadable or a document invalid.
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
    let config = arguments.config.load()?;
    if config::is_without_file(arguments.config.config.as_deref(), Path::new("/")) {
        let words = "there is no configuration file: judged by the defaults, as a node that has none would; name one with --config";
        output::remarks(&format!("note: {words}\n"));
    }
    let policy = agent::policy(&config)?;
    let options = RenderOptions { kubelet_version: Some(NEWEST_KUBELET), ..agent::render_options(&config, true) };
    let mut inputs = inputs::read(&arguments.files);
    let mut not_taken = std::mem::take(&mut inputs.refused);
    not_taken.append(&mut inputs.invalid);
    let colour = Colour::new(&std::io::stdout());
    let (mut text, mut exit) = (String::new(), report::exit(&not_taken, false));
    // An object that is not among the files may be in the cluster.
    let objects = ObjectMap { objects: std::mem::take(&mut inputs.objects), complete: false };
    let judge = PolicyTest { policy, options, objects };
    let unusable = |key: &ObjectKey| not_taken.iter().any(|entry| entry.key() == Some(key));
    for (key, daemon_set) in inputs.daemon_sets.iter().filter(|(key, _)| !unusable(key)) {
        let of_api = DaemonSet { source: Source::Api, ..DaemonSet::clone(daemon_set) };
        let of_api = Arc::new(of_api);
        let list = overlays::config_map(daemon_set).map(|config_map| judge.objects.objects.get(&config_map));
        let mut lacks = BTreeSet::new();
        let mut said = judge.judged(&of_api, &mut lacks);
        let of_template: Vec<String> = said.iter().map(|(why, _)| why.clone()).collect();
        let with_overlays = judge.judged_with_overlays(&of_api, list.flatten(), &mut lacks);
        said.extend(with_overlays.into_iter().filter(|(why, _)| !of_template.contains(why)).map(|(why, of_patch)| {
            let with = of_patch.source.map_or_else(String::new, |source| format!(" (with {source})"));
            (format!("{why}{with}"), of_patch.hint)
        }));
        if said.is_empty() {
            text.push_str(&format!("{} {}", colour.green("allowed"), output::line(key.to_string())));
        }
        let unread = (list == Some(None))
            .then(|| "its overlays are not judged: their ConfigMap is not among the files".to_owned());
        let lacking: Vec<Missing> = lacks.into_iter().collect();
        let unjudged = (!lacking.is_empty() && said.is_empty())
            .then(|| format!("not judged, as they are not among the files: {}", report::join_missing(&lacking)));
        let left_alone = match judge.policy.covers(&of_api, None) {
            Covered::No(reason) if said.is_empty() => Some(format!("this node leaves it alone: {reason}")),
            Covered::No(_) | Covered::Yes(_) => None,
        };
        for (why, hint) in &said {
            text.push_str(&format!("{} {}", colour.red("refused"), output::line(format!("{key}: {why}"))));
            text.extend(hint.iter().map(|hint| format!("  {} {}", colour.cyan("hint:"), output::line(hint))));
            exit = exit.max(Exit::Refused);
        }
        text.extend(
            unread.into_iter().chain(unjudged).chain(left_alone).map(|note| output::line(format!("  note: {note}"))),
        );
    }
    output::data(&text)?;
    output::remarks(&report::lines(&not_taken, &BTreeMap::new(), Colour::new(&std::io::stderr())));
    if inputs.daemon_sets.is_empty() && not_taken.is_empty() && inputs.unreadable.is_empty() {
        output::remarks(&inputs::nothing_in(&arguments.files));
        exit = Exit::Refused;
    }
    output::errors(&inputs.unreadable);
    Ok(exit.max(if inputs.unreadable.is_empty() { Exit::Success } else { Exit::Unreadable }))
}

/// A finding about a patch.
struct OfPatch {
    /// Where the first one is that it is said of; `None`: it is said of the whole list.
    source: Option<String>,
    hint: Option<String>,
}

/// The rules by which this node judges.
struct PolicyTest {
    policy: Policy,
    options: RenderOptions,
    objects: ObjectMap,
}

impl PolicyTest {
    /// What [`Self::judged`] says of it with the patches of `list`, whatever nodes they are for.
    fn judged_with_overlays(
        &self,
        daemon_set: &Arc<DaemonSet>,
        list: Option<&Value>,
        lacks: &mut BTreeSet<Missing>,
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
            for (why, hint) in self.judged(&daemon_set, lacks) {
                said.entry(why).or_insert_with(|| OfPatch { source: source.clone(), hint });
            }
        }
        said
    }

    /// Why it does not start here, each with what would let it. Adds to `lacks` the objects that a full judgement needs.
    fn judged(&self, daemon_set: &Arc<DaemonSet>, lacks: &mut BTreeSet<Missing>) -> Vec<(String, Option<String>)> {
        let namespace = &daemon_set.key.namespace;
        if !self.policy.allows_namespace(namespace) {
            let why = format!("namespace {namespace} is not among policy.namespaces");
            return vec![(why, Some(format!("add {namespace:?} to policy.namespaces")))];
        }
        let is_bounded = daemon_set.source == Source::Api && self.policy.bounds(namespace);
        let unread = outline::would_be_too_large(&daemon_set.template, &daemon_set.annotations).filter(|_| is_bounded);
        if let Some(error) = unread {
            return vec![(error.to_string(), error.hint)];
        }
        let errors = match self.policy.within_bounds(DaemonSet::clone(daemon_set)) {
            Ok(_) => self.refused(daemon_set, lacks),
            Err(too_large) => too_large.errors,
        };
        errors.into_iter().map(|error| (error.to_string(), error.hint)).collect()
    }

    /// By policy, and by rendering: it says what no static pod can have.
    fn refused(&self, daemon_set: &Arc<DaemonSet>, lacks: &mut BTreeSet<Missing>) -> Vec<FieldError> {
        let none = Value::Null;
        let namespace = self.objects.objects.get(&namespace_of(daemon_set)).unwrap_or(&none);
        let mut errors = self.policy.refusals(daemon_set, Lookup::Present(namespace));
        let no_tokens: BTreeMap<TokenRequest, String> = BTreeMap::new();
        let revision = Revision::of(daemon_set);
        match rendering::render(daemon_set, &revision, 0, &self.objects, &no_tokens, &self.options).result {
            Ok(rendered) => lacks.extend(rendered.pod.waiting_for.into_iter().filter(says_more)),
            Err(refused) => errors.extend(refused.errors),
        }
        errors
    }
}

/// Whether the node could refuse what comes of such an object. What every cluster has is not looked at.
fn says_more(missing: &Missing) -> bool {
    !missing.is_issued_by_cluster()
        && ["ConfigMap", "Secret", "PriorityClass", "RuntimeClass"].contains(&missing.kind.as_str())
}
