//! Dates as AWS writes them.

const DAY: u64 = 86_400;

/// `20260102T030405Z` as seconds since 1970.
pub(crate) fn parse_basic(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    if date.len() != 8
        || time.len() != 6
        || !(date.to_owned() + time).bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let (hour, minute, second) = (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
    let valid = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    let days = (1970..year).map(days_of_year).sum::<u64>()
        + (1..month).map(|month| days_of_month(year, month)).sum::<u64>()
        + day.checked_sub(1)?;
    valid.then_some(days * DAY + hour * 3600 + minute * 60 + second)
}

/// Seconds since 1970 as `2026-01-02T03:04:05.000Z`.
pub(crate) fn extended(seconds: u64) -> String {
    let (mut days, rest) = (seconds / DAY, seconds % DAY);
    let (mut year, mut month) = (1970, 1);
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.000Z", days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (basic, seconds, told) in [
            ("19700101T000000Z", 0, "1970-01-01T00:00:00.000Z"),
            ("20240229T235959Z", 1_709_251_199, "2024-02-29T23:59:59.000Z"),
            ("20260102T030405Z", 1_767_323_045, "2026-01-02T03:04:05.000Z"),
        ] {
            assert_eq!(parse_basic(basic), Some(seconds), "{basic}");
            assert_eq!(extended(seconds), told);
        }
        for wrong in ["", "20260102", "20260102T030405", "20261302T030405Z", "2026-01-02T03:04:05Z"] {
            assert_eq!(parse_basic(wrong), None, "{wrong}");
        }
    }
}
