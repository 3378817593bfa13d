//! Reading all folders once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::FileView;
use super::FolderIdentity;
use super::FolderView;
use super::QUIET_PERIOD;
use super::ScannedFolder;
use super::file;
use super::identity;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;
use crate::node::fsx::Stat;

/// The file in force for a name.
struct Candidate {
    path: PathBuf,
    folder: PathBuf,
    stat: io::Result<Stat>,
}

/// Reads `folders`, in ascending precedence, at the time `now`. Files unchanged since `previous` are not read again.
///
/// Never fails: what cannot be read becomes a problem in the view, and what it defined before stays.
pub fn read(disk: &Shared, folders: &[PathBuf], previous: &FolderView, now: SystemTime) -> FolderView {
    let mut view = FolderView::default();
    let mut names: BTreeMap<OsString, Candidate> = BTreeMap::new();
    for folder in folders {
        list(disk, folder, now, &mut view, &mut names);
    }
    for (name, candidate) in names {
        let name = name.to_string_lossy().into_owned();
        let before = previous.files.iter().find(|file| file.name == name);
        if let Some(before) = before.filter(|before| is_hidden_by_trouble(before, &candidate.folder, &view)) {
            view.files.push(incomplete(before));
            continue;
        }
        match candidate.stat {
            Err(error) => {
                view.problems.push(file::unreadable(&candidate.path, &error));
                view.recheck = Some(QUIET_PERIOD);
                // At the first look, too, it says nothing about what it defines.
                let unread = || Arc::new(file::unread(&candidate.path, &candidate.folder));
                view.files.push(before.map_or_else(unread, |before| there(incomplete(before))));
            }
            Ok(stat) if is_mask(&stat) => {
                // An empty file may be one that is being written.
                let quiet = is_quiet(stat.stamp.modified(), now);
                match before.filter(|_| !quiet) {
                    Some(before) => {
                        view.recheck = Some(QUIET_PERIOD);
                        view.files.push(Arc::clone(before));
                    }
                    None => {
                        if stat.kind == FileKind::File {
                            view.files.extend(before.map(|before| there(objects_alone(before))));
                            view.empty.push(name.clone());
                        }
                        view.masked.push(name);
                    }
                }
            }
            Ok(stat) => {
                let quiet = is_quiet(stat.stamp.modified(), now);
                let file = file::read(disk, &candidate.path, &candidate.folder, &stat, quiet, before);
                if !file.quiet {
                    view.recheck = Some(QUIET_PERIOD);
                }
                let mounted = on(&view, &candidate.folder).and_then(|folder| folder.identity.clone());
                view.files.push(on_file_system(file, mounted));
            }
        }
    }
    carry_vanished(&mut view, previous);
    view.files.sort_by(|a, b| a.name.cmp(&b.name));
    view.take_into_force();
    view
}

/// Adds the files of `folder` to `names`, replacing those with the same names in earlier folders.
fn list(
    disk: &Shared,
    folder: &Path,
    now: SystemTime,
    view: &mut FolderView,
    names: &mut BTreeMap<OsString, Candidate>,
) {
    let identity = identity::of(disk, folder);
    let quiet = disk.look(folder).map_or(true, |stat| is_quiet(stat.stamp.modified(), now));
    if !quiet {
        view.recheck = Some(QUIET_PERIOD);
    }
    let entries = disk.list(folder);
    let readable = entries.is_ok();
    match entries {
        Ok(entries) => {
            for name in entries {
                add(disk, folder, name, view, names);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => view.problems.push(file::unreadable(folder, &error)),
    }
    view.folders.push(ScannedFolder { path: folder.to_owned(), readable, identity, quiet });
}

fn add(disk: &Shared, folder: &Path, name: OsString, view: &mut FolderView, names: &mut BTreeMap<OsString, Candidate>) {
    let path = folder.join(&name);
    if name.as_encoded_bytes().starts_with(b".") {
        return;
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    if !matches!(extension, Some("yaml" | "yml" | "json")) {
        view.notes.push(format!("{} is ignored: only .yaml, .yml and .json files are read", path.display()));
        return;
    }
    // Links are followed: many tools install files as links.
    let stat = disk.look(&path);
    if stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Folder) {
        view.notes.push(format!("{} is ignored: it is a folder", path.display()));
        return;
    }
    names.insert(name, Candidate { path, folder: folder.to_owned(), stat });
}

/// `/dev/null` is the only device with a meaning; no other special file is opened.
fn is_mask(stat: &Stat) -> bool {
    stat.kind == FileKind::Device || (stat.kind == FileKind::File && stat.size() == 0)
}

/// Whether something modified at `modified` has been unchanged long enough; with a clock that was behind, unknown.
fn is_quiet(modified: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(modified) {
        Ok(age) => age >= QUIET_PERIOD,
        Err(ahead) => ahead.duration() >= QUIET_PERIOD,
    }
}

/// Files that have disappeared: kept while their folder is gone, unreadable, on another file system, or being changed.
/// Of a folder that is no longer configured the objects alone are kept, for what still runs with them.
fn carry_vanished(view: &mut FolderView, previous: &FolderView) {
    let there = view.files.len();
    for file in &previous.files {
        if view.files.iter().any(|other| other.name == file.name) || view.masked.contains(&file.name) {
            continue;
        }
        let kept = match on(view, &file.folder) {
            None => objects_alone(file),
            Some(_) if is_believed(file, view) => continue,
            Some(_) => incomplete(file),
        };
        view.files.push(vanished(kept, view, &view.files[..there]));
    }
}

/// `file`, which has vanished, without what files that are `there` now define in its stead: those of its folder if that
/// is another one now, such as `/run` after a boot, and all others if its folder is no longer configured.
fn vanished(file: Arc<FileView>, view: &FolderView, there: &[Arc<FileView>]) -> Arc<FileView> {
    let is_in_its_stead = |other: &&Arc<FileView>| match on(view, &file.folder) {
        Some(folder) => other.folder == file.folder && folder.identity != file.mounted,
        None => true,
    };
    let instead: Vec<&Arc<FileView>> = there.iter().filter(is_in_its_stead).collect();
    let stays = |old: &ObjectKey| !instead.iter().any(|f| f.daemon_sets.iter().any(|new| new.key == *old));
    let object_stays = |old: &ObjectRef| !instead.iter().any(|f| f.objects.iter().any(|(new, _)| new == old));
    let is_whole = file.daemon_sets.iter().all(|d| stays(&d.key)) && file.objects.iter().all(|(r, _)| object_stays(r));
    if is_whole && file.vanished {
        return file;
    }
    let mut kept = FileView { vanished: true, ..FileView::clone(&file) };
    kept.daemon_sets.retain(|daemon_set| stays(&daemon_set.key));
    kept.objects.retain(|(reference, _)| object_stays(reference));
    Arc::new(kept)
}

/// Whether a file that is missing from its folder was removed: the folder exists, on the same file system, and has
/// been unchanged long enough.
fn is_believed(file: &FileView, view: &FolderView) -> bool {
    on(view, &file.folder)
        .is_some_and(|now| now.identity.is_some() && now.identity == file.mounted && now.readable && now.quiet)
}

fn on<'v>(view: &'v FolderView, folder: &Path) -> Option<&'v ScannedFolder> {
    view.folders.iter().find(|state| state.path == folder)
}

/// The file, with its folder's present file system.
fn on_file_system(file: Arc<FileView>, mounted: Option<FolderIdentity>) -> Arc<FileView> {
    if file.mounted == mounted { file } else { Arc::new(FileView { mounted, ..FileView::clone(&file) }) }
}

/// Whether a file of a later folder replaced that of `folder`, and is missing only because its own folder has a
/// problem.
fn is_hidden_by_trouble(before: &FileView, folder: &Path, view: &FolderView) -> bool {
    let rank = |path: &Path| view.folders.iter().position(|state| state.path == path);
    rank(&before.folder) > rank(folder) && !is_believed(before, view)
}

/// What is left in force of a file that is empty now: objects of daemons that run, and nothing that would start.
fn objects_alone(file: &Arc<FileView>) -> Arc<FileView> {
    if file.daemon_sets.is_empty() && !file.complete {
        return Arc::clone(file);
    }
    Arc::new(FileView { daemon_sets: Vec::new(), complete: false, quiet: false, ..FileView::clone(file) })
}

/// The same file, which has something at its path.
fn there(file: Arc<FileView>) -> Arc<FileView> {
    if file.vanished { Arc::new(FileView { vanished: false, ..FileView::clone(&file) }) } else { file }
}

/// The same file, but no longer evidence about objects that it does not define.
fn incomplete(file: &Arc<FileView>) -> Arc<FileView> {
    if !file.complete {
        return Arc::clone(file);
    }
    Arc::new(FileView { complete: false, quiet: false, ..FileView::clone(file) })
}
