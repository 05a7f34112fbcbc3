//! Which of AWS's services is meant.

/// A service, told by the version of its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    Elb,
    Sts,
    Iam,
}

impl Service {
    pub(crate) fn of_version(version: &str) -> Option<Self> {
        [Service::Ec2, Service::Elb, Service::Sts, Service::Iam]
            .into_iter()
            .find(|service| service.version() == version)
    }

    pub(crate) fn version(self) -> &'static str {
        match self {
            Service::Ec2 => "2016-11-15",
            Service::Elb => "2015-12-01",
            Service::Sts => "2011-06-15",
            Service::Iam => "2010-05-08",
        }
    }

    /// Its word in signatures and policies.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb => "elasticloadbalancing",
            Service::Sts => "sts",
            Service::Iam => "iam",
        }
    }

    /// Where its documents are.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Service::Ec2 => "http://ec2.amazonaws.com/doc/2016-11-15/",
            Service::Elb => "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
            Service::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
            Service::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
        }
    }
}
