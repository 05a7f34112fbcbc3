/// The seconds in a duration such as `1m30s`, rounded up; nothing if it is none.
pub fn seconds(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut total = 0_f64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        if number.starts_with('.') || number.ends_with('.') {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total += number * unit_seconds(unit)?;
        rest = after;
    }
    // What is longer than a century is a slip, and no number of seconds for anybody.
    let sensible = !text.is_empty() && total < 3.2e9;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and small"
    )]
    sensible.then(|| total.ceil() as u64)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
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
            ("", None),
            ("5", None),
            ("m", None),
            ("-5m", None),
            ("5 m", None),
            ("1.m", None),
            ("1.2.3s", None),
            ("3 days", None),
            ("99999999h", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
