//! What single values must look like. The rules are Kubernetes' own (`apimachinery/pkg/util/validation`).

use std::time::Duration;

use crate::core::model::Taint;
use crate::core::render::Endpoint;

/// A node name: an RFC 1123 subdomain.
pub(crate) fn node_name(text: &str) -> Result<(), String> {
    let fine = !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label);
    if fine {
        Ok(())
    } else {
        Err(format!(
            "\"{text}\" is no node name: lower-case letters, digits, \"-\" and \".\" only, 253 characters at most"
        ))
    }
}

/// A namespace: an RFC 1123 label.
pub(super) fn namespace(text: &str) -> Result<(), String> {
    if is_dns_label(text) && text.len() <= 63 { Ok(()) } else { Err(format!("\"{text}\" is no namespace")) }
}

/// A capability such as `NET_ADMIN`, or `*`.
pub(super) fn capability(text: &str) -> Result<(), String> {
    let named = !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    if text == "*" || (named && text != "ALL") { Ok(()) } else { Err(format!("\"{text}\" is no capability")) }
}

/// A pattern that something can match.
pub(super) fn pattern(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("an empty pattern matches nothing".to_owned()) } else { Ok(()) }
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric) && text.ends_with(alphanumeric) && text.chars().all(|c| alphanumeric(c) || c == '-')
}

/// A label key: an optional DNS subdomain and `/`, then a qualified name.
pub(super) fn label_key(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix.is_none_or(|prefix| node_name(prefix).is_ok()) && is_qualified(name) {
        Ok(())
    } else {
        Err(format!("\"{text}\" is no label key"))
    }
}

/// A label value: empty or a qualified name.
pub(super) fn label_value(text: &str) -> Result<(), String> {
    if text.is_empty() || is_qualified(text) { Ok(()) } else { Err(format!("\"{text}\" is no label value")) }
}

fn is_qualified(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

/// `key=value:Effect` or `key:Effect`, as `kubectl taint` and the kubelet take it.
pub(super) fn taint(text: &str) -> Result<Taint, String> {
    let bad = || format!("expected a taint such as \"key=value:NoSchedule\", not \"{text}\"");
    let (rest, effect) = text.rsplit_once(':').ok_or_else(bad)?;
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(format!(
            "taint \"{text}\": the effect must be NoSchedule, PreferNoSchedule or NoExecute, not \"{effect}\""
        ));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    label_key(key).and_then(|()| label_value(value)).map_err(|why| format!("taint \"{text}\": {why}"))?;
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

/// `host:port`; an IPv6 address stands in brackets.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let bad = || format!("expected host:port, not \"{text}\"");
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().map(|_| inner).map_err(|_| bad())?,
        None if host.is_empty() || host.contains([':', '/', '@', ' ', '[', ']']) => return Err(bad()),
        None => host,
    };
    Ok(Endpoint { host: host.to_owned(), port })
}

/// A Go duration without sign and fractions: `1m30s`, `250ms`, `0`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "ms" => {
                total = total.checked_add(Duration::from_millis(number))?;
                0
            }
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(number.checked_mul(seconds)?))?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

/// A log filter: levels, or `target=level`, separated by commas.
pub(super) fn filter(text: &str) -> Result<(), String> {
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if !matches!(level, "error" | "warn" | "info" | "debug" | "trace" | "off") {
            return Err(format!("expected error, warn, info, debug or trace, not \"{level}\""));
        }
    }
    Ok(())
}

/// A label selector as `kubectl -l` takes it: `a=b,c!=d,e in (f,g),h,!i`.
pub(super) fn selector(text: &str) -> Result<(), String> {
    let mut depth = 0usize;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts {
        requirement(part.trim()).map_err(|why| format!("\"{text}\" is no label selector: {why}"))?;
    }
    Ok(())
}

fn requirement(part: &str) -> Result<(), String> {
    let set = |operator: &str| {
        let (key, rest) = part.split_once(operator)?;
        Some((key.trim(), rest.trim().strip_prefix('(')?.strip_suffix(')')?))
    };
    if let Some((key, values)) = set(" notin ").or_else(|| set(" in ")) {
        label_key(key)?;
        return values.split(',').try_for_each(|value| label_value(value.trim()));
    }
    if let Some((key, value)) = ["!=", "==", "="].iter().find_map(|operator| part.split_once(operator)) {
        label_key(key.trim())?;
        return label_value(value.trim());
    }
    label_key(part.strip_prefix('!').unwrap_or(part).trim())
}
