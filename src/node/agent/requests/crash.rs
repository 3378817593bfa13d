//! The exit code and the last log line of a container that ended.
//!
//! A log is written by a container: it is read as bytes, a bounded tail of a plain file, and no link is followed to it.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::core::health;
use crate::core::health::CrashDiagnosis;
use crate::node::cri::ContainerState;
use crate::node::cri::Cri;
use crate::node::cri::CriError;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;

/// How much of a log's end is read.
const TAIL: u64 = 16 << 10;

/// How often a log without a line is read again, and after how long. containerd reports the end of a container before
/// it has written the last of its output, and says nothing when it has.
const READ_AGAIN: u32 = 5;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Asks the runtime about the last attempt of a container that ended, and looks into its log.
pub(super) async fn diagnose(
    cri: &Cri,
    files: Shared,
    uid: &str,
    name: &str,
) -> Result<Option<CrashDiagnosis>, CriError> {
    let containers = cri.containers(Some(uid)).await?;
    let ended = containers.iter().filter(|c| c.name == name && c.state == ContainerState::Exited);
    let Some(last) = ended.max_by_key(|c| c.created_at_ns) else { return Ok(None) };
    let Some(status) = cri.container_status(&last.id).await? else { return Ok(None) };
    let last_line = last_line(&files, PathBuf::from(&status.log_path)).await;
    Ok(Some(CrashDiagnosis {
        container: name.to_owned(),
        exit_code: Some(status.exit_code),
        reason: status.reason,
        message: status.message,
        last_line: last_line.unwrap_or_default(),
    }))
}

/// The last line of a container's log; it is waited for a second where there is none yet.
async fn last_line(files: &Shared, path: PathBuf) -> Option<String> {
    for looks_left in (0..=READ_AGAIN).rev() {
        let (files, path) = (Arc::clone(files), path.clone());
        let log = fsx::aside(move || tail(&files, &path)).await.ok().and_then(Result::ok).flatten();
        if let Some(line) = health::last_line(&log.unwrap_or_default()) {
            return Some(line);
        }
        if looks_left > 0 {
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
    }
    None
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

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_written_after_the_end_was_reported_is_waited_for() {
        let (files, root) = (Real::shared(), tempfile::tempdir().unwrap());
        let folder = root.path().join("logs/a_b_c/main");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("1.log");
        std::fs::write(&path, "").unwrap();
        let late = path.clone();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            std::fs::write(late, "2026-01-01T00:00:00Z stderr F no such device\n").unwrap();
        });
        assert_eq!(last_line(&files, path).await.as_deref(), Some("no such device"));
        writer.await.unwrap();
        assert_eq!(last_line(&files, folder.join("2.log")).await, None, "and it ends");
    }
}
