//! `portcullis adopt-ovirt`

mod ini;
mod provider;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use portcullis_ovn::objects::Project;
use portcullis_ovn::{Adopted, Rejected, Store, StoreSettings, Survey};
use portcullis_ovsdb::Remote;
use serde::Deserialize;

use crate::cli::ConfigArgs;
use crate::config::{Identity, Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::roles::networking::store_settings;

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Adopt what ovirt-provider-ovn has in a northbound database: networks, subnets, ports, routers and groups
///
/// Without --yes it changes nothing, and prints what it would adopt and what it could not. Ids, names, addresses and
/// what is let through stay as they are. Stop ovirt-provider-ovn and make a copy of the database first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,

    /// The northbound database, instead of the configured one; of a cluster, all members
    #[arg(long, value_name = "REMOTE", value_delimiter = ',')]
    northbound: Vec<Remote>,

    /// Also print the configuration that corresponds to this one of ovirt-provider-ovn
    #[arg(long, value_name = "FILE")]
    provider_config: Option<PathBuf>,

    /// The project that gets everything: its id, or the name of one that is known
    #[arg(long, value_name = "NAME_OR_ID")]
    project: String,

    /// Leave what cannot be adopted as it is, with all that hangs together with it
    #[arg(long)]
    leave: bool,

    /// Do it
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { config, northbound, provider_config, project, leave, yes } = args;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    if yes && loaded.config.mode == Mode::Observe {
        let what = "nothing is changed in this mode: leave --yes out to look, or set it to manage";
        return Err(Failure::from(loaded.mistake("mode", what)).state("Nothing was changed."));
    }
    let translated = match provider_config {
        Some(file) => Some(provider::translate(&provider::read(&file)?)?),
        None => None,
    };
    if let Some(translation) = &translated {
        output::print(&corresponding(translation)?)?;
    }
    let settings = store_settings(&loaded, &northbound)?;
    let settings = StoreSettings { coexist: true, read_only: !yes, ..settings };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let store = open(settings).await?;
        let project = project_id(&loaded, translated.as_ref(), &store, &project)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or_default();
        if !yes {
            let survey = store.survey_ovirt(&project, now);
            output::print(&report(&survey, "Nothing was changed. With --yes this is adopted"))?;
            return Ok(());
        }
        match store.adopt_ovirt(project, now, leave).await {
            Ok(survey) => Ok(output::print(&report(&survey, "Adopted"))?),
            Err(Rejected::Decided(survey)) => {
                output::print(&report(&survey, "Without what is in the way, this would be adopted"))?;
                let error =
                    format!("not everything can be adopted; rows in the way: {}", survey.findings.len());
                Err(Failure::new(Exit::Failed, error)
                    .note("Nothing was changed.")
                    .note("Mend or remove them, or leave them and what hangs on them as they are: --leave"))
            }
            Err(Rejected::Store(error)) => Err(Failure::new(Exit::Failed, error.to_string())),
        }
    })
}

async fn open(settings: StoreSettings) -> Result<Store, Failure> {
    let store = Store::start(settings);
    match tokio::time::timeout(PATIENCE, store.opened()).await {
        Ok(Ok(())) => Ok(store),
        Ok(Err(error)) => Err(Failure::new(Exit::Failed, error.to_string())),
        Err(_) => {
            let why = store.state().err().unwrap_or_default();
            Err(Failure::new(Exit::Failed, format!("the northbound database cannot be reached: {why}"))
                .note("Nothing was changed. Look at --northbound."))
        }
    }
}

/// The id of the project that is meant. It must be known: what is adopted stays in it, and nobody could be asked for what
/// went to a project that nobody is in.
fn project_id(
    loaded: &Loaded,
    translated: Option<&provider::Translation>,
    store: &Store,
    project: &str,
) -> Result<String, Failure> {
    let (identity, model) = (&loaded.config.identity, store.model());
    if let Some(id) = identity.local.project_id(project) {
        return Ok(id);
    }
    let translated = translated.and_then(|translation| {
        let identity = Identity::deserialize(&translation.config["identity"]).ok()?;
        identity.local.project_id(project)
    });
    if let Some(id) = translated {
        return Ok(id);
    }
    let named: Vec<_> = model.named::<Project>(project).map(|known| known.meta.id).collect();
    if let [id] = named.as_slice() {
        return Ok(id.simple().to_string());
    }
    let id = project.to_lowercase();
    if model.all::<Project>(None).any(|known| known.meta.id.simple().to_string() == id) {
        return Ok(id);
    }
    if identity.keystone.is_some() && id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        output::warning(&format!(
            "whether Keystone has a project {id} is not looked at, and what is adopted stays in it"
        ));
        return Ok(id);
    }
    Err(Failure::new(Exit::Usage, format!("there is no project {project}"))
        .note("Nothing was changed.")
        .note("Add it to identity.local.projects, or give the id or the name of one that is there."))
}

fn report(survey: &Survey, title: &str) -> String {
    let rows = |of: &[Adopted]| -> Vec<Vec<String>> {
        let row = |one: &Adopted| {
            vec![one.kind.name().to_owned(), one.id.to_string(), one.name.clone(), one.what.clone()]
        };
        of.iter().map(row).collect()
    };
    let headers = ["KIND", "ID", "NAME", "WHAT"];
    let adopted = survey.adopted();
    let mut text = if adopted.is_empty() {
        "There is nothing of ovirt-provider-ovn to adopt.\n".to_owned()
    } else {
        format!("{title}:\n\n{}", output::table(&headers, &rows(&adopted)))
    };
    if !survey.findings.is_empty() {
        let found: Vec<Vec<String>> = survey
            .findings
            .iter()
            .map(|found| {
                vec![found.table.to_owned(), found.row.to_string(), found.name.clone(), found.why.clone()]
            })
            .collect();
        let found = output::table(&["TABLE", "ROW", "NAME", "WHY"], &found);
        // Writing to a String cannot fail.
        let _ = write!(text, "\nThese rows cannot be adopted:\n\n{found}");
    }
    if !survey.left.is_empty() {
        let left = output::table(&headers, &rows(&survey.left));
        let _ = write!(text, "\nThese hang together with them, and stay as they are too:\n\n{left}");
    }
    text
}

fn corresponding(translation: &provider::Translation) -> anyhow::Result<String> {
    let mut text = format!("# /etc/portcullis/config.yaml\n{}", output::yaml(&translation.config)?);
    for (key, why) in &translation.without {
        let _ = writeln!(text, "# Without counterpart: {key}: {why}.");
    }
    Ok(text + "\n")
}
