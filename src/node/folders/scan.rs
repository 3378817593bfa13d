//! Reading all folders once.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::FileView;
use super::FolderIdentity;
use super::FolderView;
use super::Mask;
use super::QUIET_PERIOD;
use super::RESTLESS;
use super::Rests;
use super::ScanTime;
use super::ScannedFolder;
use super::file;
use super::identity;
use super::rest::Rest;
use crate::core::input::InputProblem;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;
use crate::node::fsx::Stat;

/// The file in force for a name.
struct Candidate {
    path: PathBuf,
    folder: PathBuf,
    /// Whether a file of that name is in an earlier folder, too.
    hides: bool,
    stat: io::Result<(Stat, Rest)>,
}

/// What a reading shows, while it is made.
struct FolderReading<'a> {
    disk: &'a Shared,
    look: ScanTime,
    rests: &'a mut Rests,
    previous: &'a FolderView,
    view: FolderView,
    names: BTreeMap<OsString, Candidate>,
}

/// Reads `folders`, in ascending precedence. Files unchanged since `previous` are not read again; `rests` is what the
/// readings before this one have shown.
///
/// Never fails: a file that cannot be read becomes a problem in the view, and its earlier definitions stay.
pub fn read(
    disk: &Shared,
    folders: &[PathBuf],
    previous: &FolderView,
    rests: &mut Rests,
    look: ScanTime,
) -> FolderView {
    let since_boot = of_this_boot(previous, disk.boot_id());
    let previous = since_boot.as_ref().unwrap_or(previous);
    let mut reading =
        FolderReading { disk, look, rests, previous, view: FolderView::default(), names: BTreeMap::new() };
    for folder in folders {
        reading.list(folder);
    }
    reading.rests.end(look);
    reading.carry_masks();
    let known: HashMap<&str, &Arc<FileView>> = previous.files.iter().rev().map(|file| (&*file.name, file)).collect();
    for (name, candidate) in std::mem::take(&mut reading.names) {
        let name = name.to_string_lossy().into_owned();
        let before = known.get(&*name).copied();
        match before.filter(|before| is_hidden_by_trouble(before, &candidate.folder, &reading.view)) {
            // It is carried with all others that have vanished.
            Some(before) => reading.view.notes.push(passed_over(&candidate.path, &before.path)),
            None => reading.take(name, candidate, before),
        }
    }
    let mut view = reading.view;
    carry_vanished(&mut view, previous);
    view.files.sort_by(|a, b| a.name.cmp(&b.name));
    view.take_into_force();
    view
}

impl FolderReading<'_> {
    /// Takes the file in force under a name.
    fn take(&mut self, name: String, candidate: Candidate, before: Option<&Arc<FileView>>) {
        let Candidate { path, folder, hides, stat } = candidate;
        let mounted = on(&self.view, &folder).and_then(|folder| folder.identity.clone());
        let is_below_mount = |before: &&Arc<FileView>| before.path == path && before.lacks_mount(mounted.as_ref());
        if let Some(before) = before.filter(is_below_mount) {
            self.view.problems.push(file::unmounted(&path));
            return self.view.files.push(there(incomplete(before)));
        }
        match (stat, before) {
            (Err(error), before) => {
                self.view.problems.push(file::unreadable(&path, &error, before.map(|before| &**before)));
                self.look_again(QUIET_PERIOD);
                // At the first reading, too, it does not show what it defines.
                let unread = || Arc::new(file::unread(&path, &folder));
                self.view.files.push(before.map_or_else(unread, |before| there(incomplete(before))));
            }
            // An empty file may be one that is being written.
            (Ok((stat, rest)), Some(before)) if is_mask(&stat) && rest.left.is_some() => {
                self.hold(&path, before, rest);
            }
            (Ok((stat, _)), before) if is_mask(&stat) => match stat.kind {
                FileKind::File => self.take_empty(name, before),
                _ => {
                    self.view.masked.push(name);
                    self.view.masks.push(Mask { path, mounted });
                }
            },
            (Ok((stat, rest)), before) => {
                match (file::read(self.disk, &path, &folder, &stat, rest.left.is_none(), before), before) {
                    (None, Some(before)) => self.hold(&path, before, rest),
                    (Some(file), before) => {
                        if !file.quiet {
                            self.look_again(rest.left.unwrap_or(QUIET_PERIOD));
                        }
                        if file.blank {
                            return self.take_empty(name, before);
                        }
                        self.view.files.push(hiding(on_file_system(file, mounted), hides));
                    }
                    (None, None) => {}
                }
            }
        }
    }

    /// Takes a file without any document: it masks, and ends nothing that runs.
    fn take_empty(&mut self, name: String, before: Option<&Arc<FileView>>) {
        self.view.files.extend(before.map(|before| there(emptied(before))));
        self.view.empty.push(name.clone());
        self.view.masked.push(name);
    }

    /// Keeps what `before` defines, because the file that is now at `path` does not rest.
    fn hold(&mut self, path: &Path, before: &Arc<FileView>, rest: Rest) {
        if rest.restless >= RESTLESS {
            self.view.problems.push(file::restless(path));
        }
        self.look_again(rest.left.unwrap_or(QUIET_PERIOD));
        self.view.is_held = true;
        let before = file::with_held(before, true);
        self.view.files.push(if before.path == path { there(before) } else { before });
    }

    fn look_again(&mut self, after: Duration) {
        let recheck = &mut self.view.recheck;
        *recheck = Some(recheck.map_or(after, |other| other.min(after)));
    }

    /// Masks on under the names of links to /dev/null that are missing only because their folders have a problem, unless a
    /// later folder has a file of that name.
    fn carry_masks(&mut self) {
        for mask in &self.previous.masks {
            let (Some(folder), Some(name)) = (mask.path.parent(), mask.path.file_name()) else { continue };
            let now = on(&self.view, folder);
            let Some(now) = now.filter(|now| !is_gone(mask.mounted.as_ref(), now)) else { continue };
            let rank = |path: &Path| self.view.folders.iter().position(|state| state.path == path);
            if self.names.get(name).is_some_and(|candidate| rank(&candidate.folder) >= rank(&now.path)) {
                continue;
            }
            self.names.remove(name);
            self.view.masked.push(name.to_string_lossy().into_owned());
            self.view.masks.push(mask.clone());
            self.view.is_held = true;
        }
    }

    /// Adds the files of `folder` to the names, replacing those with the same names in earlier folders.
    fn list(&mut self, folder: &Path) {
        let identity = identity::of(self.disk, folder);
        let rest = self.disk.look(folder).ok().map(|stat| self.rests.look(folder, stat.stamp, self.look));
        let left = rest.and_then(|rest| rest.left);
        if let Some(left) = left {
            self.look_again(left);
        }
        let entries = self.disk.list(folder);
        let readable = entries.is_ok();
        match entries {
            Ok(entries) => entries.into_iter().for_each(|name| self.add(folder, name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let keeps = |file: &Arc<FileView>| file.folder == *folder && file.defines_something();
                let keeps = self.previous.files.iter().any(keeps);
                self.view.problems.push(file::unlisted(folder, &error, keeps));
            }
        }
        let quiet = left.is_none();
        self.view.folders.push(ScannedFolder { path: folder.to_owned(), readable, identity, quiet });
    }

    fn add(&mut self, folder: &Path, name: OsString) {
        let path = folder.join(&name);
        if name.as_encoded_bytes().starts_with(b".") {
            return;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("yaml" | "yml" | "json")) {
            let note = format!("{} is ignored: only .yaml, .yml and .json files are read", path.display());
            return self.view.notes.push(note);
        }
        if name.to_str().is_none() {
            return self.view.problems.push(file::nameless(folder, &name));
        }
        // Links are followed: many tools install files as links.
        let mut stat = self.disk.look(&path);
        if stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Folder) {
            if !self.previous.files.iter().any(|file| file.path == path) {
                return self.view.notes.push(format!("{} is ignored: it is a folder", path.display()));
            }
            // A container runtime makes one where the source of a bind mount is missing.
            stat = Err(io::Error::other("it is a folder; put the file back, or remove the folder to end its daemons"));
        }
        let stat = stat.map(|stat| (stat, self.rests.look(&path, stat.stamp, self.look)));
        let shows = stat.as_ref().is_ok_and(|(stat, _)| !is_mask(stat)).then(|| path.clone());
        let hides = self.names.contains_key(&name);
        let earlier = self.names.insert(name, Candidate { path, folder: folder.to_owned(), hides, stat });
        let mask =
            earlier.filter(|earlier| matches!(&earlier.stat, Ok((stat, _)) if stat.kind == FileKind::NullDevice));
        self.view.notes.extend(shows.zip(mask).map(|(path, mask)| masks_nothing(&mask.path, &path)));
    }
}

/// `previous` without what is known of files that define nothing, and of links to /dev/null, on file systems that did not
/// outlive an earlier boot, such as `/run`; `None`: there is nothing of that kind.
fn of_this_boot(previous: &FolderView, boot: Option<String>) -> Option<FolderView> {
    let is_former = |mounted: Option<&FolderIdentity>| {
        mounted.is_some_and(|mounted| mounted.boot.is_some() && mounted.boot != boot)
    };
    let is_file_former = |file: &FileView| !file.defines_something() && is_former(file.mounted());
    let has_former = previous.masks.iter().any(|mask| is_former(mask.mounted.as_ref()))
        || previous.files.iter().any(|file| is_file_former(file));
    has_former.then(|| {
        let mut since = previous.clone();
        since.masks.retain(|mask| !is_former(mask.mounted.as_ref()));
        since.files.retain(|file| !is_file_former(file));
        since
    })
}

/// Whether a link that is missing from its folder, which was on `then`, was removed: the folder is there, on the file
/// system that belongs there, and has been unchanged long enough.
fn is_gone(then: Option<&FolderIdentity>, now: &ScannedFolder) -> bool {
    let lacks_mount = then.zip(now.identity.as_ref()).is_some_and(|(then, now)| then.is_missing_on(now));
    now.identity.is_some() && now.readable && now.quiet && !lacks_mount
}

/// `/dev/null` is the only special file with a meaning; no other one is opened.
fn is_mask(stat: &Stat) -> bool {
    stat.kind == FileKind::NullDevice || (stat.kind == FileKind::File && stat.size() == 0)
}

/// Files that have disappeared: kept while their folder is gone, unreadable, on another file system, or being changed.
/// Of a folder that is no longer configured the objects alone are kept, for what still runs with them.
fn carry_vanished(view: &mut FolderView, previous: &FolderView) {
    let there = view.files.len();
    let mut names: HashSet<String> = view.files.iter().map(|file| file.name.clone()).collect();
    names.extend(view.masked.iter().cloned());
    for file in previous.files.iter().filter(|file| !names.contains(&file.name)) {
        let kept = match on(view, &file.folder) {
            None if !file.defines_something() => continue,
            None => objects_alone(file, Vec::new()),
            Some(_) if is_believed(file, view) => continue,
            Some(folder) => {
                let (is_quiet, lacks_mount) = (folder.quiet, file.lacks_mount(folder.identity.as_ref()));
                view.is_held |= !is_quiet;
                view.problems.extend(lacks_mount.then(|| file::unmounted(&file.path)));
                incomplete(file)
            }
        };
        view.files.push(vanished(kept, view, &view.files[..there]));
    }
}

/// `file`, which has vanished, without what files that are `there` now define in its stead: those of its folder if that
/// is another one now, such as `/run` after a boot, and all others if its folder is no longer configured. What lies below
/// a mount that is missing takes the place of nothing.
fn vanished(file: Arc<FileView>, view: &FolderView, there: &[Arc<FileView>]) -> Arc<FileView> {
    let is_in_its_stead = |other: &&Arc<FileView>| match on(view, &file.folder) {
        Some(ScannedFolder { identity, .. }) => {
            other.folder == file.folder && *identity != file.mounted && !file.lacks_mount(identity.as_ref())
        }
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
/// been unchanged long enough. What is not known to define anything needs no file system to have been on.
fn is_believed(file: &FileView, view: &FolderView) -> bool {
    let is_its = |now: &ScannedFolder| {
        let defines_nothing = !file.defines_something() && !file.lacks_mount(now.identity.as_ref());
        now.identity == file.mounted || defines_nothing
    };
    on(view, &file.folder).is_some_and(|now| now.identity.is_some() && is_its(now) && now.readable && now.quiet)
}

/// That the file at `path` does not count, because the one of its name that stood `before` it is kept.
fn passed_over(path: &Path, before: &Path) -> String {
    let (path, before) = (path.display(), before.display());
    format!("{path} is passed over: {before} stood before it, cannot be found, and nothing shows that it was removed")
}

/// That the link to /dev/null at `mask` has no effect, because the file of its name at `path` is in a later folder.
fn masks_nothing(mask: &Path, path: &Path) -> String {
    let (mask, path) = (mask.display(), path.display());
    format!("{mask} masks nothing: {path} is in a later folder, and the later folder counts")
}

fn on<'v>(view: &'v FolderView, folder: &Path) -> Option<&'v ScannedFolder> {
    view.folders.iter().find(|state| state.path == folder)
}

/// The file, with its folder's present file system.
fn on_file_system(file: Arc<FileView>, mounted: Option<FolderIdentity>) -> Arc<FileView> {
    if file.mounted == mounted { file } else { Arc::new(FileView { mounted, ..FileView::clone(&file) }) }
}

/// The file, which stands before one of an earlier folder or not.
fn hiding(file: Arc<FileView>, hides: bool) -> Arc<FileView> {
    if file.hides == hides { file } else { Arc::new(FileView { hides, ..FileView::clone(&file) }) }
}

/// Whether a file of a later folder replaced that of `folder`, and is missing only because its own folder has a
/// problem.
fn is_hidden_by_trouble(before: &FileView, folder: &Path, view: &FolderView) -> bool {
    let rank = |path: &Path| view.folders.iter().position(|state| state.path == path);
    rank(&before.folder) > rank(folder) && !is_believed(before, view)
}

/// The objects of an empty file, which stay in force. It is a problem where it has some, or was broken before.
fn emptied(file: &Arc<FileView>) -> Arc<FileView> {
    let has_problem = !file.objects.is_empty() || !file.problems.is_empty();
    objects_alone(file, has_problem.then(|| file::empty(&file.path)).into_iter().collect())
}

/// The objects of a file that stay in force: those of daemons that run, and none that would start. What was wrong in it
/// is not there any more: it has `problems`.
fn objects_alone(file: &Arc<FileView>, problems: Vec<InputProblem>) -> Arc<FileView> {
    if file.daemon_sets.is_empty() && !file.complete && !file.held && file.problems == problems {
        return Arc::clone(file);
    }
    let (daemon_sets, unknown_fields) = (Vec::new(), Vec::new());
    let now = FileView { daemon_sets, problems, unknown_fields, ..FileView::clone(file) };
    Arc::new(FileView { complete: false, quiet: false, held: false, ..now })
}

/// The same file, which has something at its path.
fn there(file: Arc<FileView>) -> Arc<FileView> {
    if file.vanished { Arc::new(FileView { vanished: false, ..FileView::clone(&file) }) } else { file }
}

/// The same file, but no longer evidence about objects that it does not define. No change of it waits to count.
fn incomplete(file: &Arc<FileView>) -> Arc<FileView> {
    if !file.complete && !file.held {
        return Arc::clone(file);
    }
    Arc::new(FileView { complete: false, quiet: false, held: false, ..FileView::clone(file) })
}
