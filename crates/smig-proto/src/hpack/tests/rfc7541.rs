//! All examples of RFC 7541 Appendix C.

use super::*;

/// Decodes one block of an example, and compares its fields and the table with the RFC's.
#[track_caller]
fn check_example(decoder: &mut Decoder, block: &str, expected: &str, table: &str) {
    let to_lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(decode_to_lines(decoder, &parse_hex(block)), to_lines(expected));
    let contents: Vec<String> = decoder
        .table()
        .iter()
        .map(|field| format!("[{}] {}", field.size(), format_field(field)))
        .collect();
    assert_eq!(contents, to_lines(table));
}

#[test]
fn c1_integers() {
    for (value, prefix_bits, encoded) in
        [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])]
    {
        // HPACK has no 8-bit prefix, but 42 fits into 7 bits as well.
        let prefix_bits = prefix_bits.min(7);
        let mut out = BytesMut::new();
        integer::encode(value, prefix_bits, 0, &mut out);
        assert_eq!(out, encoded);
        let mut rest = &encoded[1..];
        assert_eq!(integer::decode(encoded[0], prefix_bits, &mut rest), Ok(value));
        assert!(rest.is_empty());
    }
}

#[test]
fn c2_1_literal_with_indexing() {
    check_example(
        &mut Decoder::new(4096),
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "custom-key: custom-header",
        "[55] custom-key: custom-header",
    );
}

#[test]
fn c2_2_literal_without_indexing() {
    check_example(
        &mut Decoder::new(4096),
        "040c 2f73 616d 706c 652f 7061 7468",
        ":path: /sample/path",
        "",
    );
}

#[test]
fn c2_3_literal_never_indexed() {
    let mut decoder = Decoder::new(4096);
    let block = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    let [Field::Regular(name, value)] =
        &decode_fields(&mut decoder, &parse_hex(block)).unwrap()[..]
    else {
        panic!("one regular field expected");
    };
    assert_eq!((name.as_str(), value.as_bytes()), ("password", &b"secret"[..]));
    assert!(value.is_sensitive());
    assert!(decoder.table().is_empty());
}

#[test]
fn c2_4_indexed() {
    check_example(&mut Decoder::new(4096), "82", ":method: GET", "");
}

/// C.3 and C.4 differ only in the Huffman coding.
fn check_requests(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(4096);
    check_example(
        &mut decoder,
        blocks[0],
        ":method: GET
         :scheme: http
         :path: /
         :authority: www.example.com",
        "[57] :authority: www.example.com",
    );
    check_example(
        &mut decoder,
        blocks[1],
        ":method: GET
         :scheme: http
         :path: /
         :authority: www.example.com
         cache-control: no-cache",
        "[53] cache-control: no-cache
         [57] :authority: www.example.com",
    );
    check_example(
        &mut decoder,
        blocks[2],
        ":method: GET
         :scheme: https
         :path: /index.html
         :authority: www.example.com
         custom-key: custom-value",
        "[54] custom-key: custom-value
         [53] cache-control: no-cache
         [57] :authority: www.example.com",
    );
}

#[test]
fn c3_requests() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c4_requests_with_huffman() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

/// C.5 and C.6 differ only in the Huffman coding. The table holds 256 bytes, so entries are
/// evicted.
fn check_responses(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(256);
    check_example(
        &mut decoder,
        blocks[0],
        ":status: 302
         cache-control: private
         date: Mon, 21 Oct 2013 20:13:21 GMT
         location: https://www.example.com",
        "[63] location: https://www.example.com
         [65] date: Mon, 21 Oct 2013 20:13:21 GMT
         [52] cache-control: private
         [42] :status: 302",
    );
    check_example(
        &mut decoder,
        blocks[1],
        ":status: 307
         cache-control: private
         date: Mon, 21 Oct 2013 20:13:21 GMT
         location: https://www.example.com",
        "[42] :status: 307
         [63] location: https://www.example.com
         [65] date: Mon, 21 Oct 2013 20:13:21 GMT
         [52] cache-control: private",
    );
    check_example(
        &mut decoder,
        blocks[2],
        ":status: 200
         cache-control: private
         date: Mon, 21 Oct 2013 20:13:22 GMT
         location: https://www.example.com
         content-encoding: gzip
         set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        "[98] set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1
         [52] content-encoding: gzip
         [65] date: Mon, 21 Oct 2013 20:13:22 GMT",
    );
}

#[test]
fn c5_responses() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ]);
}

#[test]
fn c6_responses_with_huffman() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

#[test]
fn appendix_a_static_table() {
    // The entries with a value, and the first and last of the alphabetical part.
    for (index, expected) in [
        (1, ":authority: "),
        (2, ":method: GET"),
        (3, ":method: POST"),
        (4, ":path: /"),
        (5, ":path: /index.html"),
        (6, ":scheme: http"),
        (7, ":scheme: https"),
        (8, ":status: 200"),
        (9, ":status: 204"),
        (10, ":status: 206"),
        (11, ":status: 304"),
        (12, ":status: 400"),
        (13, ":status: 404"),
        (14, ":status: 500"),
        (15, "accept-charset: "),
        (16, "accept-encoding: gzip, deflate"),
        (61, "www-authenticate: "),
    ] {
        assert_eq!(decode_to_lines(&mut Decoder::new(4096), &[0x80 | index]), [expected]);
    }
    let names: Vec<String> = (17..=61)
        .flat_map(|index| decode_to_lines(&mut Decoder::new(4096), &[0x80 | index]))
        .collect();
    assert!(names.is_sorted());
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 45);
}
