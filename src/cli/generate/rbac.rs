//! `daemonlet generate rbac`: which Secrets, ConfigMaps, ServiceAccounts and tokens the agents may have.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Exit;
use crate::cli::Failure;
use crate::cli::output;
use crate::cli::render::inputs;
use crate::core::cluster::rights;
use crate::core::enrolment;
use crate::core::model::ObjectMap;
use crate::core::model::TokenRequest;
use crate::core::outcome;
use crate::core::outcome::Revision;
use crate::core::render::Pulls;
use crate::core::render::RenderOptions;
use crate::core::yaml;

/// Roles that let agents read exactly what the DaemonSets in FILES use, and get their tokens
///
/// Exit code: 0 all DaemonSets are in it, 1 one is refused, 3 a path unreadable or a document invalid.
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

pub(super) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let inputs = inputs::read(&arguments.files);
    let bad = inputs.bad();
    let objects = ObjectMap { objects: inputs.objects, complete: false };
    let tokens: BTreeMap<TokenRequest, String> = BTreeMap::new();
    // What is referred to is the same on every node.
    let options = RenderOptions {
        node_name: "node".to_owned(),
        kubelet_version: None,
        api_endpoint: None,
        has_api: true,
        inline_secret_env: true,
        pulls: Pulls::First,
    };
    let mut text = String::new();
    let mut exit = Exit::Success;
    for (key, daemon_set) in &inputs.daemon_sets {
        let outcome = outcome::outcome(daemon_set, &Revision::of(daemon_set), 0, &objects, &tokens, &options);
        let (references, tokens) = match &outcome.result {
            Ok(rendered) => (&rendered.pod.references, &rendered.pod.tokens),
            Err(refused) => {
                let why = refused.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                output::remarks(&format!("refused {key}: {why}\n"));
                exit = exit.max(Exit::Refused);
                continue;
            }
        };
        let objects = rights::of_daemon(key, references, tokens, &arguments.group);
        for (index, object) in objects.iter().enumerate() {
            text.push_str("---\n");
            let header = if index == 0 { vec![format!("What DaemonSet {key} uses.")] } else { Vec::new() };
            text.push_str(&yaml::write_manifest(&header, object));
        }
    }
    output::data(&text)?;
    if inputs.daemon_sets.is_empty() {
        output::remarks("no DaemonSet in what was read\n");
    }
    let mut errors = inputs.unreadable;
    if bad > 0 {
        errors.push((format!("{bad} documents are invalid: `daemonlet render` with the same files says why"), None));
    }
    if !errors.is_empty() {
        exit = Exit::Unreadable;
    }
    output::errors(&errors);
    Ok(exit)
}
