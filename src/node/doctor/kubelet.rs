//! The kubelet's process and its configuration file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::config::Config;
use crate::config::Host;
use crate::config::RealHost;
use crate::core::doctor::kubelet::KubeletConfigFile;
use crate::core::doctor::kubelet::KubeletFacts;
use crate::core::doctor::kubelet::flag;
use crate::core::json::Json;
use crate::core::yaml;
use crate::node::doctor::definitions;

/// The process's name in the kernel.
const NAME: &str = "kubelet";

/// What can be found out; `version`: from the Node or the configuration.
pub(super) fn facts(config: &Config, version: Option<String>) -> KubeletFacts {
    let processes = processes();
    let configured = config.kubelet_config.as_path();
    let (path, file) = match processes.as_slice() {
        [one] => match (flag(one, "config"), flag(one, "config-dir").map(Path::new)) {
            (None, None) => (configured, KubeletConfigFile::Unused),
            (path, drop_ins) => {
                let path = path.map_or(configured, Path::new);
                (path, file(path, drop_ins))
            }
        },
        _ => (configured, file(configured, None)),
    };
    let path = path.display().to_string();
    let runtime = config.runtime_endpoint.as_ref();
    let mut facts = KubeletFacts {
        configured: configured.display().to_string(),
        path,
        file,
        manifest_dir: real(&config.manifest_dir),
        kubelet_root: real(&config.kubelet_root),
        runtime: runtime.map(|socket| format!("unix://{}", socket.display())).unwrap_or_default(),
        node_name: config.node_name.clone(),
        host_name: RealHost.host_name().unwrap_or_default().trim().to_lowercase(),
        version,
        resolved: BTreeMap::new(),
        processes,
    };
    facts.resolved = resolved(&facts);
    facts
}

/// Resolves the paths to be compared.
fn resolved(facts: &KubeletFacts) -> BTreeMap<String, String> {
    let flags = ["config", "pod-manifest-path", "root-dir", "container-runtime-endpoint"];
    let of_process = facts.processes.iter().flat_map(|command| flags.iter().filter_map(|name| flag(command, name)));
    let of_file = match &facts.file {
        KubeletConfigFile::Read { content, .. } => {
            ["staticPodPath", "containerRuntimeEndpoint"].iter().filter_map(|name| content.text_at(*name)).collect()
        }
        _ => Vec::new(),
    };
    let default = "/var/lib/kubelet";
    let paths = of_process.chain(of_file).chain([
        facts.path.as_str(),
        facts.configured.as_str(),
        facts.runtime.as_str(),
        default,
    ]);
    paths
        .map(|path| path.strip_prefix("unix://").unwrap_or(path))
        .map(|path| (path.to_owned(), real(Path::new(path))))
        .collect()
}

/// The path with links resolved; unchanged if it does not exist.
fn real(path: &Path) -> String {
    let plain = || path.components().collect();
    fs::canonicalize(path).unwrap_or_else(|_| plain()).display().to_string()
}

/// The command lines of all visible kubelets.
fn processes() -> Vec<Vec<String>> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<(u32, Vec<String>)> = folders
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok().filter(|_| name.trim() == NAME)?;
            let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
            let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            (!words.is_empty()).then_some((pid, words))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, words)| words).collect()
}

/// The configuration file with its drop-ins applied in the order of their names (`mergeKubeletConfigurations`).
fn file(path: &Path, drop_ins: Option<&Path>) -> KubeletConfigFile {
    let unreadable = |path: &Path, why: String| KubeletConfigFile::Unreadable(format!("{}: {why}", path.display()));
    let mut content = match document(path) {
        Ok(content) => content,
        Err(MissingDocument::Missing) => return KubeletConfigFile::Missing,
        Err(MissingDocument::Other(why)) => return KubeletConfigFile::Unreadable(why),
    };
    let name = |path: &Path| path.display().to_string();
    let mut parts = vec![(name(path), content.clone())];
    let entries = drop_ins.into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "conf"));
    files.sort();
    let all = [path].into_iter().chain(drop_ins).map(Path::to_owned).chain(files.iter().cloned());
    let open = definitions::open_of(all);
    for file in files {
        match document(&file) {
            Ok(more) => {
                parts.push((name(&file), more.clone()));
                merge(&mut content, more);
            }
            Err(MissingDocument::Missing) => {}
            Err(MissingDocument::Other(why)) => return unreadable(&file, why),
        }
    }
    KubeletConfigFile::Read { content, parts, open }
}

/// Why a document is missing.
enum MissingDocument {
    Missing,
    Other(String),
}

fn document(path: &Path) -> Result<Value, MissingDocument> {
    let text = crate::regular_file::read_text(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MissingDocument::Missing,
        _ => MissingDocument::Other(crate::config::io_reason(&error)),
    })?;
    match yaml::read_documents(&text).into_iter().next().map(|document| document.value) {
        Some(Ok(value)) if value["kind"] == "KubeletConfiguration" => Ok(value),
        Some(Ok(_)) => Err(MissingDocument::Other("its kind is not KubeletConfiguration".to_owned())),
        Some(Err(error)) => Err(MissingDocument::Other(format!("line {}: {}", error.line, error.message))),
        None => Err(MissingDocument::Other("it is empty".to_owned())),
    }
}

fn merge(content: &mut Value, more: Value) {
    match (content, more) {
        (Value::Object(content), Value::Object(more)) => {
            for (key, value) in more {
                merge(content.entry(key).or_insert(Value::Null), value);
            }
        }
        (content, more) => *content = more,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn drop_ins_are_merged_by_name_and_trouble_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write =
            |name: &str, text: &str| fs::write(path(name), format!("kind: KubeletConfiguration\n{text}")).unwrap();
        assert_eq!(file(&path("config.yaml"), None), KubeletConfigFile::Missing);
        write("config.yaml", "staticPodPath: /a\nfeatureGates: {A: true}\n");
        fs::create_dir(path("d")).unwrap();
        write("d/20.conf", "staticPodPath: /c\nfeatureGates: {EnvFiles: false}\n");
        write("d/10.conf", "staticPodPath: /b\n");
        write("d/30.yaml", "staticPodPath: /d\n");
        fs::set_permissions(path("d/10.conf"), fs::Permissions::from_mode(0o666)).unwrap();
        let read = file(&path("config.yaml"), Some(&path("d")));
        let KubeletConfigFile::Read { content, parts, open } = read else { panic!("not read") };
        fs::set_permissions(path(""), fs::Permissions::from_mode(0o777)).unwrap();
        let KubeletConfigFile::Read { open: above, .. } = file(&path("config.yaml"), None) else { panic!("not read") };
        assert_eq!(above, [folder.path().display().to_string()], "it could be another one");
        assert_eq!(content["staticPodPath"], "/c");
        assert_eq!(open, [path("d/10.conf").display().to_string()]);
        let names: Vec<_> = parts.iter().map(|(name, _)| name.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["config.yaml", "10.conf", "20.conf"], "the last one takes precedence");
        assert_eq!(content["featureGates"], serde_json::json!({"A": true, "EnvFiles": false}));
        fs::write(path("d/40.conf"), "a: [").unwrap();
        let KubeletConfigFile::Unreadable(why) = file(&path("config.yaml"), Some(&path("d"))) else {
            panic!("it was read")
        };
        assert!(why.contains("40.conf: line 1"), "{why}");
    }
}
