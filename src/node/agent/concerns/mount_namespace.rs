//! Whether the agent's mount namespace still has the folders that it writes to as the machine, and so the kubelet, has
//! them.
//!
//! Owns when that is compared and what follows. A service has a mount namespace of its own. When a folder that it may
//! write to is moved or made anew, the new one is read-only in there; only another start of the service gets a
//! namespace in which it is not.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use crate::core::mounts::MountDifference;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::log::Log;
use super::super::observation::Observation;

/// The folders are compared this often.
const PERIOD: Span = Span::from_secs(30);
/// While something is wrong with them, this often.
const AGAIN: Span = Span::from_secs(5);

/// What the last comparisons showed.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct MountNamespace {
    at: Option<Timestamp>,
    /// Folders that were the machine's at a comparison. For the others, another start would not help.
    were_same: BTreeSet<PathBuf>,
    differ: BTreeMap<PathBuf, MountDifference>,
    /// Folders that differ as at the comparison before.
    still_differ: BTreeSet<PathBuf>,
    /// The manifest folder could not be used.
    is_unusable: bool,
}

impl MountNamespace {
    /// Whether a pass at `now` is to compare. A clock that was set back makes that due.
    pub(in super::super) fn is_due(&self, now: Timestamp) -> bool {
        let period = if self.is_unusable || !self.differ.is_empty() { AGAIN } else { PERIOD };
        self.at.is_none_or(|at| !(Span::ZERO..period).contains(&(now - at)))
    }

    /// When a pass is to compare if nothing happens.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        let is_waiting = self.differ.keys().any(|path| self.were_same.contains(path));
        self.at.filter(|_| is_waiting).map(|at| at + AGAIN)
    }

    /// Notes what a pass has compared.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        self.is_unusable = observation.manifests.current().is_none();
        let Some(compared) = &observation.mounts else { return };
        self.at = Some(observation.now);
        let same = compared.iter().filter(|(_, difference)| difference.is_none());
        self.were_same.extend(same.map(|(path, _)| path.clone()));
        let differ = compared.iter().filter_map(|(path, difference)| Some((path.clone(), difference.clone()?)));
        let before = std::mem::replace(&mut self.differ, differ.collect());
        let is_still = |(path, difference): &(&PathBuf, &MountDifference)| before.get(*path) == Some(difference);
        self.still_differ = self.differ.iter().filter(is_still).map(|(path, _)| path.clone()).collect();
        for path in self.outdated() {
            log.warn(format!("{}; the agent starts again to have it as it is", text(path, &self.differ[path])));
        }
    }

    /// The folders that another start of the service would have as the machine has them, each with what differs.
    pub(in super::super) fn outdated(&self) -> impl Iterator<Item = &Path> {
        self.still_differ.intersection(&self.were_same).map(PathBuf::as_path)
    }

    /// The folders that differ.
    pub(in super::super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.differ.iter().map(|(path, difference)| Problem {
            object: path.display().to_string(),
            reason: text(path, difference),
            hint: Some(
                "the agent starts again by itself if its service could write to the folder before. Else its unit's \
                 ReadWritePaths= has to name the folder, which `daemonlet generate unit-dropin` writes; then \
                 `systemctl restart daemonlet`"
                    .to_owned(),
            ),
        })
    }
}

fn text(path: &Path, difference: &MountDifference) -> String {
    let path = path.display();
    match difference {
        MountDifference::ReadOnly => {
            format!("{path} is read-only for this service and not for the kubelet: the folder was moved or made anew")
        }
        MountDifference::Another { here, there } => {
            format!("{path} is {here} for this service and {there} for the kubelet: it was mounted over")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::knowledge::Knowledge;
    use crate::core::time::at;

    const MANIFESTS: &str = "/etc/kubernetes/manifests";

    /// A pass at `now` that has compared, with this result.
    fn pass(namespace: &mut MountNamespace, now: i64, difference: Option<MountDifference>) -> Vec<String> {
        assert!(namespace.is_due(at(now)), "{now}");
        let manifests = match difference {
            None => Knowledge::Current(Arc::default()),
            Some(_) => Knowledge::Unreadable("EROFS".to_owned().into()),
        };
        let mounts = Some([(MANIFESTS.into(), difference)].into());
        let observation = Observation { now: at(now), manifests, mounts, ..Observation::default() };
        namespace.observe(&observation, &mut Log::default());
        namespace.outdated().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_folder_that_was_made_anew_twice_seen_calls_for_another_start() {
        let mut namespace = MountNamespace::default();
        assert!(pass(&mut namespace, 10_000, None).is_empty());
        assert!(!namespace.is_due(at(39_000)) && namespace.due().is_none());
        assert!(pass(&mut namespace, 40_000, Some(MountDifference::ReadOnly)).is_empty());
        assert!(!namespace.is_due(at(44_000)));
        assert_eq!(namespace.due(), Some(at(45_000)), "not only when something else happens");
        assert_eq!(namespace.problems().count(), 1);
        assert_eq!(pass(&mut namespace, 45_000, Some(MountDifference::ReadOnly)), [MANIFESTS]);
        assert!(pass(&mut namespace, 50_000, None).is_empty());
        assert_eq!(namespace.problems().count(), 0);
    }

    #[test]
    fn what_another_start_did_not_mend_is_only_reported() {
        let mut namespace = MountNamespace::default();
        for now in [10_000, 15_000, 45_000] {
            assert!(pass(&mut namespace, now, Some(MountDifference::ReadOnly)).is_empty());
            assert_eq!((namespace.problems().count(), namespace.due()), (1, None));
        }
    }

    #[test]
    fn a_pass_that_compared_nothing_says_nothing() {
        let mut namespace = MountNamespace::default();
        pass(&mut namespace, 10_000, None);
        pass(&mut namespace, 40_000, Some(MountDifference::ReadOnly));
        let before = namespace.clone();
        let manifests = Knowledge::Unreadable("EROFS".to_owned().into());
        let silent = Observation { now: at(41_000), manifests, ..Observation::default() };
        namespace.observe(&silent, &mut Log::default());
        assert_eq!(namespace, before);
        assert!(namespace.is_due(at(1_000)), "the clock was set back");
    }
}
