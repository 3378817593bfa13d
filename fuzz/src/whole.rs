//! The whole way of one DaemonSet, and what must hold of whatever comes out.

use std::path::Path;
use std::sync::Arc;

use daemonlet::core::canonical;
use daemonlet::core::explain;
use daemonlet::core::model::DaemonSet;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::ObjectSource;
use daemonlet::core::model::TokenRequest;
use daemonlet::core::model::TokenSource;
use daemonlet::core::placement;
use daemonlet::core::policy::Policy;
use daemonlet::core::policy::namespace_of;
use daemonlet::core::render::Endpoint;
use daemonlet::core::render::PullMode;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::RenderResult;
use daemonlet::core::rendering::Revision;
use daemonlet::core::validate;
use daemonlet::core::yaml;

/// The most a manifest may be: the kubelet reads no more.
const MAX_MANIFEST: usize = 10 << 20;

/// A token for everybody.
struct Tokens;

impl TokenSource for Tokens {
    fn token(&self, request: &TokenRequest) -> Option<&str> {
        (request.audience != "none").then_some("token")
    }
}

/// Takes `daemon_set` from its template to the text of its manifest in several surroundings.
///
/// # Panics
/// Where something does not hold that must.
pub fn follow(daemon_set: DaemonSet, objects: &mut ObjectMap, node: &NodeView) {
    let daemon_set = Arc::new(daemon_set);
    let revision = Revision::of(&daemon_set);
    let once = canonical::template(&daemon_set.template);
    assert_eq!(canonical::template(&once), once, "canonical is not stable");
    let policy = Policy::default();
    let namespace = objects.lookup(&namespace_of(&daemon_set));
    let selector = policy.node_selector(&daemon_set, namespace);
    let admission = policy.admit(&daemon_set, namespace);
    let judgement = placement::judge(node, &daemon_set, selector.as_ref());
    let placement = judgement.placement(node);
    assert!(!placement.should_run || placement.should_continue_running, "{placement:?}");
    for folder in [None, Some(&daemon_set)] {
        let covered = policy.covers(&daemon_set, folder);
        let rules =
            explain::ExplainRules { covered: &covered, admission: &admission, namespace_selector: selector.as_ref() };
        assert!(!explain::explain(&daemon_set, node, &rules).is_empty());
    }
    for (complete, kubelet_version, has_api, inline) in
        [(true, Some((1, 36)), true, false), (false, Some((1, 34)), false, false), (false, None, true, true)]
    {
        objects.complete = complete;
        let options = options(kubelet_version, has_api, inline);
        let rendering = rendering::render(&daemon_set, &revision, 7, objects, &Tokens, &options);
        holds(&rendering);
        let twice = rendering::render(&daemon_set, &revision, 7, objects, &Tokens, &options);
        assert_eq!(twice, rendering, "not the same twice");
    }
}

/// As [`follow`], of what was not validated: it must only not panic.
pub fn survive(daemon_set: DaemonSet, objects: &mut ObjectMap, node: &NodeView) {
    let daemon_set = Arc::new(daemon_set);
    let revision = Revision::of(&daemon_set);
    let _ = placement::judge(node, &daemon_set, None).placement(node);
    let options = options(Some((1, 36)), true, false);
    let _ = rendering::render(&daemon_set, &revision, 7, objects, &Tokens, &options);
}

fn options(kubelet_version: Option<(u32, u32)>, has_api: bool, inline_secret_env: bool) -> RenderOptions {
    let api_endpoint = has_api.then(|| Endpoint { host: "10.0.0.1".to_owned(), port: 6443 });
    RenderOptions {
        node_name: "node-1".to_owned(),
        kubelet_version,
        api_endpoint,
        has_api,
        inline_secret_env,
        pulls: if has_api { PullMode::First } else { PullMode::ByKubelet },
        token_expiration: daemonlet::core::time::Span::from_secs(3607),
        rules: daemonlet::core::policy::PodRules::trusting(),
        topology: Default::default(),
    }
}

/// What must hold of every outcome.
fn holds(rendering: &RenderResult) {
    let name = &rendering.identity.pod_name;
    assert!(
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b)),
        "{name}"
    );
    let rendered = match &rendering.result {
        Ok(rendered) => rendered,
        Err(refused) => return assert!(!refused.errors.is_empty()),
    };
    assert!(
        rendered.file.len() <= 255 && !rendered.file.starts_with('.') && !rendered.file.contains('/'),
        "{}",
        rendered.file
    );
    let pod = &rendered.pod.pod;
    if rendered.text.len() <= MAX_MANIFEST {
        let documents = yaml::read_documents(&rendered.text);
        assert_eq!(documents.len(), 1, "{}", rendered.text);
        assert_eq!(
            documents[0].value.as_ref().ok(),
            Some(pod),
            "{:?}\n{}",
            documents[0].value.as_ref().err(),
            rendered.text
        );
    }
    assert_eq!(validate::pod_types(pod), Ok(()), "a type that the kubelet does not decode");
    for volume in &rendered.pod.volumes {
        assert!(is_one_name(&volume.name), "{:?}", volume.name);
        for (path, file) in &volume.files {
            assert!(path.split('/').all(is_one_name), "{path:?}");
            assert!(file.mode <= 0o777, "{:o}", file.mode);
        }
        for point in &volume.nested_mount_points {
            assert!(Path::new(point).is_relative() && point.split('/').all(|part| part != ".."), "{point:?}");
        }
    }
}

/// Whether a name stays in its folder.
fn is_one_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
