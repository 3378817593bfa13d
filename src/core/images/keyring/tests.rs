use serde_json::json;

use super::*;

fn keyring(entries: &[(&str, &str)]) -> Keyring {
    let config = entries.iter().map(|(registry, user)| {
        ((*registry).to_owned(), RegistryCredentials { username: (*user).to_owned(), password: "p".to_owned() })
    });
    let mut keyring = Keyring::default();
    keyring.add(&config.collect());
    keyring
}

fn users(keyring: &Keyring, repository: &str) -> Vec<String> {
    keyring.look_up(repository).into_iter().map(|credentials| credentials.username).collect()
}

/// The cases of upstream's `keyring_test.go`.
#[test]
fn patterns_fit_as_upstream_has_it() {
    for (pattern, target, fit) in [
        ("*.kubernetes.io", "prefix.kubernetes.io", true),
        ("prefix.*.io", "prefix.kubernetes.io", true),
        ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", true),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", true),
        ("*.kubernetes.io", "kubernetes.io", false),
        ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
        ("*kubernetes.io", "a.b.kubernetes.io", false),
        ("*.kubernetes.io", "kubernetes.com", false),
        ("*.kubernetes.io/foo", "prefix.kubernetes.io/bar", false),
        ("*.kubernetes.io:1111", "prefix.kubernetes.io:2222", false),
        ("*.kubernetes.io", "prefix.kubernetes.io:80", false),
        ("[a-c]x.io", "bx.io", true),
        ("[^a-c]x.io", "bx.io", false),
        ("[a", "a", false),
        ("a b", "a b", false),
    ] {
        assert_eq!(matches(pattern, target), fit, "{pattern} {target}");
    }
}

#[test]
fn the_most_specific_entry_comes_first_and_others_follow() {
    let keyring = keyring(&[
        ("quay.io", "host"),
        ("https://quay.io/coreos", "path"),
        ("http://other.test:5000/v2/", "v2"),
        ("*.test", "glob"),
        ("not a host", "bad"),
    ]);
    assert_eq!(users(&keyring, "quay.io/coreos/etcd"), ["path", "host"]);
    assert_eq!(users(&keyring, "quay.io/x"), ["host"]);
    assert_eq!(users(&keyring, "other.test:5000/x"), ["v2"]);
    assert_eq!(users(&keyring, "a.test/x"), ["glob"]);
    assert!(users(&keyring, "docker.io/library/x").is_empty());
}

#[test]
fn docker_hub_has_an_entry_of_its_own() {
    let keyring = keyring(&[("https://index.docker.io/v1/", "hub")]);
    assert_eq!(users(&keyring, "docker.io/library/busybox"), ["hub"]);
    assert!(users(&keyring, "quay.io/busybox").is_empty());
}

#[test]
fn both_kinds_of_docker_config_are_read() {
    let auth = STANDARD.encode("user:pass:word");
    let entries = json!({"a.test": {"auth": auth}, "b.test": {"username": "u", "password": "p"}});
    let legacy = docker_config(entries.to_string().as_bytes(), true).unwrap();
    let config = docker_config(json!({"auths": entries}).to_string().as_bytes(), false).unwrap();
    assert_eq!(legacy, config);
    assert_eq!((config["a.test"].username.as_str(), config["a.test"].password.as_str()), ("user", "pass:word"));
    assert_eq!(config["b.test"].username, "u");
    let unpadded = STANDARD_NO_PAD.encode("u:p");
    assert!(docker_config(json!({"a": {"auth": unpadded}}).to_string().as_bytes(), true).is_ok());
    assert_eq!(docker_config(b"{}", false), Ok(DockerConfig::new()));
    assert!(!format!("{config:?}").contains("pass"));
}

#[test]
fn a_bad_config_is_refused_without_showing_it() {
    for (bytes, legacy) in
        [(&b"geheim"[..], true), (b"[\"geheim\"]", true), (br#"{"auths":{"a":{"auth":"geheim!"}}}"#, false)]
    {
        let error = docker_config(bytes, legacy).unwrap_err();
        assert!(!error.contains("geheim"), "{error}");
    }
}
