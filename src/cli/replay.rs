//! `daemonlet replay`: the passes of a support bundle, decided again by this program.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::cli::support_bundle::RECORDING;
use crate::config;
use crate::node::agent::replay;
use crate::node::agent::replay::ReplayReport;
use crate::node::recording::read::MAX_FILE;
use crate::node::recording::read::ReadError;

/// How a compressed bundle begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The most bytes of a bundle, unpacked.
const MAX_BUNDLE: u64 = 512 << 20;

/// Decide the passes of a support bundle again, and print where today's decisions differ
///
/// Exit code: 0 every decision is the same, 1 one differs, 3 the bundle cannot be read.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What `daemonlet support-bundle` wrote, or the recording in it; - for standard input
    bundle: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let path = &arguments.bundle;
    let name = if path == Path::new("-") { Path::new("<stdin>") } else { path };
    let refuse = |why: &str| CommandFailure::new(Exit::Unreadable, format!("{}: {why}", name.display()));
    let recording = read(path).map_err(|why| refuse(&why))?.ok_or_else(|| {
        refuse(&format!("it has no {RECORDING}: no agent answered when it was made"))
            .hint("make it again while the agent answers: daemonlet support-bundle")
    })?;
    let report = replay::replay(&recording).map_err(|error| match error {
        ReadError::NotOne(_) => refuse(&error.to_string()).hint("give a file that `daemonlet support-bundle` wrote"),
        _ => refuse(&error.to_string()),
    })?;
    output::lines(text(&report))?;
    if report.passes == 0 {
        return Err(refuse("it has no passes"));
    }
    let is_same = report.differences.is_empty() && report.unreadable.is_empty();
    Ok(if is_same { Exit::Success } else { Exit::Refused })
}

/// The recording of a bundle, or what it is that is no bundle; none: the bundle has no recording.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let words = |error: std::io::Error| format!("cannot be read: {}", config::io_reason(&error));
    let bytes = match path == Path::new("-") {
        true => bounded(std::io::stdin()).map_err(words)?,
        false => bounded(File::open(path).map_err(words)?).map_err(words)?,
    };
    if !bytes.starts_with(&GZIP) {
        return Ok(Some(bytes));
    }
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&*bytes).take(MAX_BUNDLE));
    for entry in archive.entries().map_err(words)? {
        let entry = entry.map_err(words)?;
        if entry.path().is_ok_and(|path| path == Path::new(RECORDING)) {
            return bounded(entry).map(Some).map_err(words);
        }
    }
    Ok(None)
}

/// All of `reader`, and one byte more than a recording may have at most: it is refused later.
fn bounded(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(report: &ReplayReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, why) in &report.unreadable {
        lines.push(format!("{at} this program cannot decide it: {why}"));
    }
    for found in &report.differences {
        let replay::DecisionDifference { at, path, recorded, today } = found;
        lines.push(format!("{at} {path}: recorded {recorded}, today {today}"));
    }
    let mut different: Vec<_> = report.differences.iter().map(|found| found.at).collect();
    different.dedup();
    let differ = different.len() + report.unreadable.len();
    let (passes, version) = (report.passes, &report.version);
    lines.push(match differ {
        0 => format!("passes: {passes}, recorded by daemonlet {version}; every decision is the same"),
        _ => format!("passes: {passes}, recorded by daemonlet {version}; decided differently: {differ}"),
    });
    if report.missed > 0 {
        lines.push(format!("passes that are not in the recording, because they came too fast: {}", report.missed));
    }
    lines
}
