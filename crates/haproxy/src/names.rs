//! Names that HAProxy takes, from names that people give.

use std::net::{IpAddr, SocketAddr};

use portcullis_core::{Family, Listener, Member};

use crate::wanted::{Balancer, BalancerId};

/// The name of a file has room for so many bytes, and ours add a few to a load balancer's.
const LONGEST: usize = 240;

/// A part of a name. Letters, digits, `-` and `.` stand for themselves, every other byte for its number, `_5f`: so no two
/// names become one, and nothing that HAProxy would read as something else gets into its file.
pub(crate) fn part(text: &str) -> String {
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' {
            part.push(char::from(byte));
        } else {
            part.push('_');
            for digit in [byte >> 4, byte & 15] {
                part.extend(char::from_digit(digit.into(), 16));
            }
        }
    }
    part
}

/// The name of a load balancer, unless it is too long.
pub(crate) fn balancer(id: &BalancerId) -> Option<String> {
    let name = format!("{}:{}", part(&id.namespace), part(&id.name));
    (!id.namespace.is_empty() && !id.name.is_empty() && name.len() <= LONGEST).then_some(name)
}

/// The name of what listens on a port, and of what sends from there.
pub(crate) fn proxy(balancer: &str, listener: &Listener) -> String {
    format!("{balancer}:{}", listener.port())
}

/// The file of the ranges of a family.
pub(crate) fn ranges(balancer: &str, family: Family) -> String {
    format!("{balancer}.{}", family_word(family))
}

/// What sockets of a family are called in the file, so that rules can be about them.
pub(crate) fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

/// Where connections for a member go. HAProxy reaches members of either family, so the first address will do.
pub(crate) fn target(member: &Member, listener: &Listener) -> SocketAddr {
    let address = member.addresses().first().copied().expect("a member has an address");
    SocketAddr::new(address, member.port(listener))
}

/// The name of a member in the file. Its address is a part of it: who has moved is somebody else, who has to pass a check
/// first, and connections to where it was end as those of who leaves.
pub(crate) fn server(member: &Member, listener: &Listener) -> String {
    let target = target(member, listener);
    format!("{}:{}:{}", part(member.name()), target.ip(), target.port())
}

/// Whether this is the name of a member, whatever port of it a listener sends to.
pub(crate) fn is_of(server: &str, member: &Member) -> bool {
    let address = member.addresses().first().copied().expect("a member has an address");
    let known = server.rsplit_once(':').and_then(|(rest, _)| rest.split_once(':'));
    known.is_some_and(|(name, place)| {
        name == part(member.name()) && place.parse::<IpAddr>().is_ok_and(|place| place == address)
    })
}

/// The name of the load balancer that a proxy is, or was, of.
pub(crate) fn balancer_of(proxy: &str) -> &str {
    proxy.rsplit_once(':').map_or(proxy, |(balancer, _)| balancer)
}

/// Between which two names those of all proxies are that a load balancer has, or had.
pub(crate) fn proxies_between(balancer: &str) -> (String, String) {
    // A name has no other colon; this is the character after it.
    (format!("{balancer}:"), format!("{balancer};"))
}

/// Names of a load balancer's proxies, by listener.
pub(crate) fn proxies(of: &Balancer) -> Vec<(String, &Listener)> {
    let Some(balancer) = balancer(&of.id) else { return Vec::new() };
    of.load_balancer.listeners().iter().map(|listener| (proxy(&balancer, listener), listener)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_into_the_file_that_is_not_a_name() {
        for (text, expected) in [
            ("shop", "shop"),
            ("web-1.example", "web-1.example"),
            ("a_b", "a_5fb"),
            ("a b\n", "a_20b_0a"),
            ("a:b", "a_3ab"),
            ("\"'\\#/", "_22_27_5c_23_2f"),
            ("é", "_c3_a9"),
        ] {
            assert_eq!(part(text), expected);
        }
    }

    #[test]
    fn a_member_is_known_by_name_and_address_at_any_port() {
        let member =
            |name: &str, address: &str| Member::new(name, [address.parse::<IpAddr>().unwrap()]).unwrap();
        for (server, name, address, is_of_it) in [
            ("a:10.0.0.1:6443", "a", "10.0.0.1", true),
            ("a:10.0.0.1:80", "a", "10.0.0.1", true),
            ("a:10.0.0.2:80", "a", "10.0.0.1", false),
            ("b:10.0.0.1:80", "a", "10.0.0.1", false),
            ("a_5f1:fd00::2:5:6443", "a_1", "fd00::2:5", true),
            ("a_5f1:fd00::2:5:6443", "a_1", "fd00::2", false),
            ("", "a", "10.0.0.1", false),
        ] {
            assert_eq!(is_of(server, &member(name, address)), is_of_it, "{server} {name} {address}");
        }
        let listener = Listener::new(80, portcullis_core::ListenerProtocol::Tcp, 8080).unwrap();
        let one = member("a_1", "fd00::2:5");
        assert!(is_of(&server(&one, &listener), &one));
    }

    #[test]
    fn a_proxy_tells_whose_it_is() {
        let (from, to) = proxies_between("shop:web");
        for (proxy, is_its) in [
            ("shop:web:80", true),
            ("shop:web:6443", true),
            ("shop:web-1:80", false),
            ("shop:we:80", false),
            ("shop:webb:80", false),
        ] {
            assert_eq!(balancer_of(proxy) == "shop:web", is_its, "{proxy}");
            assert_eq!((from.as_str()..to.as_str()).contains(&proxy), is_its, "{proxy}");
        }
    }

    #[test]
    fn what_is_too_long_has_no_name() {
        assert_eq!(balancer(&BalancerId::new("shop", "web")).as_deref(), Some("shop:web"));
        assert_eq!(balancer(&BalancerId::new("a:b", "c")).as_deref(), Some("a_3ab:c"));
        assert_eq!(balancer(&BalancerId::new("shop", "w".repeat(235))).map(|name| name.len()), Some(240));
        for (namespace, name) in [("shop", "w".repeat(236)), ("", "web".to_owned()), ("shop", String::new())]
        {
            assert_eq!(balancer(&BalancerId::new(namespace, name)), None);
        }
    }
}
