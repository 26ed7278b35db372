//! Cost of encoding and decoding a header block: the first one of a connection, nearly all of it
//! literals, and a later one, most of whose fields are in the table.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::{HeaderName, HeaderValue};
use smig_proto::hpack::{Decoder, Encoder, Field, Pseudo};

fn pseudo(name: Pseudo, value: &'static str) -> Field {
    Field::Pseudo(name, Bytes::from_static(value.as_bytes()))
}

fn regular(name: &'static str, value: &'static str) -> Field {
    Field::Regular(HeaderName::from_static(name), HeaderValue::from_static(value))
}

fn browser_request() -> Vec<Field> {
    vec![
        pseudo(Pseudo::Method, "GET"),
        pseudo(Pseudo::Scheme, "https"),
        pseudo(Pseudo::Authority, "www.example.com"),
        pseudo(Pseudo::Path, "/assets/app-6f1ed002ab5595859014ebf0951522d9.js"),
        regular("accept", "*/*"),
        regular("accept-encoding", "gzip, deflate, br, zstd"),
        regular("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
        regular("cookie", "session=9d5ed678fe57bcca610140957afab571; theme=dark"),
        regular("referer", "https://www.example.com/products/overview"),
        regular(
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/137.0.0.0 Safari/537.36",
        ),
        regular("sec-ch-ua-platform", "\"Linux\""),
        regular("sec-fetch-mode", "no-cors"),
        regular("sec-fetch-site", "same-origin"),
        regular("priority", "u=1"),
    ]
}

fn file_response() -> Vec<Field> {
    vec![
        pseudo(Pseudo::Status, "200"),
        regular("content-type", "application/javascript; charset=utf-8"),
        regular("content-length", "183042"),
        regular("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        regular("last-modified", "Sat, 19 Oct 2013 08:01:54 GMT"),
        regular("etag", "\"33a64df551425fcc55e4d42a148795d9\""),
        regular("accept-ranges", "bytes"),
        regular("cache-control", "public, max-age=31536000, immutable"),
    ]
}

fn grpc_request() -> Vec<Field> {
    vec![
        pseudo(Pseudo::Method, "POST"),
        pseudo(Pseudo::Scheme, "http"),
        pseudo(Pseudo::Authority, "routeguide.internal:50051"),
        pseudo(Pseudo::Path, "/routeguide.RouteGuide/GetFeature"),
        regular("content-type", "application/grpc"),
        regular("te", "trailers"),
        regular("user-agent", "grpc-rust/0.14.0"),
        regular("grpc-timeout", "999830u"),
        regular(
            "authorization",
            "Bearer eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0",
        ),
    ]
}

fn encode(encoder: &mut Encoder, fields: &[Field], out: &mut BytesMut) {
    encoder.begin(out);
    for field in fields {
        match field {
            Field::Pseudo(name, value) => encoder.pseudo(*name, value, out),
            Field::Regular(name, value) => encoder.regular(name, value, out),
            Field::Malformed(reason, _) => unreachable!("{reason}"),
        }
    }
}

fn bench_message(criterion: &mut Criterion, name: &str, fields: &[Field]) {
    let mut group = criterion.benchmark_group(name);
    let mut block = BytesMut::with_capacity(4096);
    let mut encoder = Encoder::new();
    encode(&mut encoder, fields, &mut block);
    let first_block = block.split().freeze();

    group.bench_function("encode first", |bencher| {
        bencher.iter_batched_ref(
            || (Encoder::new(), BytesMut::with_capacity(4096)),
            |(encoder, out)| encode(encoder, black_box(fields), out),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("encode later", |bencher| {
        bencher.iter(|| {
            block.clear();
            encode(&mut encoder, black_box(fields), &mut block);
        });
    });
    group.bench_function("decode first", |bencher| {
        bencher.iter_batched_ref(
            || Decoder::new(4096),
            |decoder| decoder.decode(black_box(&first_block), |field| _ = black_box(field)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("decode later", |bencher| {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        // From the third block on, all fields that the encoder indexes are in the table.
        for _ in 0..3 {
            block.clear();
            encode(&mut encoder, fields, &mut block);
            decoder.decode(&block, |_| {}).expect("our own block");
        }
        bencher.iter(|| decoder.decode(black_box(&block), |field| _ = black_box(field)));
    });
    group.finish();
}

fn bench_messages(criterion: &mut Criterion) {
    bench_message(criterion, "browser request", &browser_request());
    bench_message(criterion, "file response", &file_response());
    bench_message(criterion, "grpc request", &grpc_request());
}

criterion_group!(benches, bench_messages);
criterion_main!(benches);
