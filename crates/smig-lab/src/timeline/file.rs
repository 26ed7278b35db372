//! A timeline as JSON lines: the head, followed by one track, mark, span, page or frame per line.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use smig_chart::svg::is_base64;

use super::{Annotation, Head, PageSpan, ScreenFrame, Span, Timeline, Track};

/// Version of the format that this code reads and writes.
pub(super) const FORMAT_VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FileLine {
    Head(Head),
    Track(Track),
    Mark(Annotation),
    Span(Span),
    Page(PageSpan),
    Frame(ScreenFrame),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum FileLineRef<'a> {
    Head(&'a Head),
    Track(&'a Track),
    Mark(&'a Annotation),
    Span(&'a Span),
    Page(&'a PageSpan),
    Frame(&'a ScreenFrame),
}

/// Why a timeline could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read the timeline")]
    Io(#[from] io::Error),
    /// A line is not part of a timeline.
    #[error(
        "line {line}: {cause}; a timeline is what `smig lab run` writes with `record.timeline`"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Description of the error.
        cause: String,
    },
    /// The file is empty.
    #[error("the file is empty; was the run that wrote it interrupted?")]
    Empty,
}

impl Timeline {
    /// Writes the timeline as JSON lines.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_to(&self, writer: &mut dyn Write) -> io::Result<()> {
        let tracks = self.tracks.iter().map(FileLineRef::Track);
        let marks = self.annotations.iter().map(FileLineRef::Mark);
        let spans = self.spans.iter().map(FileLineRef::Span);
        let pages = self.pages.iter().map(FileLineRef::Page);
        let frames = self.frames.iter().map(FileLineRef::Frame);
        let head = std::iter::once(FileLineRef::Head(&self.head));
        for line in head.chain(tracks).chain(marks).chain(spans).chain(pages).chain(frames) {
            serde_json::to_writer(&mut *writer, &line)?;
            writer.write_all(b"\n")?;
        }
        writer.flush()
    }

    /// Reads the output of [`Timeline::write_to`]. Verifies its invariants, so that a violation is
    /// an error here and not a panic later: columns are as long as their times, and times do not
    /// decrease.
    ///
    /// # Errors
    /// [`ReadError`], with the number of the line.
    pub fn read_from(reader: &mut dyn BufRead) -> Result<Self, ReadError> {
        let mut timeline: Option<Self> = None;
        for (index, text) in reader.lines().enumerate() {
            let line_error = |cause: String| ReadError::Line { line: index + 1, cause };
            let text = text?;
            if text.trim().is_empty() {
                continue;
            }
            let line =
                serde_json::from_str(&text).map_err(|error| line_error(error.to_string()))?;
            match (line, &mut timeline) {
                (FileLine::Head(head), None) => {
                    if head.version != FORMAT_VERSION {
                        let found = head.version;
                        return Err(line_error(format!(
                            "the format is version {found}, this program reads version {FORMAT_VERSION}"
                        )));
                    }
                    timeline = Some(Self {
                        head,
                        tracks: Vec::new(),
                        annotations: Vec::new(),
                        spans: Vec::new(),
                        pages: Vec::new(),
                        frames: Vec::new(),
                    });
                }
                (FileLine::Head(_), Some(_)) => return Err(line_error("a second head".into())),
                (_, None) => return Err(line_error("the first line is not a head".into())),
                (FileLine::Track(track), Some(timeline)) => {
                    check_track(&track).map_err(line_error)?;
                    timeline.tracks.push(track);
                }
                (FileLine::Mark(mark), Some(timeline)) => timeline.annotations.push(mark),
                (FileLine::Span(span), Some(timeline)) => {
                    check_interval(span.from_us, span.to_us).map_err(line_error)?;
                    timeline.spans.push(span);
                }
                (FileLine::Page(page), Some(timeline)) => {
                    check_interval(page.from_us, page.to_us).map_err(line_error)?;
                    timeline.pages.push(page);
                }
                (FileLine::Frame(frame), Some(timeline)) => {
                    check_frame(&frame).map_err(line_error)?;
                    timeline.frames.push(frame);
                }
            }
        }
        timeline.ok_or(ReadError::Empty)
    }
}

/// Times later than this are not of a run: eleven days.
const MAX_TIME_US: u64 = 1_000_000_000_000;

fn check_interval(from_us: u64, to_us: u64) -> Result<(), String> {
    if from_us <= to_us && to_us <= MAX_TIME_US {
        Ok(())
    } else {
        Err(format!("{from_us} to {to_us} us is no interval of a run"))
    }
}

/// Checks a frame: a picture goes into pages as it is.
fn check_frame(frame: &ScreenFrame) -> Result<(), String> {
    check_interval(frame.at_us, frame.at_us)?;
    if frame.progress > 100 || !is_base64(&frame.jpeg) {
        return Err(format!("the frame at {} us is none", frame.at_us));
    }
    Ok(())
}

fn check_track(track: &Track) -> Result<(), String> {
    let length = track.at_us.len();
    if let Some((column, values)) = track.columns.iter().find(|(_, values)| values.len() != length)
    {
        return Err(format!("{column:?} has {} values for {length} times", values.len()));
    }
    if track.at_us.is_sorted() { Ok(()) } else { Err("times go backwards".into()) }
}
