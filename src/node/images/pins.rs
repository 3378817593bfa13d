//! Pinning images that may be needed, so that image garbage collection spares them.
//!
//! Owns the pins: sets and verifies needed ones, removes the others. Only our own pins are removed. If a runtime
//! cannot pin, that is no failure; the risk is reported.

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

/// How often pins are verified even if nothing changes: an image may have been pulled again without its pin.
const PERIOD: Span = Span::from_secs(300);

/// The pins of a node.
#[derive(Debug)]
pub struct Pins {
    cri: Option<Arc<Cri>>,
    wake: Arc<Notify>,
    /// A fingerprint of the needed images, and when they were last verified.
    done: Option<(u64, Timestamp)>,
    unpinned: Arc<Mutex<Arc<BTreeSet<String>>>>,
    task: Option<JoinHandle<()>>,
}

impl Pins {
    /// Pins with `cri`; notifies `wake` when an answer changes.
    pub fn new(cri: Option<Arc<Cri>>, wake: Arc<Notify>) -> Self {
        Self { cri, wake, done: None, unpinned: Arc::default(), task: None }
    }

    /// Pins exactly these images. Returns at once.
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

    /// Images that are on the node and that the runtime, by its last answer, does not keep.
    pub fn unpinned(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.unpinned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Pins `images`, removes our other pins, and returns the images that are on the node but not pinned.
async fn keep(cri: &Cri, images: &BTreeSet<String>) -> Result<BTreeSet<String>, CriError> {
    // Only containerd has a store with pins; other runtimes do not know the call.
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

/// Removes those whose pins show: a busy runtime follows its store with delay. Nothing waits for this.
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
