//! Plans against a record of AWS.

use portcullis_aws::{Provider, Record, RecordError, Recorded};
use portcullis_core::{Outcome, Provider as _, Want};

use crate::scene::{Service, account, fake, gone};

const NODES: [&str; 3] = ["aws:///zone/i-1", "aws:///zone/i-2", "aws:///zone/i-gone"];

/// What is recorded, by way of its text.
async fn record(provider: &Provider) -> Record {
    let record = Record::take(provider, NODES.into_iter()).await.unwrap();
    Record::read(&record.write()).unwrap()
}

#[tokio::test]
async fn a_plan_against_a_record_is_the_plan_against_aws() {
    let fake = fake(|_| ());
    let two_ports = Service {
        ports: vec![(80, 30080), (443, 30443)],
        ranges: Some(vec!["10.0.0.0/8"]),
        ..Service::default()
    };
    let first = account(&fake).provider("Managed");
    assert_eq!(first.sync(&two_ports.want("web")).await.outcome, Outcome::Done);
    assert_eq!(first.sync(&Service::default().want("other")).await.outcome, Outcome::Done);

    let annotated = |key, value| Service { annotations: vec![(key, value)], ..two_ports.clone() };
    let wants: Vec<(&str, Want)> = vec![
        ("nothing to change", two_ports.want("web")),
        ("new", Service { ranges: Some(vec!["203.0.113.0/24"]), ..Service::default() }.want("new")),
        ("other ranges", Service { ranges: Some(vec!["192.0.2.0/24"]), ..two_ports.clone() }.want("web")),
        ("one port less", Service { ports: vec![(443, 30443)], ..two_ports.clone() }.want("web")),
        ("another node port", Service { ports: vec![(443, 30444)], ..two_ports.clone() }.want("web")),
        (
            "a machine that is not there",
            Service { nodes: vec!["i-1", "i-gone"], ..two_ports.clone() }.want("web"),
        ),
        ("group by id", annotated("security-groups", "sg-user").want("web")),
        ("group by name", annotated("security-groups", "user").want("new")),
        ("group that is not there", annotated("security-groups", "sg-none").want("web")),
        ("subnet that is not there", annotated("subnets", "subnet-none").want("new")),
        ("attributes", annotated("attributes", "load_balancing.cross_zone.enabled=true").want("web")),
        (
            "target attributes",
            annotated("target-group-attributes", "proxy_protocol_v2.enabled=true").want("web"),
        ),
        ("tags", annotated("additional-resource-tags", "team=shop").want("web")),
        ("gone", gone("web")),
        ("was never there", gone("none")),
    ];
    let provider = account(&fake).provider("Managed");
    let recorded = Recorded::new(record(&provider).await, provider.settings().clone()).unwrap();
    let mut refused = Vec::new();
    for (case, want) in wants {
        // Each time one that knows nothing yet, as a command does.
        let live = account(&fake).provider("Managed").preview(&want).await;
        fake.clear_calls();
        let plan = recorded.plan(&want);
        assert!(fake.calls().is_empty(), "{case}: {:?}", fake.calls());
        assert_eq!(plan, live, "{case}");
        let (Ok(plan), Ok(live)) = (plan, live) else {
            refused.push(case);
            continue;
        };
        assert_eq!(plan.to_string(), live.to_string(), "{case}");
        assert_eq!(serde_json::to_value(plan).unwrap(), serde_json::to_value(live).unwrap(), "{case}");
    }
    assert_eq!(refused, ["group that is not there", "subnet that is not there"]);
}

#[tokio::test]
async fn a_record_of_before_knows_nothing_of_what_came_after() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let before = Recorded::new(record(&provider).await, provider.settings().clone()).unwrap();
    let plan = before.plan(&Service::default().want("web")).unwrap();
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(before.plan(&Service::default().want("web")), Ok(plan));

    let service = Service { nodes: vec!["i-1", "i-3", "i-4"], ..Service::default() };
    let told = before.plan(&service.want("web")).unwrap_err();
    assert!(told.what.contains("does not have machine i-3 and 1 more"), "{told}");
    assert!(told.remedy.contains("portcullis plan --record"), "{told}");
}

#[tokio::test]
async fn a_record_of_elsewhere_is_refused() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let record = record(&provider).await;
    for (what, change) in [
        (
            "cluster",
            (|settings| settings.cluster = "another".to_owned()) as fn(&mut portcullis_aws::Settings),
        ),
        ("VPC", |settings| settings.vpc = "vpc-2".to_owned()),
        ("region", |settings| settings.region = "eu-west-1".to_owned()),
    ] {
        let mut settings = provider.settings().clone();
        change(&mut settings);
        let error = Recorded::new(record.clone(), settings).unwrap_err();
        assert!(matches!(error, RecordError::Elsewhere { what: found, .. } if found == what), "{error}");
    }
}
