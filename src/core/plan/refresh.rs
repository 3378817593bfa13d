//! Keeps a running instance up to date in place: each volume by itself, and the manifest.
//!
//! Owns what a part that lacks something means for an instance that runs: only that part keeps its last data.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::record::Instance;
use crate::core::record::Progress;
use crate::core::record::WrittenData;
use crate::core::render::GATE;
use crate::core::render::HeldPart;
use crate::core::render::Missing;
use crate::core::render::Part;
use crate::core::rendering::RenderResult;
use crate::core::status::MANIFEST;
use crate::core::status::StaleVolume;
use crate::core::status::WaitingContainer;
use crate::core::volume::VolumeData;

use super::Action;
use super::Data;
use super::Hint;
use super::ManifestFact;
use super::Planner;
use super::Reason;
use super::State;
use super::VolumesFact;
use super::progress::restarts_on_data;
use super::reason::objects;

/// How much of an instance keeps its last data because of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StaleScope {
    Volume,
    Pod,
}

/// Which parts of an instance keep their last data.
#[derive(Default)]
struct KeptParts {
    volumes: BTreeSet<String>,
    manifest: bool,
    /// Whether a part that is not optional keeps what it has.
    is_bound: bool,
    stale: Vec<(StaleScope, StaleVolume)>,
    /// Objects that do not exist and are no data.
    missing: Vec<Missing>,
    /// Objects that no source has shown yet, or that cannot be read.
    unknown: Vec<Missing>,
    /// Containers that have waited since the instance began.
    waiting: BTreeSet<String>,
    /// The hints for refused fields.
    hints: Vec<Hint>,
}

/// What of an instance is not there to be kept.
#[derive(Clone, Copy, Default)]
struct LostParts<'a> {
    manifest: bool,
    volumes: Option<&'a BTreeSet<String>>,
}

impl KeptParts {
    fn of(instance: &Instance, rendering: &RenderResult, lost: LostParts<'_>) -> Self {
        let is_refused = rendering.result.is_err();
        let mut kept = Self { manifest: is_refused, is_bound: is_refused, ..Self::default() };
        for held in rendering.held() {
            match held.optional && held.unconfirmed {
                true => kept.add_optional(instance, held, lost),
                false => kept.add(instance, rendering, held),
            }
        }
        if kept.manifest {
            kept.keep_environments(instance, rendering);
        }
        kept
    }

    /// Keeps the env files of all containers with the manifest, which names what is in them. They are stale where data is
    /// the reason.
    fn keep_environments(&mut self, instance: &Instance, rendering: &RenderResult) {
        let is_stale = !self.stale.is_empty();
        for volume in rendering.volumes().iter().filter(|volume| volume.is_environment) {
            if self.volumes.insert(volume.name.clone()) && is_stale {
                let stale = StaleVolume {
                    pod: instance.pod_name.clone(),
                    volume: volume.name.clone(),
                    since: String::new(),
                    missing: Vec::new(),
                    reason: "the manifest, which names its variables, stays as it is".to_owned(),
                };
                self.stale.push((StaleScope::Pod, stale));
            }
        }
    }

    /// Of what is optional nothing may be known for as long as the API server is away: what is lost does not wait for it.
    fn add_optional(&mut self, instance: &Instance, held: &HeldPart, lost: LostParts<'_>) {
        let keeps_manifest = !lost.manifest && lost.volumes.is_none();
        let is_there = |volume: &String| lost.volumes.is_none_or(|lost| !lost.contains(volume));
        match &held.part {
            Part::Environment { container, volume, .. } => {
                if held.waits_alone() && (instance.waiting.contains(container) || !keeps_manifest) {
                    self.waiting.insert(container.clone());
                    return;
                }
                self.manifest |= keeps_manifest;
                self.volumes.extend(Some(volume.clone()).filter(|_| keeps_manifest));
            }
            Part::Volume(volume) => self.volumes.extend(Some(volume.clone()).filter(is_there)),
            Part::Pod | Part::Everything => self.manifest |= keeps_manifest,
        }
        self.unknown.extend(held.missing.iter().cloned());
    }

    fn add(&mut self, instance: &Instance, rendering: &RenderResult, held: &HeldPart) {
        let (extent, volume) = match &held.part {
            Part::Environment { container, .. } if held.waits_alone() && instance.waiting.contains(container) => {
                self.waiting.insert(container.clone());
                return;
            }
            Part::Environment { volume, .. } => {
                // Values of ConfigMaps are in the manifest.
                self.manifest = true;
                self.volumes.insert(volume.clone());
                (StaleScope::Volume, volume.as_str())
            }
            Part::Volume(volume) => {
                self.volumes.insert(volume.clone());
                (StaleScope::Volume, volume.as_str())
            }
            Part::Pod => {
                self.manifest = true;
                (StaleScope::Pod, MANIFEST)
            }
            Part::Everything => {
                self.manifest = true;
                self.volumes.extend(rendering.volumes().iter().map(|volume| volume.name.clone()));
                (StaleScope::Pod, MANIFEST)
            }
        };
        self.is_bound = true;
        // A volume that keeps its last data goes on to do so while it is not known what it lacks now.
        let was_stale = extent == StaleScope::Volume && instance.stale.contains_key(volume);
        // An object that concerns the whole pod is not data: the running instance does not become stale without it.
        match (held.unconfirmed && !was_stale, held.refused.is_empty() && extent == StaleScope::Pod) {
            (true, _) => return self.unknown.extend(held.missing.iter().cloned()),
            (false, true) => return self.missing.extend(held.missing.iter().cloned()),
            (false, false) => {}
        }
        self.hints.extend(held.refused.iter().filter_map(|error| error.hint.clone()).map(Hint::Field));
        let stale = StaleVolume {
            pod: instance.pod_name.clone(),
            volume: volume.to_owned(),
            since: String::new(),
            missing: held.missing.clone(),
            reason: reason(held),
        };
        self.stale.push((extent, stale));
    }
}

impl Planner<'_> {
    /// Brings data and manifest of a live instance up to date with its own revision, as far as nothing is missing.
    pub(super) fn refresh(&mut self, instance: &Instance) {
        let Some(daemon_set) = &instance.daemon_set else { return };
        let data = if instance.pinned { Data::Rollback } else { Data::Current };
        let rendering = self.facts.rendering(daemon_set, instance.incarnation, data);
        match &rendering.result {
            Ok(rendered) => self.note(rendered),
            Err(refused) => {
                self.plan.references.extend(refused.references.iter().cloned());
                self.plan.tokens.extend(refused.tokens.iter().cloned());
            }
        }
        if rendering.identity.uid != instance.uid {
            let mut kept = KeptParts::default();
            kept.add(instance, &rendering, &made_elsewhere(daemon_set));
            return self.note_kept(instance, &rendering, &kept);
        }
        let is_lost = self.facts.manifest(&instance.uid) == ManifestFact::Lost;
        let lost = LostParts { manifest: is_lost, volumes: self.facts.empty_volumes(instance) };
        let mut kept = KeptParts::of(instance, &rendering, lost);
        self.note_kept(instance, &rendering, &kept);
        let manifest = match self.facts.manifest(&instance.uid) {
            ManifestFact::Missing if self.facts.unreadable_manifests().is_none() => return,
            // It starts anew: missing objects hold it, as at a first start.
            ManifestFact::Lost if kept.is_bound => return,
            ManifestFact::Missing => {
                kept.keep_environments(instance, &rendering);
                false
            }
            ManifestFact::Lost => true,
            ManifestFact::Present(digest) => {
                let other = rendering.result.as_ref().ok().filter(|rendered| digest != rendered.digest);
                if other.is_some_and(|rendered| rendered.pod.guesses_kubelet) {
                    kept.manifest = true;
                    kept.keep_environments(instance, &rendering);
                    self.add_reason(Reason::AwaitsKubeletVersion);
                    self.add_hints([Hint::GiveKubeletVersion]);
                }
                other.is_some() && !kept.manifest
            }
        };
        let kept = self.with_gate(kept);
        self.note_rendered(instance, &rendering, &kept);
        let data = self.facts.volumes(&rendering, &kept.volumes);
        let volumes = data == VolumesFact::Differ || data == VolumesFact::Unverified && manifest;
        let (rendering, kept) = (Arc::clone(&rendering), kept.volumes);
        if manifest || volumes {
            self.plan.actions.push(Action::Refresh { rendering, volumes, manifest, kept });
        } else if data == VolumesFact::Unverified {
            self.plan.actions.push(Action::Verify { rendering, kept });
        }
    }

    /// Whether the manifest of an instance is lost, and not written in this pass.
    pub(super) fn has_no_manifest(&self, instance: &Instance) -> bool {
        let writes = |action: &Action| match action {
            Action::Refresh { rendering, manifest, .. } => *manifest && rendering.identity.uid == instance.uid,
            _ => false,
        };
        self.facts.manifest(&instance.uid) == ManifestFact::Lost && !self.plan.actions.iter().any(writes)
    }

    /// Brings the data of an instance up to date whose manifest was to be removed and is still there.
    pub(super) fn refresh_volumes(&mut self, instance: &Instance) {
        let Some(daemon_set) = &instance.daemon_set else { return };
        let data = if instance.pinned { Data::Rollback } else { Data::Current };
        let rendering = self.facts.rendering(daemon_set, instance.incarnation, data);
        if rendering.identity.uid != instance.uid {
            return;
        }
        if let Ok(rendered) = &rendering.result {
            self.note(rendered);
        }
        let mut kept = KeptParts::of(instance, &rendering, LostParts::default());
        let is_current = match (self.facts.manifest(&instance.uid), &rendering.result) {
            (ManifestFact::Present(digest), Ok(rendered)) => digest == rendered.digest,
            _ => false,
        };
        if !is_current {
            kept.keep_environments(instance, &rendering);
        }
        let kept = self.with_gate(kept).volumes;
        if self.facts.volumes(&rendering, &kept) == VolumesFact::Differ {
            let rendering = Arc::clone(&rendering);
            self.plan.actions.push(Action::Refresh { rendering, volumes: true, manifest: false, kept });
        }
    }

    /// The gate stays as it is while it is closed. Nothing else that is missing keeps it so.
    fn with_gate(&self, mut kept: KeptParts) -> KeptParts {
        match self.gate.is_closed() {
            true => drop(kept.volumes.insert(GATE.to_owned())),
            false => drop(kept.volumes.remove(GATE)),
        }
        kept
    }

    /// Notes what an instance has once the rendering is written.
    fn note_rendered(&mut self, instance: &Instance, rendering: &Arc<RenderResult>, kept: &KeptParts) {
        let now = self.context.now;
        let starts = !kept.manifest && kept.waiting.len() < instance.waiting.len();
        let Some(known) = self.plan.record.instances.iter_mut().find(|known| known.uid == instance.uid) else { return };
        let written = WrittenData::of(rendering, &kept.volumes);
        // If nothing is written, the earlier state stays true.
        let writes = |volume: &VolumeData| !kept.volumes.contains(&volume.name) || !volume.tokens.is_empty();
        let is_news = known.data.is_none() || rendering.volumes().iter().any(writes);
        if is_news && known.data.as_ref() != Some(&written) {
            known.data = Some(written);
        }
        if !kept.manifest {
            known.waiting.clone_from(&kept.waiting);
        }
        let Ok(rendered) = &rendering.result else { return };
        if known.data_version.is_empty() && rendered.pod.waiting_for.is_empty() {
            // An adopted instance, or one that has waited: the data it was made with is still unknown.
            known.data_version.clone_from(&rendered.pod.data_version);
        }
        if starts {
            // Its deadline counts from the time when nothing is missing any more.
            let restarts = instance.daemon_set.as_ref().is_some_and(|daemon_set| restarts_on_data(daemon_set));
            let data_version = restarts.then(|| known.data_version.clone());
            self.plan.record.progress =
                Some(Progress { revision: instance.revision.clone(), data_version, since: now });
        }
        if !instance.started && !rendered.pod.pull_secrets.is_empty() && self.plan.pull.is_none() {
            // It was started without its images, and the kubelet does not know its pull secrets.
            self.plan.pull = Some(Arc::clone(rendering));
        }
    }

    /// Reports which parts keep their last data, since when, and what they lack.
    fn note_kept(&mut self, instance: &Instance, rendering: &RenderResult, kept: &KeptParts) {
        let now = self.context.now;
        for missing in rendering.held().iter().flat_map(|held| &held.missing) {
            if !self.plan.summary.waiting_for.contains(missing) {
                self.plan.summary.waiting_for.push(missing.clone());
            }
        }
        let without = Some(&kept.missing).filter(|missing| !missing.is_empty()).cloned();
        self.add_reasons(without.map(Reason::KeepsDataWithout));
        let until = Some(&kept.unknown).filter(|unknown| !unknown.is_empty()).cloned();
        self.add_reasons(until.map(Reason::KeepsDataUntil));
        self.add_hints(kept.hints.iter().cloned());
        let waiting = rendering.held().iter().filter(|held| match &held.part {
            Part::Environment { container, .. } => kept.waiting.contains(container),
            _ => false,
        });
        self.note_waiting(waiting);
        let Some(known) = self.plan.record.instances.iter_mut().find(|known| known.uid == instance.uid) else { return };
        known.stale.retain(|volume, _| kept.stale.iter().any(|(_, stale)| stale.volume == *volume));
        for (extent, stale) in &kept.stale {
            let since = known.stale.entry(stale.volume.clone()).or_insert(now).to_string();
            // A daemon that is set aside keeps its manifest for the one reason that is given for all of its parts.
            if !(self.is_set_aside && *extent == StaleScope::Pod) {
                self.plan.summary.stale.push(StaleVolume { since, ..stale.clone() });
            }
        }
    }

    /// Ends the summary of a running instance: without all of its containers it waits, with old data it is stale.
    pub(super) fn tell_kept(&mut self) {
        let waiting = std::mem::take(&mut self.plan.summary.waiting_containers);
        for container in &waiting {
            self.add_reason(Reason::ContainerWaits(container.clone()));
        }
        if !waiting.is_empty() && self.plan.summary.state != State::Orphaned {
            self.plan.summary.state = State::Waiting;
        }
        self.plan.summary.waiting_containers = waiting;
        if !self.plan.summary.stale.is_empty() && self.plan.summary.state == State::Running {
            self.plan.summary.state = State::Stale;
        }
        let stale = self.plan.summary.stale.clone();
        self.add_reasons(stale.into_iter().map(Reason::Stale));
    }

    /// Says which containers wait by themselves.
    pub(super) fn note_waiting<'h>(&mut self, held: impl IntoIterator<Item = &'h HeldPart>) {
        for held in held {
            if let Part::Environment { container, .. } = &held.part {
                let (container, missing) = (container.clone(), held.missing.clone());
                self.plan.summary.waiting_containers.push(WaitingContainer { container, missing });
            }
        }
    }
}

/// The containers that lack their environment and wait by themselves.
pub(super) fn waiting_alone(held: &[HeldPart]) -> BTreeSet<String> {
    let alone = held.iter().filter(|held| held.waits_alone());
    alone
        .filter_map(|held| match &held.part {
            Part::Environment { container, .. } => Some(container.clone()),
            _ => None,
        })
        .collect()
}

/// Why an instance whose UID is not the one of its definition and number keeps running as it is.
fn made_elsewhere(daemon_set: &DaemonSet) -> HeldPart {
    let error = FieldError {
        field: "metadata.uid".to_owned(),
        reason: "another version of the agent made it, or one with another node name: its data stays as it is, too"
            .to_owned(),
        hint: Some(format!("`daemonlet restart {}` replaces it", daemon_set.key)),
    };
    HeldPart { refused: vec![error], ..HeldPart::default() }
}

/// The reason that holds a part back, in one line.
fn reason(held: &HeldPart) -> String {
    let mut reasons: Vec<String> = held.refused.iter().map(ToString::to_string).collect();
    if !held.missing.is_empty() {
        reasons.push(format!("missing {}", objects(&held.missing)));
    }
    let of = match &held.part {
        Part::Environment { container, .. } => format!("the environment of container {container}: "),
        _ => String::new(),
    };
    format!("{of}{}", reasons.join("; "))
}
