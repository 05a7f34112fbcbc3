use portcullis_parts::kubernetes::Kubernetes;

use crate::Http;

/// A VPC in the AWS simulator, with two public subnets, and two nodes in a group of their own.
#[derive(Debug)]
pub struct AwsSite {
    url: String,
    pub vpc: String,
    pub nodes: Vec<String>,
    pub node_group: String,
}

impl AwsSite {
    /// Makes one.
    pub fn new(url: &str) -> Self {
        let mut site =
            AwsSite { url: url.to_owned(), vpc: String::new(), nodes: Vec::new(), node_group: String::new() };
        site.vpc = Self::text(&site.ec2("Action=CreateVpc&CidrBlock=10.0.0.0/16"), "vpcId");
        let vpc = &site.vpc;
        let gateway = Self::text(&site.ec2("Action=CreateInternetGateway"), "internetGatewayId");
        site.ec2(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
        let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
        let table = Self::text(&site.ec2(&tables), "routeTableId");
        site.ec2(&format!(
            "Action=CreateRoute&RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}"
        ));
        let subnets = [("a", 1), ("b", 2)].map(|(zone, number)| {
            let zone = format!("AvailabilityZone=us-east-1{zone}");
            let subnet = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.{number}.0/24&{zone}");
            Self::text(&site.ec2(&subnet), "subnetId")
        });
        let group = format!("Action=CreateSecurityGroup&GroupName=nodes&GroupDescription=nodes&VpcId={vpc}");
        site.node_group = Self::text(&site.ec2(&group), "groupId");
        let run = format!(
            "Action=RunInstances&ImageId=ami-12c6146b&MinCount=2&MaxCount=2&SubnetId={}&SecurityGroupId.1={}",
            subnets[0], site.node_group
        );
        let run = site.ec2(&run);
        let nodes = run.split("<instanceId>").skip(1).filter_map(|part| part.split('<').next());
        site.nodes = nodes.map(str::to_owned).collect();
        site
    }

    /// Registers its nodes with a Kubernetes API, as a kubelet would.
    pub fn join(&self, kubernetes: &Kubernetes) {
        join_nodes(kubernetes, "us-east-1a", &self.nodes);
    }

    /// Calls EC2, for what nobody but a test asks for.
    pub fn ec2(&self, body: &str) -> String {
        self.call("ec2", "2016-11-15", body)
    }

    /// Calls Elastic Load Balancing.
    pub fn elb(&self, body: &str) -> String {
        self.call("elasticloadbalancing", "2015-12-01", body)
    }

    /// The simulator takes calls without a signature.
    fn call(&self, service: &str, version: &str, body: &str) -> String {
        let scope = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let form = "application/x-www-form-urlencoded";
        let headers = [("Authorization", scope.as_str()), ("Content-Type", form)];
        let body = format!("{body}&Version={version}");
        let mut connection =
            Http::connect(self.url.trim_start_matches("http://")).expect("the simulator answers");
        let answer = connection.ask("POST", "/", &headers, &body).expect("the simulator answers");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{body}: {text}");
        text
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
    for (machine, number) in machines.iter().zip(1..) {
        let name = format!("node-{number}");
        let node = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             spec: {{providerID: 'aws:///{zone}/{}'}}\n",
            machine.as_ref()
        );
        kubernetes.apply(&node).unwrap_or_else(|error| panic!("{error}"));
        let status = format!(
            r#"{{"status": {{"addresses": [{{"type": "InternalIP", "address": "10.0.1.{number}"}}]}}}}"#
        );
        let patch = ["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &status];
        kubernetes.kubectl(&patch).unwrap_or_else(|error| panic!("{error}"));
    }
}
