//! Moments, as the API writes them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// `2026-11-16T01:40:45Z`.
pub(crate) fn written(seconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970, by counting years from March, so that the odd day comes last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Seconds since 1970 of such a moment.
pub(crate) fn read(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let numbers = |text: &str, separator: char| -> Option<[i64; 3]> {
        let mut parts =
            text.split(separator).map(|part| part.parse::<i64>().ok().filter(|number| *number >= 0));
        let three = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(three)
    };
    let [year, month, day] = numbers(date, '-')?;
    // Fractions of a second are not kept.
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let year_of_march = year - i64::from(month <= 2);
    let era = year_of_march.div_euclid(400);
    let year_of_era = year_of_march.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_794_793_245, "2026-11-16T01:40:45Z"),
        ] {
            assert_eq!(written(seconds), text);
            assert_eq!(read(text), Some(seconds));
        }
        assert_eq!(read("2026-11-16 01:40:45.123"), Some(1_794_793_245));
        for wrong in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-16", "2026-11-16T25:00:00Z"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_comes_back(seconds in 0_i64..100_000_000_000) {
            prop_assert_eq!(read(&written(seconds)), Some(seconds));
        }
    }
}
