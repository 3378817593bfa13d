//! Annotations, labels, keys and other texts.

use daemonlet::core::yaml;

use super::*;

/// What daemonlet and the kubelet read in a manifest is daemonlet's own, whatever a template says.
#[test]
fn no_annotation_or_label_of_a_template_speaks_for_the_agent_or_the_kubelet() {
    [World::new(), World::trusting()].iter().for_each(nothing_speaks_for_the_agent);
}

fn nothing_speaks_for_the_agent(world: &World) {
    let mine = "kube-system/cni";
    for name in [
        "daemonlet.dev/daemonset",
        "daemonlet.dev/incarnation",
        "daemonlet.dev/overlays-digest",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "kubernetes.io/config.hash",
        "kubernetes.io/config.seen",
    ] {
        let pointer = format!("/spec/template/metadata/annotations/{}", name.replace('/', "|"));
        match world.changed(&pointer, &json!(mine)) {
            Outcome::Refused(why) => assert!(why.contains("annotations"), "{name}: {why}"),
            Outcome::Runs(rendered) => {
                let annotations = &rendered.pod.pod["metadata"]["annotations"];
                assert_ne!(annotations[name], mine, "{name}: {annotations}");
            }
        }
    }
    let pointer = "/spec/template/metadata/labels/controller-revision-hash";
    let Outcome::Runs(rendered) = world.changed(pointer, &json!("mine")) else { panic!("it runs") };
    assert_ne!(rendered.pod.pod["metadata"]["labels"]["controller-revision-hash"], "mine");
}

/// A manifest is one document with one pod, whatever texts it has.
#[test]
fn no_text_leaves_its_place_in_a_manifest() {
    [World::new(), World::trusting()].iter().for_each(no_text_leaves_its_place);
}

fn no_text_leaves_its_place(world: &World) {
    for text in [
        "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: evil}\n",
        "x\n    hostPID: true",
        "\u{1b}]0;owned\u{7}",
        "\u{2028}\u{2029}\u{85}",
        "\u{202e}txt.exe",
        "*a",
        "&a b",
        "!!python/object/apply:os.system [x]",
        "{{ .Values.x }}",
        "<<: *x",
        "%YAML 1.2",
        "'\"`$(id)",
        "\t",
        "yes",
        "0o17",
        "1e3",
        "~",
        "null",
        "-",
        "? x",
        "# x",
        "\u{feff}x",
        "\r\nhostPID: true",
    ] {
        let object = changed("~c/args/-", &json!(text));
        let Outcome::Runs(rendered) = world.attempt(&object) else { panic!("{text:?} is refused") };
        let mut documents = yaml::read_documents(&rendered.text);
        assert_eq!(documents.len(), 1, "{text:?}");
        let pod = documents.remove(0).value.expect("YAML");
        assert_eq!(pod["spec"]["containers"][0]["args"][0], text, "{}", rendered.text);
        assert!(pod["spec"].get("hostPID").is_none(), "{}", rendered.text);
        assert!(!rendered.text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}: {:?}", rendered.text);
    }
}

#[test]
fn no_key_of_a_config_map_or_secret_is_a_path_out_of_its_volume() {
    for key in ["../x", "..", ".", "/etc/passwd", "a/b", "..data", "..2026_01_01", "x\u{0}", "", "a\nb"] {
        let mut world = World::new();
        world.put(
            Kind::ConfigMap,
            "settings",
            json!({"metadata": {"name": "settings", "namespace": "a"}, "data": {key: "x", "fine": "y"}}),
        );
        let Outcome::Runs(rendered) = world.attempt(&modest()) else { continue };
        for volume in &rendered.pod.volumes {
            for path in volume.files.keys() {
                let is_below = !path.starts_with('/')
                    && path.split('/').all(|part| !part.starts_with("..") && part != "." && !part.is_empty());
                assert!(is_below, "{key:?}: {path:?}");
            }
        }
    }
}
