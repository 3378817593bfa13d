//! `render`: outcomes, exit codes, JSON, and the folder it leaves.

use std::fs;

use serde_json::json;

use crate::Scratch;
use crate::names;
use crate::run;
use crate::run_with_input;

mod strict;

const GOOD: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cni, namespace: kube-system}
spec:
  selector: {matchLabels: {app: cni}}
  template:
    metadata: {labels: {app: cni}}
    spec:
      automountServiceAccountToken: false
      nodeSelector: {role: edge}
      containers:
      - name: c
        image: example.invalid/cni:1
        volumeMounts: [{name: config, mountPath: /config}]
      volumes:
      - name: config
        configMap: {name: cni}
";
const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: cni, namespace: kube-system}
data: {conflist: '{}'}
";
const CLAIM: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: claims, namespace: kube-system}
spec:
  selector: {matchLabels: {app: claims}}
  template:
    metadata: {labels: {app: claims}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: c, image: 'example.invalid/c:1'}]
      volumes: [{name: v, persistentVolumeClaim: {claimName: v}}]
";

fn node(labels: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n1, labels: {labels}}}\n")
}

#[test]
fn the_stream_is_data_and_the_lines_are_not() {
    let scratch = Scratch::new(&[("in/a.yaml", GOOD), ("in/b.yml", CONFIG_MAP), ("in/README.md", "not: [read")]);
    let run = run(["render", "--node-name", "n1", "-f", &scratch.text("in")]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.starts_with("---\n# Written by daemonlet from the DaemonSet kube-system/cni, "), "{}", run.out);
    assert!(run.out.contains("\nkind: Pod\n"));
    let name = run.err.strip_prefix("rendered kube-system/cni: kube-system_cni-").unwrap();
    assert!(name.ends_with(".yaml\n") && name.len() == "12345.yaml\n".len(), "{name}");
    assert_eq!(crate::run(["render", "--node-name", "n1", "-f", &scratch.text("in")]).out, run.out);
}

#[test]
fn the_json_is_the_contracts() {
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("b.yaml", CLAIM), ("c.yaml", "kind: [\n")]);
    let files: Vec<String> = ["a.yaml", "b.yaml", "c.yaml"].iter().map(|name| scratch.text(name)).collect();
    let mut arguments = vec!["render", "--json", "--node-name", "n1", "-f"];
    arguments.extend(files.iter().map(String::as_str));
    let run = run(&arguments);
    assert_eq!((run.code, run.err.as_str()), (3, ""), "the highest code wins");
    let json = run.json();
    assert_eq!((&json["schemaVersion"], &json["nodeName"]), (&json!(1), &json!("n1")));
    let entries = json["outcomes"].as_array().unwrap();
    assert_eq!(entries.len(), 3);

    let refused = &entries[0];
    assert_eq!((&refused["name"], &refused["outcome"]), (&json!("claims"), &json!("refused")));
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.starts_with("spec.template.spec.volumes[0].persistentVolumeClaim"), "{reason}");

    let rendered = entries[1].as_object().unwrap();
    let keys: Vec<&str> = rendered.keys().map(String::as_str).collect();
    assert_eq!(keys, ["manifest", "name", "namespace", "outcome", "pod", "reason", "uid", "waitingFor"]);
    assert_eq!((&rendered["outcome"], &rendered["reason"]), (&json!("rendered"), &json!("")));
    assert!(rendered["manifest"].as_str().unwrap().contains(rendered["uid"].as_str().unwrap()));
    assert!(rendered["pod"].as_str().unwrap().starts_with("cni-"));
    let waiting = json!([{"kind": "ConfigMap", "namespace": "kube-system", "name": "cni", "key": ""}]);
    assert_eq!(rendered["waitingFor"], waiting);

    let invalid = entries[2].as_object().unwrap();
    let keys: Vec<&str> = invalid.keys().map(String::as_str).collect();
    assert_eq!(keys, ["column", "file", "line", "outcome", "reason"]);
    assert_eq!((&invalid["outcome"], &invalid["file"]), (&json!("invalid"), &json!(files[2])));
    assert!(invalid["line"].as_u64() > Some(0) && !invalid["reason"].as_str().unwrap().is_empty());
}

#[test]
fn exit_codes() {
    let scratch = Scratch::new(&[
        ("good/a.yaml", GOOD),
        ("good/b.yaml", CONFIG_MAP),
        ("waiting.yaml", GOOD),
        ("refused.yaml", CLAIM),
        ("wrong.yaml", &GOOD.replace("app: cni}}\n  template", "app: other}}\n  template")),
        ("slip.yaml", &GOOD.replace("kind: DaemonSet", "kind: Daemonset")),
        ("invalid.yaml", "kind: [\n"),
        ("bad-object.yaml", &CONFIG_MAP.replace("conflist: '{}'", "conflist: [1]")),
    ]);
    for (arguments, code) in [
        (vec!["good"], 0),
        (vec!["waiting.yaml"], 0),
        (vec!["waiting.yaml", "--strict"], 1),
        (vec!["good", "--strict"], 0),
        (vec!["good/b.yaml"], 0),
        (vec!["good/b.yaml", "--strict"], 1),
        (vec!["slip.yaml"], 1),
        (vec!["good", "refused.yaml"], 1),
        (vec!["wrong.yaml"], 1),
        (vec!["invalid.yaml"], 3),
        (vec!["bad-object.yaml"], 3),
        (vec!["missing.yaml"], 3),
        (vec!["refused.yaml", "missing.yaml", "good"], 3),
    ] {
        let mut all = vec!["render".to_owned(), "--node-name".to_owned(), "n1".to_owned()];
        for argument in &arguments {
            if argument.starts_with("--") {
                all.push((*argument).to_owned());
            } else {
                all.extend(["-f".to_owned(), scratch.text(argument)]);
            }
        }
        let run = run(all);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.err);
    }
}

#[test]
fn a_path_that_cannot_be_read_is_named_and_the_others_are_rendered() {
    let scratch = Scratch::new(&[("a.yaml", CONFIG_MAP)]);
    let missing = scratch.text("missing.yaml");
    let run = run(["render", "-f", &missing, &scratch.text("a.yaml")]);
    run.is(3, "", &format!("error: {missing}: cannot be read: no such file or directory\n"));
}

#[test]
fn what_is_no_file_in_a_folder_is_passed_over() {
    let scratch = Scratch::new(&[("in/a.yaml", CONFIG_MAP)]);
    let _socket = std::os::unix::net::UnixListener::bind(scratch.text("in/b.yaml")).unwrap();
    let hint = "hint: of a folder only its own *.yaml, *.yml and *.json are read, not its subfolders\n";
    run(["render", "-f", &scratch.text("in")]).is(0, "", &format!("no DaemonSet in what was read\n{hint}"));
    run(["render", "-f", &scratch.text("in/a.yaml")]).is(0, "", "no DaemonSet in what was read\n");
}

#[test]
fn what_has_no_end_is_not_read_to_its_end_and_a_pipe_is() {
    let endless = run(["render", "--node-name", "n1", "-f", "/dev/zero"]);
    endless.is(3, "", "error: /dev/zero: cannot be read: it is longer than 10 MiB\n");
    let piped = run_with_input(["render", "--node-name", "n1", "-f", "/dev/stdin"], GOOD);
    assert!(piped.code == 0 && piped.err.starts_with("rendered kube-system/cni: "), "{piped:?}");
}

#[test]
fn a_refusal_names_file_field_reason_and_what_to_do() {
    let scratch = Scratch::new(&[("a.yaml", CLAIM)]);
    let file = scratch.text("a.yaml");
    let run = run(["render", "--node-name", "n1", "-f", &file]);
    let mut lines = run.err.lines();
    let line = lines.next().unwrap();
    let start = format!("refused kube-system/claims ({file}): spec.template.spec.volumes[0]");
    assert!(line.starts_with(&start), "{line}");
    assert!(lines.next().unwrap().starts_with("  hint: "), "{}", run.err);
    assert_eq!(run.out, "");
}

#[test]
fn standard_input_is_read_and_named() {
    let run = run_with_input(["render", "--node-name", "n1", "-f", "-"], GOOD);
    assert_eq!(run.code, 0);
    assert!(run.out.contains("kind: Pod"));
    let run = run_with_input(["render", "-f", "-", "--json"], "a: [\n");
    assert_eq!((run.code, &run.json()["outcomes"][0]["file"]), (3, &json!("<stdin>")));
}

#[test]
fn an_output_that_names_no_folder_is_a_format() {
    let scratch = Scratch::new(&[("a.yaml", GOOD)]);
    let file = scratch.text("a.yaml");
    let rendered = |more: &[&str]| {
        let mut command = crate::program();
        command.args(["render", "--node-name", "n1", "-f", &file]).args(more).current_dir(scratch.path(""));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let plain = rendered(&[]);
    assert!(plain.0 == Some(0) && plain.1.contains("kind: Pod"), "{plain:?}");
    assert!(plain.2.starts_with("rendered kube-system/"), "what is said stays beside the manifests: {plain:?}");
    for format in ["-", "yaml"] {
        assert_eq!(rendered(&["-o", format]), plain, "-o {format}");
    }
    assert_eq!(rendered(&["-o", "json"]), rendered(&["--json"]));
    assert_eq!(crate::names(&scratch.path("")), ["a.yaml"], "no folder of such a name");
}

#[test]
fn a_node_file_decides_placement_and_gives_the_name() {
    let edge = node("{role: edge}");
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("edge.yaml", &edge), ("core.yaml", &node("{role: core}"))]);
    let render = |node: &str| run(["render", "--json", "-f", &scratch.text("a.yaml"), "--node", &scratch.text(node)]);
    let selected = render("edge.yaml").json()["outcomes"].clone();
    assert_eq!(selected[0]["outcome"], "rendered");
    let by_name = run(["render", "--json", "-f", &scratch.text("a.yaml"), "--node-name", "n1"]).json();
    assert_eq!(
        selected[0]["uid"], by_name["outcomes"][0]["uid"],
        "the node's name is part of the UID, its labels are not"
    );

    let other = render("core.yaml");
    assert_eq!((other.code, &other.json()["outcomes"][0]["outcome"]), (0, &json!("notSelected")));
    assert_eq!(other.json()["outcomes"][0]["manifest"], json!(null));
    assert!(!other.json()["outcomes"][0]["reason"].as_str().unwrap().is_empty());
}

#[test]
fn the_words_that_kubectl_takes_after_output_name_no_folder() {
    let render = |more: &[&str]| {
        let mut words = vec!["render", "-f", "examples/demo/daemonset.yaml", "--node-name", "n1"];
        words.extend(more);
        run(words)
    };
    assert_eq!(render(&["-o", "json"]).json(), render(&["--json"]).json());
    assert_eq!(render(&["-o", "yaml"]).out, render(&[]).out);
    assert!(!std::path::Path::new("json").exists() && !std::path::Path::new("yaml").exists());
}

#[test]
fn what_cannot_be_written_is_not_said_to_be_rendered() {
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("file", "")]);
    let out = scratch.text("file");
    let render = |more: &[&str]| {
        run(["render", "--node-name", "n1", "-f", &scratch.text("a.yaml"), "-o", &out].iter().chain(more))
    };
    let error = format!("error: {out}/manifests: cannot be written: not a directory\n");
    let hint = "hint: name with -o a folder to which this user may write\n";
    render(&[]).is(3, "", &format!("{error}{hint}"));
    let outcome = render(&["--json"]).json()["outcomes"][0].clone();
    assert_eq!((&outcome["outcome"], &outcome["manifest"]), (&json!("rendered"), &json!(null)));
}

#[test]
fn a_node_file_that_is_none_is_named() {
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")]);
    let pod = scratch.text("pod.yaml");
    run(["render", "-f", &scratch.text("a.yaml"), "--node", &pod]).is(
        3,
        "",
        &format!("error: {pod}: kind: expected a Node, not Pod\n"),
    );
}

#[test]
fn a_folder_holds_manifests_and_volumes_of_the_last_render_only() {
    let scratch =
        Scratch::new(&[("a.yaml", GOOD), ("b.yaml", CONFIG_MAP), ("out/manifests/foreign.yaml", "kind: Pod\n")]);
    let render = |node: &str| {
        let files = [scratch.text("a.yaml"), scratch.text("b.yaml")];
        let run =
            run(["render", "--json", "--node-name", node, "-f", &files[0], &files[1], "-o", &scratch.text("out")]);
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        run.json()["outcomes"][0].clone()
    };
    let first = render("n1");
    let manifest = first["manifest"].as_str().unwrap();
    assert!(fs::read_to_string(scratch.path("out").join(manifest)).unwrap().starts_with("# Written by daemonlet"));
    let uid = first["uid"].as_str().unwrap();
    let volume = scratch.path("out/volumes").join(uid).join("config");
    assert_eq!(fs::read_to_string(volume.join("conflist")).unwrap(), "{}");
    assert_eq!(fs::read_link(volume.join("conflist")).unwrap().to_str(), Some("..data/conflist"));

    let second = render("n2");
    assert_ne!(second["uid"], first["uid"]);
    let file = second["manifest"].as_str().unwrap().strip_prefix("manifests/").unwrap();
    let mut expected = vec!["foreign.yaml".to_owned(), file.to_owned()];
    expected.sort();
    assert_eq!(names(&scratch.path("out/manifests")), expected, "the first render's is gone, the foreign one stays");
    assert_eq!(names(&scratch.path("out/volumes")), [second["uid"].as_str().unwrap()]);
}

#[test]
fn what_an_earlier_render_wrote_for_others_is_named() {
    let other = GOOD.replace("name: cni, namespace", "name: other, namespace");
    let scratch = Scratch::new(&[("a.yaml", GOOD), ("b.yaml", &other), ("c.yaml", CONFIG_MAP)]);
    let [a, b, c, out] = ["a.yaml", "b.yaml", "c.yaml", "out"].map(|name| scratch.text(name));
    let render = |file: &str| run(["render", "--node-name", "n1", "-f", file, &c, "-o", &out]);
    assert_eq!(render(&a).code, 0);
    let [earlier] = names(&scratch.path("out/manifests")).try_into().unwrap();
    let message = format!(
        "{out}/manifests/{earlier} stays: an earlier render wrote it for kube-system/cni, which is not in what was read"
    );
    let note = render(&b);
    assert_eq!((note.code, note.err), (0, format!("note: {message}\n")));
    let strict = run(["render", "--strict", "--node-name", "n1", "-f", &b, &c, "-o", &out]);
    assert_eq!(strict.code, 1, "{strict:?}");
    let refused = format!(
        "error: {message}, which --strict refuses\nhint: render into a folder that is empty or not there yet\n"
    );
    assert!(strict.err.contains(&refused), "{strict:?}");
    assert!(scratch.path(&format!("out/manifests/{earlier}")).exists(), "another render may have been meant");
}

#[test]
fn lines_go_to_standard_output_where_the_manifests_go_to_a_folder() {
    let scratch = Scratch::new(&[("a.yaml", GOOD)]);
    let run = run(["render", "--node-name", "n1", "-f", &scratch.text("a.yaml"), "-o", &scratch.text("out")]);
    assert!(run.out.starts_with("rendered kube-system/cni: ") && run.err.is_empty(), "{run:?}");
    assert!(run.out.ends_with(", waits for ConfigMap kube-system/cni\n"), "{}", run.out);
}

#[test]
fn overlays_are_applied_to_the_node_that_is_given() {
    let folder = format!("{}/examples/overlays", env!("CARGO_MANIFEST_DIR"));
    let [daemon, node] = ["node-agent.yaml", "large-node.yaml"].map(|file| format!("{folder}/{file}"));
    let large = run(["render", "-f", &daemon, "--node", &node]);
    let applies = "overlays.yaml[0] changes spec.containers[agent].args";
    assert!(large.code == 0 && large.err.contains(applies), "{large:?}");
    assert!(
        large.out.contains("--interval=2s") && large.out.contains("daemonlet.dev/overlays-digest"),
        "{}",
        large.out
    );
    assert!(large.out.contains("name: PROFILE"), "the second patch is not for this node: {}", large.out);
    let plain = run(["render", "-f", &daemon, "--node-name", "n1"]);
    assert!(plain.out.contains("--interval=10s") && !plain.out.contains("overlays-digest"), "{}", plain.out);
    assert!(plain.err.contains("node-agent-sizes are not applied: a Node's labels say which apply"), "{}", plain.err);
    let strict = run(["render", "-f", &daemon, "--node-name", "n1", "--strict"]);
    let words = "monitoring/node-agent: its overlays are not applied, which --strict refuses";
    assert!(strict.code == 1 && strict.err.contains(words), "{strict:?}");
    let json = run(["render", "-f", &daemon, "--node", &node, "--json"]).json();
    assert!(json["outcomes"][0]["notes"][0].as_str().unwrap().contains(applies), "{json}");
    let scratch = Scratch::new(&[("list.yaml", "")]);
    let text = fs::read_to_string(&daemon).unwrap();
    let alone = text.split("\n---\n").next().unwrap();
    fs::write(scratch.path("list.yaml"), alone).unwrap();
    let waits = run(["render", "-f", &scratch.text("list.yaml"), "--node", &node, "--strict"]);
    assert_eq!(waits.code, 1, "{waits:?}");
    assert!(waits.err.contains("waits for ConfigMap monitoring/node-agent-sizes"), "{}", waits.err);
    let other = text.replace(
        "- name: agent\n            args: [\"--interval=2s\"]",
        "- name: agnet\n            args: [\"--interval=2s\"]",
    );
    fs::write(scratch.path("list.yaml"), other).unwrap();
    let refused = run(["render", "-f", &scratch.text("list.yaml"), "--node", &node]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.err.contains("overlays.yaml[0].patch.spec.containers[0].name: the template has no container agnet"),
        "{}",
        refused.err
    );
    fs::write(scratch.path("list.yaml"), text.replace("overlays: node-agent-sizes", "overlays: Node_Agent_Sizes"))
        .unwrap();
    let list = scratch.text("list.yaml");
    for command in [vec!["render", "-f", &list, "--node", &node], vec!["render", "-f", &list, "--node-name", "n1"]] {
        let mistyped = run(command);
        assert!(mistyped.code == 1 && mistyped.err.contains("Node_Agent_Sizes"), "{mistyped:?}");
    }
}

#[test]
fn every_example_is_rendered() {
    for folder in ["examples/cni", "examples/demo", "examples/recipes", "packaging/monitoring/metrics-proxy.yaml"] {
        let folder = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
        let run = run(["render", "--json", "--node-name", "n1", "-f", &folder]);
        assert_eq!(run.code, 0, "{run:?}");
        let json = run.json();
        let entries = json["outcomes"].as_array().unwrap();
        assert!(!entries.is_empty(), "{folder}");
        for entry in entries {
            assert_eq!(entry["outcome"], "rendered", "{entry}");
        }
    }
}
