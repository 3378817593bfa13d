//! Mutated DaemonSets, judged by ours, by the API server's code and by the kubelet's file source.
//!
//! What ours renders, both take; what ours refuses, one of them refuses too. `DAEMONLET_TEMPLATES` says how many are
//! judged, `DAEMONLET_TEMPLATES_SEED` which.

mod mutation;
mod values;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::Source;
use daemonlet::core::render::Endpoint;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::Revision;
use daemonlet::core::validate;
use daemonlet::core::yaml;
use serde_json::Value;
use serde_json::json;

use crate::oracle;
use mutation::Mutator;

/// So many are judged for each version unless the environment says so; with `DAEMONLET_LONG` ten times as many.
const CASES: usize = 2_000;
/// The versions of Kubernetes that are asked, with their feature gates as by default.
pub(crate) const VERSIONS: [(u32, u32); 3] = [NEWEST, (1, 35), (1, 34)];
const NEWEST: (u32, u32) = (1, 36);
/// So many kinds of mutation are to be among them: an operation on a field, whatever the value.
const KINDS: usize = 300;

/// One mutated DaemonSet and what ours says of it.
struct Case {
    /// The document's name and the mutations made to it.
    description: String,
    value: Value,
    ours: Ours,
}

/// Our judgement.
enum Ours {
    /// The manifest and its pod's UID.
    Rendered {
        text: String,
        uid: String,
    },
    Refused(Vec<String>),
}

pub(crate) fn options(version: (u32, u32)) -> RenderOptions {
    RenderOptions {
        node_name: "node-1".to_owned(),
        kubelet_version: Some(version),
        api_endpoint: Some(Endpoint { host: "10.0.0.1".to_owned(), port: 6443 }),
        has_api: true,
        inline_secret_env: false,
        pulls: Default::default(),
        token_expiration: daemonlet::core::time::Span::from_secs(3607),
        rules: daemonlet::core::policy::PodRules::trusting(),
        topology: Default::default(),
    }
}

/// As of a folder: what an API server's gates drop, ours drops there.
fn judge(value: &Value, version: (u32, u32)) -> Ours {
    let refused =
        |errors: &[daemonlet::core::model::FieldError]| Ours::Refused(errors.iter().map(ToString::to_string).collect());
    let daemon_set = match validate::daemon_set(value, Source::File { path: "templates.yaml".into() }) {
        Ok(daemon_set) => Arc::new(daemon_set),
        Err(errors) => return refused(&errors),
    };
    let revision = Revision::of(&daemon_set);
    let rendering =
        rendering::render(&daemon_set, &revision, 0, &ObjectMap::default(), &BTreeMap::new(), &options(version));
    match rendering.result {
        Ok(rendered) => Ours::Rendered { text: rendered.text, uid: rendering.identity.uid },
        Err(error) => refused(&error.errors),
    }
}

/// The documents that are mutated: our own, which have every field, and the published ones where they are.
fn documents() -> Vec<(String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = root.join("../shared/corpus");
    let mut files = crate::corpus::manifests(&root.join("tests/golden/templates"), &[]);
    let own = files.len();
    if corpus.is_dir() {
        files.extend(crate::corpus::manifests(&corpus, &["companions", "templated-not-plain"]));
    } else {
        println!("templates: no published manifests at {}: only our own are mutated", corpus.display());
    }
    let mut found = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let documents = yaml::read_documents(&fs::read_to_string(file).expect("text"));
        for value in documents.into_iter().filter_map(|document| document.value.ok()) {
            let is_one = value["kind"] == "DaemonSet" && value["apiVersion"] == "apps/v1";
            if is_one && matches!(judge(&value, NEWEST), Ours::Rendered { .. }) {
                found.push((name.clone(), value));
            } else {
                assert!(index >= own, "{name} is not taken by ours as it is");
            }
        }
    }
    found
}

/// What the API server's code says: its errors, and a pod to ask the kubelet about.
fn ask_api(program: &Path, version: &str, cases: &[Case]) -> Vec<(Vec<String>, Option<Value>)> {
    let lines: String = cases.iter().map(|case| format!("{}\n", case.value)).collect();
    let output = oracle::run(Command::new(program).args(["-version", version]), lines.into_bytes());
    assert!(output.status.success(), "{}", oracle::text(&output.stderr));
    let read = |line: &str| {
        let mut said: Value = serde_json::from_str(line).expect("JSON");
        let errors = said["errors"].as_array().expect("a list").iter().map(|e| e.as_str().expect("text").to_owned());
        (errors.collect(), said.get_mut("pod").map(Value::take))
    };
    oracle::text(&output.stdout).lines().map(read).collect()
}

/// The UIDs of the pods that the kubelet's file source takes of a folder, and what it says of the others by file.
pub(crate) fn ask_kubelet(
    program: &Path,
    version: &str,
    folder: &Path,
) -> (BTreeSet<String>, BTreeMap<String, String>) {
    let output = oracle::run(Command::new(program).args(["-version", version]).arg(folder).arg("node-1"), Vec::new());
    let uid = |line: &str| line.strip_prefix("ok ").and_then(|line| line.rsplit(' ').next().map(str::to_owned));
    let taken = oracle::text(&output.stdout).lines().filter_map(uid).collect();
    let reason = |line: &str| {
        let (file, why) = line.strip_prefix("refused ")?.split_once(": ")?;
        Some((file.rsplit('/').next()?.to_owned(), why.to_owned()))
    };
    (taken, oracle::text(&output.stderr).lines().filter_map(reason).collect())
}

/// Whether an error is about the value of a Secret, for which the pod that the kubelet is asked about has a plain one.
fn is_of_secret(error: &str, version: (u32, u32)) -> bool {
    version < (1, 35) && error.contains("a static pod cannot have this variable")
}

/// Judges as many as are wanted as this version does; gives what went wrong.
fn judge_all(version: (u32, u32), documents: &[(String, Value)]) -> Vec<String> {
    let (Some(templates), Some(accepts)) = (oracle::program("templates"), oracle::program("accepts")) else {
        return Vec::new();
    };
    let number = |name: &str, otherwise: usize| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
    };
    let many = if std::env::var_os("DAEMONLET_LONG").is_some() { 10 * CASES } else { CASES };
    let wanted = number("DAEMONLET_TEMPLATES", many);
    let mut mutator = Mutator::new(number("DAEMONLET_TEMPLATES_SEED", 1) as u64, documents);
    let mut cases = Vec::new();
    while cases.len() < wanted {
        let (description, mut value) = mutator.next();
        // The kubelet distinguishes pods by their names.
        value["metadata"]["name"] = json!(format!("case-{}", cases.len()));
        let ours = judge(&value, version);
        cases.push(Case { description, value, ours });
    }
    let name = format!("{}.{}", version.0, version.1);
    let api = ask_api(&templates, &name, &cases);
    let folder = tempfile::tempdir().expect("a folder");
    let (rendered, plain) = (folder.path().join("rendered"), folder.path().join("plain"));
    for folder in [&rendered, &plain] {
        fs::create_dir(folder).expect("a folder");
    }
    for (index, (case, (_, pod))) in cases.iter().zip(&api).enumerate() {
        match (&case.ours, pod) {
            (Ours::Rendered { text, .. }, _) => fs::write(rendered.join(format!("{index}.yaml")), text),
            (Ours::Refused(_), Some(pod)) => {
                let mut pod = pod.clone();
                pod["metadata"]["uid"] = json!(index.to_string());
                fs::write(plain.join(format!("{index}.json")), pod.to_string())
            }
            (Ours::Refused(_), None) => Ok(()),
        }
        .expect("it is written");
    }
    let (taken, why) = ask_kubelet(&accepts, &name, &rendered);
    let (plainly_taken, _) = ask_kubelet(&accepts, &name, &plain);
    let mut wrong = Vec::new();
    let mut counts = [0; 3];
    for (index, (case, (errors, _))) in cases.iter().zip(&api).enumerate() {
        let said = match &case.ours {
            Ours::Rendered { uid, .. } if !taken.contains(uid) => {
                let why = why.get(&format!("{index}.yaml")).cloned().unwrap_or_else(|| errors.join("; "));
                format!("rendered, and the kubelet does not take it: {why}")
            }
            Ours::Rendered { .. } if !errors.is_empty() => {
                format!("rendered, and the API refuses it: {}", errors.join("; "))
            }
            Ours::Rendered { .. } => {
                counts[0] += 1;
                continue;
            }
            // It is for Windows nodes, and ours has none.
            Ours::Refused(why) if why.iter().any(|why| why.contains("this daemon is for Windows nodes")) => continue,
            Ours::Refused(why)
                if errors.is_empty()
                    && plainly_taken.contains(&index.to_string())
                    && !why.iter().all(|why| is_of_secret(why, version)) =>
            {
                format!("refused, and both take it: {}", why.join("; "))
            }
            Ours::Refused(_) => {
                counts[if errors.is_empty() { 2 } else { 1 }] += 1;
                continue;
            }
        };
        wrong.push(format!("{name}: {}: {said}", case.description));
    }
    println!(
        "templates: {} of {} documents judged for {name} with {} kinds of mutation: {} taken by all, {} refused by ours \
         and the API, {} by ours and the kubelet",
        cases.len(),
        documents.len(),
        mutator.kinds(),
        counts[0],
        counts[1],
        counts[2]
    );
    assert!(cases.len() < CASES || mutator.kinds() >= KINDS, "{} kinds of mutation", mutator.kinds());
    wrong
}

#[test]
fn what_is_rendered_both_take_and_what_is_refused_one_of_them_refuses() {
    let documents = documents();
    let wrong: Vec<String> = VERSIONS.into_iter().flat_map(|version| judge_all(version, &documents)).collect();
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
