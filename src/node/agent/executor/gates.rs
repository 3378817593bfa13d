//! The gates of pods that start after others.
//!
//! Owns the list of those that are closed: a file each below `run-dir`, which is there before the gate closes, and is
//! gone with the boot. It is for `daemonlet run --open-gates`, which has no configuration if that has mistakes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use crate::config::Config;
use crate::node::agent::failure;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::gates::Gates;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::fsx::Dir;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Real;
use crate::node::fsx::Shared;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

use super::Executor;
use super::problem;

/// The folder of the list, below `run-dir`.
const CLOSED: &str = "closed-gates";
/// The longest path of a kubelet's root folder that is read, in bytes.
const PATH_LIMIT: u64 = 4096;

impl Executor {
    /// Closes and opens the gates that the decision names.
    pub(super) fn move_gates(&mut self, gates: &Gates, config: &Config, outcome: &mut EffectOutcome) {
        for uid in gates.closing() {
            if let Err(failure) = self.close_gate(uid, config) {
                outcome.problems.push(problem("start order", failure));
                outcome.left_open.insert(uid.clone());
            }
        }
        for uid in gates.opening() {
            match self.volumes.open_gate(uid).map_err(|error| failure::of(&error, error.hint())) {
                Ok(()) => forget(&self.files, &config.run_dir, uid),
                Err(failure) => {
                    outcome.problems.push(problem("start order", failure));
                    outcome.left_closed.insert(uid.clone());
                }
            }
        }
    }

    pub(super) fn close_gate(&mut self, uid: &str, config: &Config) -> Result<(), EffectFailure> {
        note(&self.files, &config.run_dir, &config.kubelet_root, uid)
            .map_err(|error| failure::of(&error, error.hint()))?;
        self.volumes.close_gate(uid).map_err(|error| failure::of(&error, error.hint()))
    }
}

/// Notes that a gate below a kubelet's `root` folder closes.
fn note(files: &Shared, run_dir: &Path, root: &Path, uid: &str) -> Result<(), FsError> {
    let (folder, _) = Dir::open_or_create(files, &run_dir.join(CLOSED), 0o700)?;
    folder.unlink(uid)?;
    folder.create_file(uid, root.as_os_str().as_bytes(), 0o600, Owner::default()).map(drop)
}

/// Notes that a gate is open.
fn forget(files: &Shared, run_dir: &Path, uid: &str) {
    if let Ok(folder) = Dir::open(files, &run_dir.join(CLOSED)) {
        // One that stays in the list is opened again, which changes nothing.
        let _ = folder.unlink(uid);
    }
}

/// Opens every gate in the list below `run_dir`. The kubelet tries the pods again by itself.
///
/// # Errors
/// The last gate that could not be opened, as a message; the others are.
pub fn open_gates(run_dir: &Path) -> Result<(), String> {
    open_listed(&Real::shared(), run_dir)
}

/// As [`open_gates`], on the disk of `files`.
pub(in crate::node::agent) fn open_listed(files: &Shared, run_dir: &Path) -> Result<(), String> {
    let Ok(folder) = Dir::open(files, &run_dir.join(CLOSED)) else { return Ok(()) };
    let mut result = Ok(());
    for uid in folder.names().map_err(|error| failure::of(&error, None).cause.to_string())? {
        let Some(uid) = uid.to_str() else { continue };
        let Ok(Some(root)) = folder.read_file(uid, PATH_LIMIT) else { continue };
        let root = PathBuf::from(std::ffi::OsStr::from_bytes(&root));
        match Volumes::new(files.clone(), VolumesRoot::kubelet(root)).open_closed_gate(uid) {
            Ok(()) => forget(files, run_dir, uid),
            Err(error) => result = Err(failure::of(&error, None).cause.to_string()),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_list_is_opened_and_leaves_it() {
        let uid = "0f8fad5b-d9cb-569f-a165-70867728950e";
        let folder = tempfile::tempdir().unwrap();
        let [root, run] = ["kubelet", "run"].map(|name| folder.path().join(name));
        std::fs::create_dir(&run).unwrap();
        let mut volumes = Volumes::new(Real::shared(), VolumesRoot::kubelet(&root));
        volumes.write(uid, [&crate::core::render::open_gate()]).unwrap();
        let gate = root.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir/daemonlet-gate/gate");
        assert_eq!(open_gates(&run), Ok(()), "no gate has been closed");
        note(&Real::shared(), &run, &root, uid).unwrap();
        volumes.close_gate(uid).unwrap();
        assert!(!gate.exists());
        assert_eq!(open_gates(&run), Ok(()));
        assert!(gate.exists());
        assert_eq!(std::fs::read_dir(run.join(CLOSED)).unwrap().count(), 0);
    }
}
