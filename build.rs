//! What `Cargo.toml` cannot say: how the program is linked. And the texts of `daemonlet help`, small.

use std::env;
use std::fs;
use std::io;
use std::io::Read;
use std::path::Path;

use flate2::Compression;
use flate2::read::DeflateEncoder;

#[path = "src/cli/help/part.rs"]
mod part;
#[path = "src/cli/help/topics.rs"]
mod topics;

fn main() -> io::Result<()> {
    let folder = |name: &str| env::var_os(name).ok_or_else(|| io::Error::other(format!("cargo does not set {name}")));
    let (root, out) = (folder("CARGO_MANIFEST_DIR")?, folder("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/cli/help");
    let mut topics = Vec::new();
    for (name, page, heading) in topics::TOPICS {
        println!("cargo::rerun-if-changed=docs/{page}");
        let text = part::part(&fs::read_to_string(Path::new(&root).join("docs").join(page))?, heading);
        topics.push(part::TopicPart { name: (*name).to_owned(), page: (*page).to_owned(), text });
    }
    let parts: String = topics.iter().map(|topic| part::with_targets(topic, &topics) + "\0").collect();
    let mut deflated = Vec::new();
    DeflateEncoder::new(parts.as_bytes(), Compression::best()).read_to_end(&mut deflated)?;
    fs::write(Path::new(&out).join("topics"), deflated)?;
    // Only there a panic unwinds nothing.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rerun-if-changed=packaging/no-unwinding.ld");
        println!("cargo::rustc-link-arg-bins=-T");
        println!("cargo::rustc-link-arg-bins={}/packaging/no-unwinding.ld", Path::new(&root).display());
    }
    Ok(())
}
