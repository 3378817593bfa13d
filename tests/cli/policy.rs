//! `policy test`: verdicts, hints and exit codes.

use crate::Scratch;
use crate::run;

const CONFIG: &str = "node-name = \"n1\"\n[policy]\nnamespaces = [\"a\"]\ntrusted-namespaces = []\n";

fn daemon_set(namespace: &str, image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: x, namespace: {namespace}}}\nspec:\n  \
         selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers:\n      \
         - {{name: c, image: {image:?}, resources: {{limits: {{memory: 1Mi}}}}, securityContext: {{readOnlyRootFilesystem: true}}}}\n"
    )
}

#[test]
fn verdicts_say_what_grants_it() {
    let restricted = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n";
    let files = [
        ("c.toml", CONFIG.to_owned()),
        ("good.yaml", daemon_set("a", "i:1")),
        ("elsewhere.yaml", daemon_set("b", "i:1")),
        ("restricted.yaml", restricted.to_owned()),
        ("broken.yaml", "kind: [".to_owned()),
    ];
    let scratch = Scratch::new(&files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let config = scratch.text("c.toml");
    let test = |files: &[&str]| {
        let files: Vec<String> = files.iter().map(|name| scratch.text(name)).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        run([&["policy", "test", "--config", &config, "-f"], &files[..]].concat())
    };
    test(&["good.yaml"]).is(0, "allowed a/x\n", "");
    test(&["elsewhere.yaml"]).is(
        1,
        "refused b/x: namespace b is not among policy.namespaces\n  hint: add \"b\" to policy.namespaces\n",
        "",
    );
    let ran = test(&["good.yaml", "restricted.yaml"]);
    assert!(ran.code == 1 && ran.out.starts_with("refused a/x: namespace a: violates PodSecurity"), "{ran:?}");
    assert_eq!(test(&["broken.yaml"]).code, 3);
    assert_eq!(test(&["nowhere.yaml"]).code, 3);
}
