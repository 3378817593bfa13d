//! `daemonlet support-bundle`: what a person without access to the node needs, to see what it observed and decided.
//!
//! Owns the content, and that no secret is in it: data that cannot be redacted is left out, and the bundle says so.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::ask;
use crate::cli::doctor;
use crate::cli::output;
use crate::clock::now;
use crate::config;
use crate::config::Config;
use crate::core::status::StatusReport;
use crate::node::recording::export::ConfigMapValues;
use crate::node::recording::export::for_bundle;
use crate::node::recording::redact;
use crate::node::recording::redact::DigestKey;
use crate::node::socket::SocketOperation;
use crate::regular_file;

/// The recording's name in a bundle.
pub(super) const RECORDING: &str = "recording.cbor";
/// The most bytes of a record.
const MAX_RECORD: u64 = 64 << 20;
/// How many log lines.
const LINES: &str = "1000";

/// Write one file with what this node observed and decided, for a bug report
///
/// The agent's last passes, configuration, records, status, doctor, versions and the last log lines.
/// No Secret and no token is in it. `daemonlet replay` reads it. Works without a running agent too.
/// Exit code: 0 written, or printed with --list, also if something could not be had, which it names, 3 the file
/// is there already or cannot be written, or the configuration is invalid.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The file to write, which must not exist; - for standard output [default: daemonlet-<node>-<time>.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave the values of ConfigMaps out, except lists of overlays
    #[arg(long)]
    no_data: bool,
    /// Only print what would be in it, with sizes in bytes
    #[arg(long)]
    list: bool,
}

/// The agent's answers.
#[derive(Deserialize)]
struct HandedOver {
    path: PathBuf,
}

/// The content of a bundle.
#[derive(Default)]
struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    /// What could not be collected, for README.txt and for the terminal.
    missing: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    let values = if arguments.no_data { ConfigMapValues::LeftOut } else { ConfigMapValues::Kept };
    let bundle = Bundle::collect(&config, values);
    output::remarks(&bundle.missing.iter().map(output::line).collect::<String>());
    if arguments.list {
        let line = |(name, bytes): &(String, Vec<u8>)| format!("{:>9}  {name}", bytes.len());
        output::lines(bundle.files.iter().map(line))?;
        return Ok(Exit::Success);
    }
    let stamp: String = now().to_string().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let default = || PathBuf::from(format!("daemonlet-{}-{stamp}.tar.gz", config.node_name));
    let path = arguments.output.clone().unwrap_or_else(default);
    if path == Path::new("-") {
        return match bundle.pack(std::io::stdout().lock()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(output::unwritten(&error)),
            _ => Ok(Exit::Success),
        };
    }
    bundle.write(&path).map_err(|error| {
        let why = config::io_reason(&error);
        CommandFailure::new(Exit::Unreadable, format!("{}: cannot be written: {why}", path.display()))
            .hint("name another file with --output, in a folder that is there and that this user may write to")
    })?;
    output::lines([format!("wrote {}", path.display())])?;
    Ok(Exit::Success)
}

impl Bundle {
    fn collect(config: &Config, values: ConfigMapValues) -> Self {
        let mut bundle = Self::default();
        // Asked first and, if it is silent, only once: it has 10 s for each answer.
        let asked = ask::try_agent::<Value>(config, &SocketOperation::Status);
        bundle.recording(config, values, asked.is_err());
        bundle.add_text("config.toml", &config.print());
        bundle.records(&config.state_dir);
        let status = match &asked {
            Ok(Some(status)) => Ok(status.clone()),
            Ok(None) => ask::ask(config, &SocketOperation::Status),
            Err(failure) => Err(failure.clone()),
        };
        match status {
            Ok(status) => bundle.add_json("status.json", &status),
            Err(failure) => bundle.lacks("status.json", &failure.line()),
        }
        match doctor::report_with(config, asked.and_then(|answer| answer.map(understood).transpose())) {
            Ok(report) => bundle.add_json("doctor.json", &report),
            Err(failure) => bundle.lacks("doctor.json", &failure.line()),
        }
        bundle.add_json("versions.json", &versions());
        match log_lines() {
            Ok(text) => bundle.add_text("log.txt", &text),
            Err(why) => bundle.lacks("log.txt", &why),
        }
        let readme = bundle.readme(values);
        bundle.add("README.txt", readme);
        bundle
    }

    fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.push((name.to_owned(), bytes.into()));
    }

    fn add_text(&mut self, name: &str, text: &str) {
        self.add(name, redact::without_credentials(text));
    }

    fn add_json(&mut self, name: &str, value: &impl serde::Serialize) {
        if let Ok(text) = output::json(value) {
            self.add_text(name, &text);
        }
    }

    fn lacks(&mut self, name: &str, why: &str) {
        self.missing.push(format!("not in the bundle: {name} ({why})"));
    }

    /// The agent's last passes, keyed for this bundle.
    fn recording(&mut self, config: &Config, values: ConfigMapValues, is_silent: bool) {
        if is_silent {
            return self.lacks(RECORDING, "only the agent has it, and it could not be asked for its status either");
        }
        let path = match ask::try_agent::<HandedOver>(config, &SocketOperation::Recording) {
            Ok(Some(HandedOver { path })) => path,
            Ok(None) => return self.lacks(RECORDING, "no agent is running: the rest is what the disk has"),
            Err(failure) => return self.lacks(RECORDING, &failure.line()),
        };
        let read = std::fs::read(&path).map_err(|error| config::io_reason(&error));
        let _ = std::fs::remove_file(&path);
        match read.and_then(|bytes| for_bundle(&bytes, values).map_err(|error| error.to_string())) {
            Ok(bytes) => self.add(RECORDING, bytes),
            Err(why) => self.lacks(RECORDING, &format!("{}: {why}", path.display())),
        }
    }

    /// The records of the state folder. What is remembered of objects and tokens stays there: it holds Secrets.
    fn records(&mut self, state: &Path) {
        let folder = state.join("daemons");
        let Some(key) = DigestKey::random() else { return self.lacks("records", "no randomness for a key") };
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                let hint = if error.kind() == ErrorKind::PermissionDenied { "; hint: run this as root" } else { "" };
                let why = format!("{}: {}{hint}", folder.display(), config::io_reason(&error));
                return self.lacks("records", &why);
            }
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let records = names.map(|name| name.strip_suffix(".tmp").map(str::to_owned).unwrap_or(name));
        let records: BTreeSet<String> = records.filter(|name| name.ends_with(".json")).collect();
        for name in records {
            // What was written last is not in its place yet where the agent has just died.
            let staged = record(&folder.join(format!("{name}.tmp"))).ok();
            match staged.map_or_else(|| record(&folder.join(&name)), Ok) {
                Ok(mut record) => {
                    close_digests(&mut record, &key);
                    self.add_json(&format!("records/{name}"), &record);
                }
                Err(why) => self.lacks(&format!("records/{name}"), &why),
            }
        }
    }

    fn readme(&self, values: ConfigMapValues) -> String {
        let config_maps = match values {
            ConfigMapValues::Kept => "Values of ConfigMaps and DaemonSets are in it.",
            ConfigMapValues::LeftOut => {
                "Values of ConfigMaps were left out, but for lists of overlays; DaemonSets are in it."
            }
        };
        let mut text = format!(
            "A support bundle of daemonlet {}. `daemonlet replay` decides the recorded passes again.\n\
             {RECORDING}: the agent's last passes. records: what it remembers of each daemon. The rest is text.\n\
             No Secret and no token is in it: only a digest keyed for this bundle, the length and the shape of each.\n\
             Left out: the remembered objects and tokens of the state folder, and credentials in URLs.\n\
             {config_maps} Log lines and messages of containers are as they were written.\n",
            env!("CARGO_PKG_VERSION")
        );
        text.extend(self.missing.iter().map(|line| format!("{line}\n")));
        text
    }

    /// Writes the bundle for its owner alone, and over nothing.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // A truncated bundle is of no use, and in the way of the next.
        self.pack(file).inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    fn pack(&self, file: impl Write) -> std::io::Result<()> {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::default()));
        for (name, bytes) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(u64::try_from(now().as_secs()).unwrap_or(0));
            archive.append_data(&mut header, name, &**bytes)?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

/// The record at `path`, or why there is none.
fn record(path: &Path) -> Result<Value, String> {
    let unread = |error| format!("it cannot be read: {}", config::io_reason(&error));
    let bytes = regular_file::read_at_most(path, MAX_RECORD).map_err(unread)?;
    // The first line says which form the rest has.
    let json = bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
    serde_json::from_slice(json).map_err(|_| "it is damaged, and may hold anything".to_owned())
}

/// An agent of another version may say what this program does not understand.
fn understood(status: Value) -> Result<StatusReport, CommandFailure> {
    serde_json::from_value(status)
        .map_err(|error| CommandFailure::new(Exit::Refused, format!("the agent's answer is not understood: {error}")))
}

/// Keys digests of data: a short secret could be guessed from one.
fn close_digests(value: &mut Value, key: &DigestKey) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if redact::is_digest_of_data(name) || redact::is_digest(text) => {
                        *text = key.hex(text);
                    }
                    value => close_digests(value, key),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| close_digests(item, key)),
        _ => {}
    }
}

fn versions() -> Value {
    let line = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let release = line("/etc/os-release").unwrap_or_default();
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "daemonlet": env!("CARGO_PKG_VERSION"),
        "recording": crate::node::recording::FORMAT,
        "kernel": line("/proc/sys/kernel/osrelease"),
        "system": system.map(|name| name.trim_matches('"')),
        "architecture": std::env::consts::ARCH,
    })
}

/// The last lines of the journal.
fn log_lines() -> Result<String, String> {
    let journal = ["-u", "daemonlet", "-n", LINES, "-o", "short-iso", "--no-pager", "-q"];
    let ran = Command::new("journalctl").args(journal).stdin(Stdio::null()).output();
    match ran {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("journalctl: {}", config::io_reason(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_whole_record_is_in_a_bundle_and_what_cannot_be_read_is_named() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("daemons");
        fs::create_dir(&folder).unwrap();
        for (name, number) in [("a_new.json.tmp", 1), ("a_two.json", 1), ("a_two.json.tmp", 2), ("a_cut.json", 3)] {
            fs::write(folder.join(name), format!("form\n{{\"number\": {number}}}")).unwrap();
        }
        fs::write(folder.join("a_cut.json.tmp"), "form\n{\"num").unwrap();
        fs::write(folder.join("a_bad.json"), "form\n{").unwrap();
        nix::unistd::mkfifo(&folder.join("a_fifo.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut bundle = Bundle::default();
        bundle.records(state.path());
        let number = |(name, bytes): &(String, Vec<u8>)| {
            let record: Value = serde_json::from_slice(bytes).unwrap();
            (name.clone(), record["number"].as_u64().unwrap())
        };
        let expected = [("records/a_cut.json", 3), ("records/a_new.json", 1), ("records/a_two.json", 2)];
        let found: Vec<_> = bundle.files.iter().map(number).collect();
        assert_eq!(found, expected.map(|(name, number)| (name.to_owned(), number)));
        assert!(bundle.missing[0].contains("a_bad.json (it is damaged"), "{:?}", bundle.missing);
        assert!(bundle.missing[1].contains("a_fifo.json (it cannot be read: it is not a regular file"));
        assert_eq!(bundle.missing.len(), 2);
    }
}
