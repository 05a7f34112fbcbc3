//! Who calls: credentials as every AWS tool finds them, and the role of a cloud-config.

use std::time::{Duration, SystemTime};

use aws_config::BehaviorVersion;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError as ProviderError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use thiserror::Error;
use tokio::sync::Mutex;

use super::endpoint::EndpointError;
use super::{Client, Endpoints, Options, Parameters};
use crate::CloudConfig;

/// Why nobody can call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// No region.
    #[error(
        "there is no AWS region: set `Region` in the cloud-config, or AWS_REGION, or run where AWS's metadata service is"
    )]
    NoRegion,
    /// Nowhere to look for credentials.
    #[error(
        "there are no AWS credentials: set AWS_PROFILE, AWS_ROLE_ARN or AWS_ACCESS_KEY_ID, or run with a role"
    )]
    NoCredentials,
    /// An address that is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A role that is none.
    #[error(
        "`{0}` is not the ARN of a role or source: it has to be like arn:aws:iam::123456789012:role/name"
    )]
    Arn(String),
}

/// A client with the credentials of the environment (variables, profile, web identity, container or instance), in the
/// region and with the role of the cloud-config.
pub async fn load(config: &CloudConfig, options: Options) -> Result<Client, CredentialsError> {
    let sdk = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let region = match config.global.region.as_str() {
        "" => sdk.region().map(ToString::to_string).ok_or(CredentialsError::NoRegion)?,
        region => region.to_owned(),
    };
    let endpoints = Endpoints::new(&region, config, |name| std::env::var(name).ok())?;
    let own = sdk.credentials_provider().ok_or(CredentialsError::NoCredentials)?;
    let credentials = match config.global.role_arn.as_str() {
        "" => own,
        role => {
            let role = Role::new(role, &config.global.source_arn, own, endpoints.clone())?;
            SharedCredentialsProvider::new(role)
        }
    };
    Ok(Client::new(credentials, endpoints, options))
}

/// A role that is taken on, again and again before its credentials end.
#[derive(Debug)]
struct Role {
    client: Client,
    endpoints: Endpoints,
    arn: String,
    taken: Mutex<Option<Credentials>>,
}

/// So long before they end, credentials are renewed.
const EARLY: Duration = Duration::from_secs(300);

impl Role {
    fn new(
        arn: &str,
        source: &str,
        own: SharedCredentialsProvider,
        mut endpoints: Endpoints,
    ) -> Result<Self, CredentialsError> {
        account(arn)?;
        if !source.is_empty() {
            let account = account(source)?;
            endpoints.sts.headers =
                vec![("x-amz-source-arn", source.to_owned()), ("x-amz-source-account", account.to_owned())];
        }
        let client = Client::new(own, endpoints.clone(), Options::default());
        Ok(Role { client, endpoints, arn: arn.to_owned(), taken: Mutex::default() })
    }

    async fn take(&self) -> provider::Result {
        let mut taken = self.taken.lock().await;
        if let Some(credentials) = taken.as_ref()
            && credentials.expiry().is_none_or(|end| end > SystemTime::now() + EARLY)
        {
            return Ok(credentials.clone());
        }
        let parameters = Parameters::default().set("RoleArn", &self.arn).set("RoleSessionName", "portcullis");
        let answer = self.client.call(&self.endpoints.sts, "AssumeRole", &parameters).await;
        let answer = answer.map_err(ProviderError::provider_error)?;
        let found = answer.child("AssumeRoleResult").and_then(|result| result.child("Credentials"));
        let found = found.ok_or_else(|| ProviderError::unhandled("the answer has no credentials"))?;
        let end = aws_smithy_types::DateTime::from_str(
            &found.text("Expiration"),
            aws_smithy_types::date_time::Format::DateTime,
        );
        let credentials = Credentials::new(
            found.text("AccessKeyId"),
            found.text("SecretAccessKey"),
            found.optional("SessionToken"),
            end.ok().and_then(|end| SystemTime::try_from(end).ok()),
            "role of the cloud-config",
        );
        *taken = Some(credentials.clone());
        Ok(credentials)
    }
}

impl ProvideCredentials for Role {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.take())
    }
}

/// The account in an ARN.
fn account(arn: &str) -> Result<&str, CredentialsError> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    match parts.as_slice() {
        ["arn", _, _, _, account, resource] if !account.is_empty() && !resource.is_empty() => Ok(account),
        _ => Err(CredentialsError::Arn(arn.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_an_arn() {
        assert_eq!(account("arn:aws:iam::123456789012:role/a:b"), Ok("123456789012"));
        for arn in ["", "role", "arn:aws:iam:::role/x", "arn:aws:iam::1:"] {
            assert_eq!(account(arn), Err(CredentialsError::Arn(arn.to_owned())));
        }
    }
}
