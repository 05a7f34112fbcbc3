//! Reads what anybody may have written, and says of everything that cannot be read where it is.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use super::super::duration;

/// What is to be said about what was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// What cannot be carried out: a sentence for each place, which starts with the place.
    pub(super) wrong: Vec<String>,
    /// What is not carried out, while everything else is.
    pub(super) ignored: Vec<String>,
}

/// A place in an object, and what is there. Null is nothing.
pub(super) struct Reader<'a> {
    place: String,
    value: Option<&'a Value>,
    notes: &'a RefCell<Notes>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(place: &str, value: Option<&'a Value>, notes: &'a RefCell<Notes>) -> Self {
        Reader { place: place.to_owned(), value: value.filter(|value| !value.is_null()), notes }
    }

    /// What is there under a key.
    pub(super) fn at(&self, key: &str) -> Reader<'a> {
        let found = self.value.and_then(|value| value.get(key));
        Reader::new(&format!("{}.{key}", self.place), found, self.notes)
    }

    /// That only these keys are known. Others are told of: whoever wrote them expects something.
    pub(super) fn has_keys(&self, known: &[&str]) -> bool {
        match self.value {
            None => false,
            Some(Value::Object(found)) => {
                for key in found.keys().filter(|key| !known.contains(&key.as_str())) {
                    self.at(key).ignore("it is not known here, and nothing comes of it");
                }
                true
            }
            Some(_) => {
                self.refuse("is no object with fields");
                false
            }
        }
    }

    /// The entries of a list, of which there are not more than so many.
    pub(super) fn entries(&self, most: usize) -> Vec<Reader<'a>> {
        match self.value {
            None => Vec::new(),
            Some(Value::Array(found)) if found.len() <= most => {
                let place = |index: usize| format!("{}[{index}]", self.place);
                let each = found.iter().enumerate();
                each.map(|(index, entry)| Reader::new(&place(index), Some(entry), self.notes)).collect()
            }
            Some(Value::Array(found)) => {
                let place = &self.place;
                self.wrong(format!("{place}: there are {}, and at most {most} are taken", found.len()));
                Vec::new()
            }
            Some(_) => {
                self.refuse("is no list");
                Vec::new()
            }
        }
    }

    /// Text that can stand in a line of a file. Nothing, if it is empty.
    pub(super) fn text(&self) -> Option<&'a str> {
        let Some(text) = self.value?.as_str() else {
            self.refuse("is no text");
            return None;
        };
        if text.chars().any(char::is_control) {
            self.refuse("has a letter that cannot be printed; remove it");
            return None;
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// Text that has to be such.
    pub(super) fn text_that(&self, is: impl Fn(&str) -> bool, what: &str) -> Option<String> {
        let text = self.text()?;
        if !is(text) {
            self.refuse(what);
            return None;
        }
        Some(text.to_owned())
    }

    /// A name that has to be given.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.text();
        if name.is_none() && !self.is_wrong() {
            self.wrong(format!("{}: it is missing; name one", self.place));
        }
        name.map(str::to_owned)
    }

    /// One of a few words.
    pub(super) fn word(&self, known: &[&str]) -> Option<&'a str> {
        let word = self.text()?;
        if !known.contains(&word) {
            self.refuse(&format!("is not known; it is {}", known.join(" or ")));
            return None;
        }
        Some(word)
    }

    /// A whole number.
    pub(super) fn number(&self, within: RangeInclusive<i64>) -> Option<i64> {
        let found = self.value?.as_i64().filter(|number| within.contains(number));
        if found.is_none() {
            let (least, most) = within.into_inner();
            let range =
                if most == i64::MAX { format!("from {least} on") } else { format!("from {least} to {most}") };
            self.refuse(&format!("is not a whole number {range}"));
        }
        found
    }

    /// A duration. Nothing, if it is zero: that means the usual.
    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.text()?;
        let found = duration::duration(text);
        if found.is_none() {
            self.refuse("is not a duration such as `1m30s`");
        }
        found.filter(|found| !found.is_zero())
    }

    /// Yes or no, as the programs write it that wrote it so far: also as text.
    pub(super) fn flag(&self) -> Option<bool> {
        let found = match self.value? {
            Value::Bool(found) => Some(*found),
            Value::String(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
                "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if found.is_none() {
            self.refuse("is neither true nor false");
        }
        found
    }

    /// Says what is wrong with what is there.
    pub(super) fn refuse(&self, what: &str) {
        let value = match self.value {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let value: String = value.escape_debug().take(100).collect();
        self.wrong(format!("{}: `{value}` {what}", self.place));
    }

    /// Says what is wrong at this place.
    pub(super) fn wrong(&self, sentence: String) {
        self.notes.borrow_mut().wrong.push(sentence);
    }

    /// Says that something is not carried out.
    pub(super) fn ignore(&self, why: &str) {
        self.notes.borrow_mut().ignored.push(format!("{}: {why}", self.place));
    }

    /// Whether anything is there.
    pub(super) fn is_given(&self) -> bool {
        self.value.is_some()
    }

    /// Where this is.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn is_wrong(&self) -> bool {
        let start = format!("{}:", self.place);
        self.notes.borrow().wrong.iter().any(|sentence| sentence.starts_with(&start))
    }
}
