//! `kubectl daemonlet diff`: what overlays make of the same DaemonSet on two nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::table;
use crate::cli::table::Cell;
use crate::core::field_filter::is_too_large;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Lookup;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::node;
use crate::core::overlays;
use crate::core::overlays::KnownList;
use crate::core::overlays::ListSource;
use crate::core::overlays::OverlayFacts;
use crate::core::policy::PodRules;
use crate::core::validate;
use crate::node::api::FailureKind;

use super::cluster;

/// The version of the JSON form.
const SCHEMA_VERSION: u32 = 1;

/// What is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiffReport {
    schema_version: u32,
    nodes: [String; 2],
    daemon_sets: Vec<Compared>,
}

impl DiffReport {
    /// Compares a DaemonSet, if it has overlays.
    async fn add(&mut self, client: &kube::Client, object: &Value, labels: &[BTreeMap<String, String>]) -> Exit {
        if is_too_large(object) {
            let of = |field: &str| object.str_at(["metadata", field]).to_owned();
            let error = Some("it is too large to be read with all others: name it".to_owned());
            let (overlays, differences) = Default::default();
            self.daemon_sets.push(Compared {
                namespace: of("namespace"),
                name: of("name"),
                overlays,
                differences,
                error,
            });
            return Exit::Refused;
        }
        let Ok(daemon_set) = validate::daemon_set(object, Source::Api).map(Arc::new) else { return Exit::Success };
        if !daemon_set.annotations.contains_key(OVERLAYS) {
            return Exit::Success;
        }
        let list = match overlays::config_map(&daemon_set) {
            Some(config_map) => read(client, &config_map).await,
            None => Ok(None),
        };
        match list.and_then(|list| compared(&daemon_set, &list, labels)) {
            Ok(compared) => {
                self.daemon_sets.push(compared);
                Exit::Success
            }
            Err(failure) => {
                self.daemon_sets.push(Compared::failed(&daemon_set, &failure));
                failure.exit
            }
        }
    }
}

/// One DaemonSet on both nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    namespace: String,
    name: String,
    /// Which overlays apply to each node.
    overlays: [String; 2],
    differences: Vec<Field>,
    /// Why it cannot be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Compared {
    fn failed(daemon_set: &DaemonSet, failure: &CommandFailure) -> Self {
        let ObjectKey { namespace, name } = daemon_set.key.clone();
        let text = |(message, hint): &(String, Option<String>)| match hint {
            Some(hint) => format!("{message}; {hint}"),
            None => message.clone(),
        };
        let error = Some(failure.errors.iter().map(text).collect::<Vec<_>>().join("; "));
        Self { namespace, name, overlays: Default::default(), differences: Vec::new(), error }
    }
}

/// One field of the template.
#[derive(Debug, Serialize)]
struct Field {
    field: String,
    values: [Option<Value>; 2],
}

/// Prints in which fields the pods of each DaemonSet with overlays differ between two nodes, or why one cannot be compared:
/// then the exit code is that of the worst.
pub(super) async fn print(
    client: &kube::Client,
    nodes: [&str; 2],
    (only, namespace): (Option<&ObjectKey>, Option<&str>),
    json: bool,
) -> Result<Exit, CommandFailure> {
    let mut labels: Vec<BTreeMap<String, String>> = Vec::new();
    for name in nodes {
        let object = cluster::get(client, &format!("/api/v1/nodes/{name}")).await.map_err(cluster::failed)?;
        let view = node::view(&object).map_err(|error| refused(&[error]))?;
        labels.push(view.labels);
    }
    let mut report =
        DiffReport { schema_version: SCHEMA_VERSION, nodes: nodes.map(str::to_owned), daemon_sets: Vec::new() };
    let mut exit = Exit::Success;
    if let Some(key) = only {
        let object = cluster::daemon_set(client, key).await?;
        exit = report.add(client, &object, &labels).await;
    } else {
        let mut pages = cluster::Pages::new("/apis/apps/v1/daemonsets", cluster::DAEMON_SETS_PAGE);
        while let Some(page) = pages.next(client).await.map_err(cluster::failed)? {
            let is_asked = |object: &&Value| namespace.is_none_or(|it| object.str_at(["metadata", "namespace"]) == it);
            for object in page.iter().filter(is_asked) {
                exit = exit.max(report.add(client, object, &labels).await);
            }
        }
    }
    output::data(&if json { output::json(&report)? } else { human(&report) })?;
    Ok(exit)
}

/// The ConfigMap; `None`: there is none.
async fn read(client: &kube::Client, config_map: &ObjectRef) -> Result<Option<Value>, CommandFailure> {
    let ObjectKey { namespace, name } = &config_map.key;
    match cluster::get(client, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await {
        Ok(object) => Ok(Some(object)),
        Err(failure) if failure.kind == FailureKind::NotFound => Ok(None),
        Err(failure) => Err(cluster::failed(failure)),
    }
}

fn compared(
    daemon_set: &Arc<DaemonSet>,
    list: &Option<Value>,
    labels: &[BTreeMap<String, String>],
) -> Result<Compared, CommandFailure> {
    let mut made = Vec::new();
    for labels in labels {
        let found = list.as_ref().map_or(Lookup::Absent, Lookup::Present);
        let facts = OverlayFacts {
            found,
            list: ListSource::Api,
            rules: &PodRules::trusting(),
            labels,
            registered: true,
            last: None,
        };
        let overlaid = overlays::resolve(daemon_set, &facts);
        match overlaid.overlays.as_ref().map(|overlays| &overlays.known) {
            Some(KnownList::Refused(errors)) => return Err(refused(errors)),
            Some(KnownList::Missing { .. }) => {
                let config_map = overlays::config_map(daemon_set).map(|reference| reference.to_string());
                let named = config_map.unwrap_or_default();
                let message = format!("{named} does not exist, which {} names in {OVERLAYS}", daemon_set.key);
                return Err(CommandFailure::new(Exit::Refused, message).hint(
                    "create it: nodes that run the DaemonSet keep the overlays that applied last, and it starts on no \
                     other node",
                ));
            }
            _ => made.push(overlaid),
        }
    }
    let [one, other] = [made.first(), made.last()].map(|made| made.unwrap_or(daemon_set));
    let differences = overlays::differences(one.patched_template(), other.patched_template());
    let applied =
        |made: &Arc<DaemonSet>| made.overlays.as_ref().map_or_else(String::new, |overlays| overlays.to_string());
    Ok(Compared {
        namespace: daemon_set.key.namespace.clone(),
        name: daemon_set.key.name.clone(),
        overlays: [applied(one), applied(other)],
        differences: differences
            .into_iter()
            .map(|difference| Field { field: difference.field, values: [difference.one, difference.other] })
            .collect(),
        error: None,
    })
}

fn refused(errors: &[FieldError]) -> CommandFailure {
    let words: Vec<String> = errors.iter().map(FieldError::with_hint).collect();
    CommandFailure::new(Exit::Refused, words.join("; "))
}

fn human(report: &DiffReport) -> String {
    if report.daemon_sets.is_empty() {
        return format!("no DaemonSet has overlays ({})\n", OVERLAYS);
    }
    let [one, other] = &report.nodes;
    let mut text = String::new();
    for compared in &report.daemon_sets {
        let (namespace, name) = (&compared.namespace, &compared.name);
        text.push_str(&output::line(format!("{namespace}/{name}")));
        if let Some(error) = &compared.error {
            text.push_str(&output::line(format!("  {error}")));
            continue;
        }
        for (node, overlays) in report.nodes.iter().zip(&compared.overlays) {
            text.push_str(&output::line(format!("  {node}: {overlays}")));
        }
        if compared.differences.is_empty() {
            text.push_str("  no difference\n");
            continue;
        }
        let value = |value: &Option<Value>| match value {
            None => Cell::from("-"),
            Some(Value::String(value)) => Cell::from(value.as_str()),
            Some(value) => Cell::from(value.to_string().as_str()),
        };
        let rows: Vec<Vec<Cell>> = compared
            .differences
            .iter()
            .map(|field| {
                let mut row = vec![Cell::from(format!("  {}", field.field).as_str())];
                row.extend(field.values.iter().map(value));
                row
            })
            .collect();
        text.push_str(&table::table(&["  FIELD", one, other], &rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_nodes_are_compared_field_by_field() {
        let object = json!({"metadata": {"namespace": "a", "name": "agent", "annotations": {"daemonlet.dev/overlays": "o"}},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "agent", "image": "x"}]}}}});
        let daemon_set = Arc::new(validate::daemon_set(&object, Source::Api).expect("it is valid"));
        let list = "- nodes: {matchLabels: {size: big}}\n  patch: {spec: {containers: [{name: agent, image: z, \
                    resources: {requests: {cpu: 2}}}]}}\n";
        let list = Some(json!({"data": {"overlays.yaml": list}}));
        let labels = [BTreeMap::new(), BTreeMap::from([("size".to_owned(), "big".to_owned())])];
        let daemon_sets = vec![compared(&daemon_set, &list, &labels).expect("it is compared")];
        let nodes = ["small".to_owned(), "big".to_owned()];
        let text = human(&DiffReport { schema_version: 1, nodes: nodes.clone(), daemon_sets });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0..2], ["a/agent", "  small: none of ConfigMap a/o applies to this node"]);
        assert!(lines[2].starts_with("  big: overlays.yaml[0] of ConfigMap a/o (digest "), "{text}");
        let cells = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(cells(lines[3]), ["FIELD", "small", "big"]);
        assert_eq!(cells(lines[4]), ["spec.containers[agent].image", "x", "z"]);
        assert_eq!(cells(lines[5]), ["spec.containers[agent].resources", "-", r#"{"requests":{"cpu":2}}"#]);
        let missing = compared(&daemon_set, &None, &labels).expect_err("there is no ConfigMap");
        let same = compared(&daemon_set, &list, &[labels[0].clone(), labels[0].clone()]).expect("compared");
        let daemon_sets = vec![Compared::failed(&daemon_set, &missing), same];
        let text = human(&DiffReport { schema_version: 1, nodes, daemon_sets });
        let expected = "a/agent\n  ConfigMap a/o does not exist, which a/agent names in daemonlet.dev/overlays";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("  no difference\n"), "one that cannot be compared keeps no other from it");
    }
}
