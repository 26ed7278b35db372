//! Attacks the engine with arbitrary bytes. The first byte selects its side; the rest are frames,
//! raw bytes, time and commands of an application (`smig_testkit::hostile`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use smig_proto::Side;
use smig_testkit::hostile::attack;

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    attack(if first.is_multiple_of(2) { Side::Server } else { Side::Client }, rest);
});
