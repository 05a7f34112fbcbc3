//! Everything the program prints, except its log.
//!
//! Results go to standard output, all else to standard error. Colours appear on terminals only, unless `--color`
//! says otherwise.

use std::io::{self, ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use crate::config::Finding;
use crate::exit::Failure;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The forms that results are printed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

/// The forms of what is told rather than listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// For all streams, and for the whole run of the program.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// Whether what is written to standard error should be coloured.
pub(crate) fn stderr_is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// Prints a result. A reader who has seen enough and closed the pipe (`| head -1`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

pub(crate) fn warnings(findings: &[Finding]) {
    for finding in findings {
        warning(&finding.to_string());
    }
}

pub(crate) fn warning(text: &str) {
    stderr(&format!("{WARNING}warning{WARNING:#}: {text}\n"));
}

pub(crate) fn failure(failure: &Failure) {
    warnings(&failure.warnings);
    for error in &failure.errors {
        stderr(&format!("{ERROR}error{ERROR:#}: {error}\n"));
    }
    for note in &failure.notes {
        stderr(&format!("  {note}\n"));
    }
}

/// Prints what is not a result.
pub(crate) fn stderr(text: &str) {
    // Nobody is left to hear about a closed standard error.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// Rows under their headers. On a terminal long cells are wrapped to its width; elsewhere each row stays one
/// line, so that grep and awk see it whole.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let width = terminal_size_of(io::stdout()).map(|(Width(columns), _)| columns);
    table_within(width, headers, rows)
}

fn table_within(width: Option<u16>, headers: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headers).add_rows(rows);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests;
