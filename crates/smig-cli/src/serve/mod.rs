//! `smig serve`: a folder of files by HTTP/2 and HTTP/1.1.

mod listen;
mod logged;
pub(crate) mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use smig::{Server, ServerBuilder, ServerTls};
use smig_files::Files;
use smig_gateway::front::access_log::{AccessLog, Format};

use crate::dev_cert::{self, DevCert, Freshness};
use crate::exit::{Exit, Failure};
use crate::open_files::OpenFiles;
use crate::paint;
use crate::settings::{self, Flags, Settings, Wire};
use crate::stderr;
use logged::Logged;

/// Serve a folder of files
#[derive(Debug, Args)]
#[command(
    long_about = "Serve a folder of files by HTTP/2 and HTTP/1.1.\n\nClients that speak SMig get \
        big files moved to a connection of their own while they run, so that small ones are not \
        delayed; all others get plain HTTP.\n\nWithout --cert and --key a development authority \
        and a certificate for localhost are made on first use and kept in \
        $XDG_DATA_HOME/smig (~/.local/share/smig).\n\n-h shows the usual options, --help all.",
    after_help = "\
Examples:
  smig serve ./public
  smig serve ./public --listen [::]:443 --cert fullchain.pem --key privkey.pem
  smig serve ./public --listing on --access-log --host files.local
  smig serve ./public --listen 127.0.0.1:8080 --cleartext
  smig serve --config smig.toml               (smig config example > smig.toml)

SIGTERM or SIGINT ends it gracefully: running transfers finish; a second signal ends it at once."
)]
pub(crate) struct ServeArgs {
    /// The folder
    dir: Option<PathBuf>,
    /// Read settings from this file; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Words for people, on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Quiet,
    Normal,
}

impl Voice {
    fn say(self, text: &str) {
        if self == Self::Normal {
            stderr::say(text);
        }
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let voice = if args.quiet { Voice::Quiet } else { Voice::Normal };
    let _apart = stderr::apart();
    crate::trace::start(crate::trace::Level::Warnings);
    let settings = settings(args).map_err(|why| Failure::new(Exit::Usage, why))?;
    let open_files = OpenFiles::raise();
    let folder = settings.root.clone().ok_or_else(|| {
        Failure::new(Exit::Usage, "which folder? Write smig serve DIR, or root in the file")
    })?;
    let files = open(&folder, &settings)?;
    // Before threads: signals that come while it starts are not lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = AccessLog::new(settings.access_log, None)?;
    let ended = runtime.block_on(async {
        let mut signals = stop::Signals::new()?;
        let server = start(&settings, files, Arc::clone(&log), voice)?;
        voice.say(&paint::faint(&open_files.report(settings.max_connections, 1)));
        announce(&server, &settings, &folder, voice);
        signals.drain(server, &log, settings.drain_timeout, voice).await
    });
    // Whatever still blocks a thread ends with the process.
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
            std::io::ErrorKind::NotADirectory => "; name a folder, not a file",
            std::io::ErrorKind::PermissionDenied => "; may this user read it?",
            _ => "",
        };
        Failure::new(Exit::Usage, format!("{error}{hint}")).into()
    })
}

fn start(settings: &Settings, files: Files, log: Arc<AccessLog>, voice: Voice) -> Result<Server> {
    let builder = listen(settings.builder(), settings, voice)?;
    let server = match settings.access_log {
        Format::Off => builder.start(files),
        Format::Text | Format::Combined | Format::Json => builder.start(Logged::new(files, log)),
    };
    server.map_err(|error| Failure::new(Exit::Usage, error.to_string()).into())
}

fn listen(mut builder: ServerBuilder, settings: &Settings, voice: Voice) -> Result<ServerBuilder> {
    let addrs = listen::addresses(&settings.listen)?;
    match settings.wire {
        Wire::Tls => {
            let tls = tls(settings, voice)?;
            for addr in addrs {
                builder = builder.listen(addr, tls.clone());
            }
        }
        Wire::Cleartext => {
            for addr in addrs {
                builder = builder.listen_cleartext(addr, smig::ClearTrust::None);
            }
        }
        Wire::TrustedCleartext => {
            for addr in addrs {
                builder = builder.listen_cleartext(addr, smig::ClearTrust::TrustedNetwork);
            }
        }
    }
    Ok(builder)
}

fn tls(settings: &Settings, voice: Voice) -> Result<ServerTls> {
    match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => from_files(certificate, key),
        (Some(_), None) => Err(usage("--cert needs --key: name the certificate's private key too")),
        (None, Some(_)) => Err(usage("--key needs --cert: name the key's certificate too")),
        (None, None) => {
            let made = dev_cert::obtain(&settings.hosts)?;
            introduce(&made, voice);
            ServerTls::from_pem(&made.certificate, &made.key)
                .context("the development certificate is damaged; delete its folder")
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
        // rustls says it in its own words.
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

fn introduce(made: &DevCert, voice: Voice) {
    let path = made.authority.display();
    match made.freshness {
        Freshness::New => voice.say(&format!(
            "made a development authority, good for this machine: {path}\n\
             \x20 `smig get` trusts it for localhost; others must be told: curl --cacert {path}"
        )),
        Freshness::Old => voice
            .say(&paint::faint(&format!("development certificate; for clients: --cacert {path}"))),
    }
}

fn announce(server: &Server, settings: &Settings, folder: &Path, voice: Voice) {
    let scheme = match settings.wire {
        Wire::Tls => "https",
        Wire::Cleartext | Wire::TrustedCleartext => "http",
    };
    voice.say(&paint::faint(&format!("serving {}", folder.display())));
    for addr in server.local_addrs() {
        voice.say(&format!("listening on {}", paint::strong(&format!("{scheme}://{addr}"))));
    }
}
