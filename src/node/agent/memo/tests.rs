use serde_json::json;

use crate::core::model::Lookup;
use crate::core::model::Source;
use crate::core::validate;

use super::*;

/// A world with nothing in it.
struct Nothing;

impl ObjectSource for Nothing {
    fn lookup(&self, _: &ObjectRef) -> Lookup<'_> {
        Lookup::Absent
    }
}

impl VersionedObjects for Nothing {
    fn version(&self, _: &ObjectRef) -> u64 {
        1
    }
}

impl TokenSource for Nothing {
    fn token(&self, _: &TokenRequest) -> Option<&str> {
        None
    }
}

impl VersionedTokens for Nothing {
    fn version(&self, _: &TokenRequest) -> u64 {
        0
    }
}

#[test]
fn what_was_written_is_given_up_and_rendered_anew_when_it_is_to_be_written_again() {
    let value = json!({
        "metadata": {"namespace": "kube-system", "name": "net"},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": {
            "metadata": {"labels": {"app": "net"}},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i:1"}]}
        }}
    });
    let daemon_set = Arc::new(validate::daemon_set(&value, Source::Api).unwrap());
    let options = RenderOptions {
        node_name: "n".to_owned(),
        kubelet_version: None,
        api_endpoint: None,
        has_api: false,
        inline_secret_env: false,
        pulls: Default::default(),
    };
    let inputs = Inputs { objects: &Nothing, tokens: &Nothing, options: &options, options_version: 1 };
    let mut memo = Memo::default();
    memo.begin();
    let whole = memo.outcome(&daemon_set, 0, (false, Data::Current), inputs);
    assert!(whole.is_whole());
    memo.settle();
    memo.begin();
    let settled = memo.outcome(&daemon_set, 0, (false, Data::Current), inputs);
    assert!(!settled.is_whole());
    assert_eq!(*settled, whole.settled());
    let digests = |outcome: &Outcome| outcome.result.as_ref().unwrap().digest.clone();
    assert_eq!(digests(&settled), digests(&whole));
    memo.make_whole(&BTreeSet::from([daemon_set.key.clone()]));
    assert_eq!(memo.outcome(&daemon_set, 0, (false, Data::Current), inputs), whole);
}
