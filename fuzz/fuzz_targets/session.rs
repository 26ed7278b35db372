//! Any octets as an attack on the engine: the first chooses its role, the rest are frames, octets,
//! time and an application's commands (`smig_testkit::hostile`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use smig_proto::Role;
use smig_testkit::hostile::attack;

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    attack(if first.is_multiple_of(2) { Role::Server } else { Role::Client }, rest);
});
