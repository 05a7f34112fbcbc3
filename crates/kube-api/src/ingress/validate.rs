//! What is wrong with an `IngressController`, by its own words.
//!
//! The type that is installed may be another than ours and check less, so everything is checked again here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portcullis_core::{Cidr, Family};

use super::{
    AwsParameters, EndpointPublishingStrategy, HostNetworkStrategy, IngressController, LoadBalancerStrategy,
    PublishingType, Scope, Subnets, options, seconds,
};

/// As many ranges as are taken.
const MOST_RANGES: usize = 4096;

/// As many subnets, and addresses, as AWS takes.
const MOST_ON_AWS: usize = 10;

const STRATEGY: &str = "spec.endpointPublishingStrategy";

/// What is wrong with it: a sentence for each place, which starts with the place. None, if it can be carried out.
pub fn refusals(controller: &IngressController) -> Vec<String> {
    let mut wrong = Vec::new();
    check_name(controller.name(), &mut wrong);
    if controller.spec.replicas.is_some_and(|replicas| replicas < 0) {
        wrong.push("spec.replicas: it cannot be negative".to_owned());
    }
    // One that is served already is not changed any more.
    if let Some(domain) = controller.wanted_domain().filter(|_| controller.status.domain.is_empty()) {
        check_domain(domain, &mut wrong);
    }
    wrong.extend(options::wrong(controller));
    let Some(strategy) = &controller.spec.endpoint_publishing_strategy else { return wrong };
    check_protocols(strategy, &mut wrong);
    if let Some(host_network) = &strategy.host_network {
        check_ports(host_network, &mut wrong);
    }
    if let Some(load_balancer) = &strategy.load_balancer {
        check_load_balancer(load_balancer, &mut wrong);
    }
    wrong
}

/// Services are named after it, and their names are shorter and plainer than those of other objects.
fn check_name(name: &str, wrong: &mut Vec<String>) {
    let longest = 63 - "router-internal-".len();
    if name.len() > longest || name.contains('.') {
        wrong.push(format!(
            "metadata.name: Services cannot be named after `{name}`; create it again by a name of at most {longest} letters, digits and dashes"
        ));
    }
}

/// Host names of routes end with it, and certificates name it.
fn check_domain(domain: &str, wrong: &mut Vec<String>) {
    let is_label = |label: &str| {
        let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
        let ends = !label.starts_with('-') && !label.ends_with('-');
        !label.is_empty() && label.len() <= 63 && ends && label.bytes().all(fits)
    };
    if domain.len() > 244 || !domain.split('.').all(is_label) {
        wrong.push(format!(
            "spec.domain: `{domain}` is not a domain such as `apps.example.com`, of small letters, digits, dashes and dots, with at most 244 letters in all and 63 between dots"
        ));
    }
}

/// What of the spec is not carried out, because what was admitted once stays: routes, DNS records and certificates of others
/// depend on it. Everything else goes on, so this is told and not refused.
pub fn unchangeable(controller: &IngressController) -> Vec<String> {
    let name = controller.name();
    let status = &controller.status;
    let mut told = Vec::new();
    if let Some(wanted) = controller.wanted_domain()
        && !status.domain.is_empty()
        && status.domain != wanted
    {
        told.push(format!(
            "spec.domain: it is `{wanted}`, and `{}` is served on; a domain cannot be changed: set it back, or delete IngressController {name} and create it again",
            status.domain
        ));
    }
    let wanted = controller.spec.endpoint_publishing_strategy.as_ref().map(|strategy| &strategy.type_);
    let admitted = status.endpoint_publishing_strategy.as_ref().map(|strategy| &strategy.type_);
    if let (Some(wanted), Some(admitted)) = (wanted, admitted)
        && wanted != admitted
    {
        told.push(format!(
            "{STRATEGY}.type: it is `{}`, and stays `{}`; the type cannot be changed: set it back, or delete IngressController {name} and create it again",
            wanted.as_str(),
            admitted.as_str()
        ));
    }
    told
}

/// What of the spec is not carried out because it is not known here: a sentence for each place. Everything else is carried out.
pub fn ignored(controller: &IngressController) -> Vec<String> {
    let mut told = options::ignored(controller);
    told.extend(unread_ranges(controller));
    let aws =
        controller.wanted_load_balancer().and_then(|found| found.provider_parameters.as_ref()?.aws.as_ref());
    let network = aws.and_then(|aws| aws.network_load_balancer.as_ref());
    let place = format!("{STRATEGY}.loadBalancer.providerParameters.aws.networkLoadBalancer");
    told.extend(network.iter().flat_map(|network| network.rest.keys()).map(|key| match key.as_str() {
        "securityGroups" => format!(
            "{place}.{key}: groups are not taken from here; name them by the annotation service.beta.kubernetes.io/aws-load-balancer-security-groups of Service router-{}",
            controller.name()
        ),
        _ => format!("{place}.{key}: it is not known here, and nothing is done about it"),
    }));
    told
}

/// Ranges beside a strategy that has no load balancer.
fn unread_ranges(controller: &IngressController) -> Option<String> {
    let admitted = controller.status.endpoint_publishing_strategy.as_ref();
    let type_ = &admitted.or(controller.spec.endpoint_publishing_strategy.as_ref())?.type_;
    (!controller.wanted_ranges().is_empty() && *type_ != PublishingType::LoadBalancerService).then(|| {
        format!(
            "{STRATEGY}.loadBalancer.allowedSourceRanges: `{}` has no load balancer, so nobody is kept out by them; limit clients elsewhere, and remove them here",
            type_.as_str()
        )
    })
}

fn check_protocols(strategy: &EndpointPublishingStrategy, wrong: &mut Vec<String>) {
    if let PublishingType::Other(other) = &strategy.type_ {
        wrong.push(format!(
            "{STRATEGY}.type: `{other}` is not known; it is LoadBalancerService, HostNetwork, NodePortService or Private"
        ));
    }
    for (place, protocol) in [
        ("hostNetwork", strategy.host_network.as_ref().and_then(|found| found.protocol.as_ref())),
        ("nodePort", strategy.node_port.as_ref().and_then(|found| found.protocol.as_ref())),
        ("private", strategy.private.as_ref().and_then(|found| found.protocol.as_ref())),
    ] {
        check_word(&format!("{STRATEGY}.{place}.protocol"), protocol, &["", "TCP", "PROXY"], wrong);
    }
}

fn check_word(place: &str, word: Option<&String>, known: &[&str], wrong: &mut Vec<String>) {
    if let Some(word) = word.filter(|word| !known.contains(&word.as_str())) {
        let known: Vec<&str> = known.iter().copied().filter(|word| !word.is_empty()).collect();
        wrong.push(format!("{place}: `{word}` is not known; it is {}", known.join(" or ")));
    }
}

fn check_ports(host_network: &HostNetworkStrategy, wrong: &mut Vec<String>) {
    let ports = host_network.ports();
    let place = format!("{STRATEGY}.hostNetwork");
    for port in ports.iter().filter(|port| !(1..=65535).contains(*port)) {
        wrong.push(format!("{place}: {port} is not a port; a port is 1 to 65535"));
    }
    if BTreeSet::from(ports).len() < ports.len() {
        let [http, https, stats] = ports;
        wrong.push(format!(
            "{place}: the ports for HTTP ({http}), HTTPS ({https}) and statistics ({stats}) have to differ"
        ));
    }
}

fn check_load_balancer(load_balancer: &LoadBalancerStrategy, wrong: &mut Vec<String>) {
    let place = format!("{STRATEGY}.loadBalancer");
    if let Scope::Other(other) = &load_balancer.scope {
        wrong.push(format!("{place}.scope: `{other}` is not known; it is Internal or External"));
    }
    let policy = load_balancer.dns_management_policy.as_ref();
    check_word(&format!("{place}.dnsManagementPolicy"), policy, &["Managed", "Unmanaged"], wrong);
    check_ranges(load_balancer, &place, wrong);
    let Some(parameters) = &load_balancer.provider_parameters else { return };
    let place = format!("{place}.providerParameters");
    if let Some(aws) = &parameters.aws {
        check_aws(aws, &load_balancer.scope, &format!("{place}.aws"), wrong);
    }
    let access = parameters.gcp.as_ref().and_then(|gcp| gcp.client_access.as_ref());
    check_word(&format!("{place}.gcp.clientAccess"), access, &["Global", "Local"], wrong);
    let protocol = parameters.ibm.as_ref().and_then(|ibm| ibm.protocol.as_ref());
    check_word(&format!("{place}.ibm.protocol"), protocol, &["", "TCP", "PROXY"], wrong);
    let floating = parameters.openstack.as_ref().and_then(|openstack| openstack.floating_ip.as_ref());
    if let Some(floating) = floating.filter(|text| !text.is_empty() && text.parse::<IpAddr>().is_err()) {
        wrong.push(format!("{place}.openstack.floatingIP: `{floating}` is no IP address"));
    }
}

fn check_ranges(load_balancer: &LoadBalancerStrategy, place: &str, wrong: &mut Vec<String>) {
    let ranges = load_balancer.allowed_source_ranges.as_deref().unwrap_or_default();
    if ranges.len() > MOST_RANGES {
        wrong.push(format!(
            "{place}.allowedSourceRanges: there are {}, and at most {MOST_RANGES} are taken; write neighbours as one wider range",
            ranges.len()
        ));
        return;
    }
    for (index, text) in ranges.iter().enumerate() {
        match text.parse::<Cidr>() {
            Ok(range) if range.addr().is_ipv6() && is_mapped(&range) => wrong.push(format!(
                "{place}.allowedSourceRanges[{index}]: `{text}` is IPv4 written as IPv6; write `{}`",
                if range.family() == Family::V4 {
                    range.network().to_string()
                } else {
                    "an IPv4 range".to_owned()
                }
            )),
            Ok(_) => {}
            Err(error) => wrong.push(format!("{place}.allowedSourceRanges[{index}]: {error}")),
        }
    }
}

/// Whether an address is an IPv4 one written as IPv6. Services take such, and programs disagree on what it means.
fn is_mapped(range: &Cidr) -> bool {
    matches!(range.addr(), std::net::IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn check_aws(aws: &AwsParameters, scope: &Scope, place: &str, wrong: &mut Vec<String>) {
    if let super::AwsLoadBalancerType::Other(other) = &aws.type_ {
        wrong.push(format!("{place}.type: `{other}` is not known; it is Classic or NLB"));
    }
    if let Some(classic) = &aws.classic_load_balancer {
        let place = format!("{place}.classicLoadBalancer");
        if let Some(timeout) = classic.connection_idle_timeout.as_ref().filter(|text| seconds(text).is_none())
        {
            wrong.push(format!(
                "{place}.connectionIdleTimeout: `{timeout}` is not a duration such as `1m30s`"
            ));
        }
        check_subnets(classic.subnets.as_ref(), &place, wrong);
    }
    let Some(network) = &aws.network_load_balancer else { return };
    let place = format!("{place}.networkLoadBalancer");
    check_subnets(network.subnets.as_ref(), &place, wrong);
    check_word(&format!("{place}.protocol"), network.protocol.as_ref(), &["", "TCP", "PROXY"], wrong);
    let addresses = network.eip_allocations.as_deref().unwrap_or_default();
    let place = format!("{place}.eipAllocations");
    check_list(addresses, &place, wrong);
    for (index, address) in addresses.iter().enumerate() {
        if !is_allocation(address) {
            wrong.push(format!(
                "{place}[{index}]: `{address}` is not an allocation; that is `eipalloc-` and 17 hexadecimal digits"
            ));
        }
    }
    if !addresses.is_empty() && *scope == Scope::Internal {
        wrong.push(format!(
            "{place}: an internal load balancer has no Elastic IPs; remove them, or set scope to External"
        ));
    }
    let subnets = network.subnets.as_ref().map_or(0, |subnets| subnets.all().count());
    if !addresses.is_empty() && subnets > 0 && subnets != addresses.len() {
        wrong.push(format!(
            "{place}: there are {} for {subnets} subnets; each subnet gets one",
            addresses.len()
        ));
    }
}

fn check_subnets(subnets: Option<&Subnets>, place: &str, wrong: &mut Vec<String>) {
    let Some(subnets) = subnets else { return };
    let all: Vec<String> = subnets.all().cloned().collect();
    check_list(&all, &format!("{place}.subnets"), wrong);
    for id in subnets.ids.iter().flatten() {
        if !is_subnet(id) {
            wrong.push(format!(
                "{place}.subnets.ids: `{id}` is not the id of a subnet, such as `subnet-0123456789abcdef0`"
            ));
        }
    }
    for name in subnets.names.iter().flatten() {
        if !is_subnet_name(name) {
            wrong.push(format!(
                "{place}.subnets.names: `{name}` cannot be a name here: it is empty, has a comma, or looks like an id"
            ));
        }
    }
}

fn is_allocation(text: &str) -> bool {
    let number = text.strip_prefix("eipalloc-");
    number.is_some_and(|number| number.len() == 17 && number.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn is_subnet(text: &str) -> bool {
    let rest = text.strip_prefix("subnet-");
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_alphanumeric()))
}

fn is_subnet_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(',') && !text.starts_with("subnet-")
}

/// Subnets and Elastic IPs that somebody wrote on a Service, as far as an `IngressController` may have them: its type refuses a
/// status with others, and would go on doing so.
pub fn presentable(
    subnets: &[String],
    allocations: &[String],
    scope: &Scope,
) -> (Option<Subnets>, Option<Vec<String>>) {
    let once = |list: &[String], fits: fn(&str) -> bool| {
        let mut seen = BTreeSet::new();
        let fitting = list.iter().filter(|entry| fits(entry) && seen.insert(entry.as_str()));
        fitting.take(MOST_ON_AWS).cloned().collect::<Vec<_>>()
    };
    let all = once(subnets, |text| is_subnet(text) || is_subnet_name(text));
    let addresses = once(allocations, is_allocation);
    let each_has_one = all.is_empty() || all.len() == addresses.len();
    let addresses = Some(addresses).filter(|_| *scope != Scope::Internal && each_has_one);
    let (ids, names): (Vec<_>, Vec<_>) = all.into_iter().partition(|entry| entry.starts_with("subnet-"));
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let subnets = Subnets { ids: some(ids), names: some(names) };
    ((subnets != Subnets::default()).then_some(subnets), addresses.and_then(some))
}

/// Not too many, and none twice.
fn check_list(list: &[String], place: &str, wrong: &mut Vec<String>) {
    if list.len() > MOST_ON_AWS {
        wrong.push(format!("{place}: there are {}, and AWS takes at most {MOST_ON_AWS}", list.len()));
    }
    let mut seen = BTreeSet::new();
    for entry in list.iter().filter(|entry| !seen.insert(*entry)) {
        wrong.push(format!("{place}: `{entry}` is there twice"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_are_named_after_it() {
        for (name, fine) in
            [("default", true), (&*"a".repeat(47), true), (&*"a".repeat(48), false), ("a.b", false)]
        {
            let controller: IngressController =
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            assert_eq!(refusals(&controller).is_empty(), fine, "{name}");
        }
    }

    #[test]
    fn domains() {
        for (domain, fine) in [
            ("apps.example.com", true),
            ("a", true),
            ("", true),
            ("-a.example", false),
            ("a..example", false),
            ("Apps.example.com", false),
            ("a b", false),
            ("*.example.com", false),
            (&*format!("{}.example", "a".repeat(63)), true),
            (&*format!("{}.example", "a".repeat(64)), false),
            (&*"a.".repeat(130), false),
        ] {
            let controller: IngressController =
                serde_json::from_value(json!({"metadata": {"name": "shop"}, "spec": {"domain": domain}}))
                    .unwrap();
            assert_eq!(refusals(&controller).is_empty(), fine, "{domain}");
        }
    }

    #[test]
    fn what_is_not_carried_out_is_told() {
        let controller: IngressController = serde_json::from_value(json!({
            "metadata": {"name": "shop"},
            "spec": {"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"providerParameters": {
                "type": "AWS",
                "aws": {"type": "NLB", "networkLoadBalancer": {"securityGroups": ["sg-12345678"], "protocol": "TCP"}},
            }}}},
        }))
        .unwrap();
        let told = ignored(&controller);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("networkLoadBalancer.securityGroups: groups are not taken from here"),
            "{told:?}"
        );
        assert!(told[0].ends_with("of Service router-shop"), "{told:?}");
    }

    /// Only a load balancer could keep anybody out.
    #[test]
    fn ranges_that_nobody_reads_are_told() {
        let strategy = |type_: &str, ranges: &[&str]| json!({"type": type_, "loadBalancer": {"scope": "External", "allowedSourceRanges": ranges}});
        for (spec, status, told) in [
            (strategy("LoadBalancerService", &["10.0.0.0/8"]), json!(null), false),
            (strategy("HostNetwork", &["10.0.0.0/8"]), json!(null), true),
            (strategy("NodePortService", &["10.0.0.0/8"]), json!(null), true),
            (strategy("Private", &["10.0.0.0/8"]), json!(null), true),
            (strategy("Private", &[]), json!(null), false),
            (strategy("Private", &["10.0.0.0/8"]), json!({"type": "LoadBalancerService"}), false),
            (strategy("LoadBalancerService", &["10.0.0.0/8"]), json!({"type": "Private"}), true),
        ] {
            let controller: IngressController = serde_json::from_value(json!({
                "metadata": {"name": "shop"},
                "spec": {"endpointPublishingStrategy": spec},
                "status": {"endpointPublishingStrategy": status},
            }))
            .unwrap();
            let found = ignored(&controller);
            assert_eq!(
                found.iter().any(|told| told.contains("so nobody is kept out by them")),
                told,
                "{spec} {status}: {found:?}"
            );
        }
    }

    #[test]
    fn what_was_admitted_stays() {
        let controller = |domain: &str, type_: &str| -> IngressController {
            serde_json::from_value(json!({
                "metadata": {"name": "shop"},
                "spec": {"domain": domain, "endpointPublishingStrategy": {"type": type_}},
                "status": {"domain": "apps.example.com", "endpointPublishingStrategy": {"type": "Private"}},
            }))
            .unwrap()
        };
        assert!(unchangeable(&controller("apps.example.com", "Private")).is_empty());
        assert!(unchangeable(&controller("", "Private")).is_empty());
        let changed = controller("other.example.com", "NodePortService");
        assert!(refusals(&changed).is_empty(), "everything else goes on");
        assert_eq!(
            unchangeable(&changed),
            [
                "spec.domain: it is `other.example.com`, and `apps.example.com` is served on; a domain cannot be changed: set it back, or delete IngressController shop and create it again",
                "spec.endpointPublishingStrategy.type: it is `NodePortService`, and stays `Private`; the type cannot be changed: set it back, or delete IngressController shop and create it again",
            ]
        );
    }
}
