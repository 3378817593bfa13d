//! The configuration as text: `--print-config`, and the example file.

use std::time::Duration;

use toml::Value;

use crate::config::Config;
use crate::config::Id;
use crate::config::LogTarget;
use crate::config::keys::KEYS;
use crate::core::model::Mode;
use crate::core::pass::MaxRemovals;

/// The resolved configuration as TOML; above each key, where its value came from.
pub(super) fn config(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            text.push_str(&format!("\n[{section}]\n"));
        }
        let origin = config.origins.get(&key.id).map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("# {origin}\n{} = {}\n", key.name, value(config, key.id)));
    }
    text
}

/// The example file: every key with its meaning, commented out.
pub fn example() -> String {
    let mut text = String::from(
        "# The configuration of daemonlet. Every key is commented out and shows its default,
# or an example where the default depends on the host.
#
# Files are read in this order, and a later one's keys replace an earlier one's:
# this file, then /usr/lib/daemonlet/daemonlet.d/*.toml, /run/daemonlet/daemonlet.d/*.toml
# and /etc/daemonlet/daemonlet.d/*.toml by name. Of files with the same name only the last
# counts, and an empty one masks the others. `daemonlet run --print-config` shows the result.
",
    );
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            text.push_str(&format!("\n[{section}]\n"));
        }
        text.push('\n');
        for line in key.doc.lines() {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&format!("#{} = {}\n", key.name, key.example));
    }
    text
}

/// The value of the key `id`, as the file would have it.
fn value(config: &Config, id: Id) -> Value {
    let path = |path: &std::path::Path| Value::String(path.display().to_string());
    let optional = |text: Option<String>| Value::String(text.unwrap_or_default());
    let word = |first: bool, yes: &str, no: &str| Value::String(if first { yes } else { no }.to_owned());
    let list = |items: Vec<String>| Value::Array(items.into_iter().map(Value::String).collect());
    match id {
        Id::NodeName => Value::String(config.node_name.clone()),
        Id::Kubeconfig => optional(config.kubeconfig.as_ref().map(|path| path.display().to_string())),
        Id::ApiEndpoint => optional(config.api_endpoint.as_ref().map(|endpoint| {
            let host = &endpoint.host;
            if host.contains(':') { format!("[{host}]:{}", endpoint.port) } else { format!("{host}:{}", endpoint.port) }
        })),
        Id::Folders => list(config.folders.iter().map(|folder| folder.display().to_string()).collect()),
        Id::Selector => Value::String(config.selector.clone()),
        Id::DefaultMode => Value::String(
            match config.default_mode {
                None => "labelled",
                Some(Mode::Static) => "static",
                Some(Mode::Bootstrap) => "bootstrap",
            }
            .to_owned(),
        ),
        Id::ManifestDir => path(&config.manifest_dir),
        Id::KubeletConfig => path(&config.kubelet_config),
        Id::KubeletRoot => path(&config.kubelet_root),
        Id::KubeletEndpoint => optional(config.kubelet_endpoint.clone()),
        Id::RuntimeEndpoint => {
            optional(config.runtime_endpoint.as_ref().map(|socket| format!("unix://{}", socket.display())))
        }
        Id::StateDir => path(&config.state_dir),
        Id::RunDir => path(&config.run_dir),
        Id::UpdateJitter => duration(config.update_jitter),
        Id::MaxRemovals => match config.max_removals {
            MaxRemovals::HalfAndTwo => Value::String("half".to_owned()),
            MaxRemovals::Off => Value::String("off".to_owned()),
            MaxRemovals::Count(number) => Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)),
        },
        Id::RemovalsDelay => duration(config.removals_delay),
        Id::OnceTimeout => duration(config.once_timeout),
        Id::BootGuardMax => duration(config.boot_guard_max),
        Id::BootGuard => Value::Boolean(config.boot_guard),
        Id::BootKubeconfig => list(config.boot_kubeconfig.iter().map(|file| file.display().to_string()).collect()),
        Id::NodeLabels => {
            Value::Table(config.node_labels.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))).collect())
        }
        Id::NodeTaints => list(
            config
                .node_taints
                .iter()
                .map(|taint| {
                    if taint.value.is_empty() {
                        format!("{}:{}", taint.key, taint.effect)
                    } else {
                        format!("{}={}:{}", taint.key, taint.value, taint.effect)
                    }
                })
                .collect(),
        ),
        Id::KubeletVersion => optional(config.kubelet_version.clone()),
        Id::PolicyNamespaces => list(config.policy_namespaces.clone()),
        Id::TrustedNamespaces => list(config.policy_rules.trusted_namespaces.clone()),
        Id::PolicyPrivileged => Value::Boolean(config.policy_rules.privileged),
        Id::PolicyHostNamespaces => {
            list(config.policy_rules.host_namespaces.iter().map(|n| n.as_str().to_owned()).collect())
        }
        Id::PolicyHostPaths => list(config.policy_rules.host_paths.clone()),
        Id::PolicyCapabilities => list(config.policy_rules.capabilities.clone()),
        Id::PolicyImages => list(config.policy_rules.images.clone()),
        Id::PodSecurityDefault => Value::String(config.pod_security_default.as_str().to_owned()),
        Id::DefaultNodeSelector => Value::String(config.default_node_selector.clone()),
        Id::InlineSecretEnv => Value::Boolean(config.inline_secret_env),
        Id::PolicyAdmission => word(config.dry_run_admission, "dry-run", "off"),
        Id::PullPolicy => word(config.pull_as_written, "as-written", "if-not-present"),
        Id::RequirePrepull => Value::Boolean(config.require_prepull),
        Id::OnPullFailure => word(config.replace_unpulled, "go-on", "keep"),
        Id::CredentialProviderConfig => {
            optional(config.credential_provider_config.as_ref().map(|path| path.display().to_string()))
        }
        Id::CredentialProviderBinDir => {
            optional(config.credential_provider_bin_dir.as_ref().map(|path| path.display().to_string()))
        }
        Id::CheckpointSeal => {
            Value::String(if config.seal_with.is_some() { "systemd-creds" } else { "none" }.to_owned())
        }
        Id::CheckpointKey => Value::String(config.seal_key.clone()),
        Id::CoordinatorKubeconfig => {
            optional(config.coordinator_kubeconfig.as_ref().map(|path| path.display().to_string()))
        }
        Id::LeaseNamespace => Value::String(config.lease_namespace.clone()),
        Id::LeaseName => Value::String(config.lease_name.clone()),
        Id::ExactRollouts => Value::Boolean(config.exact_rollouts),
        Id::ApproveNodes => Value::Boolean(config.approve_nodes),
        Id::MetricsListen => optional(config.metrics_listen.as_ref().map(ToString::to_string)),
        Id::LogLevel => Value::String(config.log_level.clone()),
        Id::LogTarget => Value::String(
            match config.log_target {
                LogTarget::Auto => "auto",
                LogTarget::Journal => "journal",
                LogTarget::Stderr => "stderr",
            }
            .to_owned(),
        ),
    }
}

fn duration(duration: Duration) -> Value {
    let text = if duration.subsec_millis() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    };
    Value::String(text)
}
