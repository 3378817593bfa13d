//! Fields of the pod's spec that stand alone: names, DNS, host aliases.

use ::core::net::IpAddr;

use serde_json::Value;

use super::rules::POD_SPEC;
use super::rules::one_of;
use super::rules::written_one_of;
use super::wrong;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;

/// `MaxDNSNameservers`, `MaxDNSSearchPaths`, `MaxDNSSearchListChars`.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_BYTES: usize = 2_048;
/// The longest name that Linux gives a host.
const HOSTNAME_BYTES: usize = 64;

/// What `ValidatePodSpec` says of them.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    names(spec, errors);
    one_of(spec, "dnsPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], POD_SPEC, errors);
    dns_config(spec, errors);
    host_aliases(spec, errors);
    preemption_policy(spec, POD_SPEC, errors);
}

/// `ValidatePreemptionPolicy`, of the spec at `place`.
pub(super) fn preemption_policy(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    written_one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], place, errors);
}

fn names(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut push = |field: &str, reason: Option<&str>| {
        errors.extend(reason.map(|reason| wrong(format!("{POD_SPEC}.{field}"), reason)));
    };
    let account = if spec.str_at("serviceAccountName").is_empty() { "serviceAccount" } else { "serviceAccountName" };
    for field in [account, "nodeName", "priorityClassName"] {
        push(field, spec.text_at(field).and_then(dns::subdomain));
    }
    for field in ["hostname", "subdomain"] {
        push(field, spec.text_at(field).and_then(dns::label));
    }
    push("runtimeClassName", text(spec, "runtimeClassName").and_then(dns::subdomain));
    if let Some(name) = text(spec, "hostnameOverride") {
        const FIELD: &str = "hostnameOverride";
        push(FIELD, dns::subdomain(name));
        push(FIELD, (name.len() > HOSTNAME_BYTES).then_some("must be no more than 64 bytes"));
        push(FIELD, spec.flag_at("setHostnameAsFQDN").then_some("may not be set beside setHostnameAsFQDN"));
        push(FIELD, spec.flag_at("hostNetwork").then_some("may not be set with hostNetwork"));
    }
}

/// `validatePodDNSConfig`.
fn dns_config(spec: &Value, errors: &mut Vec<FieldError>) {
    const CONFIG: &str = "spec.template.spec.dnsConfig";
    let config = spec.get("dnsConfig").filter(|config| config.is_object());
    if spec.str_at("dnsPolicy") == "None" {
        if config.is_none() {
            return errors.push(wrong(CONFIG, "required with dnsPolicy None"));
        }
        if config.is_some_and(|config| config.list_at("nameservers").is_empty()) {
            return errors.push(wrong(format!("{CONFIG}.nameservers"), "required with dnsPolicy None"));
        }
    }
    let Some(config) = config else { return };
    let texts = |field: &str| -> Vec<&str> {
        config.list_at(field).iter().map(|text| text.as_str().unwrap_or_default()).collect()
    };
    let (servers, searches) = (texts("nameservers"), texts("searches"));
    if servers.len() > NAMESERVERS {
        errors.push(wrong(format!("{CONFIG}.nameservers"), format!("must not be more than {NAMESERVERS}")));
    }
    for (index, _) in servers.iter().enumerate().filter(|(_, server)| !is_ip(server)) {
        errors.push(wrong(format!("{CONFIG}.nameservers[{index}]"), "must be an IP address"));
    }
    if searches.len() > SEARCHES || searches.join(" ").len() > SEARCH_BYTES {
        let reason = format!("must not be more than {SEARCHES}, and at most {SEARCH_BYTES} bytes together");
        errors.push(wrong(format!("{CONFIG}.searches"), reason));
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        if !is_search(search.strip_suffix('.').unwrap_or(search)) {
            let reason = "must be lower case letters, digits, '-', '_' and '.', each part beginning and ending with one \
                          of the first two";
            errors.push(wrong(format!("{CONFIG}.searches[{index}]"), reason));
        }
    }
    for (index, _) in
        config.list_at("options").iter().enumerate().filter(|(_, option)| option.str_at("name").is_empty())
    {
        errors.push(wrong(format!("{CONFIG}.options[{index}].name"), "required"));
    }
}

/// `ValidateHostAliases`.
fn host_aliases(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, alias) in spec.list_at("hostAliases").iter().enumerate() {
        let place = format!("{POD_SPEC}.hostAliases[{index}]");
        if !is_ip(alias.str_at("ip")) {
            errors.push(wrong(format!("{place}.ip"), "must be an IP address"));
        }
        for (at, name) in alias.list_at("hostnames").iter().enumerate() {
            let reason = dns::subdomain(name.as_str().unwrap_or_default());
            errors.extend(reason.map(|reason| wrong(format!("{place}.hostnames[{at}]"), reason)));
        }
    }
}

/// `IsDNS1123SubdomainWithUnderscore`.
fn is_search(search: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let ends = part.first().zip(part.last());
        ends.is_some_and(|(first, last)| is_inner(*first) && is_inner(*last))
            && part.iter().all(|byte| is_inner(*byte) || matches!(byte, b'-' | b'_'))
    };
    search.len() <= 253 && search.split('.').all(is_part)
}

/// `ParseIPSloppy`, which allows leading zeros; `versions` judges what later versions refuse of it.
fn is_ip(text: &str) -> bool {
    let mut plain = String::with_capacity(text.len());
    for part in text.split_inclusive([':', '.']) {
        let number = part.trim_end_matches([':', '.']);
        let digits = number.trim_start_matches('0');
        plain.push_str(if digits.is_empty() && !number.is_empty() { "0" } else { digits });
        plain.push_str(&part[number.len()..]);
    }
    plain.parse::<IpAddr>().is_ok()
}

/// A text that is there, which may be empty.
fn text<'a>(spec: &'a Value, field: &str) -> Option<&'a str> {
    spec.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(spec: Value) -> Vec<String> {
        let mut errors = Vec::new();
        check(&spec, &mut errors);
        errors.into_iter().map(|error| error.field.trim_start_matches("spec.template.spec.").to_owned()).collect()
    }

    #[test]
    fn each_rule_names_its_field_and_lets_the_boundary_pass() {
        let label = "a".repeat(63);
        for (wrong, field, right) in [
            (json!({"serviceAccountName": "a b"}), "serviceAccountName", json!({"serviceAccountName": "a.b"})),
            (
                json!({"serviceAccount": "A"}),
                "serviceAccount",
                json!({"serviceAccountName": "a", "serviceAccount": "A"}),
            ),
            (json!({"nodeName": "A"}), "nodeName", json!({"nodeName": ""})),
            (json!({"priorityClassName": "a_b"}), "priorityClassName", json!({"priorityClassName": "a.b"})),
            (json!({"hostname": "a.b"}), "hostname", json!({"hostname": label})),
            (json!({"subdomain": format!("{label}a")}), "subdomain", json!({"subdomain": label})),
            (json!({"runtimeClassName": ""}), "runtimeClassName", json!({"runtimeClassName": null})),
            (
                json!({"hostnameOverride": "a", "hostNetwork": true}),
                "hostnameOverride",
                json!({"hostnameOverride": "a"}),
            ),
            (json!({"dnsPolicy": "Other"}), "dnsPolicy", json!({"dnsPolicy": ""})),
            (json!({"dnsPolicy": "None"}), "dnsConfig", json!({"dnsPolicy": "Default"})),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {}}),
                "dnsConfig.nameservers",
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}),
            ),
            (
                json!({"dnsConfig": {"nameservers": ["::1", "1.2.3.0256"]}}),
                "dnsConfig.nameservers[1]",
                json!({"dnsConfig": {"nameservers": ["00000::01", "01.2.000.0255"]}}),
            ),
            (
                json!({"dnsConfig": {"searches": ["a", "a-"]}}),
                "dnsConfig.searches[1]",
                json!({"dnsConfig": {"searches": [".", "_a_b.c."]}}),
            ),
            (
                json!({"dnsConfig": {"options": [{"value": "1"}]}}),
                "dnsConfig.options[0].name",
                json!({"dnsConfig": {"options": [{"name": "ndots"}]}}),
            ),
            (
                json!({"hostAliases": [{"ip": "::1%eth0"}]}),
                "hostAliases[0].ip",
                json!({"hostAliases": [{"ip": "::ffff:1.2.3.4"}]}),
            ),
            (
                json!({"hostAliases": [{"ip": "::", "hostnames": ["a", ""]}]}),
                "hostAliases[0].hostnames[1]",
                json!({"hostAliases": []}),
            ),
            (json!({"preemptionPolicy": ""}), "preemptionPolicy", json!({"preemptionPolicy": "Never"})),
        ] {
            assert_eq!(fields(wrong.clone()), [field], "{wrong}");
            assert_eq!(fields(right.clone()), [""; 0], "{right}");
        }
    }
}
