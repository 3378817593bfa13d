//! Keeping images from image garbage collection while they may be needed.
//!
//! Owns the pins: what is needed is pinned and read back, what is needed no longer is let go. Only pins
//! of ours are ever taken away. A runtime that cannot pin is no failure: the risk is told.

use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::core::images::reference::full_name;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::cri::Cri;
use crate::node::cri::CriError;

/// How often it is looked again though nothing else is needed: an image may have come back without pin.
const PERIOD: Span = Span::from_secs(300);

/// The pins of a node.
#[derive(Debug)]
pub struct Pins {
    cri: Option<Arc<Cri>>,
    wake: Arc<Notify>,
    /// A fingerprint of what was last needed, and when it was looked at.
    done: Option<(u64, Timestamp)>,
    unpinned: Arc<Mutex<Arc<BTreeSet<String>>>>,
    task: Option<JoinHandle<()>>,
}

impl Pins {
    /// Pins by `cri`; `wake` is told when an answer is new.
    pub fn new(cri: Option<Arc<Cri>>, wake: Arc<Notify>) -> Self {
        Self { cri, wake, done: None, unpinned: Arc::default(), task: None }
    }

    /// Keeps these images and no others. Returns at once.
    pub fn keep(&mut self, images: &BTreeSet<String>, now: Timestamp) {
        let Some(cri) = &self.cri else { return };
        let mut hasher = DefaultHasher::new();
        images.hash(&mut hasher);
        let print = hasher.finish();
        let is_due = self.done.is_none_or(|(last, at)| last != print || now - at >= PERIOD || now < at);
        if !is_due || self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        self.done = Some((print, now));
        let (cri, wake, unpinned) = (Arc::clone(cri), Arc::clone(&self.wake), Arc::clone(&self.unpinned));
        let images = images.clone();
        self.task = Some(tokio::spawn(async move {
            match keep(&cri, &images).await {
                Ok(found) => {
                    let mut known = unpinned.lock().unwrap_or_else(PoisonError::into_inner);
                    if **known != found {
                        *known = Arc::new(found);
                        wake.notify_one();
                    }
                }
                Err(error) => tracing::debug!("images could not be pinned: {error}"),
            }
        }));
    }

    /// Images that are on the node and that the runtime does not keep, as it last said.
    pub fn unpinned(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.unpinned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Pins `images`, lets others of ours go, and gives those that are on the node and not pinned.
async fn keep(cri: &Cri, images: &BTreeSet<String>) -> Result<BTreeSet<String>, CriError> {
    // Only containerd has a store that takes pins; another runtime knows no such call.
    let ours = match cri.pinned_names().await {
        Ok(names) => Some(names),
        Err(error) if error.is_answer() => None,
        Err(error) => return Err(error),
    };
    let mut unpinned = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for image in images {
        let Some(found) = cri.image(image).await? else { continue };
        let full = full_name(image);
        let Some(name) = found.names.iter().find(|name| **name == full).or(found.names.first()).cloned() else {
            continue;
        };
        kept.insert(name.clone());
        if found.pinned {
            continue;
        }
        if ours.as_ref().is_some_and(|ours| !ours.contains(&name)) {
            cri.pin(&name, true).await?;
        }
        unpinned.insert(image.clone());
    }
    if ours.is_some() {
        show(cri, &mut unpinned).await?;
    }
    for name in ours.into_iter().flatten().filter(|name| !kept.contains(name)) {
        cri.pin(&name, false).await?;
    }
    Ok(unpinned)
}

/// Takes out those whose pins show: the runtime follows its store by events, late when it is busy. Nobody waits for this.
async fn show(cri: &Cri, unpinned: &mut BTreeSet<String>) -> Result<(), CriError> {
    for wait in [0, 50, 200, 500, 1_000, 3_000] {
        if unpinned.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        for image in std::mem::take(unpinned) {
            if !cri.image(&image).await?.is_some_and(|image| image.pinned) {
                unpinned.insert(image);
            }
        }
    }
    Ok(())
}
