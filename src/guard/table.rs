//! The guard's nftables table: one rule for each address in whose stead the node refuses.
//!
//! ```text
//! table inet daemonlet-boot-guard {
//!     flags owner
//!     chain output {
//!         type filter hook output priority mangle; policy accept;
//!         ip daddr 10.0.0.1 tcp dport 6443 meta mark != 0x3037 reject with tcp reset
//!     }
//! }
//! ```
//!
//! Owns the kernel's rule for it. Must not decide which addresses. Nothing in the rule asks
//! connection tracking: it meets every packet, also of a connection that was there before it.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::guard::netlink::ACK;
use crate::guard::netlink::APPEND;
use crate::guard::netlink::Attributes;
use crate::guard::netlink::CREATE;
use crate::guard::netlink::Message;
use crate::guard::netlink::Netlink;

/// The table's name.
const NAME: &str = "daemonlet-boot-guard";
const CHAIN: &str = "output";
/// The mark of the guard's own probes, which the rule lets pass. A mark is the one thing that tells
/// them from the kubelet's connections on every kernel: both are root's, and control groups differ
/// from host to host. It has no bit that kube-proxy, Calico, Cilium or the AWS plugin look at.
pub(super) const MARK: u32 = 0x3037;

// linux/netfilter/nfnetlink.h and nf_tables.h
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
const DELETE_RULE: u16 = NFTABLES << 8 | 8;
const INET: u8 = 1;
/// The kernel removes the table with the socket that made it, however its process ends (Linux 5.12).
const OWNER: u32 = 0x2;
const HOOK_OUTPUT: u32 = 3;
/// `mangle`: before the address of a packet may be translated on this node.
const PRIORITY: i32 = -150;
const ACCEPT: u32 = 1;

/// The table could not be set.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// There is no netlink socket.
    #[error("nftables: cannot open a socket to the kernel")]
    Open(#[source] io::Error),
    /// Another process has it.
    #[error("nftables: table {NAME} belongs to another process, which runs")]
    Busy,
    /// The kernel does not take it.
    #[error("nftables: the kernel does not take table {NAME}")]
    Set(#[source] io::Error),
    /// The kernel does not give it up.
    #[error("nftables: table {NAME} is not removed")]
    Remove(#[source] io::Error),
}

/// The table, and the socket that it lives by.
#[derive(Debug)]
pub(super) struct GuardTable {
    netlink: Netlink,
    refused: BTreeSet<SocketAddr>,
    owned: bool,
}

impl GuardTable {
    /// Opens the way to the kernel and removes what an earlier guard may have left.
    ///
    /// # Errors
    /// The kernel has no nftables, or does not let this process.
    pub(super) fn open() -> Result<Self, TableError> {
        let netlink = Netlink::open(SockProtocol::NetlinkNetFilter).map_err(TableError::Open)?;
        let mut table = Self { netlink, refused: BTreeSet::new(), owned: true };
        table.remove()?;
        Ok(table)
    }

    /// Whether the kernel removes the table by itself when this process ends.
    pub(super) fn is_owned(&self) -> bool {
        self.owned
    }

    /// Makes the table refuse for exactly these addresses; gives those that are new. Without any
    /// there is no table.
    ///
    /// # Errors
    /// The kernel's; nothing has changed then.
    pub(super) fn refuse(&mut self, addresses: &BTreeSet<SocketAddr>) -> Result<BTreeSet<SocketAddr>, TableError> {
        if *addresses == self.refused {
            return Ok(BTreeSet::new());
        }
        if addresses.is_empty() {
            self.remove()?;
        } else {
            self.set(addresses)?;
        }
        let new = addresses.difference(&self.refused).copied().collect();
        self.refused.clone_from(addresses);
        Ok(new)
    }

    fn set(&mut self, addresses: &BTreeSet<SocketAddr>) -> Result<(), TableError> {
        match self.netlink.exchange(&batch(&rules(addresses, if self.owned { OWNER } else { 0 }))) {
            // A kernel before 5.12 does not know the flag. `ExecStopPost=` removes what a crash leaves.
            Err(error) if self.owned && is(&error, &[Errno::EINVAL, Errno::EOPNOTSUPP]) => {
                self.owned = false;
                self.netlink.exchange(&batch(&rules(addresses, 0)))
            }
            result => result,
        }
        .map(drop)
        .map_err(TableError::Set)
    }

    /// Removes the table, if it exists.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn remove(&mut self) -> Result<(), TableError> {
        let table = Attributes::default().text(1, NAME);
        self.refused.clear();
        match self.netlink.exchange(&batch(&[message(DELETE_TABLE, ACK, table)])) {
            Err(error) if is(&error, &[Errno::ENOENT]) => Ok(()),
            Err(error) if is(&error, &[Errno::EPERM]) && nix::unistd::geteuid().is_root() => Err(TableError::Busy),
            result => result.map(drop).map_err(TableError::Remove),
        }
    }
}

fn is(error: &io::Error, codes: &[Errno]) -> bool {
    codes.iter().any(|code| error.raw_os_error() == Some(*code as i32))
}

/// A message of nftables about the family `inet`.
fn message(kind: u16, flags: u16, attributes: Attributes) -> Message {
    Message::new(kind, flags, &[INET, 0, 0, 0], attributes)
}

/// What is done as a whole or not at all.
fn batch(messages: &[Message]) -> Vec<Message> {
    let [high, low] = NFTABLES.to_be_bytes();
    let edge = |kind| Message::new(kind, 0, &[0, 0, high, low], Attributes::default());
    let inner = messages.iter().cloned();
    std::iter::once(edge(BATCH_BEGIN)).chain(inner).chain([edge(BATCH_END)]).collect()
}

/// The table with exactly these rules, whatever it had before.
fn rules(addresses: &BTreeSet<SocketAddr>, flags: u32) -> Vec<Message> {
    let table = Attributes::default().text(1, NAME).number(2, flags);
    let hook = Attributes::default().number(1, HOOK_OUTPUT).bytes(2, &PRIORITY.to_be_bytes());
    let chain = Attributes::default().text(1, NAME).text(3, CHAIN).nested(4, hook).number(5, ACCEPT).text(7, "filter");
    let of_chain = Attributes::default().text(1, NAME).text(2, CHAIN);
    let mut messages = vec![
        message(NEW_TABLE, CREATE | ACK, table),
        message(NEW_CHAIN, CREATE | ACK, chain),
        message(DELETE_RULE, ACK, of_chain.clone()),
    ];
    messages.extend(
        addresses
            .iter()
            .map(|address| message(NEW_RULE, CREATE | APPEND | ACK, of_chain.clone().nested(4, expressions(*address)))),
    );
    messages
}

/// `meta nfproto … meta l4proto tcp … daddr … tcp dport … meta mark != … reject with tcp reset`
fn expressions(address: SocketAddr) -> Attributes {
    let (protocol, offset, octets) = match address.ip() {
        IpAddr::V4(ip) => (nix::libc::NFPROTO_IPV4 as u8, 16, ip.octets().to_vec()),
        IpAddr::V6(ip) => (nix::libc::NFPROTO_IPV6 as u8, 24, ip.octets().to_vec()),
    };
    const MARKS: u32 = 3;
    const FAMILY: u32 = 15;
    const TRANSPORT: u32 = 16;
    let list = Attributes::default();
    let list = equal(meta(list, FAMILY), &[protocol]);
    let list = equal(meta(list, TRANSPORT), &[nix::libc::IPPROTO_TCP as u8]);
    let list = equal(payload(list, 1, offset, octets.len()), &octets);
    let list = equal(payload(list, 2, 2, 2), &address.port().to_be_bytes());
    let list = compare(meta(list, MARKS), 1, &MARK.to_ne_bytes());
    expression(list, "reject", Attributes::default().number(1, 1))
}

fn expression(list: Attributes, name: &str, data: Attributes) -> Attributes {
    list.nested(1, Attributes::default().text(1, name).nested(2, data))
}

fn meta(list: Attributes, key: u32) -> Attributes {
    expression(list, "meta", Attributes::default().number(1, 1).number(2, key))
}

/// Loads a part of the network (1) or transport (2) header.
fn payload(list: Attributes, base: u32, offset: u32, length: usize) -> Attributes {
    let length = u32::try_from(length).unwrap_or_default();
    let data = Attributes::default().number(1, 1).number(2, base).number(3, offset).number(4, length);
    expression(list, "payload", data)
}

fn equal(list: Attributes, value: &[u8]) -> Attributes {
    compare(list, 0, value)
}

/// Compares what was loaded: equal (0) or not (1).
fn compare(list: Attributes, operator: u32, value: &[u8]) -> Attributes {
    let value = Attributes::default().bytes(1, value);
    expression(list, "cmp", Attributes::default().number(1, 1).number(2, operator).nested(3, value))
}
