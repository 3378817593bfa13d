//! What a container that ended has left behind: its exit code and the last line of its log.
//!
//! Owns the questions to the runtime and the look into the log, beside the loop. A log is written by a
//! container: it is read as bytes, a bounded tail of a plain file, and no link is followed to it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::core::health;
use crate::core::health::CrashDiagnosis;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::cri::ContainerState;
use crate::node::cri::Cri;
use crate::node::cri::CriError;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;

/// How much of a log's end is read.
const TAIL: u64 = 16 << 10;
/// An instance that goes on crashing is looked at no more often than this.
const AGAIN: Span = Span::from_secs(10);

/// Crash diagnoses, by pod UID.
pub(super) struct CrashDiagnoses {
    examined: BTreeMap<String, Examination>,
    found: mpsc::UnboundedReceiver<(String, CrashDiagnosis)>,
    find: mpsc::UnboundedSender<(String, CrashDiagnosis)>,
}

struct Examination {
    /// Container and how often it had been started.
    at: (String, u64),
    asked: Timestamp,
    under_way: bool,
    crash_diagnosis: Option<CrashDiagnosis>,
}

impl Default for CrashDiagnoses {
    fn default() -> Self {
        let (find, found) = mpsc::unbounded_channel();
        Self { examined: BTreeMap::new(), found, find }
    }
}

impl CrashDiagnoses {
    /// What was found out of an instance.
    pub(super) fn of(&self, uid: &str) -> Option<&CrashDiagnosis> {
        self.examined.get(uid)?.crash_diagnosis.as_ref()
    }

    /// Whether the first crash diagnosis of an instance is under way: its words are worth to wait for.
    pub(super) fn is_pending(&self, uid: &str) -> bool {
        self.examined.get(uid).is_some_and(|look| look.under_way && look.crash_diagnosis.is_none())
    }

    /// Takes what was found, and forgets instances that are not `crashing` any more.
    pub(super) fn take(&mut self, crashing: &BTreeMap<String, (String, u64)>) {
        while let Ok((uid, crash_diagnosis)) = self.found.try_recv() {
            if let Some(look) = self.examined.get_mut(&uid) {
                look.under_way = false;
                look.crash_diagnosis = Some(crash_diagnosis);
            }
        }
        self.examined.retain(|uid, _| crashing.contains_key(uid));
    }

    /// Looks at the containers that have ended since the last look; `wake` when there is something to say.
    pub(super) fn look(
        &mut self,
        cri: &Arc<Cri>,
        files: &Shared,
        crashing: BTreeMap<String, (String, u64)>,
        at: Timestamp,
        wake: &Arc<Notify>,
    ) {
        for (uid, container) in crashing {
            let known = self.examined.get(&uid);
            if known.is_some_and(|look| look.at == container || look.under_way || at - look.asked < AGAIN) {
                continue;
            }
            let crash_diagnosis = known.and_then(|look| look.crash_diagnosis.clone());
            let (cri, files) = (Arc::clone(cri), Arc::clone(files));
            let (find, wake, name) = (self.find.clone(), Arc::clone(wake), container.0.clone());
            self.examined
                .insert(uid.clone(), Examination { at: container, asked: at, under_way: true, crash_diagnosis });
            tokio::spawn(async move {
                // What the runtime does not tell is left out: the kubelet's words have to do.
                let crash_diagnosis = examine(&cri, files, &uid, &name).await.ok().flatten().unwrap_or_default();
                if find.send((uid, crash_diagnosis)).is_ok() {
                    wake.notify_one();
                }
            });
        }
    }
}

async fn examine(cri: &Cri, files: Shared, uid: &str, name: &str) -> Result<Option<CrashDiagnosis>, CriError> {
    let containers = cri.containers(Some(uid)).await?;
    let ended = containers.iter().filter(|c| c.name == name && c.state == ContainerState::Exited);
    let Some(last) = ended.max_by_key(|c| c.created_at_ns) else { return Ok(None) };
    let Some(status) = cri.container_status(&last.id).await? else { return Ok(None) };
    let path = status.log_path.clone();
    let log = tokio::task::spawn_blocking(move || tail(&files, Path::new(&path)));
    let log = log.await.ok().and_then(Result::ok).flatten().unwrap_or_default();
    Ok(Some(CrashDiagnosis {
        container: name.to_owned(),
        exit_code: Some(status.exit_code),
        reason: status.reason,
        message: status.message,
        last_line: health::last_line(&log).unwrap_or_default(),
    }))
}

/// The end of a container's log: `<logs>/<pod>/<container>/<n>.log`. Below the folder of all logs, which
/// is the node's own, no link is followed: a container may write there, and shall not show other files.
fn tail(files: &Shared, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let parts: Vec<&std::ffi::OsStr> = path.iter().collect();
    let (true, [.., pod, container, file]) = (path.is_absolute(), parts.as_slice()) else { return Ok(None) };
    if [pod, container, file].iter().any(|part| **part == "..") {
        return Ok(None);
    }
    let Some(logs) = path.ancestors().nth(3) else { return Ok(None) };
    let folder = Dir::open(files, &files.resolve(logs)?).map_err(io::Error::other)?;
    let Some(folder) = folder.child(pod).map_err(io::Error::other)? else { return Ok(None) };
    let Some(folder) = folder.child(container).map_err(io::Error::other)? else { return Ok(None) };
    let Some(file) = folder.open_file(file).map_err(io::Error::other)? else { return Ok(None) };
    let stat = file.stat().map_err(io::Error::other)?;
    if stat.kind != FileKind::File || stat.links != 1 {
        return Ok(None);
    }
    file.read_end(TAIL).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::node::fsx::Real;

    #[test]
    fn a_bounded_tail_of_a_plain_file_is_read_and_no_link_is_followed() {
        let (files, root) = (Real::shared(), tempfile::tempdir().unwrap());
        let logs = root.path().join("logs");
        let folder = logs.join("a_b_c/main");
        std::fs::create_dir_all(&folder).unwrap();
        let read = |name: &str| tail(&files, &folder.join(name)).ok().flatten();
        let line = "2026-01-01T00:00:00Z stderr F the end\n";
        std::fs::write(folder.join("0.log"), "x".repeat(100_000) + "\n" + line).unwrap();
        let bytes = read("0.log").unwrap();
        assert_eq!(bytes.len() as u64, TAIL);
        assert_eq!(health::last_line(&bytes).as_deref(), Some("the end"));
        std::fs::write(folder.join("empty.log"), "").unwrap();
        assert_eq!(read("empty.log"), Some(Vec::new()));
        assert_eq!(read("absent.log"), None);

        let secret = root.path().join("secret");
        std::fs::write(&secret, line).unwrap();
        symlink(&secret, folder.join("link.log")).unwrap();
        assert_eq!(read("link.log"), None);
        std::fs::hard_link(&secret, folder.join("hard.log")).unwrap();
        assert_eq!(read("hard.log"), None);
        nix::unistd::mkfifo(&folder.join("pipe.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read("pipe.log"), None, "and it does not hang");
        symlink(&folder, logs.join("a_b_c/linked")).unwrap();
        assert_eq!(tail(&files, &logs.join("a_b_c/linked/0.log")).ok().flatten(), None);
        symlink(&logs, root.path().join("elsewhere")).unwrap();
        assert!(
            tail(&files, &root.path().join("elsewhere/a_b_c/main/0.log")).unwrap().is_some(),
            "the node's own link"
        );
        assert_eq!(tail(&files, Path::new("relative/a/b/0.log")).ok().flatten(), None);
        assert_eq!(tail(&files, Path::new("")).ok().flatten(), None);
    }
}
