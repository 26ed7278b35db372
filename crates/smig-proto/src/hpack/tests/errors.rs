//! Header blocks that must close the connection.

use super::*;

#[track_caller]
fn assert_error(block: &str, expected: DecodeError) {
    assert_eq!(decode_fields(&mut Decoder::new(4096), &parse_hex(block)), Err(expected), "{block}");
}

#[test]
fn truncated_blocks_are_errors() {
    // Each proper prefix of a literal with a Huffman-coded name and a two-byte length.
    let mut complete_block = parse_hex("4088 25a8 49e9 5ba9 7d7f 7f05");
    complete_block.extend([b'x'; 132]);
    assert_eq!(decode_fields(&mut Decoder::new(4096), &complete_block).unwrap().len(), 1);
    for len in 1..complete_block.len() {
        let prefix = &complete_block[..len];
        assert_eq!(
            decode_fields(&mut Decoder::new(4096), prefix),
            Err(DecodeError::Truncated),
            "{len}"
        );
    }
    assert_error("ff", DecodeError::Truncated);
    assert_error("ff80", DecodeError::Truncated);
    assert_error("3f", DecodeError::Truncated);
    // Lengths far beyond the end of the block.
    assert_error("0401", DecodeError::Truncated);
    assert_error("047f ffff ff7f 61", DecodeError::Truncated);
    assert_error("04ff ffff ff7f 61", DecodeError::Truncated);
}

#[test]
fn integers_above_32_bits_are_errors() {
    // 2^32 - 1 is the largest permitted value, wherever the integer occurs.
    assert_error("ff80 ffff ff0f", DecodeError::InvalidIndex);
    assert_error("ff81 ffff ff0f", DecodeError::IntegerOverflow);
    assert_error("047f 81ff ffff 0f", DecodeError::IntegerOverflow);
    assert_error("3fe1 ffff ff0f", DecodeError::IntegerOverflow);
    assert_error("ffff ffff ff7f", DecodeError::IntegerOverflow);
    // Zeros that add only length.
    assert_error("ff80 8080 8080 00", DecodeError::IntegerOverflow);
    assert_error("ff80 8080 8080 8080 8080 8080 01", DecodeError::IntegerOverflow);
    // Five bytes are permitted, whatever their value.
    assert_eq!(
        decode_fields(&mut Decoder::new(4096), &parse_hex("0f80 8080 8000 00"))
            .map(|fields| fields.len()),
        Ok(1)
    );
}

#[test]
fn invalid_huffman_padding_is_an_error() {
    // "0" is 00000: valid with a padding of three 1 bits, and with no other.
    assert_eq!(decode_to_lines(&mut Decoder::new(4096), &parse_hex("0481 07")), [":path: 0"]);
    assert_error("0481 06", DecodeError::HuffmanPadding);
    assert_error("0481 00", DecodeError::HuffmanPadding);
    assert_error("0481 03", DecodeError::HuffmanPadding);
    // Padding of 8 bits and more, alone and after a symbol.
    assert_error("0481 ff", DecodeError::HuffmanPadding);
    assert_error("0482 07ff", DecodeError::HuffmanPadding);
    assert_error("0483 07ff ff", DecodeError::HuffmanPadding);
    assert_error("0483 ffff ff", DecodeError::HuffmanPadding);
    // A truncated long code.
    assert_error("0482 fff0", DecodeError::HuffmanPadding);
    // No padding at all: "&" is 11111000.
    assert_eq!(decode_to_lines(&mut Decoder::new(4096), &parse_hex("0481 f8")), [":path: &"]);
    assert_eq!(decode_to_lines(&mut Decoder::new(4096), &parse_hex("0480")), [":path: "]);
    // The same far from the start, after more input than one decoder step consumes.
    // The length fits the prefix up to 126 bytes.
    for zeros in 5..=25 {
        let mut block = vec![0x04, 0x80 | (zeros as u8 * 5 + 1)];
        block.extend(vec![0; zeros * 5]);
        block.push(0xff);
        let result = decode_fields(&mut Decoder::new(4096), &block);
        assert_eq!(result, Err(DecodeError::HuffmanPadding), "{zeros}");
    }
}

#[test]
fn huffman_eos_is_an_error() {
    assert_error("0484 ffff ffff", DecodeError::HuffmanEos);
    assert_error("0484 ffff fffc", DecodeError::HuffmanEos);
    // After a symbol, and followed by more symbols.
    assert_error("0485 07ff ffff ff", DecodeError::HuffmanEos);
    assert_error("048a 07ff ffff ff07 0707 0707", DecodeError::HuffmanEos);
    assert_error("048c 0000 0000 00ff ffff ff00 0000", DecodeError::HuffmanEos);
    // In a name.
    assert_error("0084 ffff ffff 00", DecodeError::HuffmanEos);
}

#[test]
fn invalid_indexes_are_errors() {
    assert_error("80", DecodeError::InvalidIndex);
    assert_error("be", DecodeError::InvalidIndex);
    assert_error("ff80 ffff 03", DecodeError::InvalidIndex);
    // As a name, in each literal.
    assert_error("7e00", DecodeError::InvalidIndex);
    assert_error("0f2f 00", DecodeError::InvalidIndex);
    assert_error("1f2f 00", DecodeError::InvalidIndex);
    // The first entry exists, the second does not.
    assert_error("4001 6101 62 be bf", DecodeError::InvalidIndex);
    // Two entries exist, the third does not.
    assert_error("4001 6101 62 be 4001 6101 62 bf c0", DecodeError::InvalidIndex);
}

#[test]
fn late_size_updates_are_errors() {
    assert_error("82 20", DecodeError::LateSizeUpdate);
    assert_error("20 82 20", DecodeError::LateSizeUpdate);
    assert_error("3fe1 1f 82 3fe1 1f", DecodeError::LateSizeUpdate);
}

#[test]
fn too_large_size_updates_are_errors() {
    assert_error("3fe2 1f", DecodeError::SizeUpdateTooLarge);
    assert_error("20 3fe2 1f", DecodeError::SizeUpdateTooLarge);
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(8192);
    assert_eq!(decode_fields(&mut decoder, &parse_hex("3fe1 3f")), Ok(vec![]));
    assert_eq!(
        decode_fields(&mut decoder, &parse_hex("3fe2 3f")),
        Err(DecodeError::SizeUpdateTooLarge)
    );
}

#[test]
fn more_than_two_size_updates_are_errors() {
    assert_eq!(decode_fields(&mut Decoder::new(4096), &parse_hex("20 3fe1 1f")), Ok(vec![]));
    assert_error("20 20 20", DecodeError::TooManySizeUpdates);
    assert_error("20 3fe1 1f 20", DecodeError::TooManySizeUpdates);
}

#[test]
fn a_missing_size_update_is_an_error() {
    let expected_error = Err(DecodeError::MissingSizeUpdate);
    let new_reduced_decoder = || {
        let mut decoder = Decoder::new(4096);
        decoder.set_max_table_size(100);
        decoder
    };
    assert_eq!(decode_fields(&mut new_reduced_decoder(), &parse_hex("82")), expected_error);
    assert_eq!(decode_fields(&mut new_reduced_decoder(), &[]), expected_error);
    // Valid: at most 100. The update is required only once.
    let mut decoder = new_reduced_decoder();
    assert_eq!(decode_fields(&mut decoder, &parse_hex("3f45 82")).unwrap().len(), 1);
    assert_eq!(decode_fields(&mut decoder, &parse_hex("82")).unwrap().len(), 1);
    assert_eq!(decode_fields(&mut new_reduced_decoder(), &parse_hex("20 82")).unwrap().len(), 1);
    assert_eq!(
        decode_fields(&mut new_reduced_decoder(), &parse_hex("3f46")),
        Err(DecodeError::SizeUpdateTooLarge)
    );
    // Increased again at once: the smallest size must still be signalled, and first.
    let new_raised_decoder = || {
        let mut decoder = new_reduced_decoder();
        decoder.set_max_table_size(4096);
        decoder
    };
    assert_eq!(decode_fields(&mut new_raised_decoder(), &parse_hex("82")), expected_error);
    assert_eq!(decode_fields(&mut new_raised_decoder(), &parse_hex("3fe1 1f 82")), expected_error);
    assert_eq!(
        decode_fields(&mut new_raised_decoder(), &parse_hex("3f45 3fe1 1f 82")).unwrap().len(),
        1
    );
    assert_eq!(decode_fields(&mut new_raised_decoder(), &parse_hex("3f45 82")).unwrap().len(), 1);
    // A peer whose table is already smaller need not send an update.
    let mut decoder = Decoder::new(4096);
    assert_eq!(decode_fields(&mut decoder, &parse_hex("20")), Ok(vec![]));
    decoder.set_max_table_size(100);
    assert_eq!(decode_fields(&mut decoder, &parse_hex("82")).unwrap().len(), 1);
}

#[test]
fn fields_before_the_error_are_emitted() {
    let mut emitted_count = 0;
    let result = Decoder::new(4096).decode(&parse_hex("82 84 80"), |_| emitted_count += 1);
    assert_eq!((result, emitted_count), (Err(DecodeError::InvalidIndex), 2));
}

#[test]
fn every_error_has_its_own_text() {
    use DecodeError::*;
    let all_errors = [
        Truncated,
        IntegerOverflow,
        HuffmanPadding,
        HuffmanEos,
        InvalidIndex,
        LateSizeUpdate,
        SizeUpdateTooLarge,
        TooManySizeUpdates,
        MissingSizeUpdate,
    ];
    let mut texts: Vec<String> = all_errors.iter().map(DecodeError::to_string).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), all_errors.len());
}
