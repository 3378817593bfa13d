//! What single strings mean, and what they must look like. The rules are Kubernetes' own
//! (`apimachinery/pkg/util/validation`).

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::dns;
use crate::core::duration;
use crate::core::labels;
use crate::core::model::Taint;
use crate::core::node;
use crate::core::policy;
use crate::core::policy::PortRange;
use crate::core::policy::Share;
use crate::core::render::Endpoint;
use crate::core::time::Span;

/// `text` if it is `fine`, else what is wrong with it.
fn checked(text: &str, fine: bool, wrong: &str) -> Result<String, String> {
    if fine { Ok(text.to_owned()) } else { Err(format!("\"{text}\" {wrong}")) }
}

/// `meant`, or that `what` was expected.
fn wanted<T>(meant: Option<T>, what: &str, text: &str) -> Result<T, String> {
    meant.ok_or_else(|| format!("expected {what}, not \"{text}\""))
}

/// A node name: an RFC 1123 subdomain.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let wrong = "is no node name: lower-case letters, digits, \"-\" and \".\" only, 253 characters at most";
    checked(text, dns::subdomain(text).is_none(), wrong)
}

/// A namespace or `*`.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    checked(text, text == "*" || dns::label(text).is_none(), "is no namespace")
}

pub(super) fn granted_namespace(text: &str) -> Result<String, String> {
    checked(text, dns::label(text).is_none(), "is no namespace")
}

pub(super) const RELEASES: &str = "a list of \"namespace/name\" or \"namespace/*\"";

/// A DaemonSet, or all of a namespace.
pub(super) fn release(text: &str) -> Result<String, String> {
    let is_name = |name: &str| name == "*" || dns::subdomain(name).is_none();
    let parts = text.split_once('/').filter(|(namespace, name)| dns::label(namespace).is_none() && is_name(name));
    wanted(parts.map(|_| text.to_owned()), RELEASES, text)
}

/// A pattern that something can match.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    checked(text, !text.is_empty(), "matches nothing")
}

pub(super) fn label_key(text: &str) -> Result<String, String> {
    checked(text, labels::is_label_key(text), "is no label key")
}

pub(super) fn label_value(text: &str) -> Result<String, String> {
    checked(text, labels::is_label_value(text), "is no label value")
}

/// A label selector as `kubectl -l` takes it.
pub(super) fn selector(text: &str) -> Result<String, String> {
    let parsed = labels::parse(text).map_err(|why| format!("\"{text}\" is no label selector: {why}"));
    parsed.map(|_| text.to_owned())
}

pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text).is_absolute().then(|| PathBuf::from(text));
    path.ok_or_else(|| format!("must be an absolute path, not \"{text}\""))
}

pub(super) fn host_path(text: &str) -> Result<String, String> {
    path(text)?;
    checked(text, !text.split('/').any(|part| part == ".."), "must not contain \"..\"")
}

/// An absolute path, or `in-cluster`, with or without `:` and an absolute path.
pub(super) fn credentials(text: &str) -> Result<PathBuf, String> {
    if text != "in-cluster" {
        path(text.strip_prefix("in-cluster:").unwrap_or(text))?;
    }
    Ok(PathBuf::from(text))
}

pub(super) const SOCKET: &str = "a socket such as \"unix:///run/containerd/containerd.sock\"";

pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    path(wanted(text.strip_prefix("unix://"), &format!("{SOCKET} or \"\""), text)?)
}

pub(super) const URL: &str = "a URL such as \"https://127.0.0.1:10250\"";

pub(super) fn url(text: &str) -> Result<String, String> {
    let is_url = text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty());
    wanted(is_url.then(|| text.to_owned()), &format!("{URL} or \"\""), text)
}

pub(super) const VERSION: &str = "a version such as \"v1.36.2\"";

pub(super) fn version(text: &str) -> Result<String, String> {
    wanted(node::version(text).map(|_| text.to_owned()), &format!("{VERSION} or \"\""), text)
}

pub(super) const DURATION: &str = "a duration such as \"30s\" or \"5m\"";

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    wanted(duration::parse(text).map(Span::to_duration), DURATION, text)
}

pub(super) const TOKEN_LIFE: &str = "a duration from \"600s\" to \"8760h\"";
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);
const LONGEST_TOKEN: Duration = Duration::from_secs(8760 * 3600);

/// The life of a token: no less than the API server gives, and no more than a year.
pub(super) fn token_life(text: &str) -> Result<Duration, String> {
    let life = duration(text)?;
    wanted(Some(life).filter(|life| (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(life)), TOKEN_LIFE, text)
}

pub(super) fn duration_text(duration: &Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

pub(super) const PORTS: &str = "a list of ports such as \"9100\" or \"9100-9110\"";

pub(super) fn ports(text: &str) -> Result<PortRange, String> {
    wanted(text.parse().ok(), PORTS, text)
}

pub(super) const VOLUME_TYPES: &str = "a list of volume types such as \"nfs\" (paths of the host: host-paths)";

pub(super) fn volume_type(text: &str) -> Result<String, String> {
    wanted(policy::VOLUME_TYPES.contains(&text).then(|| text.to_owned()), VOLUME_TYPES, text)
}

pub(super) const SHARE: &str = "a share such as \"10%\"";

pub(super) fn share(text: &str) -> Result<Share, String> {
    wanted(text.parse().ok(), SHARE, text)
}

/// `key=value:Effect` or `key:Effect`, as `kubectl taint` and the kubelet take it.
pub(super) fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = wanted(text.rsplit_once(':'), "a taint such as \"key=value:NoSchedule\"", text)?;
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(format!(
            "taint \"{text}\": the effect must be NoSchedule, PreferNoSchedule or NoExecute, not \"{effect}\""
        ));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let named = label_key(key).and_then(|key| Ok((key, label_value(value)?)));
    let (key, value) = named.map_err(|why| format!("taint \"{text}\": {why}"))?;
    Ok(Taint { key, value, effect: effect.to_owned() })
}

pub(super) fn taint_text(taint: &Taint) -> String {
    let equals = if taint.value.is_empty() { "" } else { "=" };
    format!("{}{equals}{}:{}", taint.key, taint.value, taint.effect)
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

pub(super) fn endpoint_text(endpoint: &Endpoint) -> String {
    let Endpoint { host, port } = endpoint;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A log filter: levels, or `target=level`, separated by commas.
pub(super) fn filter(text: &str) -> Result<String, String> {
    let level = |part: &'_ str| part.rsplit_once('=').map_or(part.to_owned(), |(_, level)| level.to_owned());
    let is_level = |level: &String| matches!(level.as_str(), "error" | "warn" | "info" | "debug" | "trace" | "off");
    match text.split(',').map(level).find(|level| !is_level(level)) {
        Some(level) => Err(format!("expected error, warn, info, debug or trace, not \"{level}\"")),
        None => Ok(text.to_owned()),
    }
}
