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
    test(&["restricted.yaml"]).is(1, "", "no DaemonSet in what was read\n");
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

#[test]
fn every_broken_rule_is_named_and_that_there_is_no_configuration() {
    let ports: Vec<String> = (1..=40).map(|port| format!("{{containerPort: {port}, hostPort: {port}}}")).collect();
    let many = daemon_set("a", "i:1").replace("{name: c,", &format!("{{name: c, ports: [{}],", ports.join(", ")));
    let scratch = Scratch::new(&[("c.toml", CONFIG), ("many.yaml", &many)]);
    let (config, file) = (scratch.text("c.toml"), scratch.text("many.yaml"));
    let ran = run(["policy", "test", "--config", &config, "-f", &file]);
    assert_eq!((ran.code, ran.out.matches("refused a/x: ").count(), ran.err.as_str()), (1, 40, ""), "{ran:?}");
    assert!(!ran.out.contains("more rules"), "{ran:?}");
    let installed = ["/etc", "/run", "/usr/lib"].iter().any(|root| {
        let exists = |name: &str| std::path::Path::new(root).join("daemonlet").join(name).exists();
        exists("daemonlet.toml") || exists("daemonlet.d")
    });
    let ran = run(["policy", "test", "-f", &file]);
    let is_noted = ran.err.starts_with("note: there is no configuration file: judged by the defaults, ");
    assert_eq!((is_noted, ran.err.lines().count()), (!installed, usize::from(!installed)), "{ran:?}");
}

/// An agent does not read it: it is bounded as the API server writes it, where each such character is six.
#[test]
fn what_no_agent_reads_is_refused_too() {
    let long = format!("{{name: c, args: [\"{}\"],", "\\u0001".repeat(100_000));
    let scratch =
        Scratch::new(&[("c.toml", CONFIG), ("long.yaml", &daemon_set("a", "i:1").replace("{name: c,", &long))]);
    let ran = run(["policy", "test", "--config", &scratch.text("c.toml"), "-f", &scratch.text("long.yaml")]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.starts_with("refused a/x: spec: has more than 524288 bytes as JSON\n  hint: "),
        "{}",
        &ran.out[..200]
    );
}

/// What the agent refuses whatever `[policy]` allows is refused here, with the words of `render`.
#[test]
fn what_no_static_pod_can_have_is_refused_too() {
    let spec = |more: &str| {
        daemon_set("a", "i:1")
            .replace("    spec:\n      containers:", &format!("    spec:\n      {more}\n      containers:"))
    };
    let volume = |source: &str| spec(&format!("volumes: [{{name: v, {source}}}]"));
    let annotation = daemon_set("a", "i:1").replace(
        "{labels: {a: b}}\n    spec",
        &format!("{{labels: {{a: b}}, annotations: {{x: {}}}}}\n    spec", "x".repeat(261_900)),
    );
    let doubled = (1..40).map(|at| format!("{{name: A{at}, value: $(A{0})$(A{0})}}", at - 1)).collect::<Vec<_>>();
    let unfolds = daemon_set("a", "i:1")
        .replace("{name: c,", &format!("{{name: c, env: [{{name: A0, value: x}}, {}],", doubled.join(", ")));
    let claim = "volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}";
    let attempts = [
        ("csi", volume("csi: {driver: d.example}"), "volumes"),
        ("claim", volume("persistentVolumeClaim: {claimName: c}"), "volumes"),
        ("ephemeral", volume(&format!("ephemeral: {{{claim}}}")), "volumes"),
        ("glusterfs", volume("glusterfs: {endpoints: e, path: p}"), "volumes"),
        ("azure", volume("azureFile: {secretName: s, shareName: s}"), "volumes"),
        ("resources", spec("resourceClaims: [{name: r, resourceClaimName: c}]"), "resourceClaims"),
        ("bundle", volume("projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}"), "clusterTrustBundle"),
        (
            "certificate",
            volume(
                "projected: {sources: [{podCertificate: {signerName: s.example/x, keyType: ED25519, credentialBundlePath: p}}]}",
            ),
            "podCertificate",
        ),
        ("annotation", annotation, "annotations"),
        ("unfolds", unfolds, "$(NAME)"),
    ];
    let trusting = CONFIG.replace("trusted-namespaces = []", "trusted-namespaces = [\"a\"]");
    let mut files = vec![("c.toml".to_owned(), CONFIG.to_owned()), ("trusting.toml".to_owned(), trusting)];
    files.extend(attempts.iter().map(|(name, text, _)| (format!("{name}.yaml"), text.clone())));
    let scratch = Scratch::new(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    for (name, _, field) in &attempts {
        let file = scratch.text(&format!("{name}.yaml"));
        for config in ["c.toml", "trusting.toml"] {
            let ran = run(["policy", "test", "--config", &scratch.text(config), "-f", &file]);
            let refusals = ran.out.matches("refused a/x: ").count();
            assert!(ran.code == 1 && refusals == 1 && ran.out.contains(field), "{name} {config}: {ran:?}");
        }
        // A file has gates that are off left out, as the API server does.
        let is_left_out = ["bundle", "certificate"].contains(name);
        let rendered = run(["render", "--node-name", "n1", "-f", &file]);
        assert_eq!(rendered.code, i32::from(!is_left_out), "{name}: {rendered:?}");
        assert_eq!(rendered.err.contains("is left out"), is_left_out, "{name}: {rendered:?}");
    }
}

#[test]
fn what_is_not_among_the_files_is_named_and_judged_once_it_is() {
    let text = daemon_set("a", "i:1")
        .replace("{name: c,", "{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}],");
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: a}}\ndata: {{k: {}}}\n",
        "x".repeat(500_000)
    );
    let config = CONFIG.replace("[policy]", "default-mode = \"static\"\n[policy]");
    let scratch = Scratch::new(&[("c.toml", &config), ("ds.yaml", &text), ("map.yaml", &map)]);
    let (config, set, map) = (scratch.text("c.toml"), scratch.text("ds.yaml"), scratch.text("map.yaml"));
    let note = "allowed a/x\n  note: not judged, as they are not among the files: ConfigMap a/m\n";
    run(["policy", "test", "--config", &config, "-f", &set]).is(0, note, "");
    let ran = run(["policy", "test", "--config", &config, "-f", &set, &map]);
    assert!(ran.code == 1 && ran.out.starts_with("refused a/x: "), "{ran:?}");
}
