//! Who calls, and what they may: as much of STS and IAM as a client asks.

use std::time::{Duration, SystemTime};

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::server::invalid_action;
use crate::{Credentials, clock, xml};

/// What is called by whoever has no credentials yet.
pub(crate) const UNSIGNED: &str = "AssumeRoleWithWebIdentity";

pub(crate) fn act(machine: &mut Machine, action: &str, request: Request) -> Result<String, Refusal> {
    match action {
        "GetCallerIdentity" => caller(machine, request),
        "AssumeRole" => assume_role(machine, request),
        UNSIGNED => assume_role_with_token(machine, request),
        "SimulatePrincipalPolicy" => simulate(machine, request),
        _ => Err(invalid_action(action)),
    }
}

fn caller(machine: &Machine, request: Request) -> Result<String, Refusal> {
    request.end()?;
    let account = &machine.config.account;
    Ok(xml::leaf("Arn", format!("arn:aws:iam::{account}:user/fake"))
        + &xml::leaf("UserId", "AIDAFAKEFAKEFAKEFAKE")
        + &xml::leaf("Account", account))
}

fn assume_role(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let _ = request.text("ExternalId")?;
    session_of(machine, request)
}

/// The token is one of three parts with dots between them, as those of Kubernetes are.
fn assume_role_with_token(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let token = request.needed("WebIdentityToken")?;
    let _ = request.text("ProviderId")?;
    if token.split('.').filter(|part| !part.is_empty()).count() != 3 {
        return Err(Refusal::new("InvalidIdentityToken", "The ID Token provided is not a valid JWT."));
    }
    let session = session_of(machine, request)?;
    Ok(session + &xml::leaf("SubjectFromWebIdentityToken", "system:serviceaccount:kube-system:fake"))
}

fn session_of(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let role = request.needed("RoleArn")?;
    let session = request.needed("RoleSessionName")?;
    let duration = request.number("DurationSeconds", 900..=43_200)?.unwrap_or(3600);
    let _ = request.text("Policy")?;
    request.end()?;
    if !(2..=64).contains(&session.len()) {
        return Err(Refusal::new(
            "ValidationError",
            format!("'{session}' at 'roleSessionName' has no good length"),
        ));
    }
    let Some((start, name)) = role.split_once(":role/") else {
        return Err(Refusal::new("ValidationError", format!("{role} is invalid")));
    };
    let number = machine.number();
    let key = format!("ASIA{number:016X}");
    let secret = format!("secret-{number:016x}");
    let token = format!("token-{number:016x}");
    let until = SystemTime::now() + Duration::from_secs(u64::try_from(duration).unwrap_or_default());
    let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let credentials = Credentials { key: key.clone(), secret: secret.clone() };
    machine.sessions.insert(key.clone(), (credentials, token.clone()));
    let assumed = format!("{}:assumed-role/{name}/{session}", start.replace(":iam:", ":sts:"));
    let user = xml::leaf("AssumedRoleId", format!("AROAFAKE:{session}")) + &xml::leaf("Arn", assumed);
    let credentials = xml::leaf("AccessKeyId", key)
        + &xml::leaf("SecretAccessKey", secret)
        + &xml::leaf("SessionToken", token)
        + &xml::leaf("Expiration", clock::extended(until));
    Ok(xml::node("AssumedRoleUser", user) + &xml::node("Credentials", credentials))
}

fn simulate(machine: &Machine, mut request: Request) -> Result<String, Refusal> {
    let principal = request.needed("PolicySourceArn")?;
    let actions = request.list("ActionNames")?;
    let resources = request.list("ResourceArns")?;
    for entry in request.structures("ContextEntries")? {
        let mut entry = entry;
        let _ = entry.text("ContextKeyName")?;
        let _ = entry.text("ContextKeyType")?;
        let _ = entry.list("ContextKeyValues")?;
        entry.end()?;
    }
    let _ = request.number("MaxItems", 1..=1000)?;
    let _ = request.text("Marker")?;
    request.end()?;
    if actions.is_empty() {
        return Err(Refusal::new("InvalidInput", "No action is named"));
    }
    if !principal.starts_with("arn:aws:iam::") {
        return Err(Refusal::new("InvalidInput", format!("{principal} is no user, group or role")));
    }
    let resource = resources.first().map_or("*", String::as_str);
    let results = actions.iter().map(|action| {
        let name = action.split_once(':').map_or(action.as_str(), |(_, name)| name);
        let decision = if machine.denied.contains(name) { "implicitDeny" } else { "allowed" };
        xml::leaf("EvalActionName", action)
            + &xml::leaf("EvalResourceName", resource)
            + &xml::leaf("EvalDecision", decision)
            + &xml::members("MatchedStatements", [])
            + &xml::members("MissingContextValues", [])
    });
    Ok(xml::members("EvaluationResults", results) + &xml::leaf("IsTruncated", false))
}
