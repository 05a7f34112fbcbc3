use std::collections::BTreeSet;

use portcullis_ovsdb::Row;
use uuid::Uuid;

use super::{Reader, id_of, rule};
use crate::objects::{Meta, Rule, SecurityGroup};
use crate::tables::{ACL, PORT_GROUP};

/// The provider's group of all filtered ports, which is no group of the API.
const DROP_ALL: &str = "DropAll";
/// The provider's group of ports that name none.
const DEFAULT: &str = "Default";
/// Of what a rule of the provider allows.
const ALLOW: i64 = 1001;

impl Reader<'_> {
    /// Groups, with their rules.
    pub(super) fn groups(&mut self) {
        let mut groups = Vec::new();
        for row in self.foreign(PORT_GROUP) {
            let name = row.get("name").text().unwrap_or_default();
            if name == DROP_ALL {
                self.drop_all(row);
                continue;
            }
            // Membership is lost with the row of a port, whoever's group it is.
            row.get("ports").uuids().for_each(|port| self.ties.tie(row.uuid(), port));
            if id_of(row, "ovirt_sec_group_name").is_none() {
                self.find(
                    PORT_GROUP,
                    row,
                    "it has no ovirt_sec_group_name, so it is no group of the provider",
                );
                continue;
            }
            for port in row.get("ports").uuids() {
                self.groups_of_port.entry(port).or_default().push(row.uuid());
            }
            self.renamed.insert(name, row.uuid());
            groups.push(row);
        }
        for row in groups {
            self.group(row);
        }
    }

    fn drop_all(&mut self, row: &Row) {
        let acls = self.members(row, "acls", ACL);
        let drops = |pipeline: &str, ports: &str| {
            let all = format!("{ports} == @{DROP_ALL} && ip");
            acls.iter().any(|acl| {
                acl.get("direction").text() == Some(pipeline)
                    && acl.get("match").text() == Some(&all)
                    && acl.get("action").text() == Some("drop")
            })
        };
        if acls.len() == 2 && drops("to-lport", "outport") && drops("from-lport", "inport") {
            self.drop_all = self.replica.row(PORT_GROUP, row.uuid()).map(|row| &**row);
        } else {
            row.get("ports").uuids().for_each(|port| self.ties.tie(row.uuid(), port));
            self.find(
                PORT_GROUP,
                row,
                "it does not hold the two ACLs that drop all IP traffic, and nothing else",
            );
        }
    }

    fn group(&mut self, row: &Row) {
        let id = row.uuid();
        let number = |key| id_of(row, key).and_then(|text| text.parse().ok());
        let meta = Meta {
            description: id_of(row, "ovirt_description").unwrap_or_default().to_owned(),
            revision: number("ovirt_revision_number").unwrap_or(1),
            ..self.meta(id, id_of(row, "ovirt_sec_group_name").unwrap_or_default())
        };
        let is_default =
            row.get("name").text() == Some(DEFAULT) && self.model.default_group(self.project).is_none();
        self.survey.groups.push(SecurityGroup { meta, stateful: true, is_default });
        for acl in self.members(row, "acls", ACL) {
            self.ties.tie(id, acl.uuid());
            match self.rule(row, acl) {
                Ok(rule) => {
                    if let Some(remote) = rule.remote_group {
                        self.ties.tie(id, remote);
                    }
                    self.survey.rules.push(rule);
                }
                Err(why) => self.find(ACL, acl, why),
            }
        }
    }

    fn rule(&self, group: &Row, acl: &Row) -> Result<Rule, String> {
        let text = |column| acl.get(column).text().unwrap_or_default();
        let (priority, action) = (acl.get("priority").integer().unwrap_or_default(), text("action"));
        if (priority, action) != (ALLOW, "allow-related") {
            return Err(format!(
                "its action is {action} with priority {priority}, and the provider's rules are allow-related with {ALLOW}"
            ));
        }
        let group_of_set = |set: &str| {
            let name = set.strip_suffix("_ip4").or(set.strip_suffix("_ip6"))?;
            self.renamed.get(name).copied()
        };
        let rule = rule::read(
            text("match"),
            text("direction"),
            group.get("name").text().unwrap_or_default(),
            group_of_set,
        )?;
        let description = id_of(acl, "ovirt_rule_description").or(id_of(acl, "description"));
        let meta =
            Meta { description: description.unwrap_or_default().to_owned(), ..self.meta(acl.uuid(), "") };
        Ok(Rule { meta, group: group.uuid(), ..rule })
    }

    /// Whether the provider drops what no rule allows a port.
    pub(super) fn is_filtered(&self, port: &Row) -> bool {
        self.drop_all.is_some_and(|group| group.get("ports").uuids().any(|member| member == port.uuid()))
    }

    /// The groups that a port is in, whatever the provider shows of them.
    pub(super) fn groups_of(&self, port: &Row) -> Vec<Uuid> {
        let groups: BTreeSet<Uuid> =
            self.groups_of_port.get(&port.uuid()).into_iter().flatten().copied().collect();
        groups.into_iter().collect()
    }
}
