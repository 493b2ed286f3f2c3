//! The parts of a configuration of Envoy that not every fleet has, or that it has more than once.

/// A route of calls that nobody judges.
pub(super) const ROUTE: &str = r#"
- match: { @MATCH@ }
  # The default of 15 s would cut longer calls; how long a client waits it says itself (grpc-timeout).
  route: { cluster: @CLUSTER@, timeout: 0s }
"#;

/// What a route has beside, whose calls the gate judges by one of its filters.
pub(super) const JUDGED: &str = r#"
  typed_per_filter_config:
    @FILTER@:
      "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig
      config:
        "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
        check_settings: {}
"#;

/// A filter that asks the gate.
pub(super) const GATE_FILTER: &str = r#"
- name: @FILTER@
  # Off, and on by routes: nothing else waits for inflight.
  disabled: true
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
    transport_api_version: V3
    # Not http_service, which passes gRPC calls while nobody answers when it is sent their content-type.
    grpc_service:
      envoy_grpc: { cluster_name: inflight_gate }
      # @TIMEOUT_WHY@
      timeout: @TIMEOUT@
    # As `gate.ext_authz.on_failure`: whether calls pass while inflight does not answer.
    failure_mode_allow: @OPEN@
    # Else 403 and PERMISSION_DENIED, which clients do not try again.
    status_on_error: { code: ServiceUnavailable }
    stat_prefix: @STATS@
"#;

/// The filter in Lua.
pub(super) const LUA_FILTER: &str = r#"
- name: envoy.filters.http.lua
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
    default_source_code:
      inline_string: @PROGRAM@
"#;

/// What others may ask of the admin interface.
pub(super) const STATS_LISTENER: &str = r#"
# What inflight and Prometheus read, for other machines: the admin interface itself can stop Envoy.
- name: stats
  address: { socket_address: { address: @STATS_HOST@, port_value: @STATS_PORT@ } }
  filter_chains:
    - filters:
        - name: envoy.filters.network.http_connection_manager
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
            stat_prefix: stats
            route_config:
              virtual_hosts:
                - name: all
                  domains: ["*"]
                  routes:
                    - match: { path: /ready, headers: [{ name: ":method", string_match: { exact: GET } }] }
                      route: { cluster: envoy_admin }
                    - match: { path: /stats/prometheus, headers: [{ name: ":method", string_match: { exact: GET } }] }
                      route: { cluster: envoy_admin }
                    - match: { path: /clusters, headers: [{ name: ":method", string_match: { exact: GET } }] }
                      route: { cluster: envoy_admin }
            http_filters:
              - name: envoy.filters.http.router
                typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
"#;

/// The cluster of the gate.
pub(super) const GATE_CLUSTER: &str = r#"
- name: inflight_gate
  @ADDRESSES@
  connect_timeout: 0.4s
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config:
        # A process that hangs keeps its connections: pings find it out, also for calls that wait.
        http2_protocol_options: { connection_keepalive: { interval: 0.4s, timeout: 0.4s } }
  @UNLIMITED@
"#;

/// The cluster of Prometheus, or of Envoy's own admin interface.
pub(super) const PLAIN_CLUSTER: &str = r#"
- name: @NAME@
  @ADDRESSES@
  connect_timeout: 1s
"#;

/// What is allowed at the same time.
pub(super) const UNLIMITED: &str = r#"
# The default refuses what is above 1024 at the same time. What is left is told by track_remaining alone.
circuit_breakers:
  thresholds:
    - { max_connections: 100000, max_pending_requests: 100000, max_requests: 100000, max_retries: 100000, track_remaining: true }
"#;

/// Addresses, or names that are resolved again and again.
pub(super) const ADDRESSES: &str = r#"
type: @TYPE@
load_assignment:
  cluster_name: @NAME@
  endpoints:
    - lb_endpoints:
        @ENDPOINTS@
"#;

/// One of them.
pub(super) const ENDPOINT: &str = r#"
- endpoint: { address: { socket_address: { address: @HOST@, port_value: @PORT@ } } }
"#;

/// Addresses that a file tells.
pub(super) const EDS: &str = r#"
type: EDS
eds_cluster_config:
  eds_config:
    resource_api_version: V3
    # Has to be there before Envoy starts, and to be replaced by rename: what is written in place is not seen.
    path_config_source: { path: @FILE@ }
"#;
