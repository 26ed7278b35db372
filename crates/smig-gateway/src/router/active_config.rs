//! What requests are handled by: routes, access log, forward proxy and tunnels of the current configuration. A reload
//! builds a new one completely, and then replaces the old one.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::uri::Authority;
use smig::{BulkHint, ListenerId, MigrationHint};
use smig_admin::access_log::AccessLog;
use smig_proxy::tunnel::TunnelRegistry;
use smig_settings::Diagnostics;

use super::routes::Routes;
use crate::config::{Config, ForwardedSpec, HeaderRules, HostPattern, RouteMigration, RouteSpec};
use crate::forward_proxy::ForwardProxy;
use crate::upstream::{Upstream, UpstreamSpec};

/// Everything that handling a request needs.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    routes: Routes,
    compiled_routes: Vec<CompiledRoute>,
    pub(super) forwarded: ForwardedSpec,
    pub(super) forward_proxy: Option<Arc<ForwardProxy>>,
    pub(crate) log: Arc<AccessLog>,
    pub(super) tunnels: TunnelRegistry,
    /// HTTPS ports to which requests to these listeners are redirected.
    https_ports: HashMap<ListenerId, u16>,
}

/// A route of the configuration, ready for requests.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) path: Box<str>,
    pub(super) action: Action,
    pub(super) request_rules: HeaderRules,
    pub(super) response_rules: HeaderRules,
    pub(super) migration_hint: MigrationHint,
    pub(super) bulk_hint: BulkHint,
}

#[derive(Debug)]
pub(super) enum Action {
    Upstream { upstream: Arc<Upstream>, name: Arc<str>, prefix_rewrite: Option<Box<str>> },
    Redirect { base_url: Box<str>, status: StatusCode },
    FixedResponse { status: StatusCode, text: Bytes },
}

/// What a reload preserves: resources whose configuration is unchanged keep their connections.
#[derive(Debug)]
pub(crate) struct LiveResources {
    upstreams: HashMap<String, (UpstreamSpec, Arc<Upstream>)>,
    forward_proxy: Option<Arc<ForwardProxy>>,
    tunnels: TunnelRegistry,
}

impl LiveResources {
    /// Nothing, before the first configuration.
    pub(crate) fn empty() -> Self {
        Self {
            upstreams: HashMap::new(),
            forward_proxy: None,
            tunnels: TunnelRegistry::of_gateway(),
        }
    }

    /// Returns the resources of a configuration: reuses unchanged ones, and creates the others.
    pub(crate) fn reconfigured(&self, config: &Config) -> Result<Self, Diagnostics> {
        let mut upstreams = HashMap::new();
        for (name, spec) in &config.upstreams {
            let same = self.upstreams.get(name).filter(|(old, _)| old == spec);
            let upstream = match same {
                Some((_, upstream)) => Arc::clone(upstream),
                None => Upstream::new(name.as_str(), spec)
                    .map_err(|error| config.fault(&["upstreams", name], error.to_string()))?,
            };
            upstreams.insert(name.clone(), (spec.clone(), upstream));
        }
        // Reads the users file again, even if the configuration is unchanged.
        let forward_proxy = config.forward_proxy.clone().map(|spec| match &self.forward_proxy {
            Some(before) => before.reconfigured(spec),
            None => ForwardProxy::new(spec, &self.tunnels),
        });
        let forward_proxy = forward_proxy
            .transpose()
            .map_err(|error| config.fault(&["forward_proxy"], error.to_string()))?;
        Ok(Self { upstreams, forward_proxy, tunnels: self.tunnels.clone() })
    }

    /// Denies the forward proxy the admin port of this machine.
    pub(crate) fn deny_admin_port(&self, port: u16) {
        if let Some(forward_proxy) = &self.forward_proxy {
            forward_proxy.deny_admin_port(port);
        }
    }

    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.values().map(|(_, upstream)| upstream)
    }

    /// Returns whether it contains this instance of the upstream.
    pub(crate) fn contains(&self, upstream: &Arc<Upstream>) -> bool {
        self.upstreams().any(|known| Arc::ptr_eq(known, upstream))
    }
}

impl ActiveConfig {
    /// Builds it from a configuration; `https_ports` contains the listeners that
    /// redirect.
    pub(crate) fn new(
        config: &Config,
        resources: &LiveResources,
        log: Arc<AccessLog>,
        https_ports: HashMap<ListenerId, u16>,
    ) -> Result<Self, Diagnostics> {
        let (mut routes, mut compiled_routes) = (Routes::default(), Vec::new());
        for (route_index, spec) in config.routes.iter().enumerate() {
            let index_text = route_index.to_string();
            let fault = |key: &str, what: String| config.fault(&["route", &index_text, key], what);
            let hosts = spec.host.all();
            if hosts.is_empty() {
                routes.insert(None, &spec.path, route_index);
            }
            for host in hosts {
                let host: HostPattern = host.parse().map_err(|what| fault("host", what))?;
                routes.insert(Some(&host), &spec.path, route_index);
            }
            let rules = |key, headers| {
                HeaderRules::new(headers)
                    .map_err(|(_, name, what)| fault(key, format!("{name}: {what}")))
            };
            compiled_routes.push(CompiledRoute {
                path: spec.path.as_str().into(),
                action: compile_action(spec, resources).map_err(|what| fault("upstream", what))?,
                request_rules: rules("request_headers", &spec.request_headers)?,
                response_rules: rules("response_headers", &spec.response_headers)?,
                migration_hint: match spec.migrate {
                    RouteMigration::Auto => MigrationHint::None,
                    RouteMigration::Always => MigrationHint::Migrate,
                    RouteMigration::Never => MigrationHint::Stay,
                },
                bulk_hint: match spec.pace_bulk {
                    Some(false) => BulkHint::Interactive,
                    Some(true) | None => BulkHint::None,
                },
            });
        }
        Ok(Self {
            routes,
            compiled_routes,
            forwarded: config.forwarded.clone(),
            forward_proxy: resources.forward_proxy.clone(),
            log,
            tunnels: resources.tunnels.clone(),
            https_ports,
        })
    }

    /// Returns the route for a request, with its index.
    pub(super) fn find(
        &self,
        authority: Option<&Authority>,
        path: &str,
    ) -> Option<(usize, &CompiledRoute)> {
        let host = authority.filter(|_| self.routes.has_hosts()).map(Authority::host);
        let index = self.routes.find(host, path)?;
        Some((index, self.route(index)?))
    }

    pub(super) fn route(&self, index: usize) -> Option<&CompiledRoute> {
        self.compiled_routes.get(index)
    }

    /// Returns the upstreams of its routes, without duplicates.
    pub(super) fn upstreams(&self) -> Vec<&Arc<Upstream>> {
        let mut distinct_upstreams: Vec<&Arc<Upstream>> = Vec::new();
        for route in &self.compiled_routes {
            if let Action::Upstream { upstream, .. } = &route.action
                && !distinct_upstreams.iter().any(|known| Arc::ptr_eq(known, upstream))
            {
                distinct_upstreams.push(upstream);
            }
        }
        distinct_upstreams
    }

    /// Returns whether a route has this host, by name or wildcard.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.routes.has_host(host)
    }

    /// Returns the HTTPS port to which requests to this listener are redirected.
    pub(super) fn https_port(&self, listener: ListenerId) -> Option<u16> {
        self.https_ports.get(&listener).copied()
    }
}

fn compile_action(spec: &RouteSpec, resources: &LiveResources) -> Result<Action, String> {
    let status = |default: StatusCode| {
        spec.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(default)
    };
    if let Some(name) = &spec.upstream {
        let (_, upstream) = resources
            .upstreams
            .get(name)
            .ok_or_else(|| format!("there is no upstream {name:?}"))?;
        return Ok(Action::Upstream {
            upstream: Arc::clone(upstream),
            name: name.as_str().into(),
            prefix_rewrite: spec.prefix_rewrite.as_deref().map(Into::into),
        });
    }
    if let Some(base_url) = &spec.redirect {
        let status = status(StatusCode::PERMANENT_REDIRECT);
        return Ok(Action::Redirect { base_url: base_url.as_str().into(), status });
    }
    let status = status(StatusCode::NOT_FOUND);
    let text = match &spec.body {
        Some(text) => format!("{text}\n"),
        None => status.canonical_reason().map(|reason| format!("{reason}\n")).unwrap_or_default(),
    };
    Ok(Action::FixedResponse { status, text: text.into() })
}
