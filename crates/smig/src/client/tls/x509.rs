//! Parses the fields that the check of a trusted certificate needs (RFC 5280 section 4). webpki
//! exposes neither validity nor authority of a trust anchor, nor the key usage of any certificate.

use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const BYTE_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// id-ce-keyUsage (RFC 5280 section 4.2.1.3).
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// id-ce-basicConstraints (section 4.2.1.9).
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// id-ce-extKeyUsage (section 4.2.1.12).
const EXT_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// id-kp-serverAuth.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// keyCertSign.
const KEY_CERT_SIGN: u8 = 0x04;
/// Key usages of a TLS server: digitalSignature, keyEncipherment or keyAgreement.
const SERVER_KEY_USAGES: u8 = 0x80 | 0x20 | 0x08;

/// The parsed fields of a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct CertificateFields {
    pub(super) validity: Validity,
    is_authority: bool,
    /// The first byte of the bit string, which holds all bits used here.
    key_usage: Option<u8>,
    /// Whether its extended key usage permits TLS servers.
    server_auth: Option<bool>,
}

impl CertificateFields {
    /// Parses a certificate; `None` if it is malformed.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let (certificate, _) = take(der, SEQUENCE)?;
        let (mut rest, _) = take(certificate, SEQUENCE)?;
        let version = take(rest, VERSION);
        if let Some((_, after)) = version {
            rest = after;
        }
        // Serial number and signature.
        for tag in [INTEGER, SEQUENCE] {
            (_, rest) = take(rest, tag)?;
        }
        let (issuer, rest) = take(rest, SEQUENCE)?;
        let (validity, rest) = take(rest, SEQUENCE)?;
        let (subject, rest) = take(rest, SEQUENCE)?;
        let (_public_key, rest) = take(rest, SEQUENCE)?;
        // Version 1 has no basic constraints: a certificate is an authority if it is self-issued.
        let is_authority = version.is_none() && issuer == subject;
        let validity = Validity::parse(validity)?;
        let mut this = Self { validity, is_authority, key_usage: None, server_auth: None };
        this.read_extensions(rest)?;
        Some(this)
    }

    fn read_extensions(&mut self, mut rest: &[u8]) -> Option<()> {
        // Unique identifiers, which are not in use, may precede.
        while let Some(&tag) = rest.first() {
            let (content, after) = take(rest, tag)?;
            rest = after;
            if tag != EXTENSIONS {
                continue;
            }
            let (mut extensions, _) = take(content, SEQUENCE)?;
            while !extensions.is_empty() {
                let (extension, after) = take(extensions, SEQUENCE)?;
                extensions = after;
                self.read_extension(extension)?;
            }
        }
        Some(())
    }

    fn read_extension(&mut self, extension: &[u8]) -> Option<()> {
        let (id, mut rest) = take(extension, OBJECT_IDENTIFIER)?;
        if let Some((_critical, after)) = take(rest, BOOLEAN) {
            rest = after;
        }
        let (value, _) = take(rest, BYTE_STRING)?;
        if id == BASIC_CONSTRAINTS {
            let (constraints, _) = take(value, SEQUENCE)?;
            self.is_authority =
                take(constraints, BOOLEAN).is_some_and(|(content, _)| content == [0xff]);
        } else if id == KEY_USAGE {
            // After the byte with the number of unused bits.
            let (bits, _) = take(value, BIT_STRING)?;
            self.key_usage = Some(bits.get(1).copied().unwrap_or(0));
        } else if id == EXT_KEY_USAGE {
            let (mut purposes, _) = take(value, SEQUENCE)?;
            let mut has_server_auth = false;
            while !purposes.is_empty() {
                let (purpose, after) = take(purposes, OBJECT_IDENTIFIER)?;
                purposes = after;
                has_server_auth |= purpose == SERVER_AUTH;
            }
            self.server_auth = Some(has_server_auth);
        }
        Some(())
    }

    /// Returns whether it is an authority: by its basic constraints, or self-issued if it has version 1.
    pub(super) const fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Returns whether its key may sign certificates of servers, provided that it is an authority.
    pub(super) fn may_sign(&self) -> bool {
        self.key_usage.is_none_or(|usage| usage & KEY_CERT_SIGN != 0)
            && self.server_auth.unwrap_or(true)
    }

    /// Returns whether it is valid as a server's certificate.
    pub(super) fn may_serve(&self) -> bool {
        self.key_usage.is_none_or(|usage| usage & SERVER_KEY_USAGES != 0)
            && self.server_auth.unwrap_or(true)
    }
}

/// A certificate's validity period, both ends included, in seconds since 1970 (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: u64,
    not_after: u64,
}

impl Validity {
    fn parse(validity: &[u8]) -> Option<Self> {
        let (not_before, rest) = parse_time(validity)?;
        let (not_after, _) = parse_time(rest)?;
        Some(Self { not_before, not_after })
    }

    pub(super) fn check(self, now: UnixTime) -> Result<(), CertificateError> {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        if now.as_secs() < self.not_before {
            let not_before = at(self.not_before);
            return Err(CertificateError::NotValidYetContext { time: now, not_before });
        }
        if now.as_secs() > self.not_after {
            let not_after = at(self.not_after);
            return Err(CertificateError::ExpiredContext { time: now, not_after });
        }
        Ok(())
    }
}

/// Parses a time; returns it with the remaining input. A time before 1970 counts as 1970.
fn parse_time(der: &[u8]) -> Option<(u64, &[u8])> {
    let (year, digits, rest) = match take(der, UTC_TIME) {
        Some((text, rest)) => {
            let (year, digits) = parse_digits(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits, rest)
        }
        None => {
            let (text, rest) = take(der, GENERALIZED_TIME)?;
            let (year, digits) = parse_digits(text, 4)?;
            (year, digits, rest)
        }
    };
    let (month, digits) = parse_digits(digits, 2)?;
    let (day, digits) = parse_digits(digits, 2)?;
    let (hour, digits) = parse_digits(digits, 2)?;
    let (minute, digits) = parse_digits(digits, 2)?;
    let (second, digits) = parse_digits(digits, 2)?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if digits != b"Z" || !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    Some((u64::try_from(seconds).unwrap_or(0), rest))
}

/// Returns the days since 1970 of a Gregorian date, computed in years that begin in March.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

fn parse_digits(digits: &[u8], len: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = digits.split_at_checked(len)?;
    let number = digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    });
    Some((number?, rest))
}

/// Takes a value with this tag: returns its content and the remaining input.
pub(super) fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (head, rest) = der.split_at_checked(2)?;
    let &[found_tag, length_byte] = head else { return None };
    let (len, rest) = match length_byte {
        0..=0x7f => (usize::from(length_byte), rest),
        // At most four bytes, so that it cannot overflow.
        0x81..=0x84 => {
            let (long, rest) = rest.split_at_checked(usize::from(length_byte & 0x7f))?;
            (long.iter().fold(0, |len, &byte| (len << 8) | usize::from(byte)), rest)
        }
        _ => return None,
    };
    if found_tag == tag { rest.split_at_checked(len) } else { None }
}
