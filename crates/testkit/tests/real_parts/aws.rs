use std::io::{Read, Write};
use std::net::TcpStream;

use portcullis_testkit::aws;

/// Sends one EC2 request as AWS' clients do: a form, signed (the simulator checks no signature).
fn ec2(url: &str, form: &str) -> String {
    let host = url.trim_start_matches("http://");
    let scope = "test/20260101/us-east-1/ec2/aws4_request";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let after = answer.split(&format!("<{name}>")).nth(1).unwrap_or_else(|| panic!("no {name} in {answer}"));
    after.split('<').next().unwrap()
}

#[test]
fn a_security_group_is_created_and_found_again() {
    let [aws, other] = [aws(), aws()];
    let vpcs = ec2(&aws.url(), "Action=DescribeVpcs&Version=2016-11-15");
    let vpc = field(&vpcs, "vpcId");
    let create = format!(
        "Action=CreateSecurityGroup&Version=2016-11-15&GroupName=web&GroupDescription=test&VpcId={vpc}"
    );
    let created = ec2(&aws.url(), &create);
    let group = field(&created, "groupId");
    let describe = format!("Action=DescribeSecurityGroups&Version=2016-11-15&GroupId.1={group}");
    let found = ec2(&aws.url(), &describe);
    assert_eq!(field(&found, "groupName"), "web");

    let again = ec2(&aws.url(), &create);
    assert!(again.contains("InvalidGroup.Duplicate"), "{again}");
    let elsewhere = ec2(&other.url(), &describe);
    assert!(elsewhere.contains("InvalidGroup.NotFound"), "two simulators share nothing: {elsewhere}");
}
