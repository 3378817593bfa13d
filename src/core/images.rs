//! The images that a pod needs, and the credentials that registries ask for them.
//!
//! Owns the pure part of pulling: the images a pod names, the credentials that match an image, and the meaning of a
//! runtime's refusal. Must not do I/O.

pub mod keyring;
pub mod reference;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::canonical::default_pull_policy;
use crate::core::json::Json;

/// An image that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct PodImage {
    /// The image as it is written.
    pub image: String,
    /// Whether it is to be pulled anew for each new instance (`imagePullPolicy: Always`, also by default).
    pub always: bool,
}

/// What is written as the pull policy of an image, or its default.
pub(crate) fn policy<'a>(image: &str, written: Option<&'a str>) -> &'a str {
    written.unwrap_or_else(|| default_pull_policy(image))
}

/// The images of the pod template's `spec` that may be pulled, in the order of the containers, then of the
/// volumes; each once.
pub fn of_spec<'a>(spec: &'a Value) -> Vec<PodImage> {
    let mut images: Vec<PodImage> = Vec::new();
    let mut places = BTreeMap::new();
    let mut add = |image: Option<&'a str>, written: Option<&str>| {
        let Some(image) = image else { return };
        let policy = policy(image, written);
        match places.get(image) {
            Some(place) => {
                let known: &mut PodImage = &mut images[*place];
                known.always |= policy == "Always";
            }
            None if policy == "Never" => {}
            None => {
                places.insert(image, images.len());
                images.push(PodImage { image: image.to_owned(), always: policy == "Always" });
            }
        }
    };
    let list = |name: &str| -> std::slice::Iter<'a, Value> { spec.list_at(name).iter() };
    for container in list("initContainers").chain(list("containers")) {
        add(container.text_at("image"), container.text_at("imagePullPolicy"));
    }
    for source in list("volumes").filter_map(|volume| volume.get("image")) {
        add(source.text_at("reference"), source.text_at("pullPolicy"));
    }
    images
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_image_is_named_once_and_the_strictest_policy_holds() {
        let spec = json!({
            "initContainers": [{"image": "a:1"}, {"image": "never:1", "imagePullPolicy": "Never"}],
            "containers": [{"image": "b"}, {"image": "a:1", "imagePullPolicy": "Always"}, {"image": ""}, {}],
            "volumes": [{"name": "v", "image": {"reference": "data:2"}}, {"name": "w", "emptyDir": {}}],
        });
        let image = |image: &str, always| PodImage { image: image.to_owned(), always };
        assert_eq!(of_spec(&spec), [image("a:1", true), image("b", true), image("data:2", false)]);
        assert_eq!(of_spec(&Value::Null), []);
    }
}
