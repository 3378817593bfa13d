//! `--config`, its drop-ins, `--print-config`, and what a mistake looks like.

use std::io::Write;
use std::process::Stdio;

use crate::Scratch;
use crate::run;

#[test]
fn the_printed_configuration_says_where_each_value_came_from() {
    let scratch = Scratch::new(&[
        ("c.toml", "# mine\nnode-name = \"n1\"\nmanifest-dir = \"/m\"\nruntime-endpoint = \"\"\n"),
        ("c.d/20.toml", "[policy]\nnamespaces = [\"a\", \"b\"]\n"),
        ("c.d/10.toml", "manifest-dir = \"/drop-in\"\n[policy]\nnamespaces = []\n"),
    ]);
    let run = run(["run", "--print-config", "--config", &scratch.text("c.toml")]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    for (origin, line) in [
        (format!("{}:2", scratch.text("c.toml")), "node-name = \"n1\""),
        (format!("{}:1", scratch.text("c.d/10.toml")), "manifest-dir = \"/drop-in\""),
        (format!("{}:2", scratch.text("c.d/20.toml")), "namespaces = [\"a\", \"b\"]"),
        ("default".to_owned(), "state-dir = \"/var/lib/daemonlet\""),
    ] {
        assert!(run.out.contains(&format!("# {origin}\n{line}\n")), "{origin} {line}: {}", run.out);
    }
    scratch.write("again.toml", &run.out);
    let again = crate::run(["run", "--print-config", "--config", &scratch.text("again.toml")]);
    assert_eq!(values(&again.out), values(&run.out), "what was printed means the same");
}

#[test]
fn the_environment_takes_precedence_over_the_files_log_level() {
    let scratch = Scratch::new(&[("c.toml", "node-name = \"n1\"\nlog.level = \"warn\"\n")]);
    let mut command = crate::program();
    command.args(["run", "--print-config", "--config", &scratch.text("c.toml")]).env("DAEMONLET_LOG", "debug");
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(printed.contains("# the variable DAEMONLET_LOG\nlevel = \"debug\"\n"), "{printed}");
}

fn values(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn check_config_says_what_has_no_effect() {
    let policy = "[policy]\nnamespaces = [\"a\"]\ntrusted-namespaces = [\"a\", \"b\"]\n[policy.grants.\"c\"]\n\
                  host-paths = [\"/var/log\"]\n";
    let head = "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\n";
    let scratch = Scratch::new(&[("all.toml", ""), ("c.toml", "")]);
    let own = format!("{head}state-dir = \"{0}\"\nrun-dir = \"{0}\"\nfolders = []\n", scratch.text("s"));
    scratch.write("c.toml", &format!("{own}{policy}"));
    let file = scratch.text("c.toml");
    let key = |line: u8, key: &str, name: &str| {
        format!(
            "note: {file}:{line}: policy.{key}: \"{name}\" has no effect: it is not among policy.namespaces\n\
             hint: add \"{name}\" to policy.namespaces, or remove it from policy.{key}\n"
        )
    };
    let expected = key(9, "trusted-namespaces", "b") + &key(10, "grants", "c");
    run(["run", "--check-config", "--config", &file]).is(0, "", &expected);
    // A default is no mistake of the author, and \"*\" means all.
    for namespaces in ["namespaces = [\"a\"]\n", "namespaces = [\"*\"]\ntrusted-namespaces = [\"b\"]\n"] {
        scratch.write("all.toml", &format!("{own}[policy]\n{namespaces}"));
        run(["run", "--check-config", "--config", &scratch.text("all.toml")]).is(0, "", "");
    }
}

#[test]
fn check_config_says_what_a_later_file_replaces() {
    let scratch = Scratch::new(&[("c.toml", ""), ("c.d/60-node.toml", "")]);
    let head = format!(
        "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\nstate-dir = \"{0}\"\nrun-dir = \"{0}\"\nfolders = []\n",
        scratch.text("s")
    );
    let policy = "[policy]\nnamespaces = [\"a\", \"b\"]\ntrusted-namespaces = [\"b\"]\n[policy.grants.\"a\"]\nhost-ports = [1]\n";
    scratch.write("c.toml", &format!("{head}{policy}"));
    let [file, later] = ["c.toml", "c.d/60-node.toml"].map(|name| scratch.text(name));
    let own = "[policy]\nnamespaces = [\"b\", \"c\"]\ntrusted-namespaces = [\"b\", \"c\"]\n[policy.grants.\"c\"]\nhost-ports = [2]\n";
    scratch.write("c.d/60-node.toml", own);
    let note = |at: u8, key: &str, from: u8| {
        format!(
            "note: {later}:{at}: policy.{key} replaces that of {file}:{from}: \"a\" no longer counts\n\
             hint: a later file replaces lists and tables as a whole: write there all that is to count\n"
        )
    };
    let expected = note(4, "grants", 10) + &note(2, "namespaces", 8);
    run(["run", "--check-config", "--config", &file]).is(0, "", &expected);
}

#[test]
fn check_config_says_what_gives_more_than_it_seems_to() {
    let scratch = Scratch::new(&[("c.toml", "")]);
    let head = format!(
        "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\nstate-dir = \"{0}\"\nrun-dir = \"{0}\"\nfolders = []\n",
        scratch.text("s")
    );
    let policy = "[policy]\nnamespaces = [\"a\"]\nimages = [\"registry.example.com*\", \"r.test/*\"]\n\
                  [policy.grants.\"a\"]\nhost-paths = [\"/var/log\", \"/run\"]\n";
    scratch.write("c.toml", &format!("{head}{policy}"));
    let file = scratch.text("c.toml");
    let expected = format!(
        "note: {file}:10: policy.grants.\"a\".host-paths: \"/run\" gives the host away: it reaches /run, and sockets, devices or \
         credentials there make a pod root on the node\n\
         hint: grant no more than the folder that its pods read, such as \"/var/log/pods\", or add \"a\" to \
         policy.trusted-namespaces, where whoever writes DaemonSets is root on the node\n\
         note: {file}:9: policy.images: \"registry.example.com*\" matches images of any registry whose name begins with \
         \"registry.example.com\", whoever may push there\n\
         hint: write the registry in full and end it with \"/\": \"registry.example.com/*\"\n"
    );
    run(["run", "--check-config", "--config", &file]).is(0, "", &expected);
}

#[test]
fn every_command_names_every_mistake_with_a_suggestion() {
    let scratch = Scratch::new(&[("c.toml", "manifest_dir = \"/m\"\n\n[log]\nlevel = 3\n")]);
    let file = scratch.text("c.toml");
    for command in [["run"].as_slice(), &["run", "--print-config"], &["status"], &["plan"], &["explain", "a/b"]] {
        let mut arguments = command.to_vec();
        arguments.extend(["--config", &file]);
        run(arguments).is(
            3,
            "",
            &format!(
                "error: {file}:1: unknown key \"manifest_dir\"\n\
                 hint: did you mean \"manifest-dir\"?\n\
                 error: {file}:4: log.level: expected a log level such as \"info\", not 3\n"
            ),
        );
    }
}

#[test]
fn a_configuration_that_is_not_there_is_named() {
    let scratch = Scratch::new(&[]);
    let file = scratch.text("none.toml");
    let hint = "name another file with --config; `daemonlet init` writes one";
    let expected = format!("error: {file}: cannot be read: no such file or directory\nhint: {hint}\n");
    run(["run", "--config", &file]).is(3, "", &expected);
}

#[test]
fn init_writes_a_configuration_once_and_shows_the_first_pass() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new(&[]);
    let file = scratch.text("new/node.toml");
    let made =
        run(["init", "--mode", "bootstrap", "--namespaces", "a,kube-system", "--kubeconfig", "none", "-o", &file]);
    assert_eq!(made.code, 0, "{made:?}");
    let first = format!("wrote {file}\nthe first pass, by folders and checkpoint:\n");
    assert!(made.out.starts_with(&first) || made.err.contains("the first pass cannot be shown: "), "{made:?}");
    assert!(made.err.ends_with(&format!("next: daemonlet run --config {file}\n")), "{made:?}");
    let text = "default-mode = \"bootstrap\"\nkubeconfig = \"\"\n\n[policy]\n\
                # DaemonSets of kube-system alone may use the host. For others, set trusted-namespaces.\n\
                namespaces = [\"a\", \"kube-system\"]\n";
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.ends_with(text), "{written}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(crate::names(&scratch.path("new")), ["node.toml"]);
    assert_eq!(run(["run", "--check-config", "--config", &file]).code, 0);
    // A second one only with --force.
    run(["init", "-o", &file]).is(
        1,
        "",
        &format!(
            "error: {file}: there is such a file, and nothing is written\n\
             hint: --force replaces it; --output names another one\n"
        ),
    );
    assert_eq!(run(["init", "--force", "-o", &file]).code, 0);
    assert!(std::fs::read_to_string(&file).unwrap().contains("default-mode = \"labelled\""));
}

#[test]
fn init_asks_again_on_a_terminal_what_was_answered_wrongly() {
    let scratch = Scratch::new(&[]);
    let file = scratch.text("node.toml");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{} init -o {file}", env!("CARGO_BIN_EXE_daemonlet")), "/dev/null"]);
    let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else { return };
    let answers = b"statik\nstatic\nA_B\nkube-system, a\nrelative\nnone\n";
    child.stdin.take().unwrap().write_all(answers).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert!(output.status.success(), "{shown}");
    for (question, asked) in [("mode [labelled]: ", 2), ("(* is all) [kube-system]: ", 2), ("writes) [default]: ", 2)] {
        assert_eq!(shown.matches(question).count(), asked, "{question}: {shown}");
    }
    assert!(!shown.contains("--namespaces") && !shown.contains("--kubeconfig"), "nobody typed these: {shown}");
    let written = std::fs::read_to_string(&file).unwrap();
    let kept = ["default-mode = \"static\"", "kubeconfig = \"\"", "namespaces = [\"kube-system\", \"a\"]"];
    assert!(kept.iter().all(|line| written.contains(line)), "{written}");
}

#[test]
fn init_prints_what_is_asked_for_and_takes_the_place_of_files_alone() {
    let scratch = Scratch::new(&[("folder/file", "")]);
    let here = |words: &[&str]| {
        let mut command = crate::program();
        let output =
            command.current_dir(scratch.0.path()).stdin(std::process::Stdio::null()).args(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = here(&["init", "--mode", "static", "--kubeconfig", "none", "-o", "-"]);
    let first = "# Written by `daemonlet init`. ";
    assert!(out.starts_with(first) && out.ends_with("namespaces = [\"kube-system\"]\n"), "{out}");
    assert_eq!((code, err.as_str(), crate::names(scratch.0.path())), (Some(0), "", vec!["folder".to_owned()]));
    let invalid = here(&["init", "--kubeconfig", "relative", "-o", "-"]);
    let expected = "error: --kubeconfig: must be an absolute path, not \"relative\"\n";
    assert_eq!(invalid, (Some(3), String::new(), expected.to_owned()));
    for (file, why) in [("folder", "it is there and is no file"), ("folder/file/x", "folder/file is no folder")] {
        let expected = format!("error: {file}: cannot be written: {why}\nhint: name another file with --output\n");
        assert_eq!(here(&["init", "--force", "-o", file]), (Some(3), String::new(), expected));
    }
}

#[test]
fn init_writes_nothing_that_is_invalid() {
    let scratch = Scratch::new(&[]);
    let file = scratch.text("node.toml");
    // `init` asks no question without a terminal.
    for (words, expected) in [
        ("Kube_System", "error: --namespaces: \"Kube_System\" is no namespace\n"),
        (",", "error: --namespaces: no namespace is named\n"),
    ] {
        run(["init", "--namespaces", words, "-o", &file]).is(3, "", expected);
    }
    assert!(crate::names(scratch.0.path()).is_empty());
    assert!(run(["init", "--namespaces", "a,", "-o", "-"]).out.ends_with("\nnamespaces = [\"a\"]\n"));
}

#[test]
fn a_kubeconfig_that_is_of_no_use_is_named_where_it_is_configured() {
    let scratch = Scratch::new(&[("broken", "apiVersion: v1\nkind: [")]);
    let (broken, none) = (scratch.text("broken"), scratch.text("none"));
    let file = scratch.text("c.toml");
    for (kubeconfig, note) in [
        (&broken, format!("note: kubeconfig {broken} cannot be read: ")),
        (&none, format!("note: kubeconfig {none} does not exist yet\nhint: `daemonlet enroll` makes it\n")),
    ] {
        let made = run(["init", "--force", "--kubeconfig", kubeconfig, "-o", &file]);
        assert!(made.code == 0 && made.err.contains(&note), "{made:?}");
        let checked = run(["run", "--check-config", "--config", &file]);
        assert!(checked.code == 0 && checked.err.contains(&note), "{checked:?}");
    }
}
