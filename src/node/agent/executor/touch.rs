//! Touching a manifest, so that the kubelet tries its pod again at once.

use serde_json::Value;

use crate::core::local_failure::LocalFailure;
use crate::core::manifest;
use crate::core::rendering;
use crate::core::time::Timestamp;
use crate::core::yaml;
use crate::node::agent::concerns::kubelet_resync::ToTouch;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::outcome::EffectOutcome;

use super::Executor;

/// The annotation that changes.
const ANNOTATION: &str = "daemonlet.dev/resync";

impl Executor {
    /// Touches the manifests that the decision names.
    pub(super) fn touch(&mut self, decision: &Decision, now: Timestamp, outcome: &mut EffectOutcome) {
        for to_touch in &decision.to_touch {
            let (daemonset, pod) = (to_touch.daemon.to_string(), &to_touch.pod);
            match self.write_touched(to_touch, now) {
                Ok(digests) => {
                    tracing::debug!(daemonset, pod, "the kubelet is made to try {pod} again");
                    outcome.touched.insert(to_touch.uid.clone(), digests);
                }
                Err(failure) => {
                    tracing::debug!(daemonset, pod, "{pod} is not tried again at once: {}", failure.cause);
                }
            }
        }
    }

    /// Gives the digests of the file with the annotation and without.
    fn write_touched(&mut self, to_touch: &ToTouch, now: Timestamp) -> Result<(String, String), EffectFailure> {
        let Some(manifests) = &mut self.manifests else { return Err(LocalFailure::NoManifestFolder.into()) };
        let file = manifest::file_name(&to_touch.daemon.namespace, &to_touch.pod);
        let text = self.files.text(manifests.path().join(&file)).map_err(|e| failure::of(&e, None))?;
        let document = yaml::read_documents(&text).into_iter().next().and_then(|d| d.value.ok());
        let Some(mut value) = document else { return Err(LocalFailure::ManifestUnreadable.into()) };
        let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let Some(annotations) = annotations else { return Err(LocalFailure::ForeignManifest.into()) };
        annotations.insert(ANNOTATION.to_owned(), now.as_millis().to_string().into());
        let header: Vec<String> = text
            .lines()
            .take_while(|l| l.starts_with('#'))
            .map(|l| l.trim_start_matches(['#', ' ']).to_owned())
            .collect();
        let touched = yaml::write_manifest(&header, &value);
        let written = manifests.rewrite(&file, touched.as_bytes(), &value).and_then(|()| manifests.sync());
        written.map_err(|e| failure::of(&e, e.hint()))?;
        Ok((rendering::digest(touched.as_bytes()), rendering::digest(text.as_bytes())))
    }
}
