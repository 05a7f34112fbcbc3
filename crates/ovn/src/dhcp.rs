//! Options of DHCP, as people name them and as OVN does.

use portcullis_core::Family;

/// OVN's name and value for an option that was asked for, by the name that dnsmasq or OVN has for it or by its number.
/// `None` for what OVN cannot send.
pub fn option(family: Family, name: &str, value: &str) -> Option<(String, String)> {
    let names: &[(&str, &str, Form)] = match family {
        Family::V4 => V4,
        Family::V6 => V6,
    };
    let wanted = name.strip_prefix("option:").unwrap_or(name).replace('_', "-");
    let (_, ovn, form) =
        names.iter().find(|(known, ovn, _)| *known == wanted || ovn.replace('_', "-") == wanted)?;
    let value = match form {
        Form::Plain => value.to_owned(),
        Form::Text => format!("\"{}\"", value.replace(['"', '\\'], "")),
        Form::List => format!("{{{}}}", value.trim_matches(['{', '}']).replace(';', ",")),
    };
    Some(((*ovn).to_owned(), value))
}

#[derive(Clone, Copy)]
enum Form {
    /// An address or a number.
    Plain,
    /// Between quotes.
    Text,
    /// Several addresses.
    List,
}

/// Name or number; OVN's name; form.
const V4: &[(&str, &str, Form)] = &[
    ("netmask", "netmask", Form::Plain),
    ("1", "netmask", Form::Plain),
    ("router", "router", Form::Plain),
    ("3", "router", Form::Plain),
    ("time-offset", "time_offset", Form::Plain),
    ("dns-server", "dns_server", Form::List),
    ("6", "dns_server", Form::List),
    ("log-server", "log_server", Form::List),
    ("lpr-server", "lpr_server", Form::List),
    ("hostname", "hostname", Form::Text),
    ("12", "hostname", Form::Text),
    ("domain-name", "domain_name", Form::Text),
    ("15", "domain_name", Form::Text),
    ("swap-server", "swap_server", Form::Plain),
    ("ip-forward-enable", "ip_forward_enable", Form::Plain),
    ("policy-filter", "policy_filter", Form::List),
    ("default-ttl", "default_ttl", Form::Plain),
    ("mtu", "mtu", Form::Plain),
    ("26", "mtu", Form::Plain),
    ("router-discovery", "router_discovery", Form::Plain),
    ("router-solicitation", "router_solicitation", Form::Plain),
    ("arp-timeout", "arp_cache_timeout", Form::Plain),
    ("ethernet-encap", "ethernet_encap", Form::Plain),
    ("tcp-ttl", "tcp_ttl", Form::Plain),
    ("tcp-keepalive", "tcp_keepalive_interval", Form::Plain),
    ("nis-server", "nis_server", Form::List),
    ("ntp-server", "ntp_server", Form::List),
    ("42", "ntp_server", Form::List),
    ("tftp-server", "tftp_server", Form::Text),
    ("66", "tftp_server", Form::Text),
    ("bootfile-name", "bootfile_name", Form::Text),
    ("67", "bootfile_name", Form::Text),
    ("path-prefix", "path_prefix", Form::Text),
    ("wpad", "wpad", Form::Text),
    ("252", "wpad", Form::Text),
    ("classless-static-route", "classless_static_route", Form::List),
    ("121", "classless_static_route", Form::List),
    ("server-ip-address", "tftp_server_address", Form::List),
    ("tftp-server-address", "tftp_server_address", Form::List),
    ("150", "tftp_server_address", Form::List),
    ("domain-search", "domain_search_list", Form::Text),
    ("119", "domain_search_list", Form::Text),
    ("lease-time", "lease_time", Form::Plain),
    ("T1", "T1", Form::Plain),
    ("T2", "T2", Form::Plain),
];

const V6: &[(&str, &str, Form)] = &[
    ("dns-server", "dns_server", Form::List),
    ("23", "dns_server", Form::List),
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
            (Family::V6, "dns-server", "2001:db8::1", Some(("dns_server", "{2001:db8::1}"))),
            (Family::V6, "mtu", "1400", None),
            (Family::V4, "no-such-option", "1", None),
        ];
        for (family, name, value, expected) in table {
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(option(family, name, value), expected, "{name}");
        }
    }
}
