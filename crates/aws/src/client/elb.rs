//! What is called of Elastic Load Balancing, version 2.

use std::collections::BTreeMap;

use super::{CallError, Client, Element, Parameters};
use crate::model::{
    Attributes, HealthCheck, Listener, LoadBalancer, Tags, Target, TargetGroup, TargetHealth, TargetState,
};

/// The zone of addresses that are in none of the VPC.
const OUTSIDE: &str = "all";

/// So many objects are named in a call at most.
pub(crate) const TAGGED: usize = 20;

/// A load balancer to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewLoadBalancer {
    pub(crate) name: String,
    pub(crate) scheme: String,
    pub(crate) ip_address_type: String,
    pub(crate) subnets: Vec<NewSubnet>,
    pub(crate) groups: Vec<String>,
    pub(crate) tags: Tags,
}

/// A subnet of a load balancer to be made, and the address it is to have there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NewSubnet {
    pub(crate) id: String,
    pub(crate) allocation: Option<String>,
    pub(crate) private_address: Option<String>,
}

/// A target group to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTargetGroup {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) vpc: String,
    pub(crate) kind: String,
    pub(crate) ip_address_type: String,
    pub(crate) health_check: HealthCheck,
    pub(crate) tags: Tags,
}

/// What a listener does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewListener {
    pub(crate) port: u16,
    pub(crate) protocol: String,
    pub(crate) target_group: String,
    pub(crate) certificate: Option<String>,
    pub(crate) policy: Option<String>,
    pub(crate) alpn: Option<String>,
}

impl Client {
    /// All load balancers of the account and region.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, CallError> {
        let parameters = Parameters::default().set("PageSize", 400);
        self.elb_pages("DescribeLoadBalancers", parameters, |answer| {
            answer.list("LoadBalancers").map(load_balancer).collect()
        })
        .await
    }

    /// The load balancer of that name, if it is there.
    pub(crate) async fn load_balancer_by_name(&self, name: &str) -> Result<Option<LoadBalancer>, CallError> {
        let parameters = Parameters::default().set("Names.member.1", name);
        let found = self.elb("DescribeLoadBalancers", &parameters).await;
        found_or_none(found.map(|answer| answer.list("LoadBalancers").next().map(load_balancer)))
    }

    pub(crate) async fn create_load_balancer(
        &self,
        new: &NewLoadBalancer,
    ) -> Result<LoadBalancer, CallError> {
        let mut parameters = Parameters::default()
            .set("Name", &new.name)
            .set("Type", "network")
            .set("Scheme", &new.scheme)
            .set("IpAddressType", &new.ip_address_type);
        for (place, subnet) in new.subnets.iter().enumerate() {
            let start = format!("SubnetMappings.member.{}", place + 1);
            parameters = parameters
                .set(format!("{start}.SubnetId"), &subnet.id)
                .set_some(&format!("{start}.AllocationId"), subnet.allocation.as_ref())
                .set_some(&format!("{start}.PrivateIPv4Address"), subnet.private_address.as_ref());
        }
        let parameters = parameters.list("SecurityGroups.member", &new.groups).pairs(
            "Tags.member",
            ["Key", "Value"],
            &new.tags,
        );
        let answer = self.elb("CreateLoadBalancer", &parameters).await?;
        let made = answer.list("LoadBalancers").next().map(load_balancer);
        made.ok_or_else(|| CallError::unavailable("CreateLoadBalancer", "the answer has no load balancer"))
    }

    pub(crate) async fn delete_load_balancer(&self, arn: &str) -> Result<(), CallError> {
        self.elb("DeleteLoadBalancer", &Parameters::default().set("LoadBalancerArn", arn)).await.map(drop)
    }

    pub(crate) async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<(), CallError> {
        let parameters =
            Parameters::default().set("LoadBalancerArn", arn).list("SecurityGroups.member", groups);
        self.elb("SetSecurityGroups", &parameters).await.map(drop)
    }

    pub(crate) async fn set_subnets(&self, arn: &str, subnets: &[String]) -> Result<(), CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", arn).list("Subnets.member", subnets);
        self.elb("SetSubnets", &parameters).await.map(drop)
    }

    pub(crate) async fn set_ip_address_type(&self, arn: &str, kind: &str) -> Result<(), CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", arn).set("IpAddressType", kind);
        self.elb("SetIpAddressType", &parameters).await.map(drop)
    }

    pub(crate) async fn load_balancer_attributes(&self, arn: &str) -> Result<Attributes, CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", arn);
        let answer = self.elb("DescribeLoadBalancerAttributes", &parameters).await?;
        Ok(answer.pairs("Attributes", "Key", "Value"))
    }

    pub(crate) async fn modify_load_balancer_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> Result<(), CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", arn);
        let parameters = parameters.pairs("Attributes.member", ["Key", "Value"], attributes);
        self.elb("ModifyLoadBalancerAttributes", &parameters).await.map(drop)
    }

    pub(crate) async fn target_groups(&self) -> Result<Vec<TargetGroup>, CallError> {
        let parameters = Parameters::default().set("PageSize", 400);
        self.elb_pages("DescribeTargetGroups", parameters, |answer| {
            answer.list("TargetGroups").map(target_group).collect()
        })
        .await
    }

    pub(crate) async fn create_target_group(&self, new: &NewTargetGroup) -> Result<TargetGroup, CallError> {
        let parameters = Parameters::default()
            .set("Name", &new.name)
            .set("Protocol", &new.protocol)
            .set("Port", new.port)
            .set("VpcId", &new.vpc)
            .set("TargetType", &new.kind)
            .set("IpAddressType", &new.ip_address_type);
        let parameters = checked(parameters, &new.health_check)
            .set("HealthCheckIntervalSeconds", new.health_check.interval)
            .pairs("Tags.member", ["Key", "Value"], &new.tags);
        let answer = self.elb("CreateTargetGroup", &parameters).await?;
        let made = answer.list("TargetGroups").next().map(target_group);
        made.ok_or_else(|| CallError::unavailable("CreateTargetGroup", "the answer has no target group"))
    }

    pub(crate) async fn modify_target_group(&self, arn: &str, check: &HealthCheck) -> Result<(), CallError> {
        let parameters = checked(Parameters::default().set("TargetGroupArn", arn), check)
            .set("HealthCheckIntervalSeconds", check.interval);
        self.elb("ModifyTargetGroup", &parameters).await.map(drop)
    }

    pub(crate) async fn delete_target_group(&self, arn: &str) -> Result<(), CallError> {
        self.elb("DeleteTargetGroup", &Parameters::default().set("TargetGroupArn", arn)).await.map(drop)
    }

    pub(crate) async fn target_group_attributes(&self, arn: &str) -> Result<Attributes, CallError> {
        let parameters = Parameters::default().set("TargetGroupArn", arn);
        let answer = self.elb("DescribeTargetGroupAttributes", &parameters).await?;
        Ok(answer.pairs("Attributes", "Key", "Value"))
    }

    pub(crate) async fn modify_target_group_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> Result<(), CallError> {
        let parameters = Parameters::default().set("TargetGroupArn", arn);
        let parameters = parameters.pairs("Attributes.member", ["Key", "Value"], attributes);
        self.elb("ModifyTargetGroupAttributes", &parameters).await.map(drop)
    }

    /// Who is in a target group, and how they do.
    pub(crate) async fn targets(&self, arn: &str) -> Result<BTreeMap<Target, TargetHealth>, CallError> {
        let parameters = Parameters::default().set("TargetGroupArn", arn);
        let answer = self.elb("DescribeTargetHealth", &parameters).await?;
        let targets = answer.list("TargetHealthDescriptions").filter_map(|entry| {
            let target = entry.child("Target")?;
            let health = entry.child("TargetHealth");
            let word = health.map(|health| health.text("State")).unwrap_or_default();
            let reason = health.and_then(|health| health.optional("Reason"));
            let state = match word.as_str() {
                "healthy" => TargetState::Healthy,
                "draining" => TargetState::Draining,
                _ => TargetState::Other,
            };
            let why = reason.map_or_else(|| word.clone(), |reason| format!("{word}: {reason}"));
            let outside = target.optional("AvailabilityZone").is_some_and(|zone| zone == OUTSIDE);
            let port = target.text("Port").parse().ok()?;
            let health = TargetHealth { state, why };
            Some((Target { id: target.text("Id").into(), port, outside }, health))
        });
        Ok(targets.collect())
    }

    /// Adds targets to a group, or takes them away.
    pub(crate) async fn change_targets(
        &self,
        arn: &str,
        add: bool,
        targets: &[Target],
    ) -> Result<(), CallError> {
        let mut parameters = Parameters::default().set("TargetGroupArn", arn);
        for (place, target) in targets.iter().enumerate() {
            let start = format!("Targets.member.{}", place + 1);
            parameters = parameters
                .set(format!("{start}.Id"), &target.id)
                .set(format!("{start}.Port"), target.port)
                .set_some(&format!("{start}.AvailabilityZone"), target.outside.then_some(OUTSIDE));
        }
        let action = if add { "RegisterTargets" } else { "DeregisterTargets" };
        self.elb(action, &parameters).await.map(drop)
    }

    pub(crate) async fn listeners(&self, load_balancer: &str) -> Result<Vec<Listener>, CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", load_balancer).set("PageSize", 100);
        self.elb_pages("DescribeListeners", parameters, |answer| {
            answer.list("Listeners").map(listener).collect()
        })
        .await
    }

    pub(crate) async fn create_listener(
        &self,
        load_balancer: &str,
        new: &NewListener,
        tags: &Tags,
    ) -> Result<Listener, CallError> {
        let parameters = Parameters::default().set("LoadBalancerArn", load_balancer);
        let parameters = listening(parameters, new).pairs("Tags.member", ["Key", "Value"], tags);
        let answer = self.elb("CreateListener", &parameters).await?;
        let made = answer.list("Listeners").next().map(listener);
        made.ok_or_else(|| CallError::unavailable("CreateListener", "the answer has no listener"))
    }

    pub(crate) async fn modify_listener(&self, arn: &str, new: &NewListener) -> Result<(), CallError> {
        let parameters = listening(Parameters::default().set("ListenerArn", arn), new);
        self.elb("ModifyListener", &parameters).await.map(drop)
    }

    pub(crate) async fn delete_listener(&self, arn: &str) -> Result<(), CallError> {
        self.elb("DeleteListener", &Parameters::default().set("ListenerArn", arn)).await.map(drop)
    }

    /// What is written on objects, by their ARNs. Those that are gone are left out.
    pub(crate) async fn tags(&self, arns: &[String]) -> Result<BTreeMap<String, Tags>, CallError> {
        let mut all = BTreeMap::new();
        for some in arns.chunks(TAGGED) {
            all.extend(self.some_tags(some).await?);
        }
        Ok(all)
    }

    async fn some_tags(&self, arns: &[String]) -> Result<BTreeMap<String, Tags>, CallError> {
        let parameters = Parameters::default().list("ResourceArns.member", arns);
        let answer = found_or_none(self.elb("DescribeTags", &parameters).await.map(Some))?;
        match answer {
            Some(answer) => Ok(answer
                .list("TagDescriptions")
                .map(|entry| (entry.text("ResourceArn"), entry.pairs("Tags", "Key", "Value")))
                .collect()),
            // One that is gone takes the answer about the others with it.
            None if arns.len() > 1 => {
                let (first, second) = arns.split_at(arns.len() / 2);
                let mut all = Box::pin(self.some_tags(first)).await?;
                all.extend(Box::pin(self.some_tags(second)).await?);
                Ok(all)
            }
            None => Ok(BTreeMap::new()),
        }
    }

    pub(crate) async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<(), CallError> {
        let parameters = Parameters::default().list("ResourceArns.member", arns).pairs(
            "Tags.member",
            ["Key", "Value"],
            tags,
        );
        self.elb("AddTags", &parameters).await.map(drop)
    }

    pub(crate) async fn remove_tags(&self, arns: &[String], keys: &[String]) -> Result<(), CallError> {
        let parameters = Parameters::default().list("ResourceArns.member", arns).list("TagKeys.member", keys);
        self.elb("RemoveTags", &parameters).await.map(drop)
    }

    /// The result of a call, without the envelope.
    async fn elb(&self, action: &'static str, parameters: &Parameters) -> Result<Element, CallError> {
        let answer = self.call(&self.0.endpoints.elb, action, parameters).await?;
        Ok(answer.child(&format!("{action}Result")).cloned().unwrap_or_default())
    }

    async fn elb_pages<T>(
        &self,
        action: &'static str,
        parameters: Parameters,
        read: impl Fn(&Element) -> Vec<T>,
    ) -> Result<Vec<T>, CallError> {
        let read = |answer: &Element| {
            let result = answer.child(&format!("{action}Result"));
            let page = result.map(&read).unwrap_or_default();
            (page, result.and_then(|result| result.optional("NextMarker")))
        };
        self.pages(&self.0.endpoints.elb, action, parameters, "Marker", read).await
    }
}

/// Nothing where AWS says that there is nothing.
fn found_or_none<T>(found: Result<Option<T>, CallError>) -> Result<Option<T>, CallError> {
    match found {
        Err(error) if error.cause == super::Cause::NotFound => Ok(None),
        other => other,
    }
}

fn checked(parameters: Parameters, check: &HealthCheck) -> Parameters {
    parameters
        .set("HealthCheckEnabled", true)
        .set("HealthCheckProtocol", &check.protocol)
        .set("HealthCheckPort", &check.port)
        .set_some("HealthCheckPath", check.path.as_ref())
        .set("HealthCheckTimeoutSeconds", check.timeout)
        .set("HealthyThresholdCount", check.healthy)
        .set("UnhealthyThresholdCount", check.unhealthy)
}

fn listening(parameters: Parameters, new: &NewListener) -> Parameters {
    parameters
        .set("Port", new.port)
        .set("Protocol", &new.protocol)
        .set("DefaultActions.member.1.Type", "forward")
        .set("DefaultActions.member.1.TargetGroupArn", &new.target_group)
        .set_some("Certificates.member.1.CertificateArn", new.certificate.as_ref())
        .set_some("SslPolicy", new.policy.as_ref())
        .list("AlpnPolicy.member", &new.alpn)
}

fn load_balancer(element: &Element) -> LoadBalancer {
    LoadBalancer {
        arn: element.text("LoadBalancerArn"),
        name: element.text("LoadBalancerName"),
        dns_name: element.text("DNSName"),
        kind: element.text("Type"),
        scheme: element.text("Scheme"),
        vpc: element.text("VpcId"),
        state: element.child("State").map(|state| state.text("Code")).unwrap_or_default(),
        ip_address_type: element.text("IpAddressType"),
        subnets: element.list("AvailabilityZones").map(|zone| zone.text("SubnetId")).collect(),
        addresses: element
            .list("AvailabilityZones")
            .flat_map(|zone| zone.list("LoadBalancerAddresses"))
            .flat_map(|found| [found.optional("AllocationId"), found.optional("PrivateIPv4Address")])
            .flatten()
            .collect(),
        groups: element.list("SecurityGroups").map(Element::content).collect(),
    }
}

fn target_group(element: &Element) -> TargetGroup {
    let number = |name| element.text(name).parse().unwrap_or_default();
    TargetGroup {
        arn: element.text("TargetGroupArn"),
        name: element.text("TargetGroupName"),
        protocol: element.text("Protocol"),
        port: element.text("Port").parse().unwrap_or_default(),
        vpc: element.text("VpcId"),
        kind: element.text("TargetType"),
        ip_address_type: element.optional("IpAddressType").unwrap_or_else(|| "ipv4".to_owned()),
        health_check: HealthCheck {
            protocol: element.text("HealthCheckProtocol"),
            port: element.text("HealthCheckPort"),
            path: element.optional("HealthCheckPath"),
            interval: number("HealthCheckIntervalSeconds"),
            timeout: number("HealthCheckTimeoutSeconds"),
            healthy: number("HealthyThresholdCount"),
            unhealthy: number("UnhealthyThresholdCount"),
        },
        load_balancers: element.list("LoadBalancerArns").map(Element::content).collect(),
    }
}

fn listener(element: &Element) -> Listener {
    let forward = element.list("DefaultActions").next();
    let certificate = element.list("Certificates").next();
    Listener {
        arn: element.text("ListenerArn"),
        port: element.text("Port").parse().unwrap_or_default(),
        protocol: element.text("Protocol"),
        target_group: forward.and_then(|action| action.optional("TargetGroupArn")),
        certificate: certificate.and_then(|certificate| certificate.optional("CertificateArn")),
        policy: element.optional("SslPolicy"),
        alpn: element.list("AlpnPolicy").next().map(Element::content).filter(|policy| !policy.is_empty()),
    }
}
