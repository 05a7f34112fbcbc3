use serde::Serialize;
use thiserror::Error;

/// Something that keeps a want from being met, in three sentences for whoever can change it. The same three
/// go to the terminal, the log, the Event and the condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[error("{what}\n  {state}\n  {remedy}")]
pub struct Problem {
    /// What is wrong, and with which object.
    pub what: String,
    /// What state things are in.
    pub state: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// A problem in three sentences.
    pub fn new(what: impl Into<String>, state: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), state: state.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_one_line_and_two_below_it() {
        let problem = Problem::new(
            "Service shop/web: group sg-0dead is in another network.",
            "Nothing was changed.",
            "Use a group of vpc-0a1b.",
        );
        assert_eq!(
            problem.to_string(),
            "Service shop/web: group sg-0dead is in another network.\n  \
             Nothing was changed.\n  Use a group of vpc-0a1b."
        );
    }
}
