//! The body of a request: pairs of names and values, as a browser would send a form.

use std::collections::BTreeMap;

/// All pairs. A name that is given twice is refused, since AWS takes none of them for certain.
pub(crate) fn decode(body: &str) -> Result<BTreeMap<String, String>, String> {
    let mut pairs = BTreeMap::new();
    for pair in body.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (unescape(name)?, unescape(value)?);
        if pairs.insert(name.clone(), value).is_some() {
            return Err(format!("the parameter {name} is given twice"));
        }
    }
    Ok(pairs)
}

fn unescape(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit(), digit());
                let value = high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                value.ok_or_else(|| format!("`{text}` is not escaped as it should be"))?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_forms() {
        let pairs = decode("a=b+c%20d&e.1=%C3%A9&f=&g").unwrap();
        let expected = [("a", "b c d"), ("e.1", "é"), ("f", ""), ("g", "")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        for wrong in ["a=%", "a=%2", "a=%zz", "a=%ff", "a=1&a=2"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
