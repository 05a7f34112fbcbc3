use portcullis_parts::{Namespace, run};

/// Writes rows into a northbound database as ovirt-provider-ovn does.
#[derive(Debug)]
pub struct OvirtProvider {
    remote: String,
}

/// The provider's group of all filtered ports.
const DROP_ALL: &str = "DropAll";

impl OvirtProvider {
    /// In the database that clients name so.
    pub fn new(remote: impl Into<String>) -> Self {
        OvirtProvider { remote: remote.into() }
    }

    /// Runs `ovn-nbctl`.
    #[track_caller]
    pub fn nbctl(&self, args: &[&str]) -> String {
        let database = format!("--db={}", self.remote);
        let said =
            run(&Namespace::host(), "ovn-nbctl", &[&[database.as_str(), "--timeout=120"], args].concat());
        said.unwrap_or_else(|error| panic!("{error}")).trim().to_owned()
    }

    /// A network, and what it says besides its name.
    #[track_caller]
    pub fn network(&self, name: &str, external_ids: &[&str]) -> String {
        let (row, id) = (format!("name=ovirt-{name}-{}", new_id()), format!("ovirt_network_name={name}"));
        let ids = std::iter::once(id.as_str()).chain(external_ids.iter().copied());
        let ids: Vec<String> = ids.map(|id| format!("external_ids:{id}")).collect();
        let mut args = vec!["create", "Logical_Switch", &row];
        args.extend(ids.iter().map(String::as_str));
        self.nbctl(&args)
    }

    /// The wire that a network is on.
    #[track_caller]
    pub fn localnet(&self, network: &str, physical: &str, vlan: &str) {
        let id = new_id();
        self.nbctl(&["lsp-add", network, &id, "--", "lsp-set-type", &id, "localnet"]);
        self.nbctl(&["lsp-set-addresses", &id, "unknown"]);
        self.nbctl(&["lsp-set-options", &id, &format!("network_name={physical}")]);
        self.nbctl(&["set", "Logical_Switch_Port", &id, &format!("tag={vlan}")]);
        self.nbctl(&["set", "Logical_Switch_Port", &id, "external_ids:ovirt_nic_name=localnet_port"]);
    }

    /// A subnet of IPv4.
    #[track_caller]
    pub fn subnet(&self, network: &str, cidr: &str, gateway: &str) -> String {
        self.nbctl(&["set", "Logical_Switch", network, &format!("other_config:subnet={cidr}")]);
        self.nbctl(&[
            "create",
            "DHCP_Options",
            &format!("cidr={cidr}"),
            &format!("external_ids:ovirt_network_id={network}"),
            "external_ids:ovirt_name=sub",
            "external_ids:ip_version=4",
            &format!("options:server_id={}", cidr.split('/').next().unwrap_or_default()),
            "options:server_mac=\"02:00:00:00:00:00\"",
            "options:lease_time=86400",
            &format!("options:router={gateway}"),
            "options:dns_server=10.0.0.53",
            "options:mtu=1442",
        ])
    }

    /// A subnet of IPv6, whose addresses are given by DHCP: with its help (`dhcpv6_stateless`) or by it alone
    /// (`dhcpv6_stateful`).
    #[track_caller]
    pub fn subnet6(&self, network: &str, cidr: &str, gateway: &str, mode: &str) -> String {
        let prefix = cidr.split('/').next().unwrap_or_default();
        self.nbctl(&["set", "Logical_Switch", network, &format!("other_config:ipv6_prefix=\"{prefix}\"")]);
        let (range, mode_id) =
            (format!("cidr=\"{cidr}\""), format!("external_ids:ovirt_ipv6_address_mode={mode}"));
        let (network, gateway) = (
            format!("external_ids:ovirt_network_id={network}"),
            format!("external_ids:router=\"{gateway}\""),
        );
        let mut args = vec![
            "create",
            "DHCP_Options",
            &range,
            &network,
            &gateway,
            &mode_id,
            "external_ids:ovirt_name=sub6",
            "external_ids:ip_version=6",
            "external_ids:mtu=1442",
            "options:server_id=\"02:00:00:00:00:00\"",
        ];
        if mode == "dhcpv6_stateless" {
            args.push("options:dhcpv6_stateless=true");
        }
        self.nbctl(&args)
    }

    /// A group by the name of its row, which but for two of the provider's own begins with `ovirt_`.
    #[track_caller]
    pub fn group(&self, name: &str) -> String {
        self.nbctl(&[
            "create",
            "Port_Group",
            &format!("name={name}"),
            &format!("external_ids:ovirt_sec_group_name={}", name.trim_start_matches("ovirt_")),
            "external_ids:ovirt_created_at=\"2020-02-02T02:02:02.020202\"",
            "external_ids:ovirt_updated_at=\"2020-02-02T02:02:02.020202\"",
            "external_ids:ovirt_revision_number=3",
        ])
    }

    /// The group that drops what no other allows.
    #[track_caller]
    pub fn drop_all(&self) -> String {
        let group = self.group(DROP_ALL);
        self.acl(DROP_ALL, "to-lport", 1000, "ip", "drop");
        self.acl(DROP_ALL, "from-lport", 1000, "ip", "drop");
        group
    }

    /// The group of ports that name none.
    #[track_caller]
    pub fn default_group(&self) -> String {
        let group = self.group("Default");
        self.egress("Default");
        for ip in ["ip4", "ip6"] {
            self.rule("Default", "to-lport", &format!("{ip} && {ip}.src == $Default_{ip}"));
        }
        group
    }

    /// The two rules that a new group has.
    #[track_caller]
    pub fn egress(&self, group: &str) {
        self.rule(group, "from-lport", "ip4");
        self.rule(group, "from-lport", "ip6");
    }

    /// What a group allows.
    #[track_caller]
    pub fn rule(&self, group: &str, direction: &str, what: &str) {
        self.acl(group, direction, 1001, what, "allow-related");
    }

    fn acl(&self, group: &str, direction: &str, priority: u32, what: &str, action: &str) {
        let whose = if direction == "to-lport" { "outport" } else { "inport" };
        self.nbctl(&[
            "--id=@acl",
            "create",
            "ACL",
            &format!("name=\"{}\"", new_id()),
            "severity=alert",
            &format!("direction={direction}"),
            &format!("priority={priority}"),
            &format!("match=\"{whose} == @{group} && {what}\""),
            &format!("action={action}"),
            &format!("external_ids:ovirt_port_group_id={group}"),
            &format!(
                "external_ids:ovirt_ethertype={}",
                if what.starts_with("ip6") { "IPv6" } else { "IPv4" }
            ),
            "--",
            "add",
            "Port_Group",
            group,
            "acls",
            "@acl",
        ]);
    }

    /// A port for a machine, in the groups that the provider puts it into; its address may be `dynamic`.
    #[track_caller]
    pub fn port(&self, network: &str, mac: &str, address: &str, groups: &[&str]) -> String {
        let id = new_id();
        self.nbctl(&["lsp-add", network, &id, "--", "lsp-set-addresses", &id, &format!("{mac} {address}")]);
        let shown: Vec<&str> = groups.iter().copied().filter(|group| *group != DROP_ALL).collect();
        self.nbctl(&[
            "set",
            "Logical_Switch_Port",
            &id,
            "enabled=true",
            "external_ids:ovirt_nic_name=nic1",
            "external_ids:ovirt_device_id=vm",
            "external_ids:ovirt_device_owner=oVirt",
            &format!("external_ids:ovirt_security_groups=\"{}\"", shown.join(" ")),
        ]);
        let of_network = format!("external_ids:ovirt_network_id={network}");
        let find = |column: &str| {
            let column = format!("--columns={column}");
            self.nbctl(&["--bare", &column, "find", "DHCP_Options", &of_network])
        };
        let dhcp = find("_uuid");
        if !dhcp.is_empty() {
            let family = if find("cidr").contains(':') { "6" } else { "4" };
            self.nbctl(&[&format!("lsp-set-dhcpv{family}-options"), &id, &dhcp]);
        }
        let row = self.nbctl(&["get", "Logical_Switch_Port", &id, "_uuid"]);
        for group in groups {
            self.nbctl(&["add", "Port_Group", group, "ports", &row]);
        }
        if groups.contains(&DROP_ALL) {
            self.nbctl(&["lsp-set-port-security", &id, mac]);
        }
        id
    }

    #[track_caller]
    pub fn router(&self, name: &str) -> String {
        self.nbctl(&["create", "Logical_Router", &format!("name={name}"), "enabled=true"])
    }

    /// Connects a router to a network; the router tells hosts of itself as `advertised` says.
    #[track_caller]
    pub fn interface(
        &self,
        router: &str,
        network: &str,
        mac: &str,
        address: &str,
        advertised: &[&str],
    ) -> String {
        let id = self.connect(router, network, mac, address, "network\\:router_interface");
        for entry in advertised {
            self.nbctl(&[
                "set",
                "Logical_Router_Port",
                &format!("lrp{id}"),
                &format!("ipv6_ra_configs:{entry}"),
            ]);
        }
        id
    }

    /// The way out of a router, by a network and the gateway of its subnet.
    #[track_caller]
    pub fn gateway(&self, router: &str, network: &str, mac: &str, address: &str, gateway: &str) -> String {
        let id = self.connect(router, network, mac, address, "network\\:router_gateway");
        let kept = address.split('/').next().unwrap_or_default();
        self.nbctl(&["set", "Logical_Switch", network, &format!("other_config:exclude_ips={kept}")]);
        self.nbctl(&["set", "Logical_Router", router, &format!("external_ids:ovirt_gateway_port={id}")]);
        self.nbctl(&["lr-route-add", router, "0.0.0.0/0", gateway]);
        id
    }

    fn connect(&self, router: &str, network: &str, mac: &str, address: &str, owner: &str) -> String {
        let id = new_id();
        let end = format!("lrp{id}");
        self.nbctl(&["lrp-add", router, &end, mac, address]);
        self.nbctl(&["lsp-add", network, &id, "--", "lsp-set-type", &id, "router"]);
        self.nbctl(&["lsp-set-addresses", &id, "router"]);
        self.nbctl(&["lsp-set-options", &id, &format!("router-port={end}")]);
        self.nbctl(&[
            "set",
            "Logical_Switch_Port",
            &id,
            "enabled=true",
            "external_ids:ovirt_nic_name=router_port",
            &format!("external_ids:ovirt_device_id={router}"),
            &format!("external_ids:ovirt_device_owner={owner}"),
        ]);
        id
    }
}

/// A random uuid, as the kernel makes them.
fn new_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    id.unwrap_or_else(|error| panic!("the kernel makes no uuid: {error}")).trim().to_owned()
}
