//! The folders as they are read: again when they may have changed, with what was last good.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::SystemTime;

use tokio::sync::Notify;

use crate::core::model::ObjectKey;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::observed_folders::ObservedFolders;
use crate::node::agent::observed_folders::as_problem;
use crate::node::agent::remembered_files::RememberedFiles;
use crate::node::agent::versioned_objects::Versioned;
use crate::node::api::Entry;
use crate::node::folders;
use crate::node::folders::FirstLook;
use crate::node::folders::FolderView;
use crate::node::folders::FoldersWatch;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Shared;

/// The folders are read at least this often: a link's target can change unseen.
const PERIOD: Span = Span::from_secs(60);

/// Two clocks that are read one after the other differ by less.
const CLOCKS: Span = Span::from_millis(20);

/// The folders and what was last read of them.
pub(in super::super) struct FolderReader {
    disk: Shared,
    paths: Vec<PathBuf>,
    last: ObservedFolders,
    /// What the next reading takes for the one before, where that is another than the last.
    recalled: Option<FolderView>,
    /// Grows with every object that changes.
    version: u64,
    changed: Arc<AtomicBool>,
    read_at: Timestamp,
    rests: Rests,
    /// What the folders held before the next reading, if that is the first.
    first: Option<FirstLook>,
    /// When files that do not rest yet are read again, by the steady clock.
    again: Option<Duration>,
    /// Why the folders are polled, if they are.
    trouble: Arc<Mutex<Option<String>>>,
}

impl FolderReader {
    /// Folders in ascending precedence; nothing is read yet.
    pub(in super::super) fn new(disk: Shared, paths: Vec<PathBuf>) -> Self {
        Self {
            disk,
            paths,
            last: ObservedFolders::default(),
            recalled: None,
            version: 0,
            changed: Arc::new(AtomicBool::new(true)),
            read_at: Timestamp::MIN,
            rests: Rests::default(),
            first: Some(FirstLook::OfBoot),
            again: None,
            trouble: Arc::default(),
        }
    }

    /// Wakes the loop whenever a folder may have changed.
    pub(super) fn watch(&mut self, wake: Arc<Notify>) {
        let mut watch = FoldersWatch::new(Arc::clone(&self.disk), &self.paths);
        let (changed, trouble) = (Arc::clone(&self.changed), Arc::clone(&self.trouble));
        let note = move |watch: &FoldersWatch| {
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = watch.trouble().map(str::to_owned);
        };
        note(&watch);
        tokio::spawn(async move {
            loop {
                watch.changed().await;
                note(&watch);
                changed.store(true, Ordering::Relaxed);
                wake.notify_one();
            }
        });
    }

    /// Goes on with what an earlier process remembered of the files.
    pub(in super::super) fn recall(&mut self, files: &RememberedFiles) {
        let before = self.recalled.as_ref().unwrap_or(&self.last.view);
        self.recalled = Some(before.with_recalled(files.recalled()));
        if self.last.objects.is_empty() {
            // An unchanged object keeps its version.
            self.last.objects = Arc::new(files.objects().map(|(r, entry)| (r.clone(), entry.clone())).collect());
            self.version = files.objects().map(|(_, entry)| entry.version).max().unwrap_or(0);
        }
        self.reread();
    }

    /// What files that are not there last defined of these daemons is let go.
    pub(super) fn forget_vanished(&mut self, daemons: &BTreeSet<ObjectKey>) {
        if let Some(view) = self.recalled.as_ref().unwrap_or(&self.last.view).without_vanished(daemons) {
            self.recalled = Some(view);
            self.reread();
        }
    }

    /// Says what the folders held before the first reading.
    pub(in super::super) fn begin(&mut self, first: FirstLook) {
        self.first = Some(first);
    }

    /// The next pass reads them again.
    pub(super) fn reread(&mut self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// What the folders define at `now`, `steady` after the start of the agent, and what is wrong with them.
    pub(in super::super) fn read(
        &mut self,
        now: Timestamp,
        steady: Duration,
        problems: &mut Vec<Problem>,
    ) -> ObservedFolders {
        let is_old = !(Span::ZERO..PERIOD).contains(&(now - self.read_at));
        let due = is_old || self.again.is_some_and(|at| steady >= at);
        if self.changed.swap(false, Ordering::Relaxed) || due {
            let recalled = self.recalled.take();
            let before = recalled.as_ref().unwrap_or(&self.last.view);
            let since = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or(0));
            let look = ScanTime { steady, wall: SystemTime::UNIX_EPOCH + since, first: self.first.take() };
            let view = folders::read(&self.disk, &self.paths, before, &mut self.rests, look);
            self.read_at = now;
            self.again = view.recheck.map(|after| steady + after);
            if recalled.is_some() || !view.is_same(&self.last.view) {
                self.last.view = Arc::new(view);
                self.follow_objects();
            }
        }
        self.follow_clock(now, steady);
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend(trouble.map(|why| Problem { object: "folders".to_owned(), reason: why, hint: None }));
        problems.extend(self.last.view.all_problems().map(as_problem));
        self.last.clone()
    }

    /// Says by the wall clock when to look again. One that was set is followed: a time that has come, before the steady
    /// clock is there, would come again and again.
    fn follow_clock(&mut self, now: Timestamp, steady: Duration) {
        // Whole milliseconds, of which none is missing.
        let at = self.again.map(|at| now + at.saturating_sub(steady).into() + Span::from_millis(1));
        let is_same = |(known, at): (Timestamp, Timestamp)| now < known && (at - known).abs() < CLOCKS;
        if !self.last.again_at.zip(at).is_some_and(is_same) {
            self.last.again_at = at;
        }
    }

    fn follow_objects(&mut self) {
        let mut objects = Versioned::new();
        for (reference, value) in self.last.view.objects() {
            let known = self.last.objects.get(reference).filter(|entry| entry.value == *value);
            let entry = known.cloned().unwrap_or_else(|| {
                self.version += 1;
                Entry { version: self.version, value: Arc::clone(value) }
            });
            objects.insert(reference.clone(), entry);
        }
        self.last.objects = Arc::new(objects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use crate::node::fsx::Real;

    #[test]
    fn a_clock_that_is_set_makes_no_look_due_before_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("a.yaml")).unwrap();
        let mut reader = FolderReader::new(Real::shared(), vec![folder.path().to_owned()]);
        let mut read = |now, steady| {
            let again_at = reader.read(at(now), Duration::from_millis(steady), &mut Vec::new()).again_at;
            again_at.map(|again_at| again_at - at(now))
        };
        assert_eq!(read(100_000, 5_000), Some(Span::from_millis(1_001)), "a link to nothing is looked at again");
        assert_eq!(read(100_500, 5_490), Some(Span::from_millis(501)), "the clocks differ a little");
        assert_eq!(read(130_500, 5_500), Some(Span::from_millis(501)), "it was set forward");
        assert_eq!(read(131_000, 6_000), Some(Span::from_millis(1_001)), "it is read again when that has come");
        assert_eq!(read(132_003, 6_995), Some(Span::from_millis(6)), "it has come by one of the clocks alone");
    }
}
