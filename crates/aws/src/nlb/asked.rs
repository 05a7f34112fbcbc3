//! What the annotations of a Service ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use portcullis_core::{Owner, Problem, Scheme};

use super::words;
use crate::model::{Attributes, Tags};

/// What all annotations start with.
pub const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// What the annotations ask for; what they do not say is left out or empty.
#[allow(clippy::struct_excessive_bools, reason = "each is an annotation of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) scheme: Scheme,
    pub(super) dual_stack: Option<bool>,
    pub(super) name: Option<String>,
    pub(super) tags: Tags,
    pub(super) target_kind: TargetKind,
    pub(super) tls: Option<Tls>,
    pub(super) backend_tls: bool,
    pub(super) join_tcp_udp: bool,
    pub(super) health: Health,
    pub(super) attributes: Attributes,
    pub(super) target_attributes: Attributes,
    pub(super) subnets: Vec<String>,
    pub(super) allocations: Vec<String>,
    pub(super) private_addresses: Vec<String>,
    /// The groups to use instead of a managed one, by name or id.
    pub(super) groups: Option<Vec<String>>,
    /// Whether the nodes' groups are opened also for groups that were given.
    pub(super) manage_backend: bool,
    pub(super) prefix_lists: Vec<String>,
    pub(super) path_mtu: bool,
}

/// Who gets the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// The nodes, on their node ports.
    Instance,
    /// The addresses of the pods or machines themselves.
    Ip,
}

impl TargetKind {
    /// AWS's word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            TargetKind::Instance => "instance",
            TargetKind::Ip => "ip",
        }
    }
}

/// TLS that the load balancer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) certificate: String,
    /// The ports, by number or name; none means all.
    pub(super) ports: Option<BTreeSet<String>>,
    pub(super) policy: Option<String>,
    pub(super) alpn: Option<String>,
}

/// What is asked for instead of the usual health check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) protocol: Option<String>,
    pub(super) port: Option<String>,
    pub(super) path: Option<String>,
    pub(super) interval: Option<u32>,
    pub(super) timeout: Option<u32>,
    pub(super) healthy: Option<u32>,
    pub(super) unhealthy: Option<u32>,
}

/// Annotations that only mean something for other load balancers.
const CLASSIC_ONLY: [&str; 4] = [
    "extra-security-groups",
    "connection-draining-enabled",
    "connection-draining-timeout",
    "connection-idle-timeout",
];

/// What the names of AWS's rules for TLS start with.
const POLICIES: &str = "ELBSecurityPolicy-";

/// All that are known, in the order of the documentation.
pub(super) const KNOWN: [&str; 34] = [
    "type",
    "scheme",
    "internal",
    "name",
    "ip-address-type",
    "nlb-target-type",
    "target-node-labels",
    "subnets",
    "eip-allocations",
    "private-ipv4-addresses",
    "security-groups",
    "manage-backend-security-group-rules",
    "security-group-prefix-lists",
    "enable-icmp-for-path-mtu-discovery",
    "ssl-cert",
    "ssl-ports",
    "ssl-negotiation-policy",
    "alpn-policy",
    "backend-protocol",
    "enable-tcp-udp-listener",
    "healthcheck-protocol",
    "healthcheck-port",
    "healthcheck-path",
    "healthcheck-interval",
    "healthcheck-timeout",
    "healthcheck-healthy-threshold",
    "healthcheck-unhealthy-threshold",
    "attributes",
    "target-group-attributes",
    "cross-zone-load-balancing-enabled",
    "access-log-enabled",
    "access-log-s3-bucket-name",
    "access-log-s3-bucket-prefix",
    "additional-resource-tags",
];

/// Reads annotations one after the other, and collects what is wrong with them.
struct Reader<'a> {
    owner: &'a Owner,
    parameters: &'a BTreeMap<String, String>,
    wrong: Vec<String>,
}

impl Asked {
    /// Reads annotations. What is said of those that nobody knows comes with it.
    pub(super) fn parse(
        owner: &Owner,
        parameters: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<String>), Problem> {
        let mut reader = Reader { owner, parameters, wrong: Vec::new() };
        let asked = reader.asked();
        let unknown = reader.unknown();
        match reader.wrong.as_slice() {
            [] => Ok((asked, unknown)),
            wrong => Err(Problem::new(
                format!("{owner}: {}.", wrong.join("; ")),
                "Nothing was changed.",
                "Correct it, or remove it.",
            )),
        }
    }
}

impl Asked {
    /// Who gets the traffic: the nodes that have these labels, or the addresses themselves. What is wrong with it is
    /// said when all of it is read.
    pub(super) fn members(parameters: &BTreeMap<String, String>) -> (TargetKind, BTreeMap<String, String>) {
        let value = |key: &str| {
            parameters.get(&format!("{PREFIX}{key}")).map(|value| value.trim()).unwrap_or_default()
        };
        let kind = if value("nlb-target-type").eq_ignore_ascii_case("ip") {
            TargetKind::Ip
        } else {
            TargetKind::Instance
        };
        let labels = value("target-node-labels").split(',').filter(|entry| !entry.trim().is_empty());
        let labels = labels.map(|entry| entry.split_once('=').unwrap_or((entry, "")));
        (kind, labels.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
    }
}

impl Reader<'_> {
    fn asked(&mut self) -> Asked {
        for key in CLASSIC_ONLY {
            if self.text(key).is_some() {
                self.refuse(
                    key,
                    "it is for classic load balancers, and a network load balancer has no such thing",
                );
            }
        }
        // Whoever chooses members reads them; here only what is wrong with them is found.
        self.pairs("target-node-labels");
        Asked {
            scheme: self.scheme(),
            dual_stack: self.choice("ip-address-type", &[("ipv4", false), ("dualstack", true)]),
            name: self.name(),
            tags: self.tags(),
            target_kind: self
                .choice("nlb-target-type", &[("instance", TargetKind::Instance), ("ip", TargetKind::Ip)])
                .unwrap_or(TargetKind::Instance),
            tls: self.tls(),
            backend_tls: self.backend_tls(),
            join_tcp_udp: self.flag("enable-tcp-udp-listener").unwrap_or(true),
            health: self.health(),
            attributes: self.attributes(),
            target_attributes: self.target_attributes(),
            subnets: self.list("subnets"),
            allocations: self.ids("eip-allocations", "eipalloc-"),
            private_addresses: self.private_addresses(),
            groups: self.groups(),
            manage_backend: self.flag("manage-backend-security-group-rules").unwrap_or(true),
            prefix_lists: self.ids("security-group-prefix-lists", "pl-"),
            path_mtu: self
                .choice(
                    "enable-icmp-for-path-mtu-discovery",
                    &[("on", true), ("off", false), ("true", true), ("false", false)],
                )
                .unwrap_or(true),
        }
    }

    fn unknown(&self) -> Vec<String> {
        let keys = self.parameters.keys().filter_map(|key| key.strip_prefix(PREFIX));
        let unknown = keys.filter(|key| !KNOWN.contains(key) && !CLASSIC_ONLY.contains(key));
        unknown
            .map(|key| {
                format!("{}: nobody knows the annotation {PREFIX}{key}, and it is left out", self.owner)
            })
            .collect()
    }

    /// The value of an annotation, if it has one.
    fn text(&self, key: &str) -> Option<&str> {
        let value = self.parameters.get(&format!("{PREFIX}{key}"))?.trim();
        Some(value).filter(|value| !value.is_empty())
    }

    fn refuse(&mut self, key: &str, why: &str) {
        let value = self.text(key).unwrap_or_default();
        self.wrong.push(format!("{} is `{value}`: {why}", words::said(self.owner, key)));
    }

    fn list(&self, key: &str) -> Vec<String> {
        let entries = self.text(key).unwrap_or_default().split(',').map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    }

    /// A list without the same entry twice.
    fn different(&mut self, key: &str) -> Vec<String> {
        let entries = self.list(key);
        let twice = entries.iter().enumerate().find(|(place, entry)| entries[..*place].contains(entry));
        if let Some((_, entry)) = twice {
            self.refuse(key, &format!("it has `{entry}` twice"));
        }
        entries
    }

    /// A list of what AWS calls by ids that start so.
    fn ids(&mut self, key: &str, start: &str) -> Vec<String> {
        let entries = self.different(key);
        if let Some(wrong) = entries.iter().find(|entry| !entry.starts_with(start)) {
            self.refuse(key, &format!("`{wrong}` does not start with `{start}`"));
        }
        entries
    }

    fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.text(key)?.to_owned();
        let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&value));
        if found.is_none() {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.refuse(key, &format!("it can be {}", words.join(" or ")));
        }
        found.map(|(_, meaning)| *meaning)
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        self.choice(key, &[("true", true), ("false", false)])
    }

    fn number(&mut self, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = self.text(key)?;
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.refuse(key, &format!("it has to be a number from {least} to {most}"));
        }
        number
    }

    /// `key=value,key=value`; a key alone has an empty value.
    fn pairs(&mut self, key: &str) -> BTreeMap<String, String> {
        let mut pairs = BTreeMap::new();
        for entry in self.list(key) {
            let (name, value) = entry.split_once('=').unwrap_or((&entry, ""));
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            if name.is_empty() {
                self.refuse(key, "an entry has no key before its `=`");
            } else if pairs.insert(name.clone(), value).is_some() {
                self.refuse(key, &format!("it has `{name}` twice"));
            }
        }
        pairs
    }

    fn scheme(&mut self) -> Scheme {
        let schemes = [("internal", Scheme::Internal), ("internet-facing", Scheme::InternetFacing)];
        let scheme = self.choice("scheme", &schemes);
        let internal = self.text("internal").map(|value| value != "false");
        match (scheme, internal) {
            (Some(Scheme::InternetFacing), Some(true)) | (Some(Scheme::Internal), Some(false)) => {
                self.refuse("internal", &format!("{PREFIX}scheme says otherwise"));
                Scheme::Internal
            }
            (Some(scheme), _) => scheme,
            (None, Some(true)) => Scheme::Internal,
            (None, _) => Scheme::InternetFacing,
        }
    }

    fn name(&mut self) -> Option<String> {
        let name = self.text("name")?.to_owned();
        let allowed = |character: char| character.is_ascii_alphanumeric() || character == '-';
        let fine = name.len() <= 32
            && name.chars().all(allowed)
            && !name.starts_with(['-'])
            && !name.ends_with('-')
            && !name.starts_with("internal-");
        if !fine {
            let why = "a name has at most 32 letters, digits and dashes, no dash at an end, and not `internal-` in front";
            self.refuse("name", why);
        }
        Some(name)
    }

    fn tags(&mut self) -> Tags {
        let tags = self.pairs("additional-resource-tags");
        for (key, value) in &tags {
            let reserved = key.starts_with("aws:")
                || key.starts_with("portcullis.dev/")
                || key.starts_with("kubernetes.io/cluster/");
            if reserved {
                self.refuse("additional-resource-tags", &format!("the tag `{key}` is not yours to set"));
            } else if key.chars().count() > 128 || value.chars().count() > 256 {
                let why =
                    format!("the tag `{key}` is too long: a key has up to 128 characters, a value up to 256");
                self.refuse("additional-resource-tags", &why);
            }
        }
        if tags.len() > 40 {
            self.refuse("additional-resource-tags", "an object can have 40 of them, as ten more are ours");
        }
        tags
    }

    fn tls(&mut self) -> Option<Tls> {
        let mut certificates = self.list("ssl-cert");
        if certificates.len() > 1 {
            self.refuse("ssl-cert", "a listener gets one certificate, which may be for many names");
        }
        if certificates.iter().any(|certificate| !certificate.starts_with("arn:")) {
            self.refuse("ssl-cert", "a certificate is named by its ARN, which starts with `arn:`");
        }
        let Some(certificate) = certificates.pop() else {
            for key in ["ssl-ports", "ssl-negotiation-policy", "alpn-policy"] {
                // Without a certificate there is no TLS, however much is said about it. All ports is what many
                // write without meaning anything by it.
                if self.text(key).is_some_and(|value| value != "*") {
                    self.refuse(key, &format!("there is no TLS without {PREFIX}ssl-cert"));
                }
            }
            return None;
        };
        if self.text("ssl-negotiation-policy").is_some_and(|policy| !policy.starts_with(POLICIES)) {
            self.refuse("ssl-negotiation-policy", &format!("policies of AWS start with `{POLICIES}`"));
        }
        let ports = self.list("ssl-ports");
        let all = ports.is_empty() || ports.iter().any(|port| port == "*");
        let alpn =
            ["HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred", "None"].map(|word| (word, word));
        Some(Tls {
            certificate,
            ports: (!all).then(|| ports.into_iter().collect()),
            policy: self.text("ssl-negotiation-policy").map(str::to_owned),
            alpn: self.choice("alpn-policy", &alpn).map(str::to_owned),
        })
    }

    fn backend_tls(&mut self) -> bool {
        let words = [("ssl", true), ("tls", true), ("https", true), ("tcp", false), ("http", false)];
        self.choice("backend-protocol", &words).unwrap_or(false)
    }

    fn health(&mut self) -> Health {
        let protocols = [("tcp", "TCP"), ("http", "HTTP"), ("https", "HTTPS")];
        let protocol = self.choice("healthcheck-protocol", &protocols).map(str::to_owned);
        let port = self.text("healthcheck-port").map(str::to_owned);
        if let Some(port) = &port
            && port != "traffic-port"
            && !port.parse().is_ok_and(|port: u16| port > 0)
        {
            self.refuse("healthcheck-port", "it has to be a port, or `traffic-port`");
        }
        let path = self.text("healthcheck-path").map(str::to_owned);
        let is_path = |path: &String| {
            path.starts_with('/') && path.len() <= 1024 && !path.contains(char::is_whitespace)
        };
        if path.as_ref().is_some_and(|path| !is_path(path)) {
            let why = "a path starts with `/`, and has up to 1024 characters and no spaces";
            self.refuse("healthcheck-path", why);
        }
        if path.is_some() && protocol.as_deref() == Some("TCP") {
            self.refuse("healthcheck-path", "a check by TCP has no path");
        }
        let health = Health {
            protocol,
            port,
            path,
            interval: self.number("healthcheck-interval", 5, 300),
            timeout: self.number("healthcheck-timeout", 2, 120),
            healthy: self.number("healthcheck-healthy-threshold", 2, 10),
            unhealthy: self.number("healthcheck-unhealthy-threshold", 2, 10),
        };
        if let (Some(interval), Some(timeout)) = (health.interval, health.timeout)
            && timeout > interval
        {
            self.refuse("healthcheck-timeout", &format!("it is longer than the interval of {interval} s"));
        }
        health
    }

    fn attributes(&mut self) -> Attributes {
        let mut attributes = self.pairs("attributes");
        for key in
            ["load_balancing.cross_zone.enabled", "access_logs.s3.enabled", "deletion_protection.enabled"]
        {
            self.check_truth("attributes", key, &attributes);
        }
        let mut set = |reader: &mut Self, annotation: &str, key: &str, value: String| {
            if attributes.get(key).is_some_and(|given| *given != value) {
                let other = words::key(reader.owner, "attributes");
                reader.refuse(annotation, &format!("`{key}` in {other} says otherwise"));
            }
            attributes.insert(key.to_owned(), value);
        };
        if let Some(on) = self.flag("cross-zone-load-balancing-enabled") {
            let key = "load_balancing.cross_zone.enabled";
            set(self, "cross-zone-load-balancing-enabled", key, on.to_string());
        }
        let logs = self.flag("access-log-enabled");
        if let Some(on) = logs {
            set(self, "access-log-enabled", "access_logs.s3.enabled", on.to_string());
        }
        for (annotation, key) in [
            ("access-log-s3-bucket-name", "access_logs.s3.bucket"),
            ("access-log-s3-bucket-prefix", "access_logs.s3.prefix"),
        ] {
            if let Some(value) = self.text(annotation).map(str::to_owned) {
                set(self, annotation, key, value);
            }
        }
        if logs == Some(true) && !attributes.contains_key("access_logs.s3.bucket") {
            self.refuse(
                "access-log-enabled",
                &format!("logs need a bucket: set {PREFIX}access-log-s3-bucket-name"),
            );
        }
        attributes
    }

    fn target_attributes(&mut self) -> Attributes {
        let attributes = self.pairs("target-group-attributes");
        for key in ["preserve_client_ip.enabled", "proxy_protocol_v2.enabled", "stickiness.enabled"] {
            self.check_truth("target-group-attributes", key, &attributes);
        }
        attributes
    }

    fn check_truth(&mut self, annotation: &str, key: &str, attributes: &Attributes) {
        if attributes.get(key).is_some_and(|value| value != "true" && value != "false") {
            self.refuse(annotation, &format!("`{key}` can be `true` or `false`"));
        }
    }

    fn private_addresses(&mut self) -> Vec<String> {
        let addresses = self.different("private-ipv4-addresses");
        if let Some(wrong) = addresses.iter().find(|address| address.parse::<Ipv4Addr>().is_err()) {
            let family = if wrong.parse::<IpAddr>().is_ok() { "IPv4 " } else { "" };
            let why = format!("`{wrong}` is not an {family}address");
            self.refuse("private-ipv4-addresses", &why);
        }
        if !addresses.is_empty() && self.text("eip-allocations").is_some() {
            self.refuse("private-ipv4-addresses", "a load balancer has either these or elastic addresses");
        }
        addresses
    }

    fn groups(&mut self) -> Option<Vec<String>> {
        let mut groups = self.list("security-groups");
        let given = groups.len();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() < given {
            self.refuse("security-groups", "it has a group twice");
        }
        Some(groups).filter(|groups| !groups.is_empty())
    }
}
