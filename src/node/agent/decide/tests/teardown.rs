//! What a teardown says of what it finds.

use crate::core::plan::Reason;
use crate::core::record::EndConfirmation;
use crate::core::record::Phase;
use crate::node::agent::teardown;

use super::*;

/// An instance that ends.
fn ending(number: u8, reason: &str) -> Instance {
    let (since, boot) = (Timestamp::from_secs(1_000), "b".to_owned());
    let confirmed_by = EndConfirmation::Reported;
    let phase = Phase::Ending { since, reason: reason.to_owned(), boot, returns: false, confirmed_by };
    Instance { phase, ..Instance::new(&format!("uid-{number}"), &format!("net-{number}"), 0, "r", since) }
}

#[test]
fn each_pod_of_a_daemon_has_words_of_its_own() {
    let config = config();
    let mut state = state(&config);
    let mut decision = decided(&observation(None), &state, &config);
    Arc::make_mut(&mut decision.plan).daemons[0].summary.reasons =
        [Reason::Recorded("net-2 ends: the second".to_owned())].into();
    let mut left = |instances: Vec<Instance>| -> Vec<String> {
        state.records.get_mut(&key()).unwrap().instances = instances;
        let left = teardown::remaining(&state, &decision.plan, &EffectOutcome::default());
        left.into_iter().map(|one| format!("{} {}", one.pod, one.what)).collect()
    };
    let (first, second) = (ending(1, "the first"), ending(2, "the second"));
    assert_eq!(left(vec![first, second.clone()]), ["net-1 it ends: the first", "net-2 it ends: the second"]);
    assert_eq!(left(vec![second]), ["net-2 net-2 ends: the second"]);
}

#[test]
fn only_a_manifest_that_is_there_or_may_be_there_has_a_name() {
    let of = |scan: Option<&Scan>| teardown::manifest_of(&key(), &ending(1, ""), scan);
    assert_eq!(of(None).as_deref(), Some("kube-system_net-1.yaml"), "the folder cannot be read");
    assert_eq!(of(Some(&Scan::default())), None);
    let config = config();
    let scan = manifests_of(&state(&config));
    let found = of(scan.current().map(AsRef::as_ref));
    assert_eq!(found.as_deref(), Some("net-11111.yaml"), "the one of its UID, whatever its name is");
}
