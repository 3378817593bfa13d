use serde_json::json;

use super::*;
use crate::core::model::ObjectKey;
use crate::core::policy::PodRules;
use crate::core::record::DaemonRecord;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::ScopeState;

/// What nothing is known of, to be changed by each test.
#[derive(Default)]
struct NoObjects {
    nothing: Versioned,
    none: BTreeSet<ObjectRef>,
    superseded: BTreeMap<ObjectRef, String>,
    policy: Policy,
}

impl NoObjects {
    /// For a daemon that runs or ran here.
    fn objects(&self) -> Objects<'_> {
        Objects {
            api: None,
            folders: &self.nothing,
            remembered: &self.nothing,
            unread: &self.none,
            absent: &self.none,
            superseded: &self.superseded,
            policy: &self.policy,
            rollback_data: None,
            live: true,
            has_run: true,
            had_all: false,
            is_in_doubt: false,
            is_closed: false,
            are_folders_unread: false,
        }
    }
}

#[test]
fn what_the_api_server_refuses_is_noted_at_each_daemon_that_names_it() {
    let object = |name: &str| ObjectRef::new(Kind::ConfigMap, "a", name);
    let naming = |names: &[&str]| {
        let plan = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", "d"), 1));
        DaemonPlan { references: names.iter().map(|name| object(name)).collect(), ..plan }
    };
    let mut api = Snapshot::default();
    for (name, kind) in [("closed", FailureKind::Forbidden), ("later", FailureKind::Timeout)] {
        let error = Some((ApiFailure::new(kind, "no"), Timestamp::from_secs(0)));
        api.scopes.insert(Scope::Object(object(name)), ScopeState { error, ..ScopeState::default() });
    }
    let daemons = vec![naming(&["later", "open"]), naming(&["closed", "open"])];
    let mut plan = Plan { daemons, ..Plan::default() };
    note_refused(Some(&api), &mut plan);
    let notes = plan.daemons.iter().map(|daemon| daemon.summary.notes.iter().map(ToString::to_string).collect());
    let note = "ConfigMap a/closed: the agent cannot read it: no; what runs keeps the data that \
                it has";
    assert_eq!(notes.collect::<Vec<Vec<_>>>(), [vec![], vec![note.to_owned()]]);
}

#[test]
fn a_folders_object_does_not_take_the_place_of_what_has_no_room() {
    let named = ObjectRef::new(Kind::ConfigMap, "a", "c");
    let policy = Policy::new(None, "", vec!["a".to_owned()]).unwrap().with_rules(PodRules::trusting());
    let known = NoObjects { policy, ..NoObjects::default() };
    let entry = |text: &str| Entry { version: 1, value: Arc::new(json!({"data": {"k": text}})) };
    let folders = Versioned::from([(named.clone(), entry("folder"))]);
    let remembered = Versioned::from([(named.clone(), entry("remembered"))]);
    let (silent, mut full, mut without) = (Snapshot::default(), Snapshot::default(), Snapshot::default());
    full.scopes.insert(Scope::Object(named.clone()), ScopeState { lists: 1, ..ScopeState::default() });
    without.scopes.clone_from(&full.scopes);
    full.no_room(&named);
    let (none, unread) = (BTreeSet::new(), BTreeSet::from([named.clone()]));
    for (api, remembered, unread, expected) in [
        (Some(&full), &Versioned::new(), &none, None),
        (Some(&full), &remembered, &none, Some("remembered")),
        (Some(&silent), &Versioned::new(), &unread, None),
        (Some(&silent), &Versioned::new(), &none, Some("folder")),
        (Some(&without), &Versioned::new(), &unread, Some("folder")),
        (None, &Versioned::new(), &unread, Some("folder")),
    ] {
        let objects = Objects { api, folders: &folders, remembered, unread, ..known.objects() };
        let found = match objects.lookup(&named) {
            Lookup::Present(value) => text_at(value, &["data", "k"]),
            Lookup::Unknown => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{api:?}");
    }
}

#[test]
fn what_is_sealed_may_be_newer_than_a_folders_secret_for_what_runs_with_it() {
    let secret = ObjectRef::new(Kind::Secret, "kube-system", "s");
    let entry = |annotations: Value| {
        let value = json!({"metadata": {"annotations": annotations}, "data": {"a": "Vj0x"}});
        Entry { version: 1, value: Arc::new(value) }
    };
    let plain = Versioned::from([(secret.clone(), entry(json!({})))]);
    let overriding = Versioned::from([(secret.clone(), entry(json!({OVERRIDE_ANNOTATION: "true"})))]);
    let (silent, known) = (Snapshot::default(), NoObjects::default());
    let sealed = Objects { api: Some(&silent), folders: &plain, live: false, is_closed: true, ..known.objects() };
    assert_eq!(sealed.lookup(&secret), Lookup::Unknown);
    for (objects, why) in [
        (Objects { has_run: false, ..sealed }, "nothing ran with another one"),
        (Objects { is_closed: false, ..sealed }, "nothing is remembered"),
        (Objects { api: None, ..sealed }, "no API server had another one"),
        (Objects { folders: &overriding, ..sealed }, "the node's owner says that it counts"),
    ] {
        assert!(matches!(objects.lookup(&secret), Lookup::Present(_)), "{why}");
    }
}

#[test]
fn what_a_folder_may_have_and_cannot_be_read_is_unknown_and_not_absent() {
    let named = ObjectRef::new(Kind::ConfigMap, "a", "c");
    let known = NoObjects::default();
    let lookup = |are_folders_unread| {
        let objects = Objects { are_folders_unread, ..known.objects() };
        matches!(objects.lookup(&named), Lookup::Absent)
    };
    assert_eq!([true, false].map(lookup), [false, true]);
}

#[test]
fn what_the_api_server_last_said_to_be_gone_is_absent_until_it_says_something_else() {
    let named = ObjectRef::new(Kind::ConfigMap, "a", "c");
    let entry = || Versioned::from([(named.clone(), Entry { version: 1, value: Arc::new(json!({})) })]);
    let (silent, full, known) = (Snapshot::default(), entry(), NoObjects::default());
    let (mut shows, absent, none) = (Snapshot::default(), BTreeSet::from([named.clone()]), BTreeSet::new());
    shows.objects.extend(entry());
    let gone = Objects { api: Some(&silent), absent: &absent, live: false, ..known.objects() };
    let unknown = Objects { absent: &none, ..gone };
    let word = |objects: Objects<'_>| match objects.lookup(&named) {
        Lookup::Absent => "absent",
        Lookup::Deleted(_) => "deleted",
        Lookup::Present(_) => "present",
        Lookup::Unknown if objects.was_absent(&named) => "not had",
        Lookup::Unknown if objects.may_have_had(&named) => "in doubt",
        Lookup::Unknown => "unknown",
    };
    for (objects, expected) in [
        (gone, "absent"),
        (Objects { folders: &full, ..gone }, "present"),
        (Objects { api: Some(&shows), ..gone }, "present"),
        (Objects { remembered: &full, ..gone }, "deleted"),
        (Objects { unread: &absent, ..gone }, "unknown"),
        (unknown, "unknown"),
        (Objects { had_all: true, ..unknown }, "not had"),
        (Objects { is_in_doubt: true, ..unknown }, "in doubt"),
        (Objects { is_in_doubt: true, ..gone }, "absent"),
        (Objects { is_in_doubt: true, folders: &full, ..unknown }, "present"),
        (Objects { had_all: true, unread: &absent, ..unknown }, "unknown"),
        (Objects { had_all: true, remembered: &full, ..unknown }, "present"),
    ] {
        assert_eq!(word(objects), expected);
    }
    assert_eq!(
        gone.version(&named),
        Objects { api: None, ..unknown }.version(&named),
        "nothing changes by its silence"
    );
}

#[test]
fn where_a_folder_cannot_be_read_a_namespace_that_is_not_trusted_says_nothing_of_what_it_may_have() {
    let named = ObjectRef::new(Kind::ConfigMap, "a", "c");
    let shown = Versioned::from([(named.clone(), Entry { version: 1, value: Arc::new(json!({})) })]);
    let policy = |trusted: &[&str]| {
        let trusted_namespaces = trusted.iter().map(|&namespace| namespace.to_owned()).collect();
        let rules = PodRules { trusted_namespaces, ..PodRules::default() };
        Policy::new(None, "", vec!["a".to_owned()]).unwrap().with_rules(rules)
    };
    let mut api = Snapshot::default();
    api.objects.extend(shown);
    let is_known = |trusted: &[&str], are_folders_unread| {
        let known = NoObjects { policy: policy(trusted), ..NoObjects::default() };
        let objects = Objects { api: Some(&api), are_folders_unread, ..known.objects() };
        matches!(objects.lookup(&named), Lookup::Present(_))
    };
    assert_eq!([is_known(&[], true), is_known(&[], false), is_known(&["a"], true)], [false, true, true]);
}

#[test]
fn what_is_in_no_namespace_and_namespaces_need_no_trust() {
    let policy = Policy::new(None, "", vec!["*".to_owned()]).unwrap();
    let speaks = |kind, namespace, name| api_may_speak(&policy, &ObjectRef::new(kind, namespace, name));
    assert!(speaks(Kind::Namespace, "", "a") && speaks(Kind::PriorityClass, "", "a"));
    for kind in [Kind::ConfigMap, Kind::Secret, Kind::ServiceAccount] {
        assert!(speaks(kind, "kube-system", "a") && !speaks(kind, "a", "a"), "{kind:?}");
    }
}
