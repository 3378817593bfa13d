//! How long the pure core takes: one large DaemonSet, and a pass over 100 daemons with nothing to do.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "core/coordinator.rs"]
mod coordinator;
#[path = "core/large.rs"]
mod large;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;

use daemonlet::core::cluster::released::Released;
use daemonlet::core::dry_run::Question;
use daemonlet::core::dry_run::RequestState;
use daemonlet::core::input;
use daemonlet::core::local_failure::LocalFailure;
use daemonlet::core::model::DaemonSet;
use daemonlet::core::model::Mode;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::pass;
use daemonlet::core::placement;
use daemonlet::core::plan::Accepted;
use daemonlet::core::plan::Data;
use daemonlet::core::plan::EndObservable;
use daemonlet::core::plan::Evidence;
use daemonlet::core::plan::Fingerprints;
use daemonlet::core::plan::Images;
use daemonlet::core::plan::ManifestFact;
use daemonlet::core::plan::PassPhase;
use daemonlet::core::plan::Permission;
use daemonlet::core::plan::Readiness;
use daemonlet::core::plan::ReleasedDefinition;
use daemonlet::core::plan::Stock;
use daemonlet::core::plan::VolumesFact;
use daemonlet::core::policy::Admission;
use daemonlet::core::record::AcceptanceConditions;
use daemonlet::core::record::DaemonRecord;
use daemonlet::core::record::HandOver;
use daemonlet::core::record::Instance;
use daemonlet::core::render::Endpoint;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::RenderResult;
use daemonlet::core::rendering::Revision;
use daemonlet::core::sources::Desired;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use daemonlet::core::yaml;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// How large a generated DaemonSet is.
#[derive(Clone, Copy)]
struct Size {
    containers: usize,
    /// Per container: variables with a value, variables from a ConfigMap, mounts of hostPath volumes.
    variables: usize,
    configured: usize,
    mounts: usize,
}

/// As the largest that is published (the CNIs of the corpus of the tests: 7 containers, 11 to 13 KB of manifest).
const LARGE: Size = Size { containers: 7, variables: 3, configured: 1, mounts: 5 };
/// More than twice that.
const HUGE: Size = Size { containers: 8, variables: 20, configured: 5, mounts: 10 };

/// A DaemonSet of that size and the objects that it refers to.
fn generated(size: Size) -> String {
    let mut text = String::from(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: large, namespace: kube-system}\nspec:\n  \
         selector: {matchLabels: {app: large}}\n  template:\n    metadata: {labels: {app: large, tier: node}}\n    \
         spec:\n      hostNetwork: true\n      serviceAccountName: large\n      priorityClassName: system-node-critical\n      \
         nodeSelector: {kubernetes.io/os: linux}\n      tolerations: [{operator: Exists}]\n      containers:\n",
    );
    for container in 0..size.containers {
        write!(
            text,
            "      - name: container-{container}\n        image: registry.example.com/network/agent-{container}:v1.30.2\n        \
             command: [/bin/agent, --config=/etc/agent/agent.yaml, --node=$(NODE_NAME), --verbose=2]\n        \
             resources: {{requests: {{cpu: 100m, memory: 50Mi}}, limits: {{memory: 500Mi}}}}\n        \
             securityContext: {{privileged: true, capabilities: {{add: [NET_ADMIN, NET_RAW]}}}}\n        \
             livenessProbe: {{httpGet: {{path: /healthz, port: {}, host: localhost}}, periodSeconds: 10, failureThreshold: 6}}\n        \
             env:\n        - {{name: NODE_NAME, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}\n",
            9000 + container
        )
        .unwrap();
        for variable in 0..size.variables {
            writeln!(text, "        - {{name: VARIABLE_{variable}, value: \"the value of {variable}, such as yes\"}}")
                .unwrap();
        }
        for key in 0..size.configured {
            writeln!(
                text,
                "        - {{name: CONFIGURED_{key}, valueFrom: {{configMapKeyRef: {{name: conf, key: key-{key}}}}}}}"
            )
            .unwrap();
        }
        text.push_str("        volumeMounts:\n");
        for volume in 0..size.mounts {
            writeln!(text, "        - {{name: host-{volume}, mountPath: /host/{volume}}}").unwrap();
        }
        text.push_str("        - {name: conf, mountPath: /etc/agent}\n        - {name: keys, mountPath: /etc/keys}\n");
    }
    text.push_str("      volumes:\n      - {name: conf, configMap: {name: conf}}\n      - {name: keys, secret: {secretName: keys}}\n");
    for volume in 0..10 {
        writeln!(
            text,
            "      - {{name: host-{volume}, hostPath: {{path: /var/lib/host/{volume}, type: DirectoryOrCreate}}}}"
        )
        .unwrap();
    }
    text.push_str("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: kube-system}\ndata:\n");
    for key in 0..10 {
        writeln!(text, "  key-{key}: a value of the configuration").unwrap();
    }
    text.push_str(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: keys, namespace: kube-system}\ndata: {key: c2VjcmV0}\n---\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: large, namespace: kube-system}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-root-ca.crt, namespace: kube-system}\ndata: {ca.crt: certificate}\n",
    );
    text
}

fn options() -> RenderOptions {
    RenderOptions {
        node_name: "node-1".to_owned(),
        kubelet_version: Some((1, 36)),
        api_endpoint: Some(Endpoint { host: "10.0.0.1".to_owned(), port: 6443 }),
        has_api: true,
        inline_secret_env: false,
        pulls: Default::default(),
        token_expiration: daemonlet::core::time::Span::from_secs(3607),
        rules: daemonlet::core::policy::PodRules::trusting(),
        topology: Default::default(),
    }
}

struct World {
    daemon_set: Arc<DaemonSet>,
    revision: Revision,
    objects: ObjectMap,
    tokens: BTreeMap<daemonlet::core::model::TokenRequest, String>,
    options: RenderOptions,
}

impl World {
    fn new(size: Size) -> Self {
        let parsed = input::parse_file(Path::new("large.yaml"), &generated(size));
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
        let daemon_set = Arc::new(parsed.daemon_sets.into_iter().next().unwrap());
        let revision = Revision::of(&daemon_set);
        let objects = ObjectMap { objects: parsed.objects.into_iter().collect(), complete: true };
        let mut world = Self { daemon_set, revision, objects, tokens: BTreeMap::new(), options: options() };
        let asked = world.render(&world.daemon_set).result.unwrap().pod.tokens;
        world.tokens = asked.into_iter().map(|request| (request, "token".to_owned())).collect();
        let rendered = world.render(&world.daemon_set).result.unwrap();
        assert!(rendered.pod.waiting_for.is_empty(), "{:?}", rendered.pod.waiting_for);
        world
    }

    fn render(&self, daemon_set: &Arc<DaemonSet>) -> RenderResult {
        rendering::render(daemon_set, &self.revision, 0, &self.objects, &self.tokens, &self.options)
    }
}

/// Everything is as it should be, and every outcome is remembered: the shell's memory in small.
struct Quiet(BTreeMap<ObjectKey, Arc<RenderResult>>);

impl daemonlet::core::plan::Facts for Quiet {
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, _: u64, _: Data) -> Arc<RenderResult> {
        Arc::clone(&self.0[&daemon_set.key])
    }
    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String {
        self.0[&daemon_set.key].revision.clone()
    }
    fn manifest(&self, uid: &str) -> ManifestFact<'_> {
        let mine = self.0.values().find(|rendering| rendering.identity.uid == uid);
        mine.map_or(ManifestFact::Missing, |mine| ManifestFact::Present(&mine.result.as_ref().unwrap().digest))
    }
    fn unreadable_manifests(&self) -> Option<&LocalFailure> {
        None
    }
    fn unwritable_volumes(&self) -> Option<&LocalFailure> {
        None
    }
    fn volumes(&self, _rendering: &RenderResult, _kept: &std::collections::BTreeSet<String>) -> VolumesFact {
        VolumesFact::Current
    }
    fn sandbox(&self, _: &Instance) -> Evidence {
        Evidence::Running
    }
    fn former_node(&self, _: &Instance) -> Option<&str> {
        None
    }
    fn moment(&self, _: &Instance) -> PassPhase {
        PassPhase::Later
    }
    fn empty_volumes(&self, _: &daemonlet::core::record::Instance) -> Option<&BTreeSet<String>> {
        None
    }
    fn may_run_unrecorded(&self) -> Option<Timestamp> {
        None
    }
    fn end_observable(&self, _: &Instance) -> EndObservable {
        EndObservable::By(daemonlet::core::record::EndConfirmation::Reported)
    }
    fn readiness(&self, _: &Instance) -> Readiness {
        Readiness::Ready { since: NOW }
    }
    fn pod_readiness(&self, instance: &Instance) -> Readiness {
        self.readiness(instance)
    }
    fn stock(&self, _: &DaemonSet, _: Option<&HandOver>) -> Stock {
        Stock::Absent
    }
    fn stock_awaited_until(&self) -> Option<Timestamp> {
        None
    }
    fn unanswered(&self, _: &RenderResult) -> Vec<daemonlet::core::render::Missing> {
        Vec::new()
    }
    fn accepted(&self, _: &Instance) -> Accepted {
        Accepted::Yes
    }
    fn acceptance_conditions(&self) -> AcceptanceConditions {
        AcceptanceConditions::default()
    }
    fn failure(&self, _: &Instance) -> Option<daemonlet::core::record::Failure> {
        None
    }
    fn images(&self, _: &RenderResult, _: bool) -> Images {
        Images::Present
    }
    fn held_ports(&self, _: &ObjectKey, _: bool) -> Vec<(String, Vec<daemonlet::core::ports::HostPort>)> {
        Vec::new()
    }
    fn permission(&self, _: &DaemonSet, _: &str) -> Permission {
        Permission::Free
    }
    fn is_coordinated(&self, _: &DaemonSet) -> bool {
        false
    }
    fn coordination_is_off(&self, _: &DaemonSet) -> bool {
        false
    }
    fn is_remembered(&self, _: &DaemonSet) -> bool {
        false
    }
    fn released(&self, _: &Arc<DaemonSet>, _: &Released) -> ReleasedDefinition {
        ReleasedDefinition::Unknown
    }
    fn approved(&self, _: &DaemonSet) -> Option<String> {
        None
    }
    fn surroundings(&self, _: &Instance) -> Fingerprints<'_> {
        Fingerprints::UNKNOWN
    }
    fn admission(&self, _: &Arc<DaemonSet>) -> Admission {
        Admission::FREE
    }
    fn trusts_annotations(&self, _: &DaemonSet) -> bool {
        true
    }
    fn lacks_labels_until(&self) -> Option<Timestamp> {
        None
    }
    fn node_since(&self) -> Option<Timestamp> {
        None
    }
    fn namespace_selector(&self, _: &DaemonSet) -> Option<placement::NamespaceSelector> {
        None
    }
    fn asks_admission(&self) -> bool {
        false
    }
    fn admission_dry_run(&self, _: &Arc<DaemonSet>, _: u64) -> (Question, RequestState) {
        unreachable!("no admission dry run is requested")
    }
    fn mirror_pod_deletion_pending(&self, _: &Instance) -> bool {
        false
    }
}

/// `count` daemons that run as they should: what the sources say, and what is remembered of each.
fn quiet(world: &World, count: usize) -> (Vec<(Desired, DaemonRecord)>, Quiet) {
    let mut daemons = Vec::new();
    let mut renderings = BTreeMap::new();
    for index in 0..count {
        let mut daemon_set = DaemonSet::clone(&world.daemon_set);
        daemon_set.key.name = format!("daemon-{index}");
        let daemon_set = Arc::new(daemon_set);
        let rendering = Arc::new(world.render(&daemon_set));
        let mut record = DaemonRecord::new(daemon_set.key.clone(), 0);
        record.instances.push(Instance {
            daemon_set: Some(Arc::clone(&daemon_set)),
            data_version: rendering.result.as_ref().unwrap().pod.data_version.clone(),
            started: true,
            ..Instance::new(&rendering.identity.uid, &rendering.identity.pod_name, 0, &rendering.revision, NOW)
        });
        renderings.insert(daemon_set.key.clone(), rendering);
        daemons.push((Desired::Wanted { daemon_set, mode: Mode::Static, note: None }, record));
    }
    (daemons, Quiet(renderings))
}

fn node() -> NodeView {
    let labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
    NodeView { name: "node-1".to_owned(), labels, registered: true, ..NodeView::default() }
}

fn core(criterion: &mut Criterion) {
    let (world, huge) = (World::new(LARGE), World::new(HUGE));
    let text = generated(LARGE);
    let rendered = world.render(&world.daemon_set).result.unwrap();
    let more = huge.render(&huge.daemon_set).result.unwrap();
    println!("the large DaemonSet: {} bytes of manifest; the huge one: {}", rendered.text.len(), more.text.len());
    criterion.bench_function("render one large DaemonSet", |b| b.iter(|| world.render(black_box(&world.daemon_set))));
    criterion.bench_function("render a huge one", |b| b.iter(|| huge.render(black_box(&huge.daemon_set))));
    criterion.bench_function("write its YAML", |b| b.iter(|| yaml::write(black_box(&rendered.pod.pod))));
    criterion.bench_function("canonical form and hash", |b| b.iter(|| Revision::of(black_box(&world.daemon_set))));
    criterion.bench_function("read and validate its file", |b| {
        b.iter(|| input::parse_file(Path::new("large.yaml"), black_box(&text)))
    });
    let node = node();
    criterion.bench_function("placement", |b| {
        b.iter(|| placement::should_run(black_box(&node), black_box(&world.daemon_set), None))
    });
    let (daemons, facts) = quiet(&world, 100);
    let context = pass::PassContext {
        boot: "boot",
        booted: Timestamp::default(),
        now: NOW,
        node: &node,
        update_jitter: Span::ZERO,
        max_removals: pass::MaxRemovals::HalfAndTwo,
        second_list: false,
        is_only: false,
    };
    let pass = || {
        let subjects: Vec<pass::Subject<'_>> = daemons
            .iter()
            .map(|(desired, record)| pass::Subject { desired: desired.clone(), record, unlisted: false })
            .collect();
        pass::plan(black_box(&subjects), &context, &facts)
    };
    let plan = pass();
    assert!(plan.is_quiet(), "{:?}", plan.daemons[0].actions);
    criterion.bench_function("pass over 100 quiet daemons", |b| b.iter(pass));
}

/// A DaemonSet with as much of one thing as is let through: all steps together.
fn large(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("20,000");
    group.sample_size(10);
    for shape in large::SHAPES {
        group.bench_function(shape.0, |b| {
            b.iter_custom(|times| (0..times).map(|_| large::times(shape, 20_000).into_iter().sum::<Duration>()).sum())
        });
    }
}

criterion_group!(benches, core, large, coordinator::coordinator);
criterion_main!(benches);
