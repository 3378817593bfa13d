use super::*;

struct KubeconfigCase {
    folder: tempfile::TempDir,
}

impl KubeconfigCase {
    fn new(cluster: &str, user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        fs::write(folder.path().join("k"), text).unwrap();
        Self { folder }
    }

    fn load(&self) -> Result<ApiCredentials, KubeconfigError> {
        ApiCredentials::load(&self.folder.path().join("k"))
    }

    /// The message without the path in front.
    fn error(&self) -> String {
        let text = self.load().err().map(|error| crate::node::api::words(&error)).unwrap_or_default();
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

const SERVER: &str = "server: \"https://[fd00::1]:6443/prefix\", insecure-skip-tls-verify: true";

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let cases = [
        (SERVER, "exec: {command: aws}", "exec: credential plugins are not supported on a node"),
        (SERVER, "auth-provider: {name: gcp}", "auth-provider: not supported"),
        (SERVER, "username: a, password: b", "username: no API server takes passwords"),
        (SERVER, "as-uid: \"1\"", "as-uid: only as and as-groups"),
        (SERVER, "client-certificate-data: eA==", "certificate and key must come together"),
        (SERVER, "client-certificate-data: \"*\", client-key-data: eA==", "the inline data is not base64"),
        ("server: \"https://a\", proxy-url: \"http://p\"", "", "proxy-url: proxies are not supported"),
        ("server: \"http://192.0.2.1\"", "", "http:// is only allowed for loopback"),
        ("server: \"a:6443\"", "", "is not an https:// URL"),
        (
            "server: \"https://a\", certificate-authority: nowhere.crt",
            "",
            "certificate-authority nowhere.crt cannot be read",
        ),
        ("server: \"https://a\", certificate-authority-data: eA==", "", "certificate-authority holds no certificate"),
        ("server: \"https://a\", certificate-authority-data: eA==, insecure-skip-tls-verify: true", "", "contradicts"),
    ];
    for (cluster, user, wanted) in cases {
        let error = KubeconfigCase::new(cluster, user).error();
        assert!(error.starts_with("kubeconfig k") && error.contains(wanted), "{cluster} {user}: {error}");
    }
}

#[test]
fn pods_get_the_servers_address_unless_it_has_a_path() {
    for (server, expected) in [
        ("https://a.example:6443", Some(("a.example", 6443))),
        ("https://[fd00::1]/", Some(("fd00::1", 443))),
        ("https://rancher.example/k8s/clusters/c-m-abc", None),
    ] {
        // Its other fields need not be good: this is asked before anything else.
        let case = KubeconfigCase::new(&format!("server: \"{server}\""), "token: abc");
        let found = endpoint(&case.folder.path().join("k")).unwrap();
        assert_eq!(found.as_ref().map(|found| (found.host.as_str(), found.port)), expected, "{server}");
        assert_eq!(case.load().unwrap().for_pods(), found, "{server}");
    }
}

#[test]
fn server_and_identity_are_read() {
    let case = KubeconfigCase::new(SERVER, "token: abc, as: me, as-groups: [a, b]");
    let credentials = case.load().unwrap();
    assert_eq!(credentials.endpoint, Endpoint { host: "fd00::1".into(), port: 6443 });
    assert_eq!(credentials.server.path(), "/prefix");
    assert_eq!(credentials.headers[AUTHORIZATION], "Bearer abc");
    assert!(credentials.headers[AUTHORIZATION].is_sensitive());
    assert_eq!(credentials.headers.get_all("impersonate-group").iter().count(), 2);
}

#[test]
fn a_rotated_token_file_is_noticed_and_needs_no_new_connection() {
    let case = KubeconfigCase::new(SERVER, "tokenFile: token, token: start");
    let before = case.load().unwrap();
    assert_eq!(before.headers[AUTHORIZATION], "Bearer start");
    fs::write(case.folder.path().join("token"), "next\n").unwrap();
    assert!(before.is_stale());
    let after = case.load().unwrap();
    assert_eq!(after.headers[AUTHORIZATION], "Bearer next");
    assert!(!after.is_stale());
    assert_eq!(before.fingerprint, after.fingerprint);
    fs::write(case.folder.path().join("token"), "\n").unwrap();
    let error = case.load().err().expect("it is being written");
    assert!(crate::node::api::words(&error).ends_with("tokenFile: the file is empty"), "{error}");
}

/// Any certificate authority.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBcjCCARegAwIBAgIUZQNb14wRzLkZ4ZLzQuxnrXqs3SswCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTIxMjAzNjIzWhgPMjEyNjEwMjgyMDM2MjNa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEndbfadYx
LiIvg3rIvDvP4mFbFpIgeWvQh0i5fIPXHCiGn9DHpUNBo6WUBmUi+LNp4O0l7MYi
wBubZzfkfD8qR6NTMFEwHQYDVR0OBBYEFMcVvsOjYH6tZqUW3xf9mmGe6bGpMB8G
A1UdIwQYMBaAFMcVvsOjYH6tZqUW3xf9mmGe6bGpMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSQAwRgIhAKBEbcgz2kvkHfPJNjP2T55dxe4iqvpjzrjeljMi
uoM1AiEAyj9iAOHNV9DRATIe9JSfvg27Y0hv4TJPB5WP5M+p+UI=
-----END CERTIFICATE-----
";

#[test]
fn the_end_of_a_client_certificate_is_read_and_nothing_else_has_one() {
    let end = |user: &str| {
        let case = KubeconfigCase::new(SERVER, user);
        fs::write(case.folder.path().join("pem"), CA).unwrap();
        certificate_end(&case.folder.path().join("k")).map(|end| end.to_string())
    };
    let inline = STANDARD.encode(CA);
    assert_eq!(end("client-certificate: pem, client-key: pem").as_deref(), Some("2126-10-28T20:36:23Z"));
    assert_eq!(end(&format!("client-certificate-data: {inline}")).as_deref(), Some("2126-10-28T20:36:23Z"));
    assert_eq!(end("token: abc"), None);
    assert_eq!(end("client-certificate: k, client-key: k"), None, "it is no certificate");
    assert_eq!(certificate_end(Path::new("/nowhere")), None);
}

#[test]
fn a_pod_has_its_server_in_the_environment_and_its_token_in_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let value = format!("in-cluster:{}", folder.path().display());
    assert_eq!(in_cluster::folder(Path::new(&value)).as_deref(), Some(folder.path()));
    let usual = in_cluster::folder(Path::new("in-cluster"));
    assert_eq!(usual.as_deref(), Some(Path::new("/var/run/secrets/kubernetes.io/serviceaccount")));
    for path in ["/in-cluster", "in-clusters", "/etc/kubeconfig"] {
        assert_eq!(in_cluster::folder(Path::new(path)), None, "{path}");
    }
    let words = |error: &KubeconfigError| crate::node::api::words(error);
    let without = in_cluster::kubeconfig(folder.path(), |_| None).err();
    let expected =
        "kubeconfig in-cluster: KUBERNETES_SERVICE_HOST: is not set: only pods have it; use a kubeconfig here";
    assert_eq!(without.as_ref().map(words).as_deref(), Some(expected));
    let load = |host: &str| {
        let of = |name: &str| Some(if name == "KUBERNETES_SERVICE_HOST" { host } else { "443" }.to_owned());
        ApiCredentials::of(Path::new("in-cluster"), in_cluster::kubeconfig(folder.path(), of)?)
    };
    let missing = load("10.0.0.1").err().as_ref().map(words).unwrap_or_default();
    assert!(missing.contains("certificate-authority") && missing.contains("ca.crt cannot be read"), "{missing}");
    fs::write(folder.path().join("ca.crt"), CA).unwrap();
    fs::write(folder.path().join("token"), "one\n").unwrap();
    let before = load("fd00::1").unwrap();
    assert_eq!(before.endpoint, Endpoint { host: "fd00::1".into(), port: 443 });
    assert_eq!(before.headers[AUTHORIZATION], "Bearer one");
    // As the kubelet renews it: another file under the same name.
    fs::write(folder.path().join("new"), "two!\n").unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("token")).unwrap();
    assert!(before.is_stale());
    let after = load("fd00::1").unwrap();
    assert_eq!(
        (&after.headers[AUTHORIZATION], after.fingerprint),
        (&"Bearer two!".parse().unwrap(), before.fingerprint)
    );
}

#[test]
fn another_server_is_another_connection() {
    let other = "server: \"https://[fd00::2]:6443\", insecure-skip-tls-verify: true";
    let (a, b) = (KubeconfigCase::new(SERVER, "").load().unwrap(), KubeconfigCase::new(other, "").load().unwrap());
    assert_ne!(a.fingerprint, b.fingerprint);
}

#[test]
fn a_fifo_or_an_endless_file_is_an_error_and_holds_nothing_up() {
    let case = KubeconfigCase::new("server: \"https://a\", certificate-authority: fifo", "token: abc");
    nix::unistd::mkfifo(&case.folder.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(case.error(), "kubeconfig k: certificate-authority fifo cannot be read: it is not a regular file");
    let user = |user: &str| KubeconfigCase::new(SERVER, user).error();
    assert!(user("tokenFile: /dev/zero").ends_with("tokenFile /dev/zero cannot be read: it is not a regular file"));
    let pair = "client-certificate: /dev/zero, client-key: /dev/zero";
    assert!(user(pair).contains("client-certificate /dev/zero cannot be read"), "{}", user(pair));
    let path = case.folder.path().join("k");
    fs::remove_file(&path).unwrap();
    fs::rename(case.folder.path().join("fifo"), &path).unwrap();
    assert_eq!(case.error(), "kubeconfig k cannot be read: it is not a regular file");
    assert!(endpoint(&path).is_err());
}
