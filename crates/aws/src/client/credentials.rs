//! Who calls: credentials as every AWS tool finds them, and the role of a cloud-config.

use std::time::{Duration, SystemTime};

use aws_config::BehaviorVersion;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError as ProviderError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use thiserror::Error;
use tokio::sync::Mutex;
use tracing::warn;

use super::endpoint::EndpointError;
use super::error::is_refused;
use super::{Cause, Client, Endpoints, Options, Parameters};
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

/// Credentials, which are asked for again when they are about to end: whoever gives them out has others to serve.
#[derive(Debug)]
pub(super) struct Kept {
    source: SharedCredentialsProvider,
    taken: Mutex<Option<Taken>>,
}

#[derive(Debug)]
struct Taken {
    credentials: Credentials,
    /// When others are asked for.
    renewal: SystemTime,
}

impl Kept {
    pub(super) fn new(source: SharedCredentialsProvider) -> Self {
        Kept { source, taken: Mutex::default() }
    }

    /// Those that are there, or others where these end soon. As long as there are no others, they are good to their end.
    pub(super) async fn get(&self) -> provider::Result {
        let mut taken = self.taken.lock().await;
        let now = SystemTime::now();
        if let Some(taken) = taken.as_ref().filter(|taken| now < taken.renewal) {
            return Ok(taken.credentials.clone());
        }
        match self.source.provide_credentials().await {
            Ok(credentials) => {
                let renewal =
                    credentials.expiry().map_or(now + ENDLESS, |end| end.checked_sub(EARLY).unwrap_or(now));
                *taken = Some(Taken { credentials: credentials.clone(), renewal });
                Ok(credentials)
            }
            Err(error) => {
                let good = |taken: &&mut Taken| taken.credentials.expiry().is_none_or(|end| now + LAST < end);
                let Some(taken) = taken.as_mut().filter(good) else { return Err(error) };
                warn!(
                    error = super::chain(&error),
                    "credentials cannot be renewed; those that are there are used"
                );
                taken.renewal = now + LAST;
                Ok(taken.credentials.clone())
            }
        }
    }

    /// Has others asked for the next time; whether there were any.
    pub(super) async fn forget(&self) -> bool {
        self.taken.lock().await.take().is_some()
    }
}

/// What it means that there are no credentials: nobody gives any, or whoever does cannot be asked just now.
pub(super) fn cause(error: &ProviderError) -> Cause {
    match error {
        ProviderError::ProviderTimedOut(_) => Cause::Unavailable,
        ProviderError::ProviderError(_) | ProviderError::Unhandled(_)
            if !is_refused(&super::chain(error)) =>
        {
            Cause::Unavailable
        }
        _ => Cause::Credentials,
    }
}

/// A role that is taken on.
#[derive(Debug)]
struct Role {
    client: Client,
    endpoints: Endpoints,
    arn: String,
}

/// So long before they end, credentials are renewed.
const EARLY: Duration = Duration::from_secs(300);

/// So long before they end, they are not used any more; and so often it is tried to renew them.
const LAST: Duration = Duration::from_secs(30);

/// Those without an end may be changed where they come from: they are read again after so long.
const ENDLESS: Duration = Duration::from_secs(900);

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
        // Whoever needs the role tries again, too.
        let client = Client::new(own, endpoints.clone(), Options { attempts: 2, ..Options::default() });
        Ok(Role { client, endpoints, arn: arn.to_owned() })
    }

    async fn take(&self) -> provider::Result {
        let parameters = Parameters::default().set("RoleArn", &self.arn).set("RoleSessionName", "portcullis");
        let answer = self.client.call(&self.endpoints.sts, "AssumeRole", &parameters).await;
        let answer = answer.map_err(ProviderError::provider_error)?;
        let found = answer.child("AssumeRoleResult").and_then(|result| result.child("Credentials"));
        let found = found.ok_or_else(|| ProviderError::unhandled("the answer has no credentials"))?;
        let end = aws_smithy_types::DateTime::from_str(
            &found.text("Expiration"),
            aws_smithy_types::date_time::Format::DateTime,
        );
        Ok(Credentials::new(
            found.text("AccessKeyId"),
            found.text("SecretAccessKey"),
            found.optional("SessionToken"),
            end.ok().and_then(|end| SystemTime::try_from(end).ok()),
            "role of the cloud-config",
        ))
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
