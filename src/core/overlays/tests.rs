use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::core::model::Source;
use crate::core::policy::Admission;
use crate::core::policy::Policy;
use crate::core::validate;

mod limits;

fn daemon_set(mode: &str) -> Arc<DaemonSet> {
    let value = json!({
        "metadata": {"namespace": "a", "name": "agent", "annotations": {OVERLAYS: "o"},
            "labels": {crate::core::model::MODE_LABEL: mode}},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "agent", "image": "x"}], "nodeSelector": {"on": "here"}},
        }},
    });
    Arc::new(validate::daemon_set(&value, Source::Api).expect("it is valid"))
}

fn list(text: &str) -> Value {
    json!({"data": {KEY: text}})
}

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split_terminator(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

fn on(node: &str, text: &str) -> Arc<Overlays> {
    with_facts(Lookup::Present(&list(text)), node, true, None)
}

fn with_facts(found: Lookup<'_>, node: &str, registered: bool, last: Option<&Overlays>) -> Arc<Overlays> {
    let (list, rules) = (ListSource::Api, &PodRules::default());
    let facts = OverlayFacts { found, list, rules, labels: &labels(node), registered, last };
    resolve(&daemon_set("static"), &facts).overlays.clone().expect("it has overlays")
}

fn resolve_on(daemon_set: &Arc<DaemonSet>, object: &Value, node: &str, list: ListSource) -> Arc<DaemonSet> {
    let (labels, rules) = (labels(node), PodRules::default());
    let facts = OverlayFacts {
        found: Lookup::Present(object),
        list,
        rules: &rules,
        labels: &labels,
        registered: true,
        last: None,
    };
    resolve(daemon_set, &facts)
}

const TWO: &str = "
- nodes: {matchLabels: {size: big}}
  patch: {spec: {containers: [{name: agent, image: big, resources: {requests: {cpu: '2'}}}]}}
- nodes: {matchExpressions: [{key: zone, operator: In, values: [b]}]}
  patch: {spec: {containers: [{name: agent, image: of-b}]}, metadata: {annotations: {zone: b}}}
";

#[test]
fn entries_apply_by_labels_and_later_ones_win() {
    let image = |node: &str| {
        let overlays = on(node, TWO);
        assert_eq!(overlays.known, KnownList::Read, "{node}");
        let template = overlays.template.clone();
        template.map(|template| template["spec"]["containers"][0]["image"].as_str().expect("an image").to_owned())
    };
    assert_eq!(image(""), None);
    assert_eq!(image("size=big").as_deref(), Some("big"));
    assert_eq!(image("zone=b").as_deref(), Some("of-b"));
    assert_eq!(image("size=big,zone=b").as_deref(), Some("of-b"));
    let both = on("size=big,zone=b", TWO).template.clone().expect("it is patched");
    assert_eq!(both["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    assert_eq!(both["metadata"], json!({"labels": {"app": "a"}, "annotations": {"zone": "b"}}));
    assert_eq!(on("size=big", "- nodes: {}\n  patch: {metadata: {annotations: {a: b}}}\n").patches.len(), 1);
}

#[test]
fn the_digest_is_of_what_applies() {
    let digest = |node: &str, text: &str| on(node, text).digest.clone();
    assert_eq!(digest("", TWO), "");
    assert_eq!(digest("size=big", TWO).len(), DIGEST);
    assert_ne!(digest("size=big", TWO), digest("zone=b", TWO));
    assert_eq!(digest("size=big,other=1", TWO), digest("size=big", TWO), "other labels are nothing to it");
    let reordered = TWO.replace("name: agent, image: big,", "image: big, name: agent,");
    assert_eq!(digest("size=big", &reordered), digest("size=big", TWO), "nor is the order of keys");
    let more = format!("{TWO}- nodes: {{matchLabels: {{x: z}}}}\n  patch: {{spec: {{hostNetwork: true}}}}\n");
    assert_eq!(digest("size=big", &more), digest("size=big", TWO), "nor are patches for other nodes");
    assert_ne!(digest("size=big,x=z", &more), digest("size=big", TWO));
}

#[test]
fn overlays_are_part_of_the_revision_and_of_no_identity() {
    let plain = daemon_set("static");
    let patched = resolve_on(&plain, &list(TWO), "size=big", ListSource::Api);
    let [plain_revision, revision] = [&plain, &patched].map(|of| rendering::Revision::of(of));
    assert_eq!(plain_revision.canonical, revision.canonical);
    let digest = patched.overlays.as_ref().map(|overlays| overlays.digest.clone()).expect("overlays");
    assert_eq!(revision.hash, format!("{}.{digest}", plain_revision.hash));
    assert_eq!(identity::template_hash(&revision.hash), plain_revision.hash);
    assert_eq!(identity::overlays_digest(&revision.hash), digest);
    assert!(plain.defines_the_same(&patched));
    assert_eq!(patched.pod_template()["spec"]["containers"][0]["image"], "big");
    assert!(Arc::ptr_eq(&patched, &as_in(&patched, &patched)));
    assert_eq!(as_in(&plain, &patched).overlays, patched.overlays);
}

#[test]
fn what_is_not_understood_is_refused_by_field() {
    let refused = |text: &str| -> Vec<String> {
        let overlays = on("size=big", text);
        assert_ne!(overlays.digest, "", "no instance is current by it");
        overlays.refused().iter().map(ToString::to_string).collect()
    };
    let all = "- nodes: {}\n  patch: ";
    for (text, wanted) in [
        ("nodes: {}", "ConfigMap a/o: overlays.yaml: must be one list of {nodes, patch}"),
        ("- [", "ConfigMap a/o: overlays.yaml: line "),
        ("- 1", "ConfigMap a/o: overlays.yaml[0]: must be a map of nodes and patch"),
        ("- patch: {}", "ConfigMap a/o: overlays.yaml[0].nodes: required, and must be a map"),
        (
            "- {nodes: {}, patch: {}, patches: {}}",
            "ConfigMap a/o: overlays.yaml[0].patches: an overlay cannot have this field",
        ),
        (
            "- {nodes: {matchLabel: {a: b}}, patch: {}}",
            "ConfigMap a/o: overlays.yaml[0].nodes.matchLabel: unknown field",
        ),
        (
            "- {nodes: {matchExpressions: [{key: a, operator: in, values: [b]}]}, patch: {}}",
            "ConfigMap a/o: overlays.yaml[0].nodes.matchExpressions[0].operator: must be In, NotIn",
        ),
        (&format!("{all}{{status: {{}}}}"), "ConfigMap a/o: overlays.yaml[0].patch.status: an overlay cannot"),
        (&format!("{all}{{metadata: null}}"), "ConfigMap a/o: overlays.yaml[0].patch.metadata: must be a map"),
        (&format!("{all}{{spec: null}}"), "ConfigMap a/o: overlays.yaml[0].patch.spec: must be a map"),
        (
            &format!("{all}{{metadata: {{labels: {{a: b}}}}}}"),
            "ConfigMap a/o: overlays.yaml[0].patch.metadata.labels: an overlay cannot have this field",
        ),
        (
            &format!("{all}{{spec: {{containers: [{{name: agent, imgae: z}}]}}}}"),
            "ConfigMap a/o: overlays.yaml[0].patch.spec.containers[0].imgae: unknown field",
        ),
        (
            &format!("{all}{{spec: {{containers: [{{name: other, image: z}}]}}}}"),
            "ConfigMap a/o: overlays.yaml[0].patch.spec.containers[0].name: the template has no container other in containers",
        ),
        (
            &format!("{all}{{spec: {{nodeSelector: {{on: there}}}}}}"),
            "ConfigMap a/o: overlays.yaml[0].patch.spec.nodeSelector: an overlay cannot change where the DaemonSet runs",
        ),
        (
            &format!("{all}{{spec: {{hostNetwork: true}}}}"),
            "ConfigMap a/o: overlays.yaml[0].patch.spec.hostNetwork: an overlay cannot change where the DaemonSet runs",
        ),
        (
            &format!("{all}{{spec: {{restartPolicy: Never}}}}"),
            "spec.template.spec.restartPolicy: must be Always in a DaemonSet, not Never, with overlays.yaml[0] of ConfigMap a/o",
        ),
        (&format!("{all}{{spec: {{hostNetwork: 1}}}}"), "ConfigMap a/o: overlays.yaml[0].patch.spec.hostNetwork: "),
    ] {
        let found = refused(text);
        assert!(found.len() == 1 && found[0].starts_with(wanted), "{text}: {found:?}");
    }
    let found = with_facts(Lookup::Present(&json!({"data": {"other": ""}})), "", true, None);
    assert_eq!(found.refused()[0].to_string(), "ConfigMap a/o: overlays.yaml: required");
    assert_eq!(on("", "[]").known, KnownList::Read, "an empty list is one");
    for nothing in ["", "# to do", "null", "---"] {
        assert_eq!(refused(nothing), ["ConfigMap a/o: overlays.yaml: has no list"], "{nothing:?}");
    }
    let ours = refused(&format!("{all}{{metadata: {{annotations: {{daemonlet.dev/after: a/b}}}}}}"));
    assert!(
        ours[0].starts_with("ConfigMap a/o: overlays.yaml[0].patch.metadata.annotations[daemonlet.dev/after]: "),
        "{ours:?}"
    );
    let bootstrap =
        resolve_on(&daemon_set("bootstrap"), &list(TWO), "", ListSource::Api).overlays.clone().expect("overlays");
    assert!(bootstrap.refused()[0].reason.starts_with("mode bootstrap has no overlays"));
}

#[test]
fn a_list_is_read_and_judged_before_the_node_has_its_labels() {
    let last = on("size=big", TWO);
    let again = |text: &str| with_facts(Lookup::Present(&list(text)), "", false, Some(&last)).known.clone();
    assert_eq!(again("[]"), KnownList::Last(ListGap::NodeLabels));
    let KnownList::Last(why) = again("- nodes: 1") else { panic!("what applied last is lost") };
    let why = why.to_string();
    assert!(why.starts_with("it is refused: ConfigMap a/o: overlays.yaml[0].nodes: "), "{why}");
}

#[test]
fn what_last_applied_stays_while_the_list_is_not_known() {
    let last = on("size=big", TWO);
    for (found, why) in [(Lookup::Unknown, ListGap::NotRead), (Lookup::Absent, ListGap::Absent)] {
        let again = with_facts(found, "", true, Some(&last));
        assert_eq!(again.known, KnownList::Last(why));
        assert_eq!((&again.digest, &again.template), (&last.digest, &last.template));
        let unconfirmed = found == Lookup::Unknown;
        let first = with_facts(found, "size=big", true, None);
        assert_eq!((&first.known, first.reported()), (&KnownList::Missing { unconfirmed }, None));
        assert_eq!(first.digest, UNKNOWN, "nothing that runs is current by it");
    }
    let list = list(TWO);
    let unread = with_facts(Lookup::Present(&list), "", false, Some(&last));
    assert_eq!(unread.digest, last.digest, "labels that have not been read are no evidence");
    assert_eq!(with_facts(Lookup::Present(&list), "", true, Some(&last)).digest, "", "a label was taken away");
    let of_another = Overlays { config_map: ObjectKey::new("a", "other"), ..Overlays::clone(&last) };
    assert_eq!(with_facts(Lookup::Unknown, "", true, Some(&of_another)).digest, UNKNOWN);
}

#[test]
fn policy_judges_the_patched_pod() {
    let namespace = json!({"metadata": {"name": "a"}});
    let violations = |patch: &str| -> String {
        let text = format!("- nodes: {{}}\n  patch: {patch}\n");
        let patched = resolve_on(&daemon_set("static"), &list(&text), "", ListSource::Api);
        match Policy::default().admit(&patched, Lookup::Present(&namespace)) {
            Admission::Refused(errors) => errors.iter().map(ToString::to_string).collect(),
            _ => String::new(),
        }
    };
    let folder =
        DaemonSet { source: Source::File { path: "/x.yaml".into() }, ..DaemonSet::clone(&daemon_set("static")) };
    let (list, folder) = (list("- nodes: {}\n  patch: {spec: {hostPID: true}}\n"), Arc::new(folder));
    let by = |source| resolve_on(&folder, &list, "", source);
    assert_eq!(by(ListSource::Folder).author(), Author::NodeOwner, "the node's owner wrote both");
    assert_eq!(by(ListSource::Api).author(), Author::ApiUser, "the API server has the list");
    assert_eq!(folder.author(), Author::NodeOwner, "nothing patches it");
    let admission = |source| Policy::default().admit(&by(source), Lookup::Present(&namespace));
    assert!(matches!(admission(ListSource::Folder), Admission::Allowed(_)));
    let Admission::Refused(errors) = admission(ListSource::Api) else { panic!("it is refused") };
    assert!(errors[0].to_string().contains("host namespaces"), "{errors:?}");
    assert_eq!(Policy::default().confines(&by(ListSource::Folder)), None);
    assert_eq!(Policy::default().confines(&by(ListSource::Api)), Some(&[][..]));
    let forgotten = by(ListSource::Folder).overlays.clone().expect("overlays");
    let (labels, rules) = (labels(""), PodRules::default());
    let facts = OverlayFacts {
        found: Lookup::Unknown,
        list: ListSource::Api,
        rules: &rules,
        labels: &labels,
        registered: true,
        last: Some(&forgotten),
    };
    assert_eq!(resolve(&folder, &facts).author(), Author::NodeOwner, "what last applied was of the folder");
    assert!(!violations("{metadata: {annotations: {a: b}}}").contains("host namespaces"));
    assert!(violations("{spec: {hostPID: true}}").contains("host namespaces (hostPID=true)"));
    assert!(violations("{spec: {volumes: [{name: w}]}}").contains("volumes[w].emptyDir: must have medium Memory"));
}

#[test]
fn a_list_that_is_refused_leaves_what_last_applied_in_force() {
    let last = on("size=big", TWO);
    let broken = |text: &str| with_facts(Lookup::Present(&list(text)), "size=big", true, Some(&last));
    let other_kind = "- nodes: {}\n  patch: {spec: {restartPolicy: Never}}\n";
    for (text, wanted) in [("- [", "overlays.yaml: line "), (other_kind, "spec.template.spec.restartPolicy: ")] {
        let again = broken(text);
        let KnownList::Last(why) = &again.known else { panic!("{again:?}") };
        let why = why.to_string();
        assert!(why.starts_with("it is refused: ") && why.contains(wanted), "{why}");
        assert_eq!((&again.digest, &again.template), (&last.digest, &last.template));
    }
    let other = Overlays { config_map: ObjectKey::new("a", "other"), ..Overlays::clone(&last) };
    let refused = with_facts(Lookup::Present(&list("- [")), "size=big", true, Some(&other));
    assert_eq!(refused.refused().len(), 1, "another list is no older one of this");
    // A new template to which neither can be applied.
    let mut renamed = DaemonSet::clone(&daemon_set("static"));
    renamed.template["spec"]["containers"][0]["name"] = json!("renamed");
    let (labels, rules, list) = (labels("size=big"), PodRules::default(), list("- ["));
    let facts = OverlayFacts {
        found: Lookup::Present(&list),
        list: ListSource::Api,
        rules: &rules,
        labels: &labels,
        registered: true,
        last: Some(&last),
    };
    let refused = resolve(&Arc::new(renamed), &facts).overlays.clone().expect("overlays");
    assert!(refused.refused()[0].field.contains("overlays.yaml"), "{refused:?}");
}

#[test]
fn a_mistyped_annotation_takes_no_patch_away() {
    let mut mistyped = DaemonSet::clone(&daemon_set("static"));
    mistyped.annotations.insert(OVERLAYS.to_owned(), "o_".to_owned());
    let mistyped = Arc::new(mistyped);
    let (last, labels, rules) = (on("size=big", TWO), labels("size=big"), PodRules::default());
    let resolved = |last| {
        let (found, list, rules, labels) = (Lookup::Absent, ListSource::Api, &rules, &labels);
        resolve(&mistyped, &OverlayFacts { found, list, rules, labels, registered: true, last })
    };
    let again = resolved(Some(&last)).overlays.clone().expect("overlays");
    assert_eq!((&again.digest, &again.template), (&last.digest, &last.template));
    assert!(again.to_string().contains("\"o_\" is not the name of a ConfigMap"), "{again}");
    let refused = resolved(None).overlays.clone().expect("overlays");
    assert_eq!(refused.refused()[0].field, "metadata.annotations[daemonlet.dev/overlays]");
    assert!(each(&mistyped, Lookup::Absent).is_err());
}

#[test]
fn daemon_sets_of_one_list_share_its_patches_and_another_text_is_read() {
    let (last_list, labels, rules) = (LastList::default(), labels("size=big"), PodRules::default());
    let patches = |object: &Value, list: ListSource| {
        let (found, labels, rules) = (Lookup::Present(object), &labels, &rules);
        let facts = OverlayFacts { found, list, rules, labels, registered: true, last: None };
        let of_list = resolve_after(&daemon_set("static"), &facts, &last_list).overlays.clone().expect("overlays");
        assert_eq!(of_list, resolve(&daemon_set("static"), &facts).overlays.clone().expect("overlays"));
        of_list.patches.clone()
    };
    let (one, same) = (patches(&list(TWO), ListSource::Api), patches(&list(TWO), ListSource::Api));
    assert!(one.len() == 1 && Arc::ptr_eq(&one[0].patch, &same[0].patch));
    let other = patches(&list(&TWO.replace("image: big", "image: bigger")), ListSource::Api);
    assert_ne!(other, one);
    assert_eq!(patches(&list("- ["), ListSource::Api), []);
    assert_eq!(patches(&json!({}), ListSource::Api), []);
    assert_eq!(patches(&list(TWO), ListSource::Api), one);
}

#[test]
fn each_patch_is_applied_on_top_of_those_before_it() {
    let text = "
- {nodes: {}, patch: {spec: {volumes: [{name: v, emptyDir: {}}]}}}
- {nodes: {}, patch: {spec: {containers: [{name: agent, volumeMounts: [{name: v, mountPath: /v}]}]}}}
";
    let object = list(text);
    let all = each(&daemon_set("static"), Lookup::Present(&object)).expect("it can be applied");
    assert!(all.iter().all(|patched| patched.overlays.as_ref().is_some_and(|overlays| overlays.refused().is_empty())));
    let mounts = |d: &Arc<DaemonSet>| d.pod_template()["spec"]["containers"][0]["volumeMounts"][0]["name"] == "v";
    assert!(all.iter().any(mounts), "the second needs the first");
    let refused = list("- {nodes: {}, patch: {spec: {containers: [{name: agnet, image: z}]}}}");
    let errors = each(&daemon_set("static"), Lookup::Present(&refused)).expect_err("it is refused");
    assert!(errors[0].reason.contains("no container agnet"), "{errors:?}");
}

#[test]
fn why_a_list_is_not_known_is_read_in_words_too() {
    let read = |recorded| serde_json::from_value::<KnownList>(json!({"last": recorded})).expect("it is read");
    for gap in [ListGap::NodeLabels, ListGap::Absent, ListGap::NotRead] {
        let known = KnownList::Last(gap.clone());
        assert_eq!(serde_json::from_value::<KnownList>(json!(known)).expect("its own form"), known);
        assert_eq!(read(gap.to_string()), known);
    }
    assert_eq!(read("it is refused: x".to_owned()), KnownList::Last(ListGap::NotRead));
}
