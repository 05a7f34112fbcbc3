//! Lists in pages.

use crate::refusal::Refusal;
use crate::request::Request;
use crate::{mark, xml};

use super::invalid;

/// So long is a page at most, and where nobody says anything.
const LONGEST: usize = 400;

/// Which part of a list is wanted.
#[derive(Debug)]
pub(super) struct Page {
    size: usize,
    after: Option<String>,
}

impl Page {
    pub(super) fn take(request: &mut Request) -> Result<Self, Refusal> {
        let size = request.number("PageSize", 1..=400)?.and_then(|size| usize::try_from(size).ok());
        let unknown = || invalid("The marker is not valid");
        let after = request.text("Marker")?.map(|token| mark::key(&token).ok_or_else(unknown)).transpose()?;
        Ok(Page { size: size.unwrap_or(LONGEST), after })
    }

    /// The part, and the mark with which the next is asked for.
    pub(super) fn cut<'a, T>(
        self,
        all: impl IntoIterator<Item = (&'a String, T)>,
    ) -> (Vec<(&'a String, T)>, String) {
        let mut rest =
            all.into_iter().filter(|(key, _)| self.after.as_ref().is_none_or(|after| *key > after));
        let part: Vec<_> = rest.by_ref().take(self.size).collect();
        let next = match (rest.next(), part.last()) {
            (Some(_), Some((last, _))) => xml::leaf("NextMarker", mark::after(last)),
            _ => String::new(),
        };
        (part, next)
    }
}
