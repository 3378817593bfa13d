//! A kubeconfig on disk.
//!
//! Owns the conversion to kube's types: YAML as kubectl reads it, with relative paths resolved. kube's own reader
//! would add a second YAML parser to the binary for this alone.

use std::io;
use std::path::Path;

use kube::config::Kubeconfig;

use crate::core::yaml;
use crate::regular_file;

/// Why a file is not a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not YAML.
    #[error("line {line}, column {column}: {message}")]
    Yaml {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// A field has the wrong type, or is missing. Never contains the value, which may be a credential.
    #[error("{0}")]
    Field(String),
    /// Its documents cannot be merged.
    #[error("{0}")]
    Merge(#[from] kube::config::KubeconfigError),
}

/// Reads a kubeconfig; relative paths are resolved from its folder.
///
/// # Errors
/// Why the file is not a kubeconfig.
pub(crate) fn read(path: &Path) -> Result<Kubeconfig, FileError> {
    let mut config = parse(&text(regular_file::read(path)?)?)?;
    if let Some(folder) = path.parent() {
        for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            resolve(folder, &mut cluster.certificate_authority);
        }
        for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            resolve(folder, &mut user.client_certificate);
            resolve(folder, &mut user.client_key);
            resolve(folder, &mut user.token_file);
            // A bare name is looked up in PATH.
            if let Some(exec) = user.exec.as_mut().filter(|e| e.command.as_ref().is_some_and(|c| c.contains('/'))) {
                resolve(folder, &mut exec.command);
            }
        }
    }
    Ok(config)
}

/// Parses a text, several documents merged; an empty text gives an empty kubeconfig.
pub(crate) fn parse(text: &str) -> Result<Kubeconfig, FileError> {
    let mut merged: Option<Kubeconfig> = None;
    for document in yaml::read_documents(text) {
        let value = document.value.map_err(|error| FileError::Yaml {
            line: error.line,
            column: error.column,
            message: error.message,
        })?;
        if !value.is_object() && !value.is_null() {
            return Err(FileError::Field("it has no fields: is this a kubeconfig?".to_owned()));
        }
        let config = serde_json::from_value(value).map_err(|error| FileError::Field(without_value(&error)))?;
        merged = Some(match merged {
            Some(merged) => merged.merge(config)?,
            None => config,
        });
    }
    Ok(merged.unwrap_or_default())
}

/// What is wrong with a field, without the value that serde's text contains.
fn without_value(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => {
            format!("a value has the wrong type: expected {expected}; quote text that looks like a number")
        }
        None if text.starts_with("missing field") => text,
        None => "a field is not valid in a kubeconfig".to_owned(),
    }
}

fn resolve(folder: &Path, named: &mut Option<String>) {
    let relative = named.as_deref().filter(|file| Path::new(file).is_relative());
    if let Some(path) = relative.and_then(|file| folder.join(file).into_os_string().into_string().ok()) {
        *named = Some(path);
    }
}

/// The text of a file: UTF-8, or UTF-16 with a byte order mark.
fn text(bytes: Vec<u8>) -> io::Result<String> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks(2).map(|pair| unit([pair[0], pair.get(1).copied().unwrap_or_default()]));
        char::decode_utf16(units).collect::<Result<String, _>>().ok()
    };
    let text = match bytes.as_slice() {
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, text @ ..] => str::from_utf8(text).ok().map(str::to_owned),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;

    const WHOLE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\npreferences: {}\n\
        clusters:\n- name: k\n  cluster:\n    server: https://a:6443\n    certificate-authority: pki/ca.crt\n    \
        extensions: [{name: x, extension: {last-update: now}}]\n\
        users:\n- name: u\n  user:\n    tokenFile: /abs/token\n    client-key: key\n    token: |\n      \"abc\n    \
        exec: {apiVersion: v1, command: ./get, args: [a], env: [{name: NAME, value: V}]}\n\
        contexts: [{name: c, context: {cluster: k, user: u, namespace: ns}}]\n";

    fn error_of(text: &str) -> String {
        parse(text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn all_of_a_kubeconfig_is_read_and_its_paths_are_from_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        fs::write(&path, WHOLE).unwrap();
        let config = read(&path).unwrap();
        let from = |file: &str| Some(folder.path().join(file).display().to_string());
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority, from("pki/ca.crt"));
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!((user.token_file.as_deref(), &user.client_key), (Some("/abs/token"), &from("key")));
        assert_eq!(user.token.as_ref().unwrap().expose_secret(), "\"abc\n");
        assert_eq!(user.exec.as_ref().unwrap().command, from("./get"));
        assert_eq!(config.contexts[0].context.as_ref().unwrap().namespace.as_deref(), Some("ns"));
    }

    #[test]
    fn what_is_null_or_missing_is_empty_and_documents_are_merged() {
        assert!(parse("").unwrap().clusters.is_empty());
        assert!(parse("clusters: null\nusers:\ncontexts: null\n").unwrap().auth_infos.is_empty());
        let merged = parse("current-context: a\n---\ncurrent-context: b\nclusters: [{name: k}]\n").unwrap();
        assert_eq!((merged.current_context.as_deref(), merged.clusters.len()), (Some("a"), 1));
        assert!(!error_of("kind: Config\n---\nkind: Other\n").is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(error_of("nonsense\n"), "it has no fields: is this a kubeconfig?");
        assert!(error_of("a: [\n").starts_with("line 1, column 4: unclosed"), "{}", error_of("a: [\n"));
        assert!(error_of("clusters: 1\n").contains("expected a sequence"), "{}", error_of("clusters: 1\n"));
    }

    #[test]
    fn a_mark_of_its_encoding_is_no_part_of_the_text() {
        let wide = |unit: fn(u16) -> [u8; 2]| "\u{feff}kind: Ä".encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        for bytes in [wide(u16::to_le_bytes), wide(u16::to_be_bytes), "\u{feff}kind: Ä".as_bytes().to_vec()] {
            assert_eq!(text(bytes).unwrap(), "kind: Ä");
        }
        assert!(text(vec![0xC3, 0x28]).is_err());
    }

    #[test]
    fn a_credential_of_the_wrong_type_is_not_shown() {
        let failure = |text: &str| parse(text).unwrap_err().to_string();
        let number = failure("users: [{name: u, user: {token: 12345678}}]");
        assert!(number.contains("expected") && !number.contains("12345678"), "{number}");
        let text = failure("users: [{name: u, user: {exec: {command: a, args: hush, apiVersion: x}}}]");
        assert!(!text.contains("hush"), "{text}");
        assert!(failure("users: [{user: {}}]").contains("missing field"), "what is missing is named");
    }
}
