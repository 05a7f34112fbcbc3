//! Whether the source ranges of a Service keep anybody out: whoever makes its load balancer says so on it, and whoever asked
//! for the ranges reads it there.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use portcullis_core::Enforcement;

use crate::ingress::ranges::{Said, effective};

/// The condition of a Service that says it.
pub const ENFORCED: &str = "portcullis.dev/SourceRangesEnforced";

/// As many ranges as are listed in a message.
const LISTED: usize = 50;

/// The condition of a Service by what its provider says; none where it limits nobody, and there is nothing to say.
pub fn enforced_condition(service: &Service, enforcement: &Enforcement, now: Time) -> Option<Condition> {
    let words = ranges_in_words(service)?;
    let (status, reason, message) = match enforcement {
        Enforcement::By(who) => ("True", "Enforced", format!("{who} {words}")),
        Enforcement::Not(why) => ("False", "NotEnforced", why.clone()),
    };
    let since = there(service).filter(|found| found.status == status);
    Some(Condition {
        type_: ENFORCED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.map_or(now, |found| found.last_transition_time.clone()),
        observed_generation: None,
    })
}

/// What a provider said about the ranges that a Service has now, if one did: whether they keep anybody out, and why.
///
/// Services have no generation. So what is said of other ranges than it has is known by its words.
pub fn enforced(service: &Service) -> Option<(bool, &str)> {
    let found = there(service)?;
    match found.status.as_str() {
        "True" => {
            found.message.ends_with(&ranges_in_words(service)?).then_some((true, found.message.as_str()))
        }
        "False" => Some((false, found.message.as_str())),
        _ => None,
    }
}

/// The condition that a Service has.
pub fn there(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == ENFORCED)
}

fn ranges_in_words(service: &Service) -> Option<String> {
    let ranges = effective(Said::by(service)).ranges;
    Some(match ranges.len() {
        0 => return None,
        1..=LISTED => format!("let in {}, and nobody else.", ranges.join(", ")),
        count => format!("let in {count} ranges ({:016x}), and nobody else.", fingerprint(&ranges)),
    })
}

/// The same number for the same ranges, on every machine and in every version (FNV-1a).
fn fingerprint(ranges: &[String]) -> u64 {
    let bytes = ranges.iter().flat_map(|range| range.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn service(ranges: &[String]) -> Service {
        serde_json::from_value(json!({"spec": {"loadBalancerSourceRanges": ranges}})).unwrap()
    }

    fn told(mut service: Service, enforcement: &Enforcement, second: i64) -> Service {
        let now = Time(Timestamp::from_second(second).unwrap());
        let condition = enforced_condition(&service, enforcement, now);
        service.status.get_or_insert_default().conditions = condition.map(|condition| vec![condition]);
        service
    }

    #[test]
    fn what_is_said_is_about_the_ranges_that_are_there() {
        let by = Enforcement::By("Groups".to_owned());
        let many =
            |count: usize| -> Vec<String> { (0..count).map(|one| format!("10.0.0.{one}/32")).collect() };
        for count in [1, 2, 50, 51, 200] {
            let mut service = told(service(&many(count)), &by, 1);
            assert!(matches!(enforced(&service), Some((true, _))), "{count}");
            service.spec.get_or_insert_default().load_balancer_source_ranges = Some(many(count + 1));
            assert_eq!(enforced(&service), None, "{count}: others are there now");
        }
        let service = told(service(&many(2)), &by, 1);
        assert_eq!(
            enforced(&service),
            Some((true, "Groups let in 10.0.0.0/32, 10.0.0.1/32, and nobody else."))
        );
    }

    #[test]
    fn that_nobody_is_kept_out_is_said() {
        let not = Enforcement::Not("They are not read.".to_owned());
        let service = told(service(&["10.0.0.0/8".to_owned()]), &not, 1);
        assert_eq!(enforced(&service), Some((false, "They are not read.")));
    }

    #[test]
    fn where_nobody_is_limited_nothing_is_said() {
        let service = told(service(&[]), &Enforcement::By("Groups".to_owned()), 1);
        assert_eq!(there(&service), None);
    }

    #[test]
    fn it_keeps_its_time_while_it_stays_as_it_is() {
        let by = Enforcement::By("Groups".to_owned());
        let service = told(told(service(&["10.0.0.0/8".to_owned()]), &by, 1), &by, 2);
        let since = |service: &Service| there(service).unwrap().last_transition_time.0.as_second();
        assert_eq!(since(&service), 1);
        assert_eq!(since(&told(service, &Enforcement::Not("No.".to_owned()), 3)), 3);
    }
}
