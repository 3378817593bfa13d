//! Files that do not count because their DaemonSets were deleted in the API.
//!
//! Owns how they are reported. Must not decide that they do not count: [`crate::core::sources`] does.

use crate::core::pass::Plan;
use crate::core::plan::Reason;
use crate::core::status::State;
use crate::node::agent::observed_folders::ObservedFolders;

/// Names the file of each daemon that does not run because it was deleted in the API and its file has not changed since.
pub(super) fn note(folders: &ObservedFolders, plan: &mut Plan) {
    for daemon in plan.daemons.iter_mut().filter(|daemon| daemon.summary.state == State::NotSelected) {
        let ignored = daemon.record.ignored_file.as_deref();
        let Some(file) = folders.get(&daemon.key).filter(|_| ignored.is_some()) else { continue };
        if folders.fingerprint(&daemon.key) == ignored {
            let source = &file.source;
            daemon.summary.reasons = [Reason::FileIgnored(source.clone())].into();
            daemon.summary.source = Some(source.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;
    use std::time::SystemTime;

    use crate::core::replies::PlanReport;
    use crate::node::agent::decide::tests;
    use crate::node::agent::last_pass::LastPass;
    use crate::node::agent::report::ReportInputs;
    use crate::node::agent::report::to_json;
    use crate::node::folders;
    use crate::node::folders::FolderView;
    use crate::node::folders::Rests;
    use crate::node::folders::ScanTime;
    use crate::node::fsx::Real;

    use super::*;

    #[test]
    fn a_file_that_is_ignored_is_named() {
        let config = tests::config();
        let mut state = tests::state(&config);
        let folder = tempfile::tempdir().unwrap();
        let mut file = tests::object("", serde_json::json!({}));
        (file["apiVersion"], file["kind"]) = ("apps/v1".into(), "DaemonSet".into());
        let path = folder.path().join("net.json");
        std::fs::write(&path, file.to_string()).unwrap();
        let wall = SystemTime::now() + Duration::from_secs(3600);
        let look = ScanTime { steady: Duration::from_secs(9), wall, first: None };
        let dir = [folder.path().to_owned()];
        let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
        let mut observation = tests::observation(None);
        observation.folders.view = Arc::new(view);
        let record = state.records.get_mut(&tests::key()).unwrap();
        record.instances.clear();
        record.retire();
        record.ignored_file = observation.folders.fingerprint(&tests::key()).map(str::to_owned);
        let decision = tests::decided(&observation, &state, &config);
        let last = LastPass { plan: Arc::clone(&decision.plan), observation, ..LastPass::default() };
        let view = ReportInputs { config: &config, state: &decision.state, last: &last, api: None };
        let says = format!("deleted in the API; {} counts again when it changes", path.display());
        let report: PlanReport = serde_json::from_value(to_json(&view.plan_report())).unwrap();
        assert_eq!(report.held.iter().map(|held| &held.reason).collect::<Vec<_>>(), [&says]);
        let explained = view.explain(&tests::key());
        assert_eq!(explained.status.map(|status| (status.state, status.reason)), Some((State::NotSelected, says)));
    }
}
