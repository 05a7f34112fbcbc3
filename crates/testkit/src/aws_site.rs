use std::ops::Deref;

use portcullis_parts::kubernetes::Kubernetes;

/// What a cluster stands on in the AWS simulator: a VPC with two public subnets, and two machines in a group of their own.
#[derive(Debug)]
pub struct AwsSite(portcullis_parts::AwsSite);

impl Deref for AwsSite {
    type Target = portcullis_parts::AwsSite;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl AwsSite {
    /// Makes one.
    pub fn new(url: &str) -> Self {
        AwsSite(portcullis_parts::AwsSite::new(url).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Registers its nodes with a Kubernetes API, as a kubelet would.
    pub fn join(&self, kubernetes: &Kubernetes) {
        self.0.join(kubernetes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Calls EC2, for what nobody but a test asks for.
    pub fn ec2(&self, body: &str) -> String {
        self.0.ec2(body).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Calls Elastic Load Balancing.
    pub fn elb(&self, body: &str) -> String {
        self.0.elb(body).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Gives it and its subnets IPv6, too.
    pub fn add_ipv6(&self) {
        let vpc = &self.vpc;
        self.ec2(&format!("Action=AssociateVpcCidrBlock&VpcId={vpc}&AmazonProvidedIpv6CidrBlock=true"));
        let found = self.ec2(&format!("Action=DescribeVpcs&VpcId.1={vpc}"));
        let range = Self::text(&found, "ipv6CidrBlock");
        let start = range.strip_suffix("00::/56").unwrap_or_else(|| panic!("{range} is no /56"));
        let found = format!("Action=DescribeSubnets&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
        for (number, subnet) in self.ec2(&found).split("<subnetId>").skip(1).enumerate() {
            let subnet = subnet.split('<').next().unwrap_or_default();
            self.ec2(&format!(
                "Action=AssociateSubnetCidrBlock&SubnetId={subnet}&Ipv6CidrBlock={start}0{number}::/64"
            ));
        }
    }

    /// Makes a group of a user; its id.
    pub fn add_group(&self, name: &str) -> String {
        let group =
            format!("Action=CreateSecurityGroup&GroupName={name}&GroupDescription={name}&VpcId={}", self.vpc);
        Self::text(&self.ec2(&group), "groupId")
    }

    /// Makes a certificate; its ARN. The simulator takes anything for one.
    pub fn add_certificate(&self, name: &str) -> String {
        let certificate = format!(
            "Action=UploadServerCertificate&ServerCertificateName={name}&CertificateBody=body&PrivateKey=key"
        );
        let answer = self.0.call("iam", "2010-05-08", &certificate).unwrap_or_else(|error| panic!("{error}"));
        Self::text(&answer, "Arn")
    }

    /// What stands in the first element of that name in an answer.
    pub fn text(answer: &str, element: &str) -> String {
        let start = answer.split(&format!("<{element}>")).nth(1);
        let start = start.unwrap_or_else(|| panic!("there is no {element} in {answer}"));
        start.split('<').next().unwrap_or_default().to_owned()
    }
}

/// Registers machines with a Kubernetes API as its nodes, as their kubelets would.
pub fn join_nodes(kubernetes: &Kubernetes, zone: &str, machines: &[impl AsRef<str>]) {
    portcullis_parts::join_nodes(kubernetes, zone, machines).unwrap_or_else(|error| panic!("{error}"));
}
