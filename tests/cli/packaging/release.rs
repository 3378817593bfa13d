//! What is released beside the packages: chart, kustomizations, krew, static program, list of dependencies.

use super::*;

/// What a script of `packaging` prints, and whether it succeeded; none where there is no Python.
pub(super) fn script(arguments: &[&str]) -> Option<(bool, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(output) = Command::new("python3").args(["-B"]).args(arguments).current_dir(root).output() else {
        eprintln!("no python3 here: {arguments:?} is not run");
        return None;
    };
    Some((output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap()))
}

#[test]
fn kustomizations_and_chart_are_in_step_with_the_objects() {
    let Some(checked) = script(&["packaging/deploy.py", "--check"]) else { return };
    assert_eq!(checked, (true, String::new()));
    let more = "configuration=[policy]\nnamespaces = [\"kube-system\", \"net\"]\ntrusted-namespaces = [\"kube-system\", \"net\"]";
    let chosen =
        ["packaging/deploy.py", "--render", "approver=true", "image=example.org/d:1", "apiServerPort=443", more];
    let (_, text) = script(&chosen).unwrap();
    let objects: Vec<serde_json::Value> = daemonlet::core::yaml::read_documents(&text)
        .into_iter()
        .map(|document| document.value.unwrap_or_else(|error| panic!("{error:?}")))
        .collect();
    let named = |kind: &str, name: &str| {
        objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    let container = &named("Deployment", "daemonlet-coordinator").unwrap()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.org/d:1");
    assert_eq!(container["env"][1]["value"], "443");
    assert!(named("ClusterRole", "daemonlet-approver").is_some());
    assert!(named("ClusterRole", "daemonlet-agent-wide").is_none());
    // Each key of the ConfigMap where the Deployment mounts it.
    let pod = &named("Deployment", "daemonlet-coordinator").unwrap()["spec"]["template"]["spec"];
    let sources = pod["volumes"][0]["projected"]["sources"].as_array().unwrap();
    let items: Vec<_> = sources.iter().flat_map(|source| source["configMap"]["items"].as_array().unwrap()).collect();
    let config = named("ConfigMap", "daemonlet-coordinator").unwrap()["data"].as_object().unwrap();
    let scratch = Scratch::new(&[]);
    for (key, text) in config {
        let item = items.iter().find(|item| item["key"] == *key).unwrap_or_else(|| panic!("{key} is not mounted"));
        scratch.write(item["path"].as_str().unwrap(), text.as_str().unwrap());
    }
    run(["run", "--check-config", "--config", &scratch.text("daemonlet.toml")]).is(0, "", "");
    let shown = run(["run", "--print-config", "--config", &scratch.text("daemonlet.toml")]);
    for line in
        ["approve-nodes = true", "trusted-namespaces = [\"kube-system\", \"net\"]", "kubeconfig = \"in-cluster\""]
    {
        assert!(shown.out.lines().any(|shown| shown.starts_with(line)), "{line}: {}", shown.out);
    }
    // The overlay's key is the chart's.
    let overlay = read("deploy/kustomize/overlays/approver/kustomization.yaml");
    let patch = &daemonlet::core::yaml::read_documents(&overlay)[0].value.clone().unwrap()["patches"][0]["patch"];
    let patch = daemonlet::core::yaml::read_documents(patch.as_str().unwrap())[0].value.clone().unwrap();
    assert_eq!(patch["data"]["approve-nodes.toml"], config["approve-nodes.toml"]);
}

#[test]
fn krew_gets_an_archive_with_its_checksum() {
    let scratch = Scratch::new(&[("program", "#!/bin/sh\n")]);
    let out = scratch.text("out");
    let words =
        ["packaging/krew.py", "--url", "https://example.org/d/", "--binary", &scratch.text("program"), "--out", &out];
    let Some(made) = script(&words) else { return };
    assert!(made.0, "{}", made.1);
    let manifest = fs::read_to_string(scratch.path("out/daemonlet.yaml")).unwrap();
    let manifest = daemonlet::core::yaml::read_documents(&manifest)[0].value.clone().unwrap();
    assert_eq!(manifest["spec"]["version"], format!("v{}", env!("CARGO_PKG_VERSION")));
    let platform = &manifest["spec"]["platforms"][0];
    let archive = platform["uri"].as_str().unwrap().strip_prefix("https://example.org/d/").unwrap();
    let said = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let sum = said(Command::new("sha256sum").arg(scratch.path("out").join(archive)));
    assert_eq!(sum.split(' ').next().unwrap(), platform["sha256"]);
    // krew links what `bin` names under the plugin's name, as which the program is the plugin.
    let files: Vec<&str> =
        platform["files"].as_array().unwrap().iter().filter_map(|file| file["from"].as_str()).collect();
    let listed = said(Command::new("tar").arg("-tvzf").arg(scratch.path("out").join(archive)));
    for (line, mode) in listed.lines().zip(["-rw-r--r--", "-rwxr-xr-x"]) {
        assert!(line.starts_with(mode) && files.contains(&line.rsplit(' ').next().unwrap()), "{line}");
    }
    assert_eq!(listed.lines().count(), files.len());
    assert_eq!(platform["bin"], format!("kubectl-{}", manifest["metadata"]["name"].as_str().unwrap()));
}

#[test]
fn the_page_of_dependencies_names_every_build_script_and_all_unsafe_code() {
    let Some(checked) = script(&["packaging/dependencies.py", "--check"]) else { return };
    assert_eq!(checked, (true, String::new()));
}

/// A program for `static.py` that does what `body` says.
fn shim(scratch: &Scratch, name: &str, body: &str) {
    use std::os::unix::fs::PermissionsExt;
    scratch.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{body}\n"));
    fs::set_permissions(scratch.path(&format!("bin/{name}")), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_rusts_musl_the_program_is_linked_statically_all_the_same() {
    let arch = std::env::consts::ARCH;
    let other = if arch == "aarch64" { "x86_64" } else { "aarch64" };
    let scratch = Scratch::new(&[]);
    let target = scratch.text("target");
    let built = format!("{target}/{arch}-unknown-linux-gnu/release");
    // No musl, and a rustup that gets none.
    shim(&scratch, "rustc", "echo /nowhere");
    shim(&scratch, "rustup", "exit 1");
    shim(&scratch, "readelf", "");
    let program = "printf '#!/bin/sh\\n' >daemonlet; chmod +x daemonlet";
    let cargo = format!(
        "[ $1 = metadata ] && echo '{{\"target_directory\": \"{target}\"}}' && exit\nenv >{target}.env; echo \"$@\" \
         >{target}.words\nmkdir -p {built}; cd {built}; {program}"
    );
    shim(&scratch, "cargo", &cargo);
    let path = format!("{}:/usr/bin:/bin", scratch.text("bin"));
    let ran = |words: &[&str], flags: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new("python3");
        python.arg("-B").args(words).current_dir(root).env("PATH", &path);
        python.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
        let output = python.output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let script = |arch: &str, flags: &str| ran(&["packaging/static.py", "--arch", arch], flags);
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("no python3 here");
        return;
    }
    let (is_made, said) = script(arch, "");
    assert!(is_made && said.contains("linked with the C library of GNU, statically"), "{said}");
    assert!(said.contains(&format!("{target}/{arch}-unknown-linux-musl/release/daemonlet\n")), "{said}");
    let words = fs::read_to_string(format!("{target}.words")).unwrap();
    assert!(words.contains(&format!("--target {arch}-unknown-linux-gnu ")), "{words}");
    let variable = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUSTFLAGS", arch.to_uppercase());
    let environment = fs::read_to_string(format!("{target}.env")).unwrap();
    assert!(environment.contains(&format!("{variable}=-C target-feature=+crt-static\n")), "{environment}");
    // Cargo would not read that variable where flags are set for every target, as `make release` does.
    assert!(script(arch, "--cap-lints=warn").0);
    let environment = fs::read_to_string(format!("{target}.env")).unwrap();
    assert!(environment.contains("\nRUSTFLAGS=--cap-lints=warn -C target-feature=+crt-static\n"), "{environment}");
    let (is_made, said) = script(other, "");
    assert!(!is_made && said.starts_with("skipped: "), "{said}");
    // Packages for that machine end with the same line, and with no trace of Python's.
    let (is_made, said) = ran(&["packaging/packages.py", "--fast", "--arch", other], "");
    assert!(!is_made && said.starts_with("skipped: ") && said.lines().count() == 2, "{said}");
}
