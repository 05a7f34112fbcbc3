//! Names of what is made. None of them can be that of another owner's.

use portcullis_core::{Owner, placeholder};

use super::spec::Backend;
use super::spec::Spec;

/// What stands on the groups of load balancers, whichever controller made them.
pub(super) const GROUP_DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";

/// The name of an owner's security group, as the AWS Load Balancer Controller forms it.
pub(super) fn security_group(owner: &Owner, uid: &str) -> String {
    if uid.is_empty() {
        return shaped(owner, &placeholder("after creation"));
    }
    let namespace = owner.namespace().unwrap_or_default();
    shaped(owner, &hash(&[owner.cluster(), owner.name(), namespace, uid])[..10])
}

/// The name of a further group, for the rules that do not fit into the first; from 2 on.
pub(super) fn further_security_group(first: &str, number: usize) -> String {
    format!("{first}-{number}")
}

/// The name of the group that all load balancers of a cluster have.
pub(super) fn backend_group(cluster: &str) -> String {
    let hash = hash(&["portcullis", "backend", cluster]);
    format!("k8s-backend-{:.16}-{hash:.10}", plain(cluster))
}

/// The name of an owner's load balancer. It does not depend on a UID: whoever comes back finds it again.
pub(super) fn load_balancer(owner: &Owner) -> String {
    let namespace = owner.namespace().unwrap_or_default();
    shaped(owner, &hash(&["portcullis", owner.cluster(), owner.kind(), namespace, owner.name()])[..10])
}

/// The name of the target group of a listener. What cannot be changed in place is part of it.
pub(super) fn target_group(spec: &Spec, port: u16, backend: &Backend) -> String {
    let owner = &spec.owner;
    // Before a Service is made its node ports are not known, either.
    if spec.uid.is_empty() {
        return shaped(owner, &placeholder(&port.to_string()));
    }
    let namespace = owner.namespace().unwrap_or_default();
    let (port, to) = (port.to_string(), backend.port.to_string());
    let parts = [
        "portcullis",
        owner.cluster(),
        owner.kind(),
        namespace,
        owner.name(),
        port.as_str(),
        backend.protocol,
        to.as_str(),
        spec.target_kind.as_str(),
        backend.ip_address_type,
    ];
    // Between the parts stands what is in none of them, so that no two lists of parts are the same text.
    shaped(owner, &hash(&[&parts.join("/")])[..10])
}

fn shaped(owner: &Owner, hash: &str) -> String {
    format!("{}{hash}", shape(owner))
}

/// What names for an owner start with, also those of other controllers.
pub(super) fn shape(owner: &Owner) -> String {
    let namespace = plain(owner.namespace().unwrap_or(owner.kind()));
    format!("k8s-{namespace:.8}-{:.8}-", plain(owner.name()))
}

/// Only what AWS allows in names.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn hash(parts: &[&str]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parts.concat().as_bytes());
    // Names take ten digits of it.
    let number = digest.as_ref().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(cluster: &str, namespace: &str, name: &str) -> Owner {
        Owner::new(cluster, "Service", Some(namespace.to_owned()), name).unwrap()
    }

    #[test]
    fn groups_are_called_as_others_call_them() {
        let uid = "12345678-1234-1234-1234-123456789abc";
        let group = security_group(&owner("test-cluster", "default", "my-service"), uid);
        assert_eq!(group, "k8s-default-myservic-b7cb8b02f0");
        assert_eq!(security_group(&owner("c", "b", "a"), "x"), "k8s-b-a-7a83d4e37a");
        assert_eq!(further_security_group(&group, 2), "k8s-default-myservic-b7cb8b02f0-2");
    }

    #[test]
    fn names_fit_and_are_of_one_owner_each() {
        let long = owner("c", &"n".repeat(63), &"s".repeat(63));
        assert_eq!(load_balancer(&long).len(), 32);
        assert_ne!(load_balancer(&owner("c", "a", "b")), load_balancer(&owner("d", "a", "b")));
        assert_ne!(load_balancer(&owner("c", "ab", "c")), load_balancer(&owner("c", "a", "bc")));
        assert!(backend_group(&"c".repeat(100)).len() <= 255);
    }
}
