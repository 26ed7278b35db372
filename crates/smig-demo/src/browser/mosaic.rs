//! The mosaic: one image, cut into many small files, like the pages that motivated HTTP/2.
//!
//! Its bytes are the same on every machine: it uses only integer and basic floating-point
//! arithmetic and an encoder of a fixed version.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use smig_browser::WindowSize;

/// Tiles in a row.
const COLUMNS: usize = 18;
const ROWS: usize = 13;
/// Side of a tile in pixels.
pub(super) const TILE_SIDE_PX: usize = 32;

/// The page's size in pixels.
pub(super) const PAGE_WIDTH_PX: usize = COLUMNS * TILE_SIDE_PX;
pub(super) const PAGE_HEIGHT_PX: usize = ROWS * TILE_SIDE_PX;
pub(super) const PAGE_SIZE: WindowSize =
    WindowSize { width: PAGE_WIDTH_PX as u32, height: PAGE_HEIGHT_PX as u32 };

/// Centre and width of the image's part of the Mandelbrot set.
const MANDELBROT_CENTRE: (f64, f64) = (-0.743, 0.131);
const MANDELBROT_WIDTH: f64 = 0.012;
const MAX_STEPS: usize = 400;

/// One small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// Its name in the page's directory.
    pub name: String,
    /// A PNG of 32 by 32 pixels.
    pub png: Vec<u8>,
}

/// A page and its tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mosaic {
    /// The page.
    pub html: String,
    /// Its tiles, row by row.
    pub tiles: Vec<Tile>,
}

impl Mosaic {
    /// Draws the mosaic.
    ///
    /// # Errors
    /// An error of the encoder; none is known.
    pub fn draw() -> io::Result<Self> {
        let mut tiles = Vec::with_capacity(COLUMNS * ROWS);
        for index in 0..COLUMNS * ROWS {
            let (left, top) = (index % COLUMNS * TILE_SIDE_PX, index / COLUMNS * TILE_SIDE_PX);
            let name = format!("{index:03}.png");
            tiles.push(Tile { name, png: encode(&tile_shades(left, top))? });
        }
        Ok(Self { html: page_html(&tiles), tiles })
    }

    /// Returns the size of all tiles together in bytes.
    #[must_use]
    pub fn tiles_bytes(&self) -> u64 {
        self.tiles.iter().map(|tile| tile.png.len() as u64).sum()
    }

    /// Writes page and tiles to a directory.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join("index.html"), &self.html)?;
        self.tiles.iter().try_for_each(|tile| fs::write(directory.join(&tile.name), &tile.png))
    }
}

/// Returns a tile's colours, one byte per pixel.
fn tile_shades(left: usize, top: usize) -> Vec<u8> {
    let pixel = |index: usize| shade(left + index % TILE_SIDE_PX, top + index / TILE_SIDE_PX);
    (0..TILE_SIDE_PX * TILE_SIDE_PX).map(pixel).collect()
}

/// Returns 0 inside the set, otherwise one of 15 bands.
fn shade(x: usize, y: usize) -> u8 {
    let scale = MANDELBROT_WIDTH / PAGE_WIDTH_PX as f64;
    let c = (
        MANDELBROT_CENTRE.0 + (x as f64 - PAGE_WIDTH_PX as f64 / 2.0) * scale,
        MANDELBROT_CENTRE.1 + (y as f64 - PAGE_HEIGHT_PX as f64 / 2.0) * scale,
    );
    let (mut a, mut b) = (0.0_f64, 0.0_f64);
    for step in 0..MAX_STEPS {
        let (a2, b2) = (a * a, b * b);
        if a2 + b2 > 16.0 {
            // Bands widen where the number of steps is large.
            return 1 + ((step * 16).isqrt() % 15) as u8;
        }
        b = 2.0 * a * b + c.1;
        a = a2 - b2 + c.0;
    }
    0
}

/// Dark blue inside; outside from blue through white to amber and back.
const PALETTE: [[u8; 3]; 16] = [
    [8, 16, 36],
    [10, 47, 96],
    [12, 68, 132],
    [16, 92, 166],
    [46, 125, 191],
    [91, 160, 214],
    [146, 195, 233],
    [200, 224, 245],
    [248, 248, 240],
    [252, 230, 178],
    [248, 206, 112],
    [236, 174, 50],
    [212, 134, 20],
    [170, 92, 22],
    [116, 58, 36],
    [52, 40, 66],
];

fn encode(shades: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, TILE_SIDE_PX as u32, TILE_SIDE_PX as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Four);
    encoder.set_palette(PALETTE.concat());
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    let packed: Vec<u8> = shades.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&packed).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    Ok(out)
}

fn page_html(tiles: &[Tile]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Mosaic</title>\
         <link rel=\"icon\" href=\"data:,\"><style>body{{margin:0;background:#dde2e8}}\
         main{{display:grid;grid-template-columns:repeat({COLUMNS},{TILE_SIDE_PX}px)}}img{{display:block}}\
         </style><main>"
    );
    for tile in tiles {
        // Writing to a string does not fail.
        let _ = write!(
            html,
            "<img src=\"{}\" width=\"{TILE_SIDE_PX}\" height=\"{TILE_SIDE_PX}\" alt=\"\">",
            tile.name
        );
    }
    html + "</main>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mosaic_is_deterministic_and_about_100_kb() {
        let mosaic = Mosaic::draw().unwrap();
        assert_eq!(mosaic, Mosaic::draw().unwrap());
        assert_eq!(mosaic.tiles.len(), 234);
        // Slightly more than a second at 780 kbit/s.
        assert!((70_000..120_000).contains(&mosaic.tiles_bytes()), "{}", mosaic.tiles_bytes());
        for tile in &mosaic.tiles {
            assert!((80..1_000).contains(&tile.png.len()), "{}: {}", tile.name, tile.png.len());
            assert!(mosaic.html.contains(&format!("src=\"{}\"", tile.name)));
        }
    }

    #[test]
    fn tiles_decode_to_the_drawn_pixels() {
        let mosaic = Mosaic::draw().unwrap();
        for (index, tile) in mosaic.tiles.iter().enumerate().step_by(50) {
            let decoder = png::Decoder::new(io::Cursor::new(&tile.png));
            let mut reader = decoder.read_info().unwrap();
            assert_eq!((reader.info().width, reader.info().height), (32, 32));
            let mut packed = vec![0; TILE_SIDE_PX * TILE_SIDE_PX / 2];
            reader.next_frame(&mut packed).unwrap();
            let expected =
                tile_shades(index % COLUMNS * TILE_SIDE_PX, index / COLUMNS * TILE_SIDE_PX);
            let unpacked: Vec<u8> = packed.iter().flat_map(|&two| [two >> 4, two & 15]).collect();
            assert_eq!(unpacked, expected);
        }
    }

    #[test]
    fn every_colour_occurs_in_the_picture() {
        let shades: Vec<u8> = (0..PAGE_HEIGHT_PX)
            .flat_map(|y| (0..PAGE_WIDTH_PX).map(move |x| shade(x, y)))
            .collect();
        for band in 0..16 {
            assert!(shades.iter().filter(|&&shade| shade == band).count() > 100, "band {band}");
        }
    }
}
