//! The files of a page of tiles, for a browser: a document and its pictures, of exactly the sizes that a player requests.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::content::Content;
use crate::scenario::{DOCUMENT_HEAD_BYTES, Page, ResourceKind, TILE_ELEMENT_BYTES};

/// The document's name: some servers redirect from that of an index.
pub(super) const DOCUMENT_NAME: &str = "page.html";
/// Side of a picture in its own pixels.
pub(super) const PICTURE_SIDE_PX: u32 = 8;
/// Size of the page in pixels: all tiles are in a window of this size.
pub(super) const PAGE_WIDTH_PX: u32 = 960;
pub(super) const PAGE_HEIGHT_PX: u32 = 720;
/// What a PNG chunk has beside its data.
const CHUNK_OVERHEAD_BYTES: usize = 12;
/// Length of the chunk that ends a PNG.
const END_CHUNK_BYTES: usize = 12;
/// A chunk that decoders skip: ancillary, private, safe to copy (PNG section 5.4).
const FILLER_CHUNK: [u8; 4] = *b"smIg";

/// Writes document and pictures into a directory, unless they are there.
pub(super) fn write(directory: &Path, page: &Page) -> io::Result<()> {
    let document_path = directory.join(DOCUMENT_NAME);
    if fs::exists(&document_path)? {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    let resources = page.resources();
    let tiles = resources.iter().filter(|resource| resource.kind == ResourceKind::Image);
    let mut count = 0;
    for (index, tile) in (0..).zip(tiles) {
        fs::write(directory.join(picture_name(index)), picture(index, tile.size)?)?;
        count = index + 1;
    }
    // Last, because its presence means that all are there.
    fs::write(document_path, document(count))
}

/// Returns the name of a tile's file.
pub(super) fn picture_name(index: u32) -> String {
    format!("{index}.png")
}

/// Returns a document that shows so many tiles.
fn document(count: u32) -> String {
    let columns = (1..).find(|&columns| fits(columns, count)).unwrap_or(count);
    let side = PAGE_WIDTH_PX / columns;
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tiles</title>\
         <link rel=\"icon\" href=\"data:,\"><style>body{{margin:0}}\
         main{{display:grid;grid-template-columns:repeat({columns},{side}px)}}img{{display:block}}</style><!--"
    );
    let end = "--><main>\n";
    pad(&mut html, DOCUMENT_HEAD_BYTES as usize - end.len());
    html.push_str(end);
    for index in 0..count {
        let end = html.len() + TILE_ELEMENT_BYTES as usize;
        // Writing to a string does not fail.
        let _ = write!(
            html,
            "<img src=\"{}\" width=\"{side}\" height=\"{side}\" alt=\"\">",
            picture_name(index)
        );
        pad(&mut html, end - 1);
        html.push('\n');
    }
    html
}

/// Returns whether so many tiles in rows of `columns` are in the page.
const fn fits(columns: u32, count: u32) -> bool {
    count.div_ceil(columns) * (PAGE_WIDTH_PX / columns) <= PAGE_HEIGHT_PX
}

fn pad(text: &mut String, length: usize) {
    while text.len() < length {
        text.push(' ');
    }
}

/// Returns a PNG of one colour, made longer by a chunk with incompressible bytes.
fn picture(index: u32, size: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, PICTURE_SIDE_PX, PICTURE_SIDE_PX);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::One);
    encoder.set_palette(colour(index).to_vec());
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&[0; PICTURE_SIDE_PX as usize]).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    let missing =
        size.checked_sub(png.len()).and_then(|rest| rest.checked_sub(CHUNK_OVERHEAD_BYTES));
    let missing =
        missing.ok_or_else(|| io::Error::other(format!("no picture has {size} bytes")))?;
    let mut chunk = FILLER_CHUNK.to_vec();
    chunk.extend_from_slice(&Content::new().next_bytes(missing));
    let mut filler = u32::try_from(missing).map_err(io::Error::other)?.to_be_bytes().to_vec();
    filler.extend_from_slice(&chunk);
    filler.extend_from_slice(&crc32fast::hash(&chunk).to_be_bytes());
    let before_end = png.len() - END_CHUNK_BYTES;
    png.splice(before_end..before_end, filler);
    Ok(png)
}

/// Returns a colour that differs from those of neighbours.
fn colour(index: u32) -> [u8; 3] {
    let hash = (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [(hash >> 56) as u8, (hash >> 48) as u8, (hash >> 40) as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_and_pictures_have_the_sizes_that_a_player_requests() {
        let page: Page = toml::from_str("tiles = { objects = 7, total = 20_000 }").unwrap();
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &page).unwrap();
        let resources = page.resources();
        let size = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        assert_eq!(size(DOCUMENT_NAME), resources[0].size);
        for (index, tile) in (0..).zip(&resources[1..]) {
            assert_eq!(size(&picture_name(index)), tile.size, "{index}");
        }
        let html = fs::read_to_string(dir.path().join(DOCUMENT_NAME)).unwrap();
        assert_eq!(html.matches("<img ").count(), 7);
    }

    #[test]
    fn pictures_decode_to_one_colour_each() {
        let mut colours = std::collections::BTreeSet::new();
        for index in 0..192 {
            for size in [128, 209, 90_000] {
                let png = picture(index, size).unwrap();
                assert_eq!(png.len() as u64, size);
                let mut decoder = png::Decoder::new(io::Cursor::new(&png));
                decoder.set_transformations(png::Transformations::EXPAND);
                let mut reader = decoder.read_info().unwrap();
                let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
                reader.next_frame(&mut pixels).unwrap();
                reader.finish().unwrap();
                assert!(pixels.chunks(3).all(|pixel| pixel == colour(index)));
            }
            colours.insert(colour(index));
        }
        assert_eq!(colours.len(), 192);
        assert!(picture(0, 90).is_err());
    }

    #[test]
    fn all_tiles_are_in_the_window() {
        for count in [1, 6, 48, 96, 192, 1_000] {
            let html = document(count);
            assert_eq!(
                html.len() as u64,
                DOCUMENT_HEAD_BYTES + TILE_ELEMENT_BYTES * u64::from(count)
            );
            let number = |before: &str| -> u32 {
                let rest = &html[html.find(before).unwrap() + before.len()..];
                rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
            };
            let (columns, side) = (number("repeat("), number("width=\""));
            assert!(columns * side <= PAGE_WIDTH_PX, "{count}: {columns} of {side}");
            assert!(count.div_ceil(columns) * side <= PAGE_HEIGHT_PX, "{count}");
            assert!(side > 10, "{count}: {side}");
        }
    }
}
