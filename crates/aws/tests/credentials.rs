//! Where credentials come from, as the program finds them: each source gives others, and AWS is asked with just these.
//!
//! Variables are a whole process's: each test runs itself once more, in a process of its own that has these alone.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_aws::{CloudConfig, Options, Provider, Settings, load};
use portcullis_aws_fake::{Config, Credentials, End, Fake, Fault, World};
use portcullis_core::{Outcome, Owner, Provider as _, Target, Want};
use tempfile::TempDir;

/// In the process that a test starts: the cloud-config.
const CLOUD_CONFIG: &str = "TEST_CLOUD_CONFIG";

/// Whose credentials the fake knows from the start.
const KEY: &str = "AKIAOFANOPERATOR0001";
const SECRET: &str = "secret-of-an-operator";

struct Scene {
    fake: Fake,
    directory: TempDir,
    variables: Vec<(&'static str, String)>,
    cloud_config: &'static str,
}

impl Scene {
    /// Nothing but where AWS is.
    fn new() -> Self {
        let mut world = World::default();
        world.add_vpc("vpc-1", "10.0.0.0/16", false);
        world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
        world.add_security_group("sg-nodes", "nodes", "vpc-1");
        world.add_instance("i-1", "subnet-a", &["sg-nodes"]);
        let credentials = Credentials { key: KEY.into(), secret: SECRET.into() };
        let fake = Fake::start(Config { world, credentials, ..Config::default() }).unwrap();
        let variables = vec![("AWS_ENDPOINT_URL", fake.url().to_owned())];
        let directory = tempfile::tempdir().unwrap();
        Scene { fake, directory, variables, cloud_config: "[Global]\nRegion = eu-central-1\n" }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn with_file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Whoever is on a machine or in a container: not to be asked where a test does not say so.
    fn elsewhere(self) -> Self {
        self.with("AWS_EC2_METADATA_DISABLED", "true")
    }

    /// Runs a test in a process of its own, and gives what it prints.
    fn output(&self, test: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env_clear()
            .env("HOME", self.directory.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(CLOUD_CONFIG, self.cloud_config)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        told.into_owned()
    }

    /// The same, and tells by which key which actions were called. It is called twice, with the same credentials: they are
    /// not asked for again.
    fn run(&self, test: &str) -> Vec<(String, String)> {
        self.output(test);
        let calls = self.fake.calls().into_iter();
        let mut calls: Vec<_> = calls
            .map(|logged| {
                assert_eq!(logged.end, End::Done, "{:?}", logged.call);
                (logged.call.action, logged.call.key)
            })
            .collect();
        let last = calls.pop();
        assert_eq!(calls.last(), last.as_ref());
        calls
    }

    /// Runs a test in a process of its own, and gives the remedy that it is told.
    fn remedy(&self, test: &str) -> String {
        let told = self.output(test);
        let remedy = told.lines().find_map(|line| line.split_once("REMEDY "));
        remedy.unwrap_or_else(|| panic!("{told}")).1.to_owned()
    }

    fn actions(&self) -> Vec<String> {
        self.fake.calls().into_iter().map(|logged| logged.call.action).collect()
    }

    /// With what an operator has, and a role of the cloud-config.
    fn with_role() -> Self {
        let scene =
            Scene::new().elsewhere().with("AWS_ACCESS_KEY_ID", KEY).with("AWS_SECRET_ACCESS_KEY", SECRET);
        let cloud_config =
            "[Global]\nRegion = eu-central-1\nRoleARN = arn:aws:iam::123456789012:role/balancers\n";
        Scene { cloud_config, ..scene }
    }
}

/// What is done in a process of its own: the program's client finds its credentials, and calls. Not in the first one.
fn in_a_process_of_its_own() -> bool {
    let Ok(config) = std::env::var(CLOUD_CONFIG) else { return false };
    let (config, _) = CloudConfig::parse(&config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let vpc = runtime.block_on(async {
        let options = Options { attempts: 3, pause: Duration::from_millis(1), ..Options::default() };
        let client = load(&config, options).await.unwrap();
        client.vpc_of(["aws:///eu-central-1a/i-1"].into_iter()).await.unwrap();
        client.vpc_of(["aws:///eu-central-1a/i-1"].into_iter()).await.unwrap()
    });
    assert_eq!(vpc.as_deref(), Some("vpc-1"));
    true
}

/// The same, where there is nothing to call with: what is to be done about it is printed.
#[allow(clippy::print_stdout, reason = "the process that started it reads it")]
fn refused_in_a_process_of_its_own() -> bool {
    let Ok(config) = std::env::var(CLOUD_CONFIG) else { return false };
    let (config, _) = CloudConfig::parse(&config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let want = Want {
        owner: Owner::new("demo", "Service", Some("shop".into()), "web").unwrap(),
        uid: String::new(),
        target: Target::Gone,
        parameters: BTreeMap::new(),
        nodes: Arc::default(),
    };
    let outcome = runtime.block_on(async {
        let options = Options { pause: Duration::from_millis(1), ..Options::default() };
        let client = load(&config, options).await.unwrap();
        let provider = Provider::new(client, Settings::new("demo", "vpc-1", &config).unwrap());
        provider.sync(&want).await.outcome
    });
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    println!("\nREMEDY {}", problem.remedy);
    true
}

fn called(action: &str, key: &str) -> (String, String) {
    (action.to_owned(), key.to_owned())
}

#[test]
fn variables() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::new().elsewhere().with("AWS_ACCESS_KEY_ID", KEY).with("AWS_SECRET_ACCESS_KEY", SECRET);
    assert_eq!(scene.run("variables"), [called("DescribeInstances", KEY)]);
}

#[test]
fn variables_of_a_session() {
    if in_a_process_of_its_own() {
        return;
    }
    let (key, secret) = ("ASIAVARIABLES0000001", "secret-of-a-session");
    let scene = Scene::new()
        .elsewhere()
        .with("AWS_ACCESS_KEY_ID", key)
        .with("AWS_SECRET_ACCESS_KEY", secret)
        .with("AWS_SESSION_TOKEN", "token-of-a-session");
    scene.fake.give_out(Credentials { key: key.into(), secret: secret.into() }, "token-of-a-session");
    assert_eq!(scene.run("variables_of_a_session"), [called("DescribeInstances", key)]);
}

/// The one that is named, also with what it says about the region.
#[test]
fn a_profile() {
    if in_a_process_of_its_own() {
        return;
    }
    let mut scene = Scene::new().elsewhere().with("AWS_PROFILE", "operator");
    scene.cloud_config = "";
    scene.with_file(
        ".aws/credentials",
        &format!(
            "[default]\naws_access_key_id = AKIAOFSOMEBODYELSE01\naws_secret_access_key = other\n\
             [operator]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        ),
    );
    scene.with_file(
        ".aws/config",
        "[default]\nregion = us-east-1\n[profile operator]\nregion = eu-central-1\n",
    );
    assert_eq!(scene.run("a_profile"), [called("DescribeInstances", KEY)]);
}

/// A role that is taken on by another profile.
#[test]
fn a_profile_with_a_role() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::new().elsewhere().with("AWS_PROFILE", "deputy");
    scene.with_file(
        ".aws/config",
        &format!(
            "[profile operator]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n\
             [profile deputy]\nregion = eu-central-1\nsource_profile = operator\n\
             role_arn = arn:aws:iam::123456789012:role/deputy\n"
        ),
    );
    is_by_a_session(&scene.run("a_profile_with_a_role"), "AssumeRole", KEY);
}

/// A program that gives them out.
#[test]
fn a_profile_with_a_program() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::new().elsewhere();
    let answer = format!("{{\"Version\": 1, \"AccessKeyId\": \"{KEY}\", \"SecretAccessKey\": \"{SECRET}\"}}");
    let answer = scene.with_file("answer.json", &answer);
    scene.with_file(".aws/config", &format!("[default]\ncredential_process = cat {answer}\n"));
    assert_eq!(scene.run("a_profile_with_a_program"), [called("DescribeInstances", KEY)]);
}

/// A session was asked for by that action, signed with that key or not at all, and everything else was called by it.
fn is_by_a_session(calls: &[(String, String)], action: &str, key: &str) {
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[0], called(action, key));
    assert!(calls[1].0 == "DescribeInstances" && calls[1].1.starts_with("ASIA"), "{calls:?}");
}

/// The role of a service account on EKS: a token in a file, for which AWS gives credentials.
#[test]
fn a_web_identity() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::new().elsewhere().with("AWS_REGION", "eu-central-1");
    let file = scene.with_file("token", "head.body.sign");
    let scene = scene
        .with("AWS_WEB_IDENTITY_TOKEN_FILE", file)
        .with("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/portcullis")
        .with("AWS_ROLE_SESSION_NAME", "pod");
    is_by_a_session(&scene.run("a_web_identity"), "AssumeRoleWithWebIdentity", "");
    let call = scene.fake.calls().remove(0).call;
    assert_eq!(call.parameter("WebIdentityToken"), "head.body.sign");
    assert_eq!(call.parameter("RoleArn"), "arn:aws:iam::123456789012:role/portcullis");
    assert_eq!(call.parameter("RoleSessionName"), "pod");
}

/// The role of a cloud-config, with what the environment gives.
#[test]
fn a_role_of_the_cloud_config() {
    if in_a_process_of_its_own() {
        return;
    }
    let mut scene =
        Scene::new().elsewhere().with("AWS_ACCESS_KEY_ID", KEY).with("AWS_SECRET_ACCESS_KEY", SECRET);
    scene.cloud_config = "[Global]\nRegion = eu-central-1\nRoleARN = arn:aws:iam::123456789012:role/balancers\n\
                          SourceARN = arn:aws:eks:eu-central-1:123456789012:cluster/demo\n";
    is_by_a_session(&scene.run("a_role_of_the_cloud_config"), "AssumeRole", KEY);
    let call = scene.fake.calls().remove(0).call;
    assert_eq!(call.parameter("RoleArn"), "arn:aws:iam::123456789012:role/balancers");
}

/// What was asked of a source: the first line, and the headers with small names.
#[derive(Clone, Debug)]
struct Asked {
    line: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Whoever gives out credentials on the spot, over HTTP. It ends with the test.
struct Source {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Source {
    fn start(answer: impl Fn(&Asked) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some((mut stream, asked)) = stream.ok().and_then(read) else { continue };
                seen.lock().unwrap().push(asked.clone());
                let (status, body) = answer(&asked);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} As asked\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     x-aws-ec2-metadata-token-ttl-seconds: 21600\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Source { url, asked }
    }

    fn lines(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.line.clone()).collect()
    }
}

fn read(stream: TcpStream) -> Option<(TcpStream, Asked)> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let line = lines.next()?.ok()?;
    let line = line.strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let header = lines.next()?.ok()?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    Some((stream, Asked { line, headers }))
}

/// Credentials as both sources write them down.
fn given_out(key: &str) -> String {
    format!(
        "{{\"Code\": \"Success\", \"Type\": \"AWS-HMAC\", \"LastUpdated\": \"2020-01-01T00:00:00Z\", \
         \"AccessKeyId\": \"{key}\", \"SecretAccessKey\": \"secret\", \"Token\": \"token-of-{key}\", \
         \"Expiration\": \"2099-01-01T00:00:00Z\"}}"
    )
}

/// As EKS's agent and ECS give them: at an address, to whoever has the word of the container.
#[test]
fn a_container() {
    if in_a_process_of_its_own() {
        return;
    }
    let key = "ASIAOFACONTAINER0001";
    let source = Source::start(move |asked| match asked.header("authorization") {
        Some("word of the container") => (200, given_out(key)),
        _ => (401, String::new()),
    });
    let scene = Scene::new().elsewhere();
    let file = scene.with_file("word", "word of the container");
    let scene = scene
        .with("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", source.url))
        .with("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file);
    scene
        .fake
        .give_out(Credentials { key: key.into(), secret: "secret".into() }, "token-of-ASIAOFACONTAINER0001");
    assert_eq!(scene.run("a_container"), [called("DescribeInstances", key)]);
    assert_eq!(source.lines(), ["GET /v1/credentials"]);
}

/// As a machine has them: by version 2 of its metadata service, which answers nobody without a token; the region, too.
#[test]
fn a_machine() {
    const TOKEN: &str = "token-of-the-metadata";
    if in_a_process_of_its_own() {
        return;
    }
    let key = "ASIAOFAMACHINE000001";
    let source = Source::start(move |asked| {
        let may = asked.header("x-aws-ec2-metadata-token") == Some(TOKEN);
        match asked.line.as_str() {
            "PUT /latest/api/token" if asked.header("x-aws-ec2-metadata-token-ttl-seconds").is_some() => {
                (200, TOKEN.to_owned())
            }
            _ if !may => (401, String::new()),
            "GET /latest/meta-data/placement/region" => (200, "eu-central-1".to_owned()),
            "GET /latest/meta-data/iam/security-credentials/" => (200, "role-of-the-machine".to_owned()),
            "GET /latest/meta-data/iam/security-credentials/role-of-the-machine" => (200, given_out(key)),
            _ => (404, String::new()),
        }
    });
    let mut scene = Scene::new().with("AWS_EC2_METADATA_SERVICE_ENDPOINT", source.url.clone());
    scene.cloud_config = "";
    scene
        .fake
        .give_out(Credentials { key: key.into(), secret: "secret".into() }, "token-of-ASIAOFAMACHINE000001");
    assert_eq!(scene.run("a_machine"), [called("DescribeInstances", key)]);
    let lines = source.lines();
    assert_eq!(lines[0], "PUT /latest/api/token", "{lines:?}");
    assert!(lines.iter().all(|line| !line.starts_with("POST")), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "GET /latest/meta-data/iam/security-credentials/role-of-the-machine");
}

/// The environment is asked before files, and these before the machine.
#[test]
fn what_is_nearer_wins() {
    if in_a_process_of_its_own() {
        return;
    }
    let source = Source::start(|_| (500, String::new()));
    let scene = Scene::new()
        .with("AWS_EC2_METADATA_SERVICE_ENDPOINT", source.url.clone())
        .with("AWS_REGION", "eu-central-1")
        .with("AWS_ACCESS_KEY_ID", KEY)
        .with("AWS_SECRET_ACCESS_KEY", SECRET);
    scene.with_file(
        ".aws/credentials",
        "[default]\naws_access_key_id = AKIAOFSOMEBODYELSE01\naws_secret_access_key = other\n",
    );
    assert_eq!(scene.run("what_is_nearer_wins"), [called("DescribeInstances", KEY)]);
    assert_eq!(source.lines(), Vec::<String>::new());
}

/// Nobody gives any: what gives some is named, instead of what they would have to allow.
#[test]
fn nowhere() {
    if refused_in_a_process_of_its_own() {
        return;
    }
    let remedy = Scene::new().elsewhere().remedy("nowhere");
    assert!(remedy.starts_with("Give Portcullis credentials: a role for its service account"), "{remedy}");
}

/// Somebody has them, and may not take on the role.
#[test]
fn a_role_that_is_refused() {
    if refused_in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::with_role();
    scene.fake.deny("AssumeRole");
    let remedy = scene.remedy("a_role_that_is_refused");
    assert!(remedy.contains("sts:AssumeRole") && remedy.contains("trust policy"), "{remedy}");
    assert_eq!(scene.fake.calls().len(), 1, "it is not asked again and again");
}

/// The same for a service account, whose token AWS does not take.
#[test]
fn a_web_identity_that_is_refused() {
    if refused_in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::new().elsewhere().with("AWS_REGION", "eu-central-1");
    let file = scene.with_file("token", "head.body.sign");
    let scene = scene
        .with("AWS_WEB_IDENTITY_TOKEN_FILE", file)
        .with("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/portcullis");
    scene.fake.deny("AssumeRoleWithWebIdentity");
    let remedy = scene.remedy("a_web_identity_that_is_refused");
    assert!(remedy.contains("sts:AssumeRoleWithWebIdentity"), "{remedy}");
}

/// Credentials that AWS does not take are renewed, not allowed more.
#[test]
fn variables_that_are_wrong() {
    if refused_in_a_process_of_its_own() {
        return;
    }
    let scene =
        Scene::new().elsewhere().with("AWS_ACCESS_KEY_ID", KEY).with("AWS_SECRET_ACCESS_KEY", "another");
    let remedy = scene.remedy("variables_that_are_wrong");
    assert!(remedy.starts_with("Renew the credentials that Portcullis runs with"), "{remedy}");
}

/// Whoever gives them out breaks for a moment: it is asked again.
#[test]
fn a_role_after_a_while() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::with_role();
    let mut left = 3;
    scene.fake.faults(move |call| {
        if call.action == "AssumeRole" && left > 0 {
            left -= 1;
            return Fault::InternalError;
        }
        Fault::None
    });
    scene.output("a_role_after_a_while");
    assert_eq!(
        scene.actions(),
        ["AssumeRole"; 4].into_iter().chain(["DescribeInstances"; 2]).collect::<Vec<_>>()
    );
}

/// Those that AWS does not take any more are asked for again, once.
#[test]
fn a_role_that_ended_early() {
    if in_a_process_of_its_own() {
        return;
    }
    let scene = Scene::with_role();
    let mut calls = 0;
    scene.fake.faults(move |call| {
        let is_used = call.action == "DescribeInstances";
        calls += usize::from(is_used);
        if is_used && calls == 2 { Fault::Error("ExpiredToken".to_owned(), 403) } else { Fault::None }
    });
    scene.output("a_role_that_ended_early");
    let expected =
        ["AssumeRole", "DescribeInstances", "DescribeInstances", "AssumeRole", "DescribeInstances"];
    assert_eq!(scene.actions(), expected);
}

/// The metadata service breaks for a moment: it is asked again.
#[test]
fn a_machine_after_a_while() {
    if in_a_process_of_its_own() {
        return;
    }
    let key = "ASIAOFAMACHINE000002";
    let left = Mutex::new(5);
    let source = Source::start(move |asked| match asked.line.as_str() {
        "PUT /latest/api/token" => (200, "token-of-the-metadata".to_owned()),
        "GET /latest/meta-data/iam/security-credentials/" => {
            let mut left = left.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return (500, String::new());
            }
            (200, "role-of-the-machine".to_owned())
        }
        "GET /latest/meta-data/iam/security-credentials/role-of-the-machine" => (200, given_out(key)),
        _ => (404, String::new()),
    });
    let scene = Scene::new().with("AWS_EC2_METADATA_SERVICE_ENDPOINT", source.url.clone());
    scene
        .fake
        .give_out(Credentials { key: key.into(), secret: "secret".into() }, "token-of-ASIAOFAMACHINE000002");
    assert_eq!(scene.run("a_machine_after_a_while"), [called("DescribeInstances", key)]);
}
