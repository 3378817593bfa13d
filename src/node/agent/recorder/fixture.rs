//! Recordings without a thread.
//!
//! Owns how tests record. Must not decide what is recorded.

use std::path::PathBuf;
use std::time::Duration;

use crate::node::fsx::Real;
use crate::node::recording::encode;
use crate::node::recording::export;

use super::*;

/// The recording of `passes`.
pub(in super::super) fn recording(passes: &[RecordedPass]) -> Vec<u8> {
    let key = DigestKey::random().unwrap();
    let mut table = PieceTable::default();
    for pass in passes {
        let root = encode::encode(pass, &mut table, &key, &pass.open_digests()).unwrap();
        table.add(pass.observation.now, root);
    }
    export::write(&table, 0)
}

/// Whether a recorder that rests for `rests` more misses `pass`.
pub(in super::super) fn misses(pass: RecordedPass, rests: Duration) -> bool {
    let (jobs, work) = mpsc::sync_channel(1);
    jobs.send(RecorderJob::Keep(Box::new(pass))).unwrap();
    drop(jobs);
    let missed = Arc::new(AtomicU64::new(0));
    let tape = Tape {
        key: DigestKey::random().unwrap(),
        table: PieceTable::default(),
        missed: Arc::clone(&missed),
        folder: PathBuf::new(),
        files: Real::shared(),
        rests_until: Instant::now() + rests,
    };
    tape.work(&work);
    missed.load(Ordering::Relaxed) == 1
}
