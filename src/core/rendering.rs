//! One complete rendering: identity, manifest text and data, or why it is refused.
//!
//! Owns the step from a DaemonSet and an incarnation number to the bytes on disk. Must not do I/O; the shell caches
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::Digest;
use sha2::Sha256;

use crate::core::bounds;
use crate::core::canonical;
use crate::core::identity;
use crate::core::identity::Identity;
use crate::core::manifest;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectSource;
use crate::core::model::TokenSource;
use crate::core::overlays;
use crate::core::record::Instance;
use crate::core::render;
use crate::core::render::HeldPart;
use crate::core::render::Missing;
use crate::core::render::Part;
use crate::core::render::Refused;
use crate::core::render::RenderInput;
use crate::core::render::RenderOptions;
use crate::core::render::RenderedPod;
use crate::core::volume::VolumeData;

/// The rendering of one incarnation of a DaemonSet.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RenderResult {
    /// UID and pod name.
    pub identity: Identity,
    /// The hash of the revision.
    pub revision: String,
    /// The manifest and its data, or the refused fields.
    pub result: Result<Rendered, Refused>,
    /// Digests of its data. A recording has that of all data, in [`Rendered::data_digest`].
    #[serde(skip)]
    pub data: DataDigests,
}

/// Digests over names, modes, owners and bytes of volume data, in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DataDigests {
    /// Of all volumes together.
    pub all: String,
    /// Of each volume, by its name.
    pub by_volume: BTreeMap<String, String>,
    /// Of the tokens of each volume that has any.
    pub tokens: BTreeMap<String, String>,
}

impl DataDigests {
    /// The digest of all volumes that are not among `kept`, and of the tokens of those that are.
    pub fn without(&self, kept: &BTreeSet<String>) -> String {
        if kept.is_empty() {
            return self.all.clone();
        }
        let written = self.by_volume.iter().filter(|(name, _)| !kept.contains(*name));
        let tokens = self.tokens.iter().filter(|(name, _)| kept.contains(*name));
        let text: String = written.chain(tokens).map(|(name, digest)| format!("{name} {digest}\n")).collect();
        digest(text.as_bytes())
    }

    fn of(volumes: &[VolumeData]) -> Self {
        let one = |volume: &VolumeData| (volume.name.clone(), data_digest(std::slice::from_ref(volume)));
        let tokens = volumes.iter().filter_map(VolumeData::tokens_alone);
        Self {
            all: data_digest(volumes),
            by_volume: volumes.iter().map(one).collect(),
            tokens: tokens.map(|volume| one(&volume)).collect(),
        }
    }
}

/// A rendered instance, ready to be written.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Rendered {
    /// The manifest's file name in the manifest folder.
    pub file: String,
    /// The manifest's text. A recording has its digest alone.
    #[serde(skip)]
    pub text: String,
    /// SHA-256 of the text, in hex.
    pub digest: String,
    /// [`DataDigests::all`], in a recording.
    pub data_digest: String,
    /// The pod, its data and what it refers to.
    pub pod: RenderedPod,
}

impl RenderResult {
    /// The result for a definition that is not to be rendered, and why. It has no instance's identity: the running one is kept.
    pub fn held_back(why: String) -> Self {
        let error = FieldError { field: "spec.template".to_owned(), reason: why, hint: None };
        Self {
            identity: Identity { uid: String::new(), pod_name: String::new() },
            revision: String::new(),
            result: Err(Refused { errors: vec![error], is_shrunk: false, ..Refused::default() }),
            data: DataDigests::default(),
        }
    }

    /// Of `instance`, which runs, while `daemon_set`, its definition, is not to be rendered: its tokens alone.
    pub fn tokens_alone(
        instance: &Instance,
        daemon_set: &DaemonSet,
        objects: &dyn ObjectSource,
        tokens: &dyn TokenSource,
        options: &RenderOptions,
    ) -> Self {
        let identity = Identity { uid: instance.uid.clone(), pod_name: instance.pod_name.clone() };
        let (revision, incarnation) = (instance.revision.clone(), instance.incarnation);
        let input =
            RenderInput { daemon_set, objects, tokens, options, identity: &identity, revision: &revision, incarnation };
        let refused = render::tokens_alone(input);
        let data = DataDigests::of(&refused.volumes);
        Self { identity, revision, result: Err(refused), data }
    }

    /// Whether it still has what is needed to write it: text, pod and data.
    pub fn is_whole(&self) -> bool {
        match &self.result {
            Ok(rendered) => !rendered.text.is_empty(),
            Err(refused) => !refused.is_shrunk,
        }
    }

    /// What is only needed to write it takes so much memory, roughly, in bytes. What it shares with the objects that it was
    /// made from is not counted.
    pub fn weight(&self) -> usize {
        let written = self.result.as_ref().map_or(0, |it| it.text.len() + bounds::object_weight(&it.pod.pod));
        let files = self.volumes().iter().flat_map(|volume| &volume.files);
        written + files.map(|(path, file)| path.len() + file.data.own_len() + bounds::VALUE).sum::<usize>()
    }

    /// The same, waiting for `more` with everything that it has.
    pub fn waiting_for(&self, more: Vec<Missing>) -> Self {
        let mut rendering = self.clone();
        let held = HeldPart { part: Part::Everything, missing: more.clone(), unconfirmed: true, ..HeldPart::default() };
        match &mut rendering.result {
            Ok(rendered) => {
                rendered.pod.held.push(held);
                rendered.pod.waiting_for.extend(more.into_iter().filter(|m| !self.waits_for(m)));
            }
            Err(refused) => refused.held.push(held),
        }
        rendering
    }

    /// The volumes with data; of a refused pod too.
    pub fn volumes(&self) -> &[VolumeData] {
        match &self.result {
            Ok(rendered) => &rendered.pod.volumes,
            Err(refused) => &refused.volumes,
        }
    }

    /// What is written of its volumes if those among `kept` keep what they have: their tokens are still written.
    pub fn volumes_without<'a>(&'a self, kept: &BTreeSet<String>) -> Vec<Cow<'a, VolumeData>> {
        let written = self.volumes().iter().filter_map(|volume| match kept.contains(&volume.name) {
            true => volume.tokens_alone().map(Cow::Owned),
            false => Some(Cow::Borrowed(volume)),
        });
        written.collect()
    }

    /// The parts that something missing or refused holds back.
    pub fn held(&self) -> &[HeldPart] {
        match &self.result {
            Ok(rendered) => &rendered.pod.held,
            Err(refused) => &refused.held,
        }
    }

    fn waits_for(&self, missing: &Missing) -> bool {
        self.result.as_ref().is_ok_and(|rendered| rendered.pod.waiting_for.contains(missing))
    }

    /// The same without what is only needed to write it; all that is compared stays.
    pub fn shrunk(&self) -> Self {
        let shrunk = |rendered: &Rendered| Rendered {
            file: rendered.file.clone(),
            text: String::new(),
            digest: rendered.digest.clone(),
            data_digest: rendered.data_digest.clone(),
            pod: rendered.pod.shrunk(),
        };
        Self {
            identity: self.identity.clone(),
            revision: self.revision.clone(),
            result: self.result.as_ref().map(shrunk).map_err(Refused::shrunk),
            data: self.data.clone(),
        }
    }
}

/// The canonical template of a DaemonSet with its hash; computed once for each definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The canonical template, as JSON: without overlays, which are part of no identity.
    pub canonical: String,
    /// What an instance is current by ([`identity::patched_revision`]).
    pub hash: String,
}

impl Revision {
    /// The revision that `daemon_set` defines.
    pub fn of(daemon_set: &DaemonSet) -> Self {
        let canonical = canonical::template(&daemon_set.template).to_string();
        let hash = overlays::revision(&identity::revision_hash(&canonical), daemon_set);
        Self { canonical, hash }
    }
}

/// Renders `incarnation` of `daemon_set`.
pub fn render(
    daemon_set: &Arc<DaemonSet>,
    revision: &Revision,
    incarnation: u64,
    objects: &dyn ObjectSource,
    tokens: &dyn TokenSource,
    options: &RenderOptions,
) -> RenderResult {
    let identity = identity::identity(&daemon_set.key, &revision.canonical, &options.node_name, incarnation);
    let input = RenderInput {
        daemon_set,
        objects,
        tokens,
        options,
        identity: &identity,
        revision: &revision.hash,
        incarnation,
    };
    let rendered = render::render(input);
    let data = DataDigests::of(rendered.as_ref().map_or_else(|refused| &refused.volumes[..], |pod| &pod.volumes));
    let result = rendered.and_then(|mut pod| {
        let text = manifest::text(&daemon_set.key, &revision.hash, &pod.pod);
        if text.len() > manifest::MAX_BYTES - manifest::TOUCHED {
            return Err(Refused::of(pod, too_long(text.len())));
        }
        pod.notes.extend((text.len() > manifest::MIRRORED).then(|| too_long_for_api(text.len())));
        Ok(Rendered {
            file: manifest::file_name(&daemon_set.key.namespace, &identity.pod_name),
            digest: digest(text.as_bytes()),
            data_digest: data.all.clone(),
            text,
            pod,
        })
    });
    RenderResult { identity, revision: revision.hash.clone(), result, data }
}

/// That the kubelet would not read a manifest of `bytes`. It would take its pod for gone, and end it.
fn too_long(bytes: usize) -> FieldError {
    let most = manifest::MAX_BYTES - manifest::TOUCHED;
    let reason =
        format!("the manifest would have {bytes} bytes; {most} are the most, as the kubelet reads less than 10 MiB");
    of_length(reason)
}

/// That the API server may not be able to store the mirror pod of a manifest of `bytes`.
fn too_long_for_api(bytes: usize) -> FieldError {
    of_length(format!(
        "the manifest has {bytes} bytes, and etcd takes requests of up to 1.5 MiB: the pod runs, and if the API server refuses \
         its mirror pod, kubectl does not show it"
    ))
}

fn of_length(reason: String) -> FieldError {
    let hint = "mount large ConfigMaps as volumes: those in env and envFrom are part of the manifest";
    FieldError { field: "spec.template".to_owned(), reason, hint: Some(hint.to_owned()) }
}

/// A digest of everything about volumes that is written to disk.
fn data_digest(volumes: &[VolumeData]) -> String {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for volume in volumes {
        part(volume.name.as_bytes());
        part(format!("{:?} {:?}", volume.fs_group, volume.nested_mount_points).as_bytes());
        for (path, file) in &volume.files {
            part(path.as_bytes());
            part(format!("{:o} {:?}", file.mode, file.uid).as_bytes());
            part(&file.data);
        }
    }
    hex(&hash.finalize())
}

/// SHA-256 in hex.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// In lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::model::Kind;
    use crate::core::model::ObjectMap;
    use crate::core::model::ObjectRef;
    use crate::core::model::Source;
    use crate::core::model::TokenRequest;
    use crate::core::policy::PodRules;
    use crate::core::validate;
    use crate::core::volume::VolumeFile;

    use super::*;

    #[test]
    fn a_manifest_that_the_kubelet_does_not_read_is_refused_before_anything_ends() {
        let value = json!({
            "metadata": {"namespace": "a", "name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "big"}}]}],
                    "volumes": [{"name": "v", "configMap": {"name": "big"}}],
                },
            }},
        });
        let daemon_set = Arc::new(validate::daemon_set(&value, Source::Api).expect("it is valid"));
        let options = RenderOptions {
            node_name: "n".to_owned(),
            kubelet_version: Some((1, 36)),
            api_endpoint: None,
            has_api: false,
            inline_secret_env: false,
            pulls: Default::default(),
            token_expiration: render::DEFAULT_TOKEN_EXPIRATION,
            rules: PodRules::trusting(),
            topology: Default::default(),
        };
        let rendered = |bytes: usize| {
            let mut objects = ObjectMap { complete: true, ..ObjectMap::default() };
            let big = json!({"data": {"K": "x".repeat(bytes)}});
            objects.objects.insert(ObjectRef::new(Kind::ConfigMap, "a", "big"), big);
            objects.objects.insert(ObjectRef::new(Kind::ServiceAccount, "a", "default"), json!({}));
            let tokens: BTreeMap<TokenRequest, String> = BTreeMap::new();
            render(&daemon_set, &Revision::of(&daemon_set), 0, &objects, &tokens, &options)
        };
        let refused = rendered(10 << 20).result.expect_err("it is too long");
        let texts: Vec<_> = refused.errors.iter().map(FieldError::with_hint).collect();
        assert!(
            texts.len() == 1 && texts[0].contains("the kubelet reads less than 10 MiB (hint: mount large"),
            "{texts:?}"
        );
        assert_eq!(refused.held.iter().map(|held| &held.part).collect::<Vec<_>>(), [&Part::Pod]);
        assert_eq!(refused.volumes[0].files["K"].data.len(), 10 << 20, "what runs is refreshed");
        assert!(refused.references.contains(&ObjectRef::new(Kind::ConfigMap, "a", "big")), "it may become smaller");
        let notes = |bytes: usize| rendered(bytes).result.map(|rendered| rendered.pod.notes.len());
        assert_eq!((notes(1_300_000), notes(1_500_000), notes(10 << 19)), (Ok(0), Ok(1), Ok(1)), "etcd's limit");
    }

    #[test]
    fn the_digest_of_what_is_written_follows_tokens_of_volumes_that_keep_the_rest() {
        let file = |data: &str| VolumeFile { data: data.as_bytes().into(), mode: 0o600, uid: None };
        let digest = |token: &str, ca: &str, other: &str| {
            let files = BTreeMap::from([("token".to_owned(), file(token)), ("ca".to_owned(), file(ca))]);
            let tokens = BTreeSet::from(["token".to_owned()]);
            let volume = VolumeData { name: "sa".to_owned(), files, tokens, ..VolumeData::default() };
            let files = BTreeMap::from([("f".to_owned(), file(other))]);
            let other = VolumeData { name: "other".to_owned(), files, ..VolumeData::default() };
            DataDigests::of(&[volume, other]).without(&BTreeSet::from(["sa".to_owned()]))
        };
        assert_eq!(digest("1", "1", "1"), digest("1", "2", "1"), "what is kept");
        assert_ne!(digest("1", "1", "1"), digest("2", "1", "1"));
        assert_ne!(digest("1", "1", "1"), digest("1", "1", "2"));
    }
}
