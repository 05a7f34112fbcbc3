//! AWS's own client of Python takes the fake for AWS: it makes, lists, changes and deletes.

use std::process::Command;

use portcullis_aws_fake::{Config, Fake, World};
use portcullis_parts::catalogue;

fn world() -> World {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", true);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", true);
    world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", true);
    world.add_route_table("rtb-1", "vpc-1", &[], true);
    world.add_security_group("sg-nodes", "nodes", "vpc-1");
    world.add_instance("i-1", "subnet-a", &["sg-nodes"]);
    world.add_instance("i-2", "subnet-b", &["sg-nodes"]);
    world.add_certificate("arn:aws:acm:eu-central-1:123456789012:certificate/1");
    world
}

#[test]
fn boto3_takes_it_for_aws() {
    // boto3 comes with moto.
    if let Err(error) = catalogue::find("moto_server") {
        panic!("{error}");
    }
    let python = catalogue::part("moto").directory().unwrap().join("bin/python");
    let config = Config { world: world(), ..Config::default() };
    let credentials = config.credentials.clone();
    let before = config.world.clone();
    let fake = Fake::start(config).unwrap();
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py"))
        .env("AWS_ENDPOINT_URL", fake.url())
        .env("AWS_ACCESS_KEY_ID", credentials.key)
        .env("AWS_SECRET_ACCESS_KEY", credentials.secret)
        .env("AWS_DEFAULT_REGION", "eu-central-1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "done", "{told}");
    assert_eq!(fake.state(), before, "everything that was made is gone");
}
