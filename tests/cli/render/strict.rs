//! What daemonlet does not understand, and what strict rendering refuses.

use super::*;

#[test]
fn what_is_not_understood_is_named_with_a_suggestion_and_rendered_all_the_same() {
    let text = GOOD
        .replacen("kube-system}", "kube-system, annotations: {daemonlet.dev/progres-deadline: 1m}}", 1)
        .replacen("    spec:\n", "    spec:\n      hostNetwrok: true\n", 1);
    assert_eq!(text.lines().count(), GOOD.lines().count() + 1, "{text}");
    let scratch = Scratch::new(&[("a.yaml", &text)]);
    let file = scratch.text("a.yaml");
    let rendered = run(["render", "--node-name", "n1", "-f", &file]);
    assert_eq!(rendered.code, 0, "a doubt is no refusal: {rendered:?}");
    let warnings = format!(
        "  warning: {file}:1: spec.template.spec.hostNetwrok: unknown field: Kubernetes 1.36 does not have it\n  \
         hint: did you mean hostNetwork?\n  \
         warning: {file}: metadata.annotations[daemonlet.dev/progres-deadline]: unknown annotation; nothing is rolled out\n  \
         hint: did you mean daemonlet.dev/progress-deadline?\n"
    );
    assert!(rendered.err.ends_with(&warnings), "{}", rendered.err);
    assert!(rendered.out.contains("hostNetwrok: true"), "any unknown field stays as it is");
    let json = run(["render", "--json", "--node-name", "n1", "-f", &file]).json();
    assert_eq!(json["outcomes"][0]["warnings"].as_array().unwrap().len(), 2, "{json}");
    let good = Scratch::new(&[("a.yaml", GOOD)]);
    let json = run(["render", "--json", "--node-name", "n1", "-f", &good.text("a.yaml")]).json();
    assert_eq!(json["outcomes"][0].get("warnings"), None);
}

#[test]
fn strict_says_what_it_refuses() {
    let scratch = Scratch::new(&[("a.yaml", GOOD)]);
    let arguments = ["render", "--node-name", "n1", "-f", &scratch.text("a.yaml"), "-o", &scratch.text("out")];
    assert_eq!(run(arguments).code, 0);
    let strict = run(arguments.iter().chain(&["--strict"]));
    assert_eq!(
        (strict.code, strict.err.as_str()),
        (
            1,
            "error: kube-system/cni waits for ConfigMap kube-system/cni, which --strict refuses\n\
             hint: give the ConfigMap with -f, or leave out --strict\n"
        )
    );
}

#[test]
fn strict_refuses_annotations_and_labels_that_are_not_understood() {
    let good = GOOD.replace("configMap: {name: cni}", "emptyDir: {}");
    let strict = |metadata: &str| {
        let text = good.replacen("kube-system}", &format!("kube-system, {metadata}}}"), 1);
        let scratch = Scratch::new(&[("a.yaml", &text)]);
        let file = scratch.text("a.yaml");
        let rendered = run(["render", "--node-name", "n1", "--strict", "-o", &scratch.text("out"), "-f", &file]);
        (rendered.code, rendered.err.replace(&file, "FILE"))
    };
    for (metadata, reason, hint) in [
        (
            "annotations: {daemonlet.dev/partiton: '1'}",
            "metadata.annotations[daemonlet.dev/partiton]: unknown annotation; nothing is rolled out",
            "did you mean daemonlet.dev/partition?",
        ),
        (
            "annotations: {daemonlet.dev/coordination: all}",
            "metadata.annotations[daemonlet.dev/coordination]: \"all\" is not none; it changes by approval alone",
            "write none",
        ),
    ] {
        let said = format!("error: kube-system/cni: FILE: {reason}, which --strict refuses\nhint: {hint}\n");
        assert_eq!(strict(metadata), (1, said));
    }
    let advice = "annotations: {daemonlet.dev/canary-hold: 1m}";
    assert_eq!(strict(advice), (0, String::new()), "what is understood and has no effect is no mistake");
}

#[test]
fn an_override_that_is_not_understood_on_another_object_is_named_and_strict_refuses_it() {
    for (annotation, reason, hint) in [
        (
            "daemonlet.dev/override: 'yes'",
            "metadata.annotations[daemonlet.dev/override]: \"yes\" is not true; what the API server last said counts before a folder's",
            "write true",
        ),
        (
            "daemonlet.dev/overide: 'true'",
            "metadata.annotations[daemonlet.dev/overide]: it has no meaning on a ConfigMap",
            "did you mean daemonlet.dev/override?",
        ),
    ] {
        let annotated = format!("kube-system, annotations: {{{annotation}}}}}");
        let object = CONFIG_MAP.replacen("kube-system}", &annotated, 1);
        let scratch = Scratch::new(&[("a.yaml", GOOD), ("c.yaml", &object)]);
        let (folder, out, file) = (scratch.text(""), scratch.text("out"), scratch.text("c.yaml"));
        let arguments = ["render", "--node-name", "n1", "-f", &folder];
        let lax = run(arguments.iter().chain(&["-o", &out]));
        let said = format!("  warning: {file}: ConfigMap kube-system/cni: {reason}\n  hint: {hint}\n");
        assert!(lax.code == 0 && lax.out.ends_with(&said), "{lax:?}");
        let json = run(arguments.iter().chain(&["--json"])).json();
        assert_eq!(json["outcomes"][0]["warnings"].as_array().map(Vec::len), Some(1), "{json}");
        let strict = run(arguments.iter().chain(&["-o", &out, "--strict"]));
        let said =
            format!("error: ConfigMap kube-system/cni: {file}: {reason}, which --strict refuses\nhint: {hint}\n");
        assert_eq!((strict.code, strict.err), (1, said));
    }
}

#[test]
fn strict_refuses_no_token_and_no_certificates_which_only_a_cluster_has() {
    let of_account = GOOD
        .replace("      automountServiceAccountToken: false\n", "")
        .replace("configMap: {name: cni}", "emptyDir: {}");
    let objects = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: kube-system}}\n---\n\
                   {apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default}, spec: {clusterIP: 10.0.0.1, ports: [{name: https, port: 443}]}}\n";
    let of_host = of_account.replace("    spec:\n", "    spec:\n      hostNetwork: true\n");
    let scratch = Scratch::new(&[("a.yaml", &of_account), ("b.yaml", &of_host), ("objects.yaml", objects)]);
    let strict = |file: &str, more: &[&str]| {
        let files = [scratch.text(file), scratch.text("objects.yaml")];
        run(["render", "--node-name", "n1", "--strict", "-f", &files[0], &files[1]].iter().chain(more))
    };
    let rendered = strict("a.yaml", &[]);
    assert_eq!(rendered.code, 0, "{rendered:?}");
    let waits = "waits for ConfigMap kube-system/kube-root-ca.crt, ServiceAccountToken kube-system/default";
    assert!(rendered.err.contains(waits), "{rendered:?}");
    let refused = strict("b.yaml", &[]);
    assert!(
        refused.code == 1 && refused.err.contains("hint: give --api-endpoint, or leave out --strict"),
        "{refused:?}"
    );
    assert_eq!(strict("b.yaml", &["--api-endpoint", "10.0.0.9:6443"]).code, 0);
}

#[test]
fn strict_refuses_what_is_there_twice() {
    let scratch = Scratch::new(&[
        ("a.yaml", &GOOD.replace("configMap: {name: cni}", "emptyDir: {}")),
        ("b.yaml", &GOOD.replace("configMap: {name: cni}", "emptyDir: {}")),
        ("d.yaml", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\n"),
        ("e.yaml", "apiVersion: example.org/v1\nkind: DaemonSets\nmetadata: {name: s}\n"),
    ]);
    let folder = scratch.text("");
    let arguments = ["render", "--json", "--node-name", "n1", "-f", &folder];
    assert_eq!(run(arguments).code, 0);
    let strict = run(arguments.iter().chain(&["--strict"]));
    assert_eq!(strict.code, 1);
    let [a, b] = ["a.yaml", "b.yaml"].map(|name| scratch.text(name));
    let twice = format!("DaemonSet kube-system/cni is there twice, in {a} and in {b}, which --strict refuses");
    assert_eq!(strict.json()["problems"], json!([{"reason": twice, "hint": "the last one counts; remove the other"}]));
    assert!(strict.err.contains(&twice), "{}", strict.err);
}

#[test]
fn strict_refuses_a_daemonset_of_an_api_version_that_is_gone() {
    let good = GOOD.replace("configMap: {name: cni}", "emptyDir: {}");
    for (version, code) in [("apps/v1", 0), ("apps/v1beta2", 1), ("extensions/v1beta1", 1)] {
        let scratch = Scratch::new(&[("a.yaml", &good.replace("apps/v1", version))]);
        let arguments = ["render", "--json", "--node-name", "n1", "-f", &scratch.text("a.yaml")];
        assert_eq!(run(arguments).code, 0, "{version}");
        let strict = run(arguments.iter().chain(&["--strict"]));
        assert_eq!(strict.code, code, "{version}: {strict:?}");
        let reason = format!(" has apiVersion {version}, removed in Kubernetes 1.16, which --strict refuses\n");
        assert_eq!(strict.err.contains(&reason) && strict.err.contains("hint: write `apiVersion: apps/v1`"), code == 1);
    }
}

#[test]
fn a_kind_that_looks_misspelt_is_refused_with_and_without_strict() {
    let scratch = Scratch::new(&[("c.yaml", &GOOD.replace("kind: DaemonSet", "kind: DeamonSet"))]);
    let rendered = run(["render", "--node-name", "n1", "-f", &scratch.text("")]);
    assert_eq!(rendered.code, 1);
    assert!(rendered.err.contains("kind: apps/v1 has no kind \"DeamonSet\""), "{}", rendered.err);
    assert!(rendered.err.contains("write `apiVersion: apps/v1, kind: DaemonSet`"), "{}", rendered.err);
}

#[test]
fn the_kubelet_that_is_rendered_for_can_be_said() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: kube-system}\nstringData: {k: v}\n";
    let text = GOOD.replace("configMap: {name: cni}", "emptyDir: {}").replace(
        "        volumeMounts",
        "        env: [{name: K, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n        volumeMounts",
    );
    let scratch = Scratch::new(&[("a.yaml", &text), ("b.yaml", secret)]);
    let render = |version: &str| {
        run(["render", "--json", "--node-name", "n1", "-f", &scratch.text(""), "--kubelet-version", version])
    };
    let newer = render("v1.35.2");
    assert_eq!((newer.code, &newer.json()["kubeletVersion"]), (0, &json!("1.35")), "{newer:?}");
    let older = render("1.33");
    assert_eq!((older.code, &older.json()["kubeletVersion"]), (1, &json!("1.33")), "{older:?}");
    assert_eq!(older.json()["outcomes"][0]["outcome"], "refused");
    assert!(render("new").err.contains("expected a version such as v1.35.2, not \"new\""));
    assert_eq!(older.err, "note: kubelet 1.33 is not supported: 1.34 is the oldest that daemonlet is tested with\n");
    assert_eq!(render("1.34").err, "", "it is");
    let newest = "note: kubelet 1.99 is not tested: 1.36 is the newest that daemonlet is tested with\n";
    assert_eq!((render("v1.99.0").err.as_str(), render("v1.36.9").err.as_str()), (newest, ""));
}

#[test]
fn strict_refuses_what_is_no_file_in_a_folder_but_a_mask() {
    let scratch = Scratch::new(&[("in/a.yaml", GOOD), ("in/b.yaml", CONFIG_MAP), ("in/deep.yaml/c.yaml", "")]);
    std::os::unix::fs::symlink("/dev/null", scratch.path("in/masked.yaml")).unwrap();
    let render = || run(["render", "--strict", "--node-name", "n1", "-f", &scratch.text("in")]);
    assert_eq!(render().code, 0, "{:?}", render());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.text("in/s.yaml")).unwrap();
    let said = format!("error: {}: it is not a regular file, which --strict refuses\n", scratch.text("in/s.yaml"));
    assert!(render().code == 1 && render().err.contains(&said), "{:?}", render());
}

#[test]
fn strict_refuses_a_kubelet_that_is_too_old_whoever_names_it() {
    let old = node("{role: edge}") + "status: {nodeInfo: {kubeletVersion: v1.33.9}}\n";
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("b.yaml", CONFIG_MAP), ("old.yaml", &old)]);
    let (a, b, old) = (scratch.text("a.yaml"), scratch.text("b.yaml"), scratch.text("old.yaml"));
    let strict = run(["render", "--json", "--strict", "-f", &a, &b, "--node", &old]);
    let reason =
        "kubelet 1.33 is not supported: 1.34 is the oldest that daemonlet is tested with, which --strict refuses";
    let problems = json!([{"reason": reason, "hint": null}]);
    assert_eq!((strict.code, &strict.json()["problems"]), (1, &problems), "{strict:?}");
    assert_eq!(strict.err, format!("error: {reason}\n"));
}

#[test]
fn strict_refuses_a_node_for_which_nothing_is() {
    let both = [("a.yaml", GOOD), ("b.yaml", CONFIG_MAP)];
    let scratch = Scratch::new(&both);
    scratch.write("core.yaml", &node("{role: core}"));
    let [a, b, core] = ["a.yaml", "b.yaml", "core.yaml"].map(|name| scratch.text(name));
    let arguments = ["render", "-f", &a, &b, "--node", &core];
    assert_eq!(run(arguments).code, 0);
    let strict = run(arguments.iter().chain(&["--strict"]));
    let words = "no DaemonSet is for the node n1, which --strict refuses\nhint: give a Node";
    assert!(strict.code == 1 && strict.err.contains(words), "{strict:?}");
}
