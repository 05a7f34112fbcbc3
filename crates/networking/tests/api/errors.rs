//! What is refused, in Neutron's words: clients tell errors apart by their type, and people read the message.

use std::collections::BTreeMap;

use axum::body::Body;
use serde_json::{Value, json};

use crate::client::{Api, User, id, shared};

/// A project with something of everything, much of it in use.
struct Scene {
    /// `{name}` in a request or a message stands for one of these.
    names: BTreeMap<&'static str, String>,
    admin: User,
    user: User,
}

impl Scene {
    fn new() -> Self {
        let api = Api::start();
        let (admin, user, other) = (api.admin(), api.user("member"), api.user("member"));
        let mut names = BTreeMap::new();
        names.insert("nobody", uuid::Uuid::new_v4().to_string());
        names.insert("project", user.project.clone());
        names.insert("other", other.project.clone());

        let outside = id(&admin.make("networks", "network", json!({"router:external": true})));
        names.insert("outside_subnet", admin.subnet(&outside, "192.0.2.0/24"));
        names.insert("outside_six", admin.subnet(&outside, "2001:db8::/64"));
        let way_six = id(&admin.make("networks", "network", json!({"router:external": true})));
        admin.subnet(&way_six, "2001:db8:6::/64");
        names.insert("way_six", way_six);
        names.insert("strange", id(&other.make("routers", "router", json!({"name": "theirs"}))));
        let network = user.network();
        let subnet = user.subnet(&network, "10.0.0.0/24");
        let router = json!({"name": "r", "external_gateway_info": {"network_id": outside}});
        let router = id(&user.make("routers", "router", router));
        let path = format!("routers/{router}/add_router_interface");
        let door = user.put(&path, json!({ "subnet_id": subnet })).body["port_id"].clone();
        names.insert("door", door.as_str().unwrap().to_owned());
        let group = user.group("web");
        let port = id(&user.port(json!({
            "network_id": network, "security_groups": [group], "mac_address": "fa:16:3e:00:00:05",
            "fixed_ips": [{"ip_address": "10.0.0.5"}]
        })));
        let floating = json!({"floating_network_id": outside, "port_id": port});
        let floating = user.make("floatingips", "floatingip", floating);
        names.insert("floating_ip", floating["floating_ip_address"].as_str().unwrap().to_owned());
        names.insert("floating", id(&floating));
        let open = user.port(json!({"network_id": network, "port_security_enabled": false, "fixed_ips": []}));
        names.insert("open", id(&open));
        names.insert("bound", id(&user.port(json!({"network_id": network, "device_id": "vm"}))));
        names.insert(
            "two",
            id(&user.port(json!({
                "network_id": network, "fixed_ips": [{"ip_address": "10.0.0.21"}, {"ip_address": "10.0.0.22"}]
            }))),
        );
        let bind = json!({"port": {"binding:host_id": "node"}});
        assert_eq!(admin.put(&format!("ports/{}", names["bound"]), bind).status, 200);

        elsewhere(&user, &mut names);
        let addresses = groups(&user, &group, &mut names);
        let policy = json!({
            "object_type": "network", "object_id": network, "action": "access_as_shared",
            "target_tenant": other.project
        });
        names.insert("policy", id(&user.make("rbac-policies", "rbac_policy", policy)));
        other.port(json!({"network_id": network, "fixed_ips": [{"subnet_id": subnet}]}));
        let public = id(&admin.make("networks", "network", json!({"shared": true})));
        other.port(json!({ "network_id": public }));
        for resource in ["router", "floatingip", "network", "subnet", "port", "security_group", "rbac_policy"]
        {
            let none = json!({"quota": {resource: 0, "force": true}});
            let reply = admin.put(&format!("quotas/{}", other.project), none);
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
        for (name, id) in [
            ("outside", outside),
            ("network", network),
            ("subnet", subnet),
            ("router", router),
            ("public", public),
            ("group", group),
            ("port", port),
            ("addresses", addresses),
        ] {
            names.insert(name, id);
        }
        Scene { names, admin, user }
    }

    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, id) in &self.names {
            text = text.replace(&format!("{{{name}}}"), id);
        }
        text
    }

    /// What is wrong about the answer to a request, which changes nothing.
    fn complaint(&self, request: &str, (status, kind, message): (u16, &str, &str)) -> Option<String> {
        let filled = self.filled(request);
        let (user, filled) = match filled.strip_prefix("admin: ") {
            Some(rest) => (&self.admin, rest),
            None => (&self.user, &*filled),
        };
        let mut parts = filled.splitn(3, ' ');
        let (method, path) = (parts.next().unwrap(), parts.next().unwrap());
        let body = parts.next().unwrap_or_default().to_owned();
        let sign = if path.contains('?') { '&' } else { '?' };
        let dry = if method == "GET" { String::new() } else { format!("{sign}dry_run=1") };
        let reply = user.send(method, &format!("{path}{dry}"), body);
        // Where Neutron says a lot, or something else, the type is what counts.
        let message = if message.is_empty() { reply.message().to_owned() } else { self.filled(message) };
        let expected = json!({"NeutronError": {"type": kind, "message": message, "detail": ""}});
        let is = (reply.status.as_u16(), &reply.body);
        (is != (status, &expected))
            .then(|| format!("{request}\n  {status} {expected}, and is\n  {} {}", is.0, is.1))
    }
}

/// Routers and networks beside those that most requests are about.
fn elsewhere(user: &User, names: &mut BTreeMap<&'static str, String>) {
    // A router that only a route needs, and one that nothing needs.
    let far = user.network();
    let (far_subnet, beyond) = (user.subnet(&far, "10.7.0.0/24"), user.network());
    let beyond = user.subnet(&beyond, "10.8.0.0/24");
    let routed = id(&user.make("routers", "router", json!({"name": "routed"})));
    let path = format!("routers/{routed}/add_router_interface");
    assert_eq!(user.put(&path, json!({ "subnet_id": far_subnet })).status, 200);
    let routes = json!([{"destination": "10.99.0.0/16", "nexthop": "10.7.0.9"}]);
    assert_eq!(user.put(&format!("routers/{routed}"), json!({"router": {"routes": routes}})).status, 200);
    let alone = id(&user.port(json!({"network_id": far})));

    // One address, which is taken; and a subnet for others.
    let full = user.network();
    let pool = json!([{"start": "10.5.0.2", "end": "10.5.0.2"}]);
    let subnet_full = json!({
        "network_id": full, "ip_version": 4, "cidr": "10.5.0.0/24", "allocation_pools": pool
    });
    user.make("subnets", "subnet", subnet_full);
    user.port(json!({ "network_id": full }));
    let special = user.network();
    let subnet_special = json!({
        "network_id": special, "ip_version": 4, "cidr": "10.6.0.0/24", "service_types": ["compute:nova"]
    });
    user.make("subnets", "subnet", subnet_special);
    let six = user.network();
    user.subnet(&six, "fd00::/64");
    for (name, id) in [
        ("routed", routed),
        ("far", far),
        ("far_subnet", far_subnet),
        ("beyond", beyond),
        ("alone", alone),
        ("full", full),
        ("special", special),
        ("six", six),
    ] {
        names.insert(name, id);
    }
}

/// Groups beside the one that is used, and an address group that one of its rules uses.
fn groups(user: &User, group: &str, names: &mut BTreeMap<&'static str, String>) -> String {
    let stateless = json!({"name": "stateless", "stateful": false});
    names.insert("stateless", id(&user.make("security-groups", "security_group", stateless)));
    names.insert("free", user.group("free"));
    let default = user.get("security-groups?name=default");
    names.insert("default", id(&default["security_groups"][0]));
    let addresses = json!({"name": "a", "addresses": ["192.0.2.0/24"]});
    let addresses = id(&user.make("address-groups", "address_group", addresses));
    let rule = json!({
        "security_group_id": group, "direction": "ingress", "protocol": "tcp", "port_range_min": 22,
        "port_range_max": 22, "remote_address_group_id": addresses
    });
    names.insert("rule", user.rule(rule));
    addresses
}

/// What a rule cannot be: its attributes, the type and the message.
#[rustfmt::skip]
const RULES: &[(&str, &str, &str)] = &[
    (r#""direction": "foo""#, "HTTPBadRequest", "Invalid input for direction. Reason: foo is not in valid_values."),
    (r#""protocol": "foo""#, "SecurityGroupRuleInvalidProtocol", INVALID_PROTOCOL),
    (r#""protocol": 256"#, "SecurityGroupRuleInvalidProtocol", ""),
    (r#""protocol": "-1""#, "SecurityGroupRuleInvalidProtocol", ""),
    (r#""protocol": "tcp", "port_range_min": 90, "port_range_max": 80"#, "SecurityGroupInvalidPortRange",
     "For TCP/UDP protocols, port_range_min must be <= port_range_max"),
    (r#""protocol": "tcp", "port_range_min": 22"#, "SecurityGroupInvalidPortRange",
     "For TCP/UDP protocols, port_range_min must be <= port_range_max"),
    (r#""protocol": "udp", "port_range_max": 22"#, "SecurityGroupInvalidPortRange",
     "For TCP/UDP protocols, port_range_min must be <= port_range_max"),
    (r#""protocol": "tcp", "port_range_min": 0, "port_range_max": 80"#, "SecurityGroupInvalidPortValue", "Invalid value for port 0"),
    (r#""protocol": "tcp", "port_range_min": 80, "port_range_max": 70000"#, "SecurityGroupInvalidPortValue", "Invalid value for port 70000"),
    (r#""port_range_min": 22, "port_range_max": 22"#, "SecurityGroupProtocolRequiredWithPorts",
     "Must also specify protocol if port range is given."),
    (r#""protocol": "vrrp", "port_range_min": 22, "port_range_max": 22"#, "SecurityGroupInvalidProtocolForPort",
     "Ports cannot be specified for protocol vrrp. Ports are only supported for DCCP, SCTP, TCP, UDP, UDPLITE."),
    (r#""protocol": "icmp", "port_range_min": 256"#, "SecurityGroupInvalidIcmpValue",
     "Invalid value for ICMP type (port_range_min) 256. It must be 0 to 255."),
    (r#""protocol": "icmp", "port_range_min": 3, "port_range_max": 256"#, "SecurityGroupInvalidIcmpValue",
     "Invalid value for ICMP code (port_range_max) 256. It must be 0 to 255."),
    (r#""protocol": "icmp", "port_range_min": -1"#, "SecurityGroupInvalidPortValue", "Invalid value for port -1"),
    (r#""port_range_min": 70000"#, "SecurityGroupInvalidPortValue", "Invalid value for port 70000"),
    (r#""protocol": "icmp", "port_range_max": 0"#, "SecurityGroupMissingIcmpType",
     "ICMP code (port-range-max) 0 is provided but ICMP type (port-range-min) is missing."),
    (r#""protocol": "icmpv6""#, "SecurityGroupEthertypeConflictWithProtocol", "Invalid ethertype IPv4 for protocol icmpv6."),
    (r#""protocol": "ipv6-icmp", "ethertype": "IPv4""#, "SecurityGroupEthertypeConflictWithProtocol",
     "Invalid ethertype IPv4 for protocol ipv6-icmp."),
    (r#""ethertype": "IPv5""#, "SecurityGroupRuleInvalidEtherType",
     "Security group rule for ethertype 'IPv5' not supported. Allowed values are ['IPv4', 'IPv6']."),
    (r#""remote_ip_prefix": "fd00::/8""#, "SecurityGroupRuleParameterConflict", "Conflicting value ethertype IPv4 for CIDR fd00::/8"),
    (r#""remote_ip_prefix": "10.0.0.0/8", "ethertype": "IPv6""#, "SecurityGroupRuleParameterConflict",
     "Conflicting value ethertype IPv6 for CIDR 10.0.0.0/8"),
    (r#""remote_ip_prefix": "x""#, "InvalidCIDR", "Invalid CIDR x given as IP prefix."),
    (r#""remote_ip_prefix": "10.0.0.0/33""#, "InvalidCIDR", "Invalid CIDR 10.0.0.0/33 given as IP prefix."),
    (r#""remote_ip_prefix": "10.0.0.0/8", "remote_group_id": "{group}""#, "SecurityGroupMultipleRemoteEntites",
     "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided."),
    (r#""foo": 1"#, "HTTPBadRequest", "Unrecognized attribute(s) 'foo'"),
    (r#""id": "{nobody}""#, "HTTPBadRequest", "Attribute 'id' not allowed in POST"),
    (r#""security_group_id": "x""#, "HTTPBadRequest", "Invalid input for security_group_id. Reason: 'x' is not a valid UUID."),
];

const INVALID_PROTOCOL: &str = "Security group rule protocol foo not supported. Only protocol values ['ah', 'dccp', 'egp', \
    'esp', 'gre', 'icmp', 'icmpv6', 'igmp', 'ipip', 'ipv6-encap', 'ipv6-frag', 'ipv6-icmp', 'ipv6-nonxt', 'ipv6-opts', \
    'ipv6-route', 'ospf', 'pgm', 'rsvp', 'sctp', 'tcp', 'udp', 'udplite', 'vrrp'] and integer representations [0 to 255] are \
    supported.";

/// What else is refused: the request, the status, the type and the message.
#[rustfmt::skip]
const TABLE: &[(&str, u16, &str, &str)] = &[
    // Requests.
    ("GET nothing", 404, "HTTPNotFound", "The resource could not be found."),
    ("DELETE networks", 405, "HTTPMethodNotAllowed", "This cannot be done to networks."),
    ("POST networks {", 400, "HTTPBadRequest", "Body contains invalid data"),
    ("POST networks []", 400, "HTTPBadRequest", "Body contains invalid data"),
    ("POST networks {}", 400, "HTTPBadRequest", "Unable to find 'network' in request body"),
    (r#"POST networks {"network": []}"#, 400, "HTTPBadRequest", "Object 'network' contains invalid data"),
    (r#"POST networks {"networks": []}"#, 400, "HTTPBadRequest", "Resources required"),
    (r#"POST networks {"network": {"foo": 1}}"#, 400, "HTTPBadRequest", "Unrecognized attribute(s) 'foo'"),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{group}"}}"#, 400, "HTTPBadRequest",
     "Failed to parse request. Required attribute 'direction' not specified"),
    (r#"PUT security-groups/{group} {"security_group": {"id": "{nobody}"}}"#, 400, "HTTPBadRequest", "Cannot update read-only attribute id"),
    ("GET networks?foo=1", 400, "HTTPBadRequest", "['foo'] is invalid attribute for filtering"),
    ("GET networks?sort_key=foo&sort_dir=asc", 400, "HTTPBadRequest", "['foo'] is invalid attribute for sort_keys"),
    ("GET networks?sort_key=id", 400, "HTTPBadRequest", "The number of sort_keys and sort_dirs must be same"),
    (r#"POST networks {"network": {"shared": true}}"#, 403, "PolicyNotAuthorized", "rule:create_network:shared is disallowed by policy"),

    // What is not there.
    ("GET networks/{nobody}", 404, "NetworkNotFound", "Network {nobody} could not be found."),
    ("GET networks/x", 404, "NetworkNotFound", "Network x could not be found."),
    ("GET subnets/{nobody}", 404, "SubnetNotFound", "Subnet {nobody} could not be found."),
    ("DELETE ports/{nobody}", 404, "PortNotFound", "Port {nobody} could not be found."),
    ("GET routers/{nobody}", 404, "RouterNotFound", "Router {nobody} could not be found"),
    ("GET floatingips/{nobody}", 404, "FloatingIPNotFound", "Floating IP {nobody} could not be found"),
    ("GET security-groups/{nobody}", 404, "SecurityGroupNotFound", "Security group {nobody} does not exist"),
    ("GET security-group-rules/{nobody}", 404, "SecurityGroupRuleNotFound", "Security group rule {nobody} does not exist"),
    ("GET address-groups/{nobody}", 404, "AddressGroupNotFound", "Address group {nobody} could not be found."),
    ("GET default-security-group-rules/{nobody}", 404, "DefaultSecurityGroupRuleNotFound", "Default Security Group rule {nobody} does not exist"),
    ("GET rbac-policies/{nobody}", 404, "RbacPolicyNotFound", "RBAC policy of type unknown with ID {nobody} not found"),
    ("GET extensions/x", 404, "ExtensionsNotFound", "Extensions not found: extension=x."),
    ("GET networks/{network}/tags/x", 404, "TagNotFound", "Tag x could not be found."),
    ("admin: DELETE quotas/{nobody}", 404, "TenantQuotaNotFound", "Quota for project {nobody} could not be found."),

    // Groups and their rules.
    (r#"POST security-groups {"security_group": {"name": "Default"}}"#, 409, "SecurityGroupDefaultAlreadyExists", "Default security group already exists."),
    (r#"PUT security-groups/{group} {"security_group": {"name": "DEFAULT"}}"#, 409, "SecurityGroupDefaultAlreadyExists", "Default security group already exists."),
    (r#"PUT security-groups/{default} {"security_group": {"name": "x"}}"#, 409, "SecurityGroupCannotUpdateDefault", "Updating default security group not allowed."),
    ("DELETE security-groups/{group}", 409, "SecurityGroupInUse", "Security Group {group} in use."),
    (r#"PUT security-groups/{group} {"security_group": {"stateful": false}}"#, 409, "SecurityGroupInUse", "Security Group {group} in use."),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{nobody}", "direction": "ingress"}}"#, 404,
     "SecurityGroupNotFound", "Security group {nobody} does not exist"),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{group}", "direction": "ingress", "remote_group_id": "{nobody}"}}"#, 404,
     "SecurityGroupNotFound", "Security group {nobody} does not exist"),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{group}", "direction": "ingress", "remote_address_group_id": "{nobody}"}}"#, 404,
     "AddressGroupNotFound", "Address group {nobody} could not be found."),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{group}", "direction": "ingress", "protocol": "6", "port_range_min": 22, "port_range_max": 22, "remote_address_group_id": "{addresses}"}}"#,
     409, "SecurityGroupRuleExists", "Security group rule already exists. Rule id is {rule}."),
    (r#"POST security-group-rules {"security_group_rules": [{"security_group_id": "{group}", "direction": "ingress"}, {"security_group_id": "{group}", "direction": "ingress", "remote_ip_prefix": "0.0.0.0/0"}]}"#,
     409, "DuplicateSecurityGroupRuleInPost", "Duplicate Security Group Rule in POST."),
    (r#"POST security-group-rules {"security_group_rules": [{"security_group_id": "{group}", "direction": "ingress"}, {"security_group_id": "{free}", "direction": "ingress"}]}"#,
     400, "SecurityGroupNotSingleGroupRules", "Only allowed to update rules for one security profile at a time"),
    (r#"admin: POST default-security-group-rules {"default_security_group_rule": {"direction": "egress", "used_in_default_sg": true, "used_in_non_default_sg": true}}"#,
     409, "DefaultSecurityGroupRuleExists", ""),
    ("DELETE address-groups/{addresses}", 409, "AddressGroupInUse", "Address group {addresses} is in use on one or more security group rules."),
    (r#"PUT address-groups/{addresses}/add_addresses {"addresses": ["192.0.2.0/24"]}"#, 400, "AddressesAlreadyExist",
     "Addresses ['192.0.2.0/24'] already exist in the address group {addresses}."),
    (r#"PUT address-groups/{addresses}/remove_addresses {"addresses": ["10.0.0.0/8"]}"#, 404, "AddressesNotFound",
     "Addresses ['10.0.0.0/8'] not found in the address group {addresses}."),
    ("PUT address-groups/{addresses}/add_addresses {}", 400, "HTTPBadRequest", "Missing required attribute 'addresses'"),

    // Ports.
    (r#"POST ports {"port": {"network_id": "{nobody}"}}"#, 404, "NetworkNotFound", "Network {nobody} could not be found."),
    (r#"POST ports {"port": {"network_id": "{network}", "port_security_enabled": false, "security_groups": ["{group}"]}}"#, 400,
     "PortSecurityAndIPRequiredForSecurityGroups", "Port security must be enabled and port must have an IP address in order to use security groups."),
    (r#"PUT ports/{open} {"port": {"security_groups": ["{group}"]}}"#, 400,
     "PortSecurityAndIPRequiredForSecurityGroups", "Port security must be enabled and port must have an IP address in order to use security groups."),
    (r#"PUT ports/{port} {"port": {"port_security_enabled": false}}"#, 409, "PortSecurityPortHasSecurityGroup",
     "Port has security group associated. Cannot disable port security or IP address until security group is removed."),
    (r#"POST ports {"port": {"network_id": "{network}", "port_security_enabled": false, "allowed_address_pairs": [{"ip_address": "10.0.0.9"}]}}"#, 409,
     "AddressPairAndPortSecurityRequired", "Port Security must be enabled in order to have allowed address pairs on a port."),
    (r#"POST ports {"port": {"network_id": "{network}", "allowed_address_pairs": [{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.0.9"}]}}"#, 400,
     "DuplicateAddressPairInRequest", "Request contains duplicate address pair: mac_address None ip_address 10.0.0.9."),
    (r#"POST ports {"port": {"network_id": "{network}", "allowed_address_pairs": [{"ip_address": "1.0.0.1"}, {"ip_address": "1.0.0.2"}, {"ip_address": "1.0.0.3"}, {"ip_address": "1.0.0.4"}, {"ip_address": "1.0.0.5"}, {"ip_address": "1.0.0.6"}, {"ip_address": "1.0.0.7"}, {"ip_address": "1.0.0.8"}, {"ip_address": "1.0.0.9"}, {"ip_address": "1.0.0.10"}, {"ip_address": "1.0.0.11"}]}}"#,
     400, "AllowedAddressPairExhausted", "The number of allowed address pair exceeds the maximum 10."),
    (r#"PUT ports/{port} {"port": {"security_groups": ["{group}", "{stateless}"]}}"#, 409, "SecurityGroupConflict",
     "Error Cannot apply both stateful and stateless security groups on the same port at the same time while attempting the operation."),
    (r#"PUT ports/{port} {"port": {"security_groups": ["{nobody}"]}}"#, 404, "SecurityGroupNotFound", "Security group {nobody} does not exist"),
    (r#"POST ports {"port": {"network_id": "{network}", "mac_address": "fa:16:3e:00:00:05"}}"#, 409, "MacAddressInUse",
     "Unable to complete operation for network {network}. The mac address fa:16:3e:00:00:05 is in use."),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"ip_address": "10.0.0.5"}]}}"#, 409, "IpAddressAlreadyAllocated",
     "IP address 10.0.0.5 already allocated in subnet {subnet}"),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"ip_address": "10.9.0.5"}]}}"#, 400, "InvalidIpForNetwork",
     "IP address 10.9.0.5 is not a valid IP for any of the subnets on the specified network."),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"ip_address": "10.9.0.5", "subnet_id": "{subnet}"}]}}"#, 400, "InvalidIpForSubnet",
     "IP address 10.9.0.5 is not a valid IP for the specified subnet."),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"subnet_id": "{far_subnet}"}]}}"#, 400, "InvalidInput",
     "Invalid input for operation: Failed to create port on network {network}, because fixed_ips included invalid subnet {far_subnet}."),
    (r#"POST ports {"port": {"network_id": "{full}"}}"#, 409, "IpAddressGenerationFailure", "No more IP addresses available on network {full}."),
    (r#"POST ports {"port": {"network_id": "{special}"}}"#, 409, "IpAddressGenerationFailureNoMatchingSubnet",
     "No valid service subnet for the given device owner, network {special}, service type ."),
    ("DELETE ports/{door}", 409, "ServicePortInUse", "Port {door} cannot be deleted directly via the port API: has device owner network:router_interface."),
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "network:router_interface", "device_id": "{strange}"}}"#, 409,
     "DeviceIDNotOwnedByTenant", "The following device_id {strange} is not owned by your project or matches another project router."),
    (r#"PUT ports/{bound} {"port": {"mac_address": "fa:16:3e:00:00:77"}}"#, 409, "PortBound", ""),
    (r#"PUT ports/{port} {"port": {"fixed_ips": [{"ip_address": "10.0.0.66"}]}}"#, 400, "BadRequest",
     "Bad port request: Cannot update the fixed_ips of the port {port}, because its original fixed_ip has been associated to a floating ip."),

    // Networks and subnets.
    ("DELETE networks/{full}", 409, "NetworkInUse", ""),
    (r#"admin: PUT networks/{outside} {"network": {"router:external": false}}"#, 409, "ExternalNetworkInUse",
     "External network {outside} cannot be updated to be made non-external, since it has existing gateway ports."),
    (r#"admin: PUT networks/{public} {"network": {"shared": false}}"#, 409, "InvalidSharedSetting",
     "Unable to reconfigure sharing settings for network {public}. Multiple projects are using it."),
    (r#"POST networks {"network": {"mtu": 9000}}"#, 400, "InvalidInput", "Invalid input for operation: Requested MTU is too big, maximum is 1442."),
    (r#"PUT networks/{six} {"network": {"mtu": 1000}}"#, 409, "NetworkMTUSubnetConflict", "MTU of {six} is not valid, subnet requires a minimum of 1280"),
    (r#"admin: POST networks {"network": {"provider:network_type": "vlan", "provider:segmentation_id": 7}}"#, 400, "InvalidInput",
     "Invalid input for operation: provider:physical_network required for this type of network."),
    ("DELETE subnets/{subnet}", 409, "SubnetInUse",
     "Unable to complete operation on subnet {subnet}: One or more ports have an IP allocation from this subnet."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4}}"#, 400, "BadRequest",
     "Bad subnets request: a subnetpool must be specified in the absence of a cidr."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4, "cidr": "10.0.0.128/25"}}"#, 400, "InvalidInput",
     "Invalid input for operation: Requested subnet with cidr: 10.0.0.128/25 for network: {network} overlaps with another subnet."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 6, "cidr": "10.1.0.0/24"}}"#, 400, "InvalidInput",
     "Invalid input for operation: cidr '10.1.0.0/24' does not match the ip_version '6'."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4, "cidr": "10.1.0.0/24", "gateway_ip": "10.1.0.5", "allocation_pools": [{"start": "10.1.0.2", "end": "10.1.0.9"}]}}"#,
     409, "GatewayConflictWithAllocationPools", "Gateway ip 10.1.0.5 conflicts with allocation pool 10.1.0.2-10.1.0.9."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4, "cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.9", "end": "10.1.0.2"}]}}"#,
     400, "InvalidAllocationPool", "The allocation pool 10.1.0.9-10.1.0.2 is not valid."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4, "cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.2", "end": "10.2.0.2"}]}}"#,
     400, "OutOfBoundsAllocationPool", "The allocation pool 10.1.0.2-10.2.0.2 spans beyond the subnet cidr 10.1.0.0/24."),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "ip_version": 4, "cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.2", "end": "10.1.0.9"}, {"start": "10.1.0.9", "end": "10.1.0.10"}]}}"#,
     409, "OverlappingAllocationPools", "Found overlapping allocation pools: 10.1.0.2-10.1.0.9 10.1.0.9-10.1.0.10 for subnet 10.1.0.0/24."),
    (r#"PUT subnets/{subnet} {"subnet": {"dns_nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5", "1.1.1.6"]}}"#, 400, "DNSNameServersExhausted",
     "Unable to complete operation for {subnet}. The number of DNS nameservers exceeds the limit 5."),
    (r#"PUT subnets/{subnet} {"subnet": {"service_types": ["x"]}}"#, 400, "InvalidSubnetServiceType", "Subnet service type x does not correspond to a valid device owner."),
    (r#"PUT subnets/{subnet} {"subnet": {"gateway_ip": "10.0.0.254"}}"#, 409, "GatewayIpInUse",
     "Current gateway ip 10.0.0.1 already in use by port {door}. Unable to update."),

    // Routers.
    ("DELETE routers/{router}", 409, "RouterInUse", "Router {router} has ports still attached: {door}"),
    ("PUT routers/{router}/add_router_interface {}", 400, "BadRequest", "Bad router request: Either subnet_id or port_id must be specified."),
    (r#"PUT routers/{router}/add_router_interface {"subnet_id": "{nobody}"}"#, 404, "SubnetNotFound", "Subnet {nobody} could not be found."),
    (r#"PUT routers/{router}/add_router_interface {"subnet_id": "{subnet}"}"#, 400, "BadRequest", "Bad router request: Router already has a port on subnet {subnet}."),
    (r#"PUT routers/{router}/add_router_interface {"port_id": "{bound}"}"#, 409, "PortInUse",
     "Unable to complete operation on port {bound} for network {network}. Port already has an attached device vm."),
    (r#"PUT routers/{router}/remove_router_interface {"port_id": "{port}"}"#, 404, "RouterInterfaceNotFound", "Router {router} does not have an interface with id {port}"),
    (r#"PUT routers/{router}/remove_router_interface {"subnet_id": "{beyond}"}"#, 404, "RouterInterfaceNotFoundForSubnet",
     "Router {router} has no interface on subnet {beyond}"),
    (r#"PUT routers/{router}/remove_router_interface {"port_id": "{door}", "subnet_id": "{beyond}"}"#, 400, "SubnetMismatchForPort",
     "Subnet on port {door} does not match the requested subnet {beyond}."),
    (r#"PUT routers/{router}/remove_router_interface {"subnet_id": "{subnet}"}"#, 409, "RouterInterfaceInUseByFloatingIP",
     "Router interface for subnet {subnet} on router {router} cannot be deleted, as it is required by one or more floating IPs."),
    (r#"PUT routers/{routed}/remove_router_interface {"subnet_id": "{far_subnet}"}"#, 409, "RouterInterfaceInUseByRoute",
     "Router interface for subnet {far_subnet} on router {routed} cannot be deleted, as it is required by one or more routes."),
    (r#"PUT routers/{router} {"router": {"external_gateway_info": null}}"#, 409, "RouterExternalGatewayInUseByFloatingIp",
     "Gateway cannot be updated for router {router}, since a gateway to external network {outside} is required by one or more floating IPs."),
    (r#"PUT routers/{router} {"router": {"external_gateway_info": {"network_id": "{network}"}}}"#, 400, "BadRequest",
     "Bad router request: Network {network} is not an external network."),
    (r#"PUT routers/{router} {"router": {"routes": [{"destination": "10.9.0.0/16", "nexthop": "172.16.0.1"}]}}"#, 400, "InvalidRoutes", ""),
    (r#"PUT routers/{router} {"router": {"external_gateway_info": {"network_id": "{outside}", "enable_snat": false}}}"#, 403, "PolicyNotAuthorized",
     "rule:update_router:external_gateway_info:enable_snat is disallowed by policy"),

    // Floating addresses.
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{network}"}}"#, 400, "BadRequest",
     "Bad floatingip request: Network {network} is not a valid external network."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{nobody}"}}"#, 404, "NetworkNotFound", "Network {nobody} could not be found."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "port_id": "{alone}"}}"#, 404, "ExternalGatewayForFloatingIPNotFound",
     "External network {outside} is not reachable from subnet {far_subnet}.  Therefore, cannot associate Port {alone} with a Floating IP."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "port_id": "{open}"}}"#, 400, "BadRequest",
     "Bad floatingip request: Cannot add floating IP to port {open} that has no fixed IPv4 addresses."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "port_id": "{two}"}}"#, 400, "BadRequest",
     "Bad floatingip request: Port {two} has multiple fixed IPv4 addresses. Must provide a specific IPv4 address when assigning a floating IP."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "fixed_ip_address": "10.0.0.5"}}"#, 400, "BadRequest",
     "Bad floatingip request: fixed_ip_address cannot be specified without a port_id."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "port_id": "{port}"}}"#, 409, "FloatingIPPortAlreadyAssociated", ""),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "port_id": "{two}", "fixed_ip_address": "10.0.0.21", "router_id": "{routed}"}}"#, 409,
     "Conflict", "Router {routed} has no external gateway on network {outside}."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{way_six}"}}"#, 400, "BadRequest",
     "Bad floatingip request: Network {way_six} does not contain any IPv4 subnet."),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "subnet_id": "{outside_six}"}}"#, 400, "ExternalIpAddressExhausted",
     "Unable to find any IP address on external network {outside}."),
    (r#"admin: POST floatingips {"floatingip": {"floating_network_id": "{outside}", "floating_ip_address": "{floating_ip}"}}"#, 409, "IpAddressAlreadyAllocated",
     "IP address {floating_ip} already allocated in subnet {outside_subnet}"),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "floating_ip_address": "192.0.2.77"}}"#, 403, "PolicyNotAuthorized",
     "rule:create_floatingip:floating_ip_address is disallowed by policy"),

    // Sharing and quotas.
    (r#"POST rbac-policies {"rbac_policy": {"object_type": "network", "object_id": "{network}", "action": "access_as_shared", "target_tenant": "{other}"}}"#, 409,
     "DuplicateRbacPolicy", "An RBAC policy already exists with those values."),
    (r#"POST rbac-policies {"rbac_policy": {"object_type": "security_group", "object_id": "{group}", "action": "access_as_external", "target_tenant": "{other}"}}"#, 400,
     "InvalidActionForType", "Invalid action 'access_as_external' for object type 'security_group'. Valid actions: access_as_shared"),
    ("DELETE rbac-policies/{policy}", 409, "RbacPolicyInUse", ""),
    (r#"admin: POST routers {"router": {"project_id": "{other}"}}"#, 409, "OverQuota", "Quota exceeded for resources: ['router']."),
    (r#"admin: POST networks {"network": {"project_id": "{other}"}}"#, 409, "OverQuota", "Quota exceeded for resources: ['network']."),
    (r#"admin: POST subnets {"subnet": {"project_id": "{other}", "network_id": "{network}", "ip_version": 4, "cidr": "10.1.0.0/24"}}"#, 409, "OverQuota",
     "Quota exceeded for resources: ['subnet']."),
    (r#"admin: POST ports {"port": {"project_id": "{other}", "network_id": "{network}"}}"#, 409, "OverQuota", "Quota exceeded for resources: ['port']."),
    (r#"admin: POST security-groups {"security_group": {"project_id": "{other}"}}"#, 409, "OverQuota", "Quota exceeded for resources: ['security_group']."),
    (r#"admin: POST floatingips {"floatingip": {"project_id": "{other}", "floating_network_id": "{outside}"}}"#, 409, "OverQuota",
     "Quota exceeded for resources: ['floatingip']."),
    (r#"admin: PUT quotas/{project} {"quota": {"foo": 1}}"#, 400, "HTTPBadRequest", "Unrecognized attribute(s) 'foo'"),
    (r#"admin: PUT quotas/{project} {"quota": {"port": 1}}"#, 400, "HTTPBadRequest", ""),
    (r#"PUT quotas/{project} {"quota": {"port": 1}}"#, 403, "PolicyNotAuthorized", "rule:update_quota is disallowed by policy"),
];

#[test]
fn what_is_refused_is_refused_in_neutrons_words() {
    let scene = Scene::new();
    let rules = RULES.iter().map(|(attributes, kind, message)| {
        let direction = if attributes.contains("direction") { "" } else { r#""direction": "ingress", "# };
        let group = if attributes.contains("\"security_group_id") {
            ""
        } else {
            r#""security_group_id": "{group}", "#
        };
        let request = format!(
            r#"POST security-group-rules {{"security_group_rule": {{{direction}{group}{attributes}}}}}"#
        );
        (request, (400, *kind, *message))
    });
    let others = TABLE
        .iter()
        .map(|(request, status, kind, message)| ((*request).to_owned(), (*status, *kind, *message)));
    let wrong: Vec<String> =
        rules.chain(others).filter_map(|(request, expected)| scene.complaint(&request, expected)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_not_too_many_routes() {
    let user = shared().user("member");
    let subnet = user.subnet(&user.network(), "10.0.0.0/24");
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    let path = format!("routers/{router}/add_router_interface");
    assert_eq!(user.put(&path, json!({ "subnet_id": subnet })).status, 200);
    let routes = |count: u8| -> Value {
        let route = |n| json!({"destination": format!("10.9.{n}.0/24"), "nexthop": "10.0.0.9"});
        (0..count).map(route).collect()
    };
    let reply = user.put(&format!("routers/{router}"), json!({"router": {"routes": routes(31)}}));
    assert_eq!((reply.status.as_u16(), reply.kind()), (400, "RoutesExhausted"));
    let message = "The number of routes exceeds the maximum 30.";
    assert_eq!(reply.message(), format!("Unable to complete operation for {router}. {message}"));
    let reply = user.put(&format!("subnets/{subnet}"), json!({"subnet": {"host_routes": routes(21)}}));
    assert_eq!((reply.status.as_u16(), reply.kind()), (400, "HostRoutesExhausted"));
    let message = "The number of host routes exceeds the limit 20.";
    assert_eq!(reply.message(), format!("Unable to complete operation for {subnet}. {message}"));
    let new = json!({"network_id": user.network(), "cidr": "10.1.0.0/24", "ip_version": 4, "host_routes": routes(21)});
    let reply = user.post("subnets", json!({ "subnet": new }));
    assert_eq!(reply.message(), format!("Unable to complete operation for new subnet. {message}"));
}

#[test]
fn a_default_group_is_removed_by_administrators_alone() {
    let user = shared().user("member");
    let default = id(&user.get("security-groups")["security_groups"][0]);
    let path = format!("security-groups/{default}");
    let reply = user.delete(&path);
    assert_eq!((reply.status.as_u16(), reply.kind()), (409, "SecurityGroupCannotRemoveDefault"));
    assert_eq!(reply.message(), "Insufficient rights for removing default security group.");
    assert_eq!(user.put(&path, json!({"security_group": {"description": "x"}})).status, 200);
    assert_eq!(user.with("admin").delete(&path).status, 204);
}

#[test]
fn a_revision_that_is_gone_is_told() {
    let user = shared().user("member");
    let path = format!("networks/{}", user.network());
    let body = json!({"network": {"name": "x"}}).to_string();
    let reply = user.send_if("PUT", &path, body, Some("revision_number=7"));
    assert_eq!((reply.status.as_u16(), reply.kind()), (412, "RevisionNumberConstraintFailed"));
    assert_eq!(reply.message(), "Constrained to 7, but current revision is 1");
}

/// Clients write it down, so that somebody can find the request in a log. [`User::send`] looks at every other answer.
#[test]
fn every_answer_has_a_number() {
    let user = shared().user("member");
    let network = user.network();
    let mut seen = std::collections::BTreeSet::new();
    for (method, path, status) in [
        ("GET", "", 200),
        ("GET", "extensions", 200),
        ("GET", "openapi.json", 200),
        ("GET", "networks", 200),
        ("GET", "security-groups/export", 200),
        ("POST", "networks", 400),
        ("GET", "networks/x", 404),
        ("GET", "x", 404),
        ("PATCH", "networks", 405),
        ("DELETE", &format!("networks/{network}"), 204),
    ] {
        let reply = user.send(method, path, Body::empty());
        assert_eq!(reply.status.as_u16(), status, "{method} {path}: {}", reply.text);
        let number = reply.headers["x-openstack-request-id"].to_str().unwrap().to_owned();
        assert!(seen.insert(number), "{method} {path}: the same again");
        if status >= 400 {
            assert_eq!(reply.headers["content-type"], "application/json");
            let error = reply.body["NeutronError"].as_object().unwrap();
            assert_eq!(error.keys().collect::<Vec<_>>(), ["detail", "message", "type"]);
        }
    }
    let unknown = user.with("a:b");
    let reply = unknown.send("GET", "networks", Body::empty());
    assert_eq!((reply.status.as_u16(), &reply.body["error"]["code"]), (401, &json!(401)));
    assert_eq!(reply.body.get("NeutronError"), None::<&Value>);
}
