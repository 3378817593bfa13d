//! What the API server does to the fields of a pod template, as a table.
//!
//! Owns facts of `k8s.io/api/core/v1/types.go` (1.36: which fields are plain values that `omitempty`
//! drops, which are pointers whose zero value means something) and of the defaults that apps/v1 puts
//! into a template (`pkg/apis/apps/v1/zz_generated.defaults.go`, `pkg/apis/core/v1/defaults.go`).
//! A field that is not here is kept as written: pointers to scalars, and what is newer than this table.

use FieldRule::*;

/// How one field is brought to its canonical form.
#[derive(Clone, Copy)]
pub(super) enum FieldRule {
    /// A scalar whose zero value (`""`, `0`, `false`) is the same as absence.
    Zero,
    /// A string: empty and this default are absence.
    Text(&'static str),
    /// A number: 0 and this default are absence.
    Number(i64),
    /// A pointer to a number: this default is absence, 0 is not.
    Exactly(i64),
    /// A pointer to a boolean: `true` is absence.
    True,
    /// Set by the server; never part of a template.
    Never,
    /// A list of strings: empty is absence, a null element is `""`.
    Plain,
    /// A list of numbers: empty is absence, a null element is 0.
    Numbers,
    /// A map of strings: empty is absence, a null value is `""`.
    Strings,
    /// A ResourceList: canonical, rounded up to thousandths; empty is absence.
    Quantities,
    /// A pointer to a quantity.
    Quantity,
    /// A quantity whose zero is absence.
    NonZeroQuantity,
    /// A list of structures; empty is absence, elements stay, a null element is an empty structure.
    List(&'static StructSchema),
    /// A structure; empty is absence.
    Object(&'static StructSchema),
    /// A pointer to a structure; empty is not absence.
    Pointer(&'static StructSchema),
}

/// A structure of the API.
pub(super) struct StructSchema {
    /// Fields of [`FieldRule::Zero`].
    zero: &'static [&'static str],
    /// The others.
    fields: &'static [(&'static str, FieldRule)],
}

impl StructSchema {
    /// The rule of the field `name`; `None`: kept as written.
    pub(super) fn rule(&self, name: &str) -> Option<FieldRule> {
        if self.zero.contains(&name) {
            return Some(Zero);
        }
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, rule)| *rule)
    }
}

macro_rules! shapes {
    ($($name:ident { [$($zero:tt)*] $($field:tt: $rule:expr),* $(,)? })*) => {
        $(pub(super) static $name: StructSchema = StructSchema {
            zero: &[$(stringify!($zero)),*],
            fields: &[$((stringify!($field), $rule)),*],
        };)*
    };
}

// NAME { [fields whose zero value is absence] field: rule, … }
shapes! {
    POD_TEMPLATE { [] metadata: Object(&OBJECT_META), spec: Object(&POD_SPEC) }
    OBJECT_META {
        [name generateName namespace selfLink uid resourceVersion generation]
        creationTimestamp: Never, labels: Strings, annotations: Strings, finalizers: Plain,
        ownerReferences: Plain, managedFields: Never,
    }
    LABEL_SELECTOR { [] matchLabels: Strings, matchExpressions: List(&NODE_SELECTOR_REQUIREMENT) }
    POD_SPEC {
        [serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC hostname subdomain
         priorityClassName]
        volumes: List(&VOLUME), initContainers: List(&CONTAINER), containers: List(&CONTAINER),
        nodeSelector: Strings,
        securityContext: Pointer(&POD_SECURITY_CONTEXT), imagePullSecrets: List(&NAME),
        affinity: Pointer(&AFFINITY), tolerations: List(&TOLERATION), hostAliases: List(&HOST_ALIAS),
        dnsConfig: Pointer(&POD_DNS_CONFIG), readinessGates: List(&POD_READINESS_GATE), overhead: Quantities,
        topologySpreadConstraints: List(&TOPOLOGY_SPREAD_CONSTRAINT), os: Pointer(&NAME),
        schedulingGates: List(&NAME), resourceClaims: List(&NAME), resources: Pointer(&RESOURCE_REQUIREMENTS),
        restartPolicy: Text("Always"), dnsPolicy: Text("ClusterFirst"),
        schedulerName: Text("default-scheduler"), terminationGracePeriodSeconds: Exactly(30),
        enableServiceLinks: True,
    }
    VOLUME {
        [name]
        hostPath: Pointer(&HOST_PATH_SOURCE), emptyDir: Pointer(&EMPTY_DIR_SOURCE),
        gcePersistentDisk: Pointer(&GCE_PERSISTENT_DISK_SOURCE),
        awsElasticBlockStore: Pointer(&AWS_ELASTIC_BLOCK_STORE_SOURCE), gitRepo: Pointer(&GIT_REPO_SOURCE),
        secret: Pointer(&SECRET_SOURCE), nfs: Pointer(&NFS_SOURCE), iscsi: Pointer(&ISCSI_SOURCE),
        glusterfs: Pointer(&GLUSTERFS_SOURCE), persistentVolumeClaim: Pointer(&PERSISTENT_VOLUME_CLAIM_SOURCE),
        rbd: Pointer(&RBD_SOURCE), flexVolume: Pointer(&FLEX_SOURCE), cinder: Pointer(&CINDER_SOURCE),
        cephfs: Pointer(&CEPH_FS_SOURCE), flocker: Pointer(&FLOCKER_SOURCE),
        downwardAPI: Pointer(&DOWNWARD_API_SOURCE), fc: Pointer(&FC_SOURCE),
        azureFile: Pointer(&AZURE_FILE_SOURCE), configMap: Pointer(&CONFIG_MAP_SOURCE),
        vsphereVolume: Pointer(&VSPHERE_VIRTUAL_DISK_SOURCE), quobyte: Pointer(&QUOBYTE_SOURCE),
        azureDisk: Pointer(&AZURE_DISK_SOURCE), photonPersistentDisk: Pointer(&PHOTON_PERSISTENT_DISK_SOURCE),
        projected: Pointer(&PROJECTED_SOURCE), portworxVolume: Pointer(&PORTWORX_SOURCE),
        scaleIO: Pointer(&SCALE_IO_SOURCE), storageos: Pointer(&STORAGE_OS_SOURCE), csi: Pointer(&CSI_SOURCE),
        ephemeral: Pointer(&EPHEMERAL_SOURCE), image: Pointer(&IMAGE_SOURCE),
    }
    HOST_PATH_SOURCE { [path] type: Zero }
    EMPTY_DIR_SOURCE { [medium] sizeLimit: Quantity }
    GCE_PERSISTENT_DISK_SOURCE { [pdName fsType partition readOnly] }
    AWS_ELASTIC_BLOCK_STORE_SOURCE { [volumeID fsType partition readOnly] }
    GIT_REPO_SOURCE { [repository revision directory] }
    SECRET_SOURCE { [secretName] items: List(&KEY_TO_PATH), defaultMode: Exactly(0o644) }
    KEY_TO_PATH { [key path] }
    NFS_SOURCE { [server path readOnly] }
    ISCSI_SOURCE {
        [targetPortal iqn lun fsType readOnly chapAuthDiscovery chapAuthSession]
        portals: Plain, secretRef: Pointer(&NAME), iscsiInterface: Text("default"),
    }
    NAME { [name] }
    GLUSTERFS_SOURCE { [endpoints path readOnly] }
    PERSISTENT_VOLUME_CLAIM_SOURCE { [claimName readOnly] }
    RBD_SOURCE {
        [image fsType readOnly]
        monitors: Plain, secretRef: Pointer(&NAME), pool: Text("rbd"), user: Text("admin"),
        keyring: Text("/etc/ceph/keyring"),
    }
    FLEX_SOURCE { [driver fsType readOnly] secretRef: Pointer(&NAME), options: Strings }
    CINDER_SOURCE { [volumeID fsType readOnly] secretRef: Pointer(&NAME) }
    CEPH_FS_SOURCE { [path user secretFile readOnly] monitors: Plain, secretRef: Pointer(&NAME) }
    FLOCKER_SOURCE { [datasetName datasetUUID] }
    DOWNWARD_API_SOURCE { [] items: List(&DOWNWARD_API_VOLUME_FILE), defaultMode: Exactly(0o644) }
    DOWNWARD_API_VOLUME_FILE {
        [path]
        fieldRef: Pointer(&OBJECT_FIELD_SELECTOR), resourceFieldRef: Pointer(&RESOURCE_FIELD_SELECTOR),
    }
    OBJECT_FIELD_SELECTOR { [fieldPath] apiVersion: Text("v1") }
    RESOURCE_FIELD_SELECTOR { [containerName resource] divisor: NonZeroQuantity }
    FC_SOURCE { [fsType readOnly] targetWWNs: Plain, wwids: Plain }
    AZURE_FILE_SOURCE { [secretName shareName readOnly] }
    CONFIG_MAP_SOURCE { [name] items: List(&KEY_TO_PATH), defaultMode: Exactly(0o644) }
    VSPHERE_VIRTUAL_DISK_SOURCE { [volumePath fsType storagePolicyName storagePolicyID] }
    QUOBYTE_SOURCE { [registry volume readOnly user group tenant] }
    AZURE_DISK_SOURCE {
        [diskName diskURI]
        cachingMode: Text("ReadWrite"), fsType: Text("ext4"), readOnly: Zero, kind: Text("Shared"),
    }
    PHOTON_PERSISTENT_DISK_SOURCE { [pdID fsType] }
    PROJECTED_SOURCE { [] sources: List(&VOLUME_PROJECTION), defaultMode: Exactly(0o644) }
    VOLUME_PROJECTION {
        []
        secret: Pointer(&SECRET_PROJECTION), downwardAPI: Pointer(&DOWNWARD_API_PROJECTION),
        configMap: Pointer(&SECRET_PROJECTION), serviceAccountToken: Pointer(&SERVICE_ACCOUNT_TOKEN_PROJECTION),
        clusterTrustBundle: Pointer(&CLUSTER_TRUST_BUNDLE_PROJECTION),
        podCertificate: Pointer(&POD_CERTIFICATE_PROJECTION),
    }
    SECRET_PROJECTION { [name] items: List(&KEY_TO_PATH) }
    DOWNWARD_API_PROJECTION { [] items: List(&DOWNWARD_API_VOLUME_FILE) }
    SERVICE_ACCOUNT_TOKEN_PROJECTION { [audience path] expirationSeconds: Exactly(3600) }
    CLUSTER_TRUST_BUNDLE_PROJECTION { [path] labelSelector: Pointer(&LABEL_SELECTOR) }
    POD_CERTIFICATE_PROJECTION {
        [signerName keyType credentialBundlePath keyPath certificateChainPath]
        userAnnotations: Strings,
    }
    PORTWORX_SOURCE { [volumeID fsType readOnly] }
    SCALE_IO_SOURCE {
        [gateway system sslEnabled protectionDomain storagePool volumeName readOnly]
        secretRef: Pointer(&NAME), storageMode: Text("ThinProvisioned"), fsType: Text("xfs"),
    }
    STORAGE_OS_SOURCE { [volumeName volumeNamespace fsType readOnly] secretRef: Pointer(&NAME) }
    CSI_SOURCE { [driver] volumeAttributes: Strings, nodePublishSecretRef: Pointer(&NAME) }
    EPHEMERAL_SOURCE { [] volumeClaimTemplate: Pointer(&PERSISTENT_VOLUME_CLAIM_TEMPLATE) }
    PERSISTENT_VOLUME_CLAIM_TEMPLATE {
        []
        metadata: Object(&OBJECT_META), spec: Object(&PERSISTENT_VOLUME_CLAIM_SPEC),
    }
    PERSISTENT_VOLUME_CLAIM_SPEC {
        [volumeName]
        accessModes: Plain, selector: Pointer(&LABEL_SELECTOR),
        resources: Object(&VOLUME_RESOURCE_REQUIREMENTS), dataSource: Pointer(&TYPED_LOCAL_OBJECT_REFERENCE),
        dataSourceRef: Pointer(&TYPED_LOCAL_OBJECT_REFERENCE), volumeMode: Text("Filesystem"),
    }
    VOLUME_RESOURCE_REQUIREMENTS { [] limits: Quantities, requests: Quantities }
    TYPED_LOCAL_OBJECT_REFERENCE { [kind name] }
    IMAGE_SOURCE { [reference pullPolicy] }
    CONTAINER {
        [name image workingDir imagePullPolicy stdin stdinOnce tty]
        command: Plain, args: Plain, ports: List(&CONTAINER_PORT), envFrom: List(&ENV_FROM_SOURCE),
        env: List(&ENV_VAR), resources: Object(&RESOURCE_REQUIREMENTS),
        resizePolicy: List(&CONTAINER_RESIZE_POLICY), restartPolicyRules: List(&CONTAINER_RESTART_RULE),
        volumeMounts: List(&VOLUME_MOUNT), volumeDevices: List(&VOLUME_DEVICE), livenessProbe: Pointer(&PROBE),
        readinessProbe: Pointer(&PROBE), startupProbe: Pointer(&PROBE), lifecycle: Pointer(&LIFECYCLE),
        securityContext: Pointer(&SECURITY_CONTEXT), terminationMessagePath: Text("/dev/termination-log"),
        terminationMessagePolicy: Text("File"),
    }
    CONTAINER_PORT { [name hostPort containerPort hostIP] protocol: Text("TCP") }
    ENV_FROM_SOURCE { [prefix] configMapRef: Pointer(&NAME), secretRef: Pointer(&NAME) }
    ENV_VAR { [name value] valueFrom: Pointer(&ENV_VAR_SOURCE) }
    ENV_VAR_SOURCE {
        []
        fieldRef: Pointer(&OBJECT_FIELD_SELECTOR), resourceFieldRef: Pointer(&RESOURCE_FIELD_SELECTOR),
        configMapKeyRef: Pointer(&CONFIG_MAP_KEY_SELECTOR), secretKeyRef: Pointer(&CONFIG_MAP_KEY_SELECTOR),
        fileKeyRef: Pointer(&FILE_KEY_SELECTOR),
    }
    CONFIG_MAP_KEY_SELECTOR { [name key] }
    FILE_KEY_SELECTOR { [volumeName path key] optional: Zero }
    RESOURCE_REQUIREMENTS { [] limits: Quantities, requests: Quantities, claims: List(&RESOURCE_CLAIM) }
    RESOURCE_CLAIM { [name request] }
    CONTAINER_RESIZE_POLICY { [resourceName restartPolicy] }
    CONTAINER_RESTART_RULE { [action] exitCodes: Pointer(&CONTAINER_RESTART_RULE_ON_EXIT_CODES) }
    CONTAINER_RESTART_RULE_ON_EXIT_CODES { [operator] values: Numbers }
    VOLUME_MOUNT { [name readOnly mountPath subPath subPathExpr] }
    VOLUME_DEVICE { [name devicePath] }
    PROBE {
        [initialDelaySeconds]
        exec: Pointer(&EXEC_ACTION), httpGet: Pointer(&HTTP_GET_ACTION), tcpSocket: Pointer(&TCP_SOCKET_ACTION),
        grpc: Pointer(&GRPC_ACTION), timeoutSeconds: Number(1), periodSeconds: Number(10),
        successThreshold: Number(1), failureThreshold: Number(3),
    }
    EXEC_ACTION { [] command: Plain }
    HTTP_GET_ACTION { [host] httpHeaders: List(&HTTP_HEADER), path: Text("/"), scheme: Text("HTTP") }
    HTTP_HEADER { [name value] }
    TCP_SOCKET_ACTION { [host] }
    GRPC_ACTION { [port] service: Zero }
    LIFECYCLE { [] postStart: Pointer(&LIFECYCLE_HANDLER), preStop: Pointer(&LIFECYCLE_HANDLER) }
    LIFECYCLE_HANDLER {
        []
        exec: Pointer(&EXEC_ACTION), httpGet: Pointer(&HTTP_GET_ACTION), tcpSocket: Pointer(&TCP_SOCKET_ACTION),
        sleep: Pointer(&SLEEP_ACTION),
    }
    SLEEP_ACTION { [seconds] }
    SECURITY_CONTEXT {
        []
        capabilities: Pointer(&CAPABILITIES), seLinuxOptions: Pointer(&SE_LINUX_OPTIONS),
        seccompProfile: Pointer(&SECCOMP_PROFILE), appArmorProfile: Pointer(&SECCOMP_PROFILE),
    }
    CAPABILITIES { [] add: Plain, drop: Plain }
    SE_LINUX_OPTIONS { [user role type level] }
    SECCOMP_PROFILE { [type] }
    POD_SECURITY_CONTEXT {
        []
        seLinuxOptions: Pointer(&SE_LINUX_OPTIONS), supplementalGroups: Numbers, sysctls: List(&HTTP_HEADER),
        seccompProfile: Pointer(&SECCOMP_PROFILE), appArmorProfile: Pointer(&SECCOMP_PROFILE),
    }
    AFFINITY {
        []
        nodeAffinity: Pointer(&NODE_AFFINITY), podAffinity: Pointer(&POD_AFFINITY),
        podAntiAffinity: Pointer(&POD_AFFINITY),
    }
    NODE_AFFINITY {
        []
        requiredDuringSchedulingIgnoredDuringExecution: Pointer(&NODE_SELECTOR),
        preferredDuringSchedulingIgnoredDuringExecution: List(&PREFERRED_SCHEDULING_TERM),
    }
    NODE_SELECTOR { [] nodeSelectorTerms: List(&NODE_SELECTOR_TERM) }
    NODE_SELECTOR_TERM {
        []
        matchExpressions: List(&NODE_SELECTOR_REQUIREMENT), matchFields: List(&NODE_SELECTOR_REQUIREMENT),
    }
    NODE_SELECTOR_REQUIREMENT { [key operator] values: Plain }
    PREFERRED_SCHEDULING_TERM { [weight] preference: Object(&NODE_SELECTOR_TERM) }
    POD_AFFINITY {
        []
        requiredDuringSchedulingIgnoredDuringExecution: List(&POD_AFFINITY_TERM),
        preferredDuringSchedulingIgnoredDuringExecution: List(&WEIGHTED_POD_AFFINITY_TERM),
    }
    POD_AFFINITY_TERM {
        [topologyKey]
        labelSelector: Pointer(&LABEL_SELECTOR), namespaces: Plain, namespaceSelector: Pointer(&LABEL_SELECTOR),
        matchLabelKeys: Plain, mismatchLabelKeys: Plain,
    }
    WEIGHTED_POD_AFFINITY_TERM { [weight] podAffinityTerm: Object(&POD_AFFINITY_TERM) }
    TOLERATION { [key operator value effect] }
    HOST_ALIAS { [ip] hostnames: Plain }
    POD_DNS_CONFIG { [] nameservers: Plain, searches: Plain, options: List(&NAME) }
    POD_READINESS_GATE { [conditionType] }
    TOPOLOGY_SPREAD_CONSTRAINT {
        [maxSkew topologyKey whenUnsatisfiable]
        labelSelector: Pointer(&LABEL_SELECTOR), matchLabelKeys: Plain,
    }
}
