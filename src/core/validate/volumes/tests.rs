use serde_json::Value;
use serde_json::json;

use super::SOURCES;
use super::check;
use crate::core::validate::types::pod_types;

mod disks;

/// What is wrong with `volumes`.
fn errors(volumes: &Value) -> String {
    let spec = json!({"volumes": volumes});
    assert_eq!(pod_types(&json!({"spec": spec})), Ok(()));
    let mut errors = Vec::new();
    check(&spec, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What is wrong with the volume `v` of the type `kind`.
fn wrong_with(kind: &str, source: &Value) -> String {
    errors(&json!([{"name": "v", kind: source}]))
}

/// Each is refused with the one field; its fields are named from the type on.
fn refused(kind: &str, cases: &[(Value, &str)]) {
    for (source, expected) in cases {
        let expected = format!("spec.template.spec.volumes[0].{kind}{expected}");
        assert_eq!(wrong_with(kind, source), expected, "{source}");
    }
}

fn taken(kind: &str, cases: &[Value]) {
    for source in cases {
        assert_eq!(wrong_with(kind, source), "", "{kind} {source}");
    }
}

#[test]
fn a_volume_has_a_name_of_its_own_and_one_type() {
    const V: &str = "spec.template.spec.volumes";
    let spec = json!({"volumes": [{"name": "a"}, {"name": "b", "emptyDir": {}, "secret": null}]});
    let mut errors = Vec::new();
    let volumes = check(&spec, &mut errors);
    assert_eq!((errors.len(), volumes.keys().copied().collect::<Vec<_>>()), (0, vec!["a", "b"]));
    assert_eq!(volumes["b"], &spec["volumes"][1]);
    for (volumes, expected) in [
        (json!([null]), format!("{V}[0].name: required")),
        (
            json!([{"name": "a.b"}]),
            format!(
                "{V}[0].name: must be lower case letters, digits and '-', beginning and ending with a letter or digit"
            ),
        ),
        (json!([{"name": "a"}, {"name": "a"}]), format!("{V}[1].name: a is used twice")),
        (
            json!([{"name": "a", "secret": {}, "emptyDir": {}, "image": {}}]),
            format!("{V}[0].secret: a volume can have only one type; {V}[0].image: a volume can have only one type"),
        ),
    ] {
        assert_eq!(self::errors(&volumes), expected);
    }
}

#[test]
fn what_each_type_needs_is_required() {
    for (kind, needs) in SOURCES {
        let text = wrong_with(kind, &json!({}));
        for field in *needs {
            assert!(text.contains(&format!("[0].{kind}.{field}: required")), "{text}");
        }
    }
    taken("glusterfs", &[json!({"endpoints": "e", "path": "p"})]);
    taken("persistentVolumeClaim", &[json!({"claimName": "c"})]);
    taken("rbd", &[json!({"monitors": ["m"], "image": "i"})]);
    taken("cephfs", &[json!({"monitors": [""]})]);
    taken("azureFile", &[json!({"secretName": "s", "shareName": "h"})]);
    taken("vsphereVolume", &[json!({"volumePath": "p"})]);
    taken("photonPersistentDisk", &[json!({"pdID": "p"})]);
    taken("portworxVolume", &[json!({"volumeID": "v"})]);
    let scale_io = json!({"gateway": "g", "system": "s", "volumeName": "v", "secretRef": {}});
    taken("scaleIO", &[scale_io]);
    taken("image", &[json!({}), json!({"reference": "i", "pullPolicy": "Never"})]);
    refused("rbd", &[(json!({"monitors": [], "image": "i"}), ".monitors: required")]);
    let policy = ".pullPolicy: must be Always or IfNotPresent or Never, not \"x\"";
    refused("image", &[(json!({"pullPolicy": "x"}), policy)]);
}

#[test]
fn directories_of_the_node() {
    refused(
        "hostPath",
        &[
            (json!({"type": "x"}), ".path: required"),
            (json!({"path": "/a/../b"}), ".path: must not contain '..'"),
            (
                json!({"path": "/", "type": "file"}),
                ".type: must be DirectoryOrCreate or Directory or FileOrCreate or File or Socket or CharDevice or \
                 BlockDevice, not \"file\"",
            ),
        ],
    );
    taken("hostPath", &[json!({"path": "/a/..b", "type": ""}), json!({"path": "a", "type": "BlockDevice"})]);
    refused("emptyDir", &[(json!({"sizeLimit": "-1m"}), ".sizeLimit: must not be negative")]);
    taken("emptyDir", &[json!({"sizeLimit": 0, "medium": "anything"}), json!({"sizeLimit": "8Ei"})]);
    let git = |directory: &str| json!({"repository": "r", "directory": directory});
    refused(
        "gitRepo",
        &[(git("/a"), ".directory: must be a relative path"), (git("a/.."), ".directory: must not contain '..'")],
    );
    taken("gitRepo", &[git(""), git("."), git("..a")]);
}

#[test]
fn files_of_secrets_config_maps_and_fields() {
    let secret = |more: Value| {
        let mut secret = json!({"secretName": "s"});
        secret.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        secret
    };
    let item = |item: Value| secret(json!({"items": [{"key": "k", "path": "p"}, item]}));
    refused(
        "secret",
        &[
            (secret(json!({"defaultMode": 512})), ".defaultMode: must be a file mode from 0 to 0777"),
            (item(json!({"path": "q"})), ".items[1].key: required"),
            (item(json!({"key": "k"})), ".items[1].path: required"),
            (item(json!({"key": "k", "path": "/a"})), ".items[1].path: must be a relative path"),
            (item(json!({"key": "k", "path": "a/../b"})), ".items[1].path: must not contain '..'"),
            (item(json!({"key": "k", "path": ".."})), ".items[1].path: must not contain '..'"),
            (item(json!({"key": "k", "path": "..a"})), ".items[1].path: must not start with '..'"),
            (item(json!({"key": "k", "path": "q", "mode": -1})), ".items[1].mode: must be a file mode from 0 to 0777"),
        ],
    );
    taken("secret", &[item(json!({"key": "l", "path": "p", "mode": 511})), secret(json!({"defaultMode": 0}))]);
    refused("configMap", &[(json!({"name": "c", "items": [{"key": "k"}]}), ".items[0].path: required")]);
    let file = |file: Value| {
        let mut item = json!({"path": "p"});
        item.as_object_mut().unwrap().extend(file.as_object().unwrap().clone());
        json!({"items": [item]})
    };
    let field = |path: &str| file(json!({"fieldRef": {"fieldPath": path}}));
    let resource = |resource: &str, divisor: Value| {
        file(json!({"resourceFieldRef": {"containerName": "c", "resource": resource, "divisor": divisor}}))
    };
    let key = "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name \
               and '/'";
    let fields = "must be metadata.name, metadata.namespace, metadata.labels, metadata.annotations, metadata.uid, \
                  metadata.labels['<key>'] or metadata.annotations['<key>']";
    refused(
        "downwardAPI",
        &[
            (json!({"defaultMode": -1}), ".defaultMode: must be a file mode from 0 to 0777"),
            (file(json!({})), ".items[0]: must have fieldRef or resourceFieldRef"),
            (json!({"items": [{"fieldRef": {"fieldPath": "metadata.uid"}}]}), ".items[0].path: required"),
            (
                file(json!({
                    "fieldRef": {"fieldPath": "metadata.uid"},
                    "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"},
                })),
                ".items[0].resourceFieldRef: may not be set beside fieldRef",
            ),
            (file(json!({"fieldRef": {}})), ".items[0].fieldRef.fieldPath: required"),
            (
                file(json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}})),
                ".items[0].fieldRef.apiVersion: must be v1, not \"v2\"",
            ),
            (field("spec.nodeName"), &format!(".items[0].fieldRef.fieldPath: {fields}, not \"spec.nodeName\"")),
            (field("metadata.labels['']"), &format!(".items[0].fieldRef.fieldPath: the key \"\" {key}")),
            (field("metadata.annotations['a b']"), &format!(".items[0].fieldRef.fieldPath: the key \"a b\" {key}")),
            (
                field("metadata.name['a']"),
                &format!(".items[0].fieldRef.fieldPath: {fields}, not \"metadata.name['a']\""),
            ),
            (
                file(json!({"resourceFieldRef": {"resource": "limits.cpu"}})),
                ".items[0].resourceFieldRef.containerName: required",
            ),
            (resource("", Value::Null), ".items[0].resourceFieldRef.resource: required"),
            (
                resource("limits.x", json!("3")),
                ".items[0].resourceFieldRef.resource: must be limits.cpu, limits.memory, \
                 limits.ephemeral-storage, requests.cpu, requests.memory, requests.ephemeral-storage or hugepages, not \
                 \"limits.x\"",
            ),
            (resource("limits.cpu", json!("01")), ".items[0].resourceFieldRef.divisor: must be 1m or 1, not \"01\""),
            (resource("limits.cpu", json!("2m")), ".items[0].resourceFieldRef.divisor: must be 1m or 1, not \"2m\""),
            (
                resource("requests.hugepages-2Mi", json!("1m")),
                ".items[0].resourceFieldRef.divisor: must be 1 or 1k or 1M or 1G or 1T or 1P or 1E or 1Ki or 1Mi or \
                 1Gi or 1Ti or 1Pi or 1Ei, not \"1m\"",
            ),
        ],
    );
    taken(
        "downwardAPI",
        &[
            field("metadata.labels"),
            field("metadata.labels['a.b/C']"),
            field("metadata.annotations['A.B/c']"),
            resource("limits.cpu", json!("1000m")),
            resource("limits.memory", json!("1024Ki")),
            resource("requests.ephemeral-storage", json!(0)),
            resource("limits.hugepages-1Gi", Value::Null),
        ],
    );
}

#[test]
fn projected_sources() {
    let sources = |sources: Value| json!({"sources": sources});
    let token = |token: Value| sources(json!([{"serviceAccountToken": token}]));
    let key = json!({"name": "n", "items": [{"key": "k", "path": "p"}]});
    let field = json!({"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]});
    refused(
        "projected",
        &[
            (json!({"defaultMode": 512}), ".defaultMode: must be a file mode from 0 to 0777"),
            (sources(json!([{}, {"secret": {}}])), ".sources[1].secret.name: required"),
            (sources(json!([{"configMap": {}}])), ".sources[0].configMap.name: required"),
            (
                sources(json!([{"secret": {"name": "n"}, "configMap": {"name": "n"}}])),
                ".sources[0]: must have only one type",
            ),
            (
                sources(json!([{"configMap": {"name": "n", "items": [{"path": "p"}]}}])),
                ".sources[0].configMap.items[0].key: required",
            ),
            (
                sources(json!([{"secret": key}, {"configMap": key}])),
                ".sources[1].configMap.items[0].path: p is used twice",
            ),
            (
                sources(json!([{"secret": key}, {"downwardAPI": field}])),
                ".sources[1].downwardAPI.items[0].path: p is used twice",
            ),
            (token(json!({})), ".sources[0].serviceAccountToken.path: required"),
            (token(json!({"path": "../t"})), ".sources[0].serviceAccountToken.path: must not contain '..'"),
            (
                token(json!({"path": "t", "expirationSeconds": 599})),
                ".sources[0].serviceAccountToken.expirationSeconds: must be from 600 to 4294967296",
            ),
            (
                token(json!({"path": "t", "expirationSeconds": 4294967297i64})),
                ".sources[0].serviceAccountToken.expirationSeconds: must be from 600 to 4294967296",
            ),
        ],
    );
    taken(
        "projected",
        &[
            json!({}),
            sources(json!([{"secret": key}, {"serviceAccountToken": {"path": "p", "expirationSeconds": null}}])),
            token(json!({"path": "t", "expirationSeconds": 4294967296i64})),
            token(json!({"path": "t", "expirationSeconds": 600})),
            // The API drops what is off by default.
            sources(
                json!([{"clusterTrustBundle": {"path": ""}}, {"podCertificate": {"keyType": "", "signerName": ""}}]),
            ),
        ],
    );
}

#[test]
fn claims_of_ephemeral_volumes() {
    let claim = |metadata: Value, more: Value| {
        let requests = json!({"requests": {"storage": "1Gi"}});
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": requests});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"volumeClaimTemplate": {"metadata": metadata, "spec": spec}})
    };
    let spec = |more: Value| claim(Value::Null, more);
    let storage = |amount: Value| spec(json!({"resources": {"requests": {"storage": amount}}}));
    let source = json!({"kind": "PersistentVolumeClaim", "name": "n"});
    let other = json!({"apiGroup": "g", "kind": "k", "name": "n"});
    let label = "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name and '/'";
    let subdomain =
        "must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit";
    let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "n", "namespace": "o"});
    let cases = [
        (claim(json!({"labels": {"a b": ""}}), json!({})), format!("metadata.labels[a b]: {label}")),
        (claim(json!({"annotations": {"a b": ""}}), json!({})), format!("metadata.annotations[a b]: {label}")),
        (
            claim(json!({"annotations": {"a": "x".repeat(256 * 1024)}}), json!({})),
            "metadata.annotations: must be no more than 256 KiB, keys and values".to_owned(),
        ),
        (claim(json!({"name": "n"}), json!({})), "metadata.name: not allowed in the template of a claim".to_owned()),
        (spec(json!({"accessModes": []})), "spec.accessModes: required".to_owned()),
        (
            spec(json!({"accessModes": ["RWO"]})),
            "spec.accessModes[0]: must be ReadWriteOnce or ReadOnlyMany or ReadWriteMany or ReadWriteOncePod, not \
             \"RWO\""
                .to_owned(),
        ),
        (
            spec(json!({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]})),
            "spec.accessModes: may not have ReadWriteOncePod beside other modes".to_owned(),
        ),
        (
            spec(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            "spec.selector.matchExpressions[0].values: required with In and NotIn".to_owned(),
        ),
        (spec(json!({"resources": {}})), "spec.resources.requests[storage]: required".to_owned()),
        (storage(json!("0")), "spec.resources.requests[storage]: must be more than 0".to_owned()),
        (storage(Value::Null), "spec.resources.requests[storage]: must be more than 0".to_owned()),
        (spec(json!({"storageClassName": "A"})), format!("spec.storageClassName: {subdomain}")),
        (spec(json!({"volumeAttributesClassName": "A"})), format!("spec.volumeAttributesClassName: {subdomain}")),
        (spec(json!({"volumeMode": ""})), "spec.volumeMode: must be Filesystem or Block, not \"\"".to_owned()),
        (spec(json!({"dataSource": {"kind": "PersistentVolumeClaim"}})), "spec.dataSource.name: required".to_owned()),
        (
            spec(json!({"dataSourceRef": {"kind": "x", "name": "n"}})),
            "spec.dataSourceRef.kind: must be PersistentVolumeClaim without an apiGroup".to_owned(),
        ),
        (
            spec(json!({"dataSource": {"apiGroup": "G", "kind": "x", "name": "n"}})),
            format!("spec.dataSource.apiGroup: {subdomain}"),
        ),
        (
            spec(json!({"dataSource": source, "dataSourceRef": other})),
            "spec.dataSource: must be the same as dataSourceRef".to_owned(),
        ),
        (
            spec(json!({"dataSource": source, "dataSourceRef": elsewhere})),
            "spec.dataSource: may not be set beside dataSourceRef.namespace".to_owned(),
        ),
    ];
    for (volume, expected) in cases {
        refused("ephemeral", &[(volume, &format!(".volumeClaimTemplate.{expected}"))]);
    }
    taken(
        "ephemeral",
        &[
            claim(json!({"labels": {"a": "b"}, "name": "", "creationTimestamp": null, "generation": 0}), json!({})),
            spec(json!({"accessModes": ["ReadWriteOncePod"], "volumeMode": "Block", "storageClassName": ""})),
            spec(json!({"dataSource": other, "dataSourceRef": other})),
            storage(json!("1m")),
        ],
    );
}
