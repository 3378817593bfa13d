//! The bytes of a record: one line `daemonlet-checkpoint/1 sha256:<hex>`, then JSON, then a line break.
//!
//! Owns how a record is written and checked. The objects in use may have a hundred MiB, so neither direction has the
//! bytes of a large record in memory: only the record itself.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::BufWriter;
use std::io::Read;
use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Digest;
use sha2::Sha256;

use crate::core::rendering::hex;
use crate::node::fsx::File;
use crate::node::fsx::FsError;
use crate::node::fsx::NewFile;

use super::error::DamageCause;

/// The first word of every file: format and version.
const FORM: &str = "daemonlet-checkpoint/1";
/// More than any record needs; a longer file is damaged.
const MAX_BYTES: u64 = 1 << 30;
/// A record up to this is written in one piece, a larger one in pieces of about this size.
const PIECE: usize = 1 << 20;
/// A record up to this is read as a whole, which takes a third of the time.
const READ_WHOLE: u64 = 16 << 20;
/// No first line is longer.
const MAX_HEAD: u64 = 256;

/// A record that can be put in JSON, with the checksum of that.
pub(super) struct Encoded<'a, T> {
    record: &'a T,
    head: String,
    length: usize,
}

impl<'a, T: Serialize> Encoded<'a, T> {
    /// # Errors
    /// When it cannot be put in JSON.
    pub(super) fn of(record: &'a T) -> serde_json::Result<Self> {
        let mut sum = BufWriter::new(Sum::default());
        serde_json::to_writer(&mut sum, record)?;
        let Sum { hash, length } = sum.into_inner().map_err(|error| serde_json::Error::io(error.into_error()))?;
        Ok(Self { record, head: format!("{FORM} sha256:{}\n", hex(&hash.finalize())), length })
    }

    /// How large it is, in bytes.
    pub(super) fn size(&self) -> u64 {
        (self.head.len() + self.length + 1) as u64
    }

    /// Writes it.
    pub(super) fn write(&self, file: &mut NewFile<'_>) -> io::Result<()> {
        // One that fits is one call.
        let mut file = BufWriter::with_capacity((self.head.len() + self.length + 2).min(PIECE), file);
        file.write_all(self.head.as_bytes())?;
        serde_json::to_writer(&mut file, self.record)?;
        file.write_all(b"\n")?;
        file.flush()
    }
}

/// Hashes and counts what is written.
#[derive(Default)]
struct Sum {
    hash: Sha256,
    length: usize,
}

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.length += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The record in `file`, or why there is none.
pub(super) fn read<T: DeserializeOwned>(file: &File) -> Result<Result<T, WhyDamaged>, FsError> {
    if file.stat()?.size() <= READ_WHOLE {
        return Ok(decode(&file.read(READ_WHOLE + 1)?));
    }
    let json = match check(file)? {
        Ok(json) => json,
        Err(why) => return Ok(Err(why)),
    };
    // A failure here is one of the JSON: the bytes have been read once already.
    Ok(serde_json::from_reader(BufReader::with_capacity(PIECE, json)).map_err(|error| unexpected(&error)))
}

/// Whether `file` holds all of a record.
pub(super) fn is_whole(file: &File) -> Result<bool, FsError> {
    Ok(check(file)?.is_ok())
}

/// Compares `file` with its checksum; gives its JSON.
fn check(file: &File) -> Result<Result<impl Read + '_, WhyDamaged>, FsError> {
    let size = file.stat()?.size();
    let failed = |source| FsError::reading(file.path(), source);
    let mut content = BufReader::with_capacity(PIECE.min(size as usize + 1), file.reader(0));
    let mut first = Vec::new();
    content.by_ref().take(MAX_HEAD).read_until(b'\n', &mut first).map_err(failed)?;
    let sum = match checksum(&first) {
        Ok(sum) => sum.to_owned(),
        Err(why) => return Ok(Err(why)),
    };
    let begin = first.len() as u64;
    if size > MAX_BYTES {
        return Ok(Err(broken(format!("is larger than {} MiB", MAX_BYTES >> 20))));
    }
    let Some(length) = size.checked_sub(begin + 1) else { return Ok(Err(broken(CUT_OFF))) };
    let mut hashed = Sum::default();
    io::copy(&mut content.by_ref().take(length), &mut hashed).map_err(failed)?;
    let mut end = Vec::new();
    content.read_to_end(&mut end).map_err(failed)?;
    if end != b"\n" {
        return Ok(Err(broken(CUT_OFF)));
    }
    if hex(&hashed.hash.finalize()) != sum {
        return Ok(Err(broken(MISMATCH)));
    }
    Ok(Ok(file.reader(begin).take(length)))
}

const CUT_OFF: &str = "is cut off";
const MISMATCH: &str = "does not match its checksum";

/// What is wrong with a record, and why that may be.
pub(super) type WhyDamaged = (String, DamageCause);

fn broken(why: impl Into<String>) -> WhyDamaged {
    (why.into(), DamageCause::Broken)
}

fn unexpected(error: &serde_json::Error) -> WhyDamaged {
    (format!("does not contain what this version expects ({error})"), DamageCause::OtherVersion)
}

/// The checksum in a first line, which ends with its line break.
fn checksum(line: &[u8]) -> Result<&str, WhyDamaged> {
    let line = line.strip_suffix(b"\n").ok_or_else(|| broken("is cut off in its first line"))?;
    let line = std::str::from_utf8(line).map_err(|_| broken("does not start like a checkpoint"))?;
    let Some((form, sum)) = line.split_once(" sha256:") else { return Err(broken("does not start like a checkpoint")) };
    if form != FORM {
        let why = format!("has the format {form:?}; this version reads {FORM}");
        return Err((why, DamageCause::OtherVersion));
    }
    Ok(sum)
}

/// The record that the bytes of a file hold, or why there is none.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WhyDamaged> {
    let line = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| broken("is cut off in its first line"))?;
    let (first, json) = bytes.split_at(line + 1);
    let sum = checksum(first)?;
    let json = json.strip_suffix(b"\n").ok_or_else(|| broken(CUT_OFF))?;
    if hex(&Sha256::digest(json)) != sum {
        return Err(broken(MISMATCH));
    }
    serde_json::from_slice(json).map_err(|error| unexpected(&error))
}
