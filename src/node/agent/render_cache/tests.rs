use std::collections::BTreeSet;

use serde_json::json;

use crate::core::bounds;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::core::validate;

use super::*;

/// A world with nothing in it.
struct Nothing;

impl ObjectSource for Nothing {
    fn lookup(&self, _: &ObjectRef) -> Lookup<'_> {
        Lookup::Absent
    }

    fn may_have_had(&self, _: &ObjectRef) -> bool {
        false
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

fn options(rules: crate::core::policy::PodRules) -> RenderOptions {
    RenderOptions {
        node_name: "n".to_owned(),
        kubelet_version: None,
        api_endpoint: None,
        has_api: false,
        inline_secret_env: false,
        pulls: Default::default(),
        token_expiration: crate::core::time::Span::from_secs(3607),
        rules,
        topology: Default::default(),
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
    let options = options(crate::core::policy::PodRules::trusting());
    let inputs = RenderCacheInputs { objects: &Nothing, tokens: &Nothing, options: &options, options_version: 1 };
    let mut render_cache = RenderCache::default();
    render_cache.begin(bounds::RENDERED);
    let whole = render_cache.rendering(&daemon_set, 0, (false, Data::Current), inputs);
    assert!(whole.is_whole());
    render_cache.shrink();
    render_cache.begin(bounds::RENDERED);
    let shrunk = render_cache.rendering(&daemon_set, 0, (false, Data::Current), inputs);
    assert!(!shrunk.is_whole());
    assert_eq!(*shrunk, whole.shrunk());
    let digests = |rendering: &RenderResult| rendering.result.as_ref().unwrap().digest.clone();
    assert_eq!(digests(&shrunk), digests(&whole));
    render_cache.make_whole(BTreeSet::from([daemon_set.key.clone()]));
    assert_eq!(render_cache.rendering(&daemon_set, 0, (false, Data::Current), inputs), whole);
}

/// One object at a version, in an epoch; counts how often it is asked for.
struct Counted {
    version: u64,
    epoch: u64,
    follows: bool,
    asked: std::cell::Cell<u32>,
}

impl ObjectSource for Counted {
    fn lookup(&self, _: &ObjectRef) -> Lookup<'_> {
        Lookup::Absent
    }

    fn may_have_had(&self, _: &ObjectRef) -> bool {
        false
    }
}

impl VersionedObjects for Counted {
    fn version(&self, _: &ObjectRef) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.version
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn follows_epoch(&self, _: u64) -> bool {
        self.follows
    }
}

#[test]
fn within_an_epoch_objects_are_asked_for_once_and_a_change_is_never_missed() {
    let reference = ObjectRef::new(crate::core::model::Kind::Secret, "a", "b");
    let made = || Made { epoch: 0, options: 1, objects: vec![(reference.clone(), 7)], tokens: Vec::new() };
    let world = |version, epoch, follows| Counted { version, epoch, follows, asked: Default::default() };

    let (mut entry, same) = (made(), world(7, 3, true));
    assert!((0..3).all(|_| entry.objects_hold(&same)));
    assert_eq!(same.asked.get(), 1);
    assert!(!entry.objects_hold(&world(8, 4, true)), "another epoch, another version");

    // What does not follow the epoch may change within it.
    let mut entry = made();
    assert!(entry.objects_hold(&world(7, 3, false)));
    assert!(!entry.objects_hold(&world(8, 3, false)));

    // Without an epoch everything is asked for.
    let mut entry = made();
    assert!(entry.objects_hold(&world(7, 0, true)));
    assert!(!entry.objects_hold(&world(8, 0, true)));
}

/// One of a tenant whose manifest has so many bytes, about.
fn of_tenant(name: &str, bytes: usize) -> Arc<DaemonSet> {
    let value = json!({
        "metadata": {"namespace": "a", "name": name},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"automountServiceAccountToken": false, "containers": [
                {"name": "c", "image": "i:1", "args": ["x".repeat(bytes / 2)]},
            ]},
        }}
    });
    Arc::new(validate::daemon_set(&value, Source::Api).unwrap())
}

#[test]
fn of_all_tenants_so_much_is_rendered_at_one_time_and_each_has_its_turn() {
    let daemon_sets: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| of_tenant(name, 1 << 20)).into();
    let trusted = options(crate::core::policy::PodRules::trusting());
    let options = options(crate::core::policy::PodRules::default());
    let inputs = |options| RenderCacheInputs { objects: &Nothing, tokens: &Nothing, options, options_version: 1 };
    let whole = |cache: &RenderCache, options| {
        let is_whole = |d: &Arc<DaemonSet>| {
            let rendering = cache.rendering(d, 0, (false, Data::Current), inputs(options));
            assert!(rendering.result.is_ok(), "{:?}", rendering.result);
            rendering.is_whole()
        };
        let names = daemon_sets.iter().filter(|d| is_whole(d)).map(|d| d.key.name.as_str());
        names.collect::<Vec<_>>().join("")
    };
    let mut cache = RenderCache::default();
    // Room for two, whatever is to be written; one at least.
    let most = 5 << 19;
    cache.begin(most);
    assert_eq!(whole(&cache, &options), "ab");
    let all: BTreeSet<ObjectKey> = daemon_sets.iter().map(|d| d.key.clone()).collect();
    let (mut turns, mut last) = (Vec::new(), None);
    for least in [most, most, 0, most] {
        cache.shrink();
        cache.begin(least);
        assert_eq!(whole(&cache, &options), "", "what was compared is enough");
        let turn = cache.turn(&all, last.as_ref());
        last = turn.last;
        cache.make_whole(turn.chosen);
        cache.begin(least);
        turns.push(whole(&cache, &options));
        cache.begin(least);
        assert_eq!(turns.last(), Some(&whole(&cache, &options)), "in the same pass it stays");
    }
    assert_eq!(turns, ["ab", "cd", "e", "ab"]);
    let mut cache = RenderCache::default();
    cache.begin(most);
    assert_eq!(whole(&cache, &trusted), "abcde", "trusted ones are not bounded");
}
