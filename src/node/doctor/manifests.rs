//! The manifests in the kubelet's folder, ours and foreign ones.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::core::doctor::manifests::FoundManifest;
use crate::core::doctor::manifests::ManifestFolderFacts;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::ports;
use crate::core::yaml;
use crate::node::api::words;
use crate::node::doctor::folders;
use crate::node::fsx::Real;
use crate::node::manifests::ManifestDir;
use crate::regular_file;

/// The longest manifest that the kubelet reads.
const MAX_BYTES: u64 = 10 << 20;

pub(super) fn facts(folder: &Path) -> ManifestFolderFacts {
    let (exists, error) = match ManifestDir::open_read_only(&Real::shared(), folder) {
        Ok(found) => (found.is_some(), folders::doubt(folder)),
        Err(error) => (true, Some((words(&error), error.hint()))),
    };
    let mut facts = ManifestFolderFacts {
        path: folder.display().to_string(),
        exists,
        error,
        ours: Vec::new(),
        foreign: Vec::new(),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // The kubelet skips names that start with a dot.
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    for name in names {
        let path = folder.join(&name);
        if path.is_dir() {
            continue;
        }
        match pod(&path) {
            Ok(pod) => {
                let ours = pod["metadata"]["annotations"][OWNER_ANNOTATION].is_string();
                let manifest = manifest(name, &pod);
                if ours { facts.ours.push(manifest) } else { facts.foreign.push(manifest) }
            }
            Err(why) => facts.foreign.push(FoundManifest { file: name, error: Some(why), ..FoundManifest::default() }),
        }
    }
    facts
}

fn pod(path: &Path) -> Result<Value, String> {
    if fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() >= MAX_BYTES) {
        return Err("it is longer than the kubelet accepts".to_owned());
    }
    let bytes = regular_file::read_at_most(path, MAX_BYTES).map_err(|error| crate::config::io_reason(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    match yaml::read_documents(&text).into_iter().next().map(|document| document.value) {
        Some(Ok(value)) if value["kind"] == "Pod" => Ok(value),
        Some(Ok(_)) => Err("its kind is not Pod".to_owned()),
        Some(Err(error)) => Err(format!("line {}: {}", error.line, error.message)),
        None => Err("it is empty".to_owned()),
    }
}

fn manifest(file: String, pod: &Value) -> FoundManifest {
    let metadata = &pod["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let namespace = match text("namespace") {
        empty if empty.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    FoundManifest { file, error: None, namespace, name: text("name"), uid: text("uid"), ports: ports::host_ports(pod) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_by_their_owners() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "ours.yaml",
            &format!("kind: Pod\nmetadata: {{name: a, namespace: n, annotations: {{{OWNER_ANNOTATION}: n/d}}}}"),
        );
        write(
            "etcd.yaml",
            "kind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: x, ports: [{hostPort: 7}]}]}",
        );
        write("note.txt", "hello: [");
        write(".hidden", "x");
        let facts = facts(folder.path());
        assert_eq!(facts.ours.iter().map(|m| m.file.as_str()).collect::<Vec<_>>(), ["ours.yaml"]);
        assert_eq!(facts.foreign.iter().map(|m| m.file.as_str()).collect::<Vec<_>>(), ["etcd.yaml", "note.txt"]);
        let etcd = &facts.foreign[0];
        assert_eq!((etcd.namespace.as_str(), etcd.ports[0].port, etcd.error.as_ref()), ("default", 7, None));
        assert!(facts.foreign[1].error.as_ref().is_some_and(|why| why.starts_with("line 1")), "{facts:?}");
    }
}
