//! The sources of defaults: the host's name, and which files exist.

use std::io;
use std::path::Path;

/// The parts of a host that defaults rest on.
pub trait Host {
    /// The host's name.
    ///
    /// # Errors
    /// The system's.
    fn host_name(&self) -> io::Result<String>;
    fn exists(&self, path: &Path) -> bool;
    /// Whether `path` may exist: true unless it certainly does not. A link that leads nowhere exists.
    fn may_exist(&self, path: &Path) -> bool;
    /// The text of the file `path`.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The host that this program runs on.
#[derive(Clone, Copy, Debug)]
pub struct RealHost;

impl Host for RealHost {
    fn host_name(&self) -> io::Result<String> {
        let name = nix::unistd::gethostname().map_err(io::Error::from)?;
        name.into_string().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn may_exist(&self, path: &Path) -> bool {
        path.symlink_metadata().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        crate::regular_file::read_text(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_may_lead_somewhere_later() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        assert!(!RealHost.may_exist(&link));
        std::os::unix::fs::symlink(folder.path().join("late/kubeconfig"), &link).unwrap();
        assert!(!RealHost.exists(&link) && RealHost.may_exist(&link));
    }
}
