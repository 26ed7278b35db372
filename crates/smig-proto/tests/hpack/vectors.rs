//! The stories of http2jp/hpack-test-case (README.md describes their format and origin).

use std::collections::HashMap;
use std::io::Read;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};
use smig_proto::hpack::{Decoder, Encoder, Field, Pseudo};

/// The vectors, decompressed.
fn text() -> String {
    let compressed = include_bytes!("stories.zst");
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(&compressed[..])
        .expect("a zstd frame")
        .read_to_string(&mut text)
        .expect("UTF-8");
    text
}

type FieldList<'a> = Vec<(&'a str, &'a str)>;

struct Encoded<'a> {
    encoder: &'a str,
    story: &'a str,
    /// Each with the new SETTINGS_HEADER_TABLE_SIZE that applies from it on, if any.
    blocks: Vec<(Option<usize>, &'a str)>,
}

#[derive(Default)]
struct Vectors<'a> {
    stories: HashMap<&'a str, Vec<FieldList<'a>>>,
    encoded: Vec<Encoded<'a>>,
}

impl<'a> Vectors<'a> {
    fn parse(text: &'a str) -> Self {
        let mut vectors = Self::default();
        let (mut story, mut list, mut limit) = (Vec::new(), FieldList::new(), None);
        let mut name = "";
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("story ") {
                vectors
                    .stories
                    .insert(std::mem::replace(&mut name, next), std::mem::take(&mut story));
            } else if let Some(which) = line.strip_prefix("encoder ") {
                let (encoder, story) = which.split_once(' ').expect("an encoder and a story");
                vectors.encoded.push(Encoded { encoder, story, blocks: Vec::new() });
            } else if let Some(size) = line.strip_prefix("limit ") {
                limit = Some(size.parse().expect("a size"));
            } else if let Some(field) = line.split_once('\t') {
                list.push(field);
            } else if line.is_empty() {
                story.push(std::mem::take(&mut list));
            } else {
                let encoded = vectors.encoded.last_mut().expect("blocks follow their encoder");
                encoded.blocks.push((limit.take(), line));
            }
        }
        vectors.stories.insert(name, story);
        vectors.stories.remove("");
        vectors
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn pseudo(name: &str) -> Option<Pseudo> {
    use Pseudo::*;
    [Method, Scheme, Authority, Path, Status, Protocol]
        .into_iter()
        .find(|pseudo| pseudo.as_str() == name)
}

/// Returns whether a decoded field is the one of a line of a story.
fn is_field_of_line(field: &Field, (name, value): (&str, &str)) -> bool {
    match field {
        Field::Pseudo(known, decoded) => known.as_str() == name && decoded == value,
        Field::Regular(known, decoded) => known == name && decoded.as_bytes() == value.as_bytes(),
        Field::Malformed(_, size) => {
            value != value.trim() && *size as usize == name.len() + value.len() + 32
        }
    }
}

fn decode(decoder: &mut Decoder, block: &[u8], list: &[(&str, &str)], what: &str) {
    let mut expected = list.iter();
    decoder
        .decode(block, |field| {
            let line = *expected.next().expect("as many fields as in the story");
            assert!(is_field_of_line(&field, line), "{what}: {field:?} is not {line:?}");
        })
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(expected.next().is_none(), "{what}: fields are missing");
}

#[test]
fn blocks_of_every_encoder_are_decoded() {
    let text = text();
    let vectors = Vectors::parse(&text);
    let mut blocks = 0;
    for Encoded { encoder, story, blocks: encoded } in &vectors.encoded {
        let lists = &vectors.stories[story];
        assert_eq!(encoded.len(), lists.len());
        let mut decoder = Decoder::new(4096);
        for (place, ((limit, block), list)) in encoded.iter().zip(lists).enumerate() {
            if let Some(limit) = limit {
                decoder.set_max_table_size(*limit);
            }
            decode(&mut decoder, &hex(block), list, &format!("{encoder}, story {story}, {place}"));
            blocks += 1;
        }
    }
    assert_eq!((vectors.stories.len(), blocks), (32, 47_142));
}

fn encode(encoder: &mut Encoder, list: &[(&str, &str)], out: &mut BytesMut) {
    encoder.begin(out);
    for &(name, value) in list {
        match pseudo(name) {
            Some(pseudo) => encoder.pseudo(pseudo, value.as_bytes(), out),
            None => encoder.regular(
                &HeaderName::from_bytes(name.as_bytes()).expect("a field name"),
                &HeaderValue::from_bytes(value.as_bytes()).expect("a field value"),
                out,
            ),
        }
    }
}

#[test]
fn our_blocks_are_decoded_and_as_compact_as_those_of_nghttp2() {
    let text = text();
    let vectors = Vectors::parse(&text);
    let (mut ours, mut theirs) = (0, 0);
    for Encoded { story, blocks, .. } in
        vectors.encoded.iter().filter(|encoded| encoded.encoder == "nghttp2")
    {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        for (place, list) in vectors.stories[story].iter().enumerate() {
            let mut block = BytesMut::new();
            encode(&mut encoder, list, &mut block);
            decode(&mut decoder, &block, list, &format!("story {story}, {place}"));
            ours += block.len();
        }
        theirs += blocks.iter().map(|(_, block)| block.len() / 2).sum::<usize>();
    }
    assert!(ours * 100 <= theirs * 102, "{ours} bytes, nghttp2 needs {theirs}");
    println!("{ours} bytes, nghttp2 {theirs}");
}
