//! Mutations of a DaemonSet: one or two fields, chosen by a number that names them all.

use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

/// Fields that take a value of their own on top of what a document has: the end of the path to their parent, then
/// what to put there. An empty end is the pod's spec.
const MORE: &[(&str, &str, &str)] = &[
    ("", "hostNetwork", "true"),
    ("", "hostPID", "true"),
    ("", "hostIPC", "true"),
    ("", "hostUsers", "false"),
    ("", "os", r#"{"name": "windows"}"#),
    ("", "os", r#"{"name": "linux"}"#),
    ("", "os", r#"{"name": "plan9"}"#),
    ("", "shareProcessNamespace", "true"),
    ("", "setHostnameAsFQDN", "true"),
    ("", "hostname", r#""a.b""#),
    ("", "hostname", r#""host""#),
    ("", "subdomain", r#""Sub""#),
    ("", "hostnameOverride", r#""other.example.com""#),
    ("", "dnsPolicy", r#""None""#),
    ("", "dnsConfig", r#"{"searches": ["a.b", "-x"]}"#),
    ("", "dnsConfig", r#"{"nameservers": ["a"]}"#),
    ("", "restartPolicy", r#""Never""#),
    ("", "activeDeadlineSeconds", "5"),
    ("", "terminationGracePeriodSeconds", "-1"),
    ("", "terminationGracePeriodSeconds", "0"),
    ("", "nodeName", r#""node-1""#),
    ("", "nodeName", r#""Node_1""#),
    ("", "priority", "7"),
    ("", "priorityClassName", r#""A b""#),
    ("", "preemptionPolicy", r#""Sometimes""#),
    ("", "runtimeClassName", r#""Not valid""#),
    ("", "schedulerName", r#""my-scheduler""#),
    ("", "serviceAccountName", r#""not a name""#),
    ("", "serviceAccount", r#""legacy""#),
    ("", "enableServiceLinks", "true"),
    ("", "schedulingGates", r#"[{"name": "example.com/gate"}]"#),
    ("", "schedulingGates", r#"[{"name": "bad gate"}]"#),
    ("", "readinessGates", r#"[{"conditionType": "bad gate!"}]"#),
    ("", "resourceClaims", r#"[{"name": "gpu", "resourceClaimName": "gpu"}]"#),
    ("", "ephemeralContainers", r#"[{"name": "debug", "image": "busybox"}]"#),
    ("", "imagePullSecrets", r#"[{"name": ""}]"#),
    ("", "imagePullSecrets", r#"[{"name": "a b"}]"#),
    ("", "hostAliases", r#"[{"ip": "1.2.3.400", "hostnames": ["a"]}]"#),
    ("", "hostAliases", r#"[{"ip": "1.2.3.4", "hostnames": ["A_b"]}]"#),
    ("", "overhead", r#"{"cpu": "10m"}"#),
    ("", "overhead", r#"{"example": "1"}"#),
    ("", "resources", r#"{"requests": {"cpu": "1"}}"#),
    ("", "tolerations", r#"[{"key": "a", "operator": "Equal", "effect": "Later"}]"#),
    ("", "tolerations", r#"[{"key": "a b", "operator": "Exists"}]"#),
    ("", "tolerations", r#"[{"key": "a", "operator": "Exists", "value": "x"}]"#),
    ("", "tolerations", r#"[{"key": "a", "operator": "Gt", "value": "1", "effect": "NoSchedule"}]"#),
    ("", "tolerations", r#"[{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]"#),
    (
        "",
        "topologySpreadConstraints",
        r#"[{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]"#,
    ),
    ("", "securityContext", r#"{"runAsUser": -1}"#),
    ("", "securityContext", r#"{"fsGroup": 4294967296}"#),
    ("", "securityContext", r#"{"windowsOptions": {"hostProcess": true}}"#),
    ("", "securityContext", r#"{"windowsOptions": {"runAsUserName": "x"}}"#),
    ("", "securityContext", r#"{"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}"#),
    ("", "securityContext", r#"{"sysctls": [{"name": "a b", "value": "1"}]}"#),
    ("", "securityContext", r#"{"seLinuxChangePolicy": "Recursive"}"#),
    ("", "securityContext", r#"{"seLinuxChangePolicy": "Wrong"}"#),
    ("", "securityContext", r#"{"seccompProfile": {"type": "Localhost"}}"#),
    ("", "securityContext", r#"{"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}"#),
    ("", "securityContext", r#"{"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}}"#),
    ("/containers/*", "restartPolicy", r#""Always""#),
    ("/containers/*", "restartPolicy", r#""Never""#),
    (
        "/containers/*",
        "restartPolicyRules",
        r#"[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]"#,
    ),
    ("/initContainers/*", "restartPolicy", r#""Never""#),
    ("/initContainers/*", "livenessProbe", r#"{"exec": {"command": ["a"]}}"#),
    ("/initContainers/*", "lifecycle", r#"{"postStart": {"exec": {"command": ["a"]}}}"#),
    ("/initContainers/*", "ports", r#"[{"containerPort": 9090, "hostPort": 9090}]"#),
    ("/initContainers/*", "resizePolicy", r#"[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]"#),
    ("/containers/*", "terminationMessagePolicy", r#""Never""#),
    ("/containers/*", "image", r#""UPPER/Case:!""#),
    ("/containers/*", "resources", r#"{"limits": {"foo": 1}}"#),
    ("/containers/*", "resources", r#"{"limits": {"example.com/x": "0.5"}}"#),
    ("/containers/*", "resources", r#"{"requests": {"example.com/x": 1}}"#),
    ("/containers/*", "resources", r#"{"requests": {"example.com/x": 1}, "limits": {"example.com/x": 2}}"#),
    ("/containers/*", "resources", r#"{"limits": {"hugepages-2Mi": "3Mi"}}"#),
    ("/containers/*", "resources", r#"{"limits": {"hugepages-2Mi": "4Mi"}}"#),
    ("/containers/*", "resources", r#"{"limits": {"hugepages-x": "4Mi", "cpu": 1}}"#),
    ("/containers/*", "resources", r#"{"limits": {"requests.cpu": "1"}}"#),
    ("/containers/*", "resources", r#"{"claims": [{"name": "gpu"}]}"#),
    ("/containers/*", "resources", r#"{"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}"#),
    ("/containers/*", "resources", r#"{"requests": {"memory": "-1"}}"#),
    ("/containers/*", "resources", r#"{"requests": {"memory": "0.0001"}}"#),
    ("/containers/*", "resizePolicy", r#"[{"resourceName": "disk", "restartPolicy": "NotRequired"}]"#),
    ("/containers/*", "lifecycle", r#"{"stopSignal": "SIGUSR1"}"#),
    ("/containers/*", "lifecycle", r#"{"preStop": {"sleep": {"seconds": 31}}}"#),
    ("/containers/*", "lifecycle", r#"{"preStop": {"sleep": {"seconds": 0}}}"#),
    ("/containers/*", "lifecycle", r#"{"preStop": {}}"#),
    ("/containers/*", "lifecycle", r#"{"preStop": {"tcpSocket": {"port": 1}}}"#),
    ("/containers/*", "livenessProbe", r#"{"httpGet": {"path": "/"}}"#),
    ("/containers/*", "livenessProbe", r#"{"httpGet": {"port": "No Name"}}"#),
    ("/containers/*", "livenessProbe", r#"{"exec": {}}"#),
    ("/containers/*", "livenessProbe", r#"{"exec": {"command": ["a"]}, "successThreshold": 2}"#),
    ("/containers/*", "livenessProbe", r#"{"grpc": {"port": 0}}"#),
    ("/containers/*", "startupProbe", r#"{"exec": {"command": ["a"]}, "successThreshold": 2}"#),
    ("/containers/*", "readinessProbe", r#"{"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 2}"#),
    ("/containers/*", "readinessProbe", r#"{"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}"#),
    ("/containers/*", "securityContext", r#"{"privileged": true, "allowPrivilegeEscalation": false}"#),
    (
        "/containers/*",
        "securityContext",
        r#"{"allowPrivilegeEscalation": false, "capabilities": {"add": ["SYS_ADMIN"]}}"#,
    ),
    (
        "/containers/*",
        "securityContext",
        r#"{"allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}"#,
    ),
    ("/containers/*", "securityContext", r#"{"procMount": "Unmasked"}"#),
    ("/containers/*", "securityContext", r#"{"procMount": "Masked"}"#),
    ("/containers/*", "securityContext", r#"{"windowsOptions": {"gmsaCredentialSpecName": "A B"}}"#),
    ("/containers/*", "securityContext", r#"{"windowsOptions": {"hostProcess": true}}"#),
    ("/containers/*", "securityContext", r#"{"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}}"#),
    ("/containers/*", "volumeDevices", r#"[{"name": "scratch", "devicePath": "/dev/x"}]"#),
    ("/containers/*", "volumeDevices", r#"[{"name": "none", "devicePath": "../x"}]"#),
    (
        "/containers/*",
        "env",
        r#"[{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]"#,
    ),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]"#),
    (
        "/containers/*",
        "env",
        r#"[{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}}]"#,
    ),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIPs"}}}]"#),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]"#),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]"#),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.disk"}}}]"#),
    (
        "/containers/*",
        "env",
        r#"[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]"#,
    ),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]"#),
    ("/containers/*", "env", r#"[{"name": "A", "valueFrom": {"configMapKeyRef": {"key": "k"}}}]"#),
    ("/containers/*", "env", r#"[{"name": "A=B", "value": "c"}]"#),
    ("/containers/*", "env", r#"[{"name": "1.a-b", "value": "c"}, {"name": "1.a-b", "value": "d"}]"#),
    ("/containers/*", "envFrom", r#"[{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]"#),
    ("/containers/*", "envFrom", r#"[{"prefix": "a b=", "configMapRef": {"name": "a"}}]"#),
    ("/containers/*", "envFrom", r#"[{}]"#),
    ("/containers/*", "ports", r#"[{"containerPort": 80, "name": "UPPER"}]"#),
    ("/containers/*", "ports", r#"[{"containerPort": 80, "hostIP": "x"}]"#),
    ("/containers/*", "ports", r#"[{"containerPort": 80, "protocol": "ICMP"}]"#),
    ("/containers/*", "ports", r#"[{"containerPort": 80, "hostPort": 81}]"#),
    ("/containers/*", "volumeMounts", r#"[{"name": "scratch", "mountPath": "a:b"}]"#),
    ("/containers/*", "volumeMounts", r#"[{"name": "scratch", "mountPath": "/a", "mountPropagation": "Both"}]"#),
    ("/containers/*", "volumeMounts", r#"[{"name": "scratch", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]"#),
    (
        "/containers/*",
        "volumeMounts",
        r#"[{"name": "scratch", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "Enabled"}]"#,
    ),
    ("/volumes/*", "emptyDir", "{}"),
    ("/volumes/*", "emptyDir", r#"{"medium": "Disk"}"#),
    ("/volumes/*", "emptyDir", r#"{"sizeLimit": "-1"}"#),
    ("/volumes/*", "hostPath", r#"{"path": "/a/../b"}"#),
    ("/volumes/*", "hostPath", r#"{"path": "/a", "type": "Folder"}"#),
    ("/volumes/*", "persistentVolumeClaim", r#"{"claimName": "a"}"#),
    ("/volumes/*", "ephemeral", r#"{"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}"#),
    ("/volumes/*", "csi", r#"{"driver": "csi.example.com"}"#),
    ("/volumes/*", "gitRepo", r#"{"repository": "https://example.com/a.git"}"#),
    ("/volumes/*", "nfs", r#"{"server": "a", "path": "b"}"#),
];

/// What a text may be replaced by, whatever it was.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "a b",
    "a/b",
    "/a",
    "../a",
    "a/../b",
    "..a",
    ".",
    "-a",
    "a-",
    "a_b",
    "a.b",
    "0",
    "-1",
    "1",
    "1.5",
    "1m",
    "10Gi",
    "10%",
    "150%",
    "true",
    "é",
    "a=b",
    "a:b",
    "a\nb",
    "$(A)",
    "example.com/a",
    "example.com/A_b",
    "v1",
    "v2",
    "TCP",
    "UDP",
    "SCTP",
    "HTTP",
    "HTTPS",
    "Always",
    "Never",
    "OnFailure",
    "IfNotPresent",
    "Exists",
    "Equal",
    "In",
    "NotIn",
    "DoesNotExist",
    "Gt",
    "Lt",
    "NoSchedule",
    "PreferNoSchedule",
    "NoExecute",
    "None",
    "Default",
    "ClusterFirst",
    "RuntimeDefault",
    "Localhost",
    "Unconfined",
    "Memory",
    "HugePages",
    "Directory",
    "Bidirectional",
    "HostToContainer",
    "Honor",
    "ScheduleAnyway",
    "Enabled",
    "RestartContainer",
    "Merge",
    "Strict",
    "Recreate",
    "OnDelete",
    "RollingUpdate",
    "kubernetes.io/hostname",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "status.podIP",
    "status.hostIP",
    "spec.serviceAccountName",
    "metadata.annotations['a']",
    "limits.memory",
    "requests.ephemeral-storage",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

const NUMBERS: &[i64] =
    &[-1, 0, 1, 2, 5, 29, 60, 100, 101, 420, 511, 512, 599, 600, 644, 8080, 65535, 65536, 2_147_483_647, 4_294_967_296];

/// Gives one mutated document after the other.
pub(super) struct Mutator<'a> {
    state: u64,
    documents: &'a [(String, Value)],
    kinds: BTreeSet<String>,
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seed: u64, documents: &'a [(String, Value)]) -> Self {
        Self { state: seed, documents, kinds: BTreeSet::new() }
    }

    /// How many kinds of mutation there were: operations on fields, wherever in a list these stand.
    pub(super) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// What was done, and the document that it gave.
    pub(super) fn next(&mut self) -> (String, Value) {
        // Half of them from our own documents, which come first and have every field.
        let among = if self.below(2) == 0 { self.documents.len().min(3) } else { self.documents.len() };
        let (name, value) = &self.documents[self.below(among)];
        let (mut value, mut told) = (value.clone(), name.clone());
        let changes = 1 + usize::from(self.below(4) == 0);
        for _ in 0..changes {
            let done = if self.below(3) == 0 { self.add(&mut value) } else { self.change(&mut value) };
            told = format!("{told}: {done}");
        }
        (told, value)
    }

    /// Steele, Lea and Flood's SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random() % bound.max(1) as u64).expect("it is small")
    }

    fn one<'t, T>(&mut self, among: &'t [T]) -> &'t T {
        &among[self.below(among.len())]
    }

    fn kind(&mut self, pointer: &str, operation: &str) {
        let general =
            |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
        let path: Vec<String> = pointer.split('/').skip(1).map(general).collect();
        self.kinds.insert(format!("{} {operation}", path.join("/")));
    }

    /// Puts a field of [`MORE`] somewhere.
    fn add(&mut self, value: &mut Value) -> String {
        let (end, field, text) = *self.one(MORE);
        let spec = "/spec/template/spec";
        let parent = match end.strip_suffix("/*") {
            None => spec.to_owned(),
            Some(list) => {
                let length = value.pointer(&format!("{spec}{list}")).and_then(Value::as_array).map_or(0, Vec::len);
                if length == 0 {
                    return self.change(value);
                }
                format!("{spec}{list}/{}", self.below(length))
            }
        };
        let put: Value = serde_json::from_str(text).expect("JSON");
        self.kind(&format!("{parent}/{field}"), text);
        if let Some(Value::Object(map)) = value.pointer_mut(&parent) {
            // A volume has one source.
            if end == "/volumes/*" && self.below(4) > 0 {
                map.retain(|name, _| name == "name");
            }
            map.insert(field.to_owned(), put);
        }
        format!("{parent}/{field} = {text}")
    }

    /// Changes a field that is there.
    fn change(&mut self, value: &mut Value) -> String {
        let mut pointers = Vec::new();
        for part in ["/metadata", "/spec"] {
            below(value.pointer(part).unwrap_or(&Value::Null), part, &mut pointers);
        }
        pointers.retain(|pointer| pointer != "/metadata/name");
        let pointer = self.one(&pointers).clone();
        let (parent, field) = pointer.rsplit_once('/').expect("it has one");
        let Some(found) = value.pointer(&pointer).cloned() else { return String::new() };
        let (operation, new) = self.operation(&found);
        self.kind(&pointer, operation);
        match (value.pointer_mut(parent), new.clone()) {
            (Some(Value::Object(map)), None) => drop(map.remove(&unescaped(field))),
            (Some(Value::Array(list)), None) => drop(list.remove(field.parse().expect("an index"))),
            (Some(Value::Object(map)), Some(new)) => drop(map.insert(unescaped(field), new)),
            (Some(Value::Array(list)), Some(new)) => list[field.parse::<usize>().expect("an index")] = new,
            _ => {}
        }
        format!("{pointer} {operation} {}", new.unwrap_or_default())
    }

    /// What to do with a value: the operation's name and the new value; `None` takes the field away.
    fn operation(&mut self, found: &Value) -> (&'static str, Option<Value>) {
        match self.below(8) {
            0 => return ("away", None),
            1 => return ("null", Some(Value::Null)),
            _ => {}
        }
        match found {
            Value::String(_) => ("text", Some(json!(*self.one(TEXTS)))),
            Value::Number(_) => ("number", Some(json!(*self.one(NUMBERS)))),
            Value::Bool(flag) => ("turned", Some(json!(!flag))),
            Value::Null => ("empty", Some(json!({}))),
            Value::Array(list) => self.of_list(list),
            Value::Object(map) => self.of_map(map),
        }
    }

    fn of_list(&mut self, list: &[Value]) -> (&'static str, Option<Value>) {
        let mut new = list.to_vec();
        match (self.below(4), list.first()) {
            (0, _) | (_, None) => ("emptied", Some(json!([]))),
            (1, Some(_)) => {
                let again = self.one(list).clone();
                new.push(again);
                ("twice", Some(Value::Array(new)))
            }
            (2, Some(Value::Object(_))) => {
                new.push(json!({}));
                ("with an empty one", Some(Value::Array(new)))
            }
            _ => {
                new.reverse();
                ("reversed", Some(Value::Array(new)))
            }
        }
    }

    fn of_map(&mut self, map: &Map<String, Value>) -> (&'static str, Option<Value>) {
        let mut new = map.clone();
        let texts = map.values().all(Value::is_string);
        if texts && self.below(2) == 0 {
            new.insert((*self.one(TEXTS)).to_owned(), json!(*self.one(TEXTS)));
            return ("with an entry", Some(Value::Object(new)));
        }
        ("emptied", Some(json!({})))
    }
}

/// Pointers of everything below a value.
fn below(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    let mut go = |name: &str, value: &Value| {
        let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        below(value, &pointer, pointers);
        pointers.push(pointer);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| go(name, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| go(&index.to_string(), value)),
        _ => {}
    }
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}
