//! The cloud-config of AWS's controllers: read as they read it, checked, and written as OpenShift's operator writes it.

mod gcfg;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use gcfg::{Entry, Section};

/// What is wrong with a cloud-config, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct CloudConfigError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what to do.
    pub what: String,
}

impl CloudConfigError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// Who makes the security groups of network load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityGroupMode {
    /// Each new load balancer gets one that is made and kept for it.
    Managed,
    /// New load balancers get none, unless a Service names some. Those that have one keep it.
    #[default]
    Unmanaged,
}

/// How the nodes of Services are checked that any node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeMode {
    /// Each port by connecting to it.
    #[default]
    ServiceNodePort,
    /// All of them by the one health check of kube-proxy.
    Shared,
}

/// A cloud-config, as it was written.
#[derive(Clone, Debug, Default)]
pub struct CloudConfig {
    /// What is in `[Global]`.
    pub global: Global,
    /// Each `[ServiceOverride "…"]`, by its name.
    pub overrides: BTreeMap<String, ServiceOverride>,
    /// Where each key stands that was given.
    lines: BTreeMap<(String, &'static str), usize>,
}

/// `[Global]`. A text that was not given is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the keys are AWS's, and told of in the documentation of its controllers")]
pub struct Global {
    pub zone: String,
    pub region: String,
    pub vpc: String,
    pub subnet_id: String,
    pub route_table_id: String,
    pub role_arn: String,
    pub source_arn: String,
    pub kubernetes_cluster_tag: String,
    pub kubernetes_cluster_id: String,
    pub disable_security_group_ingress: bool,
    pub elb_security_group: String,
    pub node_ip_families: Vec<String>,
    pub probe_mode: String,
    pub probe_port: i32,
    pub probe_path: String,
    pub topology_pattern: String,
    pub security_group_mode: String,
}

/// Another place, or another way to sign, for one of AWS's services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "as above")]
pub struct ServiceOverride {
    pub service: String,
    pub region: String,
    pub url: String,
    pub signing_region: String,
    pub signing_method: String,
    pub signing_name: String,
}

/// Where a value goes, and how it is written.
enum Slot<'a> {
    Text(&'a mut String),
    Texts(&'a mut Vec<String>),
    Flag(&'a mut bool),
    Number(&'a mut i32),
}

const MODE: &str = "NLBSecurityGroupMode";
const PROBE_MODE: &str = "ClusterServiceLoadBalancerHealthProbeMode";
const PROBE_PORT: &str = "ClusterServiceSharedLoadBalancerHealthProbePort";
const PROBE_PATH: &str = "ClusterServiceSharedLoadBalancerHealthProbePath";

impl Global {
    /// All keys, in the order in which they are written.
    fn slots(&mut self) -> [(&'static str, Slot<'_>); 17] {
        [
            ("Zone", Slot::Text(&mut self.zone)),
            ("Region", Slot::Text(&mut self.region)),
            ("VPC", Slot::Text(&mut self.vpc)),
            ("SubnetID", Slot::Text(&mut self.subnet_id)),
            ("RouteTableID", Slot::Text(&mut self.route_table_id)),
            ("RoleARN", Slot::Text(&mut self.role_arn)),
            ("SourceARN", Slot::Text(&mut self.source_arn)),
            ("KubernetesClusterTag", Slot::Text(&mut self.kubernetes_cluster_tag)),
            ("KubernetesClusterID", Slot::Text(&mut self.kubernetes_cluster_id)),
            ("DisableSecurityGroupIngress", Slot::Flag(&mut self.disable_security_group_ingress)),
            ("ElbSecurityGroup", Slot::Text(&mut self.elb_security_group)),
            ("NodeIPFamilies", Slot::Texts(&mut self.node_ip_families)),
            (PROBE_MODE, Slot::Text(&mut self.probe_mode)),
            (PROBE_PORT, Slot::Number(&mut self.probe_port)),
            (PROBE_PATH, Slot::Text(&mut self.probe_path)),
            ("SupportedTopologyInstanceTypePattern", Slot::Text(&mut self.topology_pattern)),
            (MODE, Slot::Text(&mut self.security_group_mode)),
        ]
    }
}

impl ServiceOverride {
    fn slots(&mut self) -> [(&'static str, Slot<'_>); 6] {
        [
            ("Service", Slot::Text(&mut self.service)),
            ("Region", Slot::Text(&mut self.region)),
            ("URL", Slot::Text(&mut self.url)),
            ("SigningRegion", Slot::Text(&mut self.signing_region)),
            ("SigningMethod", Slot::Text(&mut self.signing_method)),
            ("SigningName", Slot::Text(&mut self.signing_name)),
        ]
    }
}

impl CloudConfig {
    /// Reads a cloud-config, and gives what is in it that nobody knows: a later version may.
    pub fn parse(text: &str) -> Result<(Self, Vec<CloudConfigError>), CloudConfigError> {
        let (mut config, mut unknown) = (Self::default(), Vec::new());
        for section in gcfg::parse(text)? {
            unknown.extend(config.take(&section)?);
        }
        Ok((config, unknown))
    }

    /// Takes in what is known in a section, and gives what is not.
    fn take(&mut self, section: &Section) -> Result<Vec<CloudConfigError>, CloudConfigError> {
        match section.subsection.as_deref() {
            None if is(&section.name, "Global") => {
                fill(&mut self.global.slots(), section, "Global", &mut self.lines)
            }
            Some(name) if is(&section.name, "ServiceOverride") => {
                let title = format!("ServiceOverride \"{name}\"");
                self.lines.entry((title.clone(), "")).or_insert(section.line);
                let found = self.overrides.entry(name.to_owned()).or_default();
                fill(&mut found.slots(), section, &title, &mut self.lines)
            }
            subsection => {
                let subsection = subsection.map(|name| format!(" \"{name}\"")).unwrap_or_default();
                let what = format!("nobody knows [{}{subsection}], and it is left out", section.name);
                Ok(vec![CloudConfigError::new(section.line, what)])
            }
        }
    }

    /// What is wrong in it for a controller that is to work by it.
    pub fn check(&self) -> Result<(), CloudConfigError> {
        self.mode()?;
        self.probe_mode()?;
        if !(0..=65535).contains(&self.global.probe_port) {
            let what = format!("{PROBE_PORT} is {}, which is not a port", self.global.probe_port);
            return Err(self.at("Global", PROBE_PORT, what));
        }
        let mut seen = BTreeSet::new();
        for (name, found) in &self.overrides {
            let title = format!("ServiceOverride \"{name}\"");
            let needed = [
                ("Service", &found.service),
                ("Region", &found.region),
                ("URL", &found.url),
                ("SigningRegion", &found.signing_region),
            ];
            if let Some((key, _)) = needed.into_iter().find(|(_, value)| value.trim().is_empty()) {
                return Err(self.at(&title, "", format!("[{title}] has no {key}")));
            }
            if !seen.insert((found.service.trim(), found.region.trim())) {
                let what =
                    format!("[{title}] is for {} in {}, as another one is", found.service, found.region);
                return Err(self.at(&title, "", what));
            }
        }
        Ok(())
    }

    /// Who makes security groups.
    pub fn mode(&self) -> Result<SecurityGroupMode, CloudConfigError> {
        match self.global.security_group_mode.as_str() {
            "Managed" => Ok(SecurityGroupMode::Managed),
            "Unmanaged" | "" => Ok(SecurityGroupMode::Unmanaged),
            other => {
                let what = format!("{MODE} is `{other}`: it can be `Managed`, `Unmanaged` or empty");
                Err(self.at("Global", MODE, what))
            }
        }
    }

    /// How nodes are checked.
    pub fn probe_mode(&self) -> Result<ProbeMode, CloudConfigError> {
        match self.global.probe_mode.as_str() {
            "Shared" => Ok(ProbeMode::Shared),
            "ServiceNodePort" | "" => Ok(ProbeMode::ServiceNodePort),
            other => {
                let what =
                    format!("{PROBE_MODE} is `{other}`: it can be `Shared`, `ServiceNodePort` or empty");
                Err(self.at("Global", PROBE_MODE, what))
            }
        }
    }

    /// The port of the shared health check.
    pub fn probe_port(&self) -> u16 {
        u16::try_from(self.global.probe_port).ok().filter(|port| *port > 0).unwrap_or(10256)
    }

    /// The path of the shared health check.
    pub fn probe_path(&self) -> &str {
        Some(self.global.probe_path.as_str()).filter(|path| !path.is_empty()).unwrap_or("/healthz")
    }

    /// The same with what OpenShift lays down: one health check for all, and security groups managed.
    #[must_use]
    pub fn with_openshift_defaults(mut self) -> Self {
        if self.global.probe_mode.is_empty() {
            "Shared".clone_into(&mut self.global.probe_mode);
        }
        "Managed".clone_into(&mut self.global.security_group_mode);
        self
    }

    fn at(&self, section: &str, key: &'static str, what: String) -> CloudConfigError {
        let line = self.lines.get(&(section.to_owned(), key)).copied().unwrap_or_default();
        CloudConfigError { line, what }
    }
}

/// As the operator of OpenShift writes it: keys in a fixed order with their `=` below each other, sections sorted, and
/// without what is empty.
impl fmt::Display for CloudConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_section(f, "Global", &mut self.global.clone().slots())?;
        for (name, found) in &self.overrides {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(f)?;
            write_section(f, &format!("ServiceOverride \"{name}\""), &mut found.clone().slots())?;
        }
        Ok(())
    }
}

fn write_section(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    slots: &mut [(&'static str, Slot<'_>)],
) -> fmt::Result {
    let mut lines = Vec::new();
    for (key, slot) in slots {
        match slot {
            Slot::Text(text) => lines.extend((!text.is_empty()).then(|| (*key, gcfg::quoted(text)))),
            Slot::Texts(texts) => lines.extend(texts.iter().map(|text| (*key, gcfg::quoted(text)))),
            Slot::Flag(flag) => lines.push((*key, flag.to_string())),
            Slot::Number(number) => lines.push((*key, number.to_string())),
        }
    }
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    writeln!(f, "[{title}]")?;
    lines.iter().try_for_each(|(key, value)| writeln!(f, "{key:<width$} = {value}"))
}

/// Names are the same in any case of letters.
fn is(found: &str, known: &str) -> bool {
    found.eq_ignore_ascii_case(known)
}

/// Sets what is known in a section, and gives what is not.
fn fill(
    slots: &mut [(&'static str, Slot<'_>)],
    section: &Section,
    title: &str,
    lines: &mut BTreeMap<(String, &'static str), usize>,
) -> Result<Vec<CloudConfigError>, CloudConfigError> {
    let mut unknown = Vec::new();
    for entry in &section.entries {
        if let Some((key, slot)) = slots.iter_mut().find(|(key, _)| is(&entry.key, key)) {
            set(slot, key, entry)?;
            lines.insert((title.to_owned(), key), entry.line);
        } else {
            let what = format!("nobody knows `{}` in [{title}], and it is left out", entry.key);
            unknown.push(CloudConfigError::new(entry.line, what));
        }
    }
    Ok(unknown)
}

fn set(slot: &mut Slot<'_>, key: &str, entry: &Entry) -> Result<(), CloudConfigError> {
    let wrong = |what: String| Err(CloudConfigError::new(entry.line, what));
    match (slot, entry.value.as_deref()) {
        (Slot::Text(text), Some(value)) => value.clone_into(text),
        (Slot::Texts(texts), Some(value)) => texts.push(value.to_owned()),
        // A key alone starts a list anew, and switches a flag on.
        (Slot::Texts(texts), None) => texts.clear(),
        (Slot::Flag(flag), value) => match value.map(str::to_ascii_lowercase).as_deref() {
            None | Some("true" | "yes" | "on" | "1") => **flag = true,
            Some("false" | "no" | "off" | "0") => **flag = false,
            Some(other) => return wrong(format!("{key} is `{other}`: it can be `true` or `false`")),
        },
        (Slot::Number(number), Some(value)) => match value.parse() {
            Ok(value) => **number = value,
            Err(_) => return wrong(format!("{key} is `{value}`, which is not a number that fits")),
        },
        (Slot::Text(_) | Slot::Number(_), None) => {
            return wrong(format!("{key} has no value: write `{key} = …`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
