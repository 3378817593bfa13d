//! Golden cases: `tests/golden/render/<case>/in.yaml` gives `out.yaml`, byte for byte.
//!
//! `in.yaml` holds one DaemonSet, the objects that exist, and a document `kind: Case` with options and
//! tokens. `UPDATE_GOLDEN=1 cargo test golden` records anew, and fails to say so.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::json;

use crate::core::convert;
use crate::core::convert::DocumentObject;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::TokenRequest;
use crate::core::render::Endpoint;
use crate::core::render::Refused;
use crate::core::render::RenderedPod;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::waiting;
use crate::core::validate;
use crate::core::volume::VolumeData;
use crate::core::yaml;

/// Reads a case into a fixture.
fn read(text: &str) -> Fixture {
    let mut fixture = Fixture::new(Value::Null);
    for document in yaml::read_documents(text) {
        let value = document.value.unwrap();
        if value["kind"] == "Case" {
            apply(&mut fixture, &value);
            continue;
        }
        for object in convert::objects(value) {
            match object.unwrap() {
                DocumentObject::DaemonSet { object: value, .. } => {
                    let source = fixture.daemon_set.source.clone();
                    fixture.daemon_set = validate::daemon_set(&value, source).unwrap();
                }
                DocumentObject::Other(reference, value) => {
                    fixture.objects.objects.insert(reference, value);
                }
                DocumentObject::Ignored { kind, key } => panic!("{kind} {key} is of no use here"),
            }
        }
    }
    fixture
}

/// Options of a case; what it does not say is as [`Fixture::new`] has it.
fn apply(fixture: &mut Fixture, case: &Value) {
    if case["source"] == "file" {
        fixture.in_folder();
    }
    if case["objects"] == "none" {
        fixture.objects.objects.clear();
        fixture.tokens.clear();
    }
    let options = &mut fixture.options;
    let flag = |name: &str, value: bool| case[name].as_bool().unwrap_or(value);
    fixture.objects.complete = flag("complete", true);
    options.has_api = flag("hasApi", true);
    options.inline_secret_env = flag("inlineSecretEnv", false);
    if let Some(version) = case["kubeletVersion"].as_str() {
        options.kubelet_version = version.split_once('.').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
    }
    if let Some(endpoint) = case["apiEndpoint"].as_str() {
        let split = endpoint.rsplit_once(':');
        options.api_endpoint =
            split.map(|(host, port)| Endpoint { host: host.to_owned(), port: port.parse().unwrap() });
    }
    let namespace = case["namespace"].as_str().unwrap_or("kube-system");
    for token in case["tokens"].as_array().into_iter().flatten() {
        let text = |name: &str| token[name].as_str().unwrap_or_default();
        let seconds = token["expirationSeconds"].as_i64().unwrap_or(3607);
        let request = TokenRequest {
            service_account: ObjectKey::new(namespace, text("serviceAccount")),
            audience: text("audience").to_owned(),
            expiration_seconds: seconds,
        };
        fixture.tokens.insert(request, text("token").to_owned());
    }
}

/// Everything that a rendering says, as YAML documents.
fn write(result: &Result<RenderedPod, Refused>) -> String {
    let errors = |errors: &[FieldError]| -> Vec<Value> {
        errors.iter().map(|e| json!({"field": e.field, "reason": e.reason, "hint": e.hint})).collect()
    };
    let pod = match result {
        Ok(pod) => pod,
        Err(refused) => return yaml::write(&json!({"refused": errors(&refused.errors)})),
    };
    let rest = json!({
        "volumes": pod.volumes.iter().map(volume).collect::<Vec<_>>(),
        "waitingFor": waiting(pod),
        "notes": errors(&pod.notes),
        "references": pod.references.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "tokens": pod.tokens.iter().map(|t| {
            format!("{} audience {:?} for {} s", t.service_account, t.audience, t.expiration_seconds)
        }).collect::<Vec<_>>(),
        "dataVersion": pod.data_version,
    });
    format!("{}---\n{}", yaml::write(&pod.pod), yaml::write(&rest))
}

fn volume(volume: &VolumeData) -> Value {
    let files: serde_json::Map<_, _> = volume
        .files
        .iter()
        .map(|(path, file)| {
            let data = String::from_utf8_lossy(&file.data);
            (path.clone(), json!({"mode": format!("{:04o}", file.mode), "uid": file.uid, "data": data}))
        })
        .collect();
    let nested = &volume.nested_mount_points;
    json!({"name": volume.name, "fsGroup": volume.fs_group, "nestedMountPoints": nested, "files": files})
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/render");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn golden_cases_render_as_recorded() {
    let record = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut failed = Vec::new();
    for case in cases() {
        let text = fs::read_to_string(case.join("in.yaml")).unwrap();
        let fixture = read(&text);
        let written = write(&fixture.render());
        assert_eq!(write(&fixture.render()), written, "{}: not the same bytes twice", case.display());
        let expected = fs::read_to_string(case.join("out.yaml")).unwrap_or_default();
        if record {
            fs::write(case.join("out.yaml"), &written).unwrap();
        }
        if written != expected {
            failed.push(format!("--- {}\n{written}", case.display()));
        }
    }
    assert!(!record, "recorded; look at the difference and run again without UPDATE_GOLDEN");
    assert!(failed.is_empty(), "not as recorded:\n{}", failed.join("\n"));
}
