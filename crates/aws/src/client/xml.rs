//! Answers as AWS writes them: elements with text or other elements in them.

use quick_xml::Reader;
use quick_xml::events::Event;

/// An element of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    name: String,
    text: String,
    children: Vec<Element>,
}

/// Nobody nests deeper; whoever does wants to do harm.
const DEPTH: usize = 64;

impl Element {
    /// Reads a document; the element is the outermost one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Element> = vec![Element::default()];
        loop {
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(start) => {
                    if open.len() > DEPTH {
                        return Err(format!("it is nested more than {DEPTH} deep"));
                    }
                    let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                    open.push(Element { name, ..Element::default() });
                }
                Event::Empty(empty) => {
                    let name = String::from_utf8_lossy(empty.local_name().as_ref()).into_owned();
                    if let Some(parent) = open.last_mut() {
                        parent.children.push(Element { name, ..Element::default() });
                    }
                }
                Event::End(_) => {
                    let done = open.pop().unwrap_or_default();
                    match open.last_mut() {
                        Some(parent) => parent.children.push(done),
                        None => return Err("an element ends that never began".to_owned()),
                    }
                }
                Event::Text(part) => {
                    let part = part.decode().map_err(|error| error.to_string())?;
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&part);
                    }
                }
                Event::CData(part) => {
                    let part = part.decode().map_err(|error| error.to_string())?;
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&part);
                    }
                }
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref().map_err(|error| error.to_string())?;
                    let name = reference.decode().map_err(|error| error.to_string())?;
                    let resolved = match character {
                        Some(character) => character.to_string(),
                        None => {
                            quick_xml::escape::resolve_predefined_entity(&name).unwrap_or_default().to_owned()
                        }
                    };
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&resolved);
                    }
                }
                Event::Eof => break,
                Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Comment(_) => {}
            }
        }
        let mut root = open.pop().unwrap_or_default();
        match (open.is_empty(), root.children.pop()) {
            (true, Some(element)) if root.children.is_empty() => Ok(element),
            _ => Err("it is not one whole element".to_owned()),
        }
    }

    /// The first element of that name in this one.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of an element in this one, without the spaces around it; empty where there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        self.child(name).map(|child| child.text.trim().to_owned()).unwrap_or_default()
    }

    /// The same where empty means that there is none.
    pub(crate) fn optional(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The text of this element.
    pub(crate) fn content(&self) -> String {
        self.text.trim().to_owned()
    }

    /// The elements of a list in this one, whatever each of them is called.
    pub(crate) fn list(&self, name: &str) -> impl Iterator<Item = &Element> {
        self.child(name).into_iter().flat_map(|list| &list.children)
    }

    /// What a list of pairs in this element says.
    pub(crate) fn pairs(
        &self,
        list: &str,
        key: &str,
        value: &str,
    ) -> std::collections::BTreeMap<String, String> {
        self.list(list).map(|pair| (pair.text(key), pair.text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_an_answer() {
        let text = "<?xml version=\"1.0\"?>\n<R xmlns=\"http://x/\"><!-- c --><n> a &amp; b&#33; </n><l><item><key>k\
                    </key><value>v</value></item><item><key>e</key><value/></item></l><e/><d><![CDATA[<>]]></d></R>";
        let answer = Element::parse(text).unwrap();
        assert_eq!(answer.name, "R");
        assert_eq!(answer.text("n"), "a & b!");
        assert_eq!(answer.text("absent"), "");
        assert_eq!(answer.optional("e"), None);
        assert_eq!(answer.text("d"), "<>");
        assert_eq!(answer.list("l").count(), 2);
        assert_eq!(answer.pairs("l", "key", "value"), [("k", "v"), ("e", "")].map(owned).into());
    }

    fn owned((key, value): (&str, &str)) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn what_is_not_one_whole_element_is_refused() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for text in ["", "text", "<a>", "<a></b>", "</a>", "<a/><b/>", "<a", "\u{0}", &deep] {
            assert!(Element::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "[<>/a-b&;!?\\[\\]CDAT\" =]{0,40}") {
            let _ = Element::parse(&text);
        }
    }
}
