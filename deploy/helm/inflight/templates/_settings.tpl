{{/* What the values mean, and what cannot work together. A condition is "true" or "". */}}

{{/* A number that may be given as a text. */}}
{{- define "inflight.number" -}}
{{- . | toString | trim -}}
{{- end -}}

{{- define "inflight.customMetric" -}}
{{- if .Values.serverLoadMetric | trim -}}true{{- end -}}
{{- end -}}

{{/* KEDA asks inflight. */}}
{{- define "inflight.asked" -}}
{{- if and .Values.keda.enabled (eq .Values.keda.trigger "external-push") -}}true{{- end -}}
{{- end -}}

{{/* Envoy asks inflight before it lets new clients in. */}}
{{- define "inflight.gate" -}}
{{- if and .Values.envoy.enabled (not (include "inflight.customMetric" .)) (or .Values.scaleFromZero.enabled .Values.envoy.rate_limiter.prometheus_based.enabled) -}}true{{- end -}}
{{- end -}}

{{/* Envoy asks Prometheus instead: a load of one's own is no number of inflight's. */}}
{{- define "inflight.luaGate" -}}
{{- if and .Values.envoy.enabled (include "inflight.customMetric" .) .Values.envoy.rate_limiter.prometheus_based.enabled -}}true{{- end -}}
{{- end -}}

{{- define "inflight.ownEnvoyConfig" -}}
{{- if and .Values.envoy.enabled (not .Values.envoy.external_config.load_from_configmap) -}}true{{- end -}}
{{- end -}}

{{- define "inflight.ownPrometheusConfig" -}}
{{- if and .Values.prometheus.enabled (not .Values.prometheus.external.enabled) -}}true{{- end -}}
{{- end -}}

{{- define "inflight.selector" -}}
{{- tpl .Values.prometheus.labelSelector . | trim -}}
{{- end -}}

{{/* A rendered query with this release's names in place of the placeholders: dict "root" $ "text" QUERY. */}}
{{- define "inflight.fill" -}}
{{- $values := .root.Values -}}
{{- $selector := include "inflight.selector" .root -}}
{{- $models := list -}}
{{- range $values.triton.models }}{{ $models = append $models (regexQuoteMeta . | replace "\\" "\\\\") }}{{ end -}}
{{- $model := "" -}}
{{- if eq (len $models) 1 }}{{ $model = printf "model=%s" (first $values.triton.models | quote) }}{{ end -}}
{{- if gt (len $models) 1 }}{{ $model = printf "model=~\"%s\"" (join "|" $models) }}{{ end -}}
{{- $servers := list $model $selector | compact | join "," -}}
{{- $query := .text -}}
{{- $query = $query | replace "{model=\"MODELS\",release=\"RELEASE\"}" (ternary (printf "{%s}" $servers) "" (ne $servers "")) -}}
{{- $query = $query | replace ",release=\"RELEASE\"" (ternary (printf ",%s" $selector) "" (ne $selector "")) -}}
{{- $query = $query | replace "\"CLUSTER\"" ($values.envoy.clusterName | quote) -}}
{{- $window := $values.serverLoadRateInterval -}}
{{- /* A quarter of the window, before the window, must have been scraped: see docs/render.md. */ -}}
{{- $each := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $quarter := div (mul (regexFind "^[0-9]+" $window | int64) (get $each (regexFind "[a-z]+$" $window))) 4 -}}
{{- $span := "" -}}
{{- range list (list "h" 3600000) (list "m" 60000) (list "s" 1000) (list "ms" 1) -}}
{{- $count := div $quarter (index . 1) -}}
{{- if $count }}{{ $span = printf "%s%d%s" $span $count (index . 0) }}{{ end -}}
{{- $quarter = mod $quarter (index . 1) -}}
{{- end -}}
{{- $query = $query | replace "[15s]" (printf "[%s]" $span) -}}
{{- $query = regexReplaceAll "offset(\\s+)1m" $query (printf "offset${1}%s" $window) -}}
{{- $query = $query | replace "[1m]" (printf "[%s]" $window) -}}
{{- $query = $query | replace "987.5" (include "inflight.number" $values.serverAdmissionThreshold) -}}
{{- $query = $query | replace "98765" (toString $values.keda.maxReplicaCount) -}}
{{- $query -}}
{{- end -}}

{{/* The load: a total of the fleet, or a query of one's own as it is. */}}
{{- define "inflight.load" -}}
{{- if include "inflight.customMetric" . -}}
{{- .Values.serverLoadMetric | trimSuffix "\n" -}}
{{- else -}}
{{- include "inflight.fill" (dict "root" . "text" (.Files.Get "files/load.promql" | trimSuffix "\n")) -}}
{{- end -}}
{{- end -}}

{{/* The number of ready servers, for a load that does not grow with the fleet. */}}
{{- define "inflight.readyQuery" -}}
{{- if .Values.serverReplicasMetric -}}
{{- .Values.serverReplicasMetric -}}
{{- else if .Values.envoy.enabled -}}
{{- include "inflight.fill" (dict "root" . "text" "max(envoy_cluster_membership_healthy{envoy_cluster_name=\"CLUSTER\",release=\"RELEASE\"})") -}}
{{- else -}}
{{- fail "keda.metricType: Value multiplies the ready servers: serverReplicasMetric has to say how many there are, since there is no Envoy to ask" -}}
{{- end -}}
{{- end -}}

{{/* Fails where the values cannot work. */}}
{{- define "inflight.check" -}}
{{- $custom := include "inflight.customMetric" . -}}
{{- $keda := .Values.keda -}}
{{- $limiter := .Values.envoy.rate_limiter.prometheus_based -}}
{{- if and (not $custom) (not .Values.envoy.enabled) -}}
{{- fail "the default load is measured at Envoy: with envoy.enabled: false, serverLoadMetric has to be a query of your own" -}}
{{- end -}}
{{- if and (not $custom) (or (lt (float64 .Values.serverLoadThreshold) 0.1) (gt (float64 .Values.serverLoadThreshold) 100.0)) -}}
{{- fail (printf "serverLoadThreshold: %v is not between 0.1 and 100; of the default load 2 lets a request wait as long as it is served" .Values.serverLoadThreshold) -}}
{{- end -}}
{{- if and (not $custom) (or (lt (float64 .Values.serverAdmissionThreshold) 1.0) (gt (float64 .Values.serverAdmissionThreshold) 1000.0)) -}}
{{- fail (printf "serverAdmissionThreshold: %v is not between 1 and 1000; the default load is 1 when nobody waits" .Values.serverAdmissionThreshold) -}}
{{- end -}}
{{- if and (not $custom) (eq $keda.metricType "Value") -}}
{{- fail "keda.metricType: the default load is a total of the fleet, for AverageValue; Value would multiply it by the fleet's size" -}}
{{- end -}}
{{- if gt (int $keda.minReplicaCount) (int $keda.maxReplicaCount) -}}
{{- fail (printf "keda.minReplicaCount: %v is above keda.maxReplicaCount, %v" $keda.minReplicaCount $keda.maxReplicaCount) -}}
{{- end -}}
{{- if and $keda.zeroIdleReplicas (eq (int $keda.minReplicaCount) 0) -}}
{{- fail "keda.zeroIdleReplicas: needs a keda.minReplicaCount above 0; with 0 the fleet goes to zero as it is" -}}
{{- end -}}
{{- if and .Values.scaleFromZero.enabled (or $custom (not .Values.envoy.enabled) (not (include "inflight.asked" .))) -}}
{{- fail "scaleFromZero.enabled: needs envoy.enabled, keda.enabled with keda.trigger: external-push, and no serverLoadMetric: inflight holds the call at Envoy and pushes to KEDA" -}}
{{- end -}}
{{- if and $limiter.enabled (not .Values.envoy.enabled) -}}
{{- fail "envoy.rate_limiter.prometheus_based.enabled: needs envoy.enabled" -}}
{{- end -}}
{{- if and .Values.envoy.enabled .Values.envoy.external_config.load_from_configmap (not .Values.envoy.external_config.configmap_name) -}}
{{- fail "envoy.external_config.load_from_configmap: needs envoy.external_config.configmap_name" -}}
{{- end -}}
{{- if and .Values.envoy.enabled (not .Values.envoy.deploy) (not .Values.envoy.admin.dns) -}}
{{- fail "envoy.deploy: false needs envoy.admin.dns, http://NAME:PORT, each address of which is an Envoy" -}}
{{- end -}}
{{- if and .Values.prometheus.external.enabled (not .Values.prometheus.external.url) -}}
{{- fail "prometheus.external.enabled: needs prometheus.external.url" -}}
{{- end -}}
{{- if and $custom (hasPrefix "https:" (include "inflight.prometheusUrl" .)) -}}
{{- fail "serverLoadMetric: inflight asks Prometheus without TLS; name an address inside the cluster (prometheus.external.scheme: http, or prometheus.url)" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (include "inflight.gate" .) -}}
{{- fail "replicas: with scaleFromZero or envoy.rate_limiter.prometheus_based there can be one only: each inflight knows its own sessions" -}}
{{- end -}}
{{- end -}}
