use super::*;

#[test]
fn the_status() {
    let mut known = edited(|known| known.service = Some(service(&[" 10.0.0.0/8"], Some("192.0.2.0/24"))));
    let written = |known: &Known| known.look(|look| status(look, &conditions(look)));
    let found = written(&known);
    assert_eq!(found.domain, "shop.example.com");
    assert_eq!((found.available_replicas, found.observed_generation), (4, Some(3)));
    let ranges = |found: &portcullis_kube_api::ingress::IngressControllerStatus| {
        found.endpoint_publishing_strategy.clone().unwrap().load_balancer.unwrap().allowed_source_ranges
    };
    assert_eq!(ranges(&found), Some(vec!["10.0.0.0/8".to_owned()]));

    // What is refused does not show, and what counts does.
    known.controller.status = found.clone();
    known.controller.spec.domain = Some("other.example.com".to_owned());
    known.refusals = vec!["spec.domain: it cannot be changed".to_owned()];
    known.service = Some(service(&[], Some("192.0.2.0/24, 198.51.100.0/24")));
    let found = written(&known);
    assert_eq!(found.domain, "shop.example.com");
    assert_eq!(ranges(&found), Some(vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()]));
    known.service = None;
    assert_eq!(ranges(&written(&known)), None);
}

#[test]
fn who_has_a_domain() {
    let one = |name: &str, domain: Option<&str>, admitted: bool, born: &str| -> IngressController {
        let conditions = json!([{"type": "Admitted", "status": if admitted { "True" } else { "False" }}]);
        read(json!({
            "metadata": {"name": name, "namespace": "operator", "uid": name, "creationTimestamp": born},
            "spec": {"domain": domain},
            "status": {"conditions": conditions},
        }))
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let taken = "spec.domain: `a.example` conflicts with: other. IngressController operator/other serves it; choose another domain";
    let cases: Vec<(IngressController, IngressController, Option<&str>)> = vec![
        (one("me", Some("a.example"), false, late), one("other", Some("b.example"), true, early), None),
        (
            one("me", Some("a.example"), false, early),
            one("other", Some("A.example"), true, late),
            Some(taken),
        ),
        (one("me", Some("a.example"), true, late), one("other", Some("a.example"), false, early), None),
        (one("me", Some("a.example"), false, early), one("other", Some("a.example"), false, late), None),
        (
            one("me", Some("a.example"), false, late),
            one("other", Some("a.example"), false, early),
            Some(taken),
        ),
    ];
    for (mine, other, expected) in cases {
        let all = [mine.clone(), other];
        assert_eq!(admission(&mine, &all, &settings()).first().map(String::as_str), expected);
    }
    let none = one("me", None, false, early);
    assert!(admission(&none, [&none], &settings())[0].starts_with("spec.domain: a domain is required"));
    let usual = RouterSettings { default_domain: Some("apps.example.com".to_owned()), ..settings() };
    assert!(admission(&none, [&none], &usual).is_empty());
}
