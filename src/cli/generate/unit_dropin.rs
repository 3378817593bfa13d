//! The drop-in that opens the folders of the configuration to the sandbox of a unit.

use std::path::Path;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::config::Config;

/// What the units open by themselves.
const OPEN: [&str; 4] = ["/etc/kubernetes/manifests", "/var/lib/kubelet", "/var/lib/daemonlet", "/run/daemonlet"];

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// For daemonlet-boot-guard.service, which writes into run-dir alone
    #[arg(long)]
    boot_guard: bool,
}

/// The drop-in, or a comment where the unit needs none.
pub(super) fn text(arguments: &Arguments) -> Result<String, CommandFailure> {
    let config = arguments.config.load()?;
    Ok(dropin(&written(&config, arguments.boot_guard), arguments.boot_guard))
}

/// The folders that a unit's program writes to, each with its key.
fn written(config: &Config, boot_guard: bool) -> Vec<(&'static str, &Path)> {
    if boot_guard {
        return vec![("run-dir", &config.run_dir)];
    }
    vec![
        ("manifest-dir", &config.manifest_dir),
        ("kubelet-root", &config.kubelet_root),
        ("state-dir", &config.state_dir),
        ("run-dir", &config.run_dir),
    ]
}

fn dropin(folders: &[(&str, &Path)], boot_guard: bool) -> String {
    let unit = if boot_guard { "daemonlet-boot-guard.service" } else { "daemonlet.service" };
    let closed: Vec<_> = folders.iter().filter(|(_, path)| !OPEN.iter().any(|open| path.starts_with(open))).collect();
    if closed.is_empty() {
        return format!("# {unit} needs no drop-in: it opens the folders of this configuration already.\n");
    }
    let mut text = format!(
        "# Made by `daemonlet generate unit-dropin`, for /etc/systemd/system/{unit}.d/paths.conf:\n\
         # {unit} may write what its configuration names. To be made anew when one of\n\
         # these keys changes; `systemctl daemon-reload` and a restart put it in force.\n\
         # The folders have to exist before the unit starts, as these lines in /etc/tmpfiles.d see to:\n"
    );
    for (key, path) in &closed {
        // The kubelet's folders keep the mode that they have.
        let mode = if matches!(*key, "manifest-dir" | "kubelet-root") { "- - -" } else { "0700 root root" };
        text.push_str(&format!("#   d {} {mode} -\n", quoted(path)));
    }
    text.push_str("[Unit]\n");
    for (_, path) in &closed {
        text.push_str(&format!("RequiresMountsFor={}\n", quoted(path)));
    }
    text.push_str("\n[Service]\n");
    for (key, path) in &closed {
        text.push_str(&format!("# {key}\nReadWritePaths={}\n", quoted(path)));
    }
    text
}

/// A path as a unit file takes it: specifiers and spaces lose their meaning. `$` has one in `Exec…=` lines alone.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string().replace('%', "%%");
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\' | ';');
    if text.chars().all(plain) {
        return text;
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_unit_does_not_open_is_opened() {
        let folders =
            [("manifest-dir", Path::new("/srv/my pods/100%")), ("kubelet-root", Path::new("/var/lib/kubelet"))];
        let text = dropin(&folders, false);
        assert!(text.contains("\n#   d \"/srv/my pods/100%%\" - - - -\n"), "{text}");
        let state = dropin(&[("state-dir", Path::new("/srv/state"))], false);
        assert!(state.contains("\n#   d /srv/state 0700 root root -\n"), "{state}");
        assert!(text.contains("\n[Unit]\nRequiresMountsFor=\"/srv/my pods/100%%\"\n"), "{text}");
        let service = "\n[Service]\n# manifest-dir\nReadWritePaths=\"/srv/my pods/100%%\"\n";
        assert!(text.ends_with(service), "{text}");
        let dollars = dropin(&[("run-dir", Path::new("/srv/a$b")), ("state-dir", Path::new("/srv/a $b"))], false);
        assert!(dollars.contains("\nReadWritePaths=/srv/a$b\n"), "{dollars}");
        assert!(dollars.contains("\nReadWritePaths=\"/srv/a $b\"\n"), "{dollars}");
    }

    #[test]
    fn a_configuration_of_defaults_needs_none() {
        let text = dropin(&[("manifest-dir", Path::new("/etc/kubernetes/manifests"))], false);
        assert!(text.starts_with("# daemonlet.service needs no drop-in"), "{text}");
        let text = dropin(&[("run-dir", Path::new("/run/other"))], true);
        assert!(
            text.contains("daemonlet-boot-guard.service.d") && text.contains("ReadWritePaths=/run/other\n"),
            "{text}"
        );
    }
}
