//! Who may connect, by three places that say so: the spec of an `IngressController`, and the field and the annotation of its
//! Service. What is written, what counts, and what somebody has to move.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use portcullis_core::Cidr;

use crate::SOURCE_RANGES;

/// What a Service says about ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said<'a> {
    /// Its annotation, if it has it.
    pub annotation: Option<&'a str>,
    /// Its field.
    pub field: &'a [String],
}

/// What a Service has to be given. The annotation goes in the same write: between two, nobody would be limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The field, if it is another.
    pub field: Option<Vec<String>>,
    /// Whether the annotation goes.
    pub clear_annotation: bool,
}

/// The ranges that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// Where they come from.
    pub place: Option<Place>,
    /// The ranges, each as it is written, or in plain form where only Kubernetes reads it as it is written.
    pub ranges: Vec<String>,
    /// Entries that are no ranges, not even to Kubernetes.
    pub unreadable: Vec<String>,
}

/// Where ranges stand on a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In `spec.loadBalancerSourceRanges`.
    Field,
    /// In the annotation.
    Annotation,
}

/// What an administrator has to move to the spec of the `IngressController`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Where it stands.
    pub place: Place,
    /// What is there, and what to do.
    pub message: String,
}

impl<'a> Said<'a> {
    /// What a Service says.
    pub fn by(service: &'a Service) -> Self {
        let annotations = service.metadata.annotations.as_ref();
        let spec = service.spec.as_ref();
        Said {
            annotation: annotations.and_then(|all| all.get(SOURCE_RANGES)).map(String::as_str),
            field: spec.and_then(|spec| spec.load_balancer_source_ranges.as_deref()).unwrap_or_default(),
        }
    }

    /// The entries of the annotation, without the spaces that Kubernetes allows around them.
    fn listed(&self) -> Vec<&'a str> {
        let text = self.annotation.map(str::trim).filter(|text| !text.is_empty());
        text.map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
    }
}

/// What a Service has to be given so that it says what the spec says; nothing, where that says nothing: ranges that
/// somebody wrote on the Service by hand must not go with an upgrade.
pub fn write(spec: &[String], said: Said<'_>) -> Option<Write> {
    if spec.is_empty() {
        return None;
    }
    let write = Write {
        field: (spec != said.field).then(|| spec.to_vec()),
        clear_annotation: said.annotation.is_some(),
    };
    (write.field.is_some() || write.clear_annotation).then_some(write)
}

/// The ranges that count: those of the field, or else of the annotation.
pub fn effective(said: Said<'_>) -> Effective {
    let listed = said.listed();
    let (place, entries) = match (said.field, &*listed) {
        ([], []) => return Effective::default(),
        ([], listed) => (Place::Annotation, listed.to_vec()),
        (field, _) => (Place::Field, field.iter().map(|entry| entry.trim()).collect()),
    };
    let mut found = Effective { place: Some(place), ..Effective::default() };
    for entry in entries {
        match plain(entry) {
            Some(range) => found.ranges.push(range),
            None => found.unreadable.push(entry.to_owned()),
        }
    }
    found
}

/// What has to be moved to the spec of the `IngressController` `controller`. `service` is the Service, by namespace and name.
pub fn evaluations(controller: &str, service: &str, spec: &[String], said: Said<'_>) -> Vec<Evaluation> {
    const WANTED: &str = "spec.endpointPublishingStrategy.loadBalancer.allowedSourceRanges";
    let mut found = Vec::new();
    let unreadable = effective(said);
    let wrong = |place: Place| match &*unreadable.unreadable {
        wrong if wrong.is_empty() || unreadable.place != Some(place) => String::new(),
        wrong => format!(" It also has what is no range of addresses: {}.", some_of(wrong)),
    };
    if !said.listed().is_empty() {
        let message = format!(
            "Service {service} has the annotation {SOURCE_RANGES}.{} Give these ranges to IngressController {controller} as {WANTED}: that removes the annotation. If nobody is to be limited, remove it from the Service.",
            wrong(Place::Annotation)
        );
        found.push(Evaluation { place: Place::Annotation, message });
    }
    if !said.field.is_empty() && spec.is_empty() {
        let message = format!(
            "Service {service} has ranges in spec.loadBalancerSourceRanges that IngressController {controller} knows nothing of.{} Give these ranges to IngressController {controller} as {WANTED}. If nobody is to be limited, remove them from the Service.",
            wrong(Place::Field)
        );
        found.push(Evaluation { place: Place::Field, message });
    }
    found
}

/// The first few, none of them long, and nothing in them that does not show.
fn some_of(entries: &[String]) -> String {
    const FEW: usize = 5;
    let short = |entry: &String| format!("`{}`", entry.escape_debug().take(60).collect::<String>());
    let mut shown: Vec<String> = entries.iter().take(FEW).map(short).collect();
    if entries.len() > FEW {
        shown.push(format!("and {} more", entries.len() - FEW));
    }
    shown.join(", ")
}

/// A range in a form that everybody reads alike. Kubernetes takes leading zeros, and IPv4 written as IPv6; the schema of an
/// `IngressController` does not, and would refuse the whole status.
fn plain(entry: &str) -> Option<String> {
    let range = entry.parse::<Cidr>().or_else(|_| without_zeros(entry).parse::<Cidr>()).ok()?;
    let dotted = range.addr().is_ipv6() && entry.contains('.');
    Some(match range.addr() {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => range.network().to_string(),
        _ if dotted || entry.parse::<Cidr>().is_err() => range.to_string(),
        _ => entry.to_owned(),
    })
}

/// The numbers of an IPv4 range, and every prefix, without leading zeros: Kubernetes reads them as decimal.
fn without_zeros(entry: &str) -> String {
    let bare = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let Some((address, prefix)) = entry.split_once('/') else { return entry.to_owned() };
    let (before, numbers) = match address.rsplit_once(':') {
        Some((before, numbers)) if numbers.contains('.') => (format!("{before}:"), numbers),
        Some(_) => (address.to_owned(), ""),
        None => (String::new(), address),
    };
    let numbers: Vec<String> = numbers.split('.').map(bare).collect();
    format!("{before}{}/{}", numbers.join("."), bare(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOO: &str = "10.0.0.0/8";
    const BAR: &str = "192.0.2.0/24";
    const COW: &str = "2001:db8::/32";

    fn list(ranges: &[&str]) -> Vec<String> {
        ranges.iter().map(|range| (*range).to_owned()).collect()
    }

    /// A row: its number; spec, annotation and field before; field after, whether the annotation goes, where it is told to
    /// move something from; what counts before.
    type Row = (
        u8,
        &'static [&'static str],
        Option<&'static str>,
        &'static [&'static str],
        &'static [&'static str],
        bool,
        &'static [Place],
        &'static [&'static str],
    );

    const TABLE: [Row; 10] = [
        (1, &[], None, &[FOO], &[FOO], false, &[Place::Field], &[FOO]),
        (2, &[BAR], None, &[FOO], &[BAR], false, &[], &[FOO]),
        (3, &[BAR], None, &[], &[BAR], false, &[], &[]),
        (4, &[], Some(COW), &[FOO], &[FOO], false, &[Place::Annotation, Place::Field], &[FOO]),
        (5, &[BAR], Some(COW), &[FOO], &[BAR], true, &[], &[FOO]),
        (6, &[], Some(FOO), &[FOO], &[FOO], false, &[Place::Annotation, Place::Field], &[FOO]),
        (7, &[BAR], Some(FOO), &[FOO], &[BAR], true, &[], &[FOO]),
        (8, &[], Some(FOO), &[], &[], false, &[Place::Annotation], &[FOO]),
        (9, &[BAR], Some(FOO), &[], &[BAR], true, &[], &[FOO]),
        (10, &[FOO], Some(COW), &[FOO], &[FOO], true, &[], &[FOO]),
    ];

    #[test]
    fn the_table() {
        for (row, spec, annotation, field, after, cleared, told, counts) in TABLE {
            let (spec, field) = (list(spec), list(field));
            let said = Said { annotation, field: &field };
            assert_eq!(effective(said).ranges, list(counts), "row {row}");

            let change = write(&spec, said);
            assert_eq!(change.is_some(), !spec.is_empty(), "row {row}");
            let change = change.unwrap_or(Write { field: None, clear_annotation: false });
            let then = change.field.clone().unwrap_or_else(|| field.clone());
            assert_eq!(then, list(after), "row {row}");
            assert_eq!(change.clear_annotation, cleared, "row {row}");

            let annotation = annotation.filter(|_| !change.clear_annotation);
            let said = Said { annotation, field: &then };
            assert_eq!(write(&spec, said), None, "row {row}: once is enough");
            let places: Vec<Place> =
                evaluations("default", "n/s", &spec, said).iter().map(|told| told.place).collect();
            assert_eq!(places, told, "row {row}");
            if !spec.is_empty() {
                assert_eq!(effective(said).ranges, spec, "row {row}");
            }
        }
    }

    #[test]
    fn an_empty_annotation_goes_and_is_not_told_of() {
        let said = Said { annotation: Some(" "), field: &[] };
        assert_eq!(write(&[], said), None);
        assert!(evaluations("default", "n/s", &[], said).is_empty());
        let spec = list(&[FOO]);
        let said = Said { annotation: Some(""), field: &spec };
        assert_eq!(write(&spec, said), Some(Write { field: None, clear_annotation: true }));
    }

    #[test]
    fn order_and_repetition_are_kept() {
        let spec = list(&[BAR, FOO, BAR]);
        let field = list(&[FOO, BAR, BAR]);
        let change = write(&spec, Said { annotation: None, field: &field }).unwrap();
        assert_eq!(change.field, Some(spec.clone()));
        assert_eq!(effective(Said { annotation: None, field: &spec }).ranges, spec);
    }

    /// What Kubernetes takes, and how the status says it.
    #[test]
    fn what_kubernetes_takes_is_read() {
        for (entry, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            (" 10.0.0.0/8\t", "10.0.0.0/8"),
            ("10.0.0.1/8", "10.0.0.1/8"),
            ("2001:DB8::/32", "2001:DB8::/32"),
            ("010.0.00.1/08", "10.0.0.1/8"),
            ("0.0.0.0/00", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:db8::/032", "2001:db8::/32"),
            ("::ffff:1.2.3.4/96", "0.0.0.0/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:010.0.0.0/104", "10.0.0.0/8"),
            ("64:ff9b::192.0.2.1/128", "64:ff9b::c000:201/128"),
        ] {
            let field = list(&[entry]);
            let found = effective(Said { annotation: None, field: &field });
            assert_eq!(found.ranges, [shown], "{entry}");
            assert!(shown.parse::<Cidr>().is_ok());
        }
        let found = effective(Said { annotation: Some("10.0.0.0/8, 192.0.2.0/24 "), field: &[] });
        assert_eq!(found.ranges, [FOO, BAR]);
        assert_eq!(found.place, Some(Place::Annotation));
    }

    #[test]
    fn what_is_no_range_is_told_and_does_not_hide_the_rest() {
        let said = Said { annotation: Some("10.0.0.0/8,,nonsense"), field: &[] };
        let found = effective(said);
        assert_eq!((found.ranges, found.unreadable), (list(&[FOO]), list(&["", "nonsense"])));
        let told = evaluations("default", "n/s", &[], said);
        assert_eq!(told.len(), 1);
        assert!(told[0].message.contains("no range of addresses: ``, `nonsense`."), "{}", told[0].message);
        for entry in ["x", "10.0.0.0", "10.0.0.0/33", "fe80::1%eth0/64", "/8", "10.0..0/8"] {
            assert_eq!(plain(entry), None, "{entry}");
        }
    }

    #[test]
    fn the_words() {
        let field = list(&[FOO]);
        let told = evaluations(
            "shop",
            "openshift-ingress/router-shop",
            &[],
            Said { annotation: Some(COW), field: &field },
        );
        assert_eq!(
            told[0].message,
            "Service openshift-ingress/router-shop has the annotation service.beta.kubernetes.io/load-balancer-source-ranges. \
             Give these ranges to IngressController shop as spec.endpointPublishingStrategy.loadBalancer.allowedSourceRanges: \
             that removes the annotation. If nobody is to be limited, remove it from the Service."
        );
        assert_eq!(
            told[1].message,
            "Service openshift-ingress/router-shop has ranges in spec.loadBalancerSourceRanges that IngressController shop knows nothing of. \
             Give these ranges to IngressController shop as spec.endpointPublishingStrategy.loadBalancer.allowedSourceRanges. \
             If nobody is to be limited, remove them from the Service."
        );
    }
}
