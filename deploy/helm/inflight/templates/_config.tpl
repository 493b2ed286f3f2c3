{{/* inflight's own configuration. */}}
{{- define "inflight.config" -}}
{{- $keda := .Values.keda -}}
{{- $limiter := .Values.envoy.rate_limiter.prometheus_based -}}
# Made by the chart. docs/configuration.md has every key.
version: 1
admin: { listen: {{ include "inflight.listen" (dict "root" . "port" 9900) | quote }} }
fleets:
  - name: triton
    replicas: { min: {{ ternary 0 (int $keda.minReplicaCount) $keda.zeroIdleReplicas }}, max: {{ int $keda.maxReplicaCount }} }
    source:
{{- if include "inflight.customMetric" . }}
      prometheus:
        url: {{ include "inflight.prometheusUrl" . | quote }}
        query: |2-
          {{- include "inflight.load" . | nindent 10 }}
{{- if eq $keda.metricType "Value" }}
        replicas: {{ include "inflight.readyQuery" . | toJson }}
{{- end }}
{{- else }}
      envoy:
        dns: {{ include "inflight.envoyAdmin" . | quote }}
        cluster: {{ .Values.envoy.clusterName | quote }}
        backend:
          triton:
            dns: {{ printf "http://%s:%d/metrics" (include "inflight.tritonHost" .) (int .Values.triton.service.metricsPort) | quote }}
{{- with .Values.triton.models }}
            models: {{ toJson . }}
{{- end }}
{{- end }}
{{- if include "inflight.asked" . }}
    target:
      keda: { listen: {{ include "inflight.listen" (dict "root" . "port" 9443) | quote }} }
{{- else }}
    target: advise
{{- end }}
    scaling:
{{- if include "inflight.customMetric" . }}
      policy: metric
      target: {{ include "inflight.number" .Values.serverLoadThreshold }}
      kind: {{ ternary "value" "average_value" (eq $keda.metricType "Value") }}
      # inflight decides the size, so that its windows count and KEDA's autoscaler adds none.
      down_window: {{ int $keda.scaleDown.stabilizationWindowSeconds }}s
      step:
        up: { replicas: {{ int $keda.scaleUp.stepsize }}, every: {{ int $keda.scaleUp.periodSeconds }}s }
        down: { replicas: {{ int $keda.scaleDown.stepsize }}, every: {{ int $keda.scaleDown.periodSeconds }}s }
    admission: off
{{- else }}
      policy: occupancy
      threshold: {{ include "inflight.number" .Values.serverLoadThreshold }}
      window: {{ .Values.serverLoadRateInterval }}
{{- if and .Values.scaleFromZero.enabled (not $limiter.enabled) }}
    admission: off
{{- else }}
    admission:
      threshold: {{ include "inflight.number" .Values.serverAdmissionThreshold }}
      when: {{ $limiter.when }}
{{- if $limiter.enabled }}
      session: {{ toJson $limiter.session }}
{{- end }}
{{- end }}
{{- end }}
{{- if include "inflight.gate" . }}
    gate:
      ext_authz:
        listen: {{ include "inflight.listen" (dict "root" . "port" 9002) | quote }}
{{- if .Values.scaleFromZero.enabled }}
        ready_timeout: {{ int .Values.scaleFromZero.readyTimeoutSeconds }}s
        hold_min: {{ int .Values.scaleFromZero.holdMinReplicasSeconds }}s
{{- else }}
        # scaleFromZero is off: nobody waits for a start.
        ready_timeout: 1s
        hold_min: 0s
{{- end }}
        on_failure: {{ ternary "open" "closed" $limiter.fail_open }}
{{- end }}
{{- end -}}
