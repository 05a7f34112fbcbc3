use std::time::Duration;

/// The seconds in a duration such as `1m30s`, rounded up; nothing if it is none.
pub fn seconds(text: &str) -> Option<u64> {
    let found = duration(text)?;
    Some(found.as_secs() + u64::from(found.subsec_nanos() > 0))
}

/// What is longer than a century is a slip, and no duration for anybody.
const LONGEST: u128 = 3_200_000_000 * SECOND;

const SECOND: u128 = 1_000_000_000;

/// A duration such as `1m30s`, as Go writes it; nothing if it is none, or negative.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0_u128;
    let mut rest = Some(text).filter(|text| !text.is_empty())?;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = after;
    }
    let whole = u64::try_from(total / SECOND).ok()?;
    let part = u32::try_from(total % SECOND).ok()?;
    (total < LONGEST).then(|| Duration::new(whole, part))
}

fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let unit = match unit {
        "h" => 3600 * SECOND,
        "m" => 60 * SECOND,
        "s" => SECOND,
        "ms" => 1_000_000,
        // There are two letters that look the same.
        "us" | "µs" | "μs" => 1000,
        "ns" => 1,
        _ => return None,
    };
    let (whole, part) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, part)) => (whole, part),
        None => (number, ""),
    };
    // More digits than that are less than a nanosecond.
    let part = part.get(..part.len().min(9)).filter(|_| part.bytes().all(|digit| digit.is_ascii_digit()))?;
    let scale = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let whole: u64 = whole.parse().ok()?;
    Some(u128::from(whole) * unit + part * unit / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("5m", Some(300)),
            ("1m30s", Some(90)),
            ("1.5h", Some(5400)),
            ("1ms", Some(1)),
            ("2000ms", Some(2)),
            ("1us", Some(1)),
            ("1µs", Some(1)),
            ("1μs", Some(1)),
            ("", None),
            ("5", None),
            ("m", None),
            ("-5m", None),
            ("5 m", None),
            ("1.m", None),
            (".5m", None),
            ("1.2.3s", None),
            ("3 days", None),
            ("99999999h", None),
            ("99999999999999999999999999999999999999h", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert_eq!(duration("1.0000000019s"), Some(Duration::new(1, 1)));
        assert_eq!(duration("1h1ns"), Some(Duration::new(3600, 1)));
    }
}
