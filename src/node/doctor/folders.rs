//! Who may write to the agent's folders.

use std::io::ErrorKind;
use std::path::Path;

use crate::core::doctor::FolderFinding;
use crate::node::api::words;
use crate::node::fsx;
use crate::node::fsx::FileKind;
use crate::node::fsx::Real;

/// Why an agent, which is root's, would not use the folder, and what to do about it. `None`: it would, or it cannot be
/// looked at.
pub(super) fn doubt(folder: &Path) -> Option<(String, Option<String>)> {
    let stat = Real::shared().look(folder).ok()?;
    let owner = if stat.uid == 0 { None } else { fsx::other_owner(&stat, folder) };
    let mode = || Some((fsx::open_to_others(&stat)?, format!("chmod go-w {}", folder.display())));
    owner.or_else(mode).map(|(why, hint)| (format!("{} {why}: it is not used", folder.display()), Some(hint)))
}

/// The state folder; `None`: it is none, which the check of its disk says.
pub(super) fn state(folder: &Path) -> Option<FolderFinding> {
    Some(match Real::shared().look(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => FolderFinding::Absent,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => FolderFinding::Closed,
        Err(error) => FolderFinding::Bad(format!("{} cannot be looked at: {}", folder.display(), words(&error)), None),
        Ok(stat) if stat.kind != FileKind::Folder => return None,
        Ok(_) => match doubt(folder) {
            Some((why, hint)) => FolderFinding::Bad(why, hint),
            None => FolderFinding::Good,
        },
    })
}
