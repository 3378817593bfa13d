use super::*;
use crate::core::time::Timestamp;
use crate::core::time::at;
use crate::core::time::ms;

const NOW: Timestamp = at(1_000_000);

fn template_of(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn revision(name: &str, number: i64, image: &str) -> RevisionFact {
    let data = data(&template_of(image));
    RevisionFact {
        name: name.into(),
        number,
        hash: RevisionFact::hash_of(&data),
        data: digest(&data),
        label: Some(name.into()),
        owned: true,
        created: at(0),
        halted: None,
        released: None,
        released_before: None,
        step: None,
        retried: BTreeSet::new(),
        broken: BrokenNodes::default(),
    }
}

fn planned(
    image: &str,
    known: &[RevisionFact],
    limit: usize,
    in_use: &[&str],
    collisions: Option<i32>,
) -> RevisionPlan {
    let others = &BTreeMap::new();
    let in_use = in_use.iter().map(|s| (*s).to_owned()).collect();
    let template = Template::of(&template_of(image));
    let wanted = Wanted { name: "net", template: &template, collisions, limit, others, in_use: &in_use, now: NOW };
    plan(&wanted, known)
}

#[test]
fn data_is_written_as_go_writes_it() {
    let template = json!({"spec": {"containers": [{"name": "c", "args": ["a<b && c>d \u{2028}\u{e9}\"\\"]}]}});
    assert_eq!(
        bytes(&data(&template)),
        r#"{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"args":["a\u003cb \u0026\u0026 c\u003ed \u2028é\"\\"],"name":"c"}]}}}}"#
    );
    assert_eq!(super::template(&data(&template)), Some(template));
}

#[test]
fn the_first_revision_is_number_one_and_the_next_one_more() {
    let first = planned("a", &[], 10, &[], None);
    let label = hash(&template_of("a"), None);
    assert_eq!(
        first.writes,
        [RevisionWrite::Create {
            name: format!("net-{label}"),
            label,
            number: 1,
            data: data(&template_of("a")),
            halted: None
        }]
    );
    let next = planned("b", &[revision("net-a", 4, "a")], 10, &[], None);
    assert!(matches!(&next.writes[..], [RevisionWrite::Create { number: 5, .. }]), "{next:?}");
}

#[test]
fn a_revision_that_upstream_named_is_taken_as_it_is() {
    let known = [revision("net-5f7c9d", 3, "a"), revision("net-66aa", 2, "b")];
    assert_eq!(planned("a", &known, 10, &[], None).writes, []);
}

#[test]
fn a_template_that_returns_gets_the_highest_number() {
    let known = [revision("net-a", 1, "a"), revision("net-b", 2, "b")];
    let history = planned("a", &known, 10, &[], None);
    assert_eq!(history.writes, [RevisionWrite::Renumber { name: "net-a".into(), number: 3 }]);
    assert_eq!(history.current.as_deref(), Some("net-a"));
}

#[test]
fn orphans_are_adopted_and_labelled() {
    let mut orphan = revision("net-a", 1, "a");
    (orphan.owned, orphan.label) = (false, None);
    let name = || "net-a".to_owned();
    assert_eq!(
        planned("a", &[orphan], 10, &[], None).writes,
        [RevisionWrite::Adopt { name: name() }, RevisionWrite::Label { name: name() }]
    );
}

#[test]
fn duplicates_are_merged_when_the_younger_is_old_enough() {
    let mut known = [revision("net-a", 1, "a"), revision("net-hand", 2, "a")];
    known[1].created = NOW - MERGE_AFTER + ms(1);
    let history = planned("a", &known, 10, &[], None);
    assert_eq!((history.writes.len(), history.look_again), (0, Some(NOW + ms(1))));
    known[1].created = NOW - MERGE_AFTER;
    let history = planned("a", &known, 10, &[], None);
    assert_eq!(history.writes, [RevisionWrite::Delete { name: "net-a".into() }]);
    assert_eq!(history.current.as_deref(), Some("net-hand"), "the highest number stays");
}

#[test]
fn a_deleted_old_revision_is_not_made_again() {
    assert_eq!(planned("b", &[revision("net-b", 2, "b")], 10, &["hash-of-a"], None).writes, []);
}

#[test]
fn the_oldest_go_beyond_the_limit_and_what_runs_stays() {
    let known: Vec<RevisionFact> = (1..=5).map(|i| revision(&format!("net-{i}"), i, &i.to_string())).collect();
    let delete = |i: i64| RevisionWrite::Delete { name: format!("net-{i}") };
    assert_eq!(planned("5", &known, 2, &[], None).writes, [delete(1), delete(2)]);
    let used = known[0].hash.clone();
    assert_eq!(planned("5", &known, 2, &[&used, "net-2"], None).writes, [delete(3), delete(4)]);
    assert_eq!(planned("5", &known, 0, &[], None).writes.len(), 4);
}

#[test]
fn a_name_that_other_data_has_counts_a_collision_and_the_count_makes_another_name() {
    let name = format!("net-{}", hash(&template_of("a"), None));
    let known = [revision(&name, 1, "other")];
    assert_eq!(planned("a", &known, 10, &[], None).writes, [RevisionWrite::Collision]);
    let history = planned("a", &known, 10, &[], Some(1));
    let [RevisionWrite::Create { name: other, label, .. }] = &history.writes[..] else { panic!("{history:?}") };
    assert_ne!(*other, name);
    assert_eq!(*label, hash(&template_of("a"), None), "pods have it, too");
}

#[test]
fn nothing_is_pruned_while_the_current_one_gets_its_number() {
    let known = [revision("net-1", 1, "a"), revision("net-2", 2, "b"), revision("net-3", 3, "c")];
    let renumbered = planned("a", &known, 0, &[], None).writes;
    assert_eq!(renumbered, [RevisionWrite::Renumber { name: "net-1".into(), number: 4 }]);
    let known = [revision("net-1", 4, "a"), revision("net-2", 2, "b"), revision("net-3", 3, "c")];
    assert_eq!(planned("a", &known, 0, &[], None).writes.len(), 2);
}

#[test]
fn the_name_of_a_revision_begins_with_as_much_of_a_long_name_as_upstream_takes() {
    let template = Template::of(&template_of("a"));
    let long = "n".repeat(253);
    let of = |name: &str, others: &BTreeMap<&str, RevisionHolder>| {
        let in_use = &BTreeSet::new();
        plan(&Wanted { name, template: &template, collisions: None, limit: 10, others, in_use, now: NOW }, &[])
    };
    let hash = hash(&template_of("a"), None);
    for (name, prefix) in [("net", "net"), (&long[..223], &long[..223]), (&long, &long[..223])] {
        let planned = of(name, &BTreeMap::new());
        let [RevisionWrite::Create { name, .. }] = planned.writes.as_slice() else { panic!("{:?}", planned.writes) };
        assert_eq!(*name, format!("{prefix}-{hash}"));
        assert!(name.len() <= 253);
    }
    let taken = format!("{}-{hash}", &long[..223]);
    assert_eq!(
        of(&long, &BTreeMap::from([(taken.as_str(), RevisionHolder::Other)])).writes,
        [RevisionWrite::Collision]
    );
}
