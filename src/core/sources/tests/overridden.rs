//! What the node's owner gives precedence.

use super::*;

#[test]
fn the_node_owners_override_counts_until_the_api_has_something_newer() {
    let annotations = BTreeMap::from([(OVERRIDE_ANNOTATION.to_owned(), "true".to_owned())]);
    let file = Arc::new(DaemonSet { annotations, ..DaemonSet::clone(&file()) });
    let api = daemon_set(Source::Api, Some("static"));
    let newer = Arc::new(DaemonSet { template: json!({"spec": {}}), ..DaemonSet::clone(&api) });
    let folder = || FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    for (of_api, expected) in [
        (ApiState::Unknown, "wanted from file, Static"),
        (ApiState::Present(&api), "wanted from file, Static"),
        (ApiState::Present(&newer), "wanted from API, Static"),
    ] {
        let case = SourcesCase { remembered: Some(&api), ..SourcesCase::new(folder(), of_api) };
        assert_eq!(case.desired(&record(Some("ds-uid"), true)), expected);
    }
    // An empty file, or one that cannot be read, does not take its override back.
    let unsure = FolderState::Unsure { reason: Unproven::FileEmpty };
    let runs = running(&file);
    for (of_api, expected) in [
        (ApiState::Unknown, "held, Static, ask=false"),
        (ApiState::Present(&api), "held, Static, ask=false"),
        (ApiState::Present(&newer), "wanted from API, Static"),
    ] {
        let case = SourcesCase { remembered: Some(&api), has_file: true, ..SourcesCase::new(unsure, of_api) };
        assert_eq!(case.desired(&runs), expected);
    }
    // Nor does it where what was remembered is older than what runs.
    let of = |overrides, of_api| {
        let unread = FolderState::Unsure { reason: Unproven::FileUnread { overrides } };
        let case = SourcesCase { remembered: Some(&api), has_file: true, ..SourcesCase::new(unread, of_api) };
        case.desired(&record(Some("ds-uid"), true))
    };
    assert_eq!(of(true, ApiState::Present(&api)), "unsure");
    assert_eq!(of(true, ApiState::Present(&newer)), "wanted from API, Static");
    assert_eq!(of(false, ApiState::Present(&api)), "wanted from API, Static");
    let case = SourcesCase { remembered: Some(&api), ..SourcesCase::new(FolderState::Absent, ApiState::Present(&api)) };
    assert_eq!(case.desired(&runs), "wanted from API, Static", "it was removed");
}
