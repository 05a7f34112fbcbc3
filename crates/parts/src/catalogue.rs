//! Which parts there are, what each consists of, and where it is found on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Something that is installed as one.
#[derive(Debug)]
pub struct Part {
    pub name: &'static str,
    /// What it is good for, in a few words.
    pub purpose: &'static str,
    pub source: Source,
    pub programs: &'static [&'static str],
    /// Whether `portcullis up` has a use for it.
    pub sandbox: Use,
}

/// What a part is to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It does not start without it.
    Needed,
    /// Installed with the rest, but it starts without.
    Welcome,
    /// For tests only.
    None,
}

/// Where a part comes from.
#[derive(Debug)]
pub enum Source {
    /// Packages of the system.
    Debian { packages: &'static [&'static str] },
    /// A module of ours that pins everything it is built from. Building takes minutes, once.
    Go(GoModule),
    /// A Python package in an environment of its own.
    Python {
        version: &'static str,
        requirements: &'static str,
        /// A directory of packages of which only one is of use, and which; the others are removed.
        only: Option<(&'static str, &'static str)>,
    },
}

/// Go sources that are part of this program.
#[derive(Debug)]
pub struct GoModule {
    pub version: &'static str,
    /// Path and content of each file.
    pub files: &'static [(&'static str, &'static str)],
    /// Which package to build into which program.
    pub packages: &'static [(&'static str, &'static str)],
    /// Variables to set at link time, in these packages.
    pub version_variables: &'static [&'static str],
    /// Directories of a dependency that are kept beside the programs: module, directory, and its name here.
    pub keep: &'static [(&'static str, &'static str, &'static str)],
}

/// A file that marks a directory of the cache as whole: without it an interrupted run left it there.
pub(crate) const COMPLETE: &str = "complete";

macro_rules! go_files {
    ($directory:literal, $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../go/", $directory, "/", $file)))),+]
    };
}

/// Every part, in the order in which they are installed.
pub const PARTS: &[Part] = &[
    Part {
        name: "network tools",
        purpose: "network namespaces, packet filters",
        source: Source::Debian { packages: &["iproute2", "nftables", "ethtool"] },
        programs: &["ip", "nft", "ethtool"],
        sandbox: Use::Needed,
    },
    Part {
        name: "OVN",
        purpose: "virtual networks",
        source: Source::Debian { packages: &["ovn-central", "ovn-host", "openvswitch-switch"] },
        programs: &[
            "ovsdb-server",
            "ovsdb-tool",
            "ovs-vswitchd",
            "ovs-vsctl",
            "ovs-appctl",
            "ovn-northd",
            "ovn-controller",
            "ovn-nbctl",
            "ovn-sbctl",
        ],
        sandbox: Use::Needed,
    },
    Part {
        name: "HAProxy",
        purpose: "load balancer",
        source: Source::Debian { packages: &["haproxy"] },
        programs: &["haproxy"],
        sandbox: Use::None,
    },
    Part {
        name: "keepalived",
        purpose: "addresses that machines share",
        source: Source::Debian { packages: &["keepalived"] },
        programs: &["keepalived"],
        sandbox: Use::None,
    },
    Part {
        name: "moto",
        purpose: "AWS simulator",
        source: Source::Python {
            version: "5.2.5",
            requirements: include_str!("../python/moto.txt"),
            only: None,
        },
        programs: &["moto_server"],
        sandbox: Use::Needed,
    },
    Part {
        name: "OpenStack clients",
        purpose: "command line, SDK, and the tests of Neutron's own API",
        source: Source::Python {
            version: "10.5.0",
            requirements: include_str!("../python/openstack-clients.txt"),
            only: None,
        },
        programs: &["openstack", "stestr"],
        sandbox: Use::Welcome,
    },
    Part {
        name: "Ansible",
        purpose: "playbooks, with the modules for OpenStack",
        source: Source::Python {
            version: "12.3.0",
            requirements: include_str!("../python/ansible.txt"),
            // The modules for everything else are 450 MB.
            only: Some(("ansible_collections", "openstack")),
        },
        programs: &["ansible-playbook"],
        sandbox: Use::None,
    },
    Part {
        name: "Keystone",
        purpose: "OpenStack's identity",
        source: Source::Python {
            version: "30.0.0",
            requirements: include_str!("../python/keystone.txt"),
            only: None,
        },
        programs: &["keystone-manage"],
        sandbox: Use::None,
    },
    Part {
        name: "Schemathesis",
        purpose: "asks an API whatever its document allows, and what it does not",
        source: Source::Python {
            version: "4.32.5",
            requirements: include_str!("../python/schemathesis.txt"),
            only: None,
        },
        programs: &["schemathesis"],
        sandbox: Use::None,
    },
    Part {
        name: "etcd",
        purpose: "store of the Kubernetes API",
        source: Source::Go(GoModule {
            version: "3.6.7",
            files: go_files!("etcd", "go.mod", "go.sum", "main.go"),
            packages: &[("etcd", ".")],
            version_variables: &[],
            keep: &[],
        }),
        programs: &["etcd"],
        sandbox: Use::Needed,
    },
    Part {
        name: "Kubernetes",
        purpose: "API server, controllers, proxy, kubectl",
        source: Source::Go(GoModule {
            version: "1.35.8",
            files: go_files!(
                "kubernetes",
                "go.mod",
                "go.sum",
                "kube-apiserver/main.go",
                "kube-controller-manager/main.go",
                "kube-proxy/main.go",
                "kubectl/main.go"
            ),
            packages: &[
                ("kube-apiserver", "./kube-apiserver"),
                ("kube-controller-manager", "./kube-controller-manager"),
                ("kube-proxy", "./kube-proxy"),
                ("kubectl", "./kubectl"),
            ],
            // Without them kubectl stumbles over its own version.
            version_variables: &["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"],
            keep: &[],
        }),
        programs: &["kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl"],
        sandbox: Use::Needed,
    },
    Part {
        name: "Cluster API",
        purpose: "core manager and its types, clusterctl",
        source: Source::Go(GoModule {
            version: "1.14.2",
            files: go_files!("cluster-api", "go.mod", "go.sum"),
            packages: &[
                ("cluster-api-core", "sigs.k8s.io/cluster-api/core"),
                ("clusterctl", "sigs.k8s.io/cluster-api/cmd/clusterctl"),
            ],
            version_variables: &[],
            keep: &[("sigs.k8s.io/cluster-api", "core/config", "config")],
        }),
        programs: &["cluster-api-core", "clusterctl"],
        sandbox: Use::None,
    },
    Part {
        name: "Helm",
        purpose: "installs charts",
        source: Source::Go(GoModule {
            version: "3.22.0",
            files: go_files!("helm", "go.mod", "go.sum"),
            packages: &[("helm", "helm.sh/helm/v3/cmd/helm")],
            version_variables: &[],
            keep: &[],
        }),
        programs: &["helm"],
        sandbox: Use::None,
    },
    Part {
        name: "cloud-provider-aws",
        purpose: "what others have for Services on AWS",
        source: Source::Go(GoModule {
            version: "1.37.0",
            files: go_files!("cloud-provider-aws", "go.mod", "go.sum"),
            packages: &[(
                "aws-cloud-controller-manager",
                "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager",
            )],
            version_variables: &["k8s.io/component-base/version"],
            keep: &[],
        }),
        programs: &["aws-cloud-controller-manager"],
        sandbox: Use::None,
    },
];

impl Part {
    /// Its version, where we choose it. Debian chooses that of its packages.
    pub fn version(&self) -> Option<&'static str> {
        match &self.source {
            Source::Debian { .. } => None,
            Source::Go(module) => Some(module.version),
            Source::Python { version, .. } => Some(version),
        }
    }

    /// The directory that holds it, if it is not one of the system's.
    ///
    /// The name says what it was made from, so that two checkouts with different versions share one cache.
    pub fn directory(&self) -> Option<PathBuf> {
        let version = self.version()?;
        let name = self.name.to_lowercase().replace(' ', "-");
        // Everything that its content depends on stands in the source: what is derived sees every change.
        let inputs = format!("{:?}", self.source);
        Some(cache_directory().join(format!("{name}-{version}-{:08x}", fingerprint(&inputs))))
    }

    /// The programs of it that are not on this machine.
    pub fn missing(&self) -> Vec<&'static str> {
        self.programs.iter().copied().filter(|program| self.locate(program).is_none()).collect()
    }

    /// Whether some of its programs are not those that we built, but given in `KUBEBUILDER_ASSETS`.
    pub fn is_given(&self) -> bool {
        let own = self.directory();
        self.programs.iter().any(|program| {
            own.as_ref().is_some_and(|own| self.locate(program).is_some_and(|path| !path.starts_with(own)))
        })
    }

    /// Where one of its programs is. Those that are not the system's may be given in `KUBEBUILDER_ASSETS`, the
    /// variable that tests of Kubernetes programs agree on.
    pub fn locate(&self, program: &str) -> Option<PathBuf> {
        self.locate_with(variable("KUBEBUILDER_ASSETS").as_deref(), program)
    }

    fn locate_with(&self, assets: Option<&Path>, program: &str) -> Option<PathBuf> {
        let Some(own) = self.directory() else { return on_path(program) };
        let given = assets.map(|assets| assets.join(program)).filter(|path| is_executable(path));
        let built = own.join("bin").join(program);
        given.or_else(|| (own.join(COMPLETE).is_file() && is_executable(&built)).then_some(built))
    }
}

/// Where a program is, or an error that says how to install it.
pub fn find(program: &str) -> Result<PathBuf> {
    let part = PARTS.iter().find(|part| part.programs.contains(&program));
    let found = part.map_or_else(|| on_path(program), |part| part.locate(program));
    found.ok_or_else(|| {
        let install = match part.map(|part| &part.source) {
            None => format!("your distribution's package of {program}"),
            Some(Source::Debian { .. } | Source::Python { .. }) => {
                "portcullis parts --install   (in a checkout: make parts)".into()
            }
            Some(Source::Go(_)) => {
                "portcullis parts --install   (in a checkout: make parts; it takes minutes, once)".into()
            }
        };
        Error::Missing { program: program.into(), install }
    })
}

/// The part of that name. Only names in [`PARTS`] are asked for.
pub fn part(name: &str) -> &'static Part {
    PARTS.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("no part is called {name}"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path())
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Where programs are searched, by us and by the programs we start: as a shell would, and in the directories of
/// administrators' programs, which the search path of many users does not have.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Where parts that we build are kept: `PORTCULLIS_CACHE`, or the user's cache directory.
pub fn cache_directory() -> PathBuf {
    variable("PORTCULLIS_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("portcullis")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/portcullis")))
        .unwrap_or_else(|| PathBuf::from("/var/cache/portcullis"))
        .join("parts")
}

/// A path from the environment. Empty counts as unset, as everywhere.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// FNV-1a: the same on every machine and with every compiler.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_belongs_to_one_part() {
        let mut programs: Vec<_> = PARTS.iter().flat_map(|part| part.programs).collect();
        programs.sort();
        let count = programs.len();
        programs.dedup();
        assert_eq!(programs.len(), count);
    }

    #[test]
    fn a_missing_program_says_how_to_install_it() {
        let missing = find("no-such-program-here").unwrap_err().to_string();
        assert!(
            missing.ends_with("install it with: your distribution's package of no-such-program-here"),
            "{missing}"
        );
    }

    #[test]
    fn versions_are_those_of_what_is_built() {
        let modules = [
            ("etcd", "go.etcd.io/etcd/server/v3"),
            ("Kubernetes", "k8s.io/kubernetes"),
            ("Cluster API", "sigs.k8s.io/cluster-api"),
            ("Helm", "helm.sh/helm/v3"),
            ("cloud-provider-aws", "k8s.io/cloud-provider-aws"),
        ];
        for (name, module) in modules {
            let Source::Go(pinned) = &part(name).source else { panic!("{name} is a Go module") };
            let wanted = format!("{module} v{}", pinned.version);
            let required = pinned.files[0].1.lines().any(|line| {
                let line = line.trim().trim_start_matches("require ");
                line == wanted || line.starts_with(&format!("{wanted} "))
            });
            assert!(required, "go.mod of {name} does not require {wanted}");
        }
        for (name, package) in [("moto", "moto"), ("Keystone", "keystone"), ("Ansible", "ansible")] {
            let Source::Python { version, requirements, .. } = &part(name).source else {
                panic!("{name} is a Python package")
            };
            assert!(requirements.lines().any(|line| line == format!("{package}=={version}")));
        }
    }

    #[test]
    fn programs_that_are_given_come_first() {
        let assets = tempfile::tempdir().unwrap();
        let etcd = part("etcd");
        let own = etcd.locate_with(None, "etcd").expect("etcd is installed: make parts");
        assert_eq!(etcd.locate_with(Some(assets.path()), "etcd").as_ref(), Some(&own), "none is given");
        let given = assets.path().join("etcd");
        std::fs::copy(&own, &given).unwrap();
        assert_eq!(etcd.locate_with(Some(assets.path()), "etcd"), Some(given));
    }

    #[test]
    fn the_cache_depends_on_everything_a_part_is_made_from() {
        let source = |files, keep| {
            Source::Go(GoModule { version: "1", files, packages: &[], version_variables: &[], keep })
        };
        let part = |source| Part { name: "x", purpose: "", source, programs: &[], sandbox: Use::None };
        let directories = [
            part(source(&[("go.mod", "one")], &[])),
            part(source(&[("go.mod", "two")], &[])),
            part(source(&[("go.mod", "one")], &[("module", "from", "to")])),
        ]
        .map(|part| part.directory());
        assert!(directories[0] != directories[1] && directories[0] != directories[2]);
    }
}
