//! The unit and its folders: they fit each other, the configuration's defaults, and systemd.

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
fn the_units_start_before_the_kubelet_and_bind_nobody() {
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

#[test]
fn the_resource_is_printed_as_it_is_shipped() {
    run(["generate", "crd"]).is(0, &read("packaging/k8s/nodedaemons.yaml"), "");
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
        let told = said.lines().last().unwrap_or_default().to_owned();
        assert!(output.status.success(), "{name}: more than {tenths} tenths: {told}");
    }
}

#[test]
fn the_sign_of_life_is_the_loops_and_a_bad_configuration_fails_the_reload() {
    let unit = read("systemd/daemonlet.service");
    assert_eq!(values(&unit, "WatchdogSec"), ["60s"]);
    let reload: Vec<&str> = unit.lines().filter(|line| line.starts_with("ExecReload=")).collect();
    assert_eq!(reload, ["ExecReload=/usr/bin/daemonlet run --check-config", "ExecReload=/bin/kill -HUP $MAINPID"]);
    let scratch = Scratch::new(&[("c.toml", "no-such-key = 1\n"), ("good.toml", "runtime-endpoint = \"\"\n")]);
    let check = |file: &str| run(["run", "--check-config", "--config", &scratch.text(file)]);
    check("good.toml").is(0, "", "");
    assert_eq!(check("c.toml").code, 3);
    assert!(check("c.toml").err.contains("no-such-key"));
}
