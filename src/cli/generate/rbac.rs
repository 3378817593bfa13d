//! `daemonlet generate rbac`: which Secrets, ConfigMaps, ServiceAccounts and tokens the agents may have.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::render::inputs;
use crate::cli::render::report;
use crate::cli::render::report::RenderEntry;
use crate::core::cluster::rights;
use crate::core::enrolment;
use crate::core::model::Lookup;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::overlays;
use crate::core::policy::PodRules;
use crate::core::render::DEFAULT_TOKEN_EXPIRATION;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::rendering::Revision;
use crate::core::yaml;

/// Roles that let agents read exactly what the DaemonSets in FILES use, and get their tokens
///
/// Exit code: 0 all DaemonSets are in it, 1 one is refused, or its overlays are, or there is none, 3 a path unreadable or a
/// document invalid.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Files, folders (their *.yaml, *.yml and *.json, not recursive), or - for standard input:
    /// DaemonSets, and their ServiceAccounts for the pull secrets in them
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// The agents' group
    #[arg(long, value_name = "GROUP", default_value = enrolment::GROUP)]
    group: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let inputs = inputs::read(&arguments.files);
    let mut not_taken: Vec<RenderEntry> = inputs.refused.iter().chain(&inputs.invalid).cloned().collect();
    let objects = ObjectMap { objects: inputs.objects, complete: false };
    let of_nobody: BTreeMap<TokenRequest, String> = BTreeMap::new();
    // What is referred to is the same on every node.
    let options = RenderOptions {
        node_name: "node".to_owned(),
        kubelet_version: None,
        api_endpoint: None,
        has_api: true,
        inline_secret_env: true,
        pulls: PullMode::First,
        token_expiration: DEFAULT_TOKEN_EXPIRATION,
        rules: PodRules::trusting(),
        topology: Default::default(),
    };
    let mut manifests = Vec::new();
    let refused: Vec<_> = inputs.refused.iter().filter_map(RenderEntry::key).collect();
    for (key, daemon_set) in inputs.daemon_sets.iter().filter(|(key, _)| !refused.contains(key)) {
        let rendering = rendering::render(daemon_set, &Revision::of(daemon_set), 0, &objects, &of_nobody, &options);
        let (references, tokens) = match &rendering.result {
            Ok(rendered) => (&rendered.pod.references, &rendered.pod.tokens),
            Err(refused) => {
                let (source, errors) = (daemon_set.source.clone(), refused.errors.clone());
                not_taken.push(RenderEntry::Refused { key: key.clone(), source, errors });
                continue;
            }
        };
        let (mut references, mut tokens) = (references.clone(), tokens.clone());
        let config_map = overlays::config_map(daemon_set);
        let found = config_map.as_ref().map_or(Lookup::Absent, |config_map| objects.lookup(config_map));
        let (each, mut errors) = match overlays::each(daemon_set, found) {
            Ok(each) => (each, Vec::new()),
            Err(errors) => (Vec::new(), errors),
        };
        for patched in &each {
            let rendering = rendering::render(patched, &Revision::of(patched), 0, &objects, &of_nobody, &options);
            match rendering.result {
                Ok(rendered) => {
                    references.extend(rendered.pod.references);
                    tokens.extend(rendered.pod.tokens);
                }
                Err(refused) => errors.extend(refused.errors),
            }
        }
        references.extend(config_map);
        // A patch stands in all that come after it.
        errors.dedup();
        if !errors.is_empty() {
            not_taken.push(RenderEntry::Refused { key: key.clone(), source: daemon_set.source.clone(), errors });
        }
        let objects = rights::of_daemon(key, &references, &tokens, &arguments.group);
        for (index, object) in objects.iter().enumerate() {
            let header = if index == 0 { vec![format!("What DaemonSet {key} uses.")] } else { Vec::new() };
            manifests.push(yaml::write_manifest(&header, object));
        }
    }
    output::yaml(&manifests)?;
    output::remarks(&report::lines(&not_taken, &BTreeMap::new(), output::Colour::new(&std::io::stderr())));
    output::errors(&inputs.unreadable);
    if !inputs.unreadable.is_empty() {
        return Ok(Exit::Unreadable);
    }
    if inputs.daemon_sets.is_empty() && not_taken.is_empty() {
        output::remarks(&inputs::nothing_in(&arguments.files));
        return Ok(Exit::Refused);
    }
    Ok(report::exit(&not_taken, false))
}
