//! The way from the top of the configuration to one value, such as `ingress.listenAddress[1]`.

use std::fmt;

/// Each step borrows the one above it, so following a document down costs no allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    Top,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) if !is_word(key) => write!(f, "{parent}[{key:?}]"),
            Self::Key(Path::Top, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
        }
    }
}

/// Whether a key can stand between dots without being taken for something else.
fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn a_path_reads_as_it_would_be_written() {
        let ingress = Path::Key(&Path::Top, "ingress");
        let list = Path::Key(&ingress, "listenAddress");
        let labels = Path::Key(&ingress, "labels");
        assert_eq!(Path::Top.to_string(), "");
        assert_eq!(ingress.to_string(), "ingress");
        assert_eq!(Path::Item(&list, 1).to_string(), "ingress.listenAddress[1]");
        assert_eq!(Path::Key(&labels, "a.b/c").to_string(), "ingress.labels[\"a.b/c\"]");
    }
}
