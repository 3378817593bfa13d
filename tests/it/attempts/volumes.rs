//! Volumes and paths.

use super::*;

#[test]
fn no_type_of_volume_reaches_the_host_or_a_driver() {
    let none = json!({});
    let types = [
        ("awsElasticBlockStore", json!({"volumeID": "v"})),
        ("azureDisk", json!({"diskName": "d", "diskURI": "u"})),
        ("azureFile", json!({"secretName": "s", "shareName": "s"})),
        ("cephfs", json!({"monitors": ["m"]})),
        ("cinder", json!({"volumeID": "v"})),
        ("csi", json!({"driver": "d.example"})),
        ("fc", json!({"targetWWNs": ["5"], "lun": 0})),
        ("flexVolume", json!({"driver": "k/d"})),
        ("flocker", json!({"datasetName": "d"})),
        ("gcePersistentDisk", json!({"pdName": "p"})),
        ("gitRepo", json!({"repository": "https://r.test/x"})),
        ("glusterfs", json!({"endpoints": "e", "path": "p"})),
        ("hostPath", json!({"path": "/"})),
        ("iscsi", json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:s", "lun": 0})),
        ("nfs", json!({"server": "10.0.0.1", "path": "/"})),
        ("persistentVolumeClaim", json!({"claimName": "c"})),
        ("photonPersistentDisk", json!({"pdID": "p"})),
        ("portworxVolume", json!({"volumeID": "v"})),
        ("quobyte", json!({"registry": "r:1", "volume": "v"})),
        ("rbd", json!({"monitors": ["m"], "image": "i"})),
        ("scaleIO", json!({"gateway": "g", "system": "s", "secretRef": {"name": "s"}, "volumeName": "v"})),
        ("storageos", json!({"volumeName": "v"})),
        ("vsphereVolume", json!({"volumePath": "v"})),
        (
            "ephemeral",
            json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}}),
        ),
        ("madeUp", json!({"path": "/"})),
        ("emptyDir", none.clone()),
        ("emptyDir", json!({"medium": "HugePages"})),
        ("emptyDir", json!({"medium": "Memory"})),
    ];
    let mut attempts: Vec<(&str, Value, &str)> = types
        .iter()
        .map(|(kind, source)| ("~/volumes/-", volume(json!({*kind: source})), "spec.template.spec.volumes"))
        .collect();
    let bundle = json!({"clusterTrustBundle": {"name": "b", "path": "p"}});
    let certificate =
        json!({"podCertificate": {"signerName": "s.example/x", "keyType": "ED25519", "credentialBundlePath": "p"}});
    for source in [bundle, certificate] {
        attempts.push((
            "~/volumes/-",
            volume(json!({"projected": {"sources": [source]}})),
            "spec.template.spec.volumes",
        ));
    }
    // Without a type it is an emptyDir, which only the API server writes out.
    for source in [json!({}), json!({"emptyDir": null}), json!({"configMap": null})] {
        attempts.push((
            "~/volumes/-",
            volume(source),
            "spec.template.spec.volumes[w].emptyDir: must have medium Memory",
        ));
    }
    // Two types in one volume: the allowed one must not speak for the other.
    let two = json!({"configMap": {"name": "settings"}, "hostPath": {"path": "/"}});
    attempts.push(("~/volumes/-", volume(two), "spec.template.spec.volumes"));
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_path_leads_out_of_where_it_belongs() {
    let item = |path: &str| volume(json!({"configMap": {"name": "s", "items": [{"key": "k", "path": path}]}}));
    let source = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let mount = |path: &str| json!({"name": "v", "mountPath": "/m", "subPath": path});
    let field = json!({"fieldPath": "metadata.name"});
    let attempts = [
        ("~/volumes/-", item("../../etc/cron.d/x"), "path"),
        ("~/volumes/-", item("/etc/cron.d/x"), "path"),
        ("~/volumes/-", item("..data"), "path"),
        ("~/volumes/-", item("a/../../x"), "path"),
        ("~/volumes/-", item(""), "path"),
        ("~/volumes/-", source(json!({"serviceAccountToken": {"path": "../token"}})), "path"),
        ("~/volumes/-", source(json!({"serviceAccountToken": {"path": "/token"}})), "path"),
        ("~/volumes/-", source(json!({"secret": {"name": "s", "items": [{"key": "k", "path": "../k"}]}})), "path"),
        ("~/volumes/-", volume(json!({"downwardAPI": {"items": [{"path": "../n", "fieldRef": field}]}})), "path"),
        ("~c/volumeMounts/-", mount("../../etc"), "subPath"),
        ("~c/volumeMounts/-", mount("/etc"), "subPath"),
        ("~c/volumeMounts/-", mount("a/../../x"), "subPath"),
        ("~c/volumeMounts/-", json!({"name": "v", "mountPath": "/m", "subPathExpr": "../x"}), "subPathExpr"),
        ("~c/volumeMounts/-", json!({"name": "v", "mountPath": ""}), "mountPath"),
        ("~c/volumeMounts/-", json!({"name": "not-there", "mountPath": "/m"}), "not-there"),
        (
            "~c/volumeMounts/-",
            json!({"name": "v", "mountPath": "/m", "mountPropagation": "Bidirectional"}),
            "mountPropagation",
        ),
        ("~c/volumeDevices", json!([{"name": "v", "devicePath": "/dev/sda"}]), "volumeDevices"),
    ];
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_way_of_writing_a_path_reaches_what_is_not_granted() {
    let world = World::granting(&["/granted"]);
    let path = |path: &str, kind: &str| volume(json!({"hostPath": {"path": path, "type": kind}}));
    let paths = [
        "/",
        "/etc",
        "/granted-not",
        "/grante",
        "/granted/../etc",
        "/granted/./../x",
        "",
        "/GRANTED",
        "/granted\u{0}/x",
        "/proc/self/root",
    ];
    let mut attempts: Vec<(&str, Value, &str)> =
        paths.iter().map(|it| ("~/volumes/-", path(it, ""), "hostPath")).collect();
    for kind in ["Socket", "CharDevice", "BlockDevice", "DirectoryOrCreate", "FileOrCreate", "Anything"] {
        attempts.push(("~/volumes/-", path("/granted/x", kind), "hostPath"));
    }
    are_refused(&world, &attempts);
    // Where it is granted, the kubelet resolves the rest beneath the grant, and nothing is written.
    let mut object = changed("~/volumes/-", &path("/granted/x/y", ""));
    object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "w", "mountPath": "/w", "subPath": "z", "readOnly": false}]);
    let Outcome::Runs(rendered) = world.attempt(&object) else { panic!("it is granted") };
    let spec = &rendered.pod.pod["spec"];
    let granted =
        spec["volumes"].as_array().and_then(|all| all.iter().find(|volume| volume["name"] == "w")).expect("it");
    assert_eq!(granted["hostPath"]["path"], "/granted", "{granted}");
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["subPath"], &mount["readOnly"]), (&json!("x/y/z"), &json!(true)), "{mount}");
}

/// Where a container's log is to be, the kubelet would make a folder, and the container would never start again.
#[test]
fn below_a_granted_path_nothing_is_made_where_logs_are_to_be() {
    let on = |path: &str, part: &str, expanded: &str| {
        let mut object = changed("~/volumes/-", &volume(json!({"hostPath": {"path": path}})));
        let mut mount = json!({"name": "w", "mountPath": "/w"});
        for (field, text) in [("subPath", part), ("subPathExpr", expanded)] {
            if !text.is_empty() {
                mount[field] = json!(text);
            }
        }
        object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
        object
    };
    let world = World::granting(&["/var/log", "/srv"]);
    let log = "kube-system_victim_1/main/2.log";
    let within = format!("pods/{log}");
    let below = format!("/var/log/pods/{log}");
    for (path, part, expanded) in [
        ("/var/log/pods", log, ""),
        ("/var/log", within.as_str(), ""),
        ("/var//log/./", ".//pods//x", ""),
        (below.as_str(), "", ""),
        ("/var/log/containers/x.log", "", ""),
        ("/var/log/pods", "", "$(P)"),
        ("/var/log", "", "$(P)"),
        ("/var/log", "", "pods/x"),
    ] {
        match world.attempt(&on(path, part, expanded)) {
            Outcome::Refused(why) => assert!(why.contains("log is to be"), "{path} {part}{expanded}: {why}"),
            Outcome::Runs(_) => panic!("{path} {part}{expanded}"),
        }
    }
    for (path, part, expanded) in [
        ("/var/log/pods", "", ""),
        ("/var/log", "pods", ""),
        ("/var/log", "journal/x", ""),
        ("/var/log/journal", "", "$(P)"),
        ("/srv", "", "$(P)"),
    ] {
        assert!(matches!(world.attempt(&on(path, part, expanded)), Outcome::Runs(_)), "{path} {part}{expanded}");
    }
}
