//! Header blocks that must close the connection.

use super::*;

#[track_caller]
fn fails(block: &str, expected: DecodeError) {
    assert_eq!(fields(&mut Decoder::new(4096), &hex(block)), Err(expected), "{block}");
}

#[test]
fn truncated() {
    // Each proper prefix of a literal with a Huffman-coded name and a two-byte length.
    let mut whole = hex("4088 25a8 49e9 5ba9 7d7f 7f05");
    whole.extend([b'x'; 132]);
    assert_eq!(fields(&mut Decoder::new(4096), &whole).unwrap().len(), 1);
    for len in 1..whole.len() {
        let prefix = &whole[..len];
        assert_eq!(fields(&mut Decoder::new(4096), prefix), Err(DecodeError::Truncated), "{len}");
    }
    fails("ff", DecodeError::Truncated);
    fails("ff80", DecodeError::Truncated);
    fails("3f", DecodeError::Truncated);
    // Lengths far beyond the end of the block.
    fails("0401", DecodeError::Truncated);
    fails("047f ffff ff7f 61", DecodeError::Truncated);
    fails("04ff ffff ff7f 61", DecodeError::Truncated);
}

#[test]
fn integer_overflow() {
    // 2^32 - 1 is the largest permitted value, wherever the integer occurs.
    fails("ff80 ffff ff0f", DecodeError::InvalidIndex);
    fails("ff81 ffff ff0f", DecodeError::IntegerOverflow);
    fails("047f 81ff ffff 0f", DecodeError::IntegerOverflow);
    fails("3fe1 ffff ff0f", DecodeError::IntegerOverflow);
    fails("ffff ffff ff7f", DecodeError::IntegerOverflow);
    // Zeros that add only length.
    fails("ff80 8080 8080 00", DecodeError::IntegerOverflow);
    fails("ff80 8080 8080 8080 8080 8080 01", DecodeError::IntegerOverflow);
    // Five bytes are permitted, whatever their value.
    assert_eq!(
        fields(&mut Decoder::new(4096), &hex("0f80 8080 8000 00")).map(|fields| fields.len()),
        Ok(1)
    );
}

#[test]
fn huffman_padding() {
    // "0" is 00000: valid with a padding of three 1 bits, and with no other.
    assert_eq!(lines(&mut Decoder::new(4096), &hex("0481 07")), [":path: 0"]);
    fails("0481 06", DecodeError::HuffmanPadding);
    fails("0481 00", DecodeError::HuffmanPadding);
    fails("0481 03", DecodeError::HuffmanPadding);
    // Padding of 8 bits and more, alone and after a symbol.
    fails("0481 ff", DecodeError::HuffmanPadding);
    fails("0482 07ff", DecodeError::HuffmanPadding);
    fails("0483 07ff ff", DecodeError::HuffmanPadding);
    fails("0483 ffff ff", DecodeError::HuffmanPadding);
    // A truncated long code.
    fails("0482 fff0", DecodeError::HuffmanPadding);
    // No padding at all: "&" is 11111000.
    assert_eq!(lines(&mut Decoder::new(4096), &hex("0481 f8")), [":path: &"]);
    assert_eq!(lines(&mut Decoder::new(4096), &hex("0480")), [":path: "]);
    // The same far from the start, after more input than one decoder step consumes.
    for zeros in 5..40 {
        let mut block = vec![0x04, 0x80 | (zeros as u8 * 5 + 1)];
        block.extend(vec![0; zeros * 5]);
        block.push(0xff);
        let result = fields(&mut Decoder::new(4096), &block);
        if zeros * 5 + 1 < 127 {
            assert_eq!(result, Err(DecodeError::HuffmanPadding), "{zeros}");
        }
    }
}

#[test]
fn huffman_eos() {
    fails("0484 ffff ffff", DecodeError::HuffmanEos);
    fails("0484 ffff fffc", DecodeError::HuffmanEos);
    // After a symbol, and followed by more symbols.
    fails("0485 07ff ffff ff", DecodeError::HuffmanEos);
    fails("048a 07ff ffff ff07 0707 0707", DecodeError::HuffmanEos);
    fails("048c 0000 0000 00ff ffff ff00 0000", DecodeError::HuffmanEos);
    // In a name.
    fails("0084 ffff ffff 00", DecodeError::HuffmanEos);
}

#[test]
fn invalid_index() {
    fails("80", DecodeError::InvalidIndex);
    fails("be", DecodeError::InvalidIndex);
    fails("ff80 ffff 03", DecodeError::InvalidIndex);
    // As a name, in each literal.
    fails("7e00", DecodeError::InvalidIndex);
    fails("0f2f 00", DecodeError::InvalidIndex);
    fails("1f2f 00", DecodeError::InvalidIndex);
    // The first entry exists, the second does not.
    fails("4001 6101 62 be bf", DecodeError::InvalidIndex);
    // An evicted one.
    fails("4001 6101 62 be 4001 6101 62 bf c0", DecodeError::InvalidIndex);
}

#[test]
fn late_size_update() {
    fails("82 20", DecodeError::LateSizeUpdate);
    fails("20 82 20", DecodeError::LateSizeUpdate);
    fails("3fe1 1f 82 3fe1 1f", DecodeError::LateSizeUpdate);
}

#[test]
fn size_update_too_large() {
    fails("3fe2 1f", DecodeError::SizeUpdateTooLarge);
    fails("20 3fe2 1f", DecodeError::SizeUpdateTooLarge);
    let mut decoder = Decoder::new(4096);
    decoder.set_max_table_size(8192);
    assert_eq!(fields(&mut decoder, &hex("3fe1 3f")), Ok(vec![]));
    assert_eq!(fields(&mut decoder, &hex("3fe2 3f")), Err(DecodeError::SizeUpdateTooLarge));
}

#[test]
fn too_many_size_updates() {
    assert_eq!(fields(&mut Decoder::new(4096), &hex("20 3fe1 1f")), Ok(vec![]));
    fails("20 20 20", DecodeError::TooManySizeUpdates);
    fails("20 3fe1 1f 20", DecodeError::TooManySizeUpdates);
}

#[test]
fn missing_size_update() {
    let missing = Err(DecodeError::MissingSizeUpdate);
    let reduced = || {
        let mut decoder = Decoder::new(4096);
        decoder.set_max_table_size(100);
        decoder
    };
    assert_eq!(fields(&mut reduced(), &hex("82")), missing);
    assert_eq!(fields(&mut reduced(), &[]), missing);
    // Valid: at most 100. The update is required only once.
    let mut decoder = reduced();
    assert_eq!(fields(&mut decoder, &hex("3f45 82")).unwrap().len(), 1);
    assert_eq!(fields(&mut decoder, &hex("82")).unwrap().len(), 1);
    assert_eq!(fields(&mut reduced(), &hex("20 82")).unwrap().len(), 1);
    assert_eq!(fields(&mut reduced(), &hex("3f46")), Err(DecodeError::SizeUpdateTooLarge));
    // Increased again at once: the smallest size must still be signalled, and first.
    let raised = || {
        let mut decoder = reduced();
        decoder.set_max_table_size(4096);
        decoder
    };
    assert_eq!(fields(&mut raised(), &hex("82")), missing);
    assert_eq!(fields(&mut raised(), &hex("3fe1 1f 82")), missing);
    assert_eq!(fields(&mut raised(), &hex("3f45 3fe1 1f 82")).unwrap().len(), 1);
    assert_eq!(fields(&mut raised(), &hex("3f45 82")).unwrap().len(), 1);
    // A peer whose table is already smaller need not send an update.
    let mut decoder = Decoder::new(4096);
    assert_eq!(fields(&mut decoder, &hex("20")), Ok(vec![]));
    decoder.set_max_table_size(100);
    assert_eq!(fields(&mut decoder, &hex("82")).unwrap().len(), 1);
}

#[test]
fn fields_before_the_error_are_emitted() {
    let mut seen = 0;
    let result = Decoder::new(4096).decode(&hex("82 84 80"), |_| seen += 1);
    assert_eq!((result, seen), (Err(DecodeError::InvalidIndex), 2));
}

#[test]
fn every_error_says_what_was_wrong() {
    use DecodeError::*;
    let all = [
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
    let mut texts: Vec<String> = all.iter().map(DecodeError::to_string).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), all.len());
}
