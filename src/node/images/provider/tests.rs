use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::node::fsx::Real;

/// A provider that counts its calls, and whose answer is `answer`.
struct CountingProvider {
    root: tempfile::TempDir,
}

impl CountingProvider {
    fn new(config: &str, script: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        // The program is a shell: a file that was just written cannot be run while another test forks.
        let program = root.path().join("script");
        let config = config.replace("SCRIPT", &program.display().to_string());
        fs::write(root.path().join("providers.yaml"), config).unwrap();
        fs::write(&program, format!("cd {}\n{script}", root.path().display())).unwrap();
        symlink("/bin/sh", root.path().join("ask")).unwrap();
        Self { root }
    }

    fn providers(&self) -> Providers {
        Providers::new(Real::shared(), Some(&self.root.path().join("providers.yaml")), Some(self.root.path()))
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.root.path().join("calls")).map_or(0, |calls| calls.lines().count())
    }
}

const CONFIG: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ask
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ['*.cloud.test']
  defaultCacheDuration: 1h
  args: [SCRIPT, --for]
  env: [{name: REGION, value: north}]
";

fn answer(key: &str, more: &str) -> String {
    format!(
        r#"cat > request; echo "$1 $REGION" >> calls
echo '{{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
"cacheKeyType": "{key}"{more}, "auth": {{"*.cloud.test": {{"username": "u", "password": "geheim"}}}}}}'"#
    )
}

#[tokio::test]
async fn a_provider_is_asked_once_for_what_it_matches() {
    let stand = CountingProvider::new(CONFIG, &answer("Registry", ""));
    let providers = stand.providers();
    assert_eq!(providers.ask("other.test/x").await, (vec![], vec![]));
    assert_eq!(stand.calls(), 0);
    let (configs, problems) = providers.ask("a.cloud.test/x").await;
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(configs[0]["*.cloud.test"].password, "geheim");
    let request = fs::read_to_string(stand.root.path().join("request")).unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request["kind"], "CredentialProviderRequest");
    assert_eq!(request["image"], "a.cloud.test/x");
    assert_eq!(fs::read_to_string(stand.root.path().join("calls")).unwrap(), "--for north\n");
    providers.ask("a.cloud.test/y").await;
    assert_eq!(stand.calls(), 1, "the answer was for the registry");
    providers.ask("b.cloud.test/y").await;
    assert_eq!(stand.calls(), 2);
}

#[tokio::test]
async fn an_answer_of_no_duration_is_not_kept() {
    let stand = CountingProvider::new(CONFIG, &answer("Global", r#", "cacheDuration": "0s""#));
    let providers = stand.providers();
    providers.ask("a.cloud.test/x").await;
    providers.ask("a.cloud.test/x").await;
    assert_eq!(stand.calls(), 2);
}

#[tokio::test]
async fn what_goes_wrong_is_said_without_its_output() {
    for (script, said) in [
        ("echo geheim", "its answer is not JSON"),
        (
            "echo '{\"kind\": \"geheim\"}'",
            "is not a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1",
        ),
        ("echo no network >&2; exit 3", "no network"),
        (&answer("Nothing", ""), "no valid cacheKeyType"),
    ] {
        let stand = CountingProvider::new(CONFIG, script);
        let (configs, problems) = stand.providers().ask("a.cloud.test/x").await;
        assert!(configs.is_empty() && problems[0].contains(said), "{problems:?}");
        assert!(!problems[0].contains("geheim"), "{problems:?}");
    }
}

/// Whatever a provider does, the agent goes on with what it has, within its memory, and the next one is asked.
#[tokio::test]
async fn no_answer_of_a_provider_hurts_the_agent_or_another_provider() {
    let kind = "\"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\", \"kind\": \"CredentialProviderResponse\", \"cacheKeyType\": \"Image\"";
    let attempts = [
        ("endless output", "exec cat /dev/zero".to_owned(), "more than 1048576 bytes"),
        ("endless errors", "exec cat /dev/zero >&2".to_owned(), "more than 1048576 bytes"),
        ("long errors", "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1".to_owned(), "exit status: 1"),
        ("killed", "kill -9 $$".to_owned(), "signal: 9"),
        ("nothing", "exit 0".to_owned(), "its answer is not JSON"),
        ("no UTF-8", "printf '\\377\\376'".to_owned(), "its answer is not JSON"),
        ("deep", "head -c 100000 /dev/zero | tr '\\0' '['".to_owned(), "its answer is not JSON"),
        ("two answers", format!("echo '{{{kind}}} {{{kind}}}'"), "its answer is not JSON"),
        ("a list", "echo '[1, 2]'".to_owned(), "is not a CredentialProviderResponse"),
        (
            "another version",
            format!("echo '{{{}}}'", kind.replace("/v1", "/v9")),
            "is not a CredentialProviderResponse",
        ),
    ];
    for (what, script, said) in attempts {
        let stand = CountingProvider::new(CONFIG, &script);
        let (configs, problems) = stand.providers().ask("a.cloud.test/x").await;
        assert!(configs.is_empty() && problems.len() == 1 && problems[0].contains(said), "{what}: {problems:?}");
        assert!(problems[0].len() < 500, "{what}: {}", problems[0].len());
    }
    // Nonsense where the credentials would be is no credentials, or harmless ones; how long it holds has its bounds.
    for more in [
        ", \"auth\": 7",
        ", \"auth\": {\"*\": 7}",
        ", \"auth\": {\"\": {\"username\": [], \"password\": null}}",
        ", \"cacheDuration\": \"9223372036854775807h\", \"auth\": {}",
        ", \"cacheDuration\": \"-1h\", \"auth\": {}",
        ", \"cacheDuration\": 5, \"auth\": {}",
    ] {
        let stand = CountingProvider::new(CONFIG, &format!("echo '{{{kind}{more}}}'"));
        let (configs, problems) = stand.providers().ask("a.cloud.test/x").await;
        assert_eq!(problems, Vec::<String>::new(), "{more}");
        let is_empty = |it: &RegistryCredentials| it.username.is_empty() && it.password.is_empty();
        assert!(configs.iter().flat_map(|config| config.values()).all(is_empty), "{more}: {configs:?}");
    }
}

#[tokio::test]
async fn a_provider_that_needs_a_service_account_is_not_for_static_pods() {
    let config =
        format!("{CONFIG}  tokenAttributes: {{serviceAccountTokenAudience: x, requireServiceAccount: true}}\n");
    let stand = CountingProvider::new(&config, &answer("Image", ""));
    assert_eq!(stand.providers().ask("a.cloud.test/x").await, (vec![], vec![]));
    assert_eq!(stand.calls(), 0);
}

#[tokio::test]
async fn a_bad_configuration_is_said() {
    for (config, said) in [
        ("kind: Other", "its kind is not CredentialProviderConfig"),
        ("kind: CredentialProviderConfig\nproviders: [{name: ../x, apiVersion: v1}]", "is not valid"),
        ("[", "not a credential-provider configuration"),
    ] {
        let stand = CountingProvider::new(config, "");
        let (_, problems) = stand.providers().ask("a.cloud.test/x").await;
        assert!(problems[0].contains(said), "{problems:?}");
    }
}
