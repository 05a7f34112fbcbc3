//! Netlink messages: a header, a family, and attributes that have a type, a length and a value, padded to four bytes.

/// Asks for an action.
pub(crate) const REQUEST: u16 = 0x1;
/// Asks for an answer also when all went well.
pub(crate) const ACK: u16 = 0x4;
/// Asks for everything.
pub(crate) const DUMP: u16 = 0x300;
/// Makes what is not there.
pub(crate) const CREATE: u16 = 0x400;
/// What was told is not of one moment: somebody changed something meanwhile.
pub(crate) const INTERRUPTED: u16 = 0x10;
/// The subsystem of connection tracking.
pub(crate) const CONNTRACK: u16 = 1 << 8;
/// The subsystem of nftables.
pub(crate) const NFTABLES: u16 = 10 << 8;

const NESTED: u16 = 0x8000;
const HEADER: usize = 16;
/// Begins and ends a batch.
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;

/// One or more messages.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    count: u32,
    last: usize,
}

impl Messages {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a message of this kind, for this family, with what `fill` writes into it.
    pub(crate) fn add(&mut self, kind: u16, flags: u16, family: u8, fill: impl FnOnce(&mut Attributes<'_>)) {
        self.add_with_resource(kind, flags, family, 0, fill);
    }

    fn add_with_resource(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        resource: u16,
        fill: impl FnOnce(&mut Attributes<'_>),
    ) {
        self.count += 1;
        self.last = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | REQUEST).to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        fill(&mut Attributes { bytes: &mut self.bytes });
        let length = u32::try_from(self.bytes.len() - self.last).expect("a message is far smaller");
        self.bytes[self.last..self.last + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Messages to nftables that all happen, or none.
    pub(crate) fn batch(fill: impl FnOnce(&mut Self)) -> Self {
        let mut batch = Self::default();
        batch.add_with_resource(BEGIN, 0, 0, NFTABLES >> 8, |_| ());
        fill(&mut batch);
        // The answer to the last one comes after every complaint.
        let flags = batch.last + 6;
        batch.bytes[flags] |= ACK.to_ne_bytes()[0];
        batch.add_with_resource(END, 0, 0, NFTABLES >> 8, |_| ());
        batch
    }
}

/// Where attributes are written to.
pub(crate) struct Attributes<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Attributes<'a> {
    /// Writes to the end of these bytes.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    /// How much is written.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).expect("a value is far smaller");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.pad();
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        fill(&mut Attributes { bytes: self.bytes });
        let length = u16::try_from(self.bytes.len() - start).expect("who writes a list keeps it short");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A message of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    /// The socket whose request it is about.
    pub(crate) port: u32,
    /// What follows the header.
    pub(crate) rest: &'a [u8],
}

impl<'a> Received<'a> {
    /// The attributes after the family.
    pub(crate) fn attributes(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        attributes(self.rest.get(4..).unwrap_or_default())
    }
}

/// The messages in what was received.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
        let (header, rest) = (bytes.get(..HEADER)?, bytes.get(HEADER..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            port: u32::from_ne_bytes([header[12], header[13], header[14], header[15]]),
            rest,
        })
    })
}

/// Attributes, each with its type.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits say how to read the value, which whoever reads it knows.
        Some((kind & 0x3fff, value))
    })
}

/// The value of one attribute.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(of, _)| *of == kind).map(|(_, value)| value)
}

/// A text that ends with a zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut messages_out = Messages::default();
        messages_out.add(7, ACK, 1, |attributes| {
            attributes.text(1, "abc");
            attributes.nest(2, |attributes| attributes.put(3, &[1, 2, 3, 4, 5]));
        });
        messages_out.add(8, 0, 1, |_| ());
        let read: Vec<Received<'_>> = messages(messages_out.bytes()).collect();
        assert_eq!(
            read.iter().map(|message| (message.kind, message.flags)).collect::<Vec<_>>(),
            [(7, ACK | REQUEST), (8, REQUEST)]
        );
        let found: Vec<(u16, &[u8])> = read[0].attributes().collect();
        assert_eq!(text(found[0].1), "abc");
        assert_eq!(attribute(found[1].1, 3), Some(&[1, 2, 3, 4, 5][..]));
    }

    #[test]
    fn what_is_cut_off_ends_early() {
        let mut whole = Messages::default();
        whole.add(7, 0, 1, |attributes| attributes.text(1, "abcdefgh"));
        for end in 0..whole.bytes().len() {
            assert_eq!(messages(&whole.bytes()[..end]).count(), 0);
            let _ = attributes(&whole.bytes()[..end]).count();
        }
    }
}
