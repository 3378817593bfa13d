//! Pull policies: an image that is on the node starts without its registry.
//!
//! Owns the pull policy in manifests. With `Always` the kubelet asks the registry at every start and fails without it;
//! the agent asks instead, once for each new instance.

use serde_json::Value;

use crate::core::images;
use crate::core::images::PodImage;
use crate::core::json::Json;
use crate::core::render::PullMode;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;

/// Writes `Always` as `IfNotPresent` if the agent pulls; returns the images that the pod needs.
pub(super) fn write_policies(ctx: &mut RenderContext<'_>, spec: &mut Object) -> Vec<PodImage> {
    let needed = images::of_spec(&Value::Object(wanted(spec)));
    match ctx.input.options.pulls {
        PullMode::First => {
            containers::for_each_mut(spec, |_, _, container| relax(container, "image", "imagePullPolicy"));
            let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
            for volume in volumes.into_iter().flatten() {
                if let Some(source) = volume.get_mut("image").and_then(Value::as_object_mut) {
                    relax(source, "reference", "pullPolicy");
                }
            }
        }
        PullMode::AsWritten => {}
        PullMode::ByKubelet => {
            for image in needed.iter().filter(|image| image.always) {
                let reason = format!(
                    "image {} has the pull policy Always: it does not start while its registry is unreachable",
                    image.image
                );
                let hint = "set runtime-endpoint: the agent then pulls it for each new instance, and what is on \
                    the node starts";
                ctx.note("spec.template.spec.containers", reason, hint);
            }
        }
    }
    needed
}

/// The members that name images.
fn wanted(spec: &Object) -> Object {
    let named = |name: &&str| spec.get(*name).map(|value| ((*name).to_owned(), value.clone()));
    ["initContainers", "containers", "volumes"].iter().filter_map(named).collect()
}

fn relax(holder: &mut Object, image: &str, policy: &str) {
    let Some(name) = holder.text_at(image) else { return };
    let written = holder.text_at(policy);
    if images::policy(name, written) == "Always" {
        holder.insert(policy.to_owned(), "IfNotPresent".into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::render::fixture::Fixture;
    use crate::core::render::fixture::spec;

    use super::*;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::container(json!({"image": "r.test/x", "imagePullPolicy": "Always"}));
        let pod = &mut fixture.daemon_set.template["spec"];
        pod["initContainers"] = json!([
            {"name": "a", "image": "r.test/a:latest"},
            {"name": "b", "image": "r.test/b:1"},
            {"name": "c", "image": "r.test/c", "imagePullPolicy": "Never"},
            {"name": "d", "image": "r.test/d", "imagePullPolicy": ""},
        ]);
        pod["volumes"] = json!([{"name": "data", "image": {"reference": "r.test/data"}}]);
        fixture
    }

    #[test]
    fn always_is_written_as_if_not_present_also_where_it_is_the_default() {
        let pod = fixture().rendered();
        assert_eq!(spec(&pod, "/containers/0/imagePullPolicy"), "IfNotPresent");
        assert_eq!(spec(&pod, "/initContainers/0/imagePullPolicy"), "IfNotPresent");
        assert_eq!(spec(&pod, "/initContainers/1/imagePullPolicy"), &Value::Null);
        assert_eq!(spec(&pod, "/initContainers/2/imagePullPolicy"), "Never");
        assert_eq!(spec(&pod, "/initContainers/3/imagePullPolicy"), "IfNotPresent");
        assert_eq!(spec(&pod, "/volumes/0/image/pullPolicy"), "IfNotPresent");
        let always: Vec<&str> = pod.images.iter().filter(|i| i.always).map(|i| i.image.as_str()).collect();
        assert_eq!(always, ["r.test/a:latest", "r.test/d", "r.test/x", "r.test/data"]);
        assert_eq!(pod.images.len(), 5);
        assert!(pod.notes.is_empty(), "{:?}", pod.notes);
    }

    #[test]
    fn as_written_it_stays() {
        let mut fixture = fixture();
        fixture.options.pulls = PullMode::AsWritten;
        let pod = fixture.rendered();
        assert_eq!(spec(&pod, "/containers/0/imagePullPolicy"), "Always");
        assert_eq!(spec(&pod, "/initContainers/0/imagePullPolicy"), &Value::Null);
        assert!(pod.images.iter().any(|i| i.always) && pod.notes.is_empty());
    }

    #[test]
    fn it_stays_with_a_note_where_nobody_but_the_kubelet_pulls() {
        let mut fixture = fixture();
        fixture.options.pulls = PullMode::ByKubelet;
        let pod = fixture.rendered();
        assert_eq!(spec(&pod, "/containers/0/imagePullPolicy"), "Always");
        assert!(pod.notes[0].reason.contains("registry is unreachable"), "{:?}", pod.notes);
    }
}
