//! `daemonlet generate rbac`: rights by the names of what DaemonSets use.

use crate::Scratch;
use crate::run;

const FILE: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: net, namespace: kube-system}
spec:
  selector: {matchLabels: {app: net}}
  template:
    metadata: {labels: {app: net}}
    spec:
      serviceAccountName: net
      imagePullSecrets: [{name: registry}]
      initContainers:
      - {name: init, image: a, env: [{name: A, valueFrom: {configMapKeyRef: {name: mode, key: a}}}]}
      containers:
      - name: a
        image: a
        envFrom: [{secretRef: {name: keys}}]
        volumeMounts: [{name: all, mountPath: /all}, {name: tls, mountPath: /tls}]
      volumes:
      - name: all
        projected: {sources: [{configMap: {name: settings}}, {secret: {name: more}}, {serviceAccountToken: {path: t}}]}
      - {name: tls, secret: {secretName: tls, optional: true}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plain, namespace: other}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: a, image: a}]
";

#[test]
fn everything_that_is_referred_to_is_named_and_nothing_else() {
    let scratch = Scratch::new(&[("all.yaml", FILE)]);
    let run = run(["generate", "rbac", "-f", &scratch.text("all.yaml")]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let documents: Vec<serde_json::Value> =
        daemonlet::core::yaml::read_documents(&run.out).into_iter().map(|document| document.value.unwrap()).collect();
    let kinds: Vec<_> =
        documents.iter().map(|d| (d["kind"].as_str().unwrap(), d["metadata"]["namespace"].as_str().unwrap())).collect();
    let wanted = [("Role", "kube-system"), ("RoleBinding", "kube-system"), ("Role", "other"), ("RoleBinding", "other")];
    assert_eq!(kinds, wanted);
    assert_eq!(documents[0]["metadata"]["name"], "daemonlet:daemon:net");
    let rules: Vec<String> = documents[0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| format!("{} {} {}", rule["resources"][0], rule["resourceNames"], rule["verbs"][0]).replace('"', ""))
        .collect();
    assert_eq!(
        rules,
        [
            "configmaps [mode,settings] get",
            "secrets [keys,more,registry,tls] get",
            "serviceaccounts [net] get",
            "serviceaccounts/token [net] create",
        ]
    );
    assert_eq!(documents[1]["subjects"][0]["name"], "daemonlet:nodes");
    // Its account is looked at for what a pod inherits, and no token of it is asked for.
    assert_eq!(documents[2]["rules"].as_array().unwrap().len(), 1, "{}", documents[2]);
}

#[test]
fn what_cannot_be_read_or_run_is_said() {
    let bad = FILE.replace("secret: {secretName: tls, optional: true}", "persistentVolumeClaim: {claimName: data}");
    let scratch = Scratch::new(&[("bad.yaml", &bad), ("none.yaml", "kind: DaemonSet\napiVersion: apps/v1\n")]);
    let refused = run(["generate", "rbac", "-f", &scratch.text("bad.yaml")]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("refused kube-system/net (") && !refused.out.contains("daemonlet:daemon:net"),
        "{}",
        refused.err
    );
    let invalid = run(["generate", "rbac", "-f", &scratch.text("none.yaml"), &scratch.text("missing.yaml")]);
    assert_eq!(invalid.code, 3);
    assert!(invalid.err.contains("missing.yaml: cannot be read"), "{}", invalid.err);
    // As `render` has it: what validation refuses is refused, what is no document is invalid.
    scratch.write("labels.yaml", &FILE.replace("matchLabels: {app: net}", "matchLabels: {app: other}"));
    scratch.write("syntax.yaml", "a: [\n");
    for (file, code, word) in [("labels.yaml", 1, "refused kube-system/net ("), ("syntax.yaml", 3, "invalid ")] {
        for command in [["generate", "rbac"].as_slice(), &["render", "--node-name", "n1"]] {
            let run = run(command.iter().copied().chain(["-f", &scratch.text(file)]));
            assert_eq!(run.code, code, "{command:?} {run:?}");
            assert!(run.err.contains(word), "{command:?} {run:?}");
        }
    }
    scratch.write("below/only/all.yaml", FILE);
    let hint = "hint: of a folder only its own *.yaml, *.yml and *.json are read, not its subfolders\n";
    let nothing = format!("no DaemonSet in what was read\n{hint}");
    run(["generate", "rbac", "-f", &scratch.text("below")]).is(1, "", &nothing);
}

#[test]
fn overlays_are_applied_together_and_what_is_refused_of_them_is_said() {
    let file = FILE.replace(
        "{name: net, namespace: kube-system}",
        "{name: net, namespace: kube-system, annotations: {daemonlet.dev/overlays: o}}",
    );
    let list = |text: &str| {
        format!(
            "{file}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: o, namespace: kube-system}}\ndata:\n  overlays.yaml: |\n{text}"
        )
    };
    let volume = "    - {nodes: {}, patch: {spec: {volumes: [{name: v, configMap: {name: of-one}}]}}}\n";
    let mount = "    - {nodes: {}, patch: {spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}], env: [{name: E, valueFrom: {secretKeyRef: {name: of-two, key: k}}}]}]}}}\n";
    let scratch = Scratch::new(&[("all.yaml", &list(&format!("{volume}{mount}")))]);
    let all = run(["generate", "rbac", "-f", &scratch.text("all.yaml")]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    assert!(all.out.contains("of-one") && all.out.contains("of-two"), "the second needs the first: {}", all.out);
    scratch.write("bad.yaml", &list(&mount.replace("{name: a,", "{name: b,")));
    let refused = run(["generate", "rbac", "-f", &scratch.text("bad.yaml")]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("the template has no container b in containers"), "{}", refused.err);
}

#[test]
fn enrolling_says_what_it_needs() {
    let scratch = Scratch::new(&[("c.toml", "node-name = \"n1\"\nmanifest-dir = \"/x\"\nruntime-endpoint = \"\"\n")]);
    let config = std::fs::read_to_string(scratch.path("c.toml")).unwrap();
    let (state, kubeconfig) = (scratch.text("state"), scratch.text("kubeconfig"));
    scratch.write("c.toml", &format!("state-dir = \"{state}\"\nkubeconfig = \"{kubeconfig}\"\n{config}"));
    let none = run(["enroll", "--config", &scratch.text("c.toml"), "--from", "/nowhere/kubelet.conf"]);
    assert_eq!(none.code, 3);
    let absent = "error: no kubeconfig to ask with: /nowhere/kubelet.conf does not exist\nhint: ";
    assert!(none.err.starts_with(absent), "{}", none.err);
    scratch.write("kubelet.conf", "apiVersion: v1\nkind: Config\n");
    scratch.write("d.toml", &format!("state-dir = \"{state}/in/the/way\"\nkubeconfig = \"{kubeconfig}\"\n{config}"));
    std::fs::remove_dir_all(&state).unwrap();
    scratch.write("state", "a file");
    let unkept = run(["enroll", "--config", &scratch.text("d.toml"), "--from", &scratch.text("kubelet.conf")]);
    assert!(unkept.code == 3 && unkept.err.contains("error: identity cannot be kept: "), "{unkept:?}");
    std::fs::remove_file(&state).unwrap();
    scratch.write("kubeconfig", "apiVersion: v1\nkind: Config\n");
    let taken = run(["enroll", "--config", &scratch.text("c.toml")]);
    assert!(taken.err.contains("exists and was not made by daemonlet"), "{}", taken.err);
    let hint = "\nhint: set the key kubeconfig to a file that does not exist yet, such as /etc/daemonlet/kubeconfig\n";
    assert!(taken.err.ends_with(hint), "{}", taken.err);
    assert_eq!(std::fs::read_to_string(scratch.path("kubeconfig")).unwrap(), "apiVersion: v1\nkind: Config\n");
}
