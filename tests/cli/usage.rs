//! Bad usage is exit code 2, help is none, and a reader who leaves is no error.

use std::io::Read;
use std::process::Stdio;

use crate::Scratch;
use crate::program;
use crate::run;

#[test]
fn bad_usage_is_exit_code_2_on_standard_error() {
    for (arguments, message) in [
        (vec![], "Usage: daemonlet"),
        (vec!["ren"], "unrecognized subcommand 'ren'"),
        (vec!["render"], "required arguments were not provided"),
        (vec!["run", "--onec"], "unexpected argument '--onec' found"),
        (vec!["run", "--once", "--print-config"], "cannot be used with"),
        (vec!["explain", "cni"], "expected NAMESPACE/NAME"),
        (vec!["retry", "cni"], "expected NAMESPACE/NAME"),
        (vec!["release"], "not provided:\n  <NAMESPACE/NAME|--all>"),
        (vec!["release", "--all", "a/b"], "cannot be used with"),
        (vec!["render", "-f", "x", "--api-endpoint", "x"], "expected host:port, not \"x\""),
        (vec!["render", "-f", "x", "--node-name", "X"], "\"X\" is no node name"),
        (vec!["render", "-f", "x", "--json", "-o", "yaml"], "--json and -o yaml ask for two formats of one output"),
    ] {
        let run = run(&arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}");
        assert!(run.err.contains(message), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn help_and_version_are_data() {
    for arguments in [["--help"].as_slice(), &["render", "--help"], &["--version"]] {
        let run = run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}");
        assert!(run.out.to_lowercase().contains("daemonlet"), "{arguments:?}");
    }
}

#[test]
fn every_help_fits_its_columns_and_breaks_no_example() {
    let help = |program: &str, name: &str, option: &str, columns: Option<&str>| {
        let words = name.strip_prefix(program).unwrap().split_whitespace().chain([option]);
        let mut command = crate::program();
        command.stdin(Stdio::null()).args((program == "kubectl daemonlet").then_some("kubectl-daemonlet")).args(words);
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for (program, command) in
        [("daemonlet", daemonlet::cli::command()), ("kubectl daemonlet", daemonlet::cli::plugin())]
    {
        for (name, _) in below(&command, program) {
            for (columns, widest) in [(None, 100), (Some("80"), 80), (Some("500"), 120)] {
                for option in ["-h", "--help"] {
                    let text = help(program, &name, option, columns);
                    let long = text.lines().find(|line| line.chars().count() > widest);
                    assert_eq!((long, text.contains("Usage: ")), (None, true), "{name} {option}: {text}");
                    let mut examples = text.split_once("\nExamples:\n").unwrap_or_default().1.lines();
                    let broken =
                        examples.find(|line| !line.starts_with("  # ") && !line.starts_with(&format!("  {name}")));
                    assert_eq!(broken, None, "{name} {option}");
                }
            }
        }
    }
}

#[test]
fn every_argument_says_what_it_is() {
    for (program, command) in
        [("daemonlet", daemonlet::cli::command()), ("kubectl daemonlet", daemonlet::cli::plugin())]
    {
        for (name, one) in below(&command, program) {
            let mute = one.get_arguments().find(|argument| argument.get_help().is_none() && !argument.is_hide_set());
            assert_eq!(mute.map(|argument| argument.get_id().to_string()), None, "{name}");
        }
    }
}

/// Every command below `command`, by its whole name.
fn below(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
    let subcommands = command.get_subcommands().flat_map(|one| below(one, &format!("{name} {}", one.get_name())));
    std::iter::once((name.to_owned(), command.clone())).chain(subcommands).collect()
}

#[test]
fn every_help_has_examples_that_can_be_typed() {
    for program in ["daemonlet", "kubectl daemonlet"] {
        let command = || match program {
            "daemonlet" => daemonlet::cli::command(),
            _ => daemonlet::cli::plugin(),
        };
        for (name, mut one) in below(&command(), program).into_iter().filter(|(name, _)| name != "daemonlet") {
            let help = one.render_long_help().to_string();
            let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
            let lines: Vec<&str> =
                examples.lines().map(str::trim_start).filter(|line| !line.starts_with('#')).collect();
            assert!(!lines.is_empty(), "{name}");
            for line in lines {
                assert!(line == name || line.starts_with(&format!("{name} ")), "{name}: {line}");
                let typed = line.split(['|', '>']).next().unwrap().strip_prefix(program).unwrap();
                let words = std::iter::once("x").chain(typed.split_whitespace());
                command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}

#[test]
fn help_knows_commands_and_topics() {
    let help = |words: &[&str]| run(std::iter::once(&"help").chain(words));
    let all = help(&[]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    assert!(all.out.contains("Topics, for daemonlet help TOPIC:\n  alerts, annotations, "), "{}", all.out);
    assert!(all.out.lines().all(|line| line.len() <= 100), "{}", all.out);
    assert_eq!(help(&["generate", "rbac"]).out, run(["generate", "rbac", "--help"]).out);
    assert!(help(&["exit-codes"]).out.starts_with("## Exit codes\n"));
    let keys = help(&["configuration"]).out;
    assert!(["update-jitter", "trusted-namespaces"].iter().all(|key| keys.contains(key)), "a hint says so: {keys}");
    let topics = all.out.split("daemonlet help TOPIC:\n").nth(1).unwrap().split([',', '\n']).map(str::trim);
    for topic in topics.filter(|topic| !topic.is_empty()) {
        for (columns, widest) in [(None, 120), (Some("80"), 80), (Some("500"), 120)] {
            let mut command = crate::program();
            command.args(["help", topic]);
            match columns {
                Some(columns) => command.env("COLUMNS", columns),
                None => command.env_remove("COLUMNS"),
            };
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            // Code stays as it is.
            let long = text.lines().find(|line| line.chars().count() > widest && !line.starts_with("    "));
            assert_eq!((long, text.contains("\n|")), (None, false), "{topic} at {columns:?}");
        }
    }
    let unknown = help(&["exit", "codes"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    assert!(
        unknown
            .err
            .starts_with("error: \"exit codes\" is neither a command nor a topic\nhint: did you mean \"exit-codes\"?"),
        "{}",
        unknown.err
    );
    assert!(
        help(&["kubectl"])
            .err
            .ends_with("\nhint: `kubectl daemonlet --help` prints the help of the plugin for kubectl\n")
    );
}

#[test]
fn once_needs_a_written_node_name() {
    let scratch = Scratch::new(&[("c.toml", "manifest-dir = \"/x\"\nruntime-endpoint = \"\"\n")]);
    run(["run", "--once", "--config", &scratch.text("c.toml")]).is(
        3,
        "",
        "error: node-name: `run --once` needs it written: every pod's UID contains the node's name\n\
         hint: set node-name in the configuration\n",
    );
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let mut child =
        program().args(["run", "--print-config"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_an_error_and_a_reader_who_leaves_a_bundle_is_none() {
    let (_scratch, file) = quiet_node();
    let bundle = ["support-bundle", "-o", "-", "--config", &file];
    for words in [["--help"].as_slice(), &["render", "--help"], &["--version"], &["help", "states"], &bundle] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program().args(words).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let expected = "error: standard output: cannot be written: no space left on device\n";
        assert!(output.status.code() == Some(3) && errors.ends_with(expected), "{words:?}: {errors}");
    }
    let mut child = program().args(bundle).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !errors.contains("error:"), "{errors}");
}

#[test]
fn an_error_says_what_cannot_be_used_once() {
    let scratch = Scratch::new(&[("file", "")]);
    let state = scratch.text("file/state");
    let config = format!(
        "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\nstate-dir = \"{state}\"\nrun-dir = \"{}\"\n",
        scratch.text("run")
    );
    scratch.write("c.toml", &config);
    // A teardown without its records would end nothing, and does not wait.
    for command in ["status", "plan", "teardown"] {
        let run = run([command, "--config", &scratch.text("c.toml")]);
        let first = run.err.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        let why = format!("error: state-dir: {state}: cannot open it: not a directory");
        assert_eq!((run.code, first), (3, why.as_str()), "{run:?}");
        assert!(!run.err.contains("this is what the first pass"), "{run:?}");
    }
}

/// A configuration of a node on which nothing of daemonlet runs, and where it is.
fn quiet_node() -> (Scratch, String) {
    let scratch = Scratch::new(&[("daemonsets.d/x", "")]);
    let path = |name: &str| scratch.text(name);
    let config = format!(
        "node-name = \"n1\"\nkubeconfig = \"\"\nruntime-endpoint = \"\"\nfolders = [\"{}\"]\nmanifest-dir = \"{}\"\n\
         kubelet-root = \"{}\"\nstate-dir = \"{}\"\nrun-dir = \"{}\"\n",
        path("daemonsets.d"),
        path("manifests"),
        path("kubelet"),
        path("state"),
        path("run")
    );
    scratch.write("c.toml", &config);
    let file = scratch.text("c.toml");
    (scratch, file)
}

#[test]
fn without_an_agent_each_command_ends_as_the_table_says() {
    let (scratch, file) = quiet_node();
    let with_config = |words: &[&str]| {
        let mut words = words.to_vec();
        words.extend(["--config", &file]);
        run(&words)
    };
    for words in [["status"].as_slice(), &["plan"], &["explain", "a/b"], &["support-bundle", "--list"]] {
        let offline = with_config(words);
        assert!(offline.err.starts_with("agent not running: "), "{offline:?}");
        // What no agent has seen is unknown.
        assert_eq!(offline.code, i32::from(words[0] == "explain"), "{words:?}: {offline:?}");
    }
    let no_agent = format!(
        "error: {}: no agent is running here\nhint: start it: systemctl start daemonlet\n",
        scratch.text("run/agent.sock")
    );
    for order in ["retry", "approve", "restart"] {
        with_config(&[order, "a/b"]).is(1, "", &no_agent);
    }
    with_config(&["release", "a/b"]).is(1, "a/b on n1: not released: no such daemon has run on this node\n", "");
    with_config(&["release", "--all"]).is(0, "nothing is held on n1\n", "");
    with_config(&["teardown", "--dry-run"]).is(0, "nothing of daemonlet is on n1\n", "");
    assert_eq!(with_config(&["run", "--once"]).code, 0);
    // Where a folder cannot be used, nothing is said to be done or gone.
    std::fs::remove_dir_all(scratch.path("state")).unwrap();
    scratch.write("state", "in the way");
    for (words, code) in [
        (["status"].as_slice(), 3),
        (&["plan"], 3),
        (&["release", "--all"], 3),
        (&["teardown", "--dry-run"], 3),
        (&["run", "--once"], 1),
    ] {
        let blind = with_config(words);
        assert_eq!(blind.code, code, "{words:?}: {blind:?}");
        assert!(!blind.out.contains("nothing of daemonlet is on n1"), "{words:?}: {blind:?}");
    }
}

#[test]
fn a_journal_that_cannot_be_reached_is_named_with_its_key() {
    if std::path::Path::new("/run/systemd/journal/socket").exists() {
        return;
    }
    let (scratch, file) = quiet_node();
    let config = std::fs::read_to_string(&file).unwrap();
    scratch.write("c.toml", &format!("log.target = \"journal\"\n{config}"));
    let ran = run(["run", "--once", "--config", &file]);
    let named = format!("error: {file}:1: log.target: the journal cannot be reached: ");
    assert!(ran.code == 3 && ran.err.starts_with(&named), "{ran:?}");
    assert!(ran.err.ends_with("\nhint: set log.target = \"stderr\"\n"), "{ran:?}");
}

/// What `boot-guard --clean` says after `before`, in a network of its own; `None` where nothing here makes one.
fn clean_in_a_network_of_its_own(before: &str) -> Option<crate::Run> {
    let unshare = |words: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", words]).stdin(Stdio::null());
        command.output().ok()
    };
    unshare("nft list tables").filter(|output| output.status.success())?;
    let program = env!("CARGO_BIN_EXE_daemonlet");
    let output = unshare(&format!("set -e; {before}; {program} boot-guard --clean; nft list tables"))?;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Some(crate::Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) })
}

#[test]
fn boot_guard_clean_removes_its_own_table_and_no_other() {
    let Some(nothing) = clean_in_a_network_of_its_own("true") else { return };
    nothing.is(0, "", "");
    let left = "nft add table inet daemonlet-boot-guard; nft add table inet other";
    clean_in_a_network_of_its_own(left).unwrap().is(0, "table inet other\n", "");
}

#[test]
fn boot_guard_clean_says_who_may_run_it() {
    let scratch = Scratch::new(&[]);
    let copy = crate::readable_copy(&scratch);
    let mut command = std::process::Command::new(copy);
    command.args(["boot-guard", "--clean"]);
    let output = crate::as_nobody(&mut command);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    let [error, hint] = lines.as_slice() else { panic!("{stderr}") };
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(error.starts_with("error: nftables: table daemonlet-boot-guard is not removed: "), "{stderr}");
    assert_eq!(*hint, "hint: run this as root, with CAP_NET_ADMIN, as the unit daemonlet-boot-guard does");
}

/// What the program prints on a terminal; `None` where nothing here makes one.
fn on_a_terminal(words: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{} {words}", env!("CARGO_BIN_EXE_daemonlet")), "/dev/null"]);
    script.env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied()).stdin(Stdio::null());
    let output = script.output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

#[test]
fn a_terminal_gets_colours_and_120_columns_unless_a_variable_says_otherwise() {
    let (scratch, file) = quiet_node();
    let refused = std::fs::read_to_string("tests/golden/cli/refused.yaml").unwrap();
    scratch.write("daemonsets.d/refused.yaml", &refused);
    let long = refused
        .replace("monitoring", "openshift-cluster-node-tuning-operator")
        .replace("cache", "node-feature-discovery-worker");
    scratch.write("daemonsets.d/long.yaml", &long);
    let ask = format!("status --config {file}");
    let Some(coloured) = on_a_terminal(&ask, &[]) else { return };
    let has_colours = |text: &str| text.contains("\u{1b}[");
    assert!(has_colours(&coloured), "{coloured}");
    for plain in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let text = on_a_terminal(&ask, &plain).unwrap();
        assert!(text.contains("refused") && !has_colours(&text), "{plain:?}: {text}");
    }
    assert!(has_colours(&on_a_terminal(&ask, &[("NO_COLOR", "")]).unwrap()));
    // Reasons are cut on a terminal, and whole with -o wide and in a pipe.
    let reason = "a static pod cannot claim a persistent volume";
    let row = |text: &str| text.lines().find(|line| line.contains("monitoring/cache")).unwrap().to_owned();
    assert!(row(&coloured).contains('…') && !coloured.contains(reason), "{coloured}");
    let plain = on_a_terminal(&ask, &[("TERM", "dumb")]).unwrap();
    assert!(row(&plain).chars().count() <= 120 && row(&plain).contains("/refused.yaml "), "{plain}");
    let named = plain.lines().find(|line| line.starts_with("openshift-")).unwrap();
    assert!(named.chars().count() <= 120 && named.contains("  spec.template.spec."), "{plain}");
    let wide = on_a_terminal(&format!("{ask} -o wide"), &[]).unwrap();
    let hint = "hint: -o wide shows what is cut\n";
    assert!(plain.ends_with(hint) && !wide.contains(hint), "{plain}{wide}");
    let piped = run(["status", "--config", &file]).out;
    assert!(row(&wide).contains(reason) && row(&piped).contains(reason) && !has_colours(&piped), "{wide}{piped}");
}

#[test]
fn completions_know_every_command() {
    let bash = run(["completion", "bash"]);
    assert_eq!((bash.code, bash.err.as_str()), (0, ""));
    for command in daemonlet::cli::command().get_subcommands() {
        assert!(bash.out.contains(&format!("daemonlet,{})", command.get_name())), "{}", command.get_name());
    }
    assert!(run(["completion", "zsh"]).out.starts_with("#compdef daemonlet"));
    assert_eq!(run(["completion", "csh"]).code, 2);
}
