use super::elements::{INET, TABLE};
use super::message::{NFTABLES, Received, attribute, text};

/// The end of a batch: what it made, and who did.
const NEW_GENERATION: u16 = NFTABLES + 15;
const GENERATION_NAME: u16 = 3;
/// Tables, chains, rules, sets and elements all have the name of their table first.
const OF_TABLE: u16 = 1;

/// What the kernel tells all who listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something in our table is another.
    Ours,
    /// A batch ended, which this program sent.
    End(Option<String>),
}

/// What is of interest in a message to all.
pub(crate) fn news(message: Received<'_>) -> Option<News> {
    let attributes = message.rest.get(4..)?;
    if message.kind == NEW_GENERATION {
        return Some(News::End(attribute(attributes, GENERATION_NAME).map(text)));
    }
    let of_ours = message.kind & 0xff00 == NFTABLES
        && message.rest.first() == Some(&INET)
        && attribute(attributes, OF_TABLE).map(text).as_deref() == Some(TABLE);
    of_ours.then_some(News::Ours)
}

#[cfg(test)]
mod tests {
    use super::super::message::{Messages, messages};
    use super::*;

    #[test]
    fn what_is_ours_is_known_by_its_table() {
        let read = |kind: u16, family: u8, table: &str| {
            let mut all = Messages::default();
            all.add(kind, 0, family, |attributes| attributes.text(OF_TABLE, table));
            messages(all.bytes()).find_map(news)
        };
        assert_eq!(read(NFTABLES + 14, INET, TABLE), Some(News::Ours));
        assert_eq!(read(NFTABLES + 2, INET, "kube-proxy"), None);
        assert_eq!(read(NFTABLES + 2, 2, TABLE), None, "a table of another family is another");
        assert_eq!(read(14, INET, TABLE), None, "as is what is not of nftables");
        let mut end = Messages::default();
        end.add(NEW_GENERATION, 0, 0, |attributes| attributes.text(GENERATION_NAME, "nft"));
        assert_eq!(messages(end.bytes()).find_map(news), Some(News::End(Some("nft".to_owned()))));
    }
}
