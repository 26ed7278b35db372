//! A short demonstration over real namespaces, with `harness = false` for the same reason as the
//! testbed's test: a user namespace can only be created before the process has a second thread.
//!
//! Checks what is recorded, not how fast it was. Ignored, with the reason, where this machine
//! forbids namespaces or has no TUN device.

fn main() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    return linux::run();
    #[cfg(not(target_os = "linux"))]
    {
        println!("skipped: namespaces require Linux");
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use anyhow::{Context as _, Result, ensure};
    use libtest_mimic::{Arguments, Failed, Trial};
    use smig_demo::browser::{self, BrowserEvent, BrowserOptions, BrowserVariant, Route};
    use smig_demo::demo::{
        DemoError, DemoEvent, DemoOptions, DemoRecorder, DemoResult, DemoRun, Variant, drive,
        render_html, render_json,
    };
    use smig_lab::trial::{Build, Programs};
    use smig_link::{LinkSpec, QueueLimit, Rate};
    use smig_testbed::netns::{Privilege, Testbed, enter_user_namespace};
    use tokio_util::sync::CancellationToken;

    type Test = fn(Privilege) -> Result<()>;

    const TESTS: [(&str, Test); 4] = [
        ("a_browser_that_does_not_start_is_reported", a_browser_that_does_not_start_is_reported),
        ("all_runs_are_recorded", all_runs_are_recorded),
        ("it_stops_when_cancelled", it_stops_when_cancelled),
        ("it_stops_when_output_fails", it_stops_when_output_fails),
    ];

    pub(super) fn run() -> Result<()> {
        let setup_result = enter_user_namespace().and_then(|privilege| {
            Testbed::start(LinkSpec::paper_wired())?;
            Ok(privilege)
        });
        let (privilege, is_forbidden) = match setup_result {
            Err(why) if why.is_missing_requirement() => {
                eprintln!("the demo's tests are ignored: {why}");
                (Privilege::UserNamespace, true)
            }
            other => (other?, false),
        };
        let mut arguments = Arguments::from_args();
        // Run tests on the main thread: namespaces are per thread.
        arguments.test_threads = Some(1);
        let tests = TESTS.map(|(name, test)| {
            let run = move || test(privilege).map_err(|error| Failed::from(format!("{error:?}")));
            Trial::test(name, run).with_ignored_flag(is_forbidden)
        });
        libtest_mimic::run(&arguments, tests.into()).exit()
    }

    fn programs() -> Result<Programs> {
        let smig = env!("CARGO_BIN_EXE_smig").into();
        let build = Build::of(env!("CARGO_BIN_EXE_smig").as_ref(), None)?;
        Ok(Programs::only_smig(smig, build, "a test"))
    }

    /// The big file is large enough for the policy to migrate it, and small enough for a test.
    fn short_demo() -> DemoOptions {
        let mut options = DemoOptions::default();
        let (rate, round_trip) = (Rate::mbit(10), Duration::from_millis(20));
        options.link = LinkSpec::symmetric(rate, round_trip, QueueLimit::packets(75));
        options.object_interval = Duration::from_millis(100);
        options.unloaded_objects = 3;
        options.big_file_bytes = 1_500_000;
        options
    }

    fn all_runs_are_recorded(privilege: Privilege) -> Result<()> {
        let options = short_demo();
        let mut recorder = DemoRecorder::new(options.setup("a test"));
        // Fails if an object's bytes are wrong.
        drive(&options, programs()?, privilege, &CancellationToken::default(), &mut |event| {
            recorder.apply(event);
            Ok(())
        })?;
        let result = recorder.finish();
        let variants: Vec<_> = result.runs.iter().map(|run| run.variant).collect();
        ensure!(variants == Variant::ALL, "{variants:?}");
        for run in &result.runs {
            check_complete(run, &options).with_context(|| run.variant.to_string())?;
        }
        check_migration(&result.runs[3]).context("SMig")?;
        for run in &result.runs[..3] {
            ensure!(run.migrations.is_empty(), "{} migrated", run.variant);
            ensure!(run.connections.len() == 1, "{}: {:?}", run.variant, run.connections);
        }
        check_outputs(&result)?;
        Ok(())
    }

    fn check_complete(run: &DemoRun, options: &DemoOptions) -> Result<()> {
        let during_download = run.objects.iter().filter(|object| {
            object.load == smig_demo::demo::BackgroundLoad::BigFile && !object.duration.is_zero()
        });
        ensure!(during_download.count() > 0, "no small object beside the big file");
        ensure!(run.objects.len() > 3, "{} small objects", run.objects.len());
        ensure!(run.big_file_bytes() == options.big_file_bytes, "{} bytes", run.big_file_bytes());
        let big_file_time = run.big_file_duration().context("the big file has no end")?;
        let min_time = Duration::from_secs_f64(options.big_file_bytes as f64 * 8.0 / 10e6);
        ensure!(
            big_file_time >= min_time,
            "the big file took {big_file_time:?}, the link needs {min_time:?}"
        );
        let total_bytes: u64 = run.connections.iter().map(|connection| connection.bytes).sum();
        ensure!(total_bytes > options.big_file_bytes, "{total_bytes} bytes on all connections");
        let link = run.link.context("no report of the link")?;
        ensure!(link.to_client.delivered_bytes > total_bytes, "{link:?}");
        Ok(())
    }

    fn check_migration(run: &DemoRun) -> Result<()> {
        let first_migration = run.migrations.first().context("the big file never migrated")?;
        ensure!(first_migration.from != first_migration.to, "{first_migration:?}");
        ensure!(run.connections.len() >= 2, "{:?}", run.connections);
        let destination =
            run.connections.iter().find(|bytes| bytes.connection == first_migration.to);
        ensure!(destination.is_some_and(|bytes| bytes.bytes > 0), "{:?}", run.connections);
        Ok(())
    }

    fn check_outputs(result: &DemoResult) -> Result<()> {
        let json: serde_json::Value = serde_json::from_str(&render_json(result))?;
        ensure!(
            json["summary"][3]["migrations"].as_u64().is_some_and(|migrations| migrations > 0),
            "{json}"
        );
        ensure!(json["setup"]["program"] == "a test", "{json}");
        ensure!(render_html(result).contains("moved the big file to a connection of its own"));
        Ok(())
    }

    fn it_stops_when_cancelled(privilege: Privilege) -> Result<()> {
        let (mut options, stop) = (short_demo(), CancellationToken::default());
        // Without the stop it would take hours.
        options.big_file_bytes = 3_000_000;
        options.link.to_client.rate = Rate::kbit(1).into();
        options.link.to_server.rate = Rate::mbit(1).into();
        options.unloaded_objects = 0;
        let result = drive(&options, programs()?, privilege, &stop, &mut |event| {
            if matches!(event, DemoEvent::RunStarted(_)) {
                stop.cancel();
            }
            Ok(())
        });
        ensure!(matches!(result, Err(DemoError::Stopped)), "{result:?}");
        Ok(())
    }

    fn a_browser_that_does_not_start_is_reported(privilege: Privilege) -> Result<()> {
        let smig = env!("CARGO_BIN_EXE_smig").as_ref();
        let browser = Some("/bin/false".into());
        let options = BrowserOptions { browser, ..BrowserOptions::new(smig, Route::Direct) };
        let build = Build::of(smig, None)?;
        let mut started = Vec::new();
        let ended = browser::drive(
            &options,
            build,
            privilege,
            &CancellationToken::default(),
            &mut |event| {
                if let BrowserEvent::RunStarted(variant) = event {
                    started.push(*variant);
                }
                Ok(())
            },
        );
        let error = ended.map(drop).unwrap_err().to_string();
        ensure!(error.contains("browser"), "{error}");
        ensure!(started == [BrowserVariant::PlainHttp2], "{started:?}");
        Ok(())
    }

    fn it_stops_when_output_fails(privilege: Privilege) -> Result<()> {
        let result = drive(
            &short_demo(),
            programs()?,
            privilege,
            &CancellationToken::default(),
            &mut |event| match event {
                DemoEvent::Object(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
                _ => Ok(()),
            },
        );
        ensure!(matches!(result, Err(DemoError::Io(_))), "{result:?}");
        Ok(())
    }
}
