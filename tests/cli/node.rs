//! `status`, `plan`, `explain` and `restart` on a node that has nothing but folders: no API server, no
//! runtime, no kubelet; with the agent and without it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::Run;
use crate::Scratch;
use crate::names;
use crate::program;
use crate::run;

pub(crate) const GOOD: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: good, namespace: a}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: x, image: 'x:1'}]
";

/// A node of folders in a scratch folder.
pub(crate) struct Node(pub(crate) Scratch);

impl Node {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new(&[]);
        let root = scratch.text("");
        scratch.write(
            "c.toml",
            &format!(
                "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\nfolders = [\"{root}d\"]\n\
                 manifest-dir = \"{root}m\"\nkubelet-root = \"{root}k\"\nstate-dir = \"{root}s\"\n\
                 run-dir = \"{root}r\"\n[node]\nkubelet-version = \"v1.36.2\"\n"
            ),
        );
        for folder in ["d", "m", "k"] {
            std::fs::create_dir(scratch.path(folder)).unwrap();
        }
        for (name, text) in files {
            scratch.write(&format!("d/{name}"), text);
        }
        Self(scratch)
    }

    /// The manifests that a kubelet would read.
    pub(crate) fn manifests(&self) -> Vec<String> {
        names(&self.0.path("m")).into_iter().filter(|name| !name.starts_with('.')).collect()
    }

    pub(crate) fn ask(&self, command: &[&str]) -> Run {
        run(command.iter().copied().chain(["--config", &self.0.text("c.toml")]))
    }

    /// Starts the agent and waits until it answers.
    pub(crate) fn start(&self) -> Agent {
        let mut command = program();
        command.args(["run", "--config", &self.0.text("c.toml")]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut agent = Agent(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.ask(&["status"]).err.contains("the first pass of a starting agent") {
            assert_eq!(agent.0.try_wait().unwrap(), None, "the agent ended");
            assert!(Instant::now() < deadline, "the agent does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        agent
    }
}

/// A running agent, which ends with the test.
pub(crate) struct Agent(pub(crate) Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SYNTAX: &str = "a: [\n";

fn refused() -> String {
    GOOD.replace("good", "refused").replace(
        "spec:\n      auto",
        "spec:\n      volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]\n      auto",
    )
}

fn invalid() -> String {
    GOOD.replace("good", "invalid").replace("labels: {app: x}", "labels: {app: other}")
}

#[test]
fn without_an_agent_status_says_what_is_and_promises_nothing() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let status = node.ask(&["status"]);
    assert_eq!(
        status.err,
        "agent not running: this is what the first pass of a starting agent finds in checkpoint and folders\n"
    );
    assert!(
        status.out.contains("  -    waiting  -      -      agent not running; it would write manifest a_good-"),
        "{}",
        status.out
    );
    drop(node.start());
    assert_eq!(node.manifests().len(), 1);
    let status = node.ask(&["status"]);
    assert_eq!(status.code, 1, "whether it runs is not known");
    let reason = "its manifest is there; whether it runs is unknown";
    assert!(status.out.contains("unknown") && status.out.contains(reason), "{}", status.out);
    let plan = node.ask(&["plan"]);
    assert_eq!((plan.code, plan.out.as_str()), (0, "nothing to do\n"), "no agent has looked: nothing is held");
    std::fs::remove_file(node.0.path("m").join(&node.manifests()[0])).unwrap();
    let status = node.ask(&["status"]).out;
    assert!(status.contains("agent not running; it would ") && !status.contains("its manifest is there"), "{status}");
}

#[test]
fn plan_shows_what_is_wrong_with_files_and_ends_accordingly() {
    let node = Node::new(&[("refused.yaml", &refused()), ("invalid.yaml", &invalid()), ("syntax.yaml", SYNTAX)]);
    let expected = |out: &str| {
        for line in [
            "a/refused: nothing, it is refused: spec.template.spec.volumes[0].persistentVolumeClaim: ",
            "\n  hint: use a hostPath volume",
            "invalid.yaml:2: DaemonSet a/invalid: spec.template.metadata.labels: the selector does not match",
            "\n  hint: add the labels of spec.selector to the template\n",
            "syntax.yaml:1:4: unclosed bracket",
        ] {
            assert!(out.contains(line), "{line}: {out}");
        }
    };
    let plan = node.ask(&["plan"]);
    assert_eq!(plan.code, 1, "{plan:?}");
    expected(&plan.out);
    node.0.write("d/good.yaml", GOOD);
    let plan = node.ask(&["plan"]);
    assert_eq!(plan.code, 4, "{plan:?}");
    expected(&plan.out);
    let _agent = node.start();
    let plan = node.ask(&["plan"]);
    assert_eq!(plan.code, 1, "{plan:?}");
    assert!(
        plan.out.starts_with("nothing to do\na/good: nothing, it is unknown: its manifest is there; "),
        "{}",
        plan.out
    );
    expected(&plan.out);
}

#[test]
fn a_file_that_does_not_count_by_its_name_is_named() {
    let node = Node::new(&[("demo.YAML", GOOD)]);
    let note = format!("note: {} is ignored: only .yaml, .yml and .json files are read\n", node.0.text("d/demo.YAML"));
    for command in ["status", "plan"] {
        let shown = node.ask(&[command]);
        assert!(shown.out.contains(&note), "{command}: {shown:?}");
    }
    let notes = node.ask(&["status", "--json"]).json()["notes"].as_array().map(Vec::len);
    assert_eq!(notes, Some(1));
    (0..30).for_each(|number| node.0.write(&format!("d/{number}.txt"), ""));
    let status = node.ask(&["status"]);
    assert!(status.out.contains("note: 11 more names in the folders are ignored"), "{}", status.out);
}

#[test]
fn explain_shows_what_is_wrong_with_the_definition_itself() {
    let node = Node::new(&[("good.yaml", GOOD), ("invalid.yaml", &invalid())]);
    let explained = node.ask(&["explain", "a/invalid"]);
    assert_eq!(explained.code, 1);
    assert!(
        explained.out.starts_with("a/invalid on n1: unknown: no such DaemonSet could be read\n  no   "),
        "{}",
        explained.out
    );
    assert!(explained.out.contains("invalid.yaml:2: DaemonSet a/invalid: spec.template.metadata.labels: "));
    let unknown_name = node.ask(&["explain", "a/nobody"]);
    assert_eq!(unknown_name.code, 1);
    let unknown = "a/nobody on n1: unknown: no such DaemonSet has been seen\n       hint: `daemonlet status` lists ";
    assert!(unknown_name.out.starts_with(unknown), "{}", unknown_name.out);
    // What does not parse may be anything.
    node.0.write("d/syntax.yaml", SYNTAX);
    let unknown_name = node.ask(&["explain", "a/nobody"]);
    assert!(
        unknown_name.out.contains("could be read\n") && unknown_name.out.contains("syntax.yaml:1:4: unclosed"),
        "{}",
        unknown_name.out
    );
    let good = node.ask(&["explain", "a/good"]);
    assert!(!good.out.contains("syntax.yaml"), "it has a file of its own: {}", good.out);
}

#[test]
fn status_and_explain_name_what_is_not_understood() {
    let text = GOOD
        .replace("namespace: a", "namespace: a, annotations: {daemonlet.dev/rolback: auto}")
        .replace("    spec:\n", "    spec:\n      hostNetwrok: true\n");
    let node = Node::new(&[("good.yaml", &text)]);
    let [unknown, annotation] = [
        "d/good.yaml:2: spec.template.spec.hostNetwrok: unknown field: Kubernetes 1.36 does not have it \
         (hint: did you mean hostNetwork?)\n",
        "metadata.annotations[daemonlet.dev/rolback]: unknown annotation; nothing is rolled out \
         (hint: did you mean daemonlet.dev/rollback?)\n",
    ];
    for command in [["status"].as_slice(), &["explain", "a/good"]] {
        let out = node.ask(command).out;
        assert!(out.contains(unknown) && out.contains(annotation), "{command:?}: {out}");
    }
}

#[test]
fn a_restart_that_could_not_be_finished_is_refused() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let _agent = node.start();
    let before = node.manifests();
    let restart = node.ask(&["restart", "a/good"]);
    restart.is(
        1,
        "",
        "error: a/good is not restarted: nothing here could tell when its old pod has ended, before which no new one \
         starts: neither runtime-endpoint nor kubeconfig is set\n",
    );
    assert_eq!(node.manifests(), before, "what runs goes on");
}

#[test]
fn doctor_blames_an_agent_that_is_gone_and_not_one_that_never_ran() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let agent = || {
        let report = node.ask(&["doctor", "--json"]).json();
        report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "agent").unwrap().clone()
    };
    assert_eq!(agent()["level"], "warn");
    drop(node.start());
    let dead = agent();
    assert_eq!(dead["level"], "bad", "{dead}");
    assert!(node.ask(&["doctor"]).code > 0);
}

#[test]
fn doctor_names_a_folder_into_which_others_may_write() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    drop(node.start());
    let finding = |check: &str| {
        let report = node.ask(&["doctor", "--json"]).json();
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|found| found["check"] == check).unwrap()
    };
    for (check, folder) in [("manifest folder", "m"), ("state folder", "s")] {
        assert_eq!(finding(check)["level"], "ok", "{}", finding(check));
        let path = node.0.path(folder);
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let bad = finding(check);
        assert_eq!(bad["level"], "bad", "{bad}");
        assert_eq!(bad["hint"], format!("chmod go-w {}", path.display()));
    }
}

#[test]
fn doctor_names_what_is_no_folder_and_does_not_say_that_root_may_not_read_it() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    for folder in ["d", "m"] {
        std::fs::remove_dir_all(node.0.path(folder)).unwrap();
        std::fs::write(node.0.path(folder), "").unwrap();
    }
    let ran = node.ask(&["doctor"]);
    let line = |check: &str| ran.out.lines().find(|line| line[6..].starts_with(check)).unwrap_or_default();
    let no_folder = format!("no folder, so that nothing is read from it: {}", node.0.text("d"));
    assert!(
        line("definition folders").starts_with("bad") && line("definition folders").ends_with(&no_folder),
        "{ran:?}"
    );
    assert!(line("manifest folder").starts_with("bad") && line("foreign manifests").is_empty(), "{ran:?}");
    assert!(!ran.out.contains("may not read"), "{ran:?}");
}

#[test]
fn doctor_says_who_is_trusted_and_which_grants_give_the_host_away() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let finding = || {
        let report = node.ask(&["doctor", "--json"]).json();
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|found| found["check"] == "policy").unwrap()
    };
    let ok = finding();
    let trusted = "trusted (whoever writes DaemonSets there is root on the node): kube-system; with grants: ";
    assert_eq!((&ok["level"], &ok["text"]), (&"ok".into(), &format!("{trusted}none").into()));
    let config = std::fs::read_to_string(node.0.path("c.toml")).unwrap();
    node.0.write("c.toml", &format!("{config}\n[policy.grants.\"a\"]\nhost-paths = [\"/etc\"]\n"));
    let warned = finding();
    let text = warned["text"].as_str().unwrap();
    assert!(
        text.starts_with(&format!("{trusted}a; policy.grants.\"a\".host-paths: \"/etc\" gives the host away")),
        "{text}"
    );
    assert_eq!(warned["level"], "warn");
}

#[test]
fn doctor_judges_nothing_that_its_user_may_not_read() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    drop(node.start());
    let mode = |path: &std::path::Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let copy = crate::readable_copy(&node.0);
    let manifest = node.0.path("m").join(&node.manifests()[0]);
    // Without a right for anyone, so that only root may read it, whoever runs this test.
    mode(&manifest, 0o000);
    mode(&node.0.path("s"), 0o000);
    let mut command = std::process::Command::new(copy);
    command.args(["doctor", "--config", &node.0.text("c.toml")]);
    let output = crate::as_nobody(&mut command);
    let report = String::from_utf8(output.stdout).unwrap();
    let line = |check: &str| report.lines().find(|line| line[6..].starts_with(check)).unwrap_or_default().to_owned();
    let manifest = format!("not checked: this user may not read {}", manifest.display());
    assert!(
        line("foreign manifests").starts_with("skip") && line("foreign manifests").ends_with(&manifest),
        "{report}"
    );
    assert!(line("disk of state-dir").starts_with("skip"), "{report}");
    assert!(!report.contains("move it out"), "{report}");
    assert!(report.ends_with(" skipped: run it as root\n"), "{report}");
    mode(&node.0.path("s"), 0o700);
}

#[test]
fn beside_an_agent_another_one_says_how_to_ask_and_how_to_end_it() {
    let node = Node::new(&[]);
    let _agent = node.start();
    let ran = node.ask(&["run", "--once"]);
    let hint = "hint: the agent runs: `daemonlet status` asks it, `systemctl stop daemonlet` ends it\n";
    assert!(ran.code == 1 && ran.err.ends_with(&format!(": another daemonlet has it\n{hint}")), "{ran:?}");
}

#[test]
fn one_pass_says_on_one_stream_what_is_wrong_and_on_the_other_what_it_did() {
    let node = Node::new(&[("good.yaml", GOOD), ("refused.yaml", &refused()), ("syntax.yaml", SYNTAX)]);
    let ran = node.ask(&["run", "--once"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for problem in ["a static pod cannot claim a persistent volume", "syntax.yaml:1:4: unclosed bracket"] {
        assert_eq!((ran.out.matches(problem).count(), ran.err.matches(problem).count()), (1, 0), "{problem}: {ran:?}");
    }
    assert!(ran.err.contains(" info  rendered good-") && ran.err.contains("daemonset=a/good"), "{}", ran.err);
    // An agent that goes on has no other place for it.
    let mut command = program();
    command.args(["run", "--config", &node.0.text("c.toml")]).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut agent = Agent(command.spawn().unwrap());
    let log = std::io::BufReader::new(agent.0.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(log).map(Result::unwrap);
    assert!(lines.any(|line| line.contains("warn  refused: spec.template")), "it ends without a word");
}

#[test]
fn a_list_of_overlays_in_a_folder_counts_as_soon_as_it_is_written_and_its_mistakes_are_reported() {
    let patched = GOOD.replace("name: good, ", "name: good, annotations: {daemonlet.dev/overlays: o}, ");
    let file = |nodes: &str, argument: &str| {
        format!(
            "{patched}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: o, namespace: a}}\ndata:\n  \
             overlays.yaml: |\n    - nodes: {nodes}\n      patch: {{spec: {{containers: [{{name: x, args: [{argument}]}}]}}}}\n"
        )
    };
    let node = Node::new(&[("a.yaml", &file("{}", "first"))]);
    let said = |text: &str| {
        node.0.write("d/a.yaml", text);
        let ran = node.ask(&["run", "--once"]);
        let digest = ran.out.split("(digest ").nth(1).map(|rest| rest.split(')').next().unwrap().to_owned());
        (digest, ran.out)
    };
    let [(first, _), (second, _)] = ["first", "second"].map(|argument| said(&file("{}", argument)));
    assert!(first.is_some() && second.is_some() && first != second, "{first:?}, {second:?}");
    let (kept, out) = said(&file("{matchLabel: {}}", "third"));
    assert!(kept.is_some() && out.contains("as last known: it is refused: ConfigMap a/o: overlays.yaml[0]"), "{out}");
}

#[test]
fn a_dry_teardown_names_only_manifests_that_are_there() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    assert_eq!(node.ask(&["run", "--once"]).code, 0);
    let [file] = node.manifests().try_into().unwrap();
    let dry = node.ask(&["teardown", "--dry-run"]);
    assert!(dry.out.ends_with(&format!(": {}\n", node.0.text(&format!("m/{file}")))), "{dry:?}");
    std::fs::remove_file(node.0.path("m").join(&file)).unwrap();
    let dry = node.ask(&["teardown", "--dry-run"]);
    assert!(dry.out.ends_with(" of a/good has ended: its manifest is gone already\n"), "{dry:?}");
}
