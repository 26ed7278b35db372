//! Requests per second of the service alone, on one thread, without any network.
//!
//! `cargo bench -p smig-files` prints one line per case: the best of several rounds, since other
//! load on the machine can only make a round slower.

use std::hint::black_box;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH, RANGE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body::Body as _;
use smig_files::{FileOptions, Files};
use tower_service::Service as _;

const ROUNDS: usize = 50;
const ROUND_DURATION: Duration = Duration::from_millis(20);

/// One measurement.
struct Case {
    name: &'static str,
    path: &'static str,
    headers: HeaderMap,
}

fn main() -> std::io::Result<()> {
    let directory = tempfile::tempdir()?;
    write_files(directory.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        println!("{:<44} {:>12} {:>10} {:>9}", "case", "requests/s", "ns each", "GB/s");
        measure_baseline(&cases()[0]);
        let with_defaults = Files::new(directory.path(), FileOptions::default())?;
        run("default options", &with_defaults, &cases()).await;
        let options = FileOptions { cache_memory_bytes: 0, ..FileOptions::default() };
        let page_cache = Files::new(directory.path(), options)?;
        run("page cache", &page_cache, &cases()[..3]).await;
        let options = FileOptions { cache_entries: 0, ..FileOptions::default() };
        let uncached = Files::new(directory.path(), options)?;
        run("no cache", &uncached, &cases()[..3]).await;
        Ok(())
    })
}

fn write_files(directory: &Path) -> std::io::Result<()> {
    for (name, size) in [("1k", 1 << 10), ("10k", 10 << 10), ("128k", 128 << 10), ("50m", 50 << 20)]
    {
        std::fs::write(directory.join(name), vec![b'x'; size])?;
    }
    std::fs::write(directory.join("coded.js"), vec![b'x'; 10 << 10])?;
    std::fs::write(directory.join("coded.js.br"), vec![b'y'; 2 << 10])?;
    std::fs::write(directory.join("coded.js.gz"), vec![b'z'; 3 << 10])
}

fn cases() -> Vec<Case> {
    let minimal_headers = headers(&[(USER_AGENT, "h2load nghttp2/1.52.0")]);
    let browser_headers = headers(&[
        (USER_AGENT, "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        (ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        (http::header::ACCEPT_LANGUAGE, "en-US,en;q=0.5"),
        (ACCEPT_ENCODING, "gzip, deflate, br, zstd"),
        (http::header::REFERER, "https://www.example.com/"),
        (http::header::COOKIE, "session=0123456789abcdef"),
        (http::HeaderName::from_static("sec-fetch-dest"), "script"),
        (http::HeaderName::from_static("sec-fetch-mode"), "no-cors"),
        (http::HeaderName::from_static("priority"), "u=2"),
    ]);
    let mut revalidation_headers = browser_headers.clone();
    revalidation_headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"a\", \"b\""));
    let case = |name, path, headers: &HeaderMap| Case { name, path, headers: headers.clone() };
    vec![
        case("1 KB", "/1k", &minimal_headers),
        case("10 KB", "/10k", &minimal_headers),
        case("128 KB", "/128k", &minimal_headers),
        case("50 MB", "/50m", &minimal_headers),
        case("1 KB, a browser's headers", "/1k", &browser_headers),
        case("1 KB, conditional", "/1k", &revalidation_headers),
        case("2 KB, a sibling of 10 KB", "/coded.js", &browser_headers),
        case("10 KB, a range", "/10k", &headers(&[(RANGE, "bytes=100-199")])),
        case("404", "/missing", &minimal_headers),
    ]
}

fn headers(fields: &[(http::HeaderName, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

async fn run(title: &str, files: &Files, cases: &[Case]) {
    // `cargo bench -p smig-files -- TEXT` runs the cases whose line contains the text.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for case in cases {
        let name = format!("{title}: {}", case.name);
        if filter.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut files = files.clone();
        serve(&mut files, case).await;
        let mut best_duration = Duration::MAX;
        let mut size = 0;
        for _ in 0..ROUNDS {
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < ROUND_DURATION {
                for _ in 0..32 {
                    size = serve(&mut files, case).await;
                    count += 1;
                }
            }
            best_duration = best_duration.min(start.elapsed() / count);
        }
        let seconds = best_duration.as_secs_f64();
        println!(
            "{:<44} {:>12.0} {:>10.0} {:>9.2}",
            name,
            seconds.recip(),
            seconds * 1e9,
            size as f64 / seconds / 1e9
        );
    }
}

/// Measures the overhead of the benchmark: creating and dropping the request.
fn measure_baseline(case: &Case) {
    let mut best_duration = Duration::MAX;
    for _ in 0..ROUNDS {
        let (start, count) = (Instant::now(), 100_000);
        for _ in 0..count {
            drop(black_box(request(case)));
        }
        best_duration = best_duration.min(start.elapsed() / count);
    }
    println!("{:<44} {:>12} {:>10.0}", "the request alone", "", best_duration.as_secs_f64() * 1e9);
}

fn request(case: &Case) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static(case.path);
    *request.headers_mut() = case.headers.clone();
    request
}

/// Sends a request and reads its response to the end. Polls as smig's server does: with the task's
/// waker, without a task of its own.
async fn serve(files: &mut Files, case: &Case) -> u64 {
    let Ok(response) = files.call(request(case)).await;
    let mut body = black_box(response).into_body();
    let mut size = 0;
    std::future::poll_fn(|context| {
        loop {
            match Pin::new(&mut body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(frame)) => {
                    let frame = frame.expect("the file can be read");
                    size += black_box(frame).data_ref().map_or(0, |data| data.len() as u64);
                }
            }
        }
    })
    .await;
    size
}
