//! The folder that `render -o` leaves: `manifests/` and `volumes/`.
//!
//! What an earlier render wrote for the same DaemonSets is replaced; everything else stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use crate::cli::render::report::RenderEntry;
use crate::config;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::yaml;
use crate::node::api::words;
use crate::node::fsx::Real;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

type Errors = Vec<(String, Option<String>)>;

/// Writes `entries` below `folder`; gives the names of the manifests that are there now, and what could not be written.
pub(super) fn write(folder: &Path, entries: &[RenderEntry]) -> (BTreeSet<String>, Errors) {
    let (mut written, mut errors) = (BTreeSet::new(), Errors::new());
    let manifests = folder.join("manifests");
    if let Err(error) = fs::create_dir_all(&manifests) {
        errors.push(failed(&manifests, &error));
        return (written, errors);
    }
    let mut volumes = Volumes::new(Real::shared(), VolumesRoot::plain(folder));
    clear(&manifests, entries, &mut volumes, &mut errors);
    for entry in entries {
        let RenderEntry::Rendered { identity, rendered, .. } = entry else { continue };
        if let Err(error) = volumes.write(&identity.uid, &rendered.pod.volumes) {
            let hint = error.hint();
            errors.push((words(&error), hint));
            continue;
        }
        let path = manifests.join(&rendered.file);
        match write_file(&path, &rendered.text) {
            Ok(()) => drop(written.insert(rendered.file.clone())),
            Err(error) => errors.push(failed(&path, &error)),
        }
    }
    (written, errors)
}

/// Removes the manifests of earlier renders of the same DaemonSets, with their volumes.
fn clear(manifests: &Path, entries: &[RenderEntry], volumes: &mut Volumes, errors: &mut Errors) {
    let owners: BTreeSet<String> = entries.iter().filter_map(RenderEntry::key).map(ToString::to_string).collect();
    let keep: BTreeSet<&str> = entries
        .iter()
        .filter_map(|entry| match entry {
            RenderEntry::Rendered { identity, .. } => Some(identity.uid.as_str()),
            _ => None,
        })
        .collect();
    let files: Vec<PathBuf> = match fs::read_dir(manifests) {
        Ok(files) => files.filter_map(|file| file.ok().map(|file| file.path())).collect(),
        Err(error) => return errors.push(failed(manifests, &error)),
    };
    for path in files {
        let Some((owner, uid)) = owner(&path) else { continue };
        if !owners.contains(&owner) {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            errors.push(failed(&path, &error));
        } else if !keep.contains(uid.as_str())
            && let Err(error) = volumes.clear(&uid)
        {
            let hint = error.hint();
            errors.push((words(&error), hint));
        }
    }
}

/// The DaemonSet and the pod UID of a manifest that a render wrote; `None`: it is none.
fn owner(path: &Path) -> Option<(String, String)> {
    let text = fs::read_to_string(path).ok()?;
    let pod = yaml::read_documents(&text).into_iter().next()?.value.ok()?;
    let owner = pod["metadata"]["annotations"][OWNER_ANNOTATION].as_str()?;
    Some((owner.to_owned(), pod["metadata"]["uid"].as_str()?.to_owned()))
}

/// A manifest may carry values that are nobody else's business.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn failed(path: &Path, error: &io::Error) -> (String, Option<String>) {
    let message = format!("{}: cannot be written: {}", path.display(), config::io_reason(error));
    (message, Some("name with -o a folder to which this user may write".to_owned()))
}
