use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use portcullis_parts::kubernetes::Kubernetes;
use portcullis_parts::{Error, Launch, Port, Process, Result};

/// cloud-provider-aws, of which only the controller of Services runs.
#[derive(Debug)]
pub struct CloudProviderAws {
    _port: Port,
    process: Process,
}

/// Where it makes load balancers, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct AwsAccount<'a> {
    /// Where all services of AWS answer.
    pub url: &'a str,
    pub region: &'a str,
    pub key: &'a str,
    pub secret: &'a str,
    pub vpc: &'a str,
    /// Any subnet of it.
    pub subnet: &'a str,
    /// The name of the cluster.
    pub cluster: &'a str,
}

impl CloudProviderAws {
    /// Starts one that looks after the Services of `kubernetes`, and gives load balancers groups of their own.
    #[track_caller]
    pub fn start(kubernetes: &Kubernetes, account: AwsAccount<'_>) -> Self {
        start(kubernetes, account).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it logs.
    pub fn log(&self) -> &std::path::Path {
        self.process.log()
    }
}

fn start(kubernetes: &Kubernetes, account: AwsAccount<'_>) -> Result<CloudProviderAws> {
    let port = Port::any()?;
    let directory = crate::directory("cloud-provider-aws");
    let config = directory.join("cloud.conf");
    fs::write(&config, cloud_config(account))
        .map_err(|source| Error::Io { what: format!("cannot write {}", config.display()), source })?;
    let mut process = Launch::new("aws-cloud-controller-manager")?
        .env("AWS_ACCESS_KEY_ID", account.key)
        .env("AWS_SECRET_ACCESS_KEY", account.secret)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .arg("--cloud-provider=aws")
        .arg(format!("--cloud-config={}", config.display()))
        .arg(format!("--kubeconfig={}", kubernetes.kubeconfig().display()))
        .args(["--controllers=service", "--leader-elect=false", "--v=2"])
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={}", port.number()))
        .arg(format!("--cert-dir={}", directory.display()))
        .start(kubernetes.namespace(), &directory)?;
    let (number, namespace) = (port.number(), kubernetes.namespace());
    process.wait_until(Duration::from_secs(120), || {
        namespace.run(|| TcpStream::connect(("127.0.0.1", number)).is_ok())
    })?;
    Ok(CloudProviderAws { _port: port, process })
}

/// With VPC, subnet and cluster given, it asks no metadata service. Services are called by the names that AWS's library
/// for Go has for them; the one it has no use for here is named too, so that no call leaves this machine.
fn cloud_config(account: AwsAccount<'_>) -> String {
    let AwsAccount { url, region, vpc, subnet, cluster, .. } = account;
    let services = [
        ("EC2", "ec2"),
        ("Elastic Load Balancing", "elasticloadbalancing"),
        ("Elastic Load Balancing v2", "elasticloadbalancing"),
    ];
    let overrides = services.iter().zip(1..).map(|((service, signing), number)| {
        format!(
            "\n[ServiceOverride \"{number}\"]\nService = {service}\nRegion = {region}\nURL = {url}\n\
             SigningRegion = {region}\nSigningName = {signing}\n"
        )
    });
    let global = format!(
        "[Global]\nRegion = {region}\nVPC = {vpc}\nSubnetID = {subnet}\nKubernetesClusterID = {cluster}\n\
         NLBSecurityGroupMode = Managed\n"
    );
    std::iter::once(global).chain(overrides).collect()
}
