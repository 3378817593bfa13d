//! What follows from the configuration alone.
//!
//! Owns the policy and how an agent renders before it knows its kubelet. Must not read more of the node than the kubeconfig.

use crate::config::Config;
use crate::core::policy::Policy;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::node::api;

use super::error::AgentError;

/// The policy of the configuration.
///
/// # Errors
/// `selector` is not a label selector.
pub fn policy(config: &Config) -> Result<Policy, AgentError> {
    let policy = Policy::new(config.default_mode, &config.selector, config.policy_namespaces.clone())
        .map_err(|error| AgentError::Selector(error.to_string()))?;
    Ok(policy
        .with_rules(config.policy_rules())
        .with_release(config.policy_release.clone())
        .with_defaults(config.pod_security_default, config.default_node_selector.clone()))
}

/// How an agent with this configuration renders, before it knows its kubelet.
pub fn render_options(config: &Config, has_runtime: bool) -> RenderOptions {
    RenderOptions {
        node_name: config.node_name.clone(),
        kubelet_version: None,
        // The first pass, from disk alone, needs it too: otherwise it would write manifests without it.
        api_endpoint: config.api_endpoint.clone().or_else(|| api::endpoint(config.kubeconfig.as_deref()?).ok()?),
        has_api: config.kubeconfig.is_some(),
        inline_secret_env: config.inline_secret_env,
        pulls: match (has_runtime, config.pull_as_written) {
            (false, _) => PullMode::ByKubelet,
            (true, true) => PullMode::AsWritten,
            (true, false) => PullMode::First,
        },
        token_expiration: config.default_token_expiration.into(),
        rules: config.policy_rules(),
        topology: Default::default(),
    }
}
