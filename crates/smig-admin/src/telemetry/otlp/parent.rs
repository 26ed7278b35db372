//! W3C Trace Context: the parent of a request's span, and its propagation to the next hop.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length in bytes of version, trace id, parent id and flags, with the dashes between them.
const TRACEPARENT_BYTES: usize = 55;
/// Maximum length in bytes of a tracestate that is queued with a span; upstreams receive all of it.
const MAX_TRACESTATE_BYTES: usize = 512;

/// Returns the parent of a request's span. An invalid traceparent is ignored, and the tracestate with it, as
/// the specification requires.
pub(super) fn extract(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (trace, span, flags) = parse_traceparent(value.as_bytes())?;
    let states = headers.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok());
    let state = states.collect::<Vec<_>>().join(",");
    let state = if state.len() > MAX_TRACESTATE_BYTES { None } else { state.parse().ok() };
    let state: TraceState = state.unwrap_or_default();
    Some(SpanContext::new(trace, span, flags, true, state))
}

fn parse_traceparent(text: &[u8]) -> Option<(TraceId, SpanId, TraceFlags)> {
    let (fixed_part, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
    let is_valid = |(at, byte): (usize, &u8)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    if !fixed_part.iter().enumerate().all(is_valid) {
        return None;
    }
    let fixed_part = str::from_utf8(fixed_part).ok()?;
    let (version, trace) = (fixed_part.get(..2)?, TraceId::from_hex(fixed_part.get(3..35)?).ok()?);
    let span = SpanId::from_hex(fixed_part.get(36..52)?).ok()?;
    let flags = u8::from_str_radix(fixed_part.get(53..)?, 16).ok()?;
    // Later versions may append further fields.
    let is_terminated = rest.is_empty() || (version != "00" && rest.starts_with(b"-"));
    if version == "ff" || !is_terminated || trace == TraceId::INVALID || span == SpanId::INVALID {
        return None;
    }
    Some((trace, span, TraceFlags::new(flags) & TraceFlags::SAMPLED))
}

/// Sets our span as the parent, in place of the client's. If `continues_trace`, the trace is the
/// client's, and its tracestate is left as it is.
pub(super) fn inject(span: &SpanContext, continues_trace: bool, headers: &mut HeaderMap) {
    if !span.is_valid() {
        // Telemetry was shut down.
        return;
    }
    let flags = span.trace_flags() & TraceFlags::SAMPLED;
    let text = format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), flags);
    let Ok(value) = HeaderValue::try_from(text) else { return };
    headers.insert(TRACEPARENT, value);
    if !continues_trace {
        headers.remove(TRACESTATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN_ID: &str = "00f067aa0ba902b7";

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn extract_parent(text: &str) -> Option<SpanContext> {
        extract(&headers(&[(TRACEPARENT, text)]))
    }

    #[test]
    fn a_traceparent_is_parsed() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let context = extract_parent(&format!("00-{TRACE_ID}-{SPAN_ID}-{flags}")).unwrap();
            assert_eq!(context.trace_id().to_string(), TRACE_ID);
            assert_eq!(context.span_id().to_string(), SPAN_ID);
            assert_eq!(context.is_sampled(), sampled, "{flags}");
            assert!(context.is_remote());
        }
        // Later versions start with the same fields.
        for rest in ["", "-", "-what-ever"] {
            let context = extract_parent(&format!("cc-{TRACE_ID}-{SPAN_ID}-01{rest}")).unwrap();
            assert_eq!(context.span_id().to_string(), SPAN_ID);
        }
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let uppercase_trace_id = TRACE_ID.to_uppercase();
        let zero_trace_id = "0".repeat(32);
        let texts = [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE_ID}-{SPAN_ID}"),
            format!("00-{TRACE_ID}-{SPAN_ID}-1"),
            format!("00-{TRACE_ID}-{SPAN_ID}-01-"),
            format!("00-{TRACE_ID}-{SPAN_ID}-01-more"),
            format!("00-{TRACE_ID}-{SPAN_ID}-011"),
            format!("00-{TRACE_ID}-{SPAN_ID}-0g"),
            format!("00-{TRACE_ID}-{SPAN_ID}-+1"),
            format!("00-{uppercase_trace_id}-{SPAN_ID}-01"),
            format!("00-{zero_trace_id}-{SPAN_ID}-01"),
            format!("00-{TRACE_ID}-0000000000000000-01"),
            format!("00_{TRACE_ID}-{SPAN_ID}-01"),
            format!("0-{TRACE_ID}-{SPAN_ID}-001"),
            format!("0x-{TRACE_ID}-{SPAN_ID}-01"),
            format!("ff-{TRACE_ID}-{SPAN_ID}-01"),
            format!("cc-{TRACE_ID}-{SPAN_ID}-01.more"),
            format!("00-{TRACE_ID}{SPAN_ID}--01"),
            format!("00-{}-{SPAN_ID}a-01", &TRACE_ID[1..]),
        ];
        for text in texts {
            assert!(extract_parent(&text).is_none(), "{text:?}");
        }
        assert!(extract(&HeaderMap::new()).is_none());
        let text = format!("00-{TRACE_ID}-{SPAN_ID}-01");
        assert!(extract(&headers(&[(TRACEPARENT, &text), (TRACEPARENT, &text)])).is_none());
        let bad = HeaderValue::from_bytes(&[0xff; TRACEPARENT_BYTES]).unwrap();
        assert!(extract(&HeaderMap::from_iter([(TRACEPARENT, bad)])).is_none());
    }

    #[test]
    fn the_next_hop_gets_our_span_as_parent() {
        let text = format!("00-{TRACE_ID}-{SPAN_ID}-01");
        let mut fields = headers(&[(TRACEPARENT, &text), (TRACESTATE, "a=1"), (TRACESTATE, "b=2")]);
        let state = extract(&fields).unwrap().trace_state().header();
        assert_eq!(state, "a=1,b=2");
        let our_span = |flags| {
            let (trace, span) = (TraceId::from(0xabc), SpanId::from(0xdef));
            SpanContext::new(trace, span, flags, false, TraceState::NONE)
        };
        inject(&our_span(TraceFlags::SAMPLED), true, &mut fields);
        let values: Vec<_> = fields.get_all(TRACEPARENT).iter().collect();
        assert_eq!(values, ["00-00000000000000000000000000000abc-0000000000000def-01"]);
        let state: Vec<_> = fields.get_all(TRACESTATE).iter().collect();
        assert_eq!(state, ["a=1", "b=2"]);

        // A new trace: the tracestate of the client's trace is removed.
        inject(&our_span(TraceFlags::NOT_SAMPLED), false, &mut fields);
        assert!(fields[TRACEPARENT].to_str().unwrap().ends_with("def-00"));
        assert!(!fields.contains_key(TRACESTATE));

        let before = fields.clone();
        inject(&SpanContext::NONE, false, &mut fields);
        assert_eq!(fields, before);
    }
}
