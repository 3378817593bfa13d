//! Netlink: messages, attributes and a socket (netlink(7)).
//!
//! Owns the encoding and the exchange. Must not know what the messages mean.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::socket::AddressFamily;
use nix::sys::socket::MsgFlags;
use nix::sys::socket::NetlinkAddr;
use nix::sys::socket::SockFlag;
use nix::sys::socket::SockProtocol;
use nix::sys::socket::SockType;
use nix::sys::socket::recv;
use nix::sys::socket::sendto;
use nix::sys::socket::setsockopt;
use nix::sys::socket::socket;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::time::TimeVal;

const REQUEST: u16 = 0x1;
/// The kernel is to acknowledge the message.
pub(super) const ACK: u16 = 0x4;
/// All of a kind are asked for.
pub(super) const DUMP: u16 = 0x300;
/// What does not exist is to be made.
pub(super) const CREATE: u16 = 0x400;
/// It comes after those that exist.
pub(super) const APPEND: u16 = 0x800;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
/// The kernel answers at once or not at all.
const ANSWER_WITHIN: i64 = 2;

/// Attributes, one after the other, each padded to four bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// With an attribute of these bytes.
    #[must_use]
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// With a number, most significant byte first, as netfilter has it.
    #[must_use]
    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// With a text that ends with a zero byte.
    #[must_use]
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        let bytes: Vec<u8> = value.bytes().chain([0]).collect();
        self.bytes(kind, &bytes)
    }

    /// With attributes inside an attribute.
    #[must_use]
    pub(super) fn nested(self, kind: u16, inner: Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }
}

/// A request: its kind, its flags, and what stands behind the header.
#[derive(Clone, Debug)]
pub(super) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// A request of this kind; `head` is the fixed part before the attributes.
    pub(super) fn new(kind: u16, flags: u16, head: &[u8], attributes: Attributes) -> Self {
        Self { kind, flags: REQUEST | flags, body: [head, &attributes.0].concat() }
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        out.extend(length.to_ne_bytes());
        out.extend(self.kind.to_ne_bytes());
        out.extend(self.flags.to_ne_bytes());
        out.extend(number.to_ne_bytes());
        out.extend(0u32.to_ne_bytes());
        out.extend(&self.body);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// A socket of the kernel's.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sent: u32,
}

impl Netlink {
    /// Opens a socket to one of the kernel's families.
    ///
    /// # Errors
    /// The system's: the family is not built into the kernel, or not allowed.
    pub(super) fn open(family: SockProtocol) -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, family)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(ANSWER_WITHIN, 0))?;
        Ok(Self { socket, sent: 0 })
    }

    /// Sends messages as one piece and waits until each that asked for it is acknowledged; gives what
    /// the bodies of a dump's replies.
    ///
    /// # Errors
    /// The first that the kernel names; a batch of nftables is then not done at all.
    pub(super) fn exchange(&mut self, messages: &[Message]) -> io::Result<Vec<Vec<u8>>> {
        let first = self.sent.wrapping_add(1);
        let mut bytes = Vec::new();
        let mut last = None;
        for message in messages {
            self.sent = self.sent.wrapping_add(1);
            message.write(self.sent, &mut bytes);
            if message.flags & (ACK | DUMP) != 0 {
                last = Some(self.sent);
            }
        }
        sendto(self.socket.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut bodies = Vec::new();
        let mut buffer = vec![0; 32 * 1024];
        while let Some(last) = last {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for reply in replies(&buffer[..length]) {
                // Of an exchange before this one, which ended at its first error.
                if reply.number.wrapping_sub(first) > last.wrapping_sub(first) {
                    continue;
                }
                match reply.kind {
                    ERROR => match reply.error() {
                        0 if reply.number == last => return Ok(bodies),
                        0 => {}
                        error => return Err(io::Error::from_raw_os_error(-error)),
                    },
                    DONE => return Ok(bodies),
                    _ => bodies.push(reply.body.to_vec()),
                }
            }
        }
        Ok(bodies)
    }
}

struct NetlinkReply<'a> {
    kind: u16,
    number: u32,
    body: &'a [u8],
}

impl NetlinkReply<'_> {
    fn error(&self) -> i32 {
        self.body.first_chunk().map_or(-(Errno::EPROTO as i32), |bytes| i32::from_ne_bytes(*bytes))
    }
}

/// The messages of one datagram; what is cut off is left out.
fn replies(mut bytes: &[u8]) -> Vec<NetlinkReply<'_>> {
    let mut replies = Vec::new();
    while let Some(header) = bytes.first_chunk::<HEADER>() {
        let [l0, l1, l2, l3, k0, k1, _, _, n0, n1, n2, n3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let Some(body) = bytes.get(HEADER..length) else { break };
        let (kind, number) = (u16::from_ne_bytes([k0, k1]), u32::from_ne_bytes([n0, n1, n2, n3]));
        replies.push(NetlinkReply { kind, number, body });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nest() {
        let inner = Attributes::default().text(1, "abc").number(2, 7);
        let outer = Attributes::default().nested(3, inner).bytes(4, &[9]);
        let le = u16::from_ne_bytes([1, 0]) == 1;
        assert!(le, "the bytes below are of a little-endian machine");
        let expected =
            [20, 0, 3, 0x80, 8, 0, 1, 0, b'a', b'b', b'c', 0, 8, 0, 2, 0, 0, 0, 0, 7, 5, 0, 4, 0, 9, 0, 0, 0];
        assert_eq!(outer.0, expected);
    }

    #[test]
    fn replies_are_separated_and_a_cut_one_is_dropped() {
        let mut bytes = Vec::new();
        Message::new(7, 0, &[1, 2, 3, 4], Attributes::default()).write(41, &mut bytes);
        Message::new(8, 0, &[5], Attributes::default()).write(42, &mut bytes);
        let seen: Vec<(u16, u32, usize)> = replies(&bytes).iter().map(|r| (r.kind, r.number, r.body.len())).collect();
        assert_eq!(seen, [(7, 41, 4), (8, 42, 1)]);
        assert_eq!(replies(&bytes[..22]).len(), 1);
        let mut zero = bytes.clone();
        zero[0] = 0;
        assert!(replies(&zero).is_empty(), "a length that cannot be must not loop");
    }
}
