use super::*;

#[test]
fn who_enforces() {
    let proxy = |families: Value, ports: Value, ranges: &[&str]| {
        edited(|known| {
            let mut found = service(ranges, None);
            let spec = found.spec.as_mut().unwrap();
            spec.ip_families = read(families);
            spec.ports = read(ports);
            known.service = Some(found);
            known.controller = controller("LoadBalancerService", ranges);
            known.enforcer = Enforcer::KubeProxy;
        })
    };
    let closed = json!([{"port": 80}]);
    let open = json!([{"port": 80, "nodePort": 30080}]);
    let by = |enforcer: Enforcer, annotation: Option<&str>| {
        edited(|known| {
            known.service = Some(service(&[], Some(annotation.unwrap_or("192.0.2.0/24"))));
            known.enforcer = enforcer;
        })
    };
    let everywhere = || Enforcer::Everywhere("Portcullis on AWS".to_owned());
    let cases: Vec<(Known, ConditionStatus, &str)> = vec![
        (by(everywhere(), None), ConditionStatus::True, "Enforced"),
        (by(everywhere(), Some("192.0.2.0/24,x")), ConditionStatus::False, "Unreadable"),
        (by(Enforcer::Ignored("ovn-kubernetes".to_owned()), None), ConditionStatus::False, "Ignored"),
        (by(Enforcer::Unknown, None), ConditionStatus::Unknown, "NotKnown"),
        (proxy(json!(["IPv4"]), closed.clone(), &["192.0.2.0/24"]), ConditionStatus::True, "Enforced"),
        (proxy(json!(["IPv4"]), open, &["192.0.2.0/24"]), ConditionStatus::False, "NodePortsOpen"),
        (
            proxy(json!(["IPv4", "IPv6"]), closed.clone(), &["192.0.2.0/24"]),
            ConditionStatus::False,
            "FamilyOpen",
        ),
        (
            proxy(json!(["IPv4", "IPv6"]), closed, &["192.0.2.0/24", "2001:db8::/32"]),
            ConditionStatus::True,
            "Enforced",
        ),
    ];
    for (known, status, reason) in cases {
        let found = known.find("SourceRangesEnforced");
        assert_eq!((found.status, found.reason.as_str()), (status, reason), "{}", found.message);
    }
}
