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
    test(&["elsewhere.yaml"]).is(
        1,
        "refused b/x: namespace b is not among policy.namespaces\n  hint: add \"b\" to policy.namespaces\n",
        "",
    );
    let ran = test(&["good.yaml", "restricted.yaml"]);
    assert!(ran.code == 1 && ran.out.starts_with("refused a/x: namespace a: violates PodSecurity"), "{ran:?}");
    let note = "allowed a/x\n  note: this node leaves it alone: it has no label daemonlet.dev/mode, and default-mode is labelled\n";
    test(&["good.yaml"]).is(0, note, "");
    assert_eq!(test(&["broken.yaml"]).code, 3);
    assert_eq!(test(&["nowhere.yaml"]).code, 3);
}

#[test]
fn what_overlays_make_of_a_pod_is_judged_too() {
    let patched = daemon_set("a", "i:1").replace("name: x, ", "name: x, annotations: {daemonlet.dev/overlays: o}, ");
    let list = |patch: &str| {
        format!(
            "{patched}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: o, namespace: a}}\ndata:\n  \
             overlays.yaml: |\n    - {{nodes: {{}}, patch: {{spec: {patch}}}}}\n"
        )
    };
    let config = CONFIG.replace("[policy]", "default-mode = \"static\"\n[policy]");
    let (good, bad) = (list("{terminationGracePeriodSeconds: 1}"), list("{hostPID: true}"));
    let scratch =
        Scratch::new(&[("c.toml", &config), ("alone.yaml", &patched), ("good.yaml", &good), ("bad.yaml", &bad)]);
    let test = |file: &str| run(["policy", "test", "--config", &scratch.text("c.toml"), "-f", &scratch.text(file)]);
    let unread = "allowed a/x\n  note: its overlays are not judged: their ConfigMap is not among the files\n";
    test("alone.yaml").is(0, unread, "");
    test("good.yaml").is(0, "allowed a/x\n", "");
    let ran = test("bad.yaml");
    assert!(ran.code == 1 && ran.out.starts_with("refused a/x: ") && ran.out.contains("hostPID"), "{ran:?}");
    assert!(ran.out.contains(" (with ConfigMap a/o: overlays.yaml[0])\n"), "{ran:?}");
}
