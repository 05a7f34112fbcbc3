//! `portcullis manifests`

use clap::builder::NonEmptyStringValueParser;

use crate::exit::Failure;
use crate::output;

/// Print what installs it in a Kubernetes cluster on AWS
///
/// For example: portcullis manifests --cluster prod --image registry.example.com/portcullis:0.1.0 | kubectl apply -f -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster, as in `aws.cluster`
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    cluster: String,

    /// The image to run
    #[arg(long, default_value = concat!("portcullis:", env!("CARGO_PKG_VERSION")), value_parser = NonEmptyStringValueParser::new())]
    image: String,

    /// The namespace to run in
    #[arg(long, value_name = "NAME", default_value = "portcullis", value_parser = namespace)]
    namespace: String,

    /// Only watch (`mode: observe`), without any right to write
    #[arg(long)]
    observe: bool,
}

macro_rules! base {
    ($($file:literal),+ $(,)?) => {
        &[$(($file, include_str!(concat!("../../../../deploy/kustomize/base/", $file)))),+]
    };
}

/// The files that kustomize reads, in its order: name and content.
const FILES: &[(&str, &str)] = base![
    "namespace.yaml",
    "service-account.yaml",
    "read-access.yaml",
    "write-access.yaml",
    "configuration.yaml",
    "deployment.yaml",
    "disruption-budget.yaml",
];

/// The file with every right to write.
const WRITES: &str = "write-access.yaml";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Ok(output::print(&manifests(args))?)
}

fn manifests(args: &Args) -> String {
    let files = FILES.iter().filter(|(name, _)| !args.observe || *name != WRITES);
    let texts = files
        .map(|(name, text)| text.lines().map(|line| changed(name, line, args) + "\n").collect::<String>());
    texts.collect::<Vec<_>>().join("---\n")
}

/// A line of a file, with what the arguments say. Each of these lines means the same wherever it stands.
fn changed(file: &str, line: &str, args: &Args) -> String {
    let value = match line.trim_start().trim_start_matches("- ") {
        "namespace: portcullis" => args.namespace.clone(),
        "name: portcullis" if file == "namespace.yaml" => args.namespace.clone(),
        "cluster: \"\"" => quoted(&args.cluster),
        "mode: manage" if args.observe => "observe".to_owned(),
        // Who only watches has nobody to take over from.
        "replicas: 2" if args.observe => "1".to_owned(),
        field if field.starts_with("image: ") => quoted(&args.image),
        _ => return line.to_owned(),
    };
    let field = line.split(": ").next().unwrap_or_default();
    format!("{field}: {value}")
}

/// What is quoted in JSON is quoted in YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn namespace(text: &str) -> Result<String, &'static str> {
    let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    if text.is_empty()
        || text.len() > 63
        || text.starts_with('-')
        || text.ends_with('-')
        || !text.bytes().all(fits)
    {
        return Err(
            "a namespace has up to 63 lower-case letters, digits and dashes, with no dash at its ends",
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(observe: bool) -> Args {
        let [cluster, image, namespace] =
            ["pro\"d", "registry.example.com/portcullis:1", "edge"].map(str::to_owned);
        Args { cluster, image, namespace, observe }
    }

    #[test]
    fn it_prints_what_kustomize_reads() {
        let kustomization = include_str!("../../../../deploy/kustomize/base/kustomization.yaml");
        let listed: Vec<&str> = kustomization.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
        let printed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(printed, listed);
    }

    #[test]
    fn every_argument_is_in_it() {
        let text = manifests(&args(false));
        assert!(!text.contains("namespace: portcullis\n"), "{text}");
        for (part, times) in [
            ("namespace: edge\n", 10),
            ("\n  name: edge\n", 1),
            ("cluster: \"pro\\\"d\"\n", 1),
            ("image: \"registry.example.com/portcullis:1\"\n", 1),
            ("mode: manage\n", 1),
            ("replicas: 2\n", 1),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}\n{text}");
        }
        assert!(FILES.iter().any(|(_, text)| text.contains(concat!(
            "image: portcullis:",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ))));
    }

    #[test]
    fn who_only_watches_has_no_right_to_write() {
        let text = manifests(&args(true));
        for part in ["mode: observe\n", "replicas: 1\n"] {
            assert_eq!(text.matches(part).count(), 1, "{part}\n{text}");
        }
        let verbs = text.lines().filter_map(|line| line.trim_start().strip_prefix("verbs: ["));
        for verb in verbs.flat_map(|verbs| verbs.trim_end_matches(']').split(", ")) {
            assert!(["get", "list", "watch"].contains(&verb), "{verb}");
        }
    }

    #[test]
    fn namespaces_have_names_that_kubernetes_takes() {
        assert!(namespace("portcullis-2").is_ok());
        for wrong in ["", "-a", "a-", "A", "a.b", "a b", &"a".repeat(64)] {
            assert!(namespace(wrong).is_err(), "{wrong}");
        }
    }
}
