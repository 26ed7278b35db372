//! Real packets through the testbed. Only bounds that a slow machine cannot violate are checked:
//! nothing is ever faster than the link.

#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod hystart;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod paced;
#[cfg(target_os = "linux")]
mod paths;
#[cfg(target_os = "linux")]
mod removal;
#[cfg(target_os = "linux")]
mod tcp;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    use libtest_mimic::{Arguments, Failed, Trial};
    use smig_link::LinkSpec;
    use smig_testbed::netns::{Testbed, enter_user_namespace};

    // The standard test harness starts threads first, so this test has its own main.
    let started = enter_user_namespace().and_then(|privilege| {
        Testbed::start(LinkSpec::paper_wired())?;
        Ok(privilege)
    });
    let is_unsupported = match started {
        Ok(_) => false,
        Err(error) if error.is_missing_requirement() => {
            eprintln!("testbed tests are ignored: {error}");
            true
        }
        Err(error) => return Err(error.into()),
    };
    // Tests start this program again in these roles.
    if std::env::args().any(|argument| argument == removal::HOLDER_ARGUMENT) {
        return removal::run_holder();
    }
    if let Some(at) = std::env::args().position(|argument| argument == hystart::KEEPER_ARGUMENT) {
        return hystart::run_keeper(at);
    }
    if std::env::args().any(|argument| argument == hystart::HOLDER_ARGUMENT) {
        return hystart::run_holder();
    }
    if let Some(at) = std::env::args().position(|argument| argument == bpf::KEEPER_ARGUMENT) {
        return bpf::run_keeper(at);
    }
    if std::env::args().any(|argument| argument == bpf::HOLDER_ARGUMENT) {
        return bpf::run_holder();
    }
    let mut arguments = Arguments::from_args();
    // Run tests on the main thread: namespaces are per thread.
    arguments.test_threads = Some(1);
    let trials = TESTS.map(|(name, test)| {
        let run = move || test().map_err(|error| Failed::from(format!("{error:?}")));
        Trial::test(name, run).with_ignored_flag(is_unsupported)
    });
    libtest_mimic::run(&arguments, trials.into()).exit()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("testbed tests SKIPPED: network namespaces require Linux");
}

#[cfg(target_os = "linux")]
type Test = fn() -> anyhow::Result<()>;

#[cfg(target_os = "linux")]
const TESTS: [(&str, Test); 29] = [
    ("nothing_is_faster_than_the_link", tcp::nothing_is_faster_than_the_link),
    ("an_outage_waits_for_the_run", links::an_outage_waits_for_the_run),
    ("a_full_queue_drops_and_TCP_recovers", tcp::a_full_queue_drops_and_tcp_recovers),
    ("access_networks_police_and_thin", tcp::access_networks_police_and_thin),
    ("each_host_has_its_own_settings", tcp::each_host_has_its_own_settings),
    ("an_unknown_congestion_control_is_named", tcp::an_unknown_congestion_control_is_named),
    (
        "connections_have_the_congestion_control_of_their_address",
        tcp::connections_have_the_congestion_control_of_their_address,
    ),
    ("testbeds_do_not_see_each_other", tcp::testbeds_do_not_see_each_other),
    ("nothing_is_left_behind", tcp::nothing_is_left_behind),
    ("links_are_independent", links::links_are_independent),
    ("all_links_lead_to_one_address", paths::all_links_lead_to_one_address),
    ("a_link_goes_down_and_comes_back", paths::a_link_goes_down_and_comes_back),
    ("MPTCP_uses_both_links", paths::mptcp_uses_both_links),
    ("a_log_agrees_with_the_counters", links::a_log_agrees_with_the_counters),
    ("packets_are_captured_at_both_ends", links::packets_are_captured_at_both_ends),
    ("packets_respect_the_links_MTU", links::packets_respect_the_links_mtu),
    ("an_invalid_link_is_refused", links::an_invalid_link_is_refused),
    ("a_link_is_measured", links::a_link_is_measured),
    (
        "a_policer_and_a_trace_do_not_hide_the_wire",
        links::a_policer_and_a_trace_do_not_hide_the_wire,
    ),
    ("a_varying_link_is_compared_with_its_model", links::a_varying_link_is_compared_with_its_model),
    (
        "a_program_is_inside_and_dies_with_its_handle",
        removal::a_program_is_inside_and_dies_with_its_handle,
    ),
    ("a_programs_end_is_reported", removal::a_programs_end_is_reported),
    ("nothing_survives_the_process", removal::nothing_survives_the_process),
    (
        "one_connection_is_paced_only_where_configured",
        paced::one_connection_is_paced_only_where_configured,
    ),
    ("YeAH_drains_its_queue_before_it_overflows", bpf::yeah_drains_its_queue_before_it_overflows),
    ("Illinois_fills_the_queue", bpf::illinois_fills_the_queue),
    ("windows_grow_after_a_loss", bpf::windows_grow_after_a_loss),
    (
        "a_congestion_control_is_removed_whatever_is_killed",
        bpf::a_congestion_control_is_removed_whatever_is_killed,
    ),
    ("HyStart_is_restored_whatever_is_killed", hystart::hystart_is_restored_whatever_is_killed),
];
