{{/* Envoy's configuration. Which settings are needed, and what happens without them: docs/gate.md. */}}

{{/* A cluster behind a name: dict "name" "host" "port". */}}
{{- define "inflight.envoyEndpoints" -}}
load_assignment:
  cluster_name: {{ .name | quote }}
  endpoints:
    - lb_endpoints:
        - endpoint: { address: { socket_address: { address: {{ .host | quote }}, port_value: {{ int .port }} } } }
{{- end -}}

{{- define "inflight.envoyUnlimited" -}}
circuit_breakers:
  thresholds:
    - { max_connections: 100000, max_pending_requests: 100000, max_requests: 100000, max_retries: 100000, track_remaining: true }
{{- end -}}

{{/* The filter that asks inflight: dict "name" "timeout" "open". Off, and switched on by routes. */}}
{{- define "inflight.envoyGateFilter" -}}
- name: {{ .name }}
  disabled: true
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
    transport_api_version: V3
    grpc_service:
      envoy_grpc: { cluster_name: inflight_gate }
      timeout: {{ .timeout }}   # without it, 200 ms
    failure_mode_allow: {{ .open }}
    # Else clients get PERMISSION_DENIED, and do not try again.
    status_on_error: { code: ServiceUnavailable }
    stat_prefix: {{ .name }}
{{- end -}}

{{- define "inflight.envoyAsks" -}}
typed_per_filter_config:
  {{ . }}:
    "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig
    config:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
      check_settings: {}
{{- end -}}

{{/* What `inflight render lua` prints, with the values of the chart in the place of those it was printed for. */}}
{{- define "inflight.envoyLua" -}}
{{- $at := urlParse (include "inflight.prometheusUrl" .) -}}
{{- $query := include "inflight.load" . | trim -}}
{{- if contains "]=]" $query }}{{ fail "serverLoadMetric: has `]=]`, which ends a text in Lua" }}{{ end -}}
{{- .Files.Get "files/admission.lua"
    | replace "\"/api/v1/query\"" (printf "%s/api/v1/query" (trimSuffix "/" $at.path) | quote)
    | replace "\"prometheus:9090\"" (quote $at.host)
    | replace "LIMIT = 987.5" (printf "LIMIT = %s" (include "inflight.number" .Values.serverAdmissionThreshold))
    | replace "FAIL_OPEN = false" (printf "FAIL_OPEN = %v" .Values.envoy.rate_limiter.prometheus_based.fail_open)
    | replace "\nQUERY\n" (printf "\n%s\n" $query) -}}
{{- end -}}

{{/* Without TLS, as inflight asks it. */}}
{{- define "inflight.envoyPrometheus" -}}
{{- $at := urlParse (include "inflight.prometheusUrl" .) -}}
{{- $parts := regexSplit ":" $at.host -1 -}}
{{- $port := "80" -}}
{{- if gt (len $parts) 1 }}{{ $port = last $parts }}{{ end -}}
- name: prometheus
  type: STRICT_DNS
  connect_timeout: 1s
  {{- include "inflight.envoyEndpoints" (dict "name" "prometheus" "host" (first $parts) "port" $port) | nindent 2 }}
{{- end -}}

{{- define "inflight.envoyConfig" -}}
{{- $envoy := .Values.envoy -}}
{{- $limiter := $envoy.rate_limiter -}}
{{- $gate := include "inflight.gate" . -}}
{{- $lua := include "inflight.luaGate" . -}}
{{- $open := $limiter.prometheus_based.fail_open -}}
{{- $route := printf "{ cluster: %s, timeout: %s }" ($envoy.clusterName | quote) $envoy.grpc_route_timeout -}}
node: { id: envoy, cluster: {{ .Release.Name | quote }} }
# For the pod alone: it can stop Envoy. The listener `stats` passes on what others may ask.
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: 9900 } }
# Histograms move with the flush; at the default of 5 s a rate over a short window sees steps.
stats_flush_interval: 1s
static_resources:
  listeners:
    - name: grpc
      address: { socket_address: { address: {{ .Values.listenAddress | quote }}, port_value: {{ int $envoy.service.ports.grpc }}, ipv4_compat: {{ contains ":" .Values.listenAddress }} } }
      filter_chains:
        - filters:
            {{- with $limiter.listener_level }}
            {{- if .enabled }}
            - name: envoy.filters.network.local_ratelimit
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit
                stat_prefix: connections
                token_bucket:
                  max_tokens: {{ int .max_tokens }}
                  tokens_per_fill: {{ int .tokens_per_fill }}
                  fill_interval: {{ .fill_interval }}
            {{- end }}
            {{- end }}
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                codec_type: AUTO
                stat_prefix: grpc
                # A call that waits, or runs for long, is idle: the default of 300 s would cut it.
                stream_idle_timeout: 0s
                use_remote_address: true
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        {{- if $gate }}
                        - match: { path: /inference.GRPCInferenceService/RepositoryIndex }
                          route: {{ $route }}
                          {{- include "inflight.envoyAsks" "gate_first_calls" | nindent 26 }}
                        {{- end }}
                        {{- if and $gate $limiter.prometheus_based.enabled $limiter.prometheus_based.guard_all_calls }}
                        - match: { safe_regex: { regex: "/inference[.]GRPCInferenceService/Model(Stream)?Infer" } }
                          route: {{ $route }}
                          {{- include "inflight.envoyAsks" "gate_others" | nindent 26 }}
                        {{- end }}
                        - match: { prefix: / }
                          route: {{ $route }}
                http_filters:
                  {{- if $gate }}
                  {{- $wait := ternary (add (int .Values.scaleFromZero.readyTimeoutSeconds) 5) 6 .Values.scaleFromZero.enabled }}
                  {{- include "inflight.envoyGateFilter" (dict "name" "gate_first_calls" "timeout" (printf "%vs" $wait) "open" $open) | nindent 18 }}
                  {{- end }}
                  {{- if and $gate $limiter.prometheus_based.enabled $limiter.prometheus_based.guard_all_calls }}
                  {{- include "inflight.envoyGateFilter" (dict "name" "gate_others" "timeout" "0.9s" "open" $open) | nindent 18 }}
                  {{- end }}
                  {{- if $lua }}
                  - name: envoy.filters.http.lua
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                      default_source_code:
                        inline_string: |
                          {{- include "inflight.envoyLua" . | nindent 26 }}
                  {{- end }}
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
    - name: stats
      address: { socket_address: { address: {{ .Values.listenAddress | quote }}, port_value: 9901, ipv4_compat: {{ contains ":" .Values.listenAddress }} } }
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
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
    - name: {{ $envoy.clusterName | quote }}
      type: STRICT_DNS
      dns_refresh_rate: 2s
      connect_timeout: 1s
      lb_policy: {{ $envoy.loadBalancerPolicy }}
      # What is gone from DNS gets no further call, although its check still passes.
      ignore_health_on_host_removal: true
      common_lb_config:
        healthy_panic_threshold: { value: 0 }   # else calls go to servers that are not healthy
        update_merge_window: 0s                 # else a healthy server may count a second late
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      # The default caps what is in flight at 1024, and no query sees what it refuses.
      {{- include "inflight.envoyUnlimited" . | nindent 6 }}
      health_checks:
        # no_traffic_interval is 60 s otherwise: a server would be found healthy, or gone, that late.
        - { timeout: 1s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 2, healthy_threshold: 1, grpc_health_check: {} }
      {{- include "inflight.envoyEndpoints" (dict "name" $envoy.clusterName "host" (include "inflight.tritonHost" .) "port" .Values.triton.service.grpcPort) | nindent 6 }}
    {{- if $gate }}
    - name: inflight_gate
      type: STRICT_DNS
      connect_timeout: 0.4s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config:
            # A process that hangs keeps its connections: pings find it out, also for calls that wait.
            http2_protocol_options: { connection_keepalive: { interval: 0.4s, timeout: 0.4s } }
      # Calls that wait count here: the default refuses the 1025th.
      {{- include "inflight.envoyUnlimited" . | nindent 6 }}
      {{- include "inflight.envoyEndpoints" (dict "name" "inflight_gate" "host" (include "inflight.ownHost" .) "port" 9002) | nindent 6 }}
    {{- end }}
    {{- if $lua }}
    {{- include "inflight.envoyPrometheus" . | nindent 4 }}
    {{- end }}
    - name: envoy_admin
      type: STATIC
      {{- include "inflight.envoyEndpoints" (dict "name" "envoy_admin" "host" "127.0.0.1" "port" 9900) | nindent 6 }}
{{- end -}}
