//! The YAML that the pages show is what the program understands: annotations go through `daemonlet render` and, as part
//! of a rollout, through a pass of the coordinator; lists of overlays are merged; objects are read as their kind.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use daemonlet::core::annotations;
use daemonlet::core::input;
use daemonlet::core::model::Lookup;
use daemonlet::core::model::Source;
use daemonlet::core::overlays;
use daemonlet::core::overlays::KnownList;
use daemonlet::core::overlays::ListSource;
use daemonlet::core::overlays::OverlayFacts;
use daemonlet::core::policy::PodRules;
use daemonlet::core::validate;
use daemonlet::core::yaml;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use serde_json::Value;
use serde_json::json;

use crate::Scratch;
use crate::readme::blocks;
use crate::readme::pages;
use crate::readme::read;
use crate::readme::root;
use crate::run;
use crate::world;
use crate::world::Rollout;

const OURS: &str = "daemonlet.dev/";

/// What commands write; the pages show what these print.
const BY_COMMANDS: [&str; 3] = ["daemonlet.dev/promoted", "daemonlet.dev/aborted", "daemonlet.dev/retry"];

/// Files of other programs, by their first key: the kubelet's, Prometheus', cloud-init's.
const OF_OTHERS: [&str; 3] = ["shutdownGracePeriodByPodPriority", "scrape_configs", "files"];

/// Every document of the YAML of the pages, with its page.
fn documents() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (path, page) in pages() {
        for block in blocks(&page, "yaml") {
            for document in yaml::read_documents(&block.join("\n")) {
                found.push((path.clone(), document.value.unwrap_or_else(|error| panic!("{path}: {error:?}"))));
            }
        }
    }
    found
}

/// The annotations of a part of a DaemonSet that a page shows, or of a whole one.
fn annotated(document: &Value) -> Option<&Value> {
    document["metadata"].get("annotations").filter(|_| document.get("kind").is_none_or(|kind| kind == "DaemonSet"))
}

/// What is not understood of a DaemonSet with these annotations.
fn not_understood(annotations: &Value) -> Vec<String> {
    let object = probed(annotations);
    let daemon_set = validate::daemon_set(&object, Source::Api).unwrap();
    annotations::unknown_fields(&daemon_set).iter().map(|unknown| unknown.with_hint()).collect()
}

/// A DaemonSet with these annotations whose readiness says something.
fn probed(annotations: &Value) -> Value {
    let mut object = Rollout::new("net", annotations.clone()).daemon_set();
    object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["true"]}});
    object
}

/// The annotations that people write on DaemonSets, as the program lists them for a name that is like none.
fn known_names() -> BTreeSet<String> {
    let warnings = not_understood(&json!({"daemonlet.dev/qqqqqqqqqqqqqqqq": ""})).concat();
    let names = warnings.split("known names: ").nth(1).unwrap().trim_end_matches(')').split(", ");
    names.map(str::to_owned).collect()
}

#[test]
fn annotations_on_the_pages_are_understood_and_a_rollout_goes_on_with_them() {
    let mut shown = 0;
    for (path, document) in documents() {
        let Some(annotations) = annotated(&document) else { continue };
        let daemon_set = match document.get("kind") {
            Some(_) => document.clone(),
            None => probed(annotations),
        };
        let scratch = Scratch::new(&[("ds.json", &daemon_set.to_string())]);
        // Overlays apply to a Node, which is not given.
        let strict = annotations.get("daemonlet.dev/overlays").is_none().then_some("--strict");
        let ds = scratch.text("ds.json");
        let run = run(["render", "--node-name", "n1", "-f", &ds].into_iter().chain(strict).collect::<Vec<_>>());
        assert!(run.code == 0 && !run.err.contains("warning:"), "{path}: {annotations}: {}", run.err);
        let (approved, progressing) = world::pass(Rollout::new("net", annotations.clone()));
        let is_held = annotations.get("daemonlet.dev/paused").is_some();
        // Each node follows by itself.
        let needs_none = annotations.get("daemonlet.dev/coordination").is_some_and(|value| value == "none");
        assert_eq!(approved.is_empty(), is_held || needs_none, "{path}: {annotations}: {progressing}");
        shown += 1;
    }
    assert!(shown > 10, "the examples are not found");
}

#[test]
fn every_annotation_has_an_example() {
    let mut shown: BTreeSet<String> = BTreeSet::new();
    for (_, document) in documents() {
        let names = annotated(&document).and_then(Value::as_object).into_iter().flatten();
        shown.extend(names.flat_map(|(name, value)| [name.clone(), format!("{name}: {}", value.as_str().unwrap())]));
    }
    let printed: String = pages().iter().map(|(_, page)| blocks(page, "console").concat().join("\n")).collect();
    let mut names = known_names();
    assert!(names.len() > 20, "{names:?}");
    names.extend(["drain", "boot", "manual"].map(|trigger| format!("daemonlet.dev/update: {trigger}")));
    for name in names {
        let is_shown = match BY_COMMANDS.contains(&name.as_str()) {
            true => printed.contains(&format!("({name}=")),
            false => shown.contains(&name),
        };
        assert!(is_shown, "no page has an example of {name}");
    }
}

/// What `text` says an annotation or label may be, as `daemonlet.dev/NAME: VALUE` or `daemonlet.dev/NAME=VALUE`.
fn said(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for rest in text.split(OURS).skip(1) {
        let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        let rest = &rest[name.len()..];
        let value = match (rest.strip_prefix(": "), rest.strip_prefix('=')) {
            (Some(value), _) => value.split(['`', '\n']).next().unwrap_or_default(),
            (None, Some(quoted)) if quoted.starts_with('\'') => quoted.split('\'').nth(1).unwrap_or_default(),
            (None, Some(value)) => value.split(['`', '\n', ' ', ')', ',']).next().unwrap_or_default(),
            (None, None) => continue,
        };
        found.push((format!("{OURS}{name}"), value.trim_matches('"').to_owned()));
    }
    found
}

/// The values of the table of the annotations that steer a rollout: ``| `NAME: VALUE`, `VALUE` or `VALUE` | …``.
fn tabulated() -> Vec<(String, String)> {
    let page = read("docs/steering.md");
    let table = page.split("| annotation (`daemonlet.dev/…`) |").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut found = Vec::new();
    for row in table.lines().filter(|row| row.starts_with("| `")) {
        let mut spans = row.split(" | ").next().unwrap().split('`').skip(1).step_by(2);
        let (name, value) = spans.next().unwrap().split_once(": ").unwrap();
        let values = std::iter::once(value).chain(spans).map(|value| value.trim_matches('"').to_owned());
        found.extend(values.map(|value| (format!("{OURS}{name}"), value)));
    }
    assert!(found.len() > 15, "{found:?}");
    found
}

#[test]
fn values_that_the_pages_name_are_understood() {
    let of_pages = pages().into_iter().flat_map(|(path, page)| said(&page).into_iter().map(move |s| (path.clone(), s)));
    let all = of_pages.chain(tabulated().into_iter().map(|said| ("docs/steering.md".to_owned(), said)));
    let (mut seen, mut modes) = (0, 0);
    for (path, (name, value)) in all {
        match name.as_str() {
            // A taint and a node selector.
            "daemonlet.dev/starting" | "daemonlet.dev/static" => {}
            "daemonlet.dev/mode" => {
                assert!(["static", "bootstrap"].contains(&value.as_str()), "{path}: {name}: {value}");
                modes += 1;
            }
            _ => {
                let mut annotations = BTreeMap::from([(name.as_str(), value.as_str())]);
                // What has no effect alone.
                annotations.extend(match name.as_str() {
                    "daemonlet.dev/after-timeout" => Some(("daemonlet.dev/after", "kube-system/other")),
                    "daemonlet.dev/startup-taint-timeout" => Some(("daemonlet.dev/startup-taint", "true")),
                    "daemonlet.dev/canary-hold" => Some(("daemonlet.dev/canary", "canary=yes")),
                    _ => None,
                });
                assert_eq!(not_understood(&json!(annotations)), Vec::<String>::new(), "{path}");
                seen += 1;
            }
        }
    }
    assert!(seen > 50 && modes > 5, "they are not found: {seen}, {modes}");
}

#[test]
fn objects_and_lists_on_the_pages_are_what_their_readers_take() {
    let mut lists = 0;
    for (path, document) in documents() {
        let kind = document["kind"].as_str().unwrap_or_default();
        let text = document.to_string();
        match (kind, &document) {
            ("", Value::Array(entries)) => {
                let object = Rollout::new("agent", json!({"daemonlet.dev/overlays": "sizes"})).daemon_set();
                let daemon_set = Arc::new(validate::daemon_set(&object, Source::Api).unwrap());
                let list = json!({"data": {"overlays.yaml": text}});
                let labels = [
                    ("node.kubernetes.io/instance-type".to_owned(), "m7.24xlarge".to_owned()),
                    ("node-role.kubernetes.io/control-plane".to_owned(), String::new()),
                ];
                let facts = OverlayFacts {
                    found: Lookup::Present(&list),
                    list: ListSource::Api,
                    rules: &PodRules::trusting(),
                    labels: &BTreeMap::from(labels),
                    registered: true,
                    last: None,
                };
                let overlaid = overlays::resolve(&daemon_set, &facts);
                let applied = overlaid.overlays.as_ref().map(|overlays| (&overlays.known, overlays.patches.len()));
                assert_eq!(applied, Some((&KnownList::Read, entries.len())), "{path}: {text}");
                lists += 1;
            }
            ("", fields) if annotated(fields).is_none() => {
                let first = fields.as_object().and_then(|fields| fields.keys().next()).unwrap();
                assert!(OF_OTHERS.contains(&first.as_str()), "{path}: who reads {first}?");
            }
            ("" | "NodeReadinessRule", _) => {}
            ("FlowSchema", _) => {
                let typed: FlowSchema = serde_json::from_value(document.clone()).unwrap();
                assert_eq!(serde_json::to_value(typed).unwrap(), document, "{path}: a field is not known");
            }
            ("Kustomization", _) => {
                let listed = ["resources", "components"].map(|field| document[field].as_array().unwrap());
                for entry in listed.into_iter().flatten() {
                    let folder = root().join(entry.as_str().unwrap().strip_prefix("daemonlet/").unwrap());
                    assert!(folder.join("kustomization.yaml").exists(), "{path}: there is no {entry}");
                }
            }
            _ => {
                let read = input::parse_file(Path::new("objects.json"), &text);
                let wrong = (read.problems, read.unknown_fields, read.ignored);
                assert_eq!(wrong, Default::default(), "{path}: {kind} is not read as it is");
            }
        }
    }
    assert!(lists > 0, "the list of overlays is not found");
}

#[test]
fn a_last_step_below_all_nodes_holds_as_the_page_says() {
    let with = |annotations: Value| Rollout { updated: &["n1", "n2"], ..Rollout::new("net", annotations) };
    let steps = json!({"daemonlet.dev/steps": "1; 50%"});
    let [_, revision] = with(steps.clone()).revisions();
    let promoted = format!("{}/2/2/50%", revision["metadata"]["name"].as_str().unwrap());
    let by_hand = json!({"daemonlet.dev/steps": "1; 50%", "daemonlet.dev/promoted": promoted});
    for annotations in [steps, by_hand] {
        let (approved, progressing) = world::pass(with(annotations));
        assert_eq!((approved.len(), progressing.as_str()), (0, "2 of 4 nodes are left: step 2 of 2 (2 of 4 nodes)"));
        assert!(read("docs/steering.md").contains(&format!("`{progressing}`")), "docs/steering.md: {progressing}");
    }
    let (approved, _) = world::pass(with(json!({"daemonlet.dev/steps": "1; 50%; 100%"})));
    assert_eq!(approved.len(), 1, "with a larger step it goes on");
}
