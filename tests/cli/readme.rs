//! What the README shows is what one sees: its commands are run and their output is compared.

use std::fs;
use std::path::Path;
use std::process::Command;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The commands of the README's console blocks, each with the output shown below it.
fn shown() -> Vec<(String, String)> {
    let mut shown: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in readme().lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => shown.push((command.to_owned(), String::new())),
                None => {
                    let output = &mut shown.last_mut().unwrap().1;
                    output.push_str(line);
                    output.push('\n');
                }
            },
            (false, _) => {}
        }
    }
    shown
}

#[test]
fn commands_print_what_the_readme_shows() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["examples", "tests"] {
        std::os::unix::fs::symlink(root.join(name), folder.path().join(name)).unwrap();
    }
    let shown = shown();
    assert!(shown.len() >= 3, "the README's console blocks are not found");
    assert!(shown.iter().any(|(command, _)| command.contains("tests/golden/cli/refused.yaml")));
    for (command, expected) in shown {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "daemonlet", "{command}");
        let output = Command::new(env!("CARGO_BIN_EXE_daemonlet"))
            .args(&words[1..])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        // Without -o the manifests come on standard output; the README shows the outcomes.
        let printed: String =
            printed.lines().filter(|l| expected.lines().any(|e| e == *l)).map(|l| format!("{l}\n")).collect();
        assert_eq!(printed, expected, "{command}");
    }
}

#[test]
fn the_first_commands_are_targets_and_the_table_has_every_command() {
    let readme = readme();
    let makefile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).unwrap();
    for target in ["demo", "test", "check"] {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
        assert!(readme.contains(&format!("make {target}")), "the README does not tell of make {target}");
    }
    let first: Vec<&str> = readme.lines().filter(|l| !l.is_empty()).skip(1).take(2).map(str::trim).collect();
    assert!(first[0].starts_with("make demo") && first[1].starts_with("make test"), "{first:?}");
    for command in ["run", "render", "plan", "status", "explain", "retry", "doctor"] {
        assert!(readme.contains(&format!("| `daemonlet {command}")), "{command}");
    }
}

/// `text` between backticks that begins with the program's name, one command each.
fn commands(text: &str) -> Vec<String> {
    let spans =
        text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("daemonlet ") && !span.contains('\n'));
    spans.map(str::to_owned).collect()
}

#[test]
fn every_command_that_is_named_is_one_with_its_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named: Vec<(String, String)> =
        commands(&readme()).into_iter().map(|c| ("README.md".to_owned(), c)).collect();
    // Hints and messages, which break their strings anywhere.
    for file in crate::sources(&root.join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let text: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
        named.extend(text.concat().lines().flat_map(commands).map(|c| (file.display().to_string(), c)));
    }
    assert!(named.len() > 30, "{named:?}");
    for (file, command) in named {
        // A pipe's first program; what is optional, too; and `…` for more of the same.
        let words = command.split(['|', '>']).next().unwrap().replace(['[', ']', '…', ','], "");
        // What a message fills in is a DaemonSet's name.
        let filled = |word| if str::starts_with(word, '{') { "a/b" } else { word };
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).map(filled).collect();
        let parsed = daemonlet::cli::command().try_get_matches_from(&words);
        let is_whole = |error: &clap::Error| {
            // A command named without what it works on.
            error.kind() == clap::error::ErrorKind::MissingRequiredArgument
                || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        };
        if let Err(error) = parsed.map(drop) {
            assert!(is_whole(&error), "{file}: {command}: {error}");
        }
    }
}

#[test]
fn every_dependency_is_explained() {
    let readme = readme();
    let cargo = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let cargo: toml::Table = cargo.parse().unwrap();
    let table: String = readme.lines().filter(|l| l.starts_with("| ")).collect();
    for section in ["dependencies", "dev-dependencies"] {
        for name in cargo[section].as_table().unwrap().keys() {
            assert!(table.contains(name.as_str()), "the README does not say why {name} is there");
        }
    }
}
