use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::kubernetes::Kubernetes;
use crate::{Error, Result};

/// What a cluster stands on in the AWS simulator: a VPC with two public subnets, and two machines in a group of their own.
#[derive(Debug)]
pub struct AwsSite {
    address: String,
    /// The VPC.
    pub vpc: String,
    /// The machines.
    pub nodes: Vec<String>,
    /// Their security group.
    pub node_group: String,
}

impl AwsSite {
    /// Makes one in the simulator at `url`.
    pub fn new(url: &str) -> Result<Self> {
        let address = url.trim_start_matches("http://").to_owned();
        let mut site = AwsSite { address, vpc: String::new(), nodes: Vec::new(), node_group: String::new() };
        site.vpc = text(&site.ec2("Action=CreateVpc&CidrBlock=10.0.0.0/16")?, "vpcId")?;
        let vpc = &site.vpc;
        let gateway = text(&site.ec2("Action=CreateInternetGateway")?, "internetGatewayId")?;
        site.ec2(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"))?;
        let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
        let table = text(&site.ec2(&tables)?, "routeTableId")?;
        site.ec2(&format!(
            "Action=CreateRoute&RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}"
        ))?;
        let mut subnets = Vec::new();
        for (zone, number) in [("a", 1), ("b", 2)] {
            let subnet = format!(
                "Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.{number}.0/24&AvailabilityZone=us-east-1{zone}"
            );
            subnets.push(text(&site.ec2(&subnet)?, "subnetId")?);
        }
        let group = format!("Action=CreateSecurityGroup&GroupName=nodes&GroupDescription=nodes&VpcId={vpc}");
        site.node_group = text(&site.ec2(&group)?, "groupId")?;
        let run = format!(
            "Action=RunInstances&ImageId=ami-12c6146b&MinCount=2&MaxCount=2&SubnetId={}&SecurityGroupId.1={}",
            subnets[0], site.node_group
        );
        let run = site.ec2(&run)?;
        let nodes = run.split("<instanceId>").skip(1).filter_map(|part| part.split('<').next());
        site.nodes = nodes.map(str::to_owned).collect();
        Ok(site)
    }

    /// Registers its machines with a Kubernetes API, as their kubelets would.
    pub fn join(&self, kubernetes: &Kubernetes) -> Result<()> {
        join_nodes(kubernetes, "us-east-1a", &self.nodes)
    }

    /// Calls EC2.
    pub fn ec2(&self, body: &str) -> Result<String> {
        self.call("ec2", "2016-11-15", body)
    }

    /// Calls Elastic Load Balancing.
    pub fn elb(&self, body: &str) -> Result<String> {
        self.call("elasticloadbalancing", "2015-12-01", body)
    }

    /// Calls one of AWS's services in a version. The simulator takes calls without a signature.
    pub fn call(&self, service: &str, version: &str, body: &str) -> Result<String> {
        let body = format!("{body}&Version={version}");
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            write!(
                stream,
                "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
                 Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request, \
                 SignedHeaders=host, Signature=x\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
                self.address,
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(Error::io("the AWS simulator does not answer"))?;
        let (head, said) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.split(' ').nth(1) != Some("200") {
            return Err(Error::Command { command: body, output: said.to_owned() });
        }
        Ok(said.to_owned())
    }
}

/// What stands in the first element of that name in an answer.
fn text(answer: &str, element: &str) -> Result<String> {
    let found = answer.split(&format!("<{element}>")).nth(1).and_then(|rest| rest.split('<').next());
    let missing = || Error::Unsuitable(format!("the AWS simulator answered without {element}: {answer}"));
    found.map(str::to_owned).ok_or_else(missing)
}

/// Registers machines with a Kubernetes API as its nodes, as their kubelets would.
pub fn join_nodes(kubernetes: &Kubernetes, zone: &str, machines: &[impl AsRef<str>]) -> Result<()> {
    for (machine, number) in machines.iter().zip(1..) {
        let name = format!("node-{number}");
        let node = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             spec: {{providerID: 'aws:///{zone}/{}'}}\n",
            machine.as_ref()
        );
        kubernetes.apply(&node)?;
        let status = format!(
            r#"{{"status": {{"addresses": [{{"type": "InternalIP", "address": "10.0.1.{number}"}}]}}}}"#
        );
        kubernetes.kubectl(&[
            "patch",
            "node",
            &name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ])?;
    }
    Ok(())
}
