//! What README and docs show is what one sees: their commands are run and their output is compared; what they
//! have to name (keys, commands, annotations, dependencies) is all there; and every link leads somewhere.

mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// README and every page of docs, by their paths.
pub(crate) fn pages() -> Vec<(String, String)> {
    let in_folder = |folder: &str| -> Vec<String> {
        let names = crate::names(&root().join(folder)).into_iter().filter(|name| name.ends_with(".md"));
        names.map(|name| format!("{folder}/{name}")).collect()
    };
    let paths = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
        .into_iter()
        .map(str::to_owned)
        .chain(in_folder("docs"))
        .chain(in_folder("docs/recipes"))
        .chain(in_folder("docs/tutorials"));
    let pages: Vec<_> = paths.map(|path| (path.clone(), read(&path))).collect();
    assert!(pages.len() > 10, "the pages are not found");
    pages
}

/// The lines of `page` that are in blocks of code in the language `language`.
pub(crate) fn blocks<'a>(page: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut inside: Option<(&str, Vec<&str>)> = None;
    let mut indent = 0;
    for line in page.lines() {
        let fence = line.trim_start().strip_prefix("```");
        if fence.is_some() && inside.is_none() {
            indent = line.len() - line.trim_start().len();
        }
        let line = line.get(indent..).unwrap_or_default();
        match (fence, &mut inside) {
            (Some(language), None) => inside = Some((language, Vec::new())),
            (Some(_), Some(_)) => found.extend(inside.take()),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    assert!(inside.is_none(), "a block of code has no end");
    found.into_iter().filter(|(of, _)| *of == language).map(|(_, lines)| lines).collect()
}

/// `page` without its blocks of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    };
    page.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// The commands of the console blocks of `page`, each with the lines shown below it.
fn shown(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut shown: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in blocks(page, "console").concat() {
        match line.strip_prefix("$ ") {
            Some(command) => shown.push((command, Vec::new())),
            None => shown.last_mut().unwrap().1.push(line),
        }
    }
    shown
}

/// Whether `printed` is what `expected` shows; a line `…` there stands for any lines.
fn fits(printed: &[&str], expected: &[&str]) -> bool {
    let parts: Vec<&[&str]> = expected.split(|line| *line == "…").collect();
    let Some((first, others)) = parts.split_first() else { return printed.is_empty() };
    let Some((last, between)) = others.split_last() else { return printed == *first };
    let Some(mut rest) = printed.strip_prefix(*first) else { return false };
    for part in between {
        let Some(at) = (0..=rest.len()).find(|at| rest[*at..].starts_with(part)) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn an_ellipsis_stands_for_any_lines_and_nothing_else_is_left_out() {
    let fit = |printed: &str, expected: &str| {
        fits(&printed.split(' ').collect::<Vec<_>>(), &expected.split(' ').collect::<Vec<_>>())
    };
    for expected in ["a b c", "a … c", "… c", "a …", "… b …", "a … b …", "a … … b c"] {
        assert!(fit("a b c", expected), "{expected}");
    }
    for expected in ["a b", "b c", "… b", "b …", "a … b", "c … a", "… d …", "a b … b c"] {
        assert!(!fit("a b c", expected), "{expected}");
    }
}

/// Where the pages keep what they try; the test has a folder of its own in its place.
const TRY: &str = "/tmp/try";

/// Runs the commands of `page` in their order in a folder of its own; gives how many there were.
fn run_page(path: &str, page: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    for name in ["examples", "tests"] {
        std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    let tried = folder.path().join("try").display().to_string();
    fs::create_dir(&tried).unwrap();
    for file in blocks(page, "toml") {
        // A file of such a name in its first line is written before the first command.
        if let Some(name) = file[0].strip_prefix("# ").and_then(|first| first.strip_prefix(TRY)) {
            fs::write(format!("{tried}{name}"), file.join("\n").replace(TRY, &tried)).unwrap();
        }
    }
    let commands = shown(page);
    for (command, expected) in &commands {
        let words: Vec<String> = command.split(' ').map(|word| word.replace(TRY, &tried)).collect();
        let of = |mut program: Command| program.args(&words[1..]).current_dir(folder.path()).output().unwrap();
        let output = match words[0].as_str() {
            "daemonlet" => of(crate::program()),
            "kubectl" if words[1] == "daemonlet" => crate::plugin::kubectl_daemonlet(&words[2..]),
            known @ ("cat" | "chmod" | "cp" | "ls" | "mkdir") => of(Command::new(known)),
            other => panic!("{path}: {other} is no command that this test runs"),
        };
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap().replace(&tried, TRY);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(fits(&lines, expected), "{path}: {command} prints\n{printed}");
    }
    commands.len()
}

#[test]
fn commands_print_what_the_pages_show() {
    let commands: usize = pages().iter().map(|(path, page)| run_page(path, page)).sum();
    assert!(commands >= 10, "the console blocks are not found");
}

#[test]
fn the_readme_begins_with_the_two_commands_and_is_short() {
    let (readme, makefile) = (read("README.md"), read("Makefile"));
    for target in ["demo", "test", "check", "showcase", "packages"] {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
        assert!(readme.contains(&format!("make {target}")), "the README does not name make {target}");
    }
    let first: Vec<&str> = readme.lines().filter(|l| !l.is_empty()).skip(1).take(2).map(str::trim).collect();
    assert!(first[0].starts_with("make demo") && first[1].starts_with("make test"), "{first:?}");
    assert!(readme.lines().count() <= 130, "the README is to be read in two minutes: move something to docs");
}

/// How a command of ours begins: the program's own, and the plugin's.
const OURS: [&str; 2] = ["daemonlet ", "kubectl daemonlet "];

fn is_ours(line: &str) -> bool {
    OURS.iter().any(|start| line.starts_with(start))
}

/// `text` between backticks that begins with the program's name, one command each.
fn commands(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    spans.filter(|span| is_ours(span)).collect()
}

/// The commands in the blocks of shell commands of `page`.
fn scripted(page: &str) -> Vec<String> {
    let lines = blocks(page, "sh").concat();
    let lines = lines.iter().map(|line| line.split(" #").next().unwrap().trim());
    lines.filter(|line| is_ours(line)).map(str::to_owned).collect()
}

#[test]
fn every_command_that_is_named_is_one_with_its_options() {
    let mut named: Vec<(String, String)> = Vec::new();
    for (path, page) in pages() {
        named.extend(scripted(&page).into_iter().chain(commands(&prose(&page))).map(|command| (path.clone(), command)));
    }
    // Hints and messages, which break their strings anywhere.
    for file in crate::sources(&root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let text: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
        named.extend(text.concat().lines().flat_map(commands).map(|c| (file.display().to_string(), c)));
    }
    assert!(named.len() > 30, "{named:?}");
    for (file, command) in named {
        // A pipe's first program; what is optional, too; and `…` for more of the same.
        let words = command.split(['|', '>']).next().unwrap().replace(['[', ']', '…', ',', '\\'], "");
        // What a message fills in is a DaemonSet's name.
        let filled = |word| if str::starts_with(word, '{') { "a/b" } else { word };
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).map(filled).collect();
        let parsed = match words[0] {
            "kubectl" => daemonlet::cli::plugin().try_get_matches_from(&words[1..]),
            _ => daemonlet::cli::command().try_get_matches_from(&words),
        };
        let is_whole = |error: &clap::Error| {
            // A command named without what it works on.
            error.kind() == clap::error::ErrorKind::MissingRequiredArgument
                || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                || error.kind() == clap::error::ErrorKind::DisplayHelp
        };
        if let Err(error) = parsed.map(drop) {
            assert!(is_whole(&error), "{file}: {command}: {error}");
        }
    }
}

#[test]
fn the_page_of_commands_has_every_command() {
    let page = read("docs/cli.md");
    let command = daemonlet::cli::command();
    let mut names = Vec::new();
    for one in command.get_subcommands() {
        let below: Vec<_> = one.get_subcommands().map(|sub| format!("{} {}", one.get_name(), sub.get_name())).collect();
        if below.is_empty() { names.push(one.get_name().to_owned()) } else { names.extend(below) }
    }
    assert!(names.len() > 12, "{names:?}");
    for name in names.iter().filter(|name| !name.starts_with("help")) {
        let has =
            |line: &str| line.strip_prefix(&format!("| `daemonlet {name}")).is_some_and(|l| l.starts_with(['`', ' ']));
        assert!(page.lines().any(has), "docs/cli.md does not have daemonlet {name}");
    }
}

/// The keys of the shipped configuration, each with its section and its value there.
fn keys() -> Vec<(String, String, String)> {
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in read("packaging/daemonlet.toml").lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((name, value)) = line.strip_prefix('#').and_then(|key| key.split_once(" = "))
            && !name.contains(' ')
        {
            keys.push((section.clone(), name.to_owned(), value.to_owned()));
        }
    }
    keys
}

/// Keys whose default depends on the host: the shipped file has an example.
const BY_HOST: [&str; 4] = ["node-name", "kubeconfig", "manifest-dir", "runtime-endpoint"];

#[test]
fn the_page_of_the_configuration_has_every_key_with_its_default_and_no_other() {
    let page = read("docs/configuration.md");
    let mut rows: BTreeSet<(String, String, String)> = BTreeSet::new();
    let mut section = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            section = title.strip_prefix('[').map(|name| name.trim_end_matches(']').to_owned()).unwrap_or_default();
        } else if let Some((name, rest)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | ")) {
            let value = rest.split(" | ").next().unwrap();
            rows.insert((section.clone(), name.to_owned(), value.trim_matches('`').to_owned()));
        }
    }
    let keys = keys();
    assert!(keys.len() > 40, "{keys:?}");
    for (section, name, value) in &keys {
        let row = rows.iter().find(|row| row.0 == *section && row.1 == *name);
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md does not have {name} in [{section}]"));
        if !(section.is_empty() && BY_HOST.contains(&name.as_str())) {
            assert_eq!(row.2, *value, "the default of {name} in [{section}] in docs/configuration.md");
        }
    }
    for (section, name, _) in &rows {
        assert!(keys.iter().any(|key| key.0 == *section && key.1 == *name), "there is no key {name} in [{section}]");
    }
}

/// The folders that no package makes: an empty folder of DaemonSets would say that all of them are gone.
const MADE_BY_HAND: [&str; 2] = ["/etc/daemonlet/daemonsets.d", "/etc/daemonlet/daemonlet.d"];

#[test]
fn what_the_pages_write_into_a_folder_of_a_node_makes_the_folder_first() {
    let mut seen = 0;
    for (path, page) in pages() {
        let of_scripts = blocks(&page, "sh").into_iter().map(|lines| lines.join("\n"));
        let plain = prose(&page);
        let of_lines = plain.split('`').skip(1).step_by(2).filter(|span| span.starts_with(|c: char| c.is_lowercase()));
        for script in of_scripts.chain(of_lines.map(|span| span.replace('\n', " "))) {
            let writes = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let is_there = |word: &&str| MADE_BY_HAND.iter().any(|folder| word.starts_with(folder));
                words.iter().any(|word| ["install", "cp", "mv", "ln", ">"].contains(word)) && words.iter().any(is_there)
            };
            for line in script.lines().filter(writes) {
                let makes = line.contains("install -D ") || script.contains("mkdir -p /etc/daemonlet/");
                assert!(makes, "{path}: {line}: the folder may not be there");
                seen += 1;
            }
        }
        // What a person writes there with an editor; cloud-init (`path:`) makes folders itself.
        let by_hand =
            page.lines().any(|line| line.contains("# /etc/daemonlet/daemonlet.d/") || line.contains("`50-local.toml`"));
        assert!(
            !by_hand || page.contains("/etc/daemonlet/daemonlet.d"),
            "{path}: nothing makes the folder of drop-ins"
        );
        assert!(!by_hand || page.contains("mkdir -p "), "{path}: nothing makes the folder of drop-ins");
    }
    assert!(seen > 4, "the commands are not found: {seen}");
}

#[test]
fn every_annotation_is_described() {
    let page = read("docs/annotations.md");
    let sources: Vec<String> =
        crate::sources(&root().join("src")).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let constants = sources.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("pub const "));
    let names: BTreeSet<&str> =
        constants.flat_map(|line| line.split('"')).filter(|text| text.starts_with("daemonlet.dev/")).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}")), "docs/annotations.md does not have {name}");
    }
}

#[test]
fn every_dependency_is_explained() {
    let page = read("docs/dependencies.md");
    let cargo: toml::Table = read("Cargo.toml").parse().unwrap();
    let table: String = page.lines().filter(|line| line.starts_with("| ")).collect();
    for section in ["dependencies", "dev-dependencies"] {
        for name in cargo[section].as_table().unwrap().keys() {
            assert!(table.contains(name.as_str()), "docs/dependencies.md does not say why {name} is there");
        }
    }
}

#[test]
fn every_source_that_is_named_exists() {
    let mut named = 0;
    for (path, page) in pages() {
        let spans = page.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.starts_with("src/") || span.starts_with("tests/")) {
            assert!(root().join(span).exists(), "{path}: there is no {span}");
            named += 1;
        }
    }
    let readme = read("README.md");
    let nouns = readme.split("| noun |").nth(1).unwrap().split("\n\n").next().unwrap();
    for file in nouns.split('`').skip(1).step_by(2).filter(|span| span.ends_with(".rs") && !span.contains('/')) {
        assert!(root().join("src/node/agent").join(file).exists(), "README.md: there is no {file}");
        named += 1;
    }
    assert!(named > 20, "the files are not found");
}
