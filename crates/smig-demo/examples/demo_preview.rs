//! Shows the demonstration with made-up numbers, five times as fast:
//! `cargo run -p smig-demo --example demo_preview FILE.html`. To draw a saved result instead:
//! `… FILE.html RESULT.json`.

use std::time::Duration;

use anyhow::{Context, Result};
use smig_demo::demo::{DemoEvent, DemoResult, LiveView, Variant, fixtures, render_html};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let page_path = arguments.next().context("no path for the page")?;
    let result: DemoResult = match arguments.next() {
        Some(saved) => serde_json::from_str(&std::fs::read_to_string(&saved)?)
            .with_context(|| format!("{saved} is not a saved result"))?,
        None => play_fixtures()?,
    };
    std::fs::write(&page_path, render_html(&result))
        .with_context(|| format!("cannot write {page_path}"))?;
    Ok(())
}

fn play_fixtures() -> Result<DemoResult> {
    let mut view = LiveView::stdout(fixtures::setup())?;
    for event in Variant::ALL.into_iter().flat_map(fixtures::events) {
        view.apply(&event)?;
        if matches!(event, DemoEvent::Object(_)) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(view.finish()?)
}
