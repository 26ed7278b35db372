//! Formats numbers, durations, sizes and counts for display.

/// Formats a number with at most three decimals: three significant digits from 0.1 to 100, and no
/// decimals from there on.
#[must_use]
pub fn format_number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    format_decimals(value, digits)
}

/// Formats a number with at most this many decimals, without zeros at their end.
pub(crate) fn format_decimals(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats milliseconds, with a comma as the thousands separator; negative numbers have none.
#[must_use]
pub fn format_ms(millis: f64) -> String {
    let text = if millis.abs() >= 9.95 { format!("{millis:.0}") } else { format!("{millis:.1}") };
    group_thousands(&text)
}

/// Separates the thousands of a natural number by commas; other texts are returned as they are.
#[must_use]
pub fn group_thousands(text: &str) -> String {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut grouped = String::with_capacity(text.len() + text.len() / 3);
    for (index, digit) in text.char_indices() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats bytes in decimal units.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        // Three digits: from 999.5 on the next unit is used.
        1_000..999_500 => format!("{} kB", format_number(size / 1e3)),
        999_500..999_500_000 => format!("{} MB", format_number(size / 1e6)),
        _ => format!("{} GB", format_number(size / 1e9)),
    }
}

/// Formats a count with its noun: `1 run`, `2 runs`.
#[must_use]
pub fn format_count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(format_number(0.0), "0");
        assert_eq!(format_number(9.499), "9.5");
        assert_eq!(format_number(17.25), "17.2");
        assert_eq!(format_number(99.97), "100");
        assert_eq!(format_ms(59.4), "59");
        assert_eq!(format_ms(1_312.6), "1,313");
        assert_eq!(format_ms(1_234_567.0), "1,234,567");
        assert_eq!(format_ms(0.04), "0.0");
        assert_eq!(format_bytes(10_000), "10 kB");
        assert_eq!(format_bytes(19_230_000), "19.2 MB");
        assert_eq!(format_bytes(999_499), "999 kB");
        assert_eq!(format_bytes(999_990), "1 MB");
        assert_eq!(format_count(1, "run"), "1 run");
    }
}
