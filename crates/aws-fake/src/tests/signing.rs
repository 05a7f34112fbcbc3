use super::caller::Caller;
use super::{VERSION_ELB, start};
use crate::Credentials;

#[test]
fn who_may_not_call_is_refused() {
    let (fake, caller) = start(|_| {});
    let mut stranger = caller.clone();
    stranger.credentials.key = "AKIASOMEBODYELSE".to_owned();
    let mut liar = caller.clone();
    liar.credentials.secret = "guessed".to_owned();
    let mut late = caller.clone();
    late.late = 400;
    let mut lost = caller.clone();
    lost.region = "us-west-2".to_owned();
    let mut tokened = caller.clone();
    tokened.token = Some("t".to_owned());
    for (who, ec2, elb) in [
        (&caller, (200, ""), (200, "")),
        (&stranger, (401, "AuthFailure"), (403, "InvalidClientTokenId")),
        (&liar, (401, "AuthFailure"), (403, "SignatureDoesNotMatch")),
        (&late, (400, "RequestExpired"), (403, "SignatureDoesNotMatch")),
        (&lost, (401, "AuthFailure"), (403, "SignatureDoesNotMatch")),
        (&tokened, (401, "AuthFailure"), (403, "InvalidClientTokenId")),
    ] {
        let found = who.ec2("DescribeVpcs", &[]);
        assert_eq!((found.status, found.code().as_str()), ec2, "{who:?} {}", found.body);
        let found = who.elb("DescribeLoadBalancers", &[]);
        assert_eq!((found.status, found.code().as_str()), elb, "{who:?} {}", found.body);
    }
    // Signed for another service, with another body, and not at all.
    let found = caller.call("ec2", VERSION_ELB, "DescribeLoadBalancers", &[]).unwrap();
    assert_eq!((found.status, found.code().as_str()), (403, "SignatureDoesNotMatch"));
    let headers = caller.signed("elasticloadbalancing", "Action=DescribeLoadBalancers");
    let body = format!("Action=DescribeTags&Version={VERSION_ELB}");
    let found = caller.send(&body, &headers).unwrap();
    assert_eq!(found.code(), "SignatureDoesNotMatch");
    let found = caller.send(&body, &headers[..3]).unwrap();
    assert_eq!((found.status, found.code().as_str()), (403, "MissingAuthenticationToken"));
    assert!(fake.state().load_balancers.is_empty());
}

#[test]
fn a_role_is_assumed() {
    let (fake, caller) = start(|_| {});
    let sts = |action: &str, parameters: &[(&str, &str)]| {
        caller.call("sts", "2011-06-15", action, parameters).unwrap()
    };
    assert_eq!(sts("GetCallerIdentity", &[]).ok().text("Account"), "123456789012");
    let role = [("RoleArn", "arn:aws:iam::123456789012:role/r"), ("RoleSessionName", "session")];
    let made = sts("AssumeRole", &role).ok();
    assert_eq!(made.texts("Arn"), ["arn:aws:sts::123456789012:assumed-role/r/session"]);
    let mut assumed = caller.clone();
    assumed.credentials = Credentials { key: made.text("AccessKeyId"), secret: made.text("SecretAccessKey") };
    assert_eq!(assumed.ec2("DescribeVpcs", &[]).code(), "AuthFailure", "without the token");
    assumed.token = Some(made.text("SessionToken"));
    assumed.ec2("DescribeVpcs", &[]).ok();

    let key = fake.calls().last().map(|logged| logged.call.key.clone());
    assert_eq!(key, Some(assumed.credentials.key));

    fake.deny("CreateTags");
    let asked = [
        ("PolicySourceArn", "arn:aws:iam::123456789012:role/r"),
        ("ActionNames.member.1", "ec2:CreateTags"),
        ("ActionNames.member.2", "ec2:DescribeVpcs"),
    ];
    let found = caller.call("iam", "2010-05-08", "SimulatePrincipalPolicy", &asked).unwrap().ok();
    assert_eq!(found.texts("EvalDecision"), ["implicitDeny", "allowed"]);
}

#[test]
fn a_role_is_assumed_by_a_token_alone() {
    let (_fake, caller) = start(|_| {});
    let send = |token: &str| {
        let body = format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr\
             &RoleSessionName=session&WebIdentityToken={token}"
        );
        let kind = ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned());
        caller.send(&body, &[kind]).unwrap()
    };
    assert_eq!(send("none").code(), "InvalidIdentityToken");
    let made = send("head.body.sign").ok();
    let credentials = Credentials { key: made.text("AccessKeyId"), secret: made.text("SecretAccessKey") };
    let assumed = Caller { credentials, token: Some(made.text("SessionToken")), ..caller.clone() };
    assumed.ec2("DescribeVpcs", &[]).ok();
}
