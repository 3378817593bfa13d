//! How much one DaemonSet has of each thing.
//!
//! Owns what is counted. Must not decide what is allowed: the numbers stand in [`super`].

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::policy::TRUST;

use super::Bound;
use super::TENANT;

impl Bound {
    /// Everything of which `template` has more than this; [`Self::data`] is counted where it is rendered.
    pub fn exceeded_by(&self, template: &Value) -> Vec<FieldError> {
        let spec = template.get("spec").unwrap_or(&Value::Null);
        let containers = || spec.list_at("initContainers").iter().chain(spec.list_at("containers"));
        let of_containers =
            |fields: [&str; 2]| containers().flat_map(|c| fields.map(|field| c.list_at(field).len())).sum::<usize>();
        let volumes = spec.list_at("volumes");
        let (values, bytes) = size(template);
        let counts = [
            ("spec.containers", "containers", containers().count(), self.containers),
            ("spec.volumes", "volumes", volumes.len(), self.volumes),
            ("spec.containers[].volumeMounts", "mounts", of_containers(["volumeMounts", "volumeDevices"]), self.mounts),
            ("spec.volumes[].items", "sources and items", volumes.iter().map(items).sum(), self.items),
            ("spec.containers[].volumeMounts", "folders in its paths", folders(spec), self.folders),
            ("spec.containers[].env", "variables and sources", of_containers(["env", "envFrom"]), self.variables),
            ("spec.containers[].args", "arguments", of_containers(["command", "args"]), self.arguments),
            ("spec.containers[].ports", "ports", of_containers(["ports", ""]), self.ports),
            ("spec.tolerations", "tolerations", spec.list_at("tolerations").len(), self.tolerations),
            ("spec.affinity", "terms", terms(spec), self.terms),
            ("", "values", values, self.values),
            ("", "bytes", bytes, self.template),
        ];
        let over = counts.into_iter().filter(|(_, _, count, most)| count > most);
        let error = |(field, what, count, most): (&str, &str, usize, usize)| FieldError {
            field: ["spec.template", field].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("."),
            reason: format!("has {count} {what}; at most {most} are allowed"),
            hint: Some(self.hint()),
        };
        over.map(error).collect()
    }

    /// Everything of which a DaemonSet has more than this, in its template and beside it.
    pub fn exceeded_by_daemon_set(&self, object: &Value) -> Vec<FieldError> {
        let mut over = self.exceeded_by(object.at(["spec", "template"]).unwrap_or(&Value::Null));
        for path in [["metadata", "labels"], ["metadata", "annotations"], ["spec", "selector"]] {
            let (values, bytes) = object.at(path).map_or((0, 0), size);
            let counts = [("values", values, self.values / 16), ("bytes", bytes, self.template)];
            let error = |(what, count, most): (&str, usize, usize)| FieldError {
                field: path.join("."),
                reason: format!("has {count} {what}; at most {most} are allowed"),
                hint: Some(self.hint()),
            };
            over.extend(counts.into_iter().filter(|(_, count, most)| count > most).map(error));
        }
        over
    }

    /// What to do where it is exceeded.
    pub fn hint(&self) -> String {
        match self == &TENANT {
            true => format!(
                "use fewer, or add the namespace to policy.trusted-namespaces, whose bounds are higher, and {TRUST}"
            ),
            false => "use fewer, or let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)".to_owned(),
        }
    }
}

/// The sources and items of a volume.
fn items(volume: &Value) -> usize {
    let items = |source: &Value| -> usize {
        ["configMap", "secret", "downwardAPI"].iter().map(|kind| source.list_at([*kind, "items"]).len()).sum()
    };
    let sources = volume.list_at(["projected", "sources"]);
    items(volume) + sources.len() + sources.iter().map(items).sum::<usize>()
}

/// The folders in the paths that are made for a pod where they are missing.
fn folders(spec: &Value) -> usize {
    let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
    let texts =
        |value: &Value, fields: &[&str]| fields.iter().map(|field| parts(value.str_at([*field]))).sum::<usize>();
    let of_items = |source: &Value| -> usize {
        let lists = ["configMap", "secret", "downwardAPI"].map(|kind| source.list_at([kind, "items"]));
        lists.into_iter().flatten().map(|item| texts(item, &["path"]).saturating_sub(1)).sum()
    };
    let of_source = |source: &Value| -> usize {
        of_items(source) + texts(source.get("serviceAccountToken").unwrap_or(&Value::Null), &["path"]).saturating_sub(1)
    };
    let of_volume = |volume: &Value| -> usize {
        of_items(volume) + volume.list_at(["projected", "sources"]).iter().map(of_source).sum::<usize>()
    };
    let of_container = |container: &Value| -> usize {
        let mounts =
            container.list_at("volumeMounts").iter().map(|m| texts(m, &["mountPath", "subPath", "subPathExpr"]));
        let devices = container.list_at("volumeDevices").iter().map(|device| texts(device, &["devicePath"]));
        mounts.chain(devices).sum::<usize>() + texts(container, &["workingDir", "terminationMessagePath"])
    };
    let containers = spec.list_at("initContainers").iter().chain(spec.list_at("containers"));
    containers.map(of_container).sum::<usize>() + spec.list_at("volumes").iter().map(of_volume).sum::<usize>()
}

/// The terms of a pod's affinities.
fn terms(spec: &Value) -> usize {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let of = |kind: &&str| {
        let lists = [REQUIRED, PREFERRED].map(|list| spec.list_at(["affinity", *kind, list]).len());
        let node = spec.list_at(["affinity", *kind, REQUIRED, "nodeSelectorTerms"]).len();
        lists.iter().sum::<usize>() + node
    };
    ["nodeAffinity", "podAffinity", "podAntiAffinity"].iter().map(of).sum()
}

/// How many values `list` has.
pub fn values(list: &[Value]) -> usize {
    list.iter().map(|value| size(value).0).sum()
}

/// How many values `value` is, and how many bytes its names and texts have.
pub(super) fn size(value: &Value) -> (usize, usize) {
    let add = |(values, bytes), (more, long)| (values + more, bytes + long);
    match value {
        Value::String(text) => (1, text.len()),
        Value::Array(items) => items.iter().map(size).fold((1, 0), add),
        Value::Object(map) => map.iter().map(|(name, value)| add(size(value), (0, name.len()))).fold((1, 0), add),
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
    }
}
