//! The browser's process: starts it inside a host, and connects to its debugging pipe.

use std::fs::File;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};

use serde_json::json;
use smig_testbed::netns::Child;
use tokio_util::sync::CancellationToken;

use crate::devtools::DevTools;
use crate::error::BrowserError;

/// Names of the programs that are such a browser.
pub const PROGRAM_NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Size of a window, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
}

/// A running browser. It and its child processes are killed on drop.
#[derive(Debug)]
pub struct Browser {
    /// What controls it.
    pub devtools: DevTools<ChildStdin>,
    /// Name and version, as the browser reports them.
    pub name: String,
    /// The log of its sockets.
    pub socket_log: Option<PathBuf>,
    _process: Child,
}

/// The parameters of a browser process.
#[derive(Debug)]
pub struct BrowserLaunch {
    /// Its path.
    pub program: PathBuf,
    /// The SHA-256 of the key that is trusted with any certificate, in base64; several with commas between them.
    pub trusted_key_sha256: String,
    /// Its home directory, which contains everything that it writes.
    pub home: PathBuf,
    /// Size of its first window.
    pub window: WindowSize,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    /// Where names lead, as Chromium's `--host-resolver-rules` has them; as the system says if absent.
    pub resolver_rules: Option<String>,
    /// Whether it logs its sockets, for [`local_addresses`](crate::local_addresses).
    pub logs_sockets: bool,
    /// Whether its processes are confined, as strangers' pages require. Not available to root.
    pub sandbox: bool,
    /// Who waits for the browser fails soon after this is cancelled.
    pub stop: CancellationToken,
}

impl BrowserLaunch {
    /// Starts the browser in the calling thread's host, headless. The proxy is a URL.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn start(&self, proxy_url: Option<&str>) -> Result<Browser, BrowserError> {
        let mut command = Command::new("/bin/sh");
        // It reads commands from descriptor 3 and responds on 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"]);
        command.arg(&self.program).args(self.arguments(proxy_url));
        command.env("HOME", &self.home).env("TMPDIR", &self.home);
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME");
        let log = File::create(self.home.join("browser.log"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = Child::spawn_in_current_namespace(command, || ())?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(BrowserError::Browser("no pipes to the process".into()));
        };
        let mut devtools = DevTools::new(stdin, stdout, self.stop.clone())?;
        let version = devtools.call("", "Browser.getVersion", json!({}))?;
        let name = version["product"].as_str().unwrap_or("unknown").replace('/', " ");
        Ok(Browser { devtools, name, socket_log: self.socket_log(), _process: process })
    }

    fn socket_log(&self) -> Option<PathBuf> {
        self.logs_sockets.then(|| self.home.join("net-log.json"))
    }

    fn arguments(&self, proxy_url: Option<&str>) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "--headless",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            // No background traffic of its own may cross the link.
            "--no-first-run",
            "--no-default-browser-check",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-domain-reliability",
            "--disable-extensions",
            "--disable-sync",
            "--disable-quic",
            "--disable-features=MediaRouter,OptimizationHints,Translate",
        ]
        .map(str::to_owned)
        .to_vec();
        match proxy_url {
            Some(proxy_url) => arguments.extend([
                format!("--proxy-server={proxy_url}"),
                // Loopback addresses go through the proxy too.
                "--proxy-bypass-list=<-loopback>".to_owned(),
            ]),
            None => arguments.push("--no-proxy-server".to_owned()),
        }
        if let Some(path) = self.socket_log() {
            arguments.push(format!("--log-net-log={}", path.display()));
        }
        if let Some(rules) = &self.resolver_rules {
            arguments.push(format!("--host-resolver-rules={rules}"));
        }
        if !self.sandbox {
            arguments.push("--no-sandbox".to_owned());
        }
        if !self.http2 {
            arguments.push("--disable-http2".to_owned());
        }
        arguments.extend([
            format!("--ignore-certificate-errors-spki-list={}", self.trusted_key_sha256),
            format!("--user-data-dir={}", self.home.join("profile").display()),
            format!("--window-size={},{}", self.window.width, self.window.height),
            "about:blank".to_owned(),
        ]);
        arguments
    }
}
