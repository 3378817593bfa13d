use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::json;

use super::volume_name;
use super::waiting_key;
use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::render::Missing;
use crate::core::render::RenderedPod;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;

/// A container whose variable `V` is `value`, from the key `k` of the Secret `s`.
fn fixture(value: &[u8]) -> Fixture {
    let variable = json!({"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let mut fixture = Fixture::container(json!({"env": [variable]}));
    fixture.put(Kind::Secret, "s", json!({"data": {"k": STANDARD.encode(value)}}));
    fixture
}

/// The mounts of the first container but for the token's.
fn mount_paths(fixture: &Fixture) -> Vec<String> {
    let mounts = spec(&fixture.rendered(), "/containers/0/volumeMounts").as_array().cloned().unwrap();
    let paths = mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap().to_owned());
    paths.filter(|path| !path.contains("serviceaccount")).collect()
}

#[test]
fn the_file_is_mounted_where_nothing_else_is() {
    let variable = json!({"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let mounts = json!([
        {"name": "a", "mountPath": "/.daemonlet-env/"},
        {"name": "a", "mountPath": "/.daemonlet-env-2"},
    ]);
    let mut fixture = Fixture::container(json!({"env": [variable], "volumeMounts": mounts}));
    fixture.daemon_set.template["spec"]["volumes"] = json!([{"name": "a", "emptyDir": {}}]);
    fixture.put(Kind::Secret, "s", json!({"data": {"k": "dg=="}}));
    assert_eq!(mount_paths(&fixture), ["/.daemonlet-env/", "/.daemonlet-env-2", "/.daemonlet-env-3"]);
}

fn variable(fixture: &Fixture) -> Value {
    spec(&fixture.rendered(), "/containers/0/env/0").clone()
}

/// A port of upstream's `ParseEnv`: the value of `key`, or `None` for any error; lines as Go's scanner cuts them.
fn parse(content: &str, key: &str) -> Option<String> {
    let mut lines = content.strip_suffix('\n').unwrap_or(content).split('\n').map(|line| {
        assert!(line.len() < 64 * 1024, "the scanner fails");
        line.strip_suffix('\r').unwrap_or(line)
    });
    while let Some(line) = lines.next() {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=')?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return None;
        }
        let mut rest = value.strip_prefix('\'')?;
        let mut text = String::new();
        let after = loop {
            match rest.split_once('\'') {
                Some((last, after)) => {
                    text.push_str(last);
                    break after;
                }
                None => {
                    text.push_str(rest);
                    text.push('\n');
                    rest = lines.next()?;
                }
            }
        };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return None;
        }
        if name == key {
            return Some(text);
        }
    }
    Some(String::new())
}

#[test]
fn an_empty_value_is_no_secret() {
    let pod = fixture(b"").rendered();
    assert_eq!(spec(&pod, "/containers/0/env/0"), &json!({"name": "V", "value": ""}));
    assert!(pod.volumes.is_empty());
}

#[test]
fn values_that_the_parser_cannot_carry_are_refused_by_name_and_key() {
    let long = "x".repeat(64 * 1024);
    let cases = [
        ("don't tell", "whose value has a single quote"),
        ("tell\r\nnobody", "whose value has a carriage return before a line break"),
        (long.as_str(), "whose value has a line of more than 64 KiB"),
        ("tell\0", "which is not text"),
    ];
    for (value, reason) in cases {
        let refused = fixture(value.as_bytes()).refused();
        let expected = format!(
            "spec.template.spec.containers[0].env[0]: a static pod cannot have this variable from the key \"k\" of \
             Secret kube-system/s, {reason}"
        );
        assert_eq!(refused, [expected]);
    }
    assert!(fixture(&[0xff]).refused()[0].ends_with("which is not text"));
}

#[test]
fn an_older_kubelet_is_named_as_the_reason() {
    let mut fixture = fixture(b"secret");
    fixture.options.kubelet_version = Some((1, 34));
    assert!(fixture.refused()[0].ends_with("which needs a kubelet of 1.35 or later"));
    let hint = |fixture: &Fixture| fixture.render().unwrap_err().errors[0].hint.clone().unwrap();
    let of_kubelet = hint(&fixture);
    assert!(of_kubelet.starts_with("use a kubelet of 1.35 or later, ") && of_kubelet.contains("inline-secret-env"));
    assert!(hint(&self::fixture(b"it's")).starts_with("change the value, or "));
}

#[test]
fn the_owner_of_the_node_may_allow_inlining_of_what_no_file_carries() {
    let mut it = fixture(b"it's $(V)");
    it.options.inline_secret_env = true;
    assert_eq!(variable(&it), json!({"name": "V", "value": "it's $$(V)"}));
    let mut carried = fixture(b"plain");
    carried.options.inline_secret_env = true;
    assert!(variable(&carried).get("value").is_none());
    carried.options.kubelet_version = Some((1, 30));
    assert_eq!(variable(&carried), json!({"name": "V", "value": "plain"}));
    let mut binary = fixture(&[0xff]);
    binary.options.inline_secret_env = true;
    assert_eq!(binary.refused().len(), 1);
}

#[test]
fn an_unknown_kubelet_is_waited_for_only_where_it_matters() {
    let mut fixture = fixture(b"secret");
    fixture.options.kubelet_version = None;
    assert_eq!(waiting(&fixture.rendered()), ["KubeletVersion /Node-1"]);
    assert_eq!(files(&fixture.rendered(), "daemonlet-env-main")[0].1, "V='secret'\n");
    fixture.put(Kind::Secret, "s", json!({"data": {"k": ""}}));
    assert!(waiting(&fixture.rendered()).is_empty());
}

#[test]
fn a_secret_that_is_not_there_still_shows_where_its_value_will_be() {
    let mut fixture = fixture(b"");
    fixture.objects.objects.retain(|reference, _| reference.kind != Kind::Secret);
    fixture.options.kubelet_version = None;
    assert_eq!(waiting(&fixture.rendered()), ["KubeletVersion /Node-1", "Secret kube-system/s"]);
    assert_eq!(variable(&fixture)["valueFrom"]["fileKeyRef"]["key"], "V");
    assert_eq!(files(&fixture.rendered(), "daemonlet-env-main")[0].1, "");
    assert!(!fixture.rendered().can_start());
}

#[test]
fn a_container_that_lacks_a_value_names_it_to_the_kubelet_and_the_others_are_as_ever() {
    let of_secret =
        |name: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}});
    let of_map = json!({"name": "M", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "m"}}});
    let mut fixture = Fixture::container(json!({"env": [of_secret("A", "a"), of_secret("B", "b.b"), of_map]}));
    let containers = fixture.daemon_set.template["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "other", "image": "i", "env": [of_secret("A", "a")]}));
    fixture.put(Kind::Secret, "s", json!({"data": {"a": "MQ=="}}));
    let key = |pod: &RenderedPod| spec(pod, "/containers/0/env/0/valueFrom/fileKeyRef/key").clone();
    let waiting = |pod: &RenderedPod| pod.pod["metadata"]["annotations"]["daemonlet.dev/waiting-containers"].clone();

    let pod = fixture.rendered();
    assert_eq!(key(&pod), "waits-for-key-b.b-of-Secret-kube-system.s");
    assert_eq!(names(&pod, 0)[..2], ["DAEMONLET_WAITS_FOR", "A"], "nothing that is missing is left out silently");
    assert_eq!(files(&pod, "daemonlet-env-main")[0].1, "A='1'\n");
    assert_eq!(names(&pod, 1)[..1], ["A"]);
    assert_eq!((pod.can_start(), waiting(&pod)), (true, json!("main")));
    assert_eq!(pod.held.len(), 1);

    fixture.put(Kind::Secret, "s", json!({"data": {"a": "MQ==", "b.b": "Mg=="}}));
    assert_eq!(key(&fixture.rendered()), "waits-for-ConfigMap-kube-system.c");
    fixture.put(Kind::ConfigMap, "c", json!({"data": {"m": "3"}}));
    let pod = fixture.rendered();
    assert_eq!(names(&pod, 0)[..3], ["A", "B", "M"]);
    assert_eq!((pod.held.len(), waiting(&pod)), (0, Value::Null));
}

#[test]
fn the_whole_pod_waits_for_an_init_container_and_on_an_older_kubelet() {
    let from = json!([{"configMapRef": {"name": "c"}}]);
    let mut fixture = Fixture::container(json!({"envFrom": from}));
    assert!(fixture.rendered().can_start());
    assert_eq!(names(&fixture.rendered(), 0)[..1], ["DAEMONLET_WAITS_FOR"]);
    fixture.options.kubelet_version = Some((1, 34));
    assert!(!fixture.rendered().can_start());
    assert!(!names(&fixture.rendered(), 0).contains(&"DAEMONLET_WAITS_FOR".to_owned()));
    fixture.options.kubelet_version = Some((1, 35));
    fixture.daemon_set.template["spec"]["initContainers"] = json!([{"name": "init", "image": "i", "envFrom": from}]);
    assert!(!fixture.rendered().can_start());
}

#[test]
fn the_key_of_what_is_missing_is_one_that_every_kubelet_accepts() {
    let missing = |key: &str| Missing {
        kind: "Secret".to_owned(),
        namespace: "a-b".to_owned(),
        name: "c.d".to_owned(),
        key: key.to_owned(),
    };
    assert_eq!(waiting_key(&missing("")), "waits-for-Secret-a-b.c.d");
    assert_eq!(waiting_key(&missing("é =")), "waits-for-key-___-of-Secret-a-b.c.d");
    assert_eq!(waiting_key(&missing(&"k".repeat(300))).len(), 250);
}

/// The names of a container's variables, in order.
fn names(pod: &RenderedPod, container: usize) -> Vec<String> {
    let env = spec(pod, &format!("/containers/{container}/env")).as_array().cloned().unwrap();
    env.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
}

/// The keys of the variables of the first container that are in its file.
fn keys(fixture: &Fixture) -> Vec<String> {
    let env = spec(&fixture.rendered(), "/containers/0/env").as_array().cloned().unwrap();
    let keys = env.iter().filter_map(|variable| variable.text_at(["valueFrom", "fileKeyRef", "key"]));
    keys.map(str::to_owned).collect()
}

#[test]
fn keys_are_unique_and_safe_in_the_file() {
    let of_secret =
        |name: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}});
    let reference = json!({"name": "R", "value": "$(a-b)"});
    let own = json!([of_secret("a_b", "a-b"), reference, of_secret("a-b", "1"), of_secret("a_b", "1")]);
    let mut fixture = Fixture::container(json!({"envFrom": [{"secretRef": {"name": "s"}}], "env": own}));
    let data = json!({"a.b": "MQ==", "a-b": "Mg==", "1": "Mw=="});
    fixture.put(Kind::Secret, "s", json!({"data": data}));
    let lines = "1='3'\na%2db:from='2'\na.b='1'\na_b='2'\na%2db='3'\na_b:2='3'\n";
    assert_eq!(files(&fixture.rendered(), "daemonlet-env-main")[0].1, lines);
    assert_eq!(keys(&fixture), ["1", "a%2db:from", "a.b", "a_b", "a%2db", "a_b:2"]);
    assert_eq!(parse(lines, "a.b").as_deref(), Some("1"));
}

#[test]
fn a_key_that_comes_gives_no_other_variable_another_key() {
    let sources = json!([{"secretRef": {"name": "s", "optional": true}}, {"secretRef": {"name": "t"}}]);
    let own = json!([
        {"name": "OWN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "own", "optional": true}}},
        {"name": "R", "value": "$(OWN)"},
        {"name": "OWN", "valueFrom": {"secretKeyRef": {"name": "t", "key": "a.b"}}},
    ]);
    let mut fixture = Fixture::container(json!({"envFrom": sources, "env": own}));
    fixture.put(Kind::Secret, "t", json!({"data": {"a.b": "MQ=="}}));
    let before = keys(&fixture);
    assert_eq!(before, ["a.b", "OWN:2"]);
    let more: serde_json::Map<String, Value> =
        ["a-b", "a_b", "a b", "OWN", "own", "OWN_2"].map(|key| (key.to_owned(), json!("Mg=="))).into_iter().collect();
    fixture.put(Kind::Secret, "s", json!({"data": more}));
    let after = keys(&fixture);
    assert!(before.iter().all(|key| after.contains(key)), "{after:?}");
    let content = files(&fixture.rendered(), "daemonlet-env-main")[0].1.clone();
    assert!(before.iter().all(|key| parse(&content, key).as_deref() == Some("1")), "{content}");
    assert_eq!(after.iter().collect::<BTreeSet<_>>().len(), after.len());
}

#[test]
fn every_container_has_a_file_of_its_own() {
    let env = |key: &str| json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}}]);
    let mut fixture = Fixture::container(json!({"env": env("a")}));
    fixture.daemon_set.template["spec"]["initContainers"] = json!([{"name": "init", "image": "i", "env": env("b")}]);
    fixture.put(Kind::Secret, "s", json!({"data": {"a": "MQ==", "b": "Mg=="}}));
    let pod = fixture.rendered();
    assert_eq!(files(&pod, "daemonlet-env-init")[0].1, "V='2'\n");
    assert_eq!(files(&pod, "daemonlet-env-main")[0].1, "V='1'\n");
}

#[test]
fn volume_names_are_short_and_free() {
    let long = "a".repeat(63);
    let taken = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let (none, one) = (BTreeSet::new(), taken(&["daemonlet-env-main"]));
    assert_eq!(volume_name("main", &none), "daemonlet-env-main");
    for name in
        [volume_name("main", &one), volume_name(&long, &none), volume_name(&format!("{}-b", "a".repeat(39)), &none)]
    {
        assert!(name.len() <= 63 && name.starts_with("daemonlet-env-"), "{name}");
    }
    let first = volume_name("main", &one);
    let second = volume_name("main", &taken(&["daemonlet-env-main", &first]));
    assert_ne!(first, second);
}

proptest! {
    #[test]
    fn the_parser_gives_back_what_the_file_carries(
        before in "[a\r\n#=\" \t$]{1,12}",
        value in "[a\r\n#=\" \t$é]{0,12}|\\PC{0,12}",
    ) {
        let own = |name: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": name}}});
        let mut fixture = Fixture::container(json!({"env": [own("A"), own("V")]}));
        fixture.options.inline_secret_env = true;
        fixture.put(Kind::Secret, "s", json!({"stringData": {"A": before, "V": value}}));
        let pod = fixture.rendered();
        for (index, value) in [before, value].iter().enumerate() {
            let variable = spec(&pod, &format!("/containers/0/env/{index}"));
            let Some(key) = variable.text_at(["valueFrom", "fileKeyRef", "key"]) else {
                prop_assert!(value.is_empty() || value.contains('\'') || value.contains("\r\n"));
                continue;
            };
            let content = &files(&pod, "daemonlet-env-main")[0].1;
            let parsed = parse(content, key);
            prop_assert_eq!(parsed.as_ref(), Some(value));
        }
    }
}
