//! Services on AWS, by the program itself.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsSite, eventually, kubernetes};

struct Scene {
    kubernetes: &'static Kubernetes,
    site: AwsSite,
    url: String,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new(url: &str) -> Self {
        let (kubernetes, site) = (kubernetes(), AwsSite::new(url));
        site.join(kubernetes);
        let directory = tempfile::tempdir().unwrap();
        let cloud =
            "[Global]\nRegion = us-east-1\nKubernetesClusterID = demo\nNLBSecurityGroupMode = Managed\n";
        std::fs::write(directory.path().join("cloud.conf"), cloud).unwrap();
        let config = format!(
            "telemetry: {{listen: '127.0.0.1:0'}}\nservices: {{enabled: true, lease: {{namespace: default}}}}\n\
             kubernetes: {{kubeconfig: '{}'}}\naws: {{cloudConfig: '{}'}}\n",
            kubernetes.kubeconfig().display(),
            directory.path().join("cloud.conf").display()
        );
        std::fs::write(directory.path().join("config.yaml"), config).unwrap();
        Scene { kubernetes, site, url: url.to_owned(), directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command
            .args(arguments)
            .env("PORTCULLIS_CONFIG", self.directory.path().join("config.yaml"))
            .env("AWS_ENDPOINT_URL", &self.url)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const WEB: &str = "\
# What is left out.
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: portcullis.dev/aws-nlb
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{port: 443, targetPort: 8443}]
";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_plan_comes_before_a_change_and_nothing_after_it() {
    let aws = portcullis_testkit::aws();
    let scene = Scene::new(&aws.url());
    let file = scene.write("service.yaml", WEB);
    let plan = scene.run(&["plan", "-f", &file]);
    let told = text(&plan);
    assert!(plan.status.success(), "{told}");
    for part in [
        &format!("Service default/web  →  aws-nlb in {} (mode Managed)", scene.site.vpc),
        "  + security group  k8s-default-web-‹after creation›",
        "+ in          tcp 443",
        "from 203.0.113.0/24",
        "+ out         tcp ‹node port›",
        "after   203.0.113.0/24 on tcp 443",
        "none destructive.",
    ] {
        assert!(told.contains(part), "no `{part}` in:\n{told}");
    }
    assert!(!told.contains("other") && !told.contains("32766"), "{told}");
    assert!(!scene.site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"), "it only looked");
    assert_eq!(scene.run(&["plan", "-f", &file, "--fail-on-wider"]).status.code(), Some(4));
    let json = scene.run(&["plan", "-f", &file, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["destructive_calls"], 0, "{json}");

    let log = std::fs::File::create(scene.directory.path().join("log")).unwrap();
    let _running = Running(scene.command(&["serve"]).stderr(log).stdout(Stdio::null()).spawn().unwrap());
    scene.kubernetes.apply(WEB).unwrap();
    let address = || {
        let path = "jsonpath={.status.loadBalancer.ingress[0].hostname}";
        scene.kubernetes.kubectl(&["get", "service", "web", "-o", path]).unwrap()
    };
    eventually("it has an address", || address().contains("elb"));
    let plan = || text(&scene.run(&["plan", "default/web"]));
    eventually("nothing is left to change", || plan().contains("Nothing to change."));
    assert!(text(&scene.run(&["plan"])).contains("Service default/web"), "all of ours");
    let check = text(&scene.run(&["check", "aws"]));
    assert!(check.contains("ec2:CreateSecurityGroup") && check.contains("arn:aws:"), "{check}");
    let got = text(&scene.run(&["get", "--members"]));
    let line = got.lines().nth(1).unwrap_or_default();
    for part in ["Service", "default/web", "aws-nlb", &address(), "203.0.113.0/24", "yes", "/2"] {
        assert!(line.contains(part), "no `{part}` in:\n{got}");
    }
    a_record_is_enough_for_a_plan(&scene);
    scene.kubernetes.kubectl(&["delete", "service", "web"]).unwrap();
    assert!(!scene.site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert_eq!(text(&scene.run(&["plan"])), "There is nothing of ours.\n");
    what_cannot_be_planned_is_told(&scene);
}

/// What AWS has is written down, and then there is neither AWS nor a cluster.
fn a_record_is_enough_for_a_plan(scene: &Scene) {
    let ports = "ports: [{port: 443, targetPort: 8443}, {port: 80, targetPort: 8080}]";
    let changed = WEB.replace("203.0.113.0/24", "198.51.100.0/24");
    let changed = changed.replace("ports: [{port: 443, targetPort: 8443}]", ports);
    let services = scene.write("changed.yaml", &(changed.clone() + "---\n" + &changed.replace("web", "new")));
    let nodes = scene.kubernetes.kubectl(&["get", "nodes", "-o", "yaml"]).unwrap();
    let nodes = scene.write("nodes.yaml", &nodes);
    let record = scene.write("aws.json", "what was there before");
    let alone = scene.write("alone.yaml", "kubernetes: {kubeconfig: none}\naws: {cloudConfig: alone.conf}\n");
    scene.write("alone.conf", "[Global]\nNLBSecurityGroupMode = Managed\n");
    let alone = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let directory = scene.directory.path();
        command.args(["plan", "-f", &services]).args(arguments).current_dir(directory).env_clear();
        // Whoever asked there would wait, or be refused.
        command
            .env("PORTCULLIS_CONFIG", &alone)
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            .output()
            .unwrap()
    };
    for form in ["text", "json"] {
        let live = scene.run(&["plan", "-f", &services, "-o", form]);
        assert!(live.status.success(), "{}", text(&live));
        let recording = scene.run(&["plan", "-f", &services, "-o", form, "--record", &record]);
        assert_eq!(text(&recording), text(&live));
        let told = alone(&["-f", &nodes, "--from", &record, "-o", form]);
        assert_eq!(text(&told), text(&live));
    }
    let mode = std::fs::metadata(&record).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it shows the network");

    let other = std::fs::read_to_string(&nodes).unwrap().replace(&scene.site.nodes[0], "i-0123");
    let other = scene.write("other.yaml", &other);
    let told = alone(&["-f", &other, "--from", &record]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told).contains("does not have machine i-0123."), "{}", text(&told));
    for (what, arguments) in [
        ("it is of cluster `demo`, and `another` is configured", ["--set", "aws.cluster=another"]),
        ("it is of region `us-east-1`, and `eu-west-1` is configured", ["--set", "aws.region=eu-west-1"]),
    ] {
        let told = alone(&[&["-f", &nodes, "--from", &record][..], &arguments].concat());
        assert_eq!(told.status.code(), Some(2));
        let expected = format!("the record {record} cannot be used: {what}");
        assert!(text(&told).contains(&expected), "{}", text(&told));
    }
    let told = alone(&["--from", &record]);
    assert_eq!(told.status.code(), Some(3), "without nodes a cluster is needed: {}", text(&told));
}

fn what_cannot_be_planned_is_told(scene: &Scene) {
    for (manifest, what) in [
        (
            WEB.replace("type: LoadBalancer", "type: ClusterIP")
                .replace("  loadBalancerClass: portcullis.dev/aws-nlb\n", ""),
            "Service default/web: it is not ours.",
        ),
        (WEB.replace("203.0.113.0/24", "203.0.113.0/99"), "spec.loadBalancerSourceRanges[0]"),
        (WEB.replace("ports: [", "ports: {"), "service.yaml:"),
    ] {
        let file = scene.write("service.yaml", &manifest);
        let plan = scene.run(&["plan", "-f", &file]);
        assert!(!plan.status.success() && text(&plan).contains(what), "{}", text(&plan));
    }
    let missing = scene.run(&["plan", "default/none"]);
    assert!(text(&missing).contains("there is no Service default/none"), "{}", text(&missing));
}
