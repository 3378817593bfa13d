//! The unit and its folders: they fit each other, the configuration's defaults, and systemd.

mod release;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Scratch;
use crate::run;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The values of `key` in the unit, one list over all its lines.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines()
        .filter_map(|line| line.split_once('=').filter(|(name, _)| *name == key))
        .flat_map(|(_, value)| value.split_whitespace())
        .collect()
}

#[test]
fn the_sandbox_opens_the_default_folders_and_tmpfiles_makes_them() {
    let unit = read("systemd/daemonlet.service");
    let tmpfiles = read("packaging/tmpfiles.d/daemonlet.conf");
    let made: Vec<&str> = tmpfiles
        .lines()
        .filter(|line| line.starts_with("d "))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let opened = values(&unit, "ReadWritePaths");
    for folder in &opened {
        assert!(made.contains(folder), "{folder} has to exist before the unit starts");
    }
    let scratch = Scratch::new(&[("c.toml", "kubelet-config = \"/nowhere/config.yaml\"\n")]);
    let config = run(["run", "--print-config", "--config", &scratch.text("c.toml")]);
    for key in ["manifest-dir", "kubelet-root"] {
        let line = config.out.lines().find(|line| line.starts_with(key)).unwrap();
        let folder = line.split('"').nth(1).unwrap();
        assert!(opened.contains(&folder), "{line}");
    }
    for (key, folder) in [("StateDirectory", "state-dir = \"/var/lib/"), ("RuntimeDirectory", "run-dir = \"/run/")] {
        assert!(config.out.contains(&format!("{folder}{}\"", values(&unit, key)[0])), "{key}");
    }
}

const UNITS: [&str; 2] = ["daemonlet.service", "daemonlet-boot-guard.service"];

#[test]
fn the_units_start_before_the_kubelet_and_depend_on_no_other_unit() {
    for name in UNITS {
        let unit = read(&format!("systemd/{name}"));
        assert_eq!(values(&unit, "Before"), ["kubelet.service"], "{name}");
        assert_eq!(values(&unit, "Type"), ["notify"], "{name}");
        for key in ["Requires", "Requisite", "BindsTo", "PartOf", "Wants", "RequiredBy"] {
            assert!(values(&unit, key).is_empty(), "{name} {key}");
        }
    }
}

#[test]
fn the_boot_guard_may_change_the_network_and_nothing_else_and_the_agent_may_not() {
    let guard = read("systemd/daemonlet-boot-guard.service");
    assert_eq!(values(&guard, "CapabilityBoundingSet"), ["CAP_NET_ADMIN"]);
    assert_eq!(values(&guard, "ProtectSystem"), ["strict"]);
    assert!(values(&guard, "ReadWritePaths").is_empty());
    let agent = read("systemd/daemonlet.service");
    assert!(!values(&agent, "CapabilityBoundingSet").contains(&"CAP_NET_ADMIN"));
    assert!(!values(&agent, "RestrictAddressFamilies").contains(&"AF_NETLINK"));
}

#[test]
fn systemd_finds_nothing_to_say_about_the_units() {
    let scratch = Scratch::new(&[]);
    for name in UNITS {
        // The program is not installed where the units have it.
        let unit = read(&format!("systemd/{name}")).replace("/usr/bin/daemonlet", env!("CARGO_BIN_EXE_daemonlet"));
        scratch.write(name, &unit);
        let verify = Command::new("systemd-analyze").arg("verify").arg(scratch.path(name)).output();
        let Ok(output) = verify else {
            eprintln!("no systemd-analyze here: the units are not verified");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        assert!(output.status.success(), "{name}");
    }
}

/// Runs the script of a purge below `root`; gives what it says. No configuration is left that could say where anything is.
fn purge(root: &str) -> String {
    let script = read("packaging/deb/postrm")
        .replace("/var/lib/daemonlet", &format!("{root}/var"))
        .replace("/etc/daemonlet", &format!("{root}/etc"))
        .replace("/run/daemonlet", &format!("{root}/run"))
        .replace("/run/systemd/system", "/nowhere")
        .replace("deb-systemd-helper", "no-such-helper");
    let run = Command::new("sh").args(["-c", &script, "postrm", "purge"]).output().unwrap();
    let said = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
    assert!(run.status.success(), "{said}");
    said
}

#[test]
fn purge_empties_the_disk_that_a_link_leads_to_and_leaves_an_administrators_files() {
    let scratch = Scratch::new(&[
        ("disk/daemons/a.json", ""),
        ("disk/secrets.json", ""),
        ("run/agent.sock", ""),
        ("run/daemonsets.d/mine.yaml", ""),
    ]);
    std::os::unix::fs::symlink(scratch.path("disk"), scratch.path("var")).unwrap();
    let root = scratch.text("").trim_end_matches('/').to_owned();
    let said = purge(&root);
    let emptied =
        format!("daemonlet: emptied {root}/var, a mount point or a link, which stays: the checkpoint, with Secrets");
    let kept = format!("daemonlet: {root}/run has files of yours and stays:\n  {root}/run/daemonsets.d/mine.yaml\n");
    assert!(said.contains(&emptied) && said.contains(&kept), "{said}");
    assert_eq!(fs::read_dir(scratch.path("disk")).unwrap().count(), 0);
    assert!(!scratch.path("run/agent.sock").exists() && scratch.path("var").is_symlink());
    fs::remove_dir(scratch.path("disk")).unwrap();
    let said = purge(&root);
    assert!(said.contains(&format!("leads to {root}/disk, which is not there now")), "{said}");
    assert!(!said.contains("removed"), "{said}");
}

#[test]
fn purge_removes_what_was_noted_and_says_what_stays() {
    let scratch = Scratch::new(&[
        ("var/.state-dirs", "ROOT/srv\nROOT/mixed\nROOT/enrolled\n"),
        ("srv/daemons/a.json", ""),
        ("srv/identity/client.pem", ""),
        ("srv/identity/kubeconfig-path", "ROOT/elsewhere/ours\n"),
        ("srv/floor.json", ""),
        ("elsewhere/ours", "client-key: ROOT/srv/identity/client.pem\n"),
        ("mixed/daemons/a.json", ""),
        ("mixed/identity/kubeconfig-path", "ROOT/elsewhere/theirs\n"),
        ("mixed/mine", ""),
        ("mixed/secrets.yaml", ""),
        ("mixed/inputs.json.backup", ""),
        ("mixed/set-aside.json", ""),
        ("mixed/inputs.json.tmp", ""),
        ("mixed/secrets.json.bad-10", ""),
        ("enrolled/identity/client.pem", ""),
        ("elsewhere/theirs", "token: a\n"),
        ("etc/kubeconfig", "client-key: ROOT/srv/identity/client.pem\n"),
        ("etc/mine.toml", ""),
    ]);
    let root = scratch.text("");
    let root = root.trim_end_matches('/');
    let placed = |text: &str| text.replace("ROOT", root);
    for path in ["var/.state-dirs", "srv/identity/kubeconfig-path", "mixed/identity/kubeconfig-path"] {
        scratch.write(path, &placed(&fs::read_to_string(scratch.path(path)).unwrap()));
    }
    let said = purge(root);
    for line in [
        "daemonlet: removed ROOT/srv: the checkpoint, with Secrets, tokens and the node's certificate",
        "daemonlet: removed the checkpoint from ROOT/mixed; other files are there, and stay",
        "daemonlet: removed ROOT/elsewhere/ours, which daemonlet enroll wrote",
        "daemonlet: removed ROOT/etc/kubeconfig, which daemonlet enroll wrote",
        "daemonlet: ROOT/elsewhere/theirs stays: daemonlet enroll did not write it",
        "daemonlet: ROOT/etc has files of yours and stays:\n  ROOT/etc/mine.toml",
    ] {
        assert!(said.contains(&placed(line)), "{line}: {said}");
    }
    let is_there = |path: &str| scratch.path(path).exists();
    assert!(["elsewhere/theirs", "etc/mine.toml"].into_iter().all(is_there));
    assert!(!["srv", "var", "enrolled", "elsewhere/ours", "etc/kubeconfig"].into_iter().any(is_there));
    let names = fs::read_dir(scratch.path("mixed")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    assert_eq!(names, ["inputs.json.backup", "mine", "secrets.yaml"]);
}

#[test]
fn the_resource_is_printed_as_it_is_shipped() {
    run(["generate", "crd"]).is(0, &read("packaging/k8s/nodedaemons.yaml"), "");
}

#[test]
fn the_deployment_of_the_coordinator_fits_its_rights_and_its_configuration() {
    let documents = |file: &str| -> Vec<serde_json::Value> {
        let text = read(&format!("packaging/k8s/{file}"));
        daemonlet::core::yaml::read_documents(&text).into_iter().map(|document| document.value.unwrap()).collect()
    };
    let (deployment, rights) = (documents("coordinator-deployment.yaml"), documents("coordinator-rbac.yaml"));
    let of_kind = |kind: &str| deployment.iter().find(|object| object["kind"] == kind).unwrap();
    let name = |object: &serde_json::Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        let binding = of_kind(binding);
        let role = rights.iter().find(|object| object["kind"] == binding["roleRef"]["kind"]).unwrap();
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["name"], name(of_kind("ServiceAccount")));
        // What kubectl applies with both files must not be one object twice.
        assert!(!rights.iter().any(|other| other["kind"] == binding["kind"] && name(other) == name(binding)));
    }
    let approver = documents("approver-rbac.yaml");
    let subjects = approver[1]["subjects"].as_array().unwrap();
    assert!(subjects.contains(&of_kind("ClusterRoleBinding")["subjects"][0]), "{subjects:?}");
    let account = &of_kind("ServiceAccount")["metadata"];
    let user = format!(
        "'system:serviceaccount:{}:{}'",
        account["namespace"].as_str().unwrap(),
        name(of_kind("ServiceAccount"))
    );
    let policy = approver.iter().find(|object| object["kind"] == "ValidatingAdmissionPolicy").unwrap();
    assert!(policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap().ends_with(&user));
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], name(of_kind("ServiceAccount")));
    let container = &pod["containers"][0];
    let words: Vec<&str> = container["args"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
    daemonlet::cli::command().try_get_matches_from(std::iter::once("daemonlet").chain(words.clone())).unwrap();
    let version = container["image"].as_str().unwrap().rsplit(':').next().unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"), "the image of this version");
    assert!(read("packaging/Containerfile").contains(&format!("daemonlet:{version} ")));
    let config = of_kind("ConfigMap");
    let sources = pod["volumes"][0]["projected"]["sources"].as_array().unwrap();
    assert!(sources.iter().all(|source| source["configMap"]["name"] == config["metadata"]["name"]));
    assert!(sources.iter().any(|source| source["configMap"]["items"][0]["path"] == "daemonlet.toml"));
    let (file, text) = config["data"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(words[2], format!("{}/{file}", container["volumeMounts"][0]["mountPath"].as_str().unwrap()));
    let scratch = Scratch::new(&[("c.toml", text.as_str().unwrap())]);
    run(["run", "--check-config", "--config", &scratch.text("c.toml")]).is(0, "", "");
}

/// What `systemd-analyze security` may find, in tenths. It counts what a unit could do, not what it is for.
const EXPOSURE: [(&str, u32); 2] = [("daemonlet.service", 21), ("daemonlet-boot-guard.service", 20)];

#[test]
fn the_units_are_not_more_exposed_than_they_have_to_be() {
    for (name, tenths) in EXPOSURE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name);
        let analyze = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", &format!("--threshold={tenths}")])
            .arg(&path)
            .output();
        let Ok(output) = analyze else {
            eprintln!("no systemd-analyze here: the exposure is not measured");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let last_line = said.lines().last().unwrap_or_default().to_owned();
        assert!(output.status.success(), "{name}: more than {tenths} tenths: {last_line}");
    }
}

#[test]
fn the_agent_takes_a_bounded_part_of_the_node() {
    let unit = read("systemd/daemonlet.service");
    for (key, value) in [
        ("MemoryHigh", "192M"),
        ("MemoryMax", "256M"),
        ("TasksMax", "256"),
        ("OOMScoreAdjust", "-900"),
        ("CPUWeight", "50"),
    ] {
        assert_eq!(values(&unit, key), [value], "{key}");
    }
}

#[test]
fn the_sign_of_life_is_the_loops_and_a_bad_configuration_fails_the_reload() {
    let unit = read("systemd/daemonlet.service");
    assert_eq!(values(&unit, "WatchdogSec"), ["60s"]);
    let reload: Vec<&str> = unit.lines().filter(|line| line.starts_with("ExecReload=")).collect();
    let signal = r#"ExecReload=/bin/sh -c 'kill -HUP "$$MAINPID"'"#;
    assert_eq!(reload, ["ExecReload=/usr/bin/daemonlet run --check-config", signal]);
    let scratch = Scratch::new(&[("c.toml", "no-such-key = 1\n"), ("good.toml", "runtime-endpoint = \"\"\n")]);
    let check = |file: &str| run(["run", "--check-config", "--config", &scratch.text(file)]);
    check("good.toml").is(0, "", "");
    assert_eq!(check("c.toml").code, 3);
    assert!(check("c.toml").err.contains("no-such-key"));
}

#[test]
fn the_readme_of_the_packages_names_only_what_they_have() {
    let Some((true, text)) = release::script(&["packaging/packages.py", "--readme"]) else { return };
    let cargo: toml::Table = read("Cargo.toml").parse().unwrap();
    let assets = cargo["package"]["metadata"]["deb"]["assets"].to_string();
    let is_path =
        |word: &&str| ["examples/", "tests/", "src/", "docs/", "target/"].iter().any(|top| word.starts_with(top));
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c)));
    let mut seen = 0;
    for path in words.filter(is_path) {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
        let is_there = assets.contains(path) || assets.contains(&format!("{folder}/*.{kind}"));
        assert!(is_there && Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "no package has {path}");
        seen += 1;
    }
    assert!(seen > 20, "{text}");
    assert!(!text.contains("make "), "that needs a checkout: {text}");
    for heading in ["# daemonlet\n", "## Install it\n", "## Read on\n"] {
        assert!(text.contains(heading), "{heading}");
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (rules, runbook) = (read("packaging/monitoring/rules.yaml"), read("docs/runbook.md"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.strip_prefix("  - alert: ")).collect();
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, sections);
    for alert in &alerts {
        let anchor = format!("/docs/runbook.md#{}\"", alert.to_lowercase());
        let rule = rules.split(&format!("alert: {alert}\n")).nth(1).unwrap().split("- alert: ").next().unwrap();
        assert!(rule.contains("runbook_url: \"") && rule.contains(&anchor), "{alert}: {rule}");
    }
}

#[test]
fn install_writes_what_the_packages_have_and_keeps_the_hosts_configuration() {
    let scratch = Scratch::new(&[]);
    let (host, units) = (scratch.text("host"), "usr/lib/systemd/system");
    let mistyped = run(["install", "--root", &host]);
    assert_eq!((mistyped.code, scratch.path("host").exists()), (3, false), "{mistyped:?}");
    fs::create_dir(scratch.path("host")).unwrap();
    let first = run(["install", "--root", &host]);
    assert_eq!((first.code, first.out.lines().count()), (0, 5), "{first:?}");
    assert!(first.err.starts_with("next, on the host: systemctl daemon-reload && "), "{first:?}");
    let installed = |path: &str| fs::read_to_string(scratch.path("host").join(path)).unwrap();
    for (there, here) in [
        (format!("{units}/daemonlet.service"), "systemd/daemonlet.service"),
        (format!("{units}/daemonlet-boot-guard.service"), "systemd/daemonlet-boot-guard.service"),
        ("usr/lib/tmpfiles.d/daemonlet.conf".to_owned(), "packaging/tmpfiles.d/daemonlet.conf"),
        ("etc/daemonlet/daemonlet.toml".to_owned(), "packaging/daemonlet.toml"),
    ] {
        assert_eq!(installed(&there), read(here), "{there}");
    }
    let program = Command::new(scratch.path("host/usr/bin/daemonlet")).arg("--version").output().unwrap();
    assert!(program.status.success());
    scratch.write("host/etc/daemonlet/daemonlet.toml", "mine");
    scratch.write(&format!("host/{units}/daemonlet.service"), "old");
    let second = run(["install", "--root", &host]);
    assert_eq!(second.out.matches("wrote ").count(), 1, "{second:?}");
    assert_eq!(installed("etc/daemonlet/daemonlet.toml"), "mine");
    // What dpkg leaves of a package that was removed and not purged.
    scratch.write("host/var/lib/dpkg/info/daemonlet.list", "/.\n/etc\n/etc/daemonlet/daemonlet.toml\n");
    fs::create_dir_all(scratch.path("host/etc/systemd/system")).unwrap();
    std::os::unix::fs::symlink("/dev/null", scratch.path("host/etc/systemd/system/daemonlet.service")).unwrap();
    let removed = run(["install", "--root", &host]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert!(
        removed.err.contains("next, on the host: systemctl unmask daemonlet daemonlet-boot-guard && "),
        "{removed:?}"
    );
    scratch.write("host/var/lib/dpkg/info/daemonlet.list", "/.\n/usr/bin/daemonlet\n");
    let refused = || {
        let packaged = run(["install", "--root", &host]);
        assert_eq!((packaged.code, packaged.out.as_str()), (1, ""));
        assert!(packaged.err.contains("a package has installed daemonlet here"), "{packaged:?}");
    };
    refused();
    fs::remove_dir_all(scratch.path("host/var/lib/dpkg")).unwrap();
    // The removed rpm leaves the folder; the file is no doc, which a host may leave out.
    scratch.write("host/usr/share/licenses/daemonlet/LICENSE", "");
    refused();
    let cargo: toml::Table = read("Cargo.toml").parse().unwrap();
    let assets = cargo["package"]["metadata"]["generate-rpm"]["assets"].as_array().unwrap();
    let sign = assets.iter().find(|asset| asset["dest"].as_str() == Some("/usr/share/licenses/daemonlet/LICENSE"));
    assert!(sign.unwrap().get("doc").is_none());
    fs::remove_file(scratch.path("host/usr/share/licenses/daemonlet/LICENSE")).unwrap();
    assert_eq!(run(["install", "--root", &host]).code, 0);
    // The page takes all of it away again.
    let page = read("docs/removal.md");
    let part = page.split("## Remove what daemonlet install wrote").nth(1).unwrap().split("\n## ").next().unwrap();
    for line in part.lines().filter(|line| line.starts_with("rm ")) {
        let line = line.replace(" /", &format!(" {host}/")).replace("rm ", "rm -f ");
        assert!(Command::new("sh").args(["-ec", &line]).status().unwrap().success(), "{line}");
    }
    let left = Command::new("find").args([&host, "-type", "f"]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
}
