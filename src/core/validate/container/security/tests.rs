use serde_json::Value;
use serde_json::json;

use crate::core::validate::container::tests::errors;
use crate::core::validate::container::tests::judged;
use crate::core::validate::container::tests::specs_judged;
use crate::core::validate::container::tests::with;

fn own(context: Value) -> Value {
    json!({"securityContext": context})
}

#[test]
fn a_container_has_ids_that_there_are() {
    for field in ["runAsUser", "runAsGroup"] {
        let expected = format!("securityContext.{field}: must be a number from 0 to 2147483647");
        judged([
            (own(with(field, json!(-1))), expected.as_str()),
            (own(with(field, json!(2147483648i64))), expected.as_str()),
            (own(with(field, json!(2147483647))), ""),
        ]);
    }
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        let expected = format!("securityContext.{field}: must be a number from 0 to 2147483647");
        specs_judged([(own(with(field, json!(-1))), expected.as_str()), (own(with(field, json!(0))), "")]);
    }
    specs_judged([(
        own(json!({"supplementalGroups": [0, -1]})),
        "securityContext.supplementalGroups[1]: must be a number from 0 to 2147483647",
    )]);
}

#[test]
fn a_container_is_not_both_privileged_and_kept_from_it() {
    let no = |more: Value| {
        let mut context = json!({"allowPrivilegeEscalation": false});
        context.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        own(context)
    };
    const FIELD: &str = "securityContext.allowPrivilegeEscalation: must not be false";
    judged([
        (no(json!({"privileged": true})), format!("{FIELD} in a privileged container").as_str()),
        (no(json!({"privileged": false})), ""),
        (own(json!({"privileged": true, "allowPrivilegeEscalation": true})), ""),
        (
            no(json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}})),
            format!("{FIELD} with the capability CAP_SYS_ADMIN").as_str(),
        ),
        (no(json!({"capabilities": {"add": ["SYS_ADMIN"]}})), ""),
        (own(json!({"procMount": "None"})), "securityContext.procMount: must be Default or Unmasked, not \"None\""),
        (own(json!({"procMount": "Unmasked"})), "securityContext.procMount: Unmasked needs hostUsers to be false"),
    ]);
    assert_eq!(errors(own(json!({"procMount": "Unmasked"})), json!({"hostUsers": false})), "");
}

#[test]
fn profiles_are_judged_by_field() {
    let cases = |kind: &str| {
        let profile = |profile: Value| own(with(kind, profile));
        let place = format!("securityContext.{kind}");
        [
            (profile(json!({"type": "RuntimeDefault"})), String::new()),
            (profile(json!({"type": "Localhost", "localhostProfile": "p"})), String::new()),
            (profile(json!({})), format!("{place}.type: required")),
            (
                profile(json!({"type": "None"})),
                format!("{place}.type: must be Localhost or RuntimeDefault or Unconfined, not \"None\""),
            ),
            (
                profile(json!({"type": "Localhost"})),
                format!("{place}.localhostProfile: required with the type Localhost"),
            ),
            (
                profile(json!({"type": "Unconfined", "localhostProfile": ""})),
                format!("{place}.localhostProfile: only allowed with the type Localhost"),
            ),
        ]
    };
    for (context, expected) in ["seccompProfile", "appArmorProfile"].into_iter().flat_map(cases) {
        judged([(context.clone(), expected.as_str())]);
        specs_judged([(context, expected.as_str())]);
    }
    let local = |kind: &str, profile: &str| own(with(kind, json!({"type": "Localhost", "localhostProfile": profile})));
    const SECCOMP: &str = "securityContext.seccompProfile.localhostProfile";
    const APP_ARMOR: &str = "securityContext.appArmorProfile.localhostProfile";
    judged([
        (local("seccompProfile", ""), ""),
        (local("seccompProfile", "/p"), format!("{SECCOMP}: must be a relative path").as_str()),
        (local("seccompProfile", "p/../q"), format!("{SECCOMP}: must not contain '..'").as_str()),
        (local("appArmorProfile", ""), format!("{APP_ARMOR}: required with the type Localhost").as_str()),
        (local("appArmorProfile", "p "), format!("{APP_ARMOR}: must not have leading or trailing spaces").as_str()),
        (local("appArmorProfile", &"p".repeat(4095)), ""),
        (local("appArmorProfile", &"p".repeat(4096)), format!("{APP_ARMOR}: must be no more than 4095 bytes").as_str()),
    ]);
}

#[test]
fn words_of_the_pod_are_those_of_the_api() {
    for (field, good, reason) in [
        ("fsGroupChangePolicy", "OnRootMismatch", "must be Always or OnRootMismatch"),
        ("supplementalGroupsPolicy", "Strict", "must be Merge or Strict"),
        ("seLinuxChangePolicy", "Recursive", "must be Recursive"),
    ] {
        let expected = format!("securityContext.{field}: {reason}, not \"MountOption\"");
        specs_judged([
            (own(with(field, json!(good))), ""),
            (own(with(field, json!("MountOption"))), expected.as_str()),
        ]);
    }
}

#[test]
fn sysctls_are_judged_by_name() {
    let set = |names: &[&str]| {
        let sysctls: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        json!({"securityContext": {"sysctls": sysctls}, "hostNetwork": true, "hostIPC": true})
    };
    const NAME: &str =
        "must be lower case letters, digits, '-' and '_' (at most 253), in parts with '.' or '/' between";
    const PLACE: &str = "securityContext.sysctls";
    specs_judged([
        (set(&["kernel.msg_x", "network.a", "vm/a-b.c_d"]), ""),
        (set(&[&"k".repeat(253)]), ""),
        (set(&[""]), format!("{PLACE}[0].name: required").as_str()),
        (set(&["Kernel.x"]), format!("{PLACE}[0].name: {NAME}").as_str()),
        (set(&["a..b"]), format!("{PLACE}[0].name: {NAME}").as_str()),
        (set(&["a._b"]), format!("{PLACE}[0].name: {NAME}").as_str()),
        (set(&[&"k".repeat(254)]), format!("{PLACE}[0].name: {NAME}").as_str()),
        (set(&["a.b", "a.b"]), format!("{PLACE}[1].name: a.b is used twice").as_str()),
        (set(&["net/ipv4/x"]), format!("{PLACE}[0].name: net/ipv4/x may not be set with hostNetwork").as_str()),
        (set(&["net.ipv4/x"]), format!("{PLACE}[0].name: net.ipv4/x may not be set with hostNetwork").as_str()),
        (set(&["kernel.sem"]), format!("{PLACE}[0].name: kernel.sem may not be set with hostIPC").as_str()),
        (set(&["fs.mqueue.x"]), format!("{PLACE}[0].name: fs.mqueue.x may not be set with hostIPC").as_str()),
        (own(json!({"sysctls": [{"name": "net.x", "value": ""}, {"name": "kernel.sem", "value": ""}]})), ""),
    ]);
}

#[test]
fn shared_namespaces_fit_each_other() {
    specs_judged([
        (json!({"shareProcessNamespace": true, "hostPID": true}), "shareProcessNamespace: may not be set with hostPID"),
        (json!({"shareProcessNamespace": false, "hostPID": true}), ""),
        (json!({"hostUsers": false, "hostNetwork": true}), "hostNetwork: may not be set when hostUsers is false"),
        (json!({"hostUsers": false, "hostPID": true}), "hostPID: may not be set when hostUsers is false"),
        (json!({"hostUsers": false, "hostIPC": true}), "hostIPC: may not be set when hostUsers is false"),
        (json!({"hostUsers": true, "hostNetwork": true, "hostPID": true, "hostIPC": true}), ""),
    ]);
    let device = json!({"volumeDevices": [{"name": "claim", "devicePath": "/dev/a"}]});
    assert_eq!(
        errors(device, json!({"hostUsers": false})),
        "spec.template.spec.containers[0].volumeDevices: may not be set when hostUsers is false"
    );
}

#[test]
fn a_user_of_windows_is_judged() {
    let user = |name: &str| own(json!({"windowsOptions": {"runAsUserName": name}}));
    let long = "u".repeat(104);
    let domain = format!("{0}.{0}.{0}.{0}", "d".repeat(63));
    for good in ["u", &long, ". u", "NET\\u", "no net\\u", &format!("{domain}\\u")] {
        judged([(user(good), "")]);
    }
    for (bad, reason) in [
        ("", "must not be empty"),
        ("u\n", "must not contain control characters"),
        ("a\\b\\c", "must not contain more than one backslash"),
        (&format!("{domain}x\\u"), "the domain must be no more than 255 bytes"),
        (".d\\u", "the domain must be a NetBIOS or a DNS name"),
        ("\\u", "the domain must be a NetBIOS or a DNS name"),
        ("sixteen letters_\\u", "the domain must be a NetBIOS or a DNS name"),
        ("d\\", "must have a user after the domain"),
        (&format!("{long}u"), "the user must be no more than 104 bytes"),
        (". .", "the user must not be only periods and spaces"),
        ("a@b", "the user must not contain any of \"/\\:;|=,+*?<>@[]"),
    ] {
        judged([(user(bad), format!("securityContext.windowsOptions.runAsUserName: {reason}").as_str())]);
    }
    let options = |field: &str, value: &str| own(json!({"windowsOptions": with(field, json!(value))}));
    const SPEC: &str = "securityContext.windowsOptions.gmsaCredentialSpec";
    specs_judged([
        (options("gmsaCredentialSpecName", "a.b"), ""),
        (options("gmsaCredentialSpecName", ""), "securityContext.windowsOptions.gmsaCredentialSpecName: required"),
        (options("gmsaCredentialSpec", ""), format!("{SPEC}: must not be empty").as_str()),
        (options("gmsaCredentialSpec", &"x".repeat(65536)), ""),
        (options("gmsaCredentialSpec", &"x".repeat(65537)), format!("{SPEC}: must be no more than 64 KiB").as_str()),
    ]);
}

#[test]
fn host_processes_fill_the_whole_pod() {
    let is = |is: Value| json!({"securityContext": {"windowsOptions": {"hostProcess": is}}});
    let pod = |host: bool, of_pod: Value, containers: &[Value]| {
        let mut pod = is(of_pod);
        pod["hostNetwork"] = json!(host);
        pod["containers"] = containers.iter().map(|own| is(own.clone())).collect();
        pod
    };
    specs_judged([
        (pod(true, json!(true), &[json!(null), json!(true)]), ""),
        (pod(true, json!(null), &[json!(true), json!(true)]), ""),
        (pod(false, json!(true), &[json!(null)]), "hostNetwork: must be true with hostProcess containers"),
        (
            pod(true, json!(false), &[json!(true)]),
            "containers[0].securityContext.windowsOptions.hostProcess: must be the same as in the pod's securityContext",
        ),
    ]);
    assert_eq!(
        errors(json!({}), pod(true, json!(null), &[json!(true), json!(false)])),
        "spec.template.spec: either all containers must be hostProcess containers or none"
    );
}

#[test]
fn the_operating_system_decides_which_fields_there_are() {
    let os = |os: &str, mut spec: Value| {
        spec["os"] = json!({"name": os});
        spec
    };
    specs_judged([
        (os("linux", json!({})), ""),
        (os("", json!({})), "os.name: required"),
        (os("plan9", json!({})), "os.name: must be linux or windows, not \"plan9\""),
        (os("linux", own(json!({"windowsOptions": {}}))), "securityContext.windowsOptions: not allowed in a Linux pod"),
        (os("windows", own(json!({"windowsOptions": {}, "sysctls": []}))), ""),
        (os("windows", json!({"hostUsers": true})), "hostUsers: not allowed in a Windows pod"),
        (os("windows", json!({"shareProcessNamespace": false})), "shareProcessNamespace: not allowed in a Windows pod"),
        (os("windows", json!({"hostPID": true})), "hostPID: not allowed in a Windows pod"),
        (os("windows", json!({"hostIPC": true})), "hostIPC: not allowed in a Windows pod"),
        (os("windows", json!({"hostPID": false, "hostIPC": false})), ""),
        (
            os("windows", own(json!({"sysctls": [{"name": "a", "value": ""}]}))),
            "securityContext.sysctls: not allowed in a Windows pod",
        ),
    ]);
    for (field, value) in [
        ("appArmorProfile", json!({"type": "Unconfined"})),
        ("seLinuxOptions", json!({})),
        ("seccompProfile", json!({"type": "Unconfined"})),
        ("fsGroup", json!(1)),
        ("fsGroupChangePolicy", json!("Always")),
        ("runAsUser", json!(1)),
        ("runAsGroup", json!(1)),
        ("supplementalGroups", json!([])),
        ("supplementalGroupsPolicy", json!("Merge")),
        ("seLinuxChangePolicy", json!("Recursive")),
    ] {
        let expected = format!("securityContext.{field}: not allowed in a Windows pod");
        specs_judged([(os("windows", own(with(field, value))), expected.as_str())]);
    }
    for (field, value) in [
        ("appArmorProfile", json!({"type": "Unconfined"})),
        ("seLinuxOptions", json!({})),
        ("seccompProfile", json!({"type": "Unconfined"})),
        ("capabilities", json!({})),
        ("readOnlyRootFilesystem", json!(false)),
        ("privileged", json!(false)),
        ("allowPrivilegeEscalation", json!(true)),
        ("procMount", json!("Default")),
        ("runAsUser", json!(1)),
        ("runAsGroup", json!(1)),
    ] {
        assert_eq!(
            errors(own(with(field, value)), os("windows", json!({}))),
            format!("spec.template.spec.containers[0].securityContext.{field}: not allowed in a Windows pod")
        );
    }
    assert_eq!(
        errors(own(json!({"windowsOptions": {}})), os("linux", json!({}))),
        "spec.template.spec.containers[0].securityContext.windowsOptions: not allowed in a Linux pod"
    );
}
