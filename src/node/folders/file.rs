//! Reading one file, and keeping what its last valid version defined.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use sha2::Digest;
use sha2::Sha256;

use super::FileView;
use crate::core::input;
use crate::core::input::InputProblem;
use crate::core::input::ParsedFile;
use crate::core::input::ProblemKind;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::yaml;
use crate::node::api::words;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;
use crate::node::fsx::Stamp;
use crate::node::fsx::Stat;

/// A file that could not be looked at yet: what it defines is not known.
pub(super) fn unread(path: &Path, folder: &Path) -> FileView {
    FileView {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        folder: folder.to_owned(),
        fingerprint: String::new(),
        daemon_sets: Vec::new(),
        objects: Vec::new(),
        ignored: Vec::new(),
        problems: Vec::new(),
        unknown_fields: Vec::new(),
        complete: false,
        stamp: Stamp::default(),
        quiet: false,
        early: false,
        held: false,
        vanished: false,
        mounted: None,
        blank: false,
        hides: false,
    }
}

/// The present content of the file at `path`, plus what `previous`, its last version, defined and this one may not
/// remove. `None`: it does not rest, and `previous` stays in force.
pub(super) fn read(
    disk: &Shared,
    path: &Path,
    folder: &Path,
    stat: &Stat,
    rests: bool,
    previous: Option<&Arc<FileView>>,
) -> Option<Arc<FileView>> {
    let stamp = stat.stamp;
    // What was read while the file changed may be another version than that of its stamp.
    let unchanged = |previous: &&Arc<FileView>| previous.path == path && previous.stamp == stamp && previous.quiet;
    if let Some(previous) = previous.filter(unchanged) {
        return Some(with_held(previous, false));
    }
    let text = text(disk, path, stat);
    let rests = rests && disk.look(path).is_ok_and(|after| after.stamp == stamp);
    let mut view = FileView { stamp, quiet: rests, ..unread(path, folder) };
    match text {
        Ok((text, fingerprint)) => {
            let is_same = |previous: &Arc<FileView>| previous.path == path && previous.fingerprint == fingerprint;
            let same = previous.filter(|previous| is_same(previous));
            view.early = !rests && same.is_none_or(|same| same.early);
            if view.early && same.is_none() && previous.is_some_and(|previous| previous.defines_something()) {
                return None;
            }
            view.fingerprint = fingerprint;
            take(&mut view, input::parse_file(path, &text), previous.map(|previous| &**previous));
        }
        Err(error) => {
            view.fingerprint = previous.map(|previous| previous.fingerprint.clone()).unwrap_or_default();
            view.problems.push(unreadable(path, &error, previous.map(|previous| &**previous)));
            // Not caused by the content: the next read may succeed.
            view.quiet = rests && error.kind() == io::ErrorKind::InvalidData;
        }
    }
    if let Some(previous) = previous {
        keep(&mut view, previous);
    }
    Some(Arc::new(view))
}

/// The same file, whose changes wait for it to rest or not.
pub(super) fn with_held(file: &Arc<FileView>, held: bool) -> Arc<FileView> {
    if file.held == held { Arc::clone(file) } else { Arc::new(FileView { held, ..FileView::clone(file) }) }
}

/// The problem of a file whose changes do not count because it never rests.
pub(super) fn restless(path: &Path) -> InputProblem {
    let reason = "changes all the time; what it last defined stays in force until it is unchanged for one second";
    let hint = "stop what writes it, or write another file and rename that to this one";
    InputProblem { reason: reason.to_owned(), hint: Some(hint.to_owned()), kind: ProblemKind::Invalid, ..about(path) }
}

/// The problem of a file that cannot be read at all; `previous`: its last version.
pub(super) fn unreadable(path: &Path, error: &io::Error, previous: Option<&FileView>) -> InputProblem {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "let root read it, or remove it",
        // What was listed and leads nowhere is a link.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LINK,
        _ if leads_in_a_circle(error) => LINK,
        io::ErrorKind::InvalidData => "write the file anew",
        io::ErrorKind::InvalidInput => "put a regular file in its place, or remove it",
        _ => DISK,
    };
    let keeps = previous.is_some_and(FileView::defines_something);
    InputProblem { reason: not_read(error, keeps), hint: Some(hint.to_owned()), ..about(path) }
}

/// The problem of a folder that cannot be listed; `keeps`: whether files of it are in force.
pub(super) fn unlisted(path: &Path, error: &io::Error, keeps: bool) -> InputProblem {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "let root read it, or take it out of `folders`",
        io::ErrorKind::NotADirectory => "make it a folder, or take it out of `folders`",
        _ if leads_in_a_circle(error) => LINK,
        _ => DISK,
    };
    InputProblem { reason: not_read(error, keeps), hint: Some(hint.to_owned()), ..about(path) }
}

const LINK: &str = "correct the link, or remove it";
const DISK: &str = "look for faults of the disk: dmesg";

fn leads_in_a_circle(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ELOOP as i32)
}

fn not_read(error: &io::Error, keeps: bool) -> String {
    let why = words(error);
    match keeps {
        true => format!("cannot be read: {why}; what it last defined stays in force"),
        false => format!("cannot be read: {why}"),
    }
}

/// The problem of a file without a document that was wrong before.
pub(super) fn empty(path: &Path) -> InputProblem {
    let reason = "has no document; what it last defined and runs stays in force";
    let hint = "write the file anew; to end what runs of it, remove the file or link it to /dev/null";
    InputProblem { reason: reason.to_owned(), hint: Some(hint.to_owned()), ..about(path) }
}

/// The problem of a file in whose folder another file system was mounted when it last counted.
pub(super) fn unmounted(path: &Path) -> InputProblem {
    let reason = "is not read: the file system of its folder is not mounted; what it last defined stays in force";
    let hint =
        "mount it; if what lies in the folder now is to count, move it to another one, named in `folders` instead";
    InputProblem { reason: reason.to_owned(), hint: Some(hint.to_owned()), ..about(path) }
}

/// The problem of a file whose name is not UTF-8: it is not read, as its name could be written down nowhere.
pub(super) fn nameless(folder: &Path, name: &OsStr) -> InputProblem {
    let reason = "is not read: its name is not UTF-8; what runs of it stays".to_owned();
    let hint = Some("give the file a name in UTF-8".to_owned());
    let path = folder.join(name.as_encoded_bytes().escape_ascii().to_string());
    InputProblem { reason, hint, ..about(&path) }
}

fn about(path: &Path) -> InputProblem {
    InputProblem {
        file: path.to_owned(),
        line: 0,
        column: 0,
        object: None,
        field: None,
        reason: String::new(),
        hint: None,
        kind: ProblemKind::Syntax,
    }
}

fn text(disk: &Shared, path: &Path, stat: &Stat) -> io::Result<(String, String)> {
    if stat.kind != FileKind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // One byte more than the limit, to detect longer texts.
    let bytes = disk.load(path, yaml::MAX_TEXT as u64 + 1)?;
    let fingerprint = Sha256::digest(&bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })?;
    Ok((text, fingerprint))
}

/// Takes what was read. Unchanged objects keep their addresses, by which others recognise them.
fn take(view: &mut FileView, parsed: ParsedFile, previous: Option<&FileView>) {
    view.complete = !parsed.is_incomplete();
    view.blank = parsed.is_blank;
    let before = previous.map_or(&[][..], |previous| &previous.daemon_sets);
    let as_before = |daemon_set| match before.iter().find(|before| ***before == daemon_set) {
        Some(before) => Arc::clone(before),
        None => Arc::new(daemon_set),
    };
    view.daemon_sets = parsed.daemon_sets.into_iter().map(as_before).collect();
    view.objects = parsed.objects.into_iter().map(|(reference, value)| (reference, Arc::new(value))).collect();
    view.ignored = parsed.ignored;
    view.problems = parsed.problems;
    view.unknown_fields = parsed.unknown_fields;
}

/// Keeps those objects of the previous version that are missing here but may not be removed: those that this version
/// defines wrongly, and all while a document cannot be read.
fn keep(view: &mut FileView, previous: &FileView) {
    let keep_all = !view.complete;
    let refused: Vec<(String, ObjectKey)> = view
        .problems
        .iter()
        .filter_map(|problem| problem.object.as_ref())
        .map(|object| (object.kind.clone(), object.key.clone()))
        .collect();
    let is_refused = |kind: &str, key: &ObjectKey| refused.iter().any(|(other, name)| other == kind && name == key);
    let (mut kept, own) = (0, view.daemon_sets.len());
    for daemon_set in &previous.daemon_sets {
        let there = view.daemon_sets.iter().any(|other| other.key == daemon_set.key);
        if !there && (keep_all || is_refused("DaemonSet", &daemon_set.key)) {
            view.daemon_sets.push(Arc::clone(daemon_set));
            kept += 1;
        }
    }
    if own == 0 && kept > 0 {
        // The file defines nothing that can be read. Objects that count again once it changes: it counts as unchanged.
        view.fingerprint.clone_from(&previous.fingerprint);
    }
    for (reference, value) in &previous.objects {
        let there = view.objects.iter().any(|(other, _)| other == reference);
        let name = Kind::as_str(reference.kind);
        if !there && (keep_all || is_refused(name, &reference.key)) {
            view.objects.push((reference.clone(), Arc::clone(value)));
            kept += 1;
        }
    }
    if kept > 0
        && let Some(problem) = view.problems.first_mut()
        && problem.hint.is_none()
    {
        problem.hint = Some("the last valid version stays in force until the file is valid again".to_owned());
    }
}
