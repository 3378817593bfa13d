//! The start of the tests of the passes: a daemon, objects, tokens and options, changed at will.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::json;

use crate::core::identity::Identity;
use crate::core::model::DaemonSet;
use crate::core::model::IntOrPercent;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::model::UpdateStrategy;
use crate::core::render::Endpoint;
use crate::core::render::Missing;
use crate::core::render::Refused;
use crate::core::render::RenderInput;
use crate::core::render::RenderOptions;
use crate::core::render::RenderedPod;
use crate::core::render::render;

/// The owned parts of a [`RenderInput`].
pub(super) struct Fixture {
    pub(super) daemon_set: DaemonSet,
    pub(super) objects: ObjectMap,
    pub(super) tokens: BTreeMap<TokenRequest, String>,
    pub(super) options: RenderOptions,
}

impl Fixture {
    /// A daemon `kube-system/agent` from the API with `spec` as its pod spec; a complete, almost empty cluster.
    pub(super) fn new(spec: Value) -> Self {
        let mut fixture = Self {
            daemon_set: DaemonSet {
                key: ObjectKey::new("kube-system", "agent"),
                uid: None,
                generation: None,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                deleting: false,
                finalizers: Vec::new(),
                selector: json!({"matchLabels": {"app": "agent"}}),
                template: json!({"metadata": {"labels": {"app": "agent"}}, "spec": spec}),
                update_strategy: UpdateStrategy::RollingUpdate {
                    max_unavailable: IntOrPercent::Int(1),
                    max_surge: IntOrPercent::Int(0),
                },
                min_ready_seconds: 0,
                admitted: None,
                overlays: None,
                gate: Default::default(),
                rollout: Default::default(),
                source: Source::Api,
            },
            objects: ObjectMap { complete: true, ..ObjectMap::default() },
            tokens: BTreeMap::new(),
            options: RenderOptions {
                node_name: "Node-1".to_owned(),
                kubelet_version: Some((1, 36)),
                api_endpoint: Some(Endpoint { host: "10.0.0.1".to_owned(), port: 6443 }),
                has_api: true,
                inline_secret_env: false,
                pulls: Default::default(),
                token_expiration: crate::core::time::Span::from_secs(3607),
                rules: crate::core::policy::PodRules::trusting(),
                topology: Default::default(),
            },
        };
        fixture.put(Kind::ServiceAccount, "default", json!({}));
        fixture.put(Kind::ConfigMap, "kube-root-ca.crt", json!({"data": {"ca.crt": "CA"}}));
        let service = json!({"spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}});
        fixture.objects.objects.insert(ObjectRef::new(Kind::Service, "default", "kubernetes"), service);
        fixture.token("default", "", 3607, "TOKEN");
        fixture
    }

    /// A daemon of one container `main` that mounts no token, changed by `container`.
    pub(super) fn container(container: Value) -> Self {
        Self::new(json!({
            "automountServiceAccountToken": false,
            "containers": [with(json!({"name": "main", "image": "main:1"}), container)],
        }))
    }

    /// A daemon of one container that mounts the volume `data` with `source`.
    pub(super) fn volume(source: Value) -> Self {
        Self::new(json!({
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": "main:1",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [with(json!({"name": "data"}), source)],
        }))
    }

    /// Makes an object of the daemon's namespace exist.
    pub(super) fn put(&mut self, kind: Kind, name: &str, object: Value) -> &mut Self {
        self.objects.objects.insert(ObjectRef::new(kind, "kube-system", name), object);
        self
    }

    /// Makes a token exist.
    pub(super) fn token(&mut self, account: &str, audience: &str, expiration_seconds: i64, token: &str) -> &mut Self {
        let service_account = ObjectKey::new("kube-system", account);
        let request = TokenRequest { service_account, audience: audience.to_owned(), expiration_seconds };
        self.tokens.insert(request, token.to_owned());
        self
    }

    /// Makes the daemon one that was read from a folder.
    pub(super) fn in_folder(&mut self) -> &mut Self {
        self.daemon_set.source = Source::File { path: PathBuf::from("/etc/daemonlet/daemonsets.d/agent.yaml") };
        self
    }

    pub(super) fn render(&self) -> Result<RenderedPod, Refused> {
        self.render_with(&self.objects)
    }

    pub(super) fn render_with(&self, objects: &dyn ObjectSource) -> Result<RenderedPod, Refused> {
        let identity = Identity { uid: "5f3c0b9e-0000-5000-8000-000000000000".into(), pod_name: "agent-abcde".into() };
        render(RenderInput {
            daemon_set: &self.daemon_set,
            objects,
            tokens: &self.tokens,
            options: &self.options,
            identity: &identity,
            revision: "7d9f8c6b5",
            incarnation: 3,
        })
    }

    /// Renders, and must not be refused.
    pub(super) fn rendered(&self) -> RenderedPod {
        self.render().unwrap()
    }

    /// Renders, and must be refused: the fields and reasons, as `field: reason`.
    pub(super) fn refused(&self) -> Vec<String> {
        self.render().unwrap_err().errors.iter().map(ToString::to_string).collect()
    }
}

/// `base` with the members of `more`.
pub(super) fn with(mut base: Value, more: Value) -> Value {
    if let (Some(base), Value::Object(more)) = (base.as_object_mut(), more) {
        base.extend(more);
    }
    base
}

/// What is waited for, as `kind namespace/name key`.
pub(super) fn waiting(pod: &RenderedPod) -> Vec<String> {
    let line = |missing: &Missing| {
        format!("{} {}/{} {}", missing.kind, missing.namespace, missing.name, missing.key).trim_end().to_owned()
    };
    pod.waiting_for.iter().map(line).collect()
}

/// The value at a JSON pointer of the pod's spec.
pub(super) fn spec<'a>(pod: &'a RenderedPod, pointer: &str) -> &'a Value {
    pod.pod["spec"].pointer(pointer).unwrap_or(&Value::Null)
}

/// Path, content and mode of the files of the volume `name`.
pub(super) fn files(pod: &RenderedPod, name: &str) -> Vec<(String, String, u32)> {
    let volume = pod.volumes.iter().find(|volume| volume.name == name).unwrap();
    let files = volume.files.iter();
    files.map(|(path, file)| (path.clone(), String::from_utf8_lossy(&file.data).into_owned(), file.mode)).collect()
}
