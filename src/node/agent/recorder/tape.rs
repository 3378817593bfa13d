//! The thread that records: what it keeps, and when it rests.
//!
//! Owns the recording in memory and the file that it is exported to. Must not keep the loop waiting.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;

use crate::node::fsx::Dir;
use crate::node::fsx::Owner;
use crate::node::fsx::Shared;
use crate::node::recording::encode;
use crate::node::recording::export;
use crate::node::recording::redact::DigestKey;
use crate::node::recording::table::PieceTable;

use super::pass::RecordedPass;
use super::pass::RecorderJob;

/// A pass that takes the thread longer is large: then it rests before the next one, which is missing if it comes before.
const LARGE: Duration = Duration::from_millis(200);
/// So many times as long as the large pass took. What others make large costs a fifth of a processor at most.
const REST: u32 = 4;

/// The file in the run folder that a recording is handed over in.
const FILE: &str = "recording";

/// What the thread has.
pub(super) struct Tape {
    pub(super) key: DigestKey,
    pub(super) table: PieceTable,
    pub(super) missed: Arc<AtomicU64>,
    pub(super) folder: PathBuf,
    pub(super) files: Shared,
    pub(super) rests_until: Instant,
}

/// How long nothing is recorded after a pass whose recording `took` so long.
fn rest(took: Duration) -> Duration {
    if took > LARGE { took * REST } else { Duration::ZERO }
}

impl Tape {
    pub(super) fn work(mut self, jobs: &mpsc::Receiver<RecorderJob>) {
        while let Ok(job) = jobs.recv() {
            match job {
                RecorderJob::Keep(_) if Instant::now() < self.rests_until => {
                    self.missed.fetch_add(1, Ordering::Relaxed);
                }
                RecorderJob::Keep(pass) => {
                    let began = Instant::now();
                    self.keep(&pass);
                    self.rests_until = Instant::now() + rest(began.elapsed());
                }
                RecorderJob::Export(reply) => {
                    let path = self.folder.join(FILE);
                    let answer = match self.write() {
                        Ok(()) => json!({"path": path}),
                        Err(error) => json!({"error": format!("the recording cannot be handed over: {error}")}),
                    };
                    let _ = reply.send(answer);
                }
            }
        }
    }

    fn keep(&mut self, pass: &RecordedPass) {
        match encode::encode(pass, &mut self.table, &self.key, &pass.open_digests()) {
            Ok(root) => self.table.add(pass.observation.now, root),
            Err(error) => {
                self.table.sweep();
                self.missed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "a pass cannot be recorded");
            }
        }
    }

    fn write(&self) -> Result<(), crate::node::fsx::FsError> {
        let folder = Dir::open(&self.files, &self.folder)?;
        folder.unlink(FILE)?;
        let bytes = export::write(&self.table, self.missed.load(Ordering::Relaxed));
        folder.create_file(FILE, &bytes, 0o600, Owner::default())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
