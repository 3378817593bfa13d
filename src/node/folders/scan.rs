//! One reading of all folders.

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
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;
use crate::node::fsx::Stat;

/// A file of the name that counts.
struct Candidate {
    path: PathBuf,
    folder: PathBuf,
    stat: io::Result<Stat>,
}

/// Reads `folders`, given in ascending precedence, at the time `now`. Files that have not changed since `previous` are
/// not read again.
///
/// Nothing here fails: what cannot be read is a problem in the view, and what it defined before stays.
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
                view.files.push(before.map_or_else(unread, incomplete));
            }
            Ok(stat) if is_mask(&stat) => {
                // An empty file may be one that is just being written.
                let quiet = is_quiet(stat.stamp.modified(), now);
                match before.filter(|_| !quiet) {
                    Some(before) => {
                        view.recheck = Some(QUIET_PERIOD);
                        view.files.push(Arc::clone(before));
                    }
                    None => view.masked.push(name),
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

/// Adds the files of `folder` to `names`, in place of those of the same names in earlier folders.
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
        view.notes.push(format!("{} does not count: only .yaml, .yml and .json files do", path.display()));
        return;
    }
    // Links are followed: many tools place files by them.
    let stat = disk.look(&path);
    if stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Folder) {
        view.notes.push(format!("{} does not count: it is a folder", path.display()));
        return;
    }
    names.insert(name, Candidate { path, folder: folder.to_owned(), stat });
}

/// `/dev/null` is the only device that is somebody's word; nothing else that is no file gets opened.
fn is_mask(stat: &Stat) -> bool {
    stat.kind == FileKind::Device || (stat.kind == FileKind::File && stat.size() == 0)
}

/// Whether something that was modified at `modified` has been left alone; a clock that was behind then proves nothing.
fn is_quiet(modified: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(modified) {
        Ok(age) => age >= QUIET_PERIOD,
        Err(ahead) => ahead.duration() >= QUIET_PERIOD,
    }
}

/// Files that were there and are not: kept while their folder is gone, unreadable, elsewhere or being changed.
fn carry_vanished(view: &mut FolderView, previous: &FolderView) {
    for file in &previous.files {
        if view.files.iter().any(|other| other.name == file.name) || view.masked.contains(&file.name) {
            continue;
        }
        let configured = view.folders.iter().any(|folder| folder.path == file.folder);
        if configured && !is_believed(file, view) {
            view.files.push(incomplete(file));
        }
    }
}

/// Whether a file that its folder does not hold is gone from it: the folder is there, on the file system that the
/// file was on, and was left alone.
fn is_believed(file: &FileView, view: &FolderView) -> bool {
    on(view, &file.folder)
        .is_some_and(|now| now.identity.is_some() && now.identity == file.mounted && now.readable && now.quiet)
}

fn on<'v>(view: &'v FolderView, folder: &Path) -> Option<&'v ScannedFolder> {
    view.folders.iter().find(|state| state.path == folder)
}

/// The file with where its folder is now.
fn on_file_system(file: Arc<FileView>, mounted: Option<FolderIdentity>) -> Arc<FileView> {
    if file.mounted == mounted { file } else { Arc::new(FileView { mounted, ..FileView::clone(&file) }) }
}

/// Whether a file of a later folder hid that of `folder`, and now is not seen only because its own folder is in trouble.
fn is_hidden_by_trouble(before: &FileView, folder: &Path, view: &FolderView) -> bool {
    let rank = |path: &Path| view.folders.iter().position(|state| state.path == path);
    rank(&before.folder) > rank(folder) && !is_believed(before, view)
}

/// The file as it was, but no longer as a word on what it does not define.
fn incomplete(file: &Arc<FileView>) -> Arc<FileView> {
    if !file.complete {
        return Arc::clone(file);
    }
    Arc::new(FileView { complete: false, quiet: false, ..FileView::clone(file) })
}
