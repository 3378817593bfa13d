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
        (vec!["render", "-f", "x", "--api-endpoint", "x"], "expected host:port, not \"x\""),
        (vec!["render", "-f", "x", "--node-name", "X"], "\"X\" is no node name"),
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
fn once_needs_a_written_node_name() {
    let scratch = Scratch::new(&[("c.toml", "manifest-dir = \"/x\"\nruntime-endpoint = \"\"\n")]);
    run(["run", "--once", "--config", &scratch.text("c.toml")]).is(
        2,
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
