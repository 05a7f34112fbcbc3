//! What is asked for, as AWS's query protocol has it.

use std::collections::BTreeMap;

/// The parameters of a call, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    #[allow(clippy::needless_pass_by_value, reason = "a number or a text is said as it comes")]
    pub(crate) fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.0.push((name.into(), value.to_string()));
        self
    }

    /// Only if there is one.
    pub(crate) fn set_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// `name.1`, `name.2` and so on.
    pub(crate) fn list<T: ToString>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        for (place, value) in values.into_iter().enumerate() {
            self = self.set(format!("{name}.{}", place + 1), value);
        }
        self
    }

    /// `name.1.key`, `name.1.value` and so on.
    pub(crate) fn pairs(
        mut self,
        name: &str,
        [key, value]: [&str; 2],
        pairs: &BTreeMap<String, String>,
    ) -> Self {
        for (place, pair) in pairs.iter().enumerate() {
            self = self.set(format!("{name}.{}.{key}", place + 1), pair.0);
            self = self.set(format!("{name}.{}.{value}", place + 1), pair.1);
        }
        self
    }

    /// `Filter.n.Name` with its values, as EC2 has it.
    pub(crate) fn filter<T: ToString>(
        self,
        place: usize,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        self.set(format!("Filter.{place}.Name"), name).list(&format!("Filter.{place}.Value"), values)
    }

    /// The body of the request.
    pub(crate) fn encode(&self, action: &str, version: &str) -> String {
        let mut body = format!("Action={action}&Version={version}");
        for (name, value) in &self.0 {
            body.push('&');
            escape(name, &mut body);
            body.push('=');
            escape(value, &mut body);
        }
        body
    }
}

fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(char::from(byte));
            }
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                into.push('%');
                into.push(char::from(DIGITS[usize::from(byte >> 4)]));
                into.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes() {
        let pairs = [("k".to_owned(), "v é".to_owned())].into();
        let body = Parameters::default()
            .set("Name", "a b&c=d")
            .set_some("None", None::<u8>)
            .set_some("Some", Some(3))
            .list("Ids.member", ["x", "y"])
            .pairs("Tags.member", ["Key", "Value"], &pairs)
            .filter(1, "vpc-id", ["v"])
            .encode("Do", "2016-11-15");
        assert_eq!(
            body,
            "Action=Do&Version=2016-11-15&Name=a%20b%26c%3Dd&Some=3&Ids.member.1=x&Ids.member.2=y\
             &Tags.member.1.Key=k&Tags.member.1.Value=v%20%C3%A9&Filter.1.Name=vpc-id&Filter.1.Value.1=v"
        );
    }
}
