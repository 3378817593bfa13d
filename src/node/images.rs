//! Pulls the images of future instances: each request is a task of its own, and nothing blocks on it.
//!
//! ```text
//!  plan: what is wanted ──> Puller: one task an instance-to-be ──> its progress ──> the next plan
//! ```
//!
//! Owns the outcome of a request while it is wanted: a pull that is no longer wanted is cancelled. Must not decide
//! whether an instance may start without its images.

mod credentials;
mod pins;
mod provider;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::now;
use crate::core::images::PodImage;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;
use crate::core::upstream::container_runtime::Refusal;
use crate::core::upstream::container_runtime::refusal;
use crate::node::api::random;
use crate::node::cri::Cri;
use crate::node::cri::CriError;
use crate::node::cri::images::PullFor;

pub use credentials::CredentialSources;
pub use pins::Pins;
#[cfg(any(fuzzing, debug_assertions))]
pub use provider::registries;

/// Between retries, at first and at most; an unreachable runtime is tried every second.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// How long a daemon of which nothing runs waits for a fresh pull of an image that is on the node.
const PATIENCE: Span = Span::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// What was found out counts for so long, though a pass does not want it: where a replacement fails, every second pass
/// would ask anew, and be woken by the answer.
const ANSWERED: Span = Span::from_secs(10);

/// The images of one future instance.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct WantedImages {
    /// The DaemonSet, as the log names it.
    #[serde(skip)]
    pub daemonset: String,
    pub pod: PullFor,
    pub images: Vec<PodImage>,
    /// The known pull secrets, by name. No recording has them.
    #[serde(skip)]
    pub secrets: Vec<(String, Arc<Value>)>,
    /// A number that changes with a pull secret: then a failed pull is retried at once.
    pub secrets_version: u64,
}

/// The progress of a request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PullProgress {
    /// The runtime is being asked which images are there; and how the last try failed, if there was one.
    Looking(Option<String>),
    /// One image is being pulled.
    Pulling {
        image: String,
        /// Whether it is on the node already, and is pulled for a newer version.
        present: bool,
        /// Its number among those to be pulled, from 1.
        number: usize,
        /// How many are to be pulled.
        count: usize,
        since: Timestamp,
    },
    /// All are there; with notes.
    Done(Option<String>),
    /// One cannot be pulled; it is retried.
    Failed {
        /// The image and the runtime's error.
        words: String,
        /// What the error means.
        refusal: Refusal,
    },
}

/// What is known of pulls at one moment.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PullsInProgress {
    /// How far each wish is, and since when it is wanted, by pod UID.
    pub progress: BTreeMap<String, (PullProgress, Timestamp)>,
    /// Notes of completed requests, by pod UID.
    pub said: BTreeMap<String, String>,
    /// How long a daemon of which nothing runs waits for a pull that it could do without.
    pub patience: Span,
}

impl PullsInProgress {
    /// How many wishes are not fulfilled yet.
    pub fn open(&self) -> usize {
        self.progress.values().filter(|(progress, _)| !matches!(progress, PullProgress::Done(_))).count()
    }
}

/// The requests of a node.
#[derive(Debug)]
pub struct Puller {
    cri: Option<Arc<Cri>>,
    sources: Arc<CredentialSources>,
    wake: Arc<Notify>,
    patience: Span,
    jobs: BTreeMap<String, PullRequest>,
    /// The reports on wishes that were fulfilled, by pod UID.
    said: BTreeMap<String, String>,
}

/// A request in progress. Dropping it cancels it.
#[derive(Debug)]
struct PullRequest {
    since: Timestamp,
    progress: Arc<Mutex<PullProgress>>,
    secrets_version: u64,
    task: JoinHandle<()>,
}

impl PullRequest {
    fn progress(&self) -> PullProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for PullRequest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Puller {
    /// Pulls with `cri`, with credentials from `sources`; notifies `wake` of all news.
    pub fn new(cri: Option<Arc<Cri>>, sources: CredentialSources, wake: Arc<Notify>) -> Self {
        Self { cri, sources: Arc::new(sources), wake, patience: PATIENCE, jobs: BTreeMap::new(), said: BTreeMap::new() }
    }

    /// What is known now.
    pub fn pulls(&self) -> PullsInProgress {
        let progress = self.jobs.iter().map(|(uid, job)| (uid.clone(), (job.progress(), job.since)));
        PullsInProgress { progress: progress.collect(), said: self.said.clone(), patience: self.patience }
    }

    /// How long a daemon of which nothing runs waits for a pull that is not strictly needed.
    pub fn hurry(&mut self, patience: Span) {
        self.patience = patience;
    }

    /// Cancels pulls that no pass wants any more; results stay a while, because the next pass may want them again.
    fn end_unwanted(&mut self, wanted: &BTreeSet<&str>, now: Timestamp) {
        let said = &mut self.said;
        self.jobs.retain(|uid, job| {
            let is_wanted = wanted.contains(uid.as_str());
            let PullProgress::Done(words) = job.progress() else { return is_wanted };
            if let (false, Some(words)) = (is_wanted, words) {
                said.insert(uid.clone(), words);
            }
            is_wanted || (Span::ZERO..ANSWERED).contains(&(now - job.since))
        });
    }

    /// Works on these wishes and on no others; forgets the reports on pods that are not `known`.
    pub fn want(&mut self, wishes: Vec<WantedImages>, known: &BTreeSet<String>, now: Timestamp) {
        let Some(cri) = self.cri.clone() else { return };
        let wanted: BTreeSet<&str> = wishes.iter().map(|wish| wish.pod.uid.as_str()).collect();
        self.end_unwanted(&wanted, now);
        self.said.retain(|uid, _| known.contains(uid));
        for wish in wishes {
            let uid = wish.pod.uid.clone();
            let known = self.jobs.get(&uid);
            let renewed = |job: &PullRequest| {
                matches!(job.progress(), PullProgress::Failed { .. }) && job.secrets_version != wish.secrets_version
            };
            if known.is_some_and(|job| !renewed(job)) {
                continue;
            }
            let since = known.map_or(now, |job| job.since);
            let progress = Arc::new(Mutex::new(PullProgress::Looking(None)));
            let secrets_version = wish.secrets_version;
            let work = Work {
                cri: Arc::clone(&cri),
                sources: Arc::clone(&self.sources),
                wake: Arc::clone(&self.wake),
                progress: Arc::clone(&progress),
                wish,
                pulled: BTreeSet::new(),
                notes: Vec::new(),
            };
            let task = tokio::spawn(work.run());
            self.jobs.insert(uid, PullRequest { since, progress, secrets_version, task });
        }
    }
}

/// The task of one request.
struct Work {
    cri: Arc<Cri>,
    sources: Arc<CredentialSources>,
    wake: Arc<Notify>,
    progress: Arc<Mutex<PullProgress>>,
    wish: WantedImages,
    /// Images already pulled for it: a retry does not pull them again.
    pulled: BTreeSet<String>,
    notes: Vec<String>,
}

/// Why a try failed.
enum PullFailure {
    /// The runtime did not answer.
    Unreachable(String),
    /// An image cannot be pulled.
    Image(String, Refusal),
}

impl Work {
    async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        loop {
            let wait = match self.attempt().await {
                Ok(()) => {
                    let said = (!self.notes.is_empty()).then(|| self.notes.join("; "));
                    return self.tell(PullProgress::Done(said));
                }
                Err(PullFailure::Unreachable(words)) => {
                    self.tell(PullProgress::Looking(Some(words)));
                    ASK_AGAIN
                }
                Err(PullFailure::Image(words, refusal)) => {
                    let (daemonset, pod) = (&self.wish.daemonset, &self.wish.pod.name);
                    tracing::warn!(daemonset, pod, "{words}; retrying while it is needed");
                    self.tell(PullProgress::Failed { words, refusal });
                    let wait = retry;
                    retry = doubled(retry, 1, LAST_RETRY);
                    // Spreads the retries of nodes that failed together.
                    wait.mul_f64(0.75 + 0.5 * random())
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn tell(&self, progress: PullProgress) {
        let mut known = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != progress {
            *known = progress;
            self.wake.notify_one();
        }
    }

    /// One try: determines which images are missing, and pulls those and the ones to refresh.
    async fn attempt(&mut self) -> Result<(), PullFailure> {
        let mut missing: Vec<(String, bool)> = Vec::new();
        for image in &self.wish.images {
            let present = self.cri.image(&image.image).await.map_err(|error| failure(&image.image, &error))?.is_some();
            if !present || (image.always && !self.pulled.contains(&image.image)) {
                missing.push((image.image.clone(), present));
            }
        }
        let count = missing.len();
        self.notes.clear();
        for (number, (image, present)) in (1..).zip(missing) {
            self.tell(PullProgress::Pulling { image: image.clone(), present, number, count, since: now() });
            match self.pull(&image).await {
                Ok(()) => drop(self.pulled.insert(image)),
                Err(PullFailure::Image(words, Refusal::Away)) if present => {
                    let note = format!("{words}; it starts with the image that is on the node");
                    let (daemonset, pod) = (&self.wish.daemonset, &self.wish.pod.name);
                    tracing::warn!(daemonset, pod, "{note}");
                    self.notes.push(note);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Pulls with each of the credentials until one works; without any if there are none.
    async fn pull(&self, image: &str) -> Result<(), PullFailure> {
        let found = self.sources.look_up(image, &self.wish.secrets).await;
        let tries: Vec<_> = match found.credentials.is_empty() {
            true => vec![None],
            false => found.credentials.iter().map(Some).collect(),
        };
        let mut failures: Vec<CriError> = Vec::new();
        for credentials in tries {
            match self.cri.pull_image(image, credentials, &self.wish.pod).await {
                Ok(()) => return Ok(()),
                Err(error) => failures.push(error),
            }
        }
        match failures.iter().find(|error| !error.is_answer()).map(|error| failure(image, error)) {
            Some(failure) => Err(failure),
            None => {
                let mut said: Vec<String> = Vec::new();
                for words in failures.iter().map(CriError::words) {
                    if !said.contains(&words) {
                        said.push(words);
                    }
                }
                let meaning = said.iter().map(|words| refusal(words)).max().unwrap_or(Refusal::Away);
                said.extend(found.problems);
                Err(PullFailure::Image(cannot(image, &said.join("; ")), meaning))
            }
        }
    }
}

fn failure(image: &str, error: &CriError) -> PullFailure {
    match error {
        CriError::Refused { .. } => PullFailure::Image(cannot(image, &error.words()), refusal(&error.words())),
        _ => PullFailure::Unreachable(error.to_string()),
    }
}

fn cannot(image: &str, words: &str) -> String {
    format!("image {image} cannot be pulled: {words}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::core::time::at;
    use crate::node::fsx::Real;

    use super::*;

    #[tokio::test]
    async fn what_was_found_out_outlives_a_pass_that_does_not_want_it_and_what_is_under_way_does_not() {
        let sources = CredentialSources::new(Real::shared(), Path::new("/nowhere"), None, None);
        let mut puller = Puller::new(None, sources, Arc::default());
        for (uid, progress) in [("done", PullProgress::Done(None)), ("open", PullProgress::Looking(None))] {
            let progress = Arc::new(Mutex::new(progress));
            let job =
                PullRequest { since: at(0), progress, secrets_version: 0, task: tokio::spawn(std::future::pending()) };
            puller.jobs.insert(uid.to_owned(), job);
        }
        let uids = |puller: &Puller| puller.jobs.keys().cloned().collect::<Vec<_>>();
        puller.end_unwanted(&BTreeSet::from(["done", "open"]), at(60_000));
        assert_eq!(uids(&puller), ["done", "open"]);
        puller.end_unwanted(&BTreeSet::new(), at(0) + ANSWERED - Span::from_millis(1));
        assert_eq!(uids(&puller), ["done"]);
        puller.end_unwanted(&BTreeSet::new(), at(0) + ANSWERED);
        assert_eq!(uids(&puller), [""; 0]);
    }
}
