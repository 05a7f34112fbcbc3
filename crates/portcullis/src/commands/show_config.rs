//! `portcullis show-config`

use anyhow::Context;
use clap::ValueEnum;
use serde_json::Value;

use crate::cli::ConfigArgs;
use crate::config::{Config, Loaded};
use crate::exit::Failure;
use crate::output::{self, Format};

/// Print the configuration
///
/// As YAML or JSON it can be loaded again and means the same, but for passwords and their hashes, which are never
/// shown. As a table it says where each value comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to show
    #[arg(short, long, value_enum, default_value = "effective")]
    mode: Which,

    /// In which form
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "yaml")]
    output: Format,

    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Which {
    /// What the files and flags amount to
    Effective,
    /// What holds when nothing is set; no file is read
    Default,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let loaded = match args.mode {
        Which::Effective => args.config.sources().load()?,
        Which::Default => Loaded::default(),
    };
    output::warnings(&loaded.warnings);
    let text = match args.output {
        Format::Yaml => output::yaml(&loaded.config)?,
        Format::Json => output::json(&loaded.config)?,
        Format::Table => table(&loaded)?,
    };
    output::print(&text)?;
    Ok(())
}

fn table(loaded: &Loaded) -> anyhow::Result<String> {
    let config = serde_json::to_value::<&Config>(&loaded.config).context("cannot print the configuration")?;
    let mut rows = Vec::new();
    collect(&config, &mut Vec::new(), loaded, &mut rows);
    Ok(output::table(&["KEY", "VALUE", "FROM"], &rows))
}

/// A row for every value that is not a map. A list is one value: files replace it as a whole.
fn collect<'c>(value: &'c Value, keys: &mut Vec<&'c str>, loaded: &Loaded, rows: &mut Vec<Vec<String>>) {
    if let Value::Object(map) = value
        && !map.is_empty()
    {
        for (key, value) in map {
            keys.push(key);
            collect(value, keys, loaded, rows);
            keys.pop();
        }
        return;
    }
    let shown = brief(value);
    let from = loaded.origin(keys).map_or_else(|| "default".to_owned(), ToString::to_string);
    rows.push(vec![keys.join("."), shown, from]);
}

/// A value for people: of things that have names, those.
fn brief(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "–".to_owned(),
        Value::Array(items) => items.iter().map(brief).collect::<Vec<_>>().join(", "),
        Value::Object(map) if map.is_empty() => "–".to_owned(),
        Value::Object(map) => map.get("name").map_or_else(|| value.to_string(), brief),
        other => other.to_string(),
    }
}
