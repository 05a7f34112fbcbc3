//! Plans for people and for programs.

use anyhow::Context;
use portcullis_core::placeholder;
use serde_json::Value;

use super::Plans;
use crate::exit::Failure;
use crate::output::{self, Form};

pub(super) fn shown(plans: &Plans, form: Form) -> Result<String, Failure> {
    match form {
        Form::Text => {
            let mut text = String::new();
            for (_, plan) in plans {
                match plan {
                    Ok(planned) => text.push_str(&known(&planned.plan.to_string(), &planned.unknown)),
                    Err(problem) => text.extend([problem.to_string().as_str(), "\n"]),
                }
                text.push('\n');
            }
            if plans.is_empty() {
                text.push_str("There is nothing of ours.\n");
            }
            Ok(text.trim_end().to_owned() + "\n")
        }
        Form::Json => {
            let mut all = Vec::new();
            for (name, plan) in plans {
                all.push(match plan {
                    Ok(planned) => {
                        let mut plan =
                            serde_json::to_value(&planned.plan).context("cannot print the plan")?;
                        leave_open(&mut plan, &planned.unknown);
                        plan
                    }
                    Err(problem) => serde_json::json!({"name": name, "problem": problem}),
                });
            }
            Ok(output::json(&all)?)
        }
    }
}

/// A text in which ports that are not known stand for themselves.
fn known(text: &str, unknown: &[u16]) -> String {
    unknown
        .iter()
        .fold(text.to_owned(), |text, port| text.replace(&port.to_string(), &placeholder("node port")))
}

/// The same within a value.
fn leave_open(value: &mut Value, unknown: &[u16]) {
    match value {
        Value::String(text) => *text = known(text, unknown),
        Value::Number(number) if unknown.iter().any(|port| number.as_u64() == Some((*port).into())) => {
            *value = Value::String(placeholder("node port"));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| leave_open(value, unknown)),
        Value::Object(values) => values.values_mut().for_each(|value| leave_open(value, unknown)),
        _ => {}
    }
}
