//! Filters, and lists in pages.

use std::ops::RangeInclusive;

use crate::refusal::Refusal;
use crate::request::Request;
use crate::{Tags, mark, xml};

use super::invalid;

/// Filters: objects match all of them, and any value of each.
#[derive(Debug)]
pub(super) struct Filters(Vec<(String, Vec<String>)>);

impl Filters {
    /// Takes the filters of a request, of which only these and those for tags are known.
    pub(super) fn take(request: &mut Request, known: &[&str]) -> Result<Self, Refusal> {
        let mut filters = Vec::new();
        for mut filter in request.structures("Filter")? {
            let name = filter.needed("Name")?;
            let values = filter.list("Value")?;
            filter.end()?;
            let tagged = name.strip_prefix("tag:").is_some_and(|key| !key.is_empty()) || name == "tag-key";
            if !tagged && !known.contains(&name.as_str()) {
                return Err(invalid(format!("The filter '{name}' is invalid")));
            }
            if values.is_empty() {
                return Err(invalid(format!("The filter '{name}' has no value")));
            }
            filters.push((name, values));
        }
        if filters.iter().map(|(_, values)| values.len()).sum::<usize>() > 200 {
            let message = "The maximum number of filter values specified on a single call is 200";
            return Err(Refusal::new("FilterLimitExceeded", message));
        }
        Ok(Filters(filters))
    }

    /// Whether something matches, by its tags and by what else it has of a name.
    pub(super) fn match_with(&self, tags: &Tags, of: impl Fn(&str) -> Vec<String>) -> bool {
        self.0.iter().all(|(name, values)| {
            let found = match name.strip_prefix("tag:") {
                Some(key) => tags.get(key).cloned().into_iter().collect(),
                None if name == "tag-key" => tags.keys().cloned().collect(),
                None => of(name),
            };
            found.iter().any(|found| values.iter().any(|value| fits(value, found)))
        })
    }
}

/// Whether a text fits a value in which `*` stands for anything and `?` for a character.
fn fits(value: &str, text: &str) -> bool {
    let mut rest = value.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            let ends = text.char_indices().map(|(place, _)| place).chain([text.len()]);
            ends.into_iter().any(|place| fits(rest.as_str(), &text[place..]))
        }
        Some(wanted) => {
            let mut found = text.chars();
            found.next().is_some_and(|first| wanted == '?' || wanted == first)
                && fits(rest.as_str(), found.as_str())
        }
    }
}

/// Which part of a list is wanted.
#[derive(Debug)]
pub(super) struct Page {
    size: Option<usize>,
    after: Option<String>,
}

impl Page {
    pub(super) fn take(request: &mut Request, sizes: RangeInclusive<i32>) -> Result<Self, Refusal> {
        let size = request.number("MaxResults", sizes)?.and_then(|size| usize::try_from(size).ok());
        let unknown = || Refusal::new("InvalidNextToken", "The token is not valid");
        let after =
            request.text("NextToken")?.map(|token| mark::key(&token).ok_or_else(unknown)).transpose()?;
        Ok(Page { size, after })
    }

    pub(super) fn has_size(&self) -> bool {
        self.size.is_some()
    }

    /// The part, and the token with which the next is asked for. `usual` is the size where none is wanted; everything
    /// where there is none.
    pub(super) fn cut<T>(
        self,
        all: impl IntoIterator<Item = (String, T)>,
        usual: Option<usize>,
    ) -> (Vec<(String, T)>, String) {
        let size = self.size.or(usual).unwrap_or(usize::MAX);
        let mut rest = all.into_iter().filter(|(key, _)| self.after.as_ref().is_none_or(|after| key > after));
        let part: Vec<_> = rest.by_ref().take(size).collect();
        let token = match (rest.next(), part.last()) {
            (Some(_), Some((last, _))) => xml::leaf("nextToken", mark::after(last)),
            _ => String::new(),
        };
        (part, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        for (value, text, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(value, text), expected, "{value} {text}");
        }
    }
}
