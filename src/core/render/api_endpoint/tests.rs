use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::render::Endpoint;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn host(value: &str) -> Value {
    variable("KUBERNETES_SERVICE_HOST", value)
}

fn port(value: &str) -> Value {
    variable("KUBERNETES_SERVICE_PORT", value)
}

/// The other variables of the Service.
fn links() -> Vec<Value> {
    vec![
        variable("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
        variable("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
        variable("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
        variable("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
        variable("KUBERNETES_PORT_443_TCP_PORT", "443"),
        variable("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
    ]
}

/// The first container's variables without [`links`].
fn env(fixture: &Fixture) -> Value {
    let env = all(fixture);
    let Value::Array(env) = env else { return env };
    env.into_iter().filter(|variable| !links().contains(variable)).collect()
}

fn all(fixture: &Fixture) -> Value {
    spec(&fixture.rendered(), "/containers/0/env").clone()
}

fn host_network(fixture: &mut Fixture) -> &mut Fixture {
    fixture.daemon_set.template["spec"]["hostNetwork"] = json!(true);
    fixture
}

#[test]
fn pods_of_the_pod_network_get_the_service_and_others_the_endpoint() {
    let mut fixture = Fixture::container(json!({}));
    assert_eq!(env(&fixture), json!([host("10.96.0.1"), port("443")]));
    let service = ObjectRef::new(Kind::Service, "default", "kubernetes");
    assert!(fixture.rendered().references.contains(&service));
    host_network(&mut fixture);
    assert_eq!(env(&fixture), json!([host("10.0.0.1"), port("6443")]));
    assert!(!fixture.rendered().references.contains(&service));
    fixture.options.api_endpoint = Some(Endpoint { host: "[fd00::1]".to_owned(), port: 443 });
    assert_eq!(env(&fixture), json!([host("fd00::1"), port("443")]));
}

#[test]
fn pods_of_the_pod_network_get_every_variable_of_the_service_as_the_kubelet_makes_them() {
    let mut fixture = Fixture::container(json!({}));
    let pair = || vec![host("10.96.0.1"), port("443")];
    assert_eq!(all(&fixture), Value::Array([pair(), links()].concat()));
    assert_eq!(all(host_network(&mut fixture)).as_array().map(Vec::len), Some(2), "they name another address");
    let url = variable("URL", "$(KUBERNETES_PORT)");
    let proto = variable("KUBERNETES_PORT_443_TCP_PROTO", "mine");
    let fixture = Fixture::container(json!({"env": [url, proto]}));
    let kept = links().into_iter().filter(|it| it["name"] != proto["name"]).collect();
    assert_eq!(all(&fixture), Value::Array([pair(), kept, vec![url, proto]].concat()));
    let mut fixture = Fixture::container(json!({}));
    let service = json!({"spec": {"clusterIP": "fd00::1", "ports": [{"port": 6443}]}});
    fixture.objects.objects.insert(ObjectRef::new(Kind::Service, "default", "kubernetes"), service);
    let env = all(&fixture);
    assert!(env.as_array().unwrap().contains(&variable("KUBERNETES_PORT_6443_TCP", "tcp://[fd00::1]:6443")), "{env}");
}

#[test]
fn a_variable_of_another_service_is_noted_unless_the_container_sets_it() {
    let value = variable("URL", "$(DB_SERVICE_HOST):$(DB_SERVICE_PORT) $(OWN_SERVICE_HOST) $$(NO_SERVICE_HOST)");
    let own = variable("OWN_SERVICE_HOST", "$(KUBERNETES_SERVICE_HOST)");
    let container = json!({"env": [own, value], "args": ["$(A_SERVICE_HOST)", "$(é_SERVICE_HOST)"]});
    let notes = Fixture::container(container).rendered().notes;
    assert_eq!(notes.len(), 1);
    let note = notes[0].to_string();
    let expected =
        "spec.template.spec.containers[0]: uses A_SERVICE_HOST, DB_SERVICE_HOST, DB_SERVICE_PORT of Services";
    assert!(note.starts_with(expected), "{note}");
}

#[test]
fn what_the_container_sets_itself_stands() {
    let fixture = Fixture::container(json!({"env": [host("mine")]}));
    assert_eq!(env(&fixture), json!([host("mine"), port("443")]));
    let mut fixture = Fixture::container(json!({"env": [host("mine")]}));
    assert_eq!(env(host_network(&mut fixture)), json!([host("mine")]), "the port of another address");
    let mut fixture = Fixture::container(json!({"envFrom": [{"configMapRef": {"name": "endpoint"}}]}));
    fixture.put(Kind::ConfigMap, "endpoint", json!({"data": {"KUBERNETES_SERVICE_PORT": "1"}}));
    assert_eq!(env(&fixture), json!([port("1"), host("10.96.0.1")]));
}

#[test]
fn they_come_first_only_where_a_value_refers_to_them() {
    let fixture = Fixture::container(json!({"env": [variable("A", "1")]}));
    assert_eq!(env(&fixture), json!([variable("A", "1"), host("10.96.0.1"), port("443")]));
    let url = variable("URL", "https://$(KUBERNETES_SERVICE_HOST)");
    let fixture = Fixture::container(json!({"env": [variable("A", "1"), url]}));
    assert_eq!(env(&fixture), json!([host("10.96.0.1"), port("443"), variable("A", "1"), url]));
    let escaped = variable("URL", "https://$$(KUBERNETES_SERVICE_HOST)");
    let fixture = Fixture::container(json!({"env": [escaped]}));
    assert_eq!(env(&fixture), json!([escaped, host("10.96.0.1"), port("443")]));
}

#[test]
fn what_is_used_before_the_container_sets_it_is_the_services() {
    let url = variable("URL", "https://$(KUBERNETES_SERVICE_HOST)");
    let mut fixture = Fixture::container(json!({"env": [url, host("mine")]}));
    assert_eq!(env(&fixture), json!([host("10.96.0.1"), port("443"), url, host("mine")]));
    assert_eq!(env(host_network(&mut fixture)), json!([host("10.0.0.1"), url, host("mine")]));
    let mut fixture = Fixture::container(json!({"env": [url, port("1")]}));
    assert_eq!(env(host_network(&mut fixture)), json!([host("10.0.0.1"), url, port("1")]));
    let itself = host("$(KUBERNETES_SERVICE_HOST).example.org");
    assert_eq!(env(&Fixture::container(json!({"env": [itself]}))), json!([host("10.96.0.1"), port("443"), itself]));
    let fixture = Fixture::container(json!({"env": [host("mine"), url]}));
    assert_eq!(env(&fixture), json!([host("mine"), url, port("443")]));
}

#[test]
fn the_port_is_the_first_one() {
    let mut fixture = Fixture::container(json!({}));
    let ports = json!([{"name": "konnectivity", "port": 8132}, {"name": "https", "port": 443}]);
    let service = json!({"spec": {"clusterIP": "10.96.0.1", "ports": ports}});
    fixture.objects.objects.insert(ObjectRef::new(Kind::Service, "default", "kubernetes"), service);
    let env = all(&fixture);
    let env = env.as_array().unwrap();
    assert!(env.contains(&port("8132")) && env.contains(&variable("KUBERNETES_SERVICE_PORT_HTTPS", "443")), "{env:?}");
}

#[test]
fn an_address_that_is_not_known_is_waited_for() {
    let mut fixture = Fixture::container(json!({}));
    fixture.options.api_endpoint = None;
    fixture.objects.objects.clear();
    assert_eq!(env(&fixture), Value::Null);
    let waits = |fixture: &Fixture| {
        let waiting = waiting(&fixture.rendered());
        waiting.into_iter().filter(|line| !line.starts_with("ServiceAccount")).collect::<Vec<_>>()
    };
    assert_eq!(waits(&fixture), ["Service default/kubernetes"]);
    host_network(&mut fixture);
    assert_eq!(waits(&fixture), ["APIEndpoint /api-endpoint"]);
    fixture.options.has_api = false;
    assert!(waits(&fixture).is_empty());
}

#[test]
fn a_folders_daemon_without_a_token_does_not_wait() {
    let mut fixture = Fixture::container(json!({}));
    fixture.in_folder();
    fixture.options.api_endpoint = None;
    fixture.objects.complete = false;
    fixture.objects.objects.remove(&ObjectRef::new(Kind::Service, "default", "kubernetes"));
    assert!(waiting(&fixture.rendered()).is_empty());
    assert!(waiting(&host_network(&mut fixture).rendered()).is_empty());
    fixture.daemon_set.template["spec"]["automountServiceAccountToken"] = json!(true);
    assert_eq!(waiting(&fixture.rendered()), ["APIEndpoint /api-endpoint"]);
}
