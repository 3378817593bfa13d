//! Who may write to the agent's folders.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use crate::config::Config;
use crate::core::doctor::FolderFinding;
use crate::core::status::Problem;
use crate::node::api::words;
use crate::node::doctor::way;
use crate::node::fsx;
use crate::node::fsx::FileKind;
use crate::node::fsx::Real;
use crate::node::fsx::Stat;

/// Why the folder is not safe, and what to do about it: an agent, which is root's, would not use it, or users other than root may
/// put another in its place, also while it is not there. `None`: it is, or it cannot be looked at.
pub(super) fn doubt(folder: &Path) -> Option<(String, Option<String>)> {
    let unused = |stat: Stat| {
        let owner = if stat.uid == 0 { None } else { fsx::other_owner(&stat, folder) };
        let mode = || Some((fsx::open_to_others(&stat)?, format!("chmod go-w {}", folder.display())));
        owner.or_else(mode).map(|(why, hint)| (format!("{} {why}: it is not used", folder.display()), hint))
    };
    let found = Real::shared().look(folder).ok().and_then(unused);
    found.or_else(|| why_replaceable(folder)).map(|(why, hint)| (why, Some(hint)))
}

/// The folders in the place of which users other than root may put theirs, and what to do about it.
pub fn replaceable(config: &Config) -> Vec<Problem> {
    let folders = [&config.state_dir, &config.manifest_dir].into_iter().chain(&config.folders);
    let found: BTreeMap<String, String> = folders.filter_map(|folder| why_replaceable(folder)).collect();
    let problem = |(reason, hint)| Problem { object: "folders".to_owned(), reason, hint: Some(hint) };
    found.into_iter().map(problem).collect()
}

fn why_replaceable(folder: &Path) -> Option<(String, String)> {
    let (folder, above) = (folder.display(), way::open_above(folder)?.display().to_string());
    let why = format!("users other than root may write to {above}, and so put another folder in the place of {folder}");
    Some((why, format!("chown root {above}; chmod go-w {above}")))
}

/// The state folder; `None`: the path is no folder, which the check of its disk reports.
pub(super) fn state(folder: &Path) -> Option<FolderFinding> {
    Some(match Real::shared().look(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => match dangling(folder).or_else(|| doubt(folder)) {
            Some((why, hint)) => FolderFinding::Bad(why, hint),
            None => FolderFinding::Absent,
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => FolderFinding::Closed,
        Err(error) => FolderFinding::Bad(format!("{} cannot be looked at: {}", folder.display(), words(&error)), None),
        Ok(stat) if stat.kind != FileKind::Folder => return None,
        Ok(_) => match doubt(folder) {
            Some((why, hint)) => FolderFinding::Bad(why, hint),
            None => FolderFinding::Good,
        },
    })
}

/// Why no agent can make the folder: `folder`, or one above it, is a link that leads to nothing.
fn dangling(folder: &Path) -> Option<(String, Option<String>)> {
    let is_link = |path: &&Path| Real::shared().look_at_link(path).is_ok_and(|stat| stat.kind == FileKind::Link);
    let is_there = |path: &Path| Real::shared().look(path).is_ok();
    let link = folder.ancestors().take_while(|path| !is_there(path)).find(is_link)?;
    let target = std::fs::read_link(link).map(|target| target.display().to_string()).unwrap_or_default();
    let (folder, link) = (folder.display(), link.display());
    let why = format!("{folder} cannot be made: {link} is a link to {target}, which is not there");
    Some((why, Some(format!("mount the disk that {link} leads to, or make that folder"))))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_link_that_leads_to_nothing_is_no_folder_that_the_agent_makes() {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("state");
        std::os::unix::fs::symlink(root.path().join("disk"), &link).unwrap();
        for folder in [link.clone(), link.join("below")] {
            let Some(FolderFinding::Bad(why, Some(hint))) = state(&folder) else { panic!("{:?}", state(&folder)) };
            assert!(why.contains("/disk, which is not there"), "{why}");
            assert_eq!(hint, format!("mount the disk that {} leads to, or make that folder", link.display()));
        }
        fs::create_dir(root.path().join("disk")).unwrap();
        assert_eq!(state(&link), Some(FolderFinding::Good));
        assert_eq!(state(&link.join("below")), Some(FolderFinding::Absent));
    }

    #[test]
    fn a_folder_above_that_others_may_write_to_is_bad_whether_the_folder_is_there_or_not() {
        let root = tempfile::tempdir().unwrap();
        let chmod = |mode| fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
        let folder = root.path().join("state");
        for is_there in [false, true] {
            if is_there {
                fs::create_dir(&folder).unwrap();
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
            }
            chmod(0o755);
            let well = if is_there { FolderFinding::Good } else { FolderFinding::Absent };
            assert_eq!(state(&folder), Some(well));
            chmod(0o777);
            let Some(FolderFinding::Bad(why, Some(hint))) = state(&folder) else { panic!("{:?}", state(&folder)) };
            assert!(why.contains("put another folder in the place of"), "{why}");
            assert!(hint.ends_with(&format!("chmod go-w {}", root.path().display())), "{hint}");
        }
    }
}
