//! The heads of CBOR items (RFC 8949, section 3).

/// The major types of CBOR.
#[derive(Clone, Copy)]
pub(super) enum Major {
    Unsigned = 0,
    Negative = 1,
    Bytes = 2,
    Text = 3,
    List = 4,
    Map = 5,
    Tag = 6,
}

/// The head of a CBOR item.
pub(super) fn head(out: &mut Vec<u8>, major: Major, value: u64) {
    let major = (major as u8) << 5;
    let bytes = value.to_be_bytes();
    match value {
        0..=23 => out.push(major | bytes[7]),
        24..=0xff => out.extend_from_slice(&[major | 24, bytes[7]]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}
