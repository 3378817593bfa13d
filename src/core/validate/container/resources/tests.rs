use serde_json::Value;
use serde_json::json;

use crate::core::validate::container::tests::errors;
use crate::core::validate::container::tests::judged;
use crate::core::validate::container::tests::specs_judged;

fn limits(amounts: Value) -> Value {
    json!({"resources": {"limits": amounts}})
}

fn both(limits: Value, requests: Value) -> Value {
    json!({"resources": {"limits": limits, "requests": requests}})
}

#[test]
fn names_are_those_of_resources() {
    const STANDARD: &str =
        "must be cpu, memory, ephemeral-storage, hugepages-<size> or have a domain and '/' before it";
    const NAME: &str =
        "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name and '/'";
    judged([
        (limits(json!({"cpu": 1, "memory": 1, "ephemeral-storage": 1, "kubernetes.io/x": 0.5, "x/y": 1})), ""),
        (limits(json!({"storage": 1})), format!("resources.limits[storage]: {STANDARD}").as_str()),
        (limits(json!({"gpu": 1})), format!("resources.limits[gpu]: {STANDARD}").as_str()),
        (limits(json!({"a b": 1})), format!("resources.limits[a b]: {NAME}").as_str()),
        (
            limits(json!({"requests.x/y": 1})),
            "resources.limits[requests.x/y]: the domain must not begin with 'requests.' or be that long",
        ),
    ]);
    let long = |size: usize| format!("{}.{}/y", "x".repeat(200), "x".repeat(size));
    judged([(limits(json!({long(43): 1})), "")]);
    assert!(errors(limits(json!({long(44): 1})), json!({})).contains("the domain must not begin with"));
}

#[test]
fn amounts_fit_their_resource() {
    judged([
        (limits(json!({"cpu": "-1"})), "resources.limits[cpu]: must not be negative"),
        (limits(json!({"cpu": "-1n"})), "resources.limits[cpu]: must not be negative"),
        (limits(json!({"cpu": null, "memory": 0})), ""),
        (limits(json!({"x/y": "1500m"})), "resources.limits[x/y]: must be a whole number"),
        (limits(json!({"x/y": "2000m"})), ""),
        (limits(json!({"x/y": "8Pi"})), ""),
        (limits(json!({"x/y": "9223372036854775"})), ""),
        (limits(json!({"x/y": "9223372036854776"})), "resources.limits[x/y]: must be at most 9223372036854775"),
        (limits(json!({"x/y": "9Pi"})), "resources.limits[x/y]: must be at most 9223372036854775"),
        (limits(json!({"kubernetes.io/x": "9Pi", "memory": "9Pi"})), ""),
        (limits(json!({"cpu": 1, "hugepages-2Mi": "4Mi"})), ""),
        (limits(json!({"cpu": 1, "hugepages-2Mi": "4Ei"})), ""),
        (
            limits(json!({"cpu": 1, "hugepages-1Mi": "10E"})),
            "resources.limits[hugepages-1Mi]: must be at most 9223372036854775807",
        ),
        (
            limits(json!({"cpu": 1, "hugepages-2Mi": "3Mi"})),
            "resources.limits[hugepages-2Mi]: must be a multiple of the size in the name",
        ),
        (
            limits(json!({"cpu": 1, "hugepages-big": "4Mi"})),
            "resources.limits[hugepages-big]: must be a multiple of the size in the name",
        ),
        (
            limits(json!({"cpu": 1, "hugepages-0": 0})),
            "resources.limits[hugepages-0]: must be a multiple of the size in the name",
        ),
        (limits(json!({"hugepages-2Mi": "4Mi"})), "resources: hugepages need cpu or memory beside them"),
        (both(json!({"hugepages-2Mi": "4Mi"}), json!({"memory": 1})), ""),
    ]);
}

#[test]
fn requests_fit_their_limits() {
    judged([
        (both(json!({"cpu": 1}), json!({"cpu": "1001m"})), "resources.requests[cpu]: must not be more than the limit"),
        (both(json!({"cpu": 1}), json!({"cpu": "1000m"})), ""),
        (both(json!({"cpu": "999.1m"}), json!({"cpu": 1})), ""),
        (both(json!({}), json!({"cpu": 1})), ""),
        (both(json!({"x/y": 2}), json!({"x/y": 1})), "resources.requests[x/y]: must be the limit"),
        (both(json!({"x/y": 2}), json!({"x/y": "2"})), ""),
        (both(json!({}), json!({"x/y": 1})), "resources.limits[x/y]: required with a request"),
        (
            both(json!({"cpu": 1, "hugepages-2Mi": "4Mi"}), json!({"hugepages-2Mi": "2Mi"})),
            "resources.requests[hugepages-2Mi]: must be the limit",
        ),
    ]);
}

#[test]
fn claims_are_those_of_the_pod() {
    let error_of = |claims: Value| {
        let container = json!({"resources": {"claims": claims}});
        let text = errors(container, json!({"resourceClaims": [{"name": "a"}, {"name": "b"}]}));
        text.trim_start_matches("spec.template.spec.containers[0].resources.").to_owned()
    };
    for (claims, expected) in [
        (json!([{"name": "a"}, {"name": "b"}]), ""),
        (json!([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}]), ""),
        (json!([{}]), "claims[0].name: required"),
        (json!([{"name": "c"}]), "claims[0].name: the pod has no resource claim c"),
        (json!([{"name": "a"}, {"name": "a"}]), "claims[1]: a is used twice"),
        (json!([{"name": "a"}, {"name": "a", "request": "x"}]), "claims[1]: a is used twice"),
        (json!([{"name": "a", "request": "x"}, {"name": "a"}]), "claims[1]: a is used twice"),
        (json!([{"name": "a", "request": "x"}, {"name": "a", "request": "x"}]), "claims[1]: a is used twice"),
        (
            json!([{"name": "a", "request": "x.y"}]),
            "claims[0].request: must be lower case letters, digits and '-', beginning and ending with a letter or digit",
        ),
    ] {
        assert_eq!(error_of(claims.clone()), expected, "{claims}");
    }
}

#[test]
fn a_pod_has_at_least_what_its_containers_have() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let container = |amount: &str| json!({"name": "c", "image": "i", "resources": cpu(amount)});
    let spec = |pod: Value| json!({"containers": [container("100m"), container("200m")], "resources": pod});
    specs_judged([
        (spec(cpu("300m")), ""),
        (spec(cpu("299m")), "resources.requests[cpu]: must not be less than its containers have together"),
        (
            spec(json!({"requests": {"ephemeral-storage": "1Gi"}})),
            "resources.requests[ephemeral-storage]: must be cpu, memory or hugepages-<size>",
        ),
        (spec(json!({"claims": []})), "resources.claims: not allowed for a whole pod"),
        (
            json!({"resources": {"limits": {"cpu": "1"}}, "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1001m"}, "requests": {"cpu": "1"}}}]}),
            "containers[0].resources.limits[cpu]: must not be more than the limit of the pod",
        ),
        (
            json!({"resources": {"limits": {"cpu": "1"}}, "containers": [container("3")]}),
            "resources.limits[cpu]: must not be less than its containers request",
        ),
        (json!({"overhead": {"cpu": "10m", "example.com/x": 1}}), ""),
        (
            json!({"overhead": {"example": "1"}}),
            "overhead[example]: must be cpu, memory, ephemeral-storage, hugepages-<size> or have a domain and '/' \
             before it",
        ),
    ]);
}

#[test]
fn a_size_of_pages_that_upstream_cannot_count_is_refused() {
    for size in ["18446744073709551616", "1e28", "0", "x"] {
        let text = errors(limits(json!({format!("hugepages-{size}"): "0", "cpu": "1"})), json!({}));
        assert!(text.ends_with("must be a multiple of the size in the name"), "{size}: {text}");
    }
}
