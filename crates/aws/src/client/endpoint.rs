use thiserror::Error;

use crate::CloudConfig;

/// Where one of AWS's services is, and how calls to it are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) url: String,
    pub(crate) signing_name: String,
    pub(crate) signing_region: String,
    pub(crate) version: &'static str,
    /// What is sent, and signed, besides.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// Where those of AWS's services are that are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub(crate) ec2: Endpoint,
    pub(crate) elb: Endpoint,
    pub(crate) sts: Endpoint,
    pub(crate) iam: Endpoint,
    pub(crate) region: String,
}

/// An address at which nothing can be called.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{url}` is not an address for {service}: it has to be http:// or https:// and a host")]
pub struct EndpointError {
    service: &'static str,
    url: String,
}

/// One of the services: its word in addresses and signatures, its word in cloud-configs, and in variables.
struct Service {
    word: &'static str,
    id: &'static str,
    variable: &'static str,
    version: &'static str,
}

const EC2: Service =
    Service { word: "ec2", id: "EC2", variable: "AWS_ENDPOINT_URL_EC2", version: "2016-11-15" };
const ELB: Service = Service {
    word: "elasticloadbalancing",
    id: "Elastic Load Balancing v2",
    variable: "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2",
    version: "2015-12-01",
};
const STS: Service =
    Service { word: "sts", id: "STS", variable: "AWS_ENDPOINT_URL_STS", version: "2011-06-15" };
const IAM: Service =
    Service { word: "iam", id: "IAM", variable: "AWS_ENDPOINT_URL_IAM", version: "2010-05-08" };

impl Endpoint {
    /// Whether it is Elastic Load Balancing.
    pub(crate) fn is_balancing(&self) -> bool {
        self.version == ELB.version
    }

    /// What stands between `//` and the path.
    pub(crate) fn host(&self) -> String {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default().to_owned()
    }
}

impl Endpoints {
    /// Those of a region, unless a cloud-config or variables say otherwise; variables win.
    pub fn new(
        region: &str,
        config: &CloudConfig,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, EndpointError> {
        let endpoint = |service: &Service| {
            let found = config.overrides.values().find(|found| {
                (found.service.eq_ignore_ascii_case(service.id)
                    || found.service.eq_ignore_ascii_case(service.word))
                    && found.region == region
            });
            let given = |name: &str| variable(name).filter(|url| !url.is_empty());
            let url = given(service.variable)
                .or_else(|| given("AWS_ENDPOINT_URL"))
                .or_else(|| found.map(|found| found.url.trim().to_owned()))
                .unwrap_or_else(|| usual(service, region, &variable));
            let text = |get: fn(&crate::ServiceOverride) -> &String, usual: &str| {
                found.map(get).filter(|text| !text.is_empty()).map_or(usual.to_owned(), Clone::clone)
            };
            let url = url.trim_end_matches('/').to_owned() + "/";
            let after = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if after.is_none_or(|host| host.starts_with('/') || host.contains(char::is_whitespace)) {
                return Err(EndpointError { service: service.id, url });
            }
            let global = if service.word == "iam" { "us-east-1" } else { region };
            Ok(Endpoint {
                url,
                signing_name: text(|found| &found.signing_name, service.word),
                signing_region: text(|found| &found.signing_region, global),
                version: service.version,
                headers: Vec::new(),
            })
        };
        Ok(Endpoints {
            ec2: endpoint(&EC2)?,
            elb: endpoint(&ELB)?,
            sts: endpoint(&STS)?,
            iam: endpoint(&IAM)?,
            region: region.to_owned(),
        })
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }
}

/// Where AWS has a service for a region.
fn usual(service: &Service, region: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let on = |name| variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let word = service.word;
    if word == "iam" {
        return if region.starts_with("cn-") {
            "https://iam.cn-north-1.amazonaws.com.cn".to_owned()
        } else {
            "https://iam.amazonaws.com".to_owned()
        };
    }
    let fips = if on("AWS_USE_FIPS_ENDPOINT") { "-fips" } else { "" };
    let domain = match (region, on("AWS_USE_DUALSTACK_ENDPOINT")) {
        (region, true) if region.starts_with("cn-") => "api.amazonwebservices.com.cn",
        (_, true) => "api.aws",
        (region, false) if region.starts_with("cn-") => "amazonaws.com.cn",
        (region, false) if region.starts_with("us-iso-") => "c2s.ic.gov",
        (region, false) if region.starts_with("us-isob-") => "sc2s.sgov.gov",
        (region, false) if region.starts_with("eu-isoe-") => "cloud.adc-e.uk",
        _ => "amazonaws.com",
    };
    format!("https://{word}{fips}.{region}.{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(region: &str, config: &str, variables: &[(&str, &str)]) -> Result<Endpoints, EndpointError> {
        let (config, _) = CloudConfig::parse(config).unwrap();
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Endpoints::new(region, &config, variable)
    }

    #[test]
    fn of_a_region() {
        for (region, variables, ec2, elb) in [
            (
                "eu-west-1",
                &[][..],
                "https://ec2.eu-west-1.amazonaws.com/",
                "https://elasticloadbalancing.eu-west-1.amazonaws.com/",
            ),
            (
                "cn-north-1",
                &[],
                "https://ec2.cn-north-1.amazonaws.com.cn/",
                "https://elasticloadbalancing.cn-north-1.amazonaws.com.cn/",
            ),
            (
                "us-gov-west-1",
                &[("AWS_USE_FIPS_ENDPOINT", "true")],
                "https://ec2-fips.us-gov-west-1.amazonaws.com/",
                "https://elasticloadbalancing-fips.us-gov-west-1.amazonaws.com/",
            ),
            (
                "eu-west-1",
                &[("AWS_USE_DUALSTACK_ENDPOINT", "true")],
                "https://ec2.eu-west-1.api.aws/",
                "https://elasticloadbalancing.eu-west-1.api.aws/",
            ),
            (
                "eu-west-1",
                &[("AWS_ENDPOINT_URL", "http://127.0.0.1:5000"), ("AWS_ENDPOINT_URL_EC2", "http://[::1]:1/")],
                "http://[::1]:1/",
                "http://127.0.0.1:5000/",
            ),
        ] {
            let found = endpoints(region, "", variables).unwrap();
            assert_eq!((found.ec2.url.as_str(), found.elb.url.as_str()), (ec2, elb));
            assert_eq!(found.ec2.signing_region, region);
        }
    }

    #[test]
    fn of_a_cloud_config() {
        let config = "[ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = http://h:1\nSigningRegion = s\n\
                      [ServiceOverride \"2\"]\nService = Elastic Load Balancing v2\nRegion = r\nURL = https://l\n\
                      SigningRegion = s\nSigningName = n\n";
        let found = endpoints("r", config, &[]).unwrap();
        assert_eq!(found.ec2.url, "http://h:1/");
        assert_eq!((found.ec2.signing_name.as_str(), found.ec2.signing_region.as_str()), ("ec2", "s"));
        assert_eq!((found.elb.url.as_str(), found.elb.signing_name.as_str()), ("https://l/", "n"));
        assert_eq!(found.elb.host(), "l");
        let elsewhere = endpoints("other", config, &[]).unwrap();
        assert_eq!(elsewhere.ec2.url, "https://ec2.other.amazonaws.com/");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in ["ftp://x", "https://", "127.0.0.1:5000", "http://a b"] {
            let error = endpoints("r", "", &[("AWS_ENDPOINT_URL_EC2", url)]).unwrap_err();
            assert!(error.to_string().contains("is not an address for EC2"), "{error}");
        }
    }
}
