//! A kubeconfig that cannot be used, or leads nowhere: each command names the file and the field, and says what to do.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::Run;
use crate::Scratch;
use crate::run;

/// A kubeconfig with these parts.
fn config(context: &str, server: &str, user: &str) -> String {
    format!(
        "current-context: {context}\ncontexts:\n- {{name: a, context: {{cluster: c, user: u}}}}\n\
         clusters:\n- {{name: c, cluster: {{server: \"{server}\"}}}}\nusers:\n- {{name: u, user: {{{user}}}}}\n"
    )
}

/// What the plugin says, in the folder where the kubeconfig lies.
fn plugin(scratch: &Scratch, name: &str) -> Run {
    let program = scratch.path("kubectl-daemonlet");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_daemonlet"), &program).unwrap();
    }
    let output = Command::new(program).args(["--kubeconfig", &scratch.text(name)]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn what_is_wrong_with_a_kubeconfig_is_said_with_its_file_and_field() {
    let scratch = Scratch::new(&[("a-folder/file", "")]);
    let here = "https://127.0.0.1:1";
    for (name, content, code, expected) in [
        ("missing", None, 3, "kubeconfig FILE cannot be read: no such file or directory"),
        ("a-folder", None, 3, "kubeconfig FILE cannot be read: is a directory"),
        (
            "empty",
            Some(String::new()),
            3,
            "kubeconfig FILE: current-context: is empty; name the context to use; the file has no contexts",
        ),
        (
            "not-yaml",
            Some("a: [\n".to_owned()),
            3,
            "kubeconfig FILE cannot be read: line 1, column 4: unclosed bracket '['",
        ),
        (
            "a-word",
            Some("nonsense\n".to_owned()),
            3,
            "kubeconfig FILE cannot be read: it has no fields: is this a kubeconfig?",
        ),
        (
            "no-clusters",
            Some("current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n".to_owned()),
            3,
            "kubeconfig FILE: clusters: there is no cluster c, which the context a names",
        ),
        (
            "other-context",
            Some(config("b", here, "token: t")),
            3,
            "kubeconfig FILE: current-context: there is no context b; there are: a",
        ),
        (
            "no-certificate",
            Some(config("a", here, "client-certificate: /nowhere/c, client-key: /nowhere/k")),
            3,
            "kubeconfig FILE: client-certificate /nowhere/c cannot be read: no such file or directory",
        ),
        (
            "no-server",
            Some(config("a", "ftp://a", "token: t")),
            3,
            "kubeconfig FILE: server: \"ftp://a\" is not an https:// URL",
        ),
        ("unreachable", Some(config("a", here, "token: t")), 1, "connect to 127.0.0.1:1: connection refused"),
    ] {
        if let Some(content) = content {
            scratch.write(name, &content);
        }
        let expected = expected.replace("FILE", &scratch.text(name));
        let hint = match code {
            3 => "correct it, or name another with --kubeconfig FILE or --context NAME",
            _ => "does `kubectl get nodes` work with the same kubeconfig and context?",
        };
        plugin(&scratch, name).is(code, "", &format!("error: {expected}\nhint: {hint}\n"));
        if name == "missing" {
            continue;
        }
        let (state, ours) = (scratch.text("state"), scratch.text("ours"));
        scratch.write("c.toml", &format!("node-name = \"n1\"\nstate-dir = \"{state}\"\nkubeconfig = \"{ours}\"\n"));
        let from = scratch.text(name);
        let asked = run(["enroll", "--config", &scratch.text("c.toml"), "--from", &from, "--timeout", "1s"]);
        let begins = match code {
            3 => format!("error: {expected}\nhint: "),
            _ => format!(
                "the API server {here} cannot be reached: {expected}; trying again, for 1 s in all\n\
                 error: the API server {here}, which kubeconfig {from} names, could not be reached within 1 s: {expected}\n\
                 hint: if that is not the API server's address, correct {from} or give --from another kubeconfig; else "
            ),
        };
        assert!(asked.code == code && asked.err.starts_with(&begins) && asked.err.contains("\nhint: "), "{asked:?}");
        if code == 3 {
            // It ends: else this test would not.
            scratch.write("d.toml", &format!("node-name = \"n1\"\n[coordinator]\nkubeconfig = \"{from}\"\n"));
            let refused = run(["coordinator", "--config", &scratch.text("d.toml")]);
            let begins = format!("error: coordinator.kubeconfig: {expected}\nhint: make it as ");
            assert!(refused.code == 3 && refused.err.starts_with(&begins), "{refused:?}");
        }
    }
}
