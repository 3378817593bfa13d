//! Secrets at rest: sealed for this machine by a key that `systemd-creds` keeps.
//!
//! Owns the envelope. `systemd-creds` seals a random key of ours, and that key encrypts the data with AES-256-GCM: one
//! call at the start is enough, no later wait for a TPM, no size limit. Secrets are passed on standard input, never as
//! arguments. Must not write files or log its input.

use std::io::Read;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::AES_256_GCM;
use ring::aead::Aad;
use ring::aead::LessSafeKey;
use ring::aead::NONCE_LEN;
use ring::aead::Nonce;
use ring::aead::UnboundKey;
use ring::rand::SecureRandom;
use ring::rand::SystemRandom;
use serde::Deserialize;
use serde::Serialize;

const PROGRAM: &str = "systemd-creds";
/// The credential name embedded in the sealed key, so no other credential of the machine is accepted.
const NAME: &str = "daemonlet-checkpoint";
/// The associated data that authenticates the ciphertext.
const CONTEXT: &[u8] = b"daemonlet secrets 1";
const KEY_LEN: usize = 32;
/// A TPM needs about a second; a boot waits at most this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why something could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// `systemd-creds` could not be run, or did not answer in time. The sealed data may still be valid.
    #[error("{PROGRAM} cannot be run")]
    Program(#[source] std::io::Error),
    #[error("{PROGRAM} {doing} failed: {said}")]
    Refused {
        /// `encrypt` or `decrypt`.
        doing: &'static str,
        /// The end of its error output.
        said: String,
    },
    /// The opened key or data is not what was sealed.
    #[error("it is not what was sealed")]
    Broken,
    /// The system returned no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl SealError {
    /// Whether a retry may succeed: the failure is not about the sealed data. What refuses to open it may do so only
    /// now: the device of a TPM is not there yet, the host's key is on a file system that comes later.
    pub fn is_passing(&self) -> bool {
        matches!(self, SealError::Program(_) | SealError::Refused { .. })
    }
}

/// Data on disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    /// The machine's key: `systemd-creds --with-key`.
    with: String,
    /// The key that encrypts the data, sealed by `systemd-creds`.
    key: String,
    nonce: String,
    data: String,
}

/// A key in memory, with its sealed form for the disk.
pub struct SealingKey {
    with: String,
    sealed: String,
    open: LessSafeKey,
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("with", &self.with).finish_non_exhaustive()
    }
}

impl SealingKey {
    /// A new key, sealed with the machine's key `with`: `host`, `tpm2`, `host+tpm2` or `auto`.
    pub fn make(with: &str) -> Result<Self, SealError> {
        let mut bytes = [0; KEY_LEN];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Random)?;
        let sealed = run("encrypt", &[&format!("--with-key={with}")], &bytes)?;
        let sealed = String::from_utf8(sealed).map_err(|_| SealError::Broken)?;
        Ok(Self { with: with.to_owned(), sealed: sealed.split_whitespace().collect(), open: open_key(&bytes)? })
    }

    /// The machine's key that seals it.
    pub fn with(&self) -> &str {
        &self.with
    }

    /// Encrypts `data` for the disk.
    pub fn seal(&self, data: &[u8]) -> Result<Sealed, SealError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut bytes = data.to_vec();
        let once = Nonce::assume_unique_for_key(nonce);
        let seal = self.open.seal_in_place_append_tag(once, Aad::from(CONTEXT), &mut bytes);
        seal.map_err(|_| SealError::Broken)?;
        let (nonce, data) = (STANDARD.encode(nonce), STANDARD.encode(bytes));
        Ok(Sealed { with: self.with.clone(), key: self.sealed.clone(), nonce, data })
    }
}

impl Sealed {
    /// Opens it: returns the data, and the key for further sealing.
    pub fn open(&self) -> Result<(Vec<u8>, SealingKey), SealError> {
        let bytes = run("decrypt", &[], self.key.as_bytes())?;
        let key = SealingKey { with: self.with.clone(), sealed: self.key.clone(), open: open_key(&bytes)? };
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| SealError::Broken);
        let nonce = Nonce::try_assume_unique_for_key(&decode(&self.nonce)?).map_err(|_| SealError::Broken)?;
        let mut data = decode(&self.data)?;
        let length = key.open.open_in_place(nonce, Aad::from(CONTEXT), &mut data).map_err(|_| SealError::Broken)?.len();
        data.truncate(length);
        Ok((data, key))
    }
}

fn open_key(bytes: &[u8]) -> Result<LessSafeKey, SealError> {
    UnboundKey::new(&AES_256_GCM, bytes).map(LessSafeKey::new).map_err(|_| SealError::Broken)
}

/// Runs the program with `input` on its standard input and returns its output, with a timeout.
fn run(doing: &'static str, options: &[&str], input: &[u8]) -> Result<Vec<u8>, SealError> {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        let answer = world.seal(doing, input).map_err(SealError::Program)?;
        return answer.map_err(|said| SealError::Refused { doing, said });
    }
    let mut child = Command::new(PROGRAM)
        .arg(doing)
        .arg(format!("--name={NAME}"))
        .args(options)
        .args(["-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(SealError::Program)?;
    let answer = answer(&mut child, input);
    if !matches!(answer, Ok(Some(_))) {
        // It may have exited already; it must not keep running.
        let _ = child.kill();
    }
    let status = child.wait().map_err(SealError::Program)?;
    let (output, said) =
        answer.map_err(SealError::Program)?.ok_or_else(|| SealError::Program(std::io::ErrorKind::TimedOut.into()))?;
    match status.success() {
        true => Ok(output),
        false => {
            let said = String::from_utf8_lossy(&said);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
            Err(SealError::Refused { doing, said: last.trim().trim_end_matches('.').to_owned() })
        }
    }
}

/// The complete standard output and error of the child; `None` on timeout.
fn answer(child: &mut Child, input: &[u8]) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    // A key and a sealed key fit into a pipe buffer.
    match stdin.write_all(input) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
        _ => drop(stdin),
    }
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let (mut output, mut said) = (Vec::new(), Vec::new());
        let read = stdout.read_to_end(&mut output).and_then(|_| stderr.read_to_end(&mut said));
        let _ = sender.send(read.map(|_| (output, said)));
    })?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read.map(Some),
        Err(_) => Ok(None),
    }
}

/// Whether the service manager is shutting the machine down; `false` if unknown.
pub fn is_shutting_down() -> bool {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.is_shutting_down();
    }
    let asked = Command::new("systemctl").arg("is-system-running").stdin(Stdio::null()).stderr(Stdio::null()).output();
    asked.is_ok_and(|answer| answer.stdout.trim_ascii() == b"stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key without systemd-creds, for tests.
    fn key(bytes: &[u8]) -> SealingKey {
        SealingKey { with: "host".into(), sealed: "not asked".into(), open: open_key(bytes).unwrap() }
    }

    fn open(key: &SealingKey, sealed: &Sealed) -> Result<Vec<u8>, SealError> {
        let mut data = STANDARD.decode(&sealed.data).unwrap();
        let nonce = Nonce::try_assume_unique_for_key(&STANDARD.decode(&sealed.nonce).unwrap()).unwrap();
        let opened = key.open.open_in_place(nonce, Aad::from(CONTEXT), &mut data).map_err(|_| SealError::Broken)?;
        Ok(opened.to_vec())
    }

    #[test]
    fn what_is_sealed_shows_nothing_and_one_bit_breaks_it() {
        let key = key(&[7; KEY_LEN]);
        let secret = b"correct horse battery staple";
        let (sealed, again) = (key.seal(secret).unwrap(), key.seal(secret).unwrap());
        assert_eq!(open(&key, &sealed).unwrap(), secret);
        assert_ne!(sealed.data, again.data, "the same data looks different each time");
        let bytes = STANDARD.decode(&sealed.data).unwrap();
        assert!(!bytes.windows(5).any(|window| window == &secret[..5]));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let turned = Sealed { data: STANDARD.encode(bytes), ..sealed.clone() };
            assert!(matches!(open(&key, &turned), Err(SealError::Broken)), "bit {bit}");
        }
        assert!(open(&self::key(&[8; KEY_LEN]), &sealed).is_err());
    }

    #[test]
    fn a_key_of_the_machine_opens_what_it_sealed() {
        let Ok(key) = SealingKey::make("host") else {
            return eprintln!("skipped: no systemd-creds, or it cannot seal here");
        };
        let sealed = key.seal(b"sesame").unwrap();
        let (data, opened) = sealed.open().unwrap();
        assert_eq!((data.as_slice(), opened.with()), (b"sesame".as_slice(), "host"));
        assert_eq!(opened.sealed, key.sealed);
        let foreign = Sealed { key: STANDARD.encode([9; 200]), ..sealed };
        let error = foreign.open().unwrap_err();
        assert!(matches!(error, SealError::Refused { doing: "decrypt", .. }) && error.is_passing(), "{error}");
        assert!(!format!("{key:?}").contains(&key.sealed));
    }
}
