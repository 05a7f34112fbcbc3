use std::time::{Duration, Instant};

use super::{VERSION_EC2, group, start};
use crate::{End, Fault, Limit, RateLimits};

const NEW: [(&str, &str); 3] = [("GroupName", "g"), ("GroupDescription", "d"), ("VpcId", "vpc-1")];

#[test]
fn calls_go_wrong_as_wanted() {
    let (fake, caller) = start(|_| {});
    let create = || caller.call("ec2", VERSION_EC2, "CreateSecurityGroup", &NEW);
    let made = || fake.state().groups.values().any(|group| group.name == "g");
    for (fault, status, code) in [
        (Fault::Throttle, 503, "RequestLimitExceeded"),
        (Fault::InternalError, 500, "InternalError"),
        (Fault::Error("Odd".into(), 418), 418, "Odd"),
    ] {
        fake.faults(move |call| if call.parameter("GroupName") == "g" { fault.clone() } else { Fault::None });
        let found = create().unwrap();
        assert_eq!((found.status, found.code().as_str()), (status, code));
        assert!(!made());
    }
    fake.faults(|_| Fault::Throttle);
    let found = caller.elb("DescribeLoadBalancers", &[]);
    assert_eq!((found.status, found.code().as_str()), (400, "Throttling"));
    fake.faults(|_| Fault::DropBefore);
    assert!(create().is_none());
    assert!(!made());
    fake.faults(|_| Fault::DropAfter);
    assert!(create().is_none());
    assert!(made());
    fake.faults(|_| Fault::Latency(Duration::from_millis(50)));
    let start = Instant::now();
    assert_eq!(create().unwrap().code(), "InvalidGroup.Duplicate");
    assert!(start.elapsed() >= Duration::from_millis(50));

    let ends: Vec<End> = fake.calls().into_iter().map(|logged| logged.end).collect();
    let refused = |code: &str| End::Refused(code.to_owned());
    assert_eq!(
        ends,
        [
            refused("RequestLimitExceeded"),
            refused("InternalError"),
            refused("Odd"),
            refused("Throttling"),
            End::Lost,
            End::DoneUnheard,
            refused("InvalidGroup.Duplicate")
        ]
    );
    assert_eq!((fake.counts()["CreateSecurityGroup"], fake.mutating_calls()), (6, 6));
    fake.clear_calls();
    fake.clear_faults();
    caller.ec2("DescribeVpcs", &[]).ok();
    let calls = fake.calls();
    assert_eq!((calls.len(), calls[0].call.number, calls[0].call.mutating), (1, 8, false));
}

#[test]
fn a_frozen_fake_does_nothing() {
    let (fake, caller) = start(|_| {});
    fake.freeze();
    assert!(caller.call("ec2", VERSION_EC2, "CreateSecurityGroup", &NEW).is_none());
    assert!(fake.calls().is_empty());
    fake.thaw();
    group(&caller, "g");
}

#[test]
fn what_is_told_is_old() {
    let staleness = Duration::from_secs(30);
    let (fake, caller) = start(|config| config.staleness = staleness);
    let id = group(&caller, "g");
    let told =
        || caller.ec2("DescribeSecurityGroups", &[("Filter.1.Name", "group-id"), ("Filter.1.Value.1", &id)]);
    assert!(told().ok().texts("groupId").is_empty());
    assert_eq!(caller.ec2("DescribeSecurityGroups", &[("GroupId.1", &id)]).code(), "InvalidGroup.NotFound");
    // What changes knows what is.
    caller.ec2("CreateTags", &[("ResourceId.1", &id), ("Tag.1.Key", "k")]).ok();
    fake.pass(staleness);
    assert_eq!(told().ok().texts("groupId"), [id.as_str()]);
    caller.ec2("DeleteSecurityGroup", &[("GroupId", &id)]).ok();
    assert_eq!(told().ok().texts("groupId"), [id.as_str()]);
    fake.pass(staleness);
    assert!(told().ok().texts("groupId").is_empty());
}

#[test]
fn too_many_calls_are_refused() {
    let (fake, caller) = start(|config| {
        let mut limits = RateLimits::published();
        limits.own.insert("DescribeVpcs".to_owned(), Limit { burst: 2.0, rate: 0.001 });
        config.rate_limits = Some(limits);
    });
    caller.ec2("DescribeVpcs", &[]).ok();
    caller.ec2("DescribeVpcs", &[]).ok();
    let found = caller.ec2("DescribeVpcs", &[]);
    assert_eq!((found.status, found.code().as_str()), (503, "RequestLimitExceeded"));
    caller.ec2("DescribeSubnets", &[]).ok();
    fake.pass(Duration::from_secs(1001));
    caller.ec2("DescribeVpcs", &[]).ok();
}

#[test]
fn somebody_else_was_here() {
    let (fake, caller) = start(|_| {});
    let id = group(&caller, "g");
    fake.act_as_someone_else(|world| {
        world.group("g").unwrap().tags.insert("k".to_owned(), "v".to_owned());
        world.groups.remove("sg-other");
    });
    let found = caller.ec2("DescribeSecurityGroups", &[("GroupId.1", &id)]).ok();
    assert_eq!(found.text("tagSet"), "<item><key>k</key><value>v</value></item>");
    assert_eq!(
        caller.ec2("DescribeSecurityGroups", &[("GroupId.1", "sg-other")]).code(),
        "InvalidGroup.NotFound"
    );
}

#[tokio::test]
async fn it_needs_no_runtime_and_minds_none() {
    let (fake, caller) = start(|_| {});
    tokio::task::spawn_blocking(move || caller.ec2("DescribeVpcs", &[]).ok()).await.unwrap();
    drop(fake);
}
