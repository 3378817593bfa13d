//! The user's kubeconfig, found and merged as kubectl does.
//!
//! Owns files, contexts and credential plugins (`client.authentication.k8s.io`), which a person may have
//! and an agent not. Must not connect.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use kube::config::AuthInfo;
use kube::config::ExecConfig;
use kube::config::Kubeconfig;
use secrecy::SecretString;
use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::core::json::Json;
use crate::node::api;
use crate::node::api::read_kubeconfig;

/// What to do about a kubeconfig that cannot be used.
pub(super) const ANOTHER: &str = "correct it, or name another with --kubeconfig FILE or --context NAME";

fn failure(message: String) -> CommandFailure {
    CommandFailure::new(Exit::Unreadable, message)
}

/// The kubeconfig to use, with `context` in force and a credential plugin's answer in place of it; before it the files
/// that it is made of.
pub(super) fn kubeconfig(file: Option<&Path>, context: Option<&str>) -> Result<(PathBuf, Kubeconfig), CommandFailure> {
    let (path, mut config) = match file {
        Some(file) => (file.to_path_buf(), read(file)?),
        None => merged(&paths())?,
    };
    if let Some(context) = context {
        if !config.contexts.iter().any(|named| named.name == context) {
            let names: Vec<&str> = config.contexts.iter().map(|named| named.name.as_str()).collect();
            let hint = format!("there are: {}", names.join(", "));
            return Err(failure(format!("kubeconfig {} has no context {context}", path.display())).hint(hint));
        }
        config.current_context = Some(context.to_owned());
    }
    let current = config.current_context.clone().unwrap_or_default();
    let context = config.contexts.iter().find(|named| named.name == current).and_then(|named| named.context.as_ref());
    let user = context.and_then(|context| context.user.clone()).unwrap_or_default();
    let named = config.auth_infos.iter_mut().find(|named| named.name == user);
    if let Some(user) = named.and_then(|named| named.auth_info.as_mut())
        && let Some(exec) = user.exec.take()
    {
        take(user, &ask(&exec)?);
    }
    Ok((path, config))
}

/// `$KUBECONFIG`, else `~/.kube/config`.
fn paths() -> Vec<PathBuf> {
    let variable = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let paths: Vec<PathBuf> = std::env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty()).collect();
    match std::env::home_dir() {
        Some(home) if paths.is_empty() => vec![home.join(".kube/config")],
        _ => paths,
    }
}

/// Files that are not there are left out, as kubectl does; one must be.
fn merged(paths: &[PathBuf]) -> Result<(PathBuf, Kubeconfig), CommandFailure> {
    let mut config: Option<Kubeconfig> = None;
    let mut files = Vec::new();
    for path in paths.iter().filter(|path| path.exists()) {
        let next = read(path)?;
        files.push(path.as_os_str());
        config = Some(match config {
            None => next,
            Some(config) => config.merge(next).map_err(|error| failure(format!("{}: {error}", path.display())))?,
        });
    }
    config.map(|config| (PathBuf::from(files.join(OsStr::new(":"))), config)).ok_or_else(|| {
        let tried: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        failure(format!("there is no kubeconfig ({})", tried.join(", ")))
            .hint("set KUBECONFIG, or say --kubeconfig FILE")
    })
}

fn read(path: &Path) -> Result<Kubeconfig, CommandFailure> {
    read_kubeconfig(path).map_err(|error| failure(api::words(&error)).hint(ANOTHER))
}

/// Runs a credential plugin; gives the `status` of its ExecCredential.
fn ask(exec: &ExecConfig) -> Result<Value, CommandFailure> {
    let program = exec.command.clone().unwrap_or_default();
    let version = exec.api_version.clone().unwrap_or_else(|| "client.authentication.k8s.io/v1".to_owned());
    let info = json!({"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": false}});
    let mut command = Command::new(&program);
    command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info.to_string()).stdin(Stdio::null());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "not found".to_owned(),
            _ => error.to_string(),
        };
        let failed = failure(format!("credential plugin {program}: {why}"));
        match &exec.install_hint {
            Some(hint) => failed.hint(hint.clone()),
            None => failed.hint(ANOTHER),
        }
    })?;
    if !output.status.success() {
        return Err(failure(format!("credential plugin {program}: {}", output.status)).hint(ANOTHER));
    }
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| failure(format!("credential plugin {program}: its answer is no ExecCredential: {error}")))?;
    match answer.get("status") {
        Some(status) if answer["kind"] == "ExecCredential" => Ok(status.clone()),
        _ => Err(failure(format!("credential plugin {program}: its answer is no ExecCredential with a status"))),
    }
}

/// Puts a credential plugin's answer in its place in a kubeconfig.
fn take(user: &mut AuthInfo, status: &Value) {
    use base64::Engine;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    if let Some(token) = status.text_at("token") {
        user.token = Some(SecretString::from(token.to_owned()));
    }
    if let (Some(certificate), Some(key)) = (status.text_at("clientCertificateData"), status.text_at("clientKeyData")) {
        user.client_certificate_data = Some(encoded(certificate));
        user.client_key_data = Some(SecretString::from(encoded(key)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;

    fn config(context: &str, user: &str) -> String {
        format!(
            "current-context: {context}\ncontexts:\n- name: {context}\n  context: {{cluster: c, user: {context}}}\n\
             users:\n- name: {context}\n  user: {user}\n"
        )
    }

    #[test]
    fn files_are_merged_and_missing_ones_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, none] = ["one", "two", "none"].map(|name| folder.path().join(name));
        fs::write(&one, config("a", "{token: t}")).unwrap();
        fs::write(&two, config("b", "{token: u}")).unwrap();
        let (files, found) = merged(&[none.clone(), one.clone(), two.clone()]).unwrap();
        assert_eq!(files.display().to_string(), format!("{}:{}", one.display(), two.display()));
        assert_eq!((found.current_context.as_deref(), found.contexts.len()), (Some("a"), 2));
        let error = merged(&[none]).unwrap_err().errors.remove(0);
        assert!(error.0.starts_with("there is no kubeconfig (") && error.1.is_some(), "{error:?}");
        let error = kubeconfig(Some(&one), Some("z")).unwrap_err().errors.remove(0);
        let expected = format!("kubeconfig {} has no context z", one.display());
        assert_eq!(error, (expected, Some("there are: a".to_owned())));
    }

    #[test]
    fn a_credential_plugin_is_asked_and_its_failure_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let exec = |script: &str| {
            let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
                "args": ["-c", script], "env": [{"name": "WHO", "value": "me"}]}});
            fs::write(&file, config("a", &user.to_string())).unwrap();
            kubeconfig(Some(&file), None)
        };
        let answer = r#"test -n "$KUBERNETES_EXEC_INFO" && echo '{"kind":"ExecCredential","status":{"token":"'$WHO'","clientCertificateData":"C","clientKeyData":"K"}}'"#;
        let (_, found) = exec(answer).unwrap();
        let user = found.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.token.as_ref().unwrap().expose_secret(), "me");
        assert_eq!(user.client_certificate_data.as_deref(), Some("Qw=="));
        assert!(user.exec.is_none());
        for (script, why) in
            [("exit 3", "exit status: 3"), ("echo x", "no ExecCredential"), ("echo '{}'", "no ExecCredential")]
        {
            let error = exec(script).unwrap_err().errors.remove(0).0;
            assert!(error.starts_with("credential plugin sh: ") && error.contains(why), "{error}");
        }
    }
}
