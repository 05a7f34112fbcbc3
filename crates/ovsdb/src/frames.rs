use std::ops::Range;

/// Finds the ends of JSON objects in a stream of bytes: OVSDB puts one after the other, without any mark between
/// them.
///
/// It looks at each byte once, however the bytes arrive.
#[derive(Debug)]
pub(crate) struct Frames {
    longest: usize,
    buffer: Vec<u8>,
    /// Where the next unfinished object begins.
    start: usize,
    /// How far it has been looked at.
    seen: usize,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// A stream that is not one of JSON objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("expected a JSON object, found byte 0x{0:02x}")]
    NotAnObject(u8),
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
}

/// A first message has the whole content of a database, and tens of megabytes are usual: only what never ends is cut
/// off.
pub(crate) const LONGEST: usize = 1 << 30;

/// Room for the messages of every day.
const KEPT: usize = 1 << 20;

impl Frames {
    /// For messages that are not longer than this.
    pub(crate) fn new(longest: usize) -> Self {
        Frames { longest, buffer: Vec::new(), start: 0, seen: 0, depth: 0, in_text: false, escaped: false }
    }

    /// Where to read to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        // What has been handed out goes first, so that the buffer does not grow for ever.
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.seen -= self.start;
            self.start = 0;
            // Nor stays as large as the first message made it, which had everything.
            if self.buffer.capacity() > KEPT {
                self.buffer.shrink_to(KEPT);
            }
        }
        &mut self.buffer
    }

    /// The next whole object, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        Ok(self.advance()?.map(|range| &self.buffer[range]))
    }

    fn advance(&mut self) -> Result<Option<Range<usize>>, Broken> {
        while let Some(&byte) = self.buffer.get(self.seen) {
            self.seen += 1;
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let frame = self.start..self.seen;
                        self.start = self.seen;
                        return Ok(Some(frame));
                    }
                }
                b'"' if self.depth > 0 => self.in_text = true,
                b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => self.start = self.seen,
                other if self.depth == 0 => return Err(Broken::NotAnObject(other)),
                _ => {}
            }
        }
        if self.seen - self.start > self.longest { Err(Broken::TooLong(self.longest)) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Result<Vec<String>, Broken> {
        let mut frames = Frames::new(1000);
        let mut found = Vec::new();
        for chunk in chunks {
            frames.buffer().extend_from_slice(chunk);
            while let Some(frame) = frames.next()? {
                found.push(String::from_utf8_lossy(frame).into_owned());
            }
        }
        Ok(found)
    }

    #[test]
    fn objects_are_found_whatever_is_in_their_texts() {
        let stream = br#" {"a":"}\"]"} {"b":[{}]}{}"#;
        assert_eq!(split(&[stream]).unwrap(), [r#"{"a":"}\"]"}"#, r#"{"b":[{}]}"#, "{}"]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (stream, byte) in [("[1]", b'['), ("}", b'}'), ("1", b'1'), ("{}x", b'x')] {
            assert_eq!(split(&[stream.as_bytes()]), Err(Broken::NotAnObject(byte)), "{stream}");
        }
    }

    #[test]
    fn what_does_not_end_is_refused() {
        let deep = br#"{"a":"#.iter().copied().chain(std::iter::repeat_n(b'[', 1000)).collect::<Vec<_>>();
        assert_eq!(split(&[&deep]), Err(Broken::TooLong(1000)));
        assert_eq!(split(&[br#"{"a":""#, &[b'x'; 600], &[b'x'; 600]]), Err(Broken::TooLong(1000)));
        assert_eq!(split(&[&deep[..900]]), Ok(Vec::new()));
    }

    #[test]
    fn room_for_a_long_message_is_given_back() {
        let mut frames = Frames::new(LONGEST);
        frames.buffer().extend_from_slice(format!(r#"{{"a":"{}"}}{{"#, "x".repeat(5 * KEPT)).as_bytes());
        assert!(frames.next().unwrap().is_some());
        assert_eq!(frames.buffer().as_slice(), b"{");
        assert!(frames.buffer().capacity() <= KEPT);
    }

    proptest! {
        /// How the bytes arrive makes no difference.
        #[test]
        fn chunks_make_no_difference(texts in prop::collection::vec("\\PC{0,9}", 0..5), cuts in prop::collection::vec(0usize..200, 0..9)) {
            let objects: Vec<String> = texts.iter().map(|text| serde_json::json!({"t": [text]}).to_string()).collect();
            let stream = objects.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).chain([0, stream.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(split(&chunks).unwrap(), objects);
        }
    }
}
