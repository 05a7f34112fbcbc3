//! `portcullis parts`

use portcullis_parts::catalogue::{PARTS, Part, Source};
use portcullis_parts::install::{check_tools, install, installed_version};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::progress::Progress;
use crate::sandbox::failure;

/// Show the programs that the sandbox and the tests run, and install what is missing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install what is missing; some of it is built from source, which takes minutes the first time
    #[arg(long)]
    install: bool,

    /// In which form
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "table")]
    output: Format,
}

/// One line of the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    part: &'static str,
    version: Option<String>,
    from: String,
    purpose: &'static str,
    missing: Vec<&'static str>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.install {
        install_missing(|_| true, &Progress::new())?;
    }
    let rows: Vec<Row> = PARTS.iter().map(Row::of).collect();
    let text = match args.output {
        Format::Table => table(&rows),
        Format::Json => output::json(&rows)?,
        Format::Yaml => output::yaml(&rows)?,
    };
    output::print(&text)?;
    match rows.iter().filter(|row| !row.missing.is_empty()).count() {
        0 => Ok(()),
        count => Err(Failure::new(Exit::Lacking, format!("{count} of {} parts are missing", rows.len()))
            .note("Install them: portcullis parts --install")),
    }
}

/// Installs the parts that `wanted` says and that are not here.
pub(crate) fn install_missing(wanted: impl Fn(&Part) -> bool, progress: &Progress) -> Result<(), Failure> {
    let missing: Vec<_> = PARTS.iter().filter(|part| wanted(part) && !part.missing().is_empty()).collect();
    check_tools(missing.iter().copied()).map_err(failure)?;
    for part in missing {
        let step = progress.step(part.name);
        install(part, &mut |words| step.note(words)).map_err(failure)?;
        step.done(&match &part.source {
            Source::Debian { packages } => packages.join(", "),
            Source::Go(_) | Source::Python { .. } => {
                format!("{}, {}", installed_version(part).unwrap_or_default(), part.purpose)
            }
        });
    }
    Ok(())
}

impl Row {
    fn of(part: &Part) -> Self {
        let from = match part.source {
            Source::Debian { packages } => format!("Debian: {}", packages.join(", ")),
            Source::Go(_) => "Go module".to_owned(),
            Source::Python { .. } => "Python package".to_owned(),
        };
        let missing = part.missing();
        let version = if !missing.is_empty() {
            None
        } else if part.is_given() {
            Some("given".to_owned())
        } else {
            installed_version(part)
        };
        Row { part: part.name, version, from, purpose: part.purpose, missing }
    }
}

fn table(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let state = if row.missing.is_empty() {
            "installed".to_owned()
        } else {
            format!("missing {}", row.missing.join(", "))
        };
        let version = row.version.clone().unwrap_or_else(|| "–".to_owned());
        vec![row.part.to_owned(), version, state, row.purpose.to_owned(), row.from.clone()]
    });
    output::table(&["PART", "VERSION", "STATE", "FOR", "FROM"], &cells.collect::<Vec<_>>())
}
