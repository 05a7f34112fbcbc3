//! The Networking API of a sandbox: where it is, who may use it, and what is there at first.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use portcullis_networking::identity::{
    AssignmentSettings, PasswordHash, ProjectSettings, Settings, UserSettings,
};
use serde_json::{Value, json};

/// Name and password, project and role. They are no secret: everything is on loopback, and gone with the sandbox.
const USERS: [(&str, &str, &str); 2] = [("admin", "admin", "admin"), ("demo", "demo", "member")];

/// Where it answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cloud {
    pub(super) networking: SocketAddr,
    pub(super) identity: SocketAddr,
}

/// Who there is, as the configuration says it.
pub(super) fn users() -> Settings {
    let projects = USERS.map(|(_, project, _)| ProjectSettings {
        name: project.to_owned(),
        id: None,
        domain: "default".to_owned(),
        description: String::new(),
    });
    let users = USERS.map(|(name, project, role)| UserSettings {
        name: name.to_owned(),
        id: None,
        domain: "default".to_owned(),
        password: Some(PasswordHash::of(name)),
        assignments: vec![AssignmentSettings { project: project.to_owned(), roles: vec![role.to_owned()] }],
    });
    Settings { projects: projects.into(), users: users.into(), ..Settings::default() }
}

/// The same for a file: printed as they are, hashes are hidden.
pub(super) fn with_hashes(config: &mut Value, settings: &Settings) {
    let hashes = settings.users.iter().map(|user| user.password.as_ref().map(PasswordHash::reveal));
    for (index, hash) in hashes.enumerate() {
        config["identity"]["local"]["users"][index]["password"] = json!(hash);
    }
}

impl Cloud {
    pub(super) fn networking_url(self) -> String {
        format!("http://{}", self.networking)
    }

    pub(super) fn identity_url(self) -> String {
        format!("http://{}", self.identity)
    }

    /// For clients of OpenStack: `clouds.yaml`.
    pub(super) fn clouds(self, region: &str) -> Value {
        let cloud = |user: &str, project: &str| {
            let auth = json!({
                "auth_url": format!("{}/v3", self.identity_url()), "username": user, "password": user,
                "project_name": project, "user_domain_id": "default", "project_domain_id": "default",
            });
            json!({ "auth": auth, "region_name": region, "identity_api_version": 3 })
        };
        let [(admin, of_admin, _), (demo, of_demo, _)] = USERS;
        json!({"clouds": {"portcullis": cloud(admin, of_admin), "portcullis-demo": cloud(demo, of_demo)}})
    }

    /// Makes what a newcomer can look at: a network, and a group for web servers on it.
    pub(super) fn add_samples(self) -> anyhow::Result<()> {
        let (user, project, _) = USERS[1];
        let token = self.log_in(user, project)?;
        let make = |path: &str, body: &Value| -> anyhow::Result<Value> {
            let path = format!("/v2.0/{path}");
            post(self.networking, &path, Some(&token), body).map(|(_, body)| body)
        };
        let network = make("networks", &json!({"network": {"name": "blue"}}))?;
        let network = &network["network"]["id"];
        let subnet =
            json!({"name": "blue-v4", "network_id": network, "ip_version": 4, "cidr": "192.0.2.0/24"});
        make("subnets", &json!({ "subnet": subnet }))?;
        let group = json!({"name": "web", "description": "HTTPS from everywhere"});
        let group = make("security-groups", &json!({ "security_group": group }))?;
        let group = &group["security_group"]["id"];
        let rule = json!({
            "security_group_id": group, "direction": "ingress", "protocol": "tcp",
            "port_range_min": 443, "port_range_max": 443,
        });
        make("security-group-rules", &json!({ "security_group_rule": rule }))?;
        let port = json!({"name": "web-1", "network_id": network, "security_groups": [group]});
        make("ports", &json!({ "port": port })).map(drop)
    }

    fn log_in(self, user: &str, project: &str) -> anyhow::Result<String> {
        let domain = json!({"id": "default"});
        let who = json!({"user": {"name": user, "password": user, "domain": domain}});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": who},
            "scope": {"project": {"name": project, "domain": domain}},
        }});
        let (head, _) = post(self.identity, "/v3/auth/tokens", None, &body)?;
        let token = head.lines().find_map(|line| line.strip_prefix("x-subject-token: "));
        Ok(token.context("no token in the answer")?.trim().to_owned())
    }
}

/// The head and the body of the answer to a POST, which must be well.
fn post(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> anyhow::Result<(String, Value)> {
    let body = body.to_string();
    let token = token.map(|token| format!("X-Auth-Token: {token}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {token}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("half an answer to POST {path}") };
    ensure!(head.starts_with("HTTP/1.1 2"), "POST {path}: {body}");
    Ok((head.to_owned(), serde_json::from_str(body)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_in_the_file_and_not_hidden() {
        let settings = users();
        let mut config = json!({"identity": {"local": &settings}});
        with_hashes(&mut config, &settings);
        let read: Settings = serde_json::from_value(config["identity"]["local"].clone()).unwrap();
        assert_eq!(read, settings);
    }
}
