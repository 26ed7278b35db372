//! Real packets through the testbed. Bounds are only checked on the side that a
//! slow machine cannot cross: nothing is ever faster than the link.

#[cfg(target_os = "linux")]
mod hystart;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod removal;
#[cfg(target_os = "linux")]
mod tcp;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    use smig_lab::link::LinkSpec;
    use smig_lab::netns::{Testbed, enter_user_namespace};

    // The harness would have started threads by now; hence a main of our own.
    let privilege = match enter_user_namespace().and_then(|privilege| {
        Testbed::start(LinkSpec::paper_wired())?;
        Ok(privilege)
    }) {
        Ok(privilege) => privilege,
        Err(error) if error.is_missing() => {
            println!("testbed tests SKIPPED: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if std::env::args().any(|argument| argument == removal::HOLD) {
        return removal::hold();
    }
    if let Some(at) = std::env::args().position(|argument| argument == hystart::KEEP) {
        return hystart::keep(at);
    }
    if std::env::args().any(|argument| argument == hystart::HOLD) {
        return hystart::hold();
    }
    println!("testbed tests, rights from: {privilege:?}");
    run_all()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("testbed tests SKIPPED: network namespaces are of Linux");
}

#[cfg(target_os = "linux")]
fn run_all() -> anyhow::Result<()> {
    use anyhow::Context as _;

    type Test = fn() -> anyhow::Result<()>;
    let tests: [(&str, Test); 17] = [
        ("nothing is faster than the link", tcp::nothing_is_faster_than_the_link),
        ("a full queue drops and TCP recovers", tcp::a_full_queue_drops_and_tcp_recovers),
        ("each host has its own settings", tcp::each_host_has_its_own_settings),
        ("an unknown congestion control is named", tcp::an_unknown_congestion_control_is_named),
        ("testbeds do not see each other", tcp::testbeds_do_not_see_each_other),
        ("nothing is left behind", tcp::nothing_is_left_behind),
        ("links are side by side", links::links_are_side_by_side),
        ("a log is written while the link runs", links::a_log_is_written_while_the_link_runs),
        ("packets are captured at both ends", links::packets_are_captured_at_both_ends),
        ("the MTU is the link's", links::the_mtu_is_the_links),
        ("a link without sense is refused", links::a_link_without_sense_is_refused),
        ("a link is measured", links::a_link_is_measured),
        (
            "a link that varies is held against itself",
            links::a_link_that_varies_is_held_against_itself,
        ),
        ("a program is inside and dies with its handle", removal::a_program_dies_with_its_handle),
        ("a program's end is told", removal::a_programs_end_is_told),
        ("nothing survives the process", removal::nothing_survives_the_process),
        ("HyStart is given back, whoever is killed", hystart::it_is_given_back_whoever_is_killed),
    ];
    for (name, test) in tests {
        let begin = std::time::Instant::now();
        test().with_context(|| name.to_owned())?;
        println!("  ok: {name} ({:.1?})", begin.elapsed());
    }
    Ok(())
}
