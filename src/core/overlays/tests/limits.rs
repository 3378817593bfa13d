//! Lists that are too large, or make much of little.

use super::*;

#[test]
fn what_is_too_much_is_not_merged() {
    let entries = |names: &str, count: usize| (0..count).map(|n| format!("{{name: {names}{n}}}")).collect::<Vec<_>>();
    let patch = |env: &[String]| {
        let env = env.join(", ");
        format!("- nodes: {{}}\n  patch: {{spec: {{containers: [{{name: agent, env: [{env}]}}]}}}}\n")
    };
    let first = |text: &str| on("", text).refused().iter().map(ToString::to_string).next().unwrap_or_default();
    let wanted = "ConfigMap a/o: overlays.yaml: has 10006 values; at most 8192 are allowed";
    assert_eq!(first(&patch(&entries("a", 4_999))), wanted);
    let wanted = "ConfigMap a/o: overlays.yaml: has 300000 bytes; at most 262144 are allowed";
    assert_eq!(first(&" ".repeat(300_000)), wanted);
    let ports = |from: usize| {
        let ports: Vec<String> = (from..from + 65).map(|port| format!("{{containerPort: {port}}}")).collect();
        format!("- nodes: {{}}\n  patch: {{spec: {{containers: [{{name: agent, ports: [{}]}}]}}}}\n", ports.join(", "))
    };
    let two = ports(1) + &ports(1001);
    assert_eq!(
        first(&two),
        "spec.template.spec.containers[].ports: has 130 ports; at most 128 are allowed, with ConfigMap a/o: \
         overlays.yaml[1].patch"
    );
    let trusting = DaemonSet { source: Source::File { path: "/x".into() }, ..DaemonSet::clone(&daemon_set("static")) };
    let owners = resolve_on(&Arc::new(trusting), &list(&two), "", ListSource::Folder);
    assert_eq!(owners.overlays.as_ref().map(|overlays| overlays.known.clone()), Some(KnownList::Read));
}

#[test]
fn aliases_make_no_large_value_of_a_small_list_and_what_is_refused_is_not_kept() {
    let annotations = |value: &str, count: usize, alias: &str| {
        let aliases: Vec<String> = (0..count).map(|n| format!("a{n}: {alias}")).collect();
        format!("- nodes: {{}}\n  patch: {{metadata: {{annotations: {{a: &a {value}, {}}}}}}}\n", aliases.join(", "))
    };
    let of_api = |text: &str| {
        let overlays = on("", text);
        let kept: usize = overlays.patches.iter().map(|patch| bounds::object_weight(&patch.patch)).sum();
        let refusal = overlays.refused().first().map(FieldError::with_hint).unwrap_or_default();
        (refusal, kept, overlays.template.is_some())
    };
    let hint = bounds::TENANT.hint();
    for (text, wanted) in [
        (annotations(&"x".repeat(100_000), 8, "*a"), "the document unfolds to more than 262144 bytes of text"),
        (
            annotations(&format!("[{}]", "x,".repeat(1_000)), 100, "*a"),
            "the document unfolds to more than 32768 keys and values",
        ),
    ] {
        let (refusal, kept, patched) = of_api(&text);
        assert!(refusal.contains(wanted) && refusal.ends_with(&format!("(hint: {hint})")), "{refusal}");
        assert_eq!((kept, patched), (0, false), "{wanted}");
    }
    // What is within the bounds of a list may still be too much for each of many DaemonSets to keep.
    let large = |bytes: usize| annotations(&"x".repeat(bytes), 0, "");
    let (refusal, kept, patched) = of_api(&large(bounds::TENANT.patches));
    assert!(
        refusal.starts_with("ConfigMap a/o: overlays.yaml: the patches that apply to this node take "),
        "{refusal}"
    );
    assert_eq!((kept, patched), (0, false));
    let (refusal, kept, patched) = of_api(&large(bounds::TENANT.patches - 5 * bounds::VALUE));
    assert!(refusal.is_empty() && patched && (1..=bounds::TENANT.patches).contains(&kept), "{refusal}");
    let elsewhere = large(bounds::TENANT.patches).replace("nodes: {}", "nodes: {matchLabels: {a: b}}");
    assert_eq!(of_api(&elsewhere).0, "", "it does not apply here");
    let owners = DaemonSet { source: Source::File { path: "/x".into() }, ..DaemonSet::clone(&daemon_set("static")) };
    let owners = resolve_on(&Arc::new(owners), &list(&large(bounds::TENANT.patches)), "", ListSource::Folder);
    assert_eq!(owners.overlays.as_ref().map(|overlays| overlays.known.clone()), Some(KnownList::Read));
    // Nor is what cannot be merged, nor a reason for each of many fields.
    let unmergeable = "- {nodes: {}, patch: {spec: {containers: [{name: other, image: x}]}}}\n";
    let overlays = on("", unmergeable);
    assert_eq!((overlays.refused().len(), overlays.patches.len(), overlays.digest.len()), (1, 0, DIGEST));
    let many: Vec<String> = (0..1_000).map(|n| format!("f{n}: 1")).collect();
    let refused = on("", &format!("- {{nodes: {{}}, patch: {{spec: {{{}}}}}}}\n", many.join(", ")));
    assert_eq!(refused.refused().len(), MOST_KEPT + 1);
    assert_eq!(refused.refused()[MOST_KEPT].to_string(), "overlays.yaml: has 988 more errors");
}
