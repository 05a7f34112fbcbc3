//! Options of DHCP, as people name them and as OVN does.
//!
//! northd writes a value into the actions of a flow as it stands. So each is read, and written anew from what was read:
//! what is no value of its option never gets there.

use std::net::{IpAddr, Ipv4Addr};

use portcullis_core::{Cidr, Family};

/// OVN's name and value for an option that was asked for, by the name that dnsmasq or OVN has for it or by its number.
/// `None` for what OVN cannot send.
pub fn option(family: Family, name: &str, value: &str) -> Option<(String, String)> {
    let (ovn, form) = known(family, name)?;
    Some((ovn.to_owned(), form.written(family, value).ok()?))
}

/// Why a value cannot be that of an option. Of an option that OVN does not know, every value is as good as another, and
/// clients do not always say which family they mean: an address of the other one is taken, and not sent.
pub fn check(family: Family, name: &str, value: &str) -> Result<(), String> {
    let Some((_, form)) = known(family, name) else { return Ok(()) };
    let fits = |family: &Family| form.written(*family, value).is_ok();
    match form.written(family, value) {
        Err(wanted) if !Family::ALL.iter().any(fits) => {
            Err(format!("'{value}' is not a value of the DHCP option {name}, which is {wanted}"))
        }
        _ => Ok(()),
    }
}

/// A text as OVN reads it, between quotes; nothing if it has something in it that would end it.
pub(crate) fn quoted(text: &str) -> Option<String> {
    let ends = |c: char| c == '"' || c == '\\' || c.is_control();
    (!text.contains(ends)).then(|| format!("\"{text}\""))
}

fn known(family: Family, name: &str) -> Option<(&'static str, Form)> {
    let names = match family {
        Family::V4 => V4,
        Family::V6 => V6,
    };
    let wanted = name.strip_prefix("option:").unwrap_or(name).replace('_', "-");
    let found = names.iter().find(|(known, ovn, _)| *known == wanted || ovn.replace('_', "-") == wanted);
    found.map(|(_, ovn, form)| (*ovn, *form))
}

#[derive(Clone, Copy)]
enum Form {
    /// A whole number up to this one.
    Number(u32),
    Address,
    Addresses,
    /// Pairs of a range and the address that leads there.
    Routes,
    Text,
}

impl Form {
    /// The value as OVN reads it, or what it should be.
    fn written(self, family: Family, value: &str) -> Result<String, &'static str> {
        let address = |text: &str| text.parse::<IpAddr>().ok().filter(|found| Family::of(*found) == family);
        let separators = |c: char| c == ',' || c == ';' || c.is_whitespace();
        let parts = || {
            value.trim_matches(['{', '}', ' ']).split(separators).filter(|part| !part.is_empty()).collect()
        };
        match self {
            Form::Number(most) => {
                let number = value.trim().parse::<u32>().ok().filter(|number| *number <= most);
                number.map(|number| number.to_string()).ok_or("a number")
            }
            Form::Address => address(value.trim()).map(|address| address.to_string()).ok_or("an address"),
            Form::Addresses => {
                let parts: Vec<&str> = parts();
                let addresses: Option<Vec<String>> =
                    parts.into_iter().map(|part| address(part).map(|address| address.to_string())).collect();
                let addresses = addresses.filter(|addresses| !addresses.is_empty());
                let addresses = addresses.ok_or("addresses with commas between them")?;
                Ok(format!("{{{}}}", addresses.join(",")))
            }
            Form::Routes => {
                let parts: Vec<&str> = parts();
                let route = |pair: &[&str]| {
                    let [range, hop] = pair else { return None };
                    let host = || range.parse::<Ipv4Addr>().ok().map(|address| Cidr::host(address.into()));
                    let range = range.parse::<Cidr>().ok().or_else(host)?;
                    let range = Some(range.network()).filter(|range| range.family() == family)?;
                    Some(format!("{range},{}", address(hop)?))
                };
                let routes: Option<Vec<String>> = parts.chunks(2).map(route).collect();
                let routes = routes.filter(|routes| !routes.is_empty());
                let routes =
                    routes.ok_or("pairs of a range and an address, with commas between all of them")?;
                Ok(format!("{{{}}}", routes.join(",")))
            }
            Form::Text => quoted(value).ok_or("a text without quotes, backslashes and control characters"),
        }
    }
}

/// Name or number; OVN's name; form.
const V4: &[(&str, &str, Form)] = &[
    ("netmask", "netmask", Form::Address),
    ("1", "netmask", Form::Address),
    ("router", "router", Form::Addresses),
    ("3", "router", Form::Addresses),
    ("time-offset", "time_offset", Form::Number(u32::MAX)),
    ("dns-server", "dns_server", Form::Addresses),
    ("6", "dns_server", Form::Addresses),
    ("log-server", "log_server", Form::Addresses),
    ("lpr-server", "lpr_server", Form::Addresses),
    ("hostname", "hostname", Form::Text),
    ("12", "hostname", Form::Text),
    ("domain-name", "domain_name", Form::Text),
    ("15", "domain_name", Form::Text),
    ("swap-server", "swap_server", Form::Address),
    ("ip-forward-enable", "ip_forward_enable", Form::Number(1)),
    ("policy-filter", "policy_filter", Form::Addresses),
    ("default-ttl", "default_ttl", Form::Number(255)),
    ("mtu", "mtu", Form::Number(65_535)),
    ("26", "mtu", Form::Number(65_535)),
    ("router-discovery", "router_discovery", Form::Number(1)),
    ("router-solicitation", "router_solicitation", Form::Address),
    ("arp-timeout", "arp_cache_timeout", Form::Number(u32::MAX)),
    ("ethernet-encap", "ethernet_encap", Form::Number(1)),
    ("tcp-ttl", "tcp_ttl", Form::Number(255)),
    ("tcp-keepalive", "tcp_keepalive_interval", Form::Number(u32::MAX)),
    ("nis-server", "nis_server", Form::Addresses),
    ("ntp-server", "ntp_server", Form::Addresses),
    ("42", "ntp_server", Form::Addresses),
    ("tftp-server", "tftp_server", Form::Text),
    ("66", "tftp_server", Form::Text),
    ("bootfile-name", "bootfile_name", Form::Text),
    ("67", "bootfile_name", Form::Text),
    ("path-prefix", "path_prefix", Form::Text),
    ("wpad", "wpad", Form::Text),
    ("252", "wpad", Form::Text),
    ("classless-static-route", "classless_static_route", Form::Routes),
    ("121", "classless_static_route", Form::Routes),
    ("server-ip-address", "tftp_server_address", Form::Addresses),
    ("tftp-server-address", "tftp_server_address", Form::Addresses),
    ("150", "tftp_server_address", Form::Addresses),
    ("domain-search", "domain_search_list", Form::Text),
    ("119", "domain_search_list", Form::Text),
    ("lease-time", "lease_time", Form::Number(u32::MAX)),
    ("T1", "T1", Form::Number(u32::MAX)),
    ("T2", "T2", Form::Number(u32::MAX)),
];

const V6: &[(&str, &str, Form)] = &[
    ("dns-server", "dns_server", Form::Addresses),
    ("23", "dns_server", Form::Addresses),
    ("domain-search", "domain_search", Form::Text),
    ("24", "domain_search", Form::Text),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_get_the_names_of_ovn() {
        let table = [
            (Family::V4, "bootfile-name", "x.0", Some(("bootfile_name", "\"x.0\""))),
            (Family::V4, "option:dns-server", "1.1.1.1;8.8.8.8", Some(("dns_server", "{1.1.1.1,8.8.8.8}"))),
            (Family::V4, "mtu", "1400", Some(("mtu", "1400"))),
            (Family::V4, "42", "10.0.0.1", Some(("ntp_server", "{10.0.0.1}"))),
            (Family::V4, "router", "10.0.0.1", Some(("router", "{10.0.0.1}"))),
            (Family::V4, "netmask", "255.255.255.0", Some(("netmask", "255.255.255.0"))),
            (
                Family::V4,
                "121",
                "{10.1.0.7/16, 10.0.0.1, 192.0.2.1,10.0.0.2}",
                Some(("classless_static_route", "{10.1.0.0/16,10.0.0.1,192.0.2.1/32,10.0.0.2}")),
            ),
            (Family::V6, "dns-server", "2001:db8::1", Some(("dns_server", "{2001:db8::1}"))),
            (Family::V6, "mtu", "1400", None),
            (Family::V4, "no-such-option", "1", None),
            (Family::V4, "dns-server", "2001:db8::1", None),
            (Family::V6, "dns-server", "1.1.1.1", None),
        ];
        for (family, name, value, expected) in table {
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(option(family, name, value), expected, "{name}");
            assert_eq!(check(family, name, value), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_is_no_value_never_gets_into_a_flow() {
        let more = "10.0.0.1); eth.dst = 02:00:00:00:00:02; outport = \"b\"; output; //";
        for (family, name, value) in [
            (Family::V4, "router", more),
            (Family::V4, "netmask", more),
            (Family::V4, "mtu", "1400); drop; //"),
            (Family::V4, "mtu", "65536"),
            (Family::V4, "ip-forward-enable", "2"),
            (Family::V4, "dns-server", more),
            (Family::V4, "dns-server", ""),
            (Family::V4, "121", "10.0.0.0/8"),
            (Family::V4, "121", "10.0.0.0/8,10.0.0.1); drop; //"),
            (Family::V4, "hostname", "a\"); drop; //"),
            (Family::V4, "hostname", "a\\"),
            (Family::V4, "hostname", "a\nb"),
        ] {
            assert_eq!(option(family, name, value), None, "{name}={value}");
            assert!(check(family, name, value).is_err(), "{name}={value}");
        }
    }
}
