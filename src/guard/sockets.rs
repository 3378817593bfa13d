//! Connections that were open before the rule: they are ended.
//!
//! A client that waits for a silent server which took its connection sends nothing, so that no rule
//! ever meets a packet of it. Owns finding such sockets and having the kernel abort them
//! (sock_diag(7), `SOCK_DESTROY`). Must not touch the guard's own probes, nor any other address.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;

use nix::libc;
use nix::sys::socket::SockProtocol;

use crate::guard::netlink::ACK;
use crate::guard::netlink::Attributes;
use crate::guard::netlink::DUMP;
use crate::guard::netlink::Message;
use crate::guard::netlink::Netlink;
use crate::guard::table::MARK;

// linux/sock_diag.h and inet_diag.h
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
/// Established, and not yet answered (`TCP_ESTABLISHED`, `TCP_SYN_SENT`).
const STATES: u32 = 1 << 1 | 1 << 2;
const IDENTITY: usize = 48;
const ATTRIBUTES: usize = 72;
const ATTRIBUTE_MARK: u16 = 15;

/// Aborts connections to these addresses, the guard's own apart; gives their number.
///
/// # Errors
/// The kernel's: it cannot do this (`CONFIG_INET_DIAG_DESTROY`).
pub(super) fn abort(addresses: &BTreeSet<SocketAddr>) -> io::Result<usize> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkSockDiag)?;
    let mut aborted = 0;
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        let every = Message::new(BY_FAMILY, DUMP, &request(family, [0; IDENTITY]), Attributes::default());
        for socket in netlink.exchange(&[every])?.iter().filter_map(|reply| read(reply)) {
            if addresses.contains(&socket.remote) && socket.mark != MARK {
                let destroy = Message::new(DESTROY, ACK, &request(family, socket.identity), Attributes::default());
                match netlink.exchange(&[destroy]) {
                    Ok(_) => aborted += 1,
                    // It has ended meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(aborted)
}

struct Socket {
    remote: SocketAddr,
    mark: u32,
    identity: [u8; IDENTITY],
}

fn request(family: u8, identity: [u8; IDENTITY]) -> Vec<u8> {
    [&[family, libc::IPPROTO_TCP as u8, 0, 0], &STATES.to_ne_bytes()[..], &identity].concat()
}

/// A `struct inet_diag_msg` and its attributes.
fn read(reply: &[u8]) -> Option<Socket> {
    let family = i32::from(*reply.first()?);
    let identity: [u8; IDENTITY] = *reply.get(4..)?.first_chunk()?;
    let port = u16::from_be_bytes(*identity.get(2..)?.first_chunk()?);
    let address = identity.get(20..)?;
    let ip = if family == libc::AF_INET {
        IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(*address.first_chunk::<16>()?)).to_canonical()
    };
    let mark = mark(reply.get(ATTRIBUTES..).unwrap_or_default());
    Some(Socket { remote: SocketAddr::new(ip, port), mark, identity })
}

fn mark(mut attributes: &[u8]) -> u32 {
    while let Some([l0, l1, k0, k1]) = attributes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let Some(value) = attributes.get(4..length) else { break };
        if u16::from_ne_bytes([*k0, *k1]) == ATTRIBUTE_MARK {
            return value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    0
}
