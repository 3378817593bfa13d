//! Materialised volumes, file by file against what the kubelet's own plugins write for the same pod.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use daemonlet::core::input;
use daemonlet::core::model::DaemonSet;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::TokenRequest;
use daemonlet::core::render::Endpoint;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::Rendered;
use daemonlet::core::rendering::Revision;
use daemonlet::core::volume::VolumeData;
use daemonlet::node::fsx::Real;
use daemonlet::node::volumes::Volumes;
use daemonlet::node::volumes::VolumesRoot;
use serde_json::Value;
use serde_json::json;

use crate::oracle;

const NODE: &str = "node-1";

/// What the Go program answers to a TokenRequest.
fn token(request: &TokenRequest) -> String {
    format!("token {} {} {}", request.service_account, request.audience, request.expiration_seconds)
}

fn options() -> RenderOptions {
    RenderOptions {
        node_name: NODE.to_owned(),
        kubelet_version: Some((1, 36)),
        api_endpoint: Some(Endpoint { host: "10.0.0.1".to_owned(), port: 6443 }),
        has_api: true,
        inline_secret_env: false,
        pulls: Default::default(),
        token_expiration: daemonlet::core::time::Span::from_secs(3607),
        rules: daemonlet::core::policy::PodRules::trusting(),
        topology: Default::default(),
    }
}

/// The rendered pod with every token that it asks for.
fn render(daemon_set: &Arc<DaemonSet>, objects: &ObjectMap) -> Rendered {
    let render = |tokens: &BTreeMap<TokenRequest, String>| {
        let revision = Revision::of(daemon_set);
        rendering::render(daemon_set, &revision, 0, objects, tokens, &options()).result.expect("it is rendered")
    };
    let asked = render(&BTreeMap::new()).pod.tokens;
    render(&asked.into_iter().map(|request| (request.clone(), token(&request))).collect())
}

/// The pod that an API server would have given to the kubelet: the template, and the default token volume.
fn api_pod(daemon_set: &DaemonSet, rendered: &Value) -> Value {
    let mut spec = daemon_set.template["spec"].clone();
    if spec["serviceAccountName"].is_null() {
        spec["serviceAccountName"] = json!("default");
    }
    if spec["volumes"].is_null() {
        spec["volumes"] = json!([]);
    }
    let volumes = rendered["spec"]["volumes"].as_array().into_iter().flatten();
    if volumes.into_iter().any(|volume| volume["name"] == "kube-api-access") {
        let token = json!({"name": "kube-api-access", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}});
        spec["volumes"].as_array_mut().expect("a list").push(token);
    }
    let mut metadata = rendered["metadata"].clone();
    // As the kubelet's file source completes a static pod.
    metadata["name"] = json!(format!("{}-{NODE}", metadata["name"].as_str().expect("a name")));
    metadata["annotations"]["kubernetes.io/config.hash"] = metadata["uid"].clone();
    metadata["annotations"]["kubernetes.io/config.source"] = json!("file");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Every entry of a volume: relative path (the version's folder as `..version`) to what it is.
fn listing(volume: &Path) -> BTreeMap<String, String> {
    let mut listed = BTreeMap::new();
    let mut pending = vec![volume.to_owned()];
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let what = if found.is_dir() {
            pending.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            "folder".to_owned()
        } else if found.is_symlink() {
            format!("link to {}", unversioned(&fs::read_link(&path).expect("a link")))
        } else {
            format!("file {:?}", String::from_utf8_lossy(&fs::read(&path).expect("a file")))
        };
        let name = unversioned(path.strip_prefix(volume).expect("it is below"));
        listed.insert(name, format!("{:04o} {}:{} {what}", found.mode() & 0o7777, found.uid(), found.gid()));
    }
    listed
}

/// `path` without the time and the number in the name of a version's folder.
fn unversioned(path: &Path) -> String {
    let part = |part: &std::ffi::OsStr| match part.to_str() {
        Some(name) if name.starts_with("..2") => "..version".to_owned(),
        Some(name) => name.to_owned(),
        None => format!("{:?}", part.as_bytes()),
    };
    path.iter().map(part).collect::<Vec<_>>().join("/")
}

/// Every volume that was materialised; what the kubelet sets up itself is left to it.
fn compare(name: &str, ours: &Path, volumes: &[VolumeData], theirs: &BTreeMap<String, PathBuf>) {
    for volume in volumes {
        // Env files are our own invention: no plugin writes them.
        let Some(folder) = theirs.get(&volume.name) else { continue };
        let at = format!("{name}: volume {}", volume.name);
        let (mut ours, theirs) = (listing(&ours.join(&volume.name)), listing(folder));
        for nested in &volume.nested_mount_points {
            ours.remove(nested);
        }
        let keys = |listing: &BTreeMap<String, String>| listing.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&ours), keys(&theirs), "{at}");
        for (path, what) in &theirs {
            assert_eq!(&ours[path], what, "{at}: {path:?} (left: ours, right: the kubelet's)");
        }
    }
}

#[test]
fn volumes_are_as_the_kubelet_writes_them() {
    let Some(program) = oracle::program("volumes") else { return };
    if !nix::unistd::geteuid().is_root() {
        println!("not root: owners cannot be given, skipped");
        return;
    }
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/volumes");
    let mut compared = 0;
    for case in fs::read_dir(&cases).expect("a folder") {
        let path = case.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let parsed = input::parse_file(&path, &fs::read_to_string(&path).expect("text"));
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
        let objects = ObjectMap { objects: parsed.objects.into_iter().collect(), complete: true };
        for daemon_set in parsed.daemon_sets.into_iter().map(Arc::new) {
            let name = format!("{name}: {}", daemon_set.key);
            let rendered = render(&daemon_set, &objects);
            assert!(rendered.pod.waiting_for.is_empty(), "{name}: {:?}", rendered.pod.waiting_for);
            let out = tempfile::tempdir().expect("a folder");
            let uid = rendered.pod.pod["metadata"]["uid"].as_str().expect("a UID");
            Volumes::new(Real::shared(), VolumesRoot::plain(out.path()))
                .write(uid, &rendered.pod.volumes)
                .expect("it is written");

            let pod = api_pod(&daemon_set, &rendered.pod.pod);
            let documents: Vec<String> =
                std::iter::once(&pod).chain(objects.objects.values()).map(Value::to_string).collect();
            let file = out.path().join("pod.yaml");
            fs::write(&file, documents.join("\n---\n")).expect("it is written");
            let output = oracle::run(Command::new(&program).arg(&file).arg(out.path().join("kubelet")), Vec::new());
            assert!(output.status.success(), "{name}: {}", oracle::text(&output.stderr));
            let theirs: BTreeMap<String, PathBuf> = serde_json::from_slice(&output.stdout).expect("JSON");
            compare(&name, &out.path().join("volumes").join(uid), &rendered.pod.volumes, &theirs);
            compared += rendered.pod.volumes.len();
        }
    }
    println!("{compared} volumes compared");
    assert!(compared > 0);
}
