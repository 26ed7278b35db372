//! Initial conditions of a sequence: the ends' configurations and the transport's buffer size.

use core::time::Duration;

use smig_proto::{BulkPolicy, Config, Push, ResumptionConfig, Security};

use crate::mesh::rng::Rng;

/// The initial conditions of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Determines AppID, nonces and secrets, and the order of deliveries while the mesh settles.
    pub seed: u64,
    /// The security of the connections.
    pub security: Security,
    /// The client's receive window per stream.
    pub client_window: u32,
    /// The server's receive window per stream.
    pub server_window: u32,
    /// Both ends' receive window per connection.
    pub connection_window: u32,
    /// A stream's send buffer.
    pub send_buffer: u32,
    /// Capacity of each direction of a connection.
    pub pipe_capacity: u32,
    /// SETTINGS_SMIG of the client; 0: the extension is off.
    pub client_max_open_migrations: u32,
    /// SETTINGS_SMIG of the server; 0: the extension is off.
    pub server_max_open_migrations: u32,
    /// SETTINGS_MAX_FRAME_SIZE of both ends.
    pub max_frame_size: u32,
    /// Framed, unsent bytes of a connection, without requests, above which an end stops reading it.
    pub max_buffered_output: u32,
    /// Migrations of a stream that the client initiates or accepts.
    pub client_max_migrations: u8,
    /// Migrations of a stream that the server initiates or accepts.
    pub server_max_migrations: u8,
    /// Data that a mover sends on a carrier before the answer.
    pub replay_limit: u32,
    /// Seconds for which a carrier may stay unbound; a mover waits three times as long for an
    /// answer.
    pub unbound_timeout_s: u8,
    /// Maximum number of concurrent streams, at the server and for pushes.
    pub max_streams: u32,
    /// Whether the client accepts pushes.
    pub push: Push,
    /// Length from which a body is bulk. Twice as much for an urgent stream; a body of unknown length, or a
    /// tunnel, is bulk after half of it without a pause.
    pub bulk_min_size: u32,
    /// SETTINGS_SMIG_RESUME of both ends, in seconds; 0: resumption is off.
    pub linger_s: u8,
    /// Bytes that each end keeps of a stream, to send them again.
    pub max_kept: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Setup {
    /// Ordinary conditions.
    pub const DEFAULT: Self = Self {
        seed: 1,
        security: Security::Tls13,
        client_window: 65_535,
        server_window: 65_535,
        connection_window: 1 << 20,
        send_buffer: 16 << 10,
        pipe_capacity: 64 << 10,
        client_max_open_migrations: 16,
        server_max_open_migrations: 16,
        max_frame_size: 16_384,
        max_buffered_output: 256 << 10,
        client_max_migrations: 4,
        server_max_migrations: 4,
        replay_limit: 1 << 20,
        unbound_timeout_s: 10,
        max_streams: 100,
        push: Push::Enabled,
        bulk_min_size: 256 << 10,
        linger_s: 0,
        max_kept: 4 << 20,
    };

    /// Returns random initial conditions.
    pub fn random(rng: &mut Rng) -> Self {
        let windows = [700, 3000, 10_000, 65_535, 65_535, 200_000];
        let open_migration_limits: Vec<u32> =
            (0..20).map(|n| if n < 17 { 16 } else { n - 17 }).collect();
        Self {
            seed: rng.bits(),
            security: rng.pick(&[
                Security::Tls13,
                Security::Tls13,
                Security::Tls13,
                Security::Tls13,
                Security::TrustedCleartext,
                Security::Ineligible,
            ]),
            client_window: rng.pick(&windows),
            server_window: rng.pick(&windows),
            connection_window: rng.pick(&[65_535, 65_535, 300_000, 1 << 20]),
            send_buffer: rng.pick(&[500, 5000, 16 << 10, 64 << 10]),
            pipe_capacity: rng.pick(&[300, 3000, 20_000, 100_000]),
            client_max_open_migrations: rng.pick(&open_migration_limits),
            server_max_open_migrations: rng.pick(&open_migration_limits),
            max_frame_size: rng.pick(&[16_384, 16_384, 50_000]),
            max_buffered_output: rng.pick(&[500, 256 << 10, 256 << 10]),
            client_max_migrations: rng.pick(&[0, 1, 4, 200, 200, 200]),
            server_max_migrations: rng.pick(&[0, 1, 4, 200, 200, 200]),
            replay_limit: rng.pick(&[1, 2000, 1 << 20, 1 << 20]),
            unbound_timeout_s: rng.pick(&[10, 10, 10, 1]),
            max_streams: rng.pick(&[2, 100, 100, 100]),
            push: rng.pick(&[Push::Enabled, Push::Enabled, Push::Disabled]),
            bulk_min_size: rng.pick(&[0, 2000, 20_000, 256 << 10]),
            linger_s: rng.pick(&[0, 30]),
            max_kept: 4 << 20,
        }
    }

    /// Returns how long a mover waits for an answer.
    pub(crate) fn answer_timeout(&self) -> Duration {
        3 * Duration::from_secs(self.unbound_timeout_s.into())
    }

    pub(crate) fn client_config(&self) -> Config {
        let config = Config { stream_window: self.client_window, ..Config::client() };
        self.config(config, self.client_max_open_migrations, self.client_max_migrations)
    }

    pub(crate) fn server_config(&self) -> Config {
        let config = Config { stream_window: self.server_window, ..Config::server() };
        self.config(config, self.server_max_open_migrations, self.server_max_migrations)
    }

    fn config(&self, mut config: Config, max_open_migrations: u32, max_migrations: u8) -> Config {
        config.max_frame_size = self.max_frame_size;
        config.limits.max_buffered_output = self.max_buffered_output as usize;
        config.connection_window = self.connection_window;
        config.max_concurrent_streams = self.max_streams;
        config.push = self.push;
        config.send_buffer = self.send_buffer as usize;
        let min_size = self.bulk_min_size.into();
        config.bulk = Some(BulkPolicy {
            min_size,
            urgent_min_size: 2 * min_size,
            unknown_length_after: min_size / 2,
            migrated_after: min_size / 4,
            tunnel_after: min_size / 2,
            quiet_time: Duration::from_millis(100),
        });
        // Disable limits against hostile peers: here drivers are slow at random, and windows tiny.
        config.limits.max_small_data_frames = u32::MAX;
        config.limits.max_queued_control_frames = u32::MAX;
        config.limits.reset_burst = 10_000;
        match &mut config.smig {
            Some(_) if max_open_migrations == 0 => config.smig = None,
            Some(smig) => {
                smig.max_open_migrations = max_open_migrations;
                smig.max_migrations_per_stream = max_migrations;
                smig.unbound_timeout = Duration::from_secs(self.unbound_timeout_s.into());
                smig.answer_timeout = self.answer_timeout();
                smig.replay_limit = self.replay_limit as usize;
                smig.migrations_per_second = 1000;
                smig.resumption = (self.linger_s > 0).then(|| ResumptionConfig {
                    linger: Duration::from_secs(self.linger_s.into()),
                    max_kept_per_stream: self.max_kept as usize,
                    ..ResumptionConfig::default()
                });
            }
            None => {}
        }
        config
    }
}
