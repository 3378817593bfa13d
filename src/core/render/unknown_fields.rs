//! Fields of the objects that a pod uses that Kubernetes does not have.
//!
//! Owns the notes. An API server has dropped such fields, so they are mistakes in files.

use crate::core::model::FieldError;
use crate::core::model::Lookup;
use crate::core::render::context::RenderContext;
use crate::core::validate;

/// Notes them: what they were to give the pod is not in it.
pub(super) fn note(ctx: &mut RenderContext<'_>) {
    for reference in &ctx.references {
        let (Lookup::Present(object) | Lookup::Deleted(object)) = ctx.input.objects.lookup(reference) else { continue };
        let unknown = validate::unknown_fields_of(reference.kind, object);
        let named =
            unknown.into_iter().map(|error| FieldError { field: format!("{reference}: {}", error.field), ..error });
        ctx.notes.extend(named);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::model::Kind;
    use crate::core::model::ObjectRef;
    use crate::core::render::fixture::Fixture;

    #[test]
    fn a_field_that_kubernetes_does_not_have_is_named_with_its_object() {
        let mut fixture = Fixture::volume(json!({"secret": {"secretName": "s"}}));
        let spec = &mut fixture.daemon_set.template["spec"];
        spec["volumes"].as_array_mut().unwrap().push(json!({"name": "m", "configMap": {"name": "m"}}));
        spec["runtimeClassName"] = json!("r");
        fixture.put(
            Kind::Secret,
            "s",
            json!({"kind": "Secret", "type": "x", "metadata": {"x": 1}, "stringdata": {"a": "b"}}),
        );
        fixture.put(Kind::ConfigMap, "m", json!({"Data": {"a": "x"}, "immutable": true}));
        let class = json!({"handler": "h", "overhead": {"podfixed": {"cpu": "1"}}, "scheduling": {}});
        fixture.objects.objects.insert(ObjectRef::new(Kind::RuntimeClass, "kube-system", "r"), class);
        let notes: Vec<String> = fixture.rendered().notes.iter().map(|note| note.with_hint()).collect();
        let expected = [
            "ConfigMap kube-system/m: Data: unknown field: Kubernetes 1.36 does not have it (hint: did you mean data?)",
            "Secret kube-system/s: stringdata: unknown field: Kubernetes 1.36 does not have it (hint: did you mean stringData?)",
            "RuntimeClass r: overhead.podfixed: unknown field: Kubernetes 1.36 does not have it (hint: did you mean podFixed?)",
        ];
        assert_eq!(notes, expected);
    }
}
