//! What a recording holds of a secret value, and the value that a replay takes in its place.
//!
//! Owns the key. It is made for this process; an export keys every digest once more, with a key that is made for the
//! bundle and thrown away, so that two bundles cannot be compared with each other or with a guess.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SecureRandom;
use ring::rand::SystemRandom;
use serde_json::Map;
use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

/// Members of a Secret's metadata that decide nothing secret.
const METADATA: [&str; 7] =
    ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels"];
/// Annotations of a Secret that are recorded begin with this.
const OWN: &str = "daemonlet.dev/";
/// Other members of a Secret.
const MEMBERS: [&str; 4] = ["apiVersion", "kind", "type", "immutable"];
/// The longest value that a replay makes: an object has at most 1 MiB of data.
const LONGEST: usize = 2 << 20;

/// Makes digests that only this process could make.
#[derive(Clone)]
pub(crate) struct DigestKey(hmac::Key);

impl DigestKey {
    /// A random one; `None` without randomness.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The keyed digest in the place of a digest, as long as that is.
    pub(crate) fn hex(&self, digest: &str) -> String {
        self.digest(digest.as_bytes(), digest.len() / 2).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The keyed digest of `bytes`, `length` bytes of it.
    pub(crate) fn digest(&self, bytes: &[u8], length: usize) -> Vec<u8> {
        hmac::sign(&self.0, bytes).as_ref().iter().copied().take(length).collect()
    }
}

/// Fields with the beginning of a digest over data, in Rust's form and in JSON's.
const OF_DATA: [&str; 5] = ["data_version", "dataVersion", "fingerprint", "ignored_file", "ignoredFile"];
/// A full digest has so many characters.
const DIGEST: usize = 64;

/// Whether a text in the field `name` is the beginning of a digest over data.
pub(crate) fn is_digest_of_data(name: &str) -> bool {
    OF_DATA.contains(&name)
}

/// Whether `text` is a full digest.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == DIGEST && is_hex(text)
}

/// Whether all of `text` are hex digits.
pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What is recorded of a secret value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SecretShape {
    /// Tells equal values from others.
    #[serde(with = "bytes")]
    pub(crate) digest: Vec<u8>,
    /// Whether the text is base64 of the value.
    pub(crate) base64: bool,
    /// In bytes.
    length: usize,
    /// Of the longest line, in bytes.
    longest_line: usize,
    utf8: bool,
    nul: bool,
    quote: bool,
    /// Whether a carriage return stands before a line break.
    crlf: bool,
}

impl SecretShape {
    /// Of a plain text.
    pub(crate) fn of_text(text: &str, key: &DigestKey) -> Self {
        Self::of(text.as_bytes(), false, key)
    }

    /// Of the value of a key in a Secret's `data`; of what is not base64 as of a text.
    fn of_data(text: &str, key: &DigestKey) -> Self {
        let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        match STANDARD.decode(compact) {
            Ok(bytes) => Self::of(&bytes, true, key),
            Err(_) => Self::of_text(text, key),
        }
    }

    fn of(bytes: &[u8], base64: bool, key: &DigestKey) -> Self {
        let lines = bytes.split(|byte| *byte == b'\n');
        Self {
            digest: key.digest(bytes, 16),
            base64,
            length: bytes.len(),
            longest_line: lines.map(<[u8]>::len).max().unwrap_or(0),
            utf8: std::str::from_utf8(bytes).is_ok(),
            nul: bytes.contains(&0),
            quote: bytes.contains(&b'\''),
            crlf: bytes.windows(2).any(|pair| pair == b"\r\n"),
        }
    }

    /// A text of this shape: the same for the same digest.
    pub(crate) fn text(&self) -> String {
        let bytes = self.bytes();
        match self.base64 {
            true => STANDARD.encode(bytes),
            false => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let length = self.length.min(LONGEST);
        let mut bytes = Vec::with_capacity(length);
        for (is_in, part) in [(self.crlf, &b"\r\n"[..]), (self.nul, b"\0"), (self.quote, b"'")] {
            if is_in && bytes.len() + part.len() <= length {
                bytes.extend_from_slice(part);
            }
        }
        if !self.utf8 && bytes.len() < length {
            bytes.push(0xff);
        }
        let mut line = bytes.len();
        let mut block = Sha256::digest(&self.digest);
        while bytes.len() < length {
            for byte in block {
                if bytes.len() == length {
                    break;
                }
                let is_full = line >= self.longest_line;
                bytes.push(if is_full { b'\n' } else { b'a' + byte % 26 });
                line = if is_full { 0 } else { line + 1 };
            }
            block = Sha256::digest(block);
        }
        bytes
    }
}

/// Bytes as bytes and not as a list of numbers.
mod bytes {
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        match ciborium::Value::deserialize(deserializer)? {
            ciborium::Value::Bytes(bytes) => Ok(bytes),
            _ => Err(serde::de::Error::custom("a digest is bytes")),
        }
    }
}

/// `data` or `stringData`, and its texts by key.
pub(crate) type SecretMember<'a> = (&'a str, Vec<(&'a str, &'a str)>);

/// A Secret without its data: its other members, and the texts whose shapes are recorded by member and key.
pub(crate) fn split(secret: &Value) -> (Map<String, Value>, Vec<SecretMember<'_>>) {
    let mut open = Map::new();
    let mut closed = Vec::new();
    for (name, value) in secret.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("data" | "stringData", Value::Object(data)) => {
                let texts = data.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
                closed.push((name.as_str(), texts.collect()));
            }
            ("metadata", Value::Object(metadata)) => {
                let mut kept = metadata.clone();
                kept.retain(|name, value| {
                    if let ("annotations", Value::Object(annotations)) = (name.as_str(), &mut *value) {
                        annotations.retain(|name, _| name.starts_with(OWN));
                        return true;
                    }
                    METADATA.contains(&name.as_str())
                });
                open.insert(name.clone(), Value::Object(kept));
            }
            (other, value) if MEMBERS.contains(&other) => drop(open.insert(name.clone(), value.clone())),
            _ => {}
        }
    }
    (open, closed)
}

pub(crate) fn shape(member: &str, text: &str, key: &DigestKey) -> SecretShape {
    match member {
        "data" => SecretShape::of_data(text, key),
        _ => SecretShape::of_text(text, key),
    }
}

/// `text` without the user and the password of the URLs in it.
///
/// A password may hold any character, and a path an `@`: of a URL that may have a password, no more is kept than what follows
/// its last `@`.
pub(crate) fn without_credentials(text: &str) -> String {
    let mut open = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        open.push_str(before);
        open.push_str("://");
        let url_end = url.find(|c: char| c == '"' || c.is_whitespace() || c.is_control()).unwrap_or(url.len());
        let authority_end = url.find(['/', '?', '#']).unwrap_or(url_end).min(url_end);
        let may_have_them = url[..authority_end].contains([':', '@']);
        let credentials = url[..url_end].rfind('@').filter(|_| may_have_them);
        rest = &url[credentials.map_or(0, |at| at + 1)..];
    }
    open + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_takes_a_value_of_the_same_shape() {
        let key = DigestKey::random().unwrap();
        for text in ["", "a", "it's", "two\nlines and more", "a\r\nb", "\0", &"x".repeat(70_000), "é"] {
            let shape = SecretShape::of_text(text, &key);
            let again = SecretShape::of_text(&shape.text(), &key);
            let longest_line = if shape.crlf { again.longest_line } else { shape.longest_line };
            assert_eq!(SecretShape { digest: again.digest.clone(), longest_line, ..shape.clone() }, again, "{text:?}");
            assert!(text.len() < 4 || !shape.text().contains(text));
        }
        let shape = SecretShape::of_data(&STANDARD.encode([0xff, 0xfe, 1]), &key);
        let bytes = STANDARD.decode(shape.text()).unwrap();
        assert!(bytes.len() == 3 && std::str::from_utf8(&bytes).is_err());
    }

    #[test]
    fn a_url_loses_its_credentials_and_nothing_else() {
        let text = "a = \"https://user:p%40ss@host:1/x\"\nb = \"unix:///run/c@1.sock\", \"http://t@h\"";
        let open = "a = \"https://host:1/x\"\nb = \"unix:///run/c@1.sock\", \"http://h\"";
        assert_eq!(without_credentials(text), open);
        for same in ["https://host/x@y", "https://host:1/x, mail@example.org", "a://", "://", "x@y"] {
            assert_eq!(without_credentials(same), same);
        }
        for password in ["/", "?", "#", "@", ":", "a/b@c", "://", "1/2", "é", "://a:b@c/"] {
            let text = format!("see https://user:{password}@host/x and https://u:{password}@h");
            assert_eq!(without_credentials(&text), "see https://host/x and https://h", "{password}");
        }
    }
}
