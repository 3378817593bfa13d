//! The PodSecurity checks beside upstream's own code, over upstream's fixtures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use daemonlet::core::policy::pod_security;
use daemonlet::core::policy::pod_security::Enforced;
use daemonlet::core::policy::pod_security::LEVEL_LABEL;
use daemonlet::core::policy::pod_security::PodSecurityLevel;
use daemonlet::core::policy::pod_security::VERSION_LABEL;
use daemonlet::core::yaml;
use serde_json::Value;
use serde_json::json;

use crate::oracle;

/// Where the module's test data lies: pods that each level allows and refuses, for each version.
fn fixtures() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/k8s");
    let ask = ["list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission"];
    let output = Command::new("go").args(ask).current_dir(module).output().expect("go answers");
    PathBuf::from(oracle::text(&output.stdout).trim()).join("test/testdata")
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() { below(&entry, found) } else { found.push(entry) }
    }
}

/// Upstream's pods, each once, and some that have several faults at once.
fn pods() -> Vec<Value> {
    let mut files = Vec::new();
    below(&fixtures(), &mut files);
    let mut pods = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "yaml")) {
        let text = fs::read_to_string(file).expect("text");
        let mut pod = yaml::read_documents(&text).remove(0).value.expect("YAML");
        pod["metadata"]["name"] = json!("x");
        pods.entry(pod.to_string()).or_insert(pod);
    }
    let single: Vec<Value> = pods.into_values().collect();
    // Every pod with the containers of the one before it: reasons that come together.
    let merged = single.windows(2).map(|pair| {
        let mut pod = pair[0].clone();
        let more = pair[1]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let renamed = more.into_iter().map(|mut container| {
            container["name"] = json!("second");
            container
        });
        pod["spec"]["containers"].as_array_mut().expect("containers").extend(renamed);
        pod
    });
    let merged: Vec<Value> = merged.collect();
    single.into_iter().chain(merged).collect()
}

#[test]
fn upstreams_code_says_the_same_of_upstreams_pods() {
    let Some(podsecurity) = oracle::program("podsecurity") else { return };
    let pods = pods();
    assert!(pods.len() > 300, "only {} fixtures", pods.len());
    let mut input = Vec::new();
    for pod in &pods {
        input.extend(serde_json::to_vec(pod).expect("JSON"));
        input.push(b'\n');
    }
    let output = oracle::run(&mut Command::new(podsecurity), input);
    assert!(output.status.success(), "{}", oracle::text(&output.stderr));
    let answers: Vec<Value> =
        oracle::text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), pods.len());
    let (mut compared, mut refused) = (0, 0);
    for (pod, answer) in pods.iter().zip(&answers) {
        for (asked, said) in answer["verdicts"].as_object().expect("verdicts") {
            let (level, version) = asked.split_once(':').expect("level and version");
            let namespace = json!({"metadata": {"labels": {LEVEL_LABEL: level, VERSION_LABEL: version}}});
            let enforced = Enforced::of_namespace(&namespace, PodSecurityLevel::Privileged);
            assert_eq!(enforced.to_string(), *asked);
            let ours: Vec<String> = pod_security::violations(enforced, pod).iter().map(ToString::to_string).collect();
            assert_eq!(ours.join(", "), said.as_str().expect("text"), "{asked} {pod}");
            compared += 1;
            refused += usize::from(!ours.is_empty());
        }
    }
    println!("{} pods, {compared} verdicts, {refused} of them refusals", pods.len());
}
