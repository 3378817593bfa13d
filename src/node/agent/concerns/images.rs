//! Turns a plan into pulls and pins, and the progress of pulls into facts for the next plan.
//!
//! Owns what a pull's progress means for an instance: the old one stays while the new one's images can be had, and where
//! nothing runs no pull holds a daemon up for long.

use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use crate::config::Config;
use crate::core::images::of_spec;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectRef;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::ImageReason;
use crate::core::plan::Images;
use crate::core::plan::Note;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::upstream::container_runtime::Refusal;
use crate::node::api::Scope;
use crate::node::cri::images::PullFor;
use crate::node::images::PullProgress;
use crate::node::images::WantedImages;

use super::super::objects::Objects;
use super::super::observation::Observation;
use super::super::requests::Request;

/// How long a daemon of which nothing runs waits for a runtime that does not answer.
const UNREACHABLE: Span = Span::from_secs(10);

/// What one pass knows of images.
#[derive(Clone, Copy)]
pub(in super::super) struct ImageFacts<'a> {
    pub(in super::super) observation: &'a Observation,
    /// `images.require-prepull`.
    pub(in super::super) require_prepull: bool,
    /// `images.on-pull-failure = "go-on"`.
    pub(in super::super) go_on: bool,
}

impl<'a> ImageFacts<'a> {
    /// As configured.
    pub(in super::super) fn new(observation: &'a Observation, config: &Config) -> Self {
        let go_on = config.replace_unpulled || config.exact_rollouts;
        Self { observation, require_prepull: config.require_prepull, go_on }
    }

    /// Whether the images for `rendering` are there, as far as that matters.
    pub(in super::super) fn of(&self, rendering: &RenderResult, replaces: bool, objects: &Objects<'_>) -> Images {
        let Ok(rendered) = &rendering.result else { return Images::Present };
        if !needed(rendered, replaces) {
            return Images::Present;
        }
        let (pulls, now) = (&self.observation.pulls, self.observation.now);
        if !self.observation.can_ask_runtime {
            return match replaces {
                true => Images::Handed(ImageReason::NoRuntime),
                false => Images::Present,
            };
        }
        let missing = rendered.pod.images.iter().find(|image| self.observation.missing_images.contains(&image.image));
        if let Some(image) = missing {
            return self.failed(ImageReason::Lost(image.image.clone()), Refusal::Away, replaces);
        }
        if let Some(secret) = self.awaited_secret(rendered, objects).filter(|_| replaces) {
            return Images::Pulling(ImageReason::AwaitsSecret(secret.clone()));
        }
        let looking = (PullProgress::Looking(None), now);
        let (progress, since) = pulls.progress.get(&rendering.identity.uid).cloned().unwrap_or(looking);
        let waited = now - since;
        match progress {
            PullProgress::Done(None) => Images::Present,
            PullProgress::Done(Some(said)) => Images::Handed(ImageReason::Reported(said)),
            PullProgress::Looking(Some(why)) if !replaces && waited >= UNREACHABLE.min(pulls.patience) => {
                Images::Failed(ImageReason::Reported(why))
            }
            PullProgress::Looking(Some(why)) => Images::Pulling(ImageReason::Reported(why)),
            PullProgress::Looking(None) => Images::Pulling(ImageReason::Looking),
            PullProgress::Pulling { image, present: true, .. } if !replaces && waited >= pulls.patience => {
                Images::Handed(ImageReason::NotPulledAnew(image))
            }
            PullProgress::Pulling { image, number, count, since, .. } => {
                Images::Pulling(ImageReason::Pulling { image, number, count, since })
            }
            PullProgress::Failed { words, refusal } => self.failed(ImageReason::Reported(words), refusal, replaces),
        }
    }

    fn failed(&self, why: ImageReason, refusal: Refusal, replaces: bool) -> Images {
        if !replaces {
            return Images::Failed(why);
        }
        if self.go_on {
            return Images::Handed(ImageReason::EndsAllTheSame(Box::new(why)));
        }
        if refusal == Refusal::Credentials && !self.require_prepull {
            return Images::Handed(ImageReason::LeftToKubelet(Box::new(why)));
        }
        Images::Failed(ImageReason::TriedAgain(Box::new(why)))
    }

    /// A pull secret that the API server has yet to list or to report as absent.
    fn awaited_secret<'r>(&self, rendered: &'r Rendered, objects: &Objects<'_>) -> Option<&'r ObjectRef> {
        let api = self.observation.snapshot().filter(|_| self.observation.api_answers())?;
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

/// The pulls and pins that `plan` wants. Notes in it which images may be lost.
pub(in super::super) fn requests(
    observation: &Observation,
    plan: &mut Plan,
    objects: &Objects<'_>,
    node: &str,
) -> Vec<Request> {
    let wishes = plan.daemons.iter().filter_map(|daemon| wish(daemon, objects, node)).collect();
    let mut needed = BTreeSet::new();
    for daemon in &mut plan.daemons {
        let said = daemon.record.live().filter_map(|i| observation.pulls.said.get(&i.uid).cloned());
        let said = said.collect::<BTreeSet<String>>().into_iter();
        daemon.summary.notes.extend(said.map(|words| Note::Images(ImageReason::Reported(words))));
        let record = &daemon.record;
        let templates = record.instances.iter().filter_map(|i| i.daemon_set.as_ref());
        let good = record.good.as_ref().and_then(|good| good.daemon_set.as_ref());
        templates.chain(good).for_each(|daemon_set| needed.extend(names(daemon_set)));
        let wanted = daemon.pull.as_ref().and_then(|rendering| rendering.result.as_ref().ok());
        needed.extend(wanted.into_iter().flat_map(|r| r.pod.images.iter().map(|image| image.image.clone())));
        // An image that no container uses is the first to go.
        let unpinned = good.into_iter().flat_map(names).find(|image| observation.is_unpinned(image));
        daemon.summary.notes.extend(unpinned.map(Note::Unpinned));
    }
    let instances = plan.daemons.iter().flat_map(|daemon| &daemon.record.instances);
    let pods = instances.map(|instance| instance.uid.clone()).collect();
    vec![Request::Pull { wishes, pods }, Request::Pin(needed)]
}

/// When to look again at pulls that are waited for only a while.
pub(in super::super) fn due(observation: &Observation) -> Option<Timestamp> {
    let pulls = &observation.pulls;
    let open = pulls.progress.values().filter(|(progress, _)| !matches!(progress, PullProgress::Done(_)));
    let due = open.flat_map(|(_, since)| [*since + UNREACHABLE.min(pulls.patience), *since + pulls.patience]);
    due.filter(|due| *due > observation.now).min()
}

/// The images of a DaemonSet's template.
fn names(daemon_set: &Arc<DaemonSet>) -> impl Iterator<Item = String> {
    let spec = daemon_set.pod_template().get("spec");
    spec.map(of_spec).unwrap_or_default().into_iter().map(|image| image.image)
}

fn wish(daemon: &DaemonPlan, objects: &Objects<'_>, node: &str) -> Option<WantedImages> {
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
    Some(WantedImages {
        daemonset: daemon.key.to_string(),
        pod,
        images: rendered.pod.images.clone(),
        secrets,
        secrets_version: version.finish(),
    })
}

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectMap;
    use crate::core::record::DaemonRecord;
    use crate::core::record::Instance;
    use crate::core::render::PullMode;
    use crate::core::rendering;
    use crate::core::rendering::Revision;
    use crate::core::time::at;
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::daemon_set;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::state;

    use super::*;

    /// Another incarnation of the daemon of [`state`].
    fn next() -> Arc<RenderResult> {
        let state = state(&config());
        let mut options = state.options.get().0.clone();
        options.pulls = PullMode::First;
        let (daemon_set, tokens) = (daemon_set(), Observation::default().tokens.held);
        let revision = Revision::of(&daemon_set);
        Arc::new(rendering::render(&daemon_set, &revision, 1, &ObjectMap::default(), &tokens, &options))
    }

    fn pulls(uid: &str, progress: PullProgress) -> Observation {
        let mut observation = Observation { can_ask_runtime: true, now: at(60_000), ..Observation::default() };
        observation.pulls.patience = Span::from_secs(30);
        observation.pulls.progress.insert(uid.to_owned(), (progress, at(55_000)));
        observation
    }

    #[test]
    fn a_pull_that_fails_keeps_the_instance_that_runs_unless_the_kubelet_may_have_other_credentials() {
        let (state, next) = (state(&config()), next());
        let of = |refusal, require_prepull, replaces| {
            let progress = PullProgress::Failed { words: "no".to_owned(), refusal };
            let observation = pulls(&next.identity.uid, progress);
            let objects = Objects::today(&observation, &state.inputs, &state.policy);
            ImageFacts { observation: &observation, require_prepull, go_on: false }.of(&next, replaces, &objects)
        };
        let why = || Box::new(ImageReason::Reported("no".to_owned()));
        assert_eq!(of(Refusal::Image, false, true), Images::Failed(ImageReason::TriedAgain(why())));
        assert_eq!(of(Refusal::Credentials, false, true), Images::Handed(ImageReason::LeftToKubelet(why())));
        assert_eq!(of(Refusal::Credentials, true, true), Images::Failed(ImageReason::TriedAgain(why())));
        assert_eq!(of(Refusal::Image, false, false), Images::Present, "where nothing runs the kubelet pulls");
    }

    #[test]
    fn what_is_to_run_is_pulled_and_what_runs_is_kept() {
        let (state, next) = (state(&config()), next());
        let looking = pulls(&next.identity.uid, PullProgress::Looking(None));
        let objects = Objects::today(&looking, &state.inputs, &state.policy);
        let asked = |record: &DaemonRecord| {
            let daemon = DaemonPlan { pull: Some(Arc::clone(&next)), ..DaemonPlan::new(record.clone()) };
            let mut plan = Plan { daemons: vec![daemon], ..Plan::default() };
            let requests = requests(&looking, &mut plan, &objects, "N1");
            let [Request::Pull { wishes, pods }, Request::Pin(pinned)] = &requests[..] else { panic!("{requests:?}") };
            let wishes = wishes.iter().map(|wish| (wish.pod.uid.clone(), wish.images.len())).collect::<Vec<_>>();
            (wishes, pods.iter().cloned().collect::<Vec<_>>(), pinned.iter().cloned().collect::<Vec<_>>())
        };
        let [runs, wanted] = ["uid-1", &next.identity.uid].map(str::to_owned);
        let image = "i:1".to_owned();
        assert_eq!(asked(&state.records[&key()]), (vec![(wanted, 1)], vec![runs], vec![image.clone()]));
        let nothing_runs = DaemonRecord { instances: Vec::<Instance>::new(), ..state.records[&key()].clone() };
        assert_eq!(asked(&nothing_runs), (vec![], vec![], vec![image]), "the kubelet pulls it");
        assert_eq!(due(&looking), Some(at(55_000) + UNREACHABLE));
        assert_eq!(due(&pulls("u", PullProgress::Done(None))), None);
    }
}
