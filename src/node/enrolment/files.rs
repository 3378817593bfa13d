//! The identity on disk: `identity/` in the state folder, 0700, its files 0600.
//!
//! Owns the writing: certificate and key are one file, so one rename changes both.

use std::path::Path;
use std::path::PathBuf;

use crate::core::enrolment::Certificate;
use crate::node::fsx::Dir;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Real;

use super::EnrolmentError;
use super::key::PrivateKey;

const FOLDER: &str = "identity";
const CURRENT: &str = "client.pem";
const PENDING: &str = "pending.pem";
/// The path of the kubeconfig that uses it; the scripts of the packages read it.
const KUBECONFIG: &str = "kubeconfig-path";
/// Longer than any certificate chain.
const LIMIT: u64 = 1 << 20;

/// The file with certificate and key.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join(CURRENT)
}

/// The identity's folder.
pub(super) struct IdentityFiles {
    dir: Dir,
}

impl IdentityFiles {
    /// Opens the folder, created if it is missing.
    pub(super) fn open(state_dir: &Path) -> Result<Self, FsError> {
        let (state, _) = Dir::open_or_create(&Real::shared(), state_dir, 0o700)?;
        let (dir, _) = state.child_or_create(FOLDER, 0o700)?;
        Ok(Self { dir })
    }

    /// The certificate in force, if it is for the agent of `node` and the key beside it matches.
    pub(super) fn current(&self, node: &str) -> Result<Option<Certificate>, FsError> {
        let Some(bytes) = self.dir.read_file(CURRENT, LIMIT)? else { return Ok(None) };
        let key = PrivateKey::from_pem(&bytes);
        let certificate = Certificate::read(&String::from_utf8_lossy(&bytes), node).ok();
        Ok(certificate.filter(|c| key.is_some_and(|key| key.public() == c.public_key)))
    }

    /// The key of the pending request, created if there is none.
    pub(super) fn pending(&self) -> Result<PrivateKey, EnrolmentError> {
        if let Some(key) = self.dir.read_file(PENDING, LIMIT)?.and_then(|bytes| PrivateKey::from_pem(&bytes)) {
            return Ok(key);
        }
        let key = PrivateKey::generate().ok_or(EnrolmentError::Key)?;
        write(&self.dir, PENDING, key.pem().as_bytes())?;
        Ok(key)
    }

    /// The next request uses another key.
    pub(super) fn forget_pending(&self) -> Result<(), FsError> {
        self.dir.unlink(PENDING).map(drop)
    }

    /// Notes where the kubeconfig is that uses the identity, for the removal of the package: by then the configuration may
    /// not say it any more.
    pub(super) fn note_kubeconfig(state_dir: &Path, path: &Path) -> Result<(), FsError> {
        write(&Self::open(state_dir)?.dir, KUBECONFIG, format!("{}\n", path.display()).as_bytes())
    }

    /// Puts a certificate chain (PEM) and its key in force.
    pub(super) fn take(&self, chain: &str, key: &PrivateKey) -> Result<(), FsError> {
        write(&self.dir, CURRENT, format!("{}\n{}", chain.trim_end(), key.pem()).as_bytes())?;
        self.forget_pending()
    }
}

/// Writes `name` completely or not at all, 0600.
pub(super) fn write(dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let stage = format!(".{name}.new");
    dir.unlink(&stage)?;
    dir.create_file(&stage, bytes, 0o600, Owner::default())?.sync()?;
    dir.rename(&stage, dir, name)?;
    dir.sync()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pending_key_is_kept_until_it_is_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let files = IdentityFiles::open(folder.path()).unwrap();
        let key = files.pending().unwrap();
        assert_eq!(IdentityFiles::open(folder.path()).unwrap().pending().unwrap().public(), key.public());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("identity/pending.pem")), 0o600);
        assert_eq!(mode(&folder.path().join("identity")), 0o700);
        assert_eq!(files.current("n1").unwrap(), None);
        files.take("no certificate", &key).unwrap();
        assert_eq!(files.current("n1").unwrap(), None, "it is no certificate");
        assert_eq!(mode(&path(folder.path())), 0o600);
        assert_ne!(files.pending().unwrap().public(), key.public());
    }

    #[test]
    fn the_place_of_the_kubeconfig_is_noted_beside_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/srv/a", "/srv/b"] {
            IdentityFiles::note_kubeconfig(folder.path(), Path::new(path)).unwrap();
            let noted = std::fs::read_to_string(folder.path().join("identity/kubeconfig-path")).unwrap();
            assert_eq!(noted, format!("{path}\n"), "the scripts of the packages read it");
        }
    }
}
