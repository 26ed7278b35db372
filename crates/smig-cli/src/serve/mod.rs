//! `smig serve`: a directory of files over HTTP/2 and HTTP/1.1.

mod listen;
mod logged;
pub(crate) mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use smig::{RequestExtensions, Server, ServerBuilder, ServerTls};
use smig_admin::access_log::{AccessLog, AccessLogFormat};
use smig_files::{FileBody, Files};

use crate::dev_cert::{self, AuthorityState, DevCert};
use crate::exit::{CliError, Exit};
use crate::open_files::OpenFilesLimit;
use crate::paint;
use crate::settings::{self, Flags, ListenSecurity, Settings};
use crate::stderr;
use logged::LoggedFiles;

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
    fn print_line(self, text: &str) {
        if self == Self::Normal {
            stderr::print_line(text);
        }
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let verbosity = if args.quiet { Verbosity::Quiet } else { Verbosity::Normal };
    let _stderr_guard = stderr::spawn_writer();
    crate::logging::start(match verbosity {
        Verbosity::Quiet => crate::logging::Level::Errors,
        Verbosity::Normal => crate::logging::Level::Warnings,
    });
    let settings = load_settings(args).map_err(|why| CliError::new(Exit::Usage, why))?;
    let open_files = OpenFilesLimit::raise();
    let root = settings.root.clone().ok_or_else(|| {
        CliError::new(
            Exit::Usage,
            "no directory to serve; write smig serve DIR, or set server.root",
        )
    })?;
    let files = open_root(&root, &settings)?;
    // Signal handlers are installed before the server starts. A signal before that ends the process.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = AccessLog::new(settings.access_log, None)?;
    let result = runtime.block_on(async {
        let mut signals = stop::StopSignals::new()?;
        let server = start(&settings, files, Arc::clone(&log), verbosity)?;
        verbosity.print_line(&paint::STDERR.dim(&open_files.describe(settings.max_connections, 1)));
        print_listeners(&server, &settings, &root, verbosity);
        signals.run_until_drained(server, &log, settings.drain_timeout, verbosity).await
    });
    // Threads that are still blocked end with the process.
    runtime.shutdown_background();
    result
}

fn load_settings(args: &ServeArgs) -> Result<Settings, String> {
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

fn open_root(root: &Path, settings: &Settings) -> Result<Files> {
    let files = Files::new(root, settings.files.clone()).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "; does it exist?",
            std::io::ErrorKind::NotADirectory => "; name a directory, not a file",
            std::io::ErrorKind::PermissionDenied => "; check its permissions",
            _ => "",
        };
        CliError::new(Exit::Usage, format!("{error}{hint}"))
    })?;
    Ok(files.with_clock(smig::turn_time))
}

fn start(
    settings: &Settings,
    files: Files,
    log: Arc<AccessLog>,
    verbosity: Verbosity,
) -> Result<Server> {
    let builder = add_listeners(settings.builder(), settings, verbosity)?;
    let server = match settings.access_log {
        AccessLogFormat::Off => {
            let builder = builder.shared_headers(FileBody::shared_headers);
            builder
                .request_extensions(RequestExtensions::Protocol)
                .start(files.with_shared_headers())
        }
        AccessLogFormat::Text | AccessLogFormat::Combined | AccessLogFormat::Json => {
            builder.start(LoggedFiles::new(files, log))
        }
    };
    server.map_err(|error| CliError::new(Exit::Usage, error.to_string()).into())
}

fn add_listeners(
    mut builder: ServerBuilder,
    settings: &Settings,
    verbosity: Verbosity,
) -> Result<ServerBuilder> {
    let addrs = listen::resolve_free_addresses(&settings.listen)?;
    match settings.security {
        ListenSecurity::Tls => {
            let tls = load_or_create_tls(settings, verbosity)?;
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

fn load_or_create_tls(settings: &Settings, verbosity: Verbosity) -> Result<ServerTls> {
    match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => tls_from_files(certificate, key),
        (Some(_), None) => Err(usage_error("--cert requires --key, the certificate's private key")),
        (None, Some(_)) => Err(usage_error("--key requires --cert, the certificate of the key")),
        (None, None) => {
            let cert = dev_cert::obtain(&settings.hosts)?;
            print_dev_cert(&cert, verbosity);
            ServerTls::from_pem(&cert.certificate, &cert.key)
                .context("the development certificate is damaged; delete its directory")
        }
    }
}

fn tls_from_files(certificate: &Path, key: &Path) -> Result<ServerTls> {
    let read = |path: &Path, what: &str| {
        std::fs::read(path).map_err(|error| {
            usage_error(&format!("cannot read {what} {}: {error}", path.display()))
        })
    };
    let chain = read(certificate, "the certificate")?;
    let private_key = read(key, "the private key")?;
    ServerTls::from_pem(&chain, &private_key).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        let error = error.to_string();
        // Replaces rustls's own wording.
        if error.contains("KeyMismatch") || error.contains("keys may not be consistent") {
            usage_error(&format!("the key {key} does not belong to the certificate {certificate}"))
        } else {
            usage_error(&format!("--cert {certificate} --key {key}: {error}"))
        }
    })
}

fn usage_error(message: &str) -> anyhow::Error {
    CliError::new(Exit::Usage, message).into()
}

fn print_dev_cert(cert: &DevCert, verbosity: Verbosity) {
    let path = cert.authority_path.display();
    match cert.authority_state {
        AuthorityState::Created => verbosity.print_line(&format!(
            "created a development certificate authority for this machine: {path}\n\
             \x20 `smig get` trusts it for localhost; for other clients: curl --cacert {path}"
        )),
        AuthorityState::Existing => verbosity.print_line(
            &paint::STDERR.dim(&format!("development certificate; for clients: --cacert {path}")),
        ),
    }
}

fn print_listeners(server: &Server, settings: &Settings, root: &Path, verbosity: Verbosity) {
    let scheme = match settings.security {
        ListenSecurity::Tls => "https",
        ListenSecurity::Cleartext | ListenSecurity::TrustedCleartext => "http",
    };
    verbosity.print_line(&paint::STDERR.dim(&format!("serving {}", root.display())));
    for addr in server.local_addrs() {
        verbosity.print_line(&format!(
            "listening on {}",
            paint::STDERR.bold(&format!("{scheme}://{addr}"))
        ));
    }
}
