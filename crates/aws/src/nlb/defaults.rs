//! What AWS sets where nobody says anything.

use crate::model::Attributes;

use super::asked::TargetKind;

/// The rules of TLS where a Service names none.
pub(super) const TLS_POLICY: &str = "ELBSecurityPolicy-TLS13-1-2-2021-06";

/// Of a load balancer.
pub(super) fn of_balancer() -> Attributes {
    owned(&[
        ("access_logs.s3.enabled", "false"),
        ("dns_record.client_routing_policy", "any_availability_zone"),
        ("load_balancing.cross_zone.enabled", "false"),
        ("zonal_shift.config.enabled", "false"),
    ])
}

/// Of a target group.
pub(super) fn of_pool(protocol: &str, kind: TargetKind) -> Attributes {
    let truth = |truth: bool| if truth { "true" } else { "false" };
    let udp = protocol == "UDP" || protocol == "TCP_UDP";
    // By an address, TCP comes from the load balancer itself unless told otherwise.
    let preserve = truth(kind == TargetKind::Instance || udp);
    owned(&[
        ("deregistration_delay.connection_termination.enabled", truth(udp)),
        ("deregistration_delay.timeout_seconds", "300"),
        ("load_balancing.cross_zone.enabled", "use_load_balancer_configuration"),
        ("preserve_client_ip.enabled", preserve),
        ("proxy_protocol_v2.enabled", "false"),
        ("stickiness.enabled", "false"),
        ("target_health_state.unhealthy.connection_termination.enabled", truth(!udp)),
    ])
}

fn owned(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What has to be set so that it is as wanted, and what nobody wants is as usual.
pub(super) fn changed(known: &Attributes, wanted: &Attributes, usual: &Attributes) -> Attributes {
    let mut changed = Attributes::new();
    for (key, usual) in usual {
        let found = known.get(key).unwrap_or(usual);
        let wanted = wanted.get(key).unwrap_or(usual);
        if found != wanted {
            changed.insert(key.clone(), wanted.clone());
        }
    }
    for (key, value) in wanted {
        if !usual.contains_key(key) && known.get(key) != Some(value) {
            changed.insert(key.clone(), value.clone());
        }
    }
    changed
}
