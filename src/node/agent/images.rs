//! From the plan's wishes to pulls, and from pulls to the facts of the next plan.
//!
//! Owns what a pull's progress means for an instance: the old one stays while the new one's images can
//! be had, and where nothing runs no pull holds a daemon up for long.

use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use crate::core::images::of_spec;
use crate::core::images::refusal::Refusal;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectRef;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Images;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;
use crate::core::status::PullStatus;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::cri::images::PullFor;
use crate::node::images::PullProgress;
use crate::node::images::Puller;
use crate::node::images::Wish;

use super::Agent;
use super::now;
use super::objects::Objects;

/// How long a daemon of which nothing runs waits for a runtime that is silent.
const SILENT: Span = Span::from_secs(10);

/// What one pass knows of images.
#[derive(Clone, Copy)]
pub(super) struct ImageFacts<'a> {
    pub(super) puller: &'a Puller,
    /// `images.require-prepull`.
    pub(super) require_prepull: bool,
    /// `images.on-pull-failure = "go-on"`.
    pub(super) go_on: bool,
    /// Nothing is done, only answered.
    pub(super) offline: bool,
    /// Whether the API's word is current.
    pub(super) api_answers: bool,
    pub(super) now: Timestamp,
}

impl ImageFacts<'_> {
    /// Whether the images for `rendering` are there, as far as that matters.
    pub(super) fn state(&self, rendering: &RenderResult, replaces: bool, objects: &Objects<'_>) -> Images {
        let Ok(rendered) = &rendering.result else { return Images::Present };
        if self.offline || !needed(rendered, replaces) {
            return Images::Present;
        }
        if !self.puller.can_pull() {
            return match replaces {
                true => Images::Handed(
                    "its images are pulled by the kubelet after the old instance has ended: no runtime-endpoint is configured"
                        .to_owned(),
                ),
                false => Images::Present,
            };
        }
        if let Some(secret) = self.awaited_secret(rendered, objects).filter(|_| replaces) {
            return Images::Pulling(format!("waits for {secret}, a pull secret"));
        }
        let looking = (PullProgress::Looking(None), self.now);
        let (progress, since) = self.puller.progress(&rendering.identity.uid).unwrap_or(looking);
        let waited = self.now - since;
        match progress {
            PullProgress::Done(None) => Images::Present,
            PullProgress::Done(Some(said)) => Images::Handed(said),
            PullProgress::Looking(Some(silence)) if !replaces && waited >= SILENT.min(self.puller.patience()) => {
                Images::Failed(silence)
            }
            PullProgress::Looking(Some(silence)) => Images::Pulling(silence),
            PullProgress::Looking(None) => Images::Pulling("looks for its images".to_owned()),
            PullProgress::Pulling { image, present: true, .. } if !replaces && waited >= self.puller.patience() => {
                Images::Handed(format!(
                    "image {image} is not pulled anew yet: it starts with the one that is on the node"
                ))
            }
            PullProgress::Pulling { image, number, count, since, .. } => {
                Images::Pulling(format!("pulls image {number} of {count} ({image}) since {}", since))
            }
            PullProgress::Failed { words, refusal } => self.failed(words, refusal, replaces),
        }
    }

    fn failed(&self, words: String, refusal: Refusal, replaces: bool) -> Images {
        if !replaces {
            return Images::Failed(words);
        }
        if self.go_on {
            return Images::Handed(format!("{words}; the old instance ends all the same (images.on-pull-failure)"));
        }
        if refusal == Refusal::Credentials && !self.require_prepull {
            return Images::Handed(format!(
                "{words}; the old instance ends and pulling is left to the kubelet, which may know other \
                 credentials (images.require-prepull would keep it)"
            ));
        }
        Images::Failed(format!("{words}; it is tried again"))
    }

    /// A pull secret of which the API has yet to say whether it exists.
    fn awaited_secret<'r>(&self, rendered: &'r Rendered, objects: &Objects<'_>) -> Option<&'r ObjectRef> {
        let api = objects.api.filter(|_| self.api_answers)?;
        rendered.pod.pull_secrets.iter().find(|secret| {
            let scope = Scope::Object((*secret).clone());
            let refused = api.scopes.get(&scope).is_some_and(|state| state.error.is_some());
            !refused && objects.entry(secret).is_none() && api.lists(&scope) == 0
        })
    }
}

/// Whether the agent has to pull: always for a replacement; where nothing runs only what the kubelet
/// could not pull, or would not pull anew.
fn needed(rendered: &Rendered, replaces: bool) -> bool {
    let pod = &rendered.pod;
    !pod.images.is_empty() && (replaces || !pod.pull_secrets.is_empty() || pod.images.iter().any(|image| image.always))
}

impl Agent {
    /// Hands the plan's wishes to the puller.
    pub(super) fn pull_images(&mut self, api: Option<&Snapshot>) {
        let objects = Objects {
            api,
            folders: self.folders.objects(),
            remembered: &self.remembered_inputs.objects,
            rollback_data: None,
            live: false,
        };
        let wishes = self.plan.daemons.iter().filter_map(|daemon| wish(daemon, &objects, &self.config.node_name));
        let wishes: Vec<Wish> = wishes.collect();
        self.puller.want(wishes, now());
        let daemons = &mut self.plan.daemons;
        self.puller.forget_said(|uid| daemons.iter().any(|d| d.record.instances.iter().any(|i| i.uid == uid)));
        for daemon in daemons.iter_mut() {
            let said = daemon.record.live().filter_map(|i| self.puller.said(&i.uid).map(str::to_owned));
            let new: Vec<String> = said.filter(|said| !daemon.summary.notes.contains(said)).collect();
            daemon.summary.notes.extend(new);
        }
        if self.pass_number > 0 {
            // The first pass is from disk alone.
            self.pin_images();
        }
    }

    /// Keeps the images of what runs, of what is about to run and of what a roll-back returns to from image
    /// garbage collection; says where that cannot be had.
    fn pin_images(&mut self) {
        let mut needed = BTreeSet::new();
        for daemon in &mut self.plan.daemons {
            let record = &daemon.record;
            let templates = record.instances.iter().filter_map(|i| i.daemon_set.as_ref());
            let good = record.good.as_ref().and_then(|good| good.daemon_set.as_ref());
            templates.chain(good).for_each(|daemon_set| needed.extend(names(daemon_set)));
            let wanted = daemon.pull.as_ref().and_then(|rendering| rendering.result.as_ref().ok());
            needed.extend(wanted.into_iter().flat_map(|r| r.pod.images.iter().map(|image| image.image.clone())));
            // An image that no container uses is the first to go.
            if let Some(image) = good.into_iter().flat_map(names).find(|image| self.pins.is_unpinned(image)) {
                daemon.summary.notes.push(format!(
                    "image {image} of the last good revision may be lost to image garbage collection: the container \
                     runtime does not keep it"
                ));
            }
        }
        self.pins.keep(&needed, now());
    }

    /// The image that is being pulled for the next instance of a daemon.
    pub(super) fn pull_status(&self, daemon: &DaemonPlan) -> Option<PullStatus> {
        match self.puller.progress(&daemon.pull.as_ref()?.identity.uid)? {
            (PullProgress::Pulling { image, number, count, since, .. }, _) => {
                Some(PullStatus { image, number, count, since: since.to_string() })
            }
            _ => None,
        }
    }

    /// When to look again at what is waited for no longer than a while.
    pub(super) fn images_due(&self) -> Option<Timestamp> {
        let at = now();
        let patience = self.puller.patience();
        let due = self.puller.open_since().flat_map(|since| [since + SILENT.min(patience), since + patience]);
        due.filter(|due| *due > at).min()
    }
}

/// The images of a DaemonSet's template.
fn names(daemon_set: &Arc<DaemonSet>) -> impl Iterator<Item = String> {
    let spec = daemon_set.pod_template().get("spec");
    spec.map(of_spec).unwrap_or_default().into_iter().map(|image| image.image)
}

fn wish(daemon: &DaemonPlan, objects: &Objects<'_>, node: &str) -> Option<Wish> {
    let rendering = daemon.pull.as_ref()?;
    let rendered = rendering.result.as_ref().ok()?;
    let replaces = daemon.record.live().any(|instance| instance.uid != rendering.identity.uid);
    if !needed(rendered, replaces) {
        return None;
    }
    let mut version = DefaultHasher::new();
    let mut secrets = Vec::new();
    for secret in &rendered.pod.pull_secrets {
        let entry = objects.entry(secret);
        (secret, entry.map(|entry| entry.version)).hash(&mut version);
        secrets.extend(entry.map(|entry| (secret.key.name.clone(), Arc::clone(&entry.value))));
    }
    let pod = PullFor {
        name: format!("{}-{}", rendering.identity.pod_name, node.to_lowercase()),
        namespace: daemon.key.namespace.clone(),
        uid: rendering.identity.uid.clone(),
    };
    Some(Wish { pod, images: rendered.pod.images.clone(), secrets, secrets_version: version.finish() })
}
