//! The configuration, and behind a line `---` the kubelet's own.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::LazyLock;

use daemonlet::config;
use daemonlet::config::Host;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let base = Some(PathBuf::from("/dev/shm")).filter(|shm| shm.is_dir()).unwrap_or_else(std::env::temp_dir);
    base.join(format!("daemonlet-fuzz-config-{}.toml", std::process::id()))
});

/// A host whose kubelet has the configuration `kubelet`.
struct Fake<'a> {
    kubelet: &'a str,
}

impl Host for Fake<'_> {
    fn host_name(&self) -> io::Result<String> {
        Ok("Node-1".to_owned())
    }

    fn exists(&self, _: &Path) -> bool {
        true
    }

    fn may_exist(&self, path: &Path) -> bool {
        self.exists(path)
    }

    fn read(&self, _: &Path) -> io::Result<String> {
        if self.kubelet.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(self.kubelet.to_owned()) }
    }
}

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (toml, kubelet) = text.split_once("\n---\n").unwrap_or((text, ""));
    fs::write(&*FILE, toml).expect("a file");
    let host = Fake { kubelet };
    match config::load_from(Some(&FILE), Path::new("/nowhere"), &host) {
        Err(error) => assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
        Ok(config) => {
            let _ = config.node_view();
            let printed = config.print();
            fs::write(&*FILE, &printed).expect("a file");
            let again = config::load_from(Some(&FILE), Path::new("/nowhere"), &host);
            let mut again = again.unwrap_or_else(|error| panic!("what is printed is refused: {error}\n{printed}"));
            again.origins = config.origins.clone();
            again.kubelet_file = config.kubelet_file.clone();
            assert_eq!(again, config, "what is printed says something else\n{printed}");
        }
    }
    let _ = fs::remove_file(&*FILE);
}

/// Any other bytes will do.
pub fn change(_: &[u8], _: usize, _: u32) -> Option<Vec<u8>> {
    None
}
