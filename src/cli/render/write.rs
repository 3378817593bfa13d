//! The folder that `render -o` leaves: `manifests/` and `volumes/`.
//!
//! What an earlier render wrote for the same DaemonSets is replaced; what it wrote for others stays, and is named: another
//! render into the same folder may have been meant. Everything else stays, too.

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

/// The changes that a render made in a folder.
#[derive(Debug, Default)]
pub(super) struct WrittenFolder {
    /// The names of the manifests of this render.
    pub files: BTreeSet<String>,
    /// The files that could not be written.
    pub errors: Errors,
    /// What an earlier render wrote for DaemonSets that are not among these, a line each.
    pub earlier: Vec<String>,
}

/// Writes `entries` below `folder`.
pub(super) fn write(folder: &Path, entries: &[RenderEntry]) -> WrittenFolder {
    let mut done = WrittenFolder::default();
    let manifests = folder.join("manifests");
    if let Err(error) = fs::create_dir_all(&manifests) {
        done.errors.push(failed(&manifests, &error));
        return done;
    }
    let mut volumes = Volumes::new(Real::shared(), VolumesRoot::plain(folder));
    clear(&manifests, entries, &mut volumes, &mut done);
    for entry in entries {
        let RenderEntry::Rendered { identity, rendered, .. } = entry else { continue };
        if let Err(error) = volumes.write(&identity.uid, &rendered.pod.volumes) {
            let hint = error.hint();
            done.errors.push((words(&error), hint));
            continue;
        }
        let path = manifests.join(&rendered.file);
        match write_file(&path, &rendered.text) {
            Ok(()) => drop(done.files.insert(rendered.file.clone())),
            Err(error) => done.errors.push(failed(&path, &error)),
        }
    }
    done
}

/// Removes the manifests of earlier renders of the same DaemonSets, with their volumes, and names those of others.
fn clear(manifests: &Path, entries: &[RenderEntry], volumes: &mut Volumes, done: &mut WrittenFolder) {
    let owners: BTreeSet<String> = entries.iter().filter_map(RenderEntry::key).map(ToString::to_string).collect();
    let keep: BTreeSet<&str> = entries
        .iter()
        .filter_map(|entry| match entry {
            RenderEntry::Rendered { identity, .. } => Some(identity.uid.as_str()),
            _ => None,
        })
        .collect();
    let mut files: Vec<PathBuf> = match fs::read_dir(manifests) {
        Ok(files) => files.filter_map(|file| file.ok().map(|file| file.path())).collect(),
        Err(error) => return done.errors.push(failed(manifests, &error)),
    };
    files.sort();
    for path in files {
        let Some((owner, uid)) = owner(&path) else { continue };
        if !owners.contains(&owner) {
            let path = path.display();
            done.earlier
                .push(format!("{path} stays: an earlier render wrote it for {owner}, which is not in what was read"));
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            done.errors.push(failed(&path, &error));
        } else if !keep.contains(uid.as_str())
            && let Err(error) = volumes.clear(&uid)
        {
            let hint = error.hint();
            done.errors.push((words(&error), hint));
        }
    }
}

/// The DaemonSet and the pod UID of a manifest that a render wrote; `None`: the file is none.
fn owner(path: &Path) -> Option<(String, String)> {
    let text = fs::read_to_string(path).ok()?;
    let pod = yaml::read_documents(&text).into_iter().next()?.value.ok()?;
    let owner = pod["metadata"]["annotations"][OWNER_ANNOTATION].as_str()?;
    Some((owner.to_owned(), pod["metadata"]["uid"].as_str()?.to_owned()))
}

/// Writes a file that only its owner may read: a manifest may carry secret values.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn failed(path: &Path, error: &io::Error) -> (String, Option<String>) {
    let message = format!("{}: cannot be written: {}", path.display(), config::io_reason(error));
    (message, Some("name with -o a folder to which this user may write".to_owned()))
}
