use std::net::IpAddr;

use portcullis_core::Cidr;
use portcullis_ovsdb::Row;

use super::{Reader, enabled, filled, strange_key};
use crate::objects::{Gateway, Port, Route, Router};
use crate::tables::{ROUTER, ROUTER_PORT, STATIC_ROUTE};

impl Reader<'_> {
    /// Routers, without where they lead.
    pub(super) fn routers(&mut self) {
        for row in self.foreign(ROUTER) {
            let id = row.uuid();
            for end in self.members(row, "ports", ROUTER_PORT) {
                self.ties.tie(id, end.uuid());
                self.router_ports.insert(end.get("name").text().unwrap_or_default(), (id, end));
            }
            if let Some(key) = strange_key(row, &[]) {
                self.find(ROUTER, row, format!("its external_ids have {key}, so another system has it"));
                continue;
            }
            let meta = self.meta(id, row.get("name").text().unwrap_or_default());
            self.survey.routers.push(Router { meta, admin_state_up: enabled(row), ..Router::default() });
        }
    }

    /// Where routers lead, once the ports are known.
    pub(super) fn gateways(&mut self) {
        let mut routers = std::mem::take(&mut self.survey.routers);
        for router in &mut routers {
            let Some(row) = self.replica.row(ROUTER, router.meta.id) else { continue };
            if let Err(why) = self.leads(row, router) {
                self.find(ROUTER, row, why);
            }
        }
        self.survey.routers = routers;
        for (name, (router, end)) in self.router_ports.clone() {
            let used = |(_, _, _, _, member): &(_, _, _, _, _)| *member == end.uuid();
            if !self.survey.replaced.iter().any(used) {
                self.ties.tie(router, end.uuid());
                self.find(ROUTER_PORT, end, format!("no port of the provider leads to {name}"));
            }
        }
    }

    fn leads(&mut self, row: &Row, router: &mut Router) -> Result<(), String> {
        let id = router.meta.id;
        let device = id.to_string();
        let outside = self
            .survey
            .ports
            .iter()
            .find(|port| port.device_owner == Port::ROUTER_GATEWAY && port.device_id == device);
        let mut default = Vec::new();
        if let Some(outside) = outside {
            let gateway = Gateway { network: outside.network, port: outside.meta.id, snat: false };
            let subnets = self.subnets_of(gateway.network);
            default.extend(subnets.filter_map(|subnet| subnet.gateway));
            router.gateway = Some(gateway);
        }
        if let Some(Gateway { network, .. }) = &router.gateway {
            // Only where it is said may routers have their way out.
            let mut networks = self.survey.networks.iter_mut();
            if let Some(network) = networks.find(|known| known.meta.id == *network) {
                network.external = true;
            }
        }
        for route in self.members(row, "static_routes", STATIC_ROUTE) {
            let text = |column| route.get(column).text().unwrap_or_default();
            let (prefix, nexthop) = (text("ip_prefix"), text("nexthop"));
            let plain = ["output_port", "policy", "route_table"]
                .iter()
                .all(|column| matches!(text(column), "" | "dst-ip"));
            let plain = plain && filled(route, &["bfd", "options"]).is_none();
            let destination = prefix.parse::<Cidr>().ok().filter(|_| plain);
            let (Some(destination), Ok(nexthop)) = (destination, nexthop.parse::<IpAddr>()) else {
                return Err(format!("its route to {prefix} by {nexthop} is none that the API can say"));
            };
            self.survey.replaced.push((id, ROUTER, id, "static_routes", route.uuid()));
            if let Some(place) = default.iter().position(|gateway| *gateway == nexthop)
                && destination.is_everything()
            {
                default.remove(place);
            } else {
                router.routes.push(Route { destination, nexthop });
            }
        }
        match default.first() {
            None => Ok(()),
            Some(gateway) => {
                Err(format!("it has a way out and no default route by {gateway}, which it would get"))
            }
        }
    }
}
