use serde_json::json;

use super::check;
use crate::core::identity::Identity;
use crate::core::render::RenderInput;
use crate::core::render::context::RenderContext;
use crate::core::render::fixture::Fixture;

#[test]
fn what_the_kubelet_would_not_take_is_found_wherever_it_came_from() {
    for (template, expected) in [
        (json!({"labels": {"a": "b c"}}), "spec.template.metadata.labels[a]"),
        (json!({"annotations": {"a b": ""}}), "spec.template.metadata.annotations[a b]"),
    ] {
        let mut fixture = Fixture::container(json!({}));
        fixture.daemon_set.template["metadata"] = template;
        let errors = fixture.render().unwrap_err().errors;
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [expected]);
        assert_eq!(errors[0].hint, None, "the template has it so");
    }
}

#[test]
fn only_what_the_template_does_not_have_is_called_a_bug() {
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    let image = json!({"name": "v", "image": {"reference": "x:1", "pullPolicy": "always"}});
    let twice = json!([{"name": "v", "image": {"reference": "x:1"}}, {"name": "v", "emptyDir": {}}]);
    for (fields, container) in [
        (json!({"hostnameOverride": "a.b", "hostNetwork": true}), json!({})),
        (json!({}), json!({"restartPolicyRules": rules})),
        (json!({"volumes": [image]}), json!({})),
        (json!({"volumes": twice}), json!({})),
    ] {
        let mut fixture = Fixture::container(container);
        fixture.in_folder();
        let spec = fixture.daemon_set.template["spec"].as_object_mut().unwrap();
        spec.extend(fields.as_object().unwrap().clone());
        let errors = fixture.render().unwrap_err().errors;
        assert!(errors.iter().all(|error| error.hint.is_none()), "{errors:?}");
    }
    let fixture = Fixture::container(json!({}));
    let identity = Identity { uid: String::new(), pod_name: String::new() };
    let mut ctx = RenderContext::new(input(&fixture, &identity));
    let mut pod = fixture.daemon_set.template.clone();
    pod["spec"]["restartPolicy"] = json!("X");
    check(&mut ctx, &pod);
    assert!(ctx.errors.iter().any(|error| error.hint.as_deref() == Some(super::HINT)), "{:?}", ctx.errors);
}

fn input<'a>(fixture: &'a Fixture, identity: &'a Identity) -> RenderInput<'a> {
    RenderInput {
        daemon_set: &fixture.daemon_set,
        objects: &fixture.objects,
        tokens: &fixture.tokens,
        options: &fixture.options,
        identity,
        revision: "",
        incarnation: 0,
    }
}

#[test]
fn addresses_are_those_of_the_nodes_own_kubelet() {
    let mut fixture = Fixture::container(json!({}));
    fixture.daemon_set.template["spec"]["hostAliases"] = json!([{"ip": "01.2.3.4", "hostnames": ["a"]}]);
    assert!(fixture.refused()[0].starts_with("spec.template.spec.hostAliases[0].ip: must have no leading zeros"));
    fixture.options.kubelet_version = Some((1, 35));
    assert!(fixture.render().is_ok());
}

#[test]
fn whatever_a_pass_may_have_left_is_found() {
    let left = json!({
        "serviceAccountName": "x",
        "serviceAccount": "x",
        "imagePullSecrets": [{"name": "x"}],
        "schedulingGates": [{"name": "x"}],
        "resourceClaims": [{"name": "x"}],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "x"}}]}],
        "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "x"}}}]}],
        "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "x"}}}]}],
        "volumes": [
            {"emptyDir": {}},
            {"configMap": {}},
            {"hostPath": {}, "secret": {}},
            {"projected": {"sources": [{"downwardAPI": {}}, {"secret": {}}]}},
            {"projected": {"sources": [{"downwardAPI": {}}]}},
            {"rbd": {"secretRef": {"name": "x"}}},
            {"rbd": {"secretRef": {"name": ""}}},
        ],
    });
    let fixture = Fixture::container(json!({}));
    let identity = Identity { uid: String::new(), pod_name: String::new() };
    let mut ctx = RenderContext::new(input(&fixture, &identity));
    check(&mut ctx, &json!({"spec": left}));
    let fields: Vec<_> = ctx.errors.iter().map(|error| error.field.trim_start_matches("spec.template.spec.")).collect();
    assert_eq!(
        fields,
        [
            "serviceAccountName",
            "serviceAccount",
            "imagePullSecrets",
            "schedulingGates",
            "resourceClaims",
            "initContainers[0].envFrom[0]",
            "containers[0].env[0]",
            "ephemeralContainers[0].env[0]",
            "volumes[1]",
            "volumes[2]",
            "volumes[3]",
            "volumes[5]",
        ]
    );
}
