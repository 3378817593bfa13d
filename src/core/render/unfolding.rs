//! How much the environment and the command of a container are once the kubelet has put values in place of `$(NAME)`.
//!
//! Owns the bound. A value may name others, and those others again: some lines are more than any machine has, and the
//! kubelet, which unfolds them at each start of a container, has no bound of its own.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::context::RenderContext;
use crate::core::render::context::bound;
use crate::core::render::expansion;
use crate::core::render::json::Object;

/// What a field of the pod has at most that is no annotation: a name, an address, a number.
pub(super) const FIELD: usize = 256;

/// The lengths of variables, in bytes.
#[derive(Default)]
pub(super) struct Unfolding {
    lengths: BTreeMap<String, usize>,
    sum: usize,
}

impl Unfolding {
    /// The variable `name` has a value of so many bytes that is not unfolded.
    pub(super) fn add(&mut self, name: &str, length: usize) {
        self.lengths.insert(name.to_owned(), length);
        self.sum = self.sum.saturating_add(name.len()).saturating_add(length);
    }

    /// The next of the variables as it is written: it may name those before it.
    pub(super) fn add_written(&mut self, ctx: &RenderContext<'_>, variable: &Value) {
        let length = match variable.text_at("value") {
            Some(text) => self.unfolded(text),
            None => match variable.at(["valueFrom", "fieldRef"]).map(|field| field.str_at("fieldPath")) {
                Some(path) if path.starts_with("metadata.annotations") => annotations(ctx),
                _ => FIELD,
            },
        };
        self.add(variable.str_at("name"), length);
    }

    /// Refuses the container whose command, with all variables, is more than a pod may have.
    pub(super) fn require_room(mut self, ctx: &mut RenderContext<'_>, container: &Object, field: &str) {
        let words = ["command", "args"].into_iter().flat_map(|list| container.list_at(list)).filter_map(Value::as_str);
        let paths = container.list_at("volumeMounts").iter().filter_map(|mount| mount.text_at("subPathExpr"));
        for text in words.chain(paths) {
            self.sum = self.sum.saturating_add(self.unfolded(text));
        }
        let bound = bound(ctx.input);
        if self.sum > bound.unfolded {
            let reason = format!(
                "with what stands for each $(NAME) variables and command have more than {} bytes",
                bound.unfolded
            );
            ctx.refuse(format!("{field}.env"), reason, &bound.hint());
        }
    }

    /// The length of `text` once it is unfolded, or a little more.
    fn unfolded(&self, text: &str) -> usize {
        let named = expansion::references(text).filter_map(|name| self.lengths.get(name));
        named.fold(text.len(), |sum, length| sum.saturating_add(*length))
    }
}

/// How many bytes the annotations of the template have.
fn annotations(ctx: &RenderContext<'_>) -> usize {
    let annotations = ctx.input.daemon_set.pod_template().at(["metadata", "annotations"]).and_then(Value::as_object);
    annotations.into_iter().flat_map(|all| all.values()).map(|text| text.as_str().map_or(0, str::len)).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::model::Kind;
    use crate::core::policy::PodRules;
    use crate::core::render::fixture::Fixture;

    /// Why a container of a tenant is refused.
    fn refusal(container: Value) -> Option<String> {
        let mut fixture = Fixture::container(container);
        fixture.options.rules = PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() };
        fixture.put(Kind::Secret, "s", json!({"data": {"K": "eHh4eHh4eHh4eA=="}}));
        fixture.render().err().map(|refusal| format!("{refusal:?}")).filter(|text| text.contains("each $(NAME)"))
    }

    /// Variables of which each is twice the one before it, the first of so many bytes.
    fn doubling(first: usize, count: usize) -> Vec<Value> {
        let next =
            |number: usize| json!({"name": format!("V{number}"), "value": format!("$(V{0})$(V{0})", number - 1)});
        std::iter::once(json!({"name": "V0", "value": "x".repeat(first)})).chain((1..count).map(next)).collect()
    }

    #[test]
    fn some_lines_are_not_more_than_a_machine_has() {
        assert_eq!(refusal(json!({"env": doubling(100, 10)})), None);
        for count in [16, 40, 100, 500] {
            let text = refusal(json!({"env": doubling(100, count)})).unwrap_or_default();
            assert!(text.contains("containers[0].env"), "{count} {text}");
        }
    }

    #[test]
    fn each_thing_that_the_kubelet_unfolds_counts() {
        let long = json!({"name": "A", "value": "x".repeat(1000)});
        let secret = json!({"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "K"}}});
        let node = json!({"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
        let named = |name: &str, times: usize| format!("$({name})").repeat(times);
        for (field, container) in [
            ("args", json!({"env": [long], "args": [named("A", 3000)]})),
            ("command", json!({"env": [long], "command": ["x", named("A", 3000)]})),
            ("a Secret", json!({"env": [secret], "args": vec![named("S", 8000); 30]})),
            ("a field", json!({"env": [node], "args": [named("N", 9000)]})),
            ("envFrom", json!({"envFrom": [{"secretRef": {"name": "s"}}], "args": vec![named("K", 8000); 30]})),
        ] {
            assert!(refusal(container).is_some(), "{field}");
        }
        for container in [
            json!({"env": [long], "args": [named("A", 1000)]}),
            json!({"env": [long], "args": [named("absent", 3000)]}),
            json!({"env": [long], "args": [named("A", 3000).replace('$', "$$")]}),
            json!({"env": [{"name": "B", "value": named("B", 9000)}]}),
        ] {
            assert_eq!(refusal(container), None);
        }
    }
}
