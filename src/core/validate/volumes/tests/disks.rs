//! Disks of the cloud and of other machines.

use super::*;

#[test]
fn disks_of_the_cloud() {
    for (kind, id) in [("gcePersistentDisk", "pdName"), ("awsElasticBlockStore", "volumeID")] {
        let partition = ".partition: must be a number from 0 to 255";
        refused(
            kind,
            &[(json!({id: "x", "partition": 256}), partition), (json!({id: "x", "partition": -1}), partition)],
        );
        taken(kind, &[json!({id: "x"}), json!({id: "x", "partition": 255})]);
    }
    refused("nfs", &[(json!({"server": "s", "path": "a"}), ".path: must be an absolute path")]);
    taken("nfs", &[json!({"server": "s", "path": "/"})]);
    for (kind, id, field) in [("cinder", "volumeID", "secretRef"), ("csi", "driver", "nodePublishSecretRef")] {
        refused(kind, &[(json!({id: "x", field: {}}), &format!(".{field}.name: required"))]);
        taken(kind, &[json!({id: "x"}), json!({id: "X.y", field: {"name": "s"}})]);
    }
    let name = "must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit";
    refused(
        "csi",
        &[
            (json!({"driver": "a_b"}), &format!(".driver: {name}")),
            (json!({"driver": "a".repeat(64)}), ".driver: must be no more than 63 bytes"),
            (
                json!({"driver": "d", "nodePublishSecretRef": {"name": "S"}}),
                &format!(".nodePublishSecretRef.name: {name}"),
            ),
        ],
    );
    let disk = |kind: Value, uri: &str| json!({"diskName": "d", "diskURI": uri, "kind": kind});
    let uri = ".diskURI: must start with /subscriptions/ if kind is Managed, else with https://";
    refused(
        "azureDisk",
        &[
            (disk(json!("Managed"), "https://d"), uri),
            (disk(Value::Null, "/subscriptions/d"), uri),
            (disk(json!(""), "https://d"), ".kind: must be Shared or Dedicated or Managed, not \"\""),
            (
                json!({"diskName": "d", "diskURI": "https://d", "cachingMode": "x"}),
                ".cachingMode: must be None or ReadOnly or ReadWrite, not \"x\"",
            ),
        ],
    );
    taken("azureDisk", &[disk(json!("Managed"), "/subscriptions/d"), disk(Value::Null, "https://d")]);
}

#[test]
fn disks_of_other_machines() {
    let iscsi = |iqn: &str, more: Value| {
        let mut iscsi = json!({"targetPortal": "p", "iqn": iqn, "lun": 255});
        iscsi.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        iscsi
    };
    const IQN: &str = "iqn.2001-04.com.example:a";
    let name = ".iqn: must be an iSCSI name that starts with iqn., eui. or naa.";
    for bad in ["x", "iqn.2001-4.a:b", "iqn.2001-04.a", "iqn.2001-04.:b", "iqn.2001-04.a:b c", "eui.1", "naa.1", "é"] {
        refused("iscsi", &[(iscsi(bad, json!({})), name)]);
    }
    let (eui, naa) = (format!("eui.{}", "0".repeat(16)), format!("naa.{}", "a".repeat(32)));
    taken("iscsi", &[IQN, "iqn iqn.2001-04.a:b", &eui, &naa].map(|name| iscsi(name, json!({}))));
    refused(
        "iscsi",
        &[
            (iscsi(IQN, json!({"lun": 256})), ".lun: must be a number from 0 to 255"),
            (iscsi(IQN, json!({"chapAuthSession": true})), ".secretRef: required"),
            (
                iscsi(IQN, json!({"initiatorName": ""})),
                ".initiatorName: must be an iSCSI name that starts with iqn., eui. or naa.",
            ),
            (
                iscsi(IQN, json!({"initiatorName": eui, "targetPortal": "p".repeat(63)})),
                ".targetPortal: must, with the volume's name, be no more than 63 bytes beside initiatorName",
            ),
        ],
    );
    taken(
        "iscsi",
        &[
            iscsi(IQN, json!({"initiatorName": eui, "targetPortal": "p".repeat(62)})),
            iscsi(IQN, json!({"targetPortal": "p".repeat(63), "chapAuthSession": true, "secretRef": {}})),
        ],
    );
    refused(
        "fc",
        &[
            (json!({}), ": must have targetWWNs or wwids"),
            (json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 0}), ".wwids: may not be set beside targetWWNs"),
            (json!({"targetWWNs": ["a"]}), ".lun: required"),
            (json!({"targetWWNs": ["a"], "lun": 256}), ".lun: must be a number from 0 to 255"),
        ],
    );
    taken("fc", &[json!({"wwids": ["b"]}), json!({"targetWWNs": ["a"], "lun": 0})]);
    refused(
        "flocker",
        &[
            (json!({}), ": must have datasetName or datasetUUID"),
            (json!({"datasetName": "a", "datasetUUID": "b"}), ".datasetUUID: may not be set beside datasetName"),
            (json!({"datasetName": "a/b"}), ".datasetName: must not contain '/'"),
        ],
    );
    taken("flocker", &[json!({"datasetName": "a"}), json!({"datasetUUID": "a/b"})]);
    let quobyte =
        |registry: &str, tenant: usize| json!({"registry": registry, "volume": "v", "tenant": "t".repeat(tenant)});
    let pairs = ".registry: must be host:port, several separated by commas";
    for bad in ["h", "h:1,", "::1", "[::1]", "[::1]1:2", "[h:1", "h]:1"] {
        refused("quobyte", &[(quobyte(bad, 0), pairs)]);
    }
    refused("quobyte", &[(quobyte("h:1", 65), ".tenant: must be no more than 64 bytes")]);
    taken("quobyte", &[quobyte("h:1,[::1]:2,:", 64)]);
    let flex = |key: &str| json!({"driver": "d", "options": {key: "x"}});
    for key in ["kubernetes.io/a", "A.K8S.io", "k8s.io"] {
        refused("flexVolume", &[(flex(key), &format!(".options[{key}]: kubernetes.io and k8s.io are reserved"))]);
    }
    taken("flexVolume", &[flex("a/k8s.io"), flex("ak8s.io")]);
    let label = "must be lower case letters, digits and '-', beginning and ending with a letter or digit";
    refused(
        "storageos",
        &[
            (json!({"volumeName": "a.b"}), &format!(".volumeName: {label}")),
            (json!({"volumeName": "a", "volumeNamespace": "B"}), &format!(".volumeNamespace: {label}")),
            (json!({"volumeName": "a", "secretRef": {}}), ".secretRef.name: required"),
        ],
    );
    taken("storageos", &[json!({"volumeName": "a", "volumeNamespace": "", "secretRef": {"name": "S"}})]);
}
