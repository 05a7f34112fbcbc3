//! How owners say what they want: a Service by annotations, an AWSNLB by its fields. Whoever is told of something is told in the
//! words that they wrote.

use portcullis_core::Owner;

use super::asked::PREFIX;

/// The kind that says it by fields.
const BY_FIELDS: &str = "AWSNLB";

/// What annotations are as fields. For the rest there is none, and nobody can say it.
const FIELDS: [(&str, &str); 15] = [
    ("scheme", "spec.scheme"),
    ("name", "spec.name"),
    ("ip-address-type", "spec.ipAddressType"),
    ("subnets", "spec.subnets"),
    ("eip-allocations", "spec.elasticAddresses"),
    ("security-groups", "spec.securityGroups"),
    ("cross-zone-load-balancing-enabled", "spec.crossZone"),
    ("additional-resource-tags", "spec.tags"),
    ("attributes", "spec.attributes"),
    ("nlb-target-type", "spec.targetType"),
    ("target-group-attributes", "spec.preserveClientIP"),
    ("healthcheck-protocol", "the health check of the LoadBalancer"),
    ("healthcheck-port", "the port of the health check of the LoadBalancer"),
    ("healthcheck-interval", "the interval of the health check of the LoadBalancer"),
    ("healthcheck-timeout", "the timeout of the health check of the LoadBalancer"),
];

fn field(owner: &Owner, key: &str) -> Option<&'static str> {
    let fields = FIELDS.iter().filter(|_| owner.kind() == BY_FIELDS);
    fields.clone().find(|(annotation, _)| *annotation == key).map(|(_, field)| *field)
}

/// What an owner writes to say something.
pub(super) fn key(owner: &Owner, key: &str) -> String {
    field(owner, key).map_or_else(|| format!("{PREFIX}{key}"), str::to_owned)
}

/// The same in a sentence.
pub(super) fn said(owner: &Owner, key: &str) -> String {
    field(owner, key).map_or_else(|| format!("annotation {PREFIX}{key}"), str::to_owned)
}

/// How targets are made to see who connects.
pub(super) fn seeing_clients(owner: &Owner) -> String {
    let key = key(owner, "target-group-attributes");
    if owner.kind() == BY_FIELDS {
        format!("{key}: true")
    } else {
        format!("{key}: preserve_client_ip.enabled=true")
    }
}

/// How to come to another load balancer, where this one cannot be changed.
pub(super) fn another(owner: &Owner) -> &'static str {
    if owner.kind() == BY_FIELDS {
        "make another AWSNLB and have the LoadBalancer use that"
    } else {
        "delete the Service and make it again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_in_its_own_words() {
        let owner = |kind: &str| Owner::new("demo", kind, Some("a".to_owned()), "b").unwrap();
        let (service, nlb) = (owner("Service"), owner("AWSNLB"));
        assert_eq!(key(&service, "name"), "service.beta.kubernetes.io/aws-load-balancer-name");
        assert_eq!(said(&service, "name"), "annotation service.beta.kubernetes.io/aws-load-balancer-name");
        assert_eq!((key(&nlb, "name"), said(&nlb, "name")), ("spec.name".to_owned(), "spec.name".to_owned()));
        assert_eq!(seeing_clients(&nlb), "spec.preserveClientIP: true");
        assert!(another(&nlb).contains("AWSNLB") && another(&service).contains("Service"));
    }
}
