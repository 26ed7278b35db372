//! Formats numbers for readers.

/// Formats a number with three significant digits, and without decimals from 100 on.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats milliseconds, with a comma as the thousands separator.
#[must_use]
pub fn ms(millis: f64) -> String {
    let text = if millis.abs() >= 9.95 { format!("{millis:.0}") } else { format!("{millis:.1}") };
    let digits = text.len();
    if digits > 3 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{},{}", &text[..digits - 3], &text[digits - 3..])
    } else {
        text
    }
}

/// Formats bytes in decimal units.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", number(size / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", number(size / 1e6)),
        _ => format!("{} GB", number(size / 1e9)),
    }
}

/// Formats a count with its noun: `1 run`, `2 runs`.
#[must_use]
pub fn amount(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(9.499), "9.5");
        assert_eq!(number(17.25), "17.2");
        assert_eq!(number(99.97), "100");
        assert_eq!(ms(59.4), "59");
        assert_eq!(ms(1_312.6), "1,313");
        assert_eq!(ms(0.04), "0.0");
        assert_eq!(bytes(10_000), "10 kB");
        assert_eq!(bytes(19_230_000), "19.2 MB");
        assert_eq!(amount(1, "move"), "1 move");
    }
}
