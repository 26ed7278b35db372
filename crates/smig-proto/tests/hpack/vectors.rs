//! The stories of http2jp/hpack-test-case (README.md describes their format and origin).

use std::collections::HashMap;
use std::io::Read;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};
use smig_proto::hpack::{Decoder, Encoder, Field, Pseudo};

/// The vectors, decompressed.
fn decompress_stories() -> String {
    let compressed = include_bytes!("stories.zst");
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(&compressed[..])
        .expect("a zstd frame")
        .read_to_string(&mut text)
        .expect("UTF-8");
    text
}

type FieldList<'a> = Vec<(&'a str, &'a str)>;

struct EncodedStory<'a> {
    encoder: &'a str,
    story: &'a str,
    /// Each with the new SETTINGS_HEADER_TABLE_SIZE that applies from it on, if any.
    blocks: Vec<(Option<usize>, &'a str)>,
}

#[derive(Default)]
struct Vectors<'a> {
    stories: HashMap<&'a str, Vec<FieldList<'a>>>,
    encoded_stories: Vec<EncodedStory<'a>>,
}

impl<'a> Vectors<'a> {
    fn parse(text: &'a str) -> Self {
        let mut vectors = Self::default();
        let (mut lists, mut list, mut limit) = (Vec::new(), FieldList::new(), None);
        let mut name = "";
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("story ") {
                vectors
                    .stories
                    .insert(std::mem::replace(&mut name, next), std::mem::take(&mut lists));
            } else if let Some(which) = line.strip_prefix("encoder ") {
                let (encoder, story) = which.split_once(' ').expect("an encoder and a story");
                vectors.encoded_stories.push(EncodedStory { encoder, story, blocks: Vec::new() });
            } else if let Some(size) = line.strip_prefix("limit ") {
                limit = Some(size.parse().expect("a size"));
            } else if let Some(field) = line.split_once('\t') {
                list.push(field);
            } else if line.is_empty() {
                lists.push(std::mem::take(&mut list));
            } else {
                let encoded =
                    vectors.encoded_stories.last_mut().expect("blocks follow their encoder");
                encoded.blocks.push((limit.take(), line));
            }
        }
        vectors.stories.insert(name, lists);
        vectors.stories.remove("");
        vectors
    }
}

fn parse_hex(text: &str) -> Vec<u8> {
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

fn decode_and_compare(decoder: &mut Decoder, block: &[u8], list: &[(&str, &str)], context: &str) {
    let mut expected = list.iter();
    decoder
        .decode(block, |field| {
            let line = *expected.next().expect("as many fields as in the story");
            assert!(is_field_of_line(&field, line), "{context}: {field:?} is not {line:?}");
        })
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(expected.next().is_none(), "{context}: fields are missing");
}

#[test]
fn blocks_of_every_encoder_are_decoded() {
    let text = decompress_stories();
    let vectors = Vectors::parse(&text);
    let mut block_count = 0;
    for EncodedStory { encoder, story, blocks: encoded_blocks } in &vectors.encoded_stories {
        let lists = &vectors.stories[story];
        assert_eq!(encoded_blocks.len(), lists.len());
        let mut decoder = Decoder::new(4096);
        for (index, ((limit, block), list)) in encoded_blocks.iter().zip(lists).enumerate() {
            if let Some(limit) = limit {
                decoder.set_max_table_size(*limit);
            }
            decode_and_compare(
                &mut decoder,
                &parse_hex(block),
                list,
                &format!("{encoder}, story {story}, {index}"),
            );
            block_count += 1;
        }
    }
    assert_eq!((vectors.stories.len(), block_count), (32, 47_142));
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
    let text = decompress_stories();
    let vectors = Vectors::parse(&text);
    let (mut our_bytes, mut nghttp2_bytes) = (0, 0);
    for EncodedStory { story, blocks, .. } in
        vectors.encoded_stories.iter().filter(|encoded| encoded.encoder == "nghttp2")
    {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        for (index, list) in vectors.stories[story].iter().enumerate() {
            let mut block = BytesMut::new();
            encode(&mut encoder, list, &mut block);
            decode_and_compare(&mut decoder, &block, list, &format!("story {story}, {index}"));
            our_bytes += block.len();
        }
        nghttp2_bytes += blocks.iter().map(|(_, block)| block.len() / 2).sum::<usize>();
    }
    assert!(
        our_bytes * 100 <= nghttp2_bytes * 102,
        "{our_bytes} bytes, nghttp2 needs {nghttp2_bytes}"
    );
    println!("{our_bytes} bytes, nghttp2 {nghttp2_bytes}");
}
