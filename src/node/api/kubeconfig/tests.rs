use super::*;

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(cluster: &str, user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        fs::write(folder.path().join("k"), text).unwrap();
        Self { folder }
    }

    fn load(&self) -> Result<Credentials, KubeconfigError> {
        Credentials::load(&self.folder.path().join("k"))
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
        (SERVER, "exec: {command: aws}", "exec: credential plugins are not run on a node"),
        (SERVER, "auth-provider: {name: gcp}", "auth-provider: not supported"),
        (SERVER, "username: a, password: b", "username: no API server takes passwords"),
        (SERVER, "as-uid: \"1\"", "as-uid: only as and as-groups"),
        (SERVER, "client-certificate-data: eA==", "certificate and key must come together"),
        (SERVER, "client-certificate-data: \"*\", client-key-data: eA==", "the inline data is not base64"),
        ("server: \"https://a\", proxy-url: \"http://p\"", "", "proxy-url: proxies are not supported"),
        ("server: \"http://192.0.2.1\"", "", "http:// is only taken for loopback"),
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
        let error = Case::new(cluster, user).error();
        assert!(error.starts_with("kubeconfig k") && error.contains(wanted), "{cluster} {user}: {error}");
    }
}

#[test]
fn server_and_identity_are_read() {
    let case = Case::new(SERVER, "token: abc, as: me, as-groups: [a, b]");
    let credentials = case.load().unwrap();
    assert_eq!(credentials.endpoint, Endpoint { host: "fd00::1".into(), port: 6443 });
    assert_eq!(credentials.server.path(), "/prefix");
    assert_eq!(credentials.headers[AUTHORIZATION], "Bearer abc");
    assert!(credentials.headers[AUTHORIZATION].is_sensitive());
    assert_eq!(credentials.headers.get_all("impersonate-group").iter().count(), 2);
}

#[test]
fn a_rotated_token_file_is_noticed_and_needs_no_new_connection() {
    let case = Case::new(SERVER, "tokenFile: token, token: start");
    let before = case.load().unwrap();
    assert_eq!(before.headers[AUTHORIZATION], "Bearer start");
    fs::write(case.folder.path().join("token"), "next\n").unwrap();
    assert!(before.is_stale());
    let after = case.load().unwrap();
    assert_eq!(after.headers[AUTHORIZATION], "Bearer next");
    assert!(!after.is_stale());
    assert_eq!(before.fingerprint, after.fingerprint);
}

#[test]
fn another_server_is_another_connection() {
    let other = "server: \"https://[fd00::2]:6443\", insecure-skip-tls-verify: true";
    let (a, b) = (Case::new(SERVER, "").load().unwrap(), Case::new(other, "").load().unwrap());
    assert_ne!(a.fingerprint, b.fingerprint);
}
