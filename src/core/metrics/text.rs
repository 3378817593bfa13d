//! Prometheus' text format, version 0.0.4.
//!
//! Owns the format. A family is written once, with all its samples; without samples it is left out.

use super::Id;
use super::METRICS;
use super::Metric;
use super::Type;
use super::of;

use std::collections::BTreeMap;

/// Collects samples and writes them as text.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The label `node` of each sample; `None`: they are not one node's.
    node: Option<String>,
    samples: BTreeMap<Id, Vec<String>>,
}

impl Exposition {
    /// The media type of [`Exposition::text`].
    pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// For the samples of one node's agent: each names the node.
    pub fn of_node(node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..Self::default() }
    }

    /// Adds a sample; `labels` are the values, in the order of the table.
    pub fn sample(&mut self, id: Id, labels: &[&str], value: f64) {
        let metric = of(id);
        let line = format!("{}{} {}\n", metric.name, self.pairs(metric, labels, None), number(value));
        self.samples.entry(id).or_default().push(line);
    }

    /// Adds the one sample of a metric without labels.
    pub fn value(&mut self, id: Id, value: f64) {
        self.sample(id, &[], value);
    }

    /// Adds a histogram: `counts` are the observations between each bound and the one before it, then those above all
    /// bounds; `sum` is the sum of the observed values.
    pub fn histogram(&mut self, id: Id, bounds: &[f64], counts: &[u64], sum: f64) {
        let name = of(id).name;
        let mut lines = String::new();
        let mut total = 0;
        let bounds = bounds.iter().map(|bound| number(*bound)).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            total += count;
            lines.push_str(&format!("{name}_bucket{} {total}\n", self.pairs(of(id), &[], Some(&bound))));
        }
        let node = brackets(self.node.iter().map(|node| ("node", node.as_str())));
        lines.push_str(&format!("{name}_sum{node} {}\n{name}_count{node} {total}\n", number(sum)));
        self.samples.entry(id).or_default().push(lines);
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for metric in METRICS {
            let Some(samples) = self.samples.get(&metric.id) else { continue };
            let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
            text.push_str(&format!("# HELP {} {help}\n# TYPE {} {}\n", metric.name, metric.name, metric.kind.as_str()));
            text.extend(samples.iter().map(String::as_str));
        }
        text
    }

    fn pairs(&self, metric: &Metric, values: &[&str], bound: Option<&str>) -> String {
        checked!(metric.labels.len() == values.len(), "{}", metric.name);
        checked!((metric.kind == Type::Histogram) == bound.is_some(), "{}", metric.name);
        let own = metric.labels.iter().copied().zip(values.iter().copied());
        let node = self.node.iter().map(|node| ("node", node.as_str()));
        brackets(own.chain(node).chain(bound.map(|bound| ("le", bound))))
    }
}

/// Labels as they stand after a name; empty if there are none.
fn brackets<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The shortest text of a number.
fn number(value: f64) -> String {
    format!("{value}")
}
