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
    let edited_proxy = |edit: &dyn Fn(&mut Service)| {
        let mut known = proxy(json!(["IPv4"]), json!([{"port": 80}]), &["192.0.2.0/24"]);
        edit(known.service.as_mut().unwrap());
        known
    };
    let external = |service: &mut Service| {
        service.spec.as_mut().unwrap().external_ips = Some(vec!["198.51.100.1".to_owned()]);
    };
    let mode = |mode: &'static str| {
        move |service: &mut Service| {
            service.status =
                read(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": mode}]}}));
        }
    };
    let told = |status: &'static str, message: &'static str| {
        move |service: &mut Service| {
            let condition = json!({
                "type": "portcullis.dev/SourceRangesEnforced",
                "status": status,
                "reason": "Said",
                "message": message,
                "lastTransitionTime": NOW,
            });
            service.status = read(json!({"conditions": [condition]}));
        }
    };
    let about = "Groups let in 192.0.2.0/24, and nobody else.";
    let mut refused = edited_proxy(&told("True", "Groups let in 10.0.0.0/8, and nobody else."));
    refused.sync_failure = Some("there is no room for its rules.");
    assert!(refused.find("SourceRangesEnforced").message.contains("told last: there is no room"));
    let cases = cases.into_iter().chain(vec![
        (edited_proxy(&external), ConditionStatus::False, "ExternalAddressesOpen"),
        (edited_proxy(&mode("VIP")), ConditionStatus::True, "Enforced"),
        (edited_proxy(&mode("Proxy")), ConditionStatus::Unknown, "NoAddress"),
        // What a provider says comes first, if it is about the ranges that are there.
        (edited_proxy(&told("True", about)), ConditionStatus::True, "Enforced"),
        (edited_proxy(&told("False", "Others decide.")), ConditionStatus::False, "NotEnforced"),
        (refused, ConditionStatus::Unknown, "NotAppliedYet"),
    ]);
    for (known, status, reason) in cases {
        let found = known.find("SourceRangesEnforced");
        assert_eq!((found.status, found.reason.as_str()), (status, reason), "{}", found.message);
    }
}

/// kube-proxy reads the field alone, and only sees traffic of addresses that are its own; without a load balancer nobody reads.
#[test]
fn what_nobody_reads_is_not_called_enforced() {
    let proxied = |edit: &dyn Fn(&mut Service), ranges: &[&str]| {
        edited(|known| {
            let mut found = service(&["192.0.2.0/24"], None);
            edit(&mut found);
            known.service = Some(found);
            known.controller = controller("LoadBalancerService", ranges);
            known.enforcer = Enforcer::KubeProxy;
        })
    };
    let at = |addresses: Value| {
        let edit = |service: &mut Service| {
            service.status = read(json!({"loadBalancer": {"ingress": addresses}}));
        };
        proxied(&edit, &["192.0.2.0/24"])
    };
    let annotated = |service: &mut Service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(SOURCE_RANGES.to_owned(), "192.0.2.0/24".to_owned());
        service.spec.as_mut().unwrap().load_balancer_source_ranges = None;
    };
    let unbalanced = |type_: &str| edited(|known| known.controller = controller(type_, &["192.0.2.0/24"]));
    let cases: Vec<(Known, ConditionStatus, &str)> = vec![
        (proxied(&annotated, &[]), ConditionStatus::False, "Ignored"),
        (at(json!([])), ConditionStatus::Unknown, "NoAddress"),
        (at(json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}])), ConditionStatus::True, "Enforced"),
        // One that it sees does not vouch for others.
        (
            at(json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "ipMode": "Proxy"}])),
            ConditionStatus::Unknown,
            "NotKnown",
        ),
        (
            at(json!([{"ip": "192.0.2.1"}, {"hostname": "a.example.com"}])),
            ConditionStatus::Unknown,
            "NotKnown",
        ),
        (unbalanced("HostNetwork"), ConditionStatus::False, "NotApplied"),
        (unbalanced("NodePortService"), ConditionStatus::False, "NotApplied"),
        (unbalanced("Private"), ConditionStatus::False, "NotApplied"),
    ];
    for (known, status, reason) in cases {
        let found = known.find("SourceRangesEnforced");
        assert_eq!((found.status, found.reason.as_str()), (status, reason), "{}", found.message);
    }
}
