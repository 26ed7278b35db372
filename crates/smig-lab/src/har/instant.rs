//! Instants as a HAR writes them: ISO 8601 with an offset, such as `2026-01-31T12:00:00.123+02:00`.

use std::fmt;

/// An instant in milliseconds since the epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Instant(pub f64);

const MS_PER_DAY: f64 = 86_400_000.0;

impl Instant {
    /// Parses an instant; without an offset it is UTC.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (date, time) = text.split_once(['T', 't', ' '])?;
        let mut date = date.splitn(3, '-').map(digits);
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (time, offset_min) = split_offset(time)?;
        let (clock, fraction) = time.split_once(['.', ',']).unwrap_or((time, ""));
        let mut clock = clock.splitn(3, ':').map(digits);
        let (hour, minute) = (clock.next()??, clock.next()??);
        let second = clock.next().unwrap_or(Some(0))?;
        let is_valid = (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (1970..=9999).contains(&year)
            && hour <= 24
            && minute < 60
            && second <= 60;
        let fraction_s: f64 = match fraction {
            "" => 0.0,
            fraction if fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("0.{fraction}").parse().ok()?
            }
            _ => return None,
        };
        let seconds = f64::from((hour * 60 + minute) * 60 + second) - f64::from(offset_min) * 60.0;
        let days = days_from_civil(i64::from(year), i64::from(month), i64::from(day));
        is_valid.then_some(Self(days as f64 * MS_PER_DAY + (seconds + fraction_s) * 1e3))
    }
}

impl fmt::Display for Instant {
    /// Writes it in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total_ms = self.0.max(0.0).round() as i64;
        let (days, ms) = (total_ms.div_euclid(86_400_000), total_ms.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        let millis = ms % 1000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

fn digits(text: &str) -> Option<u32> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Splits a time into the clock and the offset from UTC in minutes.
fn split_offset(time: &str) -> Option<(&str, i32)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (clock, offset) = time.split_at(at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let offset = offset.get(1..)?;
    let (hours, minutes) = match offset.split_once(':') {
        Some((hours, minutes)) => (digits(hours)?, digits(minutes)?),
        None if offset.len() == 4 => (digits(offset.get(..2)?)?, digits(offset.get(2..)?)?),
        None => (digits(offset)?, 0),
    };
    let is_valid = hours < 24 && minutes < 60;
    let offset_min = i32::try_from(hours * 60 + minutes).ok()?;
    is_valid.then_some((clock, sign * offset_min))
}

/// Returns the days since 1970-01-01 in the Gregorian calendar. Eras have 400 years, and years begin in March.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns year, month and day of a day since 1970-01-01.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days - era * 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_all_tools_are_read() {
        let noon = 1_769_860_800_000.0;
        for text in [
            "2026-01-31T12:00:00.000Z",
            "2026-01-31T12:00:00Z",
            "2026-01-31T14:00:00.000+02:00",
            "2026-01-31T14:00:00+0200",
            "2026-01-31T06:30:00.0-05:30",
            "2026-01-31 12:00:00",
            "2026-01-31T12:00Z",
        ] {
            assert_eq!(Instant::parse(text), Some(Instant(noon)), "{text}");
        }
        let precise = Instant::parse("2026-01-31T12:00:00.123456Z").unwrap().0;
        assert!((precise - noon - 123.456).abs() < 0.001, "{precise}");
        let leap = Instant::parse("2024-02-29T23:59:59.999Z").unwrap();
        assert_eq!(leap.to_string(), "2024-02-29T23:59:59.999Z");
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "now",
            "2026-01-31",
            "2026-13-31T12:00:00Z",
            "2026-01-31T99:00:00Z",
            "2026-01-31T12:00:00.1e9Z",
            "2026-01-31T12:00:00+é",
            "99999-01-31T12:00:00Z",
            "-2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00+99:00",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for days in (0..200_000).step_by(7) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
    }
}
