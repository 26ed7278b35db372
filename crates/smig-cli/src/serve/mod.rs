//! `smig serve`: a directory of files over HTTP/2 and HTTP/1.1.

mod listen;
mod logged;
pub(crate) mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use smig::{Server, ServerBuilder, ServerTls};
use smig_admin::access_log::{AccessLog, Format};
use smig_files::Files;

use crate::dev_cert::{self, DevCert, Freshness};
use crate::exit::{Exit, Failure};
use crate::open_files::OpenFiles;
use crate::paint;
use crate::settings::{self, Flags, ListenSecurity, Settings};
use crate::stderr;
use logged::Logged;

/// Serve a directory of files
#[derive(Debug, Args)]
#[command(
    long_about = "Serve a directory of files over HTTP/2 and HTTP/1.1.\n\nFor clients that support \
        SMig, large files migrate to a separate connection while they are being sent, so that small \
        files are not delayed. Other clients get plain HTTP.\n\nWithout --cert and --key, a \
        development certificate authority and a certificate for localhost are created on first use \
        and stored in $XDG_DATA_HOME/smig (~/.local/share/smig).\n\n-h shows common options, \
        --help all.",
    after_help = "\
Examples:
  smig serve ./public
  smig serve ./public --listen [::]:443 --cert fullchain.pem --key privkey.pem
  smig serve ./public --listing on --access-log --host files.local
  smig serve ./public --listen 127.0.0.1:8080 --cleartext
  smig serve --config smig.toml               (smig config example > smig.toml)

SIGTERM or SIGINT shuts the server down gracefully: running transfers finish. A second signal stops
it at once."
)]
pub(crate) struct ServeArgs {
    /// The directory to serve
    dir: Option<PathBuf>,
    /// Read settings from this file; flags take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Verbosity of the messages on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verbosity {
    Quiet,
    Normal,
}

impl Verbosity {
    fn say(self, text: &str) {
        if self == Self::Normal {
            stderr::say(text);
        }
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let voice = if args.quiet { Verbosity::Quiet } else { Verbosity::Normal };
    let _apart = stderr::apart();
    crate::trace::start(crate::trace::Level::Warnings);
    let settings = settings(args).map_err(|why| Failure::new(Exit::Usage, why))?;
    let open_files = OpenFiles::raise();
    let folder = settings.root.clone().ok_or_else(|| {
        Failure::new(Exit::Usage, "no directory to serve; write smig serve DIR, or set server.root")
    })?;
    let files = open(&folder, &settings)?;
    // Installed before other threads start, so that no signal during startup is lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = AccessLog::new(settings.access_log, None)?;
    let ended = runtime.block_on(async {
        let mut signals = stop::Signals::new()?;
        let server = start(&settings, files, Arc::clone(&log), voice)?;
        voice.say(&paint::faint(&open_files.report(settings.max_connections, 1)));
        announce(&server, &settings, &folder, voice);
        signals.drain(server, &log, settings.drain_timeout, voice).await
    });
    // A thread that still blocks ends with the process.
    runtime.shutdown_background();
    ended
}

fn settings(args: &ServeArgs) -> Result<Settings, String> {
    let mut settings = Settings::default();
    if let Some(file) = &args.config {
        settings::load(file, &mut settings)?;
    }
    args.flags.apply(&mut settings)?;
    if let Some(dir) = &args.dir {
        settings.root = Some(dir.clone());
    }
    Ok(settings)
}

fn open(folder: &Path, settings: &Settings) -> Result<Files> {
    Files::new(folder, settings.files.clone()).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "; does it exist?",
            std::io::ErrorKind::NotADirectory => "; name a directory, not a file",
            std::io::ErrorKind::PermissionDenied => "; check its permissions",
            _ => "",
        };
        Failure::new(Exit::Usage, format!("{error}{hint}")).into()
    })
}

fn start(
    settings: &Settings,
    files: Files,
    log: Arc<AccessLog>,
    voice: Verbosity,
) -> Result<Server> {
    let builder = listen(settings.builder(), settings, voice)?;
    let server = match settings.access_log {
        Format::Off => builder.start(files),
        Format::Text | Format::Combined | Format::Json => builder.start(Logged::new(files, log)),
    };
    server.map_err(|error| Failure::new(Exit::Usage, error.to_string()).into())
}

fn listen(
    mut builder: ServerBuilder,
    settings: &Settings,
    voice: Verbosity,
) -> Result<ServerBuilder> {
    let addrs = listen::addresses(&settings.listen)?;
    match settings.wire {
        ListenSecurity::Tls => {
            let tls = tls(settings, voice)?;
            for addr in addrs {
                builder = builder.listen(addr, tls.clone());
            }
        }
        ListenSecurity::Cleartext => {
            for addr in addrs {
                builder = builder.listen_cleartext(addr, smig::CleartextTrust::None);
            }
        }
        ListenSecurity::TrustedCleartext => {
            for addr in addrs {
                builder = builder.listen_cleartext(addr, smig::CleartextTrust::TrustedNetwork);
            }
        }
    }
    Ok(builder)
}

fn tls(settings: &Settings, voice: Verbosity) -> Result<ServerTls> {
    match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => from_files(certificate, key),
        (Some(_), None) => Err(usage("--cert requires --key, the certificate's private key")),
        (None, Some(_)) => Err(usage("--key requires --cert, the certificate of the key")),
        (None, None) => {
            let made = dev_cert::obtain(&settings.hosts)?;
            introduce(&made, voice);
            ServerTls::from_pem(&made.certificate, &made.key)
                .context("the development certificate is damaged; delete its directory")
        }
    }
}

fn from_files(certificate: &Path, key: &Path) -> Result<ServerTls> {
    let read = |path: &Path, what: &str| {
        std::fs::read(path)
            .map_err(|error| usage(&format!("cannot read {what} {}: {error}", path.display())))
    };
    let chain = read(certificate, "the certificate")?;
    let secret = read(key, "the private key")?;
    ServerTls::from_pem(&chain, &secret).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        let error = error.to_string();
        // Replaces rustls's own wording.
        if error.contains("KeyMismatch") || error.contains("keys may not be consistent") {
            usage(&format!("the key {key} does not belong to the certificate {certificate}"))
        } else {
            usage(&format!("--cert {certificate} --key {key}: {error}"))
        }
    })
}

fn usage(message: &str) -> anyhow::Error {
    Failure::new(Exit::Usage, message).into()
}

fn introduce(made: &DevCert, voice: Verbosity) {
    let path = made.authority.display();
    match made.freshness {
        Freshness::New => voice.say(&format!(
            "created a development certificate authority for this machine: {path}\n\
             \x20 `smig get` trusts it for localhost; for other clients: curl --cacert {path}"
        )),
        Freshness::Old => voice
            .say(&paint::faint(&format!("development certificate; for clients: --cacert {path}"))),
    }
}

fn announce(server: &Server, settings: &Settings, folder: &Path, voice: Verbosity) {
    let scheme = match settings.wire {
        ListenSecurity::Tls => "https",
        ListenSecurity::Cleartext | ListenSecurity::TrustedCleartext => "http",
    };
    voice.say(&paint::faint(&format!("serving {}", folder.display())));
    for addr in server.local_addrs() {
        voice.say(&format!("listening on {}", paint::strong(&format!("{scheme}://{addr}"))));
    }
}
