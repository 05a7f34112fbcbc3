//! What is called of EC2.

use std::collections::BTreeMap;

use portcullis_core::{Cidr, Direction, Family};

use super::{CallError, Client, Element, Parameters};
use crate::model::{Instance, Peer, Permission, Permissions, RouteTable, SecurityGroup, Subnet, Tags};

/// Which objects of EC2 are looked for: a filter's name and any of its values.
pub(crate) type Filters<'a> = &'a [(&'a str, &'a [String])];

fn filtered(filters: Filters<'_>) -> Parameters {
    let filters = filters.iter().enumerate();
    filters.fold(Parameters::default(), |parameters, (place, (name, values))| {
        parameters.filter(place + 1, name, *values)
    })
}

impl Client {
    /// Groups by filters, with their rules.
    pub(crate) async fn security_groups(
        &self,
        filters: Filters<'_>,
    ) -> Result<Vec<SecurityGroup>, CallError> {
        let parameters = filtered(filters).set("MaxResults", 1000);
        let read = |answer: &Element| answer.list("securityGroupInfo").map(security_group).collect();
        self.ec2_pages("DescribeSecurityGroups", parameters, read).await
    }

    pub(crate) async fn create_security_group(
        &self,
        name: &str,
        description: &str,
        vpc: &str,
        tags: &Tags,
    ) -> Result<String, CallError> {
        let parameters = Parameters::default()
            .set("GroupName", name)
            .set("GroupDescription", description)
            .set("VpcId", vpc);
        let parameters = tagged(parameters, "security-group", tags);
        let answer = self.ec2("CreateSecurityGroup", &parameters).await?;
        answer
            .optional("groupId")
            .ok_or_else(|| CallError::unavailable("CreateSecurityGroup", "the answer has no group"))
    }

    pub(crate) async fn delete_security_group(&self, id: &str) -> Result<(), CallError> {
        self.ec2("DeleteSecurityGroup", &Parameters::default().set("GroupId", id)).await.map(drop)
    }

    /// Adds rules to a group, or takes them away.
    pub(crate) async fn change_permissions(
        &self,
        group: &str,
        direction: Direction,
        add: bool,
        permissions: &Permissions,
    ) -> Result<(), CallError> {
        let action = match (direction, add) {
            (Direction::Ingress, true) => "AuthorizeSecurityGroupIngress",
            (Direction::Ingress, false) => "RevokeSecurityGroupIngress",
            (Direction::Egress, true) => "AuthorizeSecurityGroupEgress",
            (Direction::Egress, false) => "RevokeSecurityGroupEgress",
        };
        self.ec2(action, &all_permitted(group, permissions)).await.map(drop)
    }

    /// Writes other descriptions on rules that let in.
    pub(crate) async fn describe_permissions(
        &self,
        group: &str,
        permissions: &Permissions,
    ) -> Result<(), CallError> {
        let action = "UpdateSecurityGroupRuleDescriptionsIngress";
        self.ec2(action, &all_permitted(group, permissions)).await.map(drop)
    }

    pub(crate) async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), CallError> {
        let parameters = Parameters::default().list("ResourceId", ids).pairs("Tag", ["Key", "Value"], tags);
        self.ec2("CreateTags", &parameters).await.map(drop)
    }

    pub(crate) async fn delete_tags(&self, id: &str, keys: &[String]) -> Result<(), CallError> {
        let mut parameters = Parameters::default().set("ResourceId.1", id);
        for (place, key) in keys.iter().enumerate() {
            parameters = parameters.set(format!("Tag.{}.Key", place + 1), key);
        }
        self.ec2("DeleteTags", &parameters).await.map(drop)
    }

    pub(crate) async fn subnets(&self, filters: Filters<'_>) -> Result<Vec<Subnet>, CallError> {
        let parameters = filtered(filters).set("MaxResults", 1000);
        let read = |answer: &Element| answer.list("subnetSet").map(subnet).collect();
        self.ec2_pages("DescribeSubnets", parameters, read).await
    }

    pub(crate) async fn route_tables(&self, vpc: &str) -> Result<Vec<RouteTable>, CallError> {
        let parameters = filtered(&[("vpc-id", &[vpc.to_owned()])]).set("MaxResults", 100);
        let read = |answer: &Element| answer.list("routeTableSet").map(route_table).collect();
        self.ec2_pages("DescribeRouteTables", parameters, read).await
    }

    /// Machines by filters.
    pub(crate) async fn instances(&self, filters: Filters<'_>) -> Result<Vec<Instance>, CallError> {
        let parameters = filtered(filters).set("MaxResults", 1000);
        let read = |answer: &Element| {
            let reservations = answer.list("reservationSet");
            reservations.flat_map(|reservation| reservation.list("instancesSet").map(instance)).collect()
        };
        self.ec2_pages("DescribeInstances", parameters, read).await
    }

    /// The VPC of the first of these machines that is there, by what Kubernetes knows them by.
    pub async fn vpc_of<'a>(
        &self,
        references: impl Iterator<Item = &'a str>,
    ) -> Result<Option<String>, CallError> {
        let ids: Vec<String> =
            references.filter_map(crate::nlb::instance_id).take(200).map(str::to_owned).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let found = self.instances(&[("instance-id", &ids)]).await?;
        Ok(found.into_iter().map(|found| found.vpc).find(|vpc| !vpc.is_empty()))
    }

    async fn ec2_pages<T>(
        &self,
        action: &'static str,
        parameters: Parameters,
        read: impl Fn(&Element) -> Vec<T>,
    ) -> Result<Vec<T>, CallError> {
        let read = |answer: &Element| (read(answer), answer.optional("nextToken"));
        self.pages(&self.0.endpoints.ec2, action, parameters, "NextToken", read).await
    }

    async fn ec2(&self, action: &'static str, parameters: &Parameters) -> Result<Element, CallError> {
        self.call(&self.0.endpoints.ec2, action, parameters).await
    }
}

fn tagged(parameters: Parameters, kind: &str, tags: &Tags) -> Parameters {
    if tags.is_empty() {
        return parameters;
    }
    parameters.set("TagSpecification.1.ResourceType", kind).pairs(
        "TagSpecification.1.Tag",
        ["Key", "Value"],
        tags,
    )
}

fn all_permitted(group: &str, permissions: &Permissions) -> Parameters {
    let mut parameters = Parameters::default().set("GroupId", group);
    for (place, (permission, description)) in permissions.iter().enumerate() {
        let description = Some(description).filter(|description| !description.is_empty());
        parameters = permitted(parameters, place + 1, permission, description);
    }
    parameters
}

fn permitted(
    parameters: Parameters,
    place: usize,
    permission: &Permission,
    description: Option<&String>,
) -> Parameters {
    let start = format!("IpPermissions.{place}");
    let (list, key, value) = match &permission.peer {
        Peer::Range(range) if range.family() == Family::V4 => ("IpRanges", "CidrIp", range.to_string()),
        Peer::Range(range) => ("Ipv6Ranges", "CidrIpv6", range.to_string()),
        Peer::Group(id) => ("Groups", "GroupId", id.clone()),
        Peer::PrefixList(id) => ("PrefixListIds", "PrefixListId", id.clone()),
    };
    parameters
        .set(format!("{start}.IpProtocol"), &permission.protocol)
        .set_some(&format!("{start}.FromPort"), permission.from)
        .set_some(&format!("{start}.ToPort"), permission.to)
        .set(format!("{start}.{list}.1.{key}"), value)
        .set_some(&format!("{start}.{list}.1.Description"), description)
}

fn tags(element: &Element) -> Tags {
    element.pairs("tagSet", "key", "value")
}

fn security_group(element: &Element) -> SecurityGroup {
    SecurityGroup {
        id: element.text("groupId"),
        name: element.text("groupName"),
        description: element.text("groupDescription"),
        vpc: element.text("vpcId"),
        tags: tags(element),
        ingress: permissions(element, "ipPermissions"),
        egress: permissions(element, "ipPermissionsEgress"),
    }
}

/// AWS joins rules of the same ports; each of them is one again here.
fn permissions(element: &Element, list: &str) -> Permissions {
    let mut all = BTreeMap::new();
    for joined in element.list(list) {
        let number = |name| joined.optional(name).and_then(|text| text.parse().ok());
        let protocol = joined.text("ipProtocol");
        let (from, to) = if protocol == "-1" { (None, None) } else { (number("fromPort"), number("toPort")) };
        let range = |text: &str| text.parse().ok().map(Peer::Range);
        for (list, key) in [
            ("ipRanges", "cidrIp"),
            ("ipv6Ranges", "cidrIpv6"),
            ("groups", "groupId"),
            ("prefixListIds", "prefixListId"),
        ] {
            for entry in joined.list(list) {
                let peer = match list {
                    "groups" => Some(Peer::Group(entry.text(key))),
                    "prefixListIds" => Some(Peer::PrefixList(entry.text(key))),
                    _ => range(&entry.text(key)),
                };
                // What is no range is nothing that we could have written, nor take away.
                if let Some(peer) = peer {
                    let permission = Permission { protocol: protocol.clone(), from, to, peer };
                    all.insert(permission, entry.text("description"));
                }
            }
        }
    }
    all
}

fn subnet(element: &Element) -> Subnet {
    let range = |text: String| text.parse::<Cidr>().ok();
    let ranges6 = element
        .list("ipv6CidrBlockAssociationSet")
        .filter(|entry| {
            let state =
                entry.child("ipv6CidrBlockState").map(|state| state.text("state")).unwrap_or_default();
            // The simulator writes more around the word.
            !["associating", "disassociating", "disassociated", "failing", "failed"].contains(&state.as_str())
        })
        .filter_map(|entry| range(entry.text("ipv6CidrBlock")));
    Subnet {
        id: element.text("subnetId"),
        vpc: element.text("vpcId"),
        zone: element.text("availabilityZone"),
        range: range(element.text("cidrBlock")),
        ranges6: ranges6.collect(),
        tags: tags(element),
    }
}

fn route_table(element: &Element) -> RouteTable {
    let associations = || element.list("associationSet");
    RouteTable {
        id: element.text("routeTableId"),
        vpc: element.text("vpcId"),
        main: associations().any(|association| association.text("main") == "true"),
        subnets: associations().filter_map(|association| association.optional("subnetId")).collect(),
        public: element.list("routeSet").any(|route| route.text("gatewayId").starts_with("igw")),
    }
}

fn instance(element: &Element) -> Instance {
    Instance {
        id: element.text("instanceId"),
        vpc: element.text("vpcId"),
        state: element.child("instanceState").map(|state| state.text("name")).unwrap_or_default(),
        groups: element.list("groupSet").map(|group| group.text("groupId")).collect(),
    }
}
