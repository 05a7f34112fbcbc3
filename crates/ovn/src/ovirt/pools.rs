//! Which addresses of a subnet may be given away.

use std::net::IpAddr;

use portcullis_core::{Cidr, Family};

use crate::objects::Pool;

/// All addresses for hosts but those that are kept.
pub(super) fn pools(cidr: Cidr, kept: &[Pool]) -> Vec<Pool> {
    let first = number(cidr.network().addr());
    let size = u32::from(cidr.family().bits() - cidr.prefix_len());
    let last = first | 1u128.checked_shl(size).map_or(u128::MAX, |count| count - 1);
    let (first, last) = match (cidr.family(), last - first) {
        // Of two addresses both are used, of one the one.
        (_, 0 | 1) => (first, last),
        (Family::V4, _) => (first + 1, last - 1),
        (Family::V6, _) => (first + 1, last),
    };
    let same = kept.iter().filter(|pool| Family::of(pool.start) == cidr.family());
    let mut kept: Vec<(u128, u128)> =
        same.map(|pool| (number(pool.start), number(pool.end))).filter(|(start, end)| start <= end).collect();
    kept.sort_unstable();
    let mut pools = Vec::new();
    let mut next = Some(first);
    for (start, end) in kept {
        if let Some(free) = next.filter(|free| *free < start && *free <= last) {
            pools.push((free, last.min(start - 1)));
        }
        next = next.and_then(|free| Some(free.max(end.checked_add(1)?)));
    }
    pools.extend(next.filter(|free| *free <= last).map(|free| (free, last)));
    let pool = |(start, end)| {
        Some(Pool { start: address(cidr.family(), start)?, end: address(cidr.family(), end)? })
    };
    pools.into_iter().filter_map(pool).collect()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
        Family::V6 => Some(IpAddr::V6(number.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_left_out() {
        for (cidr, kept, expected) in [
            ("10.0.0.0/24", "", "10.0.0.1-10.0.0.254"),
            ("10.0.0.0/24", "10.0.0.1", "10.0.0.2-10.0.0.254"),
            ("10.0.0.0/24", "10.0.0.254 10.0.0.10-10.0.0.20", "10.0.0.1-10.0.0.9 10.0.0.21-10.0.0.253"),
            ("10.0.0.0/24", "10.0.0.5-10.0.0.9 10.0.0.7", "10.0.0.1-10.0.0.4 10.0.0.10-10.0.0.254"),
            ("10.0.0.0/24", "10.0.1.1 9.0.0.1", "10.0.0.1-10.0.0.254"),
            ("10.0.0.0/31", "", "10.0.0.0-10.0.0.1"),
            ("10.0.0.4/30", "10.0.0.0-10.0.0.255", ""),
            ("fd00::/126", "fd00::1", "fd00::2-fd00::3"),
            ("::/0", "", "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let kept: Vec<Pool> = kept
                .split_whitespace()
                .map(|text| {
                    let (start, end) = text.split_once('-').unwrap_or((text, text));
                    Pool { start: start.parse().unwrap(), end: end.parse().unwrap() }
                })
                .collect();
            let pools = pools(cidr.parse().unwrap(), &kept);
            let text: Vec<String> = pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect();
            assert_eq!(text.join(" "), expected, "{cidr}");
        }
    }
}
