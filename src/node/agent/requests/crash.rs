//! What a container that ended has left behind: its exit code and the last line of its log.
//!
//! A log is written by a container: it is read as bytes, a bounded tail of a plain file, and no link is followed to it.

use std::io;
use std::path::Path;

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
    let path = status.log_path.clone();
    let log = fsx::aside(move || tail(&files, Path::new(&path)));
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
