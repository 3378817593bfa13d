//! `cargo run --example manuals -- FOLDER`: manual pages and shell completions, made from the command
//! line and the table of configuration keys themselves, so that they say what the program does.
//!
//! An example, because what makes them need not be in the shipped program.

use std::error::Error;
use std::fs;
use std::path::Path;

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::Inline;
use clap_mangen::roff::Roff;
use clap_mangen::roff::bold;
use clap_mangen::roff::italic;
use clap_mangen::roff::roman;
use daemonlet::config::keys::ConfigKey;
use daemonlet::config::keys::KEYS;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What a page of the folders has to say; `FOLDERS` stands for the default.
const DAEMON_SETS: [(&str, &[&str]); 5] = [
    (
        "DESCRIPTION",
        &[
            "Files here are what kubectl apply -f takes: YAML or JSON, several documents in a file, files ending in \
             .yaml, .yml or .json. DaemonSets in them run on this node where their placement says so; ConfigMaps, \
             Secrets, ServiceAccounts and PriorityClasses in them are what those DaemonSets refer to. Everything \
             else in a file (RBAC, namespaces) is for the cluster: apply the same file once with kubectl.",
            "A DaemonSet from a folder needs no label and no API server. The API's version of the same name takes over \
             when there is one; where the template is the same, nothing restarts.",
        ],
    ),
    (
        "PRECEDENCE",
        &[
            "The folders are, the weakest first: FOLDERS. A file of a later folder replaces an earlier folder's file of \
             the same name, as systemd merges drop-ins. An empty file, or a link to /dev/null, masks it.",
        ],
    ),
    (
        "CHANGES",
        &["Files are watched. A changed template replaces what runs. A file that is removed ends its daemons, if its \
             folder is still there on the same file system. A file that cannot be read or does not parse changes \
             nothing: its last good content stays in force, and daemonlet status says what is wrong."],
    ),
    (
        "SECURITY",
        &[
            "Whoever can write to these folders is root on the node: a static pod may mount and do anything. They and their \
           files have to belong to root.",
        ],
    ),
    (
        "SEE ALSO",
        &["daemonlet(8), daemonlet.toml(5), daemonlet-render(8), /usr/share/doc/daemonlet/docs/daemonsets.md"],
    ),
];

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).ok_or("the folder to write to is missing")?;
    let (manuals, completions) = (Path::new(&folder).join("man"), Path::new(&folder).join("completions"));
    fs::create_dir_all(&manuals)?;
    fs::create_dir_all(&completions)?;
    let command = daemonlet::cli::command();
    let mut whole = command.clone();
    whole.build();
    pages(&whole, &manuals)?;
    let mut plugin = daemonlet::cli::plugin();
    plugin.build();
    pages(&plugin, &manuals)?;
    fs::write(manuals.join("daemonlet.toml.5"), configuration())?;
    fs::write(manuals.join("daemonlet-daemonsets.d.5"), daemon_sets()?)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut command.clone(), "daemonlet", &completions)?;
        println!("{}", file.display());
    }
    Ok(())
}

/// One page for a command and one for each of its subcommands.
fn pages(command: &clap::Command, folder: &Path) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        pages(subcommand, folder)?;
    }
    let mut page = Vec::new();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace(' ', "-");
    // Examples have a section of their own, whose lines are not filled.
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().display_name(&name).after_help(None))
        .title(&name)
        .section("8")
        .manual("System Administration")
        .source(source());
    man.render(&mut page)?;
    let mut more = Roff::new();
    if name == "daemonlet" {
        more.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in [
            ("0", "Done, nothing to report."),
            ("1", "Something is refused, failing or unknown."),
            ("2", "The command line cannot be understood."),
            ("3", "A path cannot be read, or a document or the configuration is invalid."),
            ("4", "plan: changes are pending."),
        ] {
            more.control("TP", []).text([bold(code)]).text([roman(meaning)]);
        }
        more.control("SH", ["FILES"]);
        for (file, meaning) in [
            ("/etc/daemonlet/daemonlet.toml", "The configuration; see daemonlet.toml(5)."),
            ("/etc/daemonlet/daemonsets.d", "DaemonSets of this node; see daemonlet-daemonsets.d(5)."),
            (
                "/var/lib/daemonlet",
                "What the node needs to start again without an API server. Secrets lie there, for root.",
            ),
            ("/run/daemonlet/agent.sock", "Where the agent answers status, plan and explain."),
        ] {
            more.control("TP", []).text([italic(file)]).text([roman(meaning)]);
        }
    }
    if !examples.is_empty() {
        more.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            more.text([roman(line)]);
        }
        more.control("fi", []);
    }
    more.control("SH", ["SEE ALSO"]);
    more.text([roman(
        "daemonlet(8), daemonlet.toml(5), daemonlet-daemonsets.d(5), kubelet(8), /usr/share/doc/daemonlet/docs",
    )]);
    more.to_writer(&mut page)?;
    fs::write(folder.join(format!("{name}.8")), page)?;
    Ok(())
}

fn source() -> String {
    format!("daemonlet {}", env!("CARGO_PKG_VERSION"))
}

fn heading(name: &str, what: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, "5", "", &source(), "File Formats"]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {what}"))]);
    page
}

/// daemonlet.toml(5), from the table of keys.
fn configuration() -> String {
    let mut page = heading("daemonlet.toml", "configuration of daemonlet");
    page.control("SH", ["SYNOPSIS"]);
    for file in [
        daemonlet::config::MAIN_FILE,
        "/usr/lib/daemonlet/daemonlet.d/*.toml",
        "/run/daemonlet/daemonlet.d/*.toml",
        "/etc/daemonlet/daemonlet.d/*.toml",
    ] {
        page.text([italic(file)]).control("br", []);
    }
    page.control("SH", ["DESCRIPTION"]).text([roman(
        "TOML. The files are read in the order above, and a later one's keys replace an earlier one's. Of files with the \
         same name only the last counts, and an empty one masks the others. A list or a table is replaced as a whole. A key that is not known, or a value that \
         cannot be, is an error that names file and line. daemonlet run --print-config shows the result and where each \
         value came from; systemctl reload daemonlet puts a change in force.",
    )]);
    let mut section = None;
    for key in KEYS {
        if section != Some(key.section()) {
            section = Some(key.section());
            let title =
                if key.section().is_empty() { "KEYS".to_owned() } else { format!("SECTION [{}]", key.section()) };
            page.control("SH", [title.as_str()]);
        }
        entry(&mut page, key);
    }
    page.control("SH", ["SEE ALSO"]).text([roman(
        "daemonlet(8), daemonlet-run(8), daemonlet-daemonsets.d(5), /usr/share/doc/daemonlet/docs/configuration.md",
    )]);
    page.render()
}

fn entry(page: &mut Roff, key: &ConfigKey) {
    page.control("TP", []).text([bold(key.name()), roman(" = "), italic((key.takes)())]);
    page.text([roman(key.doc().collect::<Vec<_>>().join("\n"))]);
    page.control("IP", []).text([roman("Default or example: "), bold(key.example)]);
}

/// daemonlet-daemonsets.d(5).
fn daemon_sets() -> Result<String> {
    let key =
        KEYS.iter().find(|key| key.section().is_empty() && key.name() == "folders").ok_or("there is no key folders")?;
    let folders: Vec<&str> = key.example.split('"').filter(|part| part.starts_with('/')).collect();
    let mut page = heading("daemonlet-daemonsets.d", "folders with DaemonSets for this node");
    page.control("SH", ["SYNOPSIS"]);
    for folder in &folders {
        page.text([italic(format!("{folder}/*.yaml"))]).control("br", []);
    }
    for (title, paragraphs) in DAEMON_SETS {
        page.control("SH", [title]);
        for paragraph in paragraphs {
            let text: Inline = roman(paragraph.replace("FOLDERS", &folders.join(", ")));
            page.control("PP", []).text([text]);
        }
    }
    Ok(page.render())
}
