use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> CloudConfig {
    let (config, unknown) = CloudConfig::parse(text).unwrap();
    assert_eq!(unknown, [], "{text}");
    config
}

fn transformed(text: &str) -> String {
    parsed(text).with_openshift_defaults().to_string()
}

/// What is wrong, as it is told.
fn wrong(text: &str) -> String {
    match CloudConfig::parse(text) {
        Err(error) => error.to_string(),
        Ok((config, _)) => config.check().unwrap_err().to_string(),
    }
}

#[test]
fn transforms_as_the_operator_does() {
    let least = "\
[Global]
DisableSecurityGroupIngress                     = false
ClusterServiceLoadBalancerHealthProbeMode       = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 0
NLBSecurityGroupMode                            = Managed
";
    assert_eq!(transformed(""), least);
    assert_eq!(transformed("[Global]\n\t\t"), least);
    assert_eq!(transformed("[global]\nnlbsecuritygroupmode = Unmanaged\n"), least);

    let source = "\
[Global]
DisableSecurityGroupIngress = true
Zone                        = Foo
NodeIPFamilies              = ipv6
NodeIPFamilies              = ipv4
ClusterServiceLoadBalancerHealthProbeMode = ServiceNodePort

[ServiceOverride \"2\"]
Service         = s3
Region          = us-west-1
URL             = https://s3.foo.bar
SigningRegion   = signing_region

[ServiceOverride \"1\"]
Service         = ec2
Region          = us-west-2
URL             = https://ec2.foo.bar
SigningRegion   = signing_region
";
    let expected = "\
[Global]
Zone                                            = Foo
DisableSecurityGroupIngress                     = true
NodeIPFamilies                                  = ipv6
NodeIPFamilies                                  = ipv4
ClusterServiceLoadBalancerHealthProbeMode       = ServiceNodePort
ClusterServiceSharedLoadBalancerHealthProbePort = 0
NLBSecurityGroupMode                            = Managed

[ServiceOverride \"1\"]
Service       = ec2
Region        = us-west-2
URL           = https://ec2.foo.bar
SigningRegion = signing_region

[ServiceOverride \"2\"]
Service       = s3
Region        = us-west-1
URL           = https://s3.foo.bar
SigningRegion = signing_region
";
    assert_eq!(transformed(source), expected);
    assert_eq!(transformed(expected), expected, "twice is as once");
}

#[test]
fn reads_what_gcfg_reads() {
    for (text, zone) in [
        ("[Global]\nZone = a", "a"),
        ("\u{feff}[Global]\r\nZone = a\r\n", "a"),
        ("; first\n# second\n [ Global ] ; third\n  zone=a ; why\n", "a"),
        ("[Global]\nZone = a b  # why\n", "a b"),
        ("[Global]\nZone = \" a ; b \"\n", " a ; b "),
        ("[Global]\nZone = a\" # \"b\n", "a # b"),
        ("[Global]\nZone = a\\\n  b\n", "a  b"),
        ("[Global]\nZone = \\\"\\\\\\n\\t\\b\n", "\"\\\n\t\u{8}"),
        ("[Global]\nZone = a\nZone = b\n", "b"),
        ("[Global]\nZone = a\n[Global]\nRegion = r\n", "a"),
        ("[Global]\nZone =\n", ""),
    ] {
        assert_eq!(parsed(text).global.zone, zone, "{text:?}");
    }
    for (text, disabled) in
        [("", true), (" = yes", true), (" = ON", true), (" = 0", false), (" = False", false)]
    {
        let text = format!("[Global]\nDisableSecurityGroupIngress{text}\n");
        assert_eq!(parsed(&text).global.disable_security_group_ingress, disabled, "{text}");
    }
    let families = "[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies\nNodeIPFamilies = ipv4\n";
    assert_eq!(parsed(families).global.node_ip_families, ["ipv4"]);
}

#[test]
fn says_what_is_wrong_and_where() {
    for (text, expected) in [
        ("Zone = a\n", "line 1: `Zone` stands before any section: put `[Global]` first"),
        ("[Global]\n\n = a\n", "line 3: a line cannot start with `=`"),
        ("[]\n", "line 1: a section needs a name: `[Global]`"),
        ("\n[Global\n", "line 2: the section `Global` does not end with `]`"),
        ("[Global] Zone = a\n", "line 1: what follows the section `Global` belongs on a line of its own"),
        ("[ServiceOverride \"1]\n", "line 1: a quotation mark is never closed"),
        ("[ServiceOverride \"\\n\"]\n", "line 1: only `\\\"` and `\\\\` can be written with `\\` here"),
        ("[Global]\nZone a\n", "line 2: `Zone` is not followed by `=`"),
        ("[Global]\nZone\n", "line 2: Zone has no value: write `Zone = …`"),
        ("[Global]\nZone = \"a\n", "line 2: a quotation mark in the value of `Zone` is never closed"),
        (
            "[Global]\nZone = C:\\x\n",
            "line 2: `\\` in the value of `Zone` must be doubled, or followed by `\"`, n, t or b",
        ),
        (
            "[Global]\n\nDisableSecurityGroupIngress = maybe\n",
            "line 3: DisableSecurityGroupIngress is `maybe`: it can be `true` or `false`",
        ),
        (
            "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = x\n",
            "line 2: ClusterServiceSharedLoadBalancerHealthProbePort is `x`, which is not a number that fits",
        ),
        (
            "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 70000\n",
            "line 2: ClusterServiceSharedLoadBalancerHealthProbePort is 70000, which is not a port",
        ),
        (
            "[global]\n# a\nnlbSecurityGroupMode = managed\n",
            "line 3: NLBSecurityGroupMode is `managed`: it can be `Managed`, `Unmanaged` or empty",
        ),
        (
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = shared\n",
            "line 2: ClusterServiceLoadBalancerHealthProbeMode is `shared`: \
             it can be `Shared`, `ServiceNodePort` or empty",
        ),
        (
            "\n[ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = u\n",
            "line 2: [ServiceOverride \"1\"] has no SigningRegion",
        ),
        (
            "[ServiceOverride \"1\"]\nService=EC2\nRegion=r\nURL=u\nSigningRegion=r\n\
             [ServiceOverride \"2\"]\nService=EC2\nRegion=r\nURL=v\nSigningRegion=r\n",
            "line 6: [ServiceOverride \"2\"] is for EC2 in r, as another one is",
        ),
    ] {
        assert_eq!(wrong(text), expected, "{text:?}");
    }
}

#[test]
fn leaves_out_what_nobody_knows_and_says_so() {
    let text = "[Global]\nZone = a\nColour = red\n[Other]\nx = y\n[ServiceOverride \"1\"]\nSpeed = 3\n[Global \"x\"]\n";
    let (config, unknown) = CloudConfig::parse(text).unwrap();
    let told: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    assert_eq!(config.global.zone, "a");
    assert_eq!(
        told,
        [
            "line 3: nobody knows `Colour` in [Global], and it is left out",
            "line 4: nobody knows [Other], and it is left out",
            "line 7: nobody knows `Speed` in [ServiceOverride \"1\"], and it is left out",
            "line 8: nobody knows [Global \"x\"], and it is left out",
        ]
    );
}

#[test]
fn modes_and_the_shared_probe() {
    for (text, mode, probe, port, path) in [
        ("", SecurityGroupMode::Unmanaged, ProbeMode::ServiceNodePort, 10256, "/healthz"),
        (
            "NLBSecurityGroupMode = Unmanaged",
            SecurityGroupMode::Unmanaged,
            ProbeMode::ServiceNodePort,
            10256,
            "/healthz",
        ),
        (
            "NLBSecurityGroupMode = Managed\nClusterServiceLoadBalancerHealthProbeMode = Shared\n\
             ClusterServiceSharedLoadBalancerHealthProbePort = 9000\nClusterServiceSharedLoadBalancerHealthProbePath = /ok",
            SecurityGroupMode::Managed,
            ProbeMode::Shared,
            9000,
            "/ok",
        ),
    ] {
        let config = parsed(&format!("[Global]\n{text}\n"));
        config.check().unwrap();
        assert_eq!(config.mode(), Ok(mode));
        assert_eq!(config.probe_mode(), Ok(probe));
        assert_eq!((config.probe_port(), config.probe_path()), (port, path));
    }
}

proptest! {
    /// Whatever a value is, it is written so that it is read again.
    #[test]
    fn values_survive(zone in "[^\r\0]{0,20}", name in "[^\n\r]{0,8}", families in prop::collection::vec("[ -~]{1,6}", 0..4)) {
        let mut config = CloudConfig::default();
        config.global.zone = zone;
        config.global.node_ip_families = families;
        let found = ServiceOverride { service: "EC2".into(), ..ServiceOverride::default() };
        config.overrides.insert(name, found);
        let again = parsed(&config.to_string());
        prop_assert_eq!(again.global, config.global);
        prop_assert_eq!(again.overrides, config.overrides);
    }

    /// No text breaks it.
    #[test]
    fn nothing_breaks_it(text in "(\\[Global\\]\n)?[\\[\\]\"\\\\;#=\n a-cZ]{0,60}") {
        if let Ok((config, _)) = CloudConfig::parse(&text) {
            let _ = config.check();
            let again = config.to_string();
            prop_assert_eq!(parsed(&again).to_string(), again);
        }
    }
}
