//! `daemonlet init`: a small configuration, made of options and answers.
//!
//! Owns the questions and the file. Must not write a file that the agent could not read, or over an existing file.

use std::fs;
use std::io;
use std::io::BufRead;
use std::io::IsTerminal;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::enroll;
use crate::cli::offline;
use crate::cli::output;
use crate::cli::plan;
use crate::config;
use crate::config::Config;
use crate::node::socket::SocketOperation;

/// The mode of the file: it holds no secret.
const MODE: u32 = 0o644;

/// What to do about a file that cannot be written.
const ANOTHER: &str = "name another file with --output";

/// The answer that stands for no API server.
const NO_API: &str = "none";

/// The namespaces that the packaged configuration has.
const NAMESPACES: &str = "kube-system";

/// What is done with a DaemonSet of the API that has no label daemonlet.dev/mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DefaultMode {
    /// Leave it alone
    Labelled,
    /// Run it in place of the DaemonSet controller
    Static,
    /// Run it until the DaemonSet controller's pod can run
    Bootstrap,
}

impl DefaultMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Labelled => "labelled",
            Self::Static => "static",
            Self::Bootstrap => "bootstrap",
        }
    }
}

/// Write a small configuration, and show what the agent would do with it
///
/// On a terminal it asks for what the options do not say; otherwise it takes the defaults. Exit code: 0 written or
/// printed, 1 the file is there already, 3 it cannot be written or would be invalid.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to do with a DaemonSet of the API without the label daemonlet.dev/mode [default: labelled]
    #[arg(long, value_enum)]
    mode: Option<DefaultMode>,
    /// Namespaces whose DaemonSets of the API may run here, with commas between [default: kube-system]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    namespaces: Option<Vec<String>>,
    /// The agent's kubeconfig, or none: no API server [default: what `daemonlet enroll` writes, once it is there]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// The file to write; - prints it and writes nothing
    #[arg(short, long, value_name = "FILE", default_value = "/etc/daemonlet/daemonlet.d/50-local.toml")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
}

/// What the file is made of.
#[derive(Debug, PartialEq, Eq)]
struct Choices {
    mode: DefaultMode,
    namespaces: Vec<String>,
    /// `None`: the default of the key.
    kubeconfig: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let path = &arguments.output;
    let is_stdout = path == Path::new("-");
    // A rename would take the place of a device, too.
    if !is_stdout && fs::symlink_metadata(path).is_ok_and(|there| !there.is_file() && !there.is_symlink()) {
        return Err(unwritten(path, "it is there and is no file"));
    }
    if !is_stdout && path.exists() && !arguments.force {
        return Err(is_there(path));
    }
    let stdin = io::stdin();
    let choices = match stdin.is_terminal() {
        true => choices(arguments, Some(&mut stdin.lock())),
        false => choices(arguments, None),
    };
    check(&choices)?;
    let text = toml(&choices);
    config::read_text(if is_stdout { Path::new("<stdout>") } else { path }, text.clone())?;
    if is_stdout {
        output::data(&text)?;
        return Ok(Exit::Success);
    }
    write(path, &text, arguments.force)?;
    output::lines([format!("wrote {}", path.display())])?;
    let file = (!config::is_system_file(path)).then_some(path.as_path());
    let config = config::load(file)?;
    show_plan(&config)?;
    output::remarks(&enroll::kubeconfig_note(&config));
    output::remarks(&format!("next: {}\n", next(&config, &choices, file)));
    Ok(Exit::Success)
}

/// Reports what would be invalid in the file by the names of the options: the user has not seen the file yet.
fn check(choices: &Choices) -> Result<(), CommandFailure> {
    let failed = |option: &str, why: String| (format!("{option}: {why}"), None);
    let none = choices.namespaces.is_empty().then(|| failed("--namespaces", "no namespace is named".to_owned()));
    let namespaces = choices.namespaces.iter().filter_map(|namespace| config::namespace(namespace).err());
    let kubeconfig = choices.kubeconfig.as_deref().filter(|path| *path != NO_API);
    let kubeconfig = kubeconfig.and_then(|path| config::path(path).err());
    let errors: Vec<_> = none
        .into_iter()
        .chain(namespaces.map(|why| failed("--namespaces", why)))
        .chain(kubeconfig.map(|why| failed("--kubeconfig", why)))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(CommandFailure { exit: Exit::Unreadable, errors }) }
}

/// The namespaces in `text`, with commas or blanks between.
fn namespaces(text: &str) -> Vec<String> {
    text.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The mode that an answer names.
fn mode_of(word: &str) -> Result<DefaultMode, String> {
    DefaultMode::from_str(word, true).map_err(|_| format!("{word} is no mode"))
}

/// The namespaces that an answer names.
fn namespaces_of(text: &str) -> Result<Vec<String>, String> {
    let named = namespaces(text);
    if named.is_empty() {
        return Err("no namespace is named".to_owned());
    }
    named.iter().try_for_each(|namespace| config::namespace(namespace).map(drop))?;
    Ok(named)
}

/// The kubeconfig that an answer names; `None`: the default of the key.
fn kubeconfig_of(word: &str) -> Result<Option<String>, String> {
    match word {
        "default" => Ok(None),
        NO_API => Ok(Some(word.to_owned())),
        path => config::path(path).map(|_| Some(path.to_owned())),
    }
}

/// The options, and answers to what they leave open. Where no answer comes, defaults hold; without `input` nothing is asked.
fn choices(arguments: &Arguments, mut input: Option<&mut dyn BufRead>) -> Choices {
    let mode = arguments.mode.unwrap_or_else(|| {
        let question = "What to do with DaemonSets of the API that have no label daemonlet.dev/mode\n  \
                        labelled   leave them alone\n  \
                        static     run them in place of the DaemonSet controller\n  \
                        bootstrap  run them until the DaemonSet controller's pod can run\nmode";
        let input = input.as_deref_mut();
        input.and_then(|input| answer(input, question, "labelled", mode_of)).unwrap_or(DefaultMode::Labelled)
    });
    let named = arguments.namespaces.as_ref().map(|words| namespaces(&words.join(",")));
    let named = named.or_else(|| {
        let question = "Namespaces whose DaemonSets of the API may run here (* is all)";
        answer(input.as_deref_mut()?, question, NAMESPACES, namespaces_of)
    });
    let kubeconfig = arguments.kubeconfig.clone().or_else(|| {
        let question = "Kubeconfig of the agent (none: no API server; default: what `daemonlet enroll` writes)";
        answer(input?, question, "default", kubeconfig_of).flatten()
    });
    Choices { mode, namespaces: named.unwrap_or_else(|| namespaces(NAMESPACES)), kubeconfig }
}

/// What `read` makes of the answer to `question`, which is asked again while that is wrong; an empty line is the default.
/// `None`: no answer comes.
fn answer<T>(
    input: &mut dyn BufRead,
    question: &str,
    default: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    loop {
        let mut line = String::new();
        output::remarks(&format!("{question} [{default}]: "));
        if input.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let word = Some(line.trim()).filter(|word| !word.is_empty()).unwrap_or(default);
        match read(word) {
            Ok(value) => return Some(value),
            Err(why) => output::remarks(&output::line(why)),
        }
    }
}

fn toml(choices: &Choices) -> String {
    // A JSON string is a TOML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let namespaces: Vec<String> = choices.namespaces.iter().map(|namespace| quoted(namespace)).collect();
    let kubeconfig = match choices.kubeconfig.as_deref() {
        None => String::new(),
        Some(NO_API) => "kubeconfig = \"\"\n".to_owned(),
        Some(path) => format!("kubeconfig = {}\n", quoted(path)),
    };
    let trust = match choices.namespaces.iter().all(|namespace| namespace == NAMESPACES) {
        true => "",
        false => "# DaemonSets of kube-system alone may use the host. For others, set trusted-namespaces.\n",
    };
    format!(
        "# Written by `daemonlet init`. daemonlet.toml(5) has every key, and `daemonlet run --print-config` those in force.\n\
         default-mode = {}\n{kubeconfig}\n[policy]\n{trust}namespaces = [{}]\n",
        quoted(choices.mode.as_str()),
        namespaces.join(", ")
    )
}

/// Writes the file whole or not at all.
fn write(path: &Path, text: &str, force: bool) -> Result<(), CommandFailure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            unwritten(path, &config::io_reason(&error)).hint(format!("run it as root, or {ANOTHER}"))
        }
        _ => unwritten(path, &config::io_reason(&error)),
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => unwritten(path, &format!("{} is no folder", folder.display())),
            _ => failed(error),
        })?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let staged = path.with_file_name(name);
    let stage = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&staged)?;
        file.set_permissions(fs::Permissions::from_mode(MODE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // A link takes no name that is taken.
        if force { fs::rename(&staged, path) } else { fs::hard_link(&staged, path) }
    };
    let done = stage();
    // After a rename it is gone.
    let _ = fs::remove_file(&staged);
    done.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => is_there(path),
        _ => failed(error),
    })
}

fn unwritten(path: &Path, why: &str) -> CommandFailure {
    CommandFailure::new(Exit::Unreadable, format!("{}: cannot be written: {why}", path.display())).hint(ANOTHER)
}

fn is_there(path: &Path) -> CommandFailure {
    CommandFailure::new(Exit::Refused, format!("{}: there is such a file, and nothing is written", path.display()))
        .hint("--force replaces it; --output names another one")
}

/// Prints what a first pass would do with what the disk has.
fn show_plan(config: &Config) -> Result<(), CommandFailure> {
    let report = offline::answer(config, &SocketOperation::Plan).and_then(|value| {
        serde_json::from_value(value).map_err(|error| CommandFailure::new(Exit::Refused, error.to_string()))
    });
    match report {
        Ok(report) => output::data(&format!("the first pass, by folders and checkpoint:\n{}", plan::human(&report)))?,
        Err(failure) => {
            let why = failure.errors.into_iter().map(|(message, _)| message).collect::<Vec<_>>().join("; ");
            output::remarks(&output::line(format!("the first pass cannot be shown: {why}")));
        }
    }
    if config.kubeconfig.is_some() {
        output::remarks("what only the API server has is not in it: the agent hears of that when it runs\n");
    }
    Ok(())
}

/// The command to type now. `file`: the configuration, if it is not the system's.
fn next(config: &Config, choices: &Choices, file: Option<&Path>) -> String {
    let with = file.map(|file| format!(" --config {}", file.display())).unwrap_or_default();
    let is_running = UnixStream::connect(config.socket()).is_ok();
    let start = match file {
        Some(_) => format!("daemonlet run{with}"),
        None if is_running => "systemctl reload daemonlet".to_owned(),
        None => "systemctl enable --now daemonlet".to_owned(),
    };
    let has_kubeconfig = config.kubeconfig.as_ref().is_some_and(|path| path.exists());
    match choices.kubeconfig.as_deref() {
        Some(NO_API) => start,
        _ if has_kubeconfig => start,
        _ => format!("daemonlet enroll{with} && {start}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments { mode: None, namespaces: None, kubeconfig: None, output: PathBuf::from("x"), force: false }
    }

    #[test]
    fn answers_fill_what_the_options_leave_open() {
        let chosen = |arguments: &Arguments, input: &str| choices(arguments, Some(&mut input.as_bytes()));
        let kube_system = vec!["kube-system".to_owned()];
        let none = Choices { mode: DefaultMode::Labelled, namespaces: kube_system.clone(), kubeconfig: None };
        assert_eq!(chosen(&arguments(), ""), none, "no answer");
        assert_eq!(chosen(&arguments(), "\n\n\n"), none, "the defaults are taken");
        let all = chosen(&arguments(), "statik\nStatic\nA_B\n,\na, b\nrelative\nnone\n");
        let namespaces = ["a", "b"].map(str::to_owned).to_vec();
        assert_eq!(all, Choices { mode: DefaultMode::Static, namespaces, kubeconfig: Some("none".to_owned()) });
        let given = Arguments { mode: Some(DefaultMode::Bootstrap), kubeconfig: Some("/k".to_owned()), ..arguments() };
        let rest = chosen(&given, "c\n");
        let words =
            Arguments { namespaces: Some(["kube-system", " ", "c", ""].map(str::to_owned).to_vec()), ..arguments() };
        assert_eq!(choices(&words, None).namespaces, ["kube-system", "c"]);
        let namespaces = vec!["c".to_owned()];
        assert_eq!(rest, Choices { mode: DefaultMode::Bootstrap, namespaces, kubeconfig: Some("/k".to_owned()) });
    }

    #[test]
    fn every_choice_is_a_configuration() {
        for (kubeconfig, expected) in [(None, None), (Some("none"), None), (Some("/a \"b\""), Some("/a \"b\""))] {
            let choices = Choices {
                mode: DefaultMode::Static,
                namespaces: ["a", "*"].map(str::to_owned).to_vec(),
                kubeconfig: kubeconfig.map(str::to_owned),
            };
            let config = config::read_text(Path::new("/x.toml"), toml(&choices)).expect("it can be read");
            assert_eq!(config.default_mode, Some(crate::core::model::Mode::Static));
            assert_eq!(config.policy_namespaces, ["a", "*"]);
            assert_eq!(config.is_written("kubeconfig"), kubeconfig.is_some());
            assert_eq!(config.kubeconfig.filter(|_| kubeconfig.is_some()), expected.map(PathBuf::from));
        }
    }
}
