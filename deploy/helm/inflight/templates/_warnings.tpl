{{/* What renders and is probably not meant, a line each. */}}
{{- define "inflight.warnings" -}}
{{- $load := float64 .Values.serverLoadThreshold -}}
{{- $admission := float64 .Values.serverAdmissionThreshold -}}
{{- $gated := .Values.envoy.rate_limiter.prometheus_based.enabled -}}
{{- if include "inflight.customMetric" . }}
{{- if and (eq $load 2.0) (eq $admission 3.0) }}
WARNING: serverLoadMetric is a query of your own, and serverLoadThreshold (2) and serverAdmissionThreshold (3) are those of
the default load. Both have to be in the unit of your query.
{{- else if and $gated (le $admission $load) }}
WARNING: serverAdmissionThreshold ({{ $admission }}) is not above serverLoadThreshold ({{ $load }}), near which the scaler settles the
fleet: {{ if eq $admission 3.0 }}it is that of the default load, and both have to be in the unit of your query. {{ end }}New clients are refused all the time.
{{- else if and $gated (gt $admission (mulf $load 10.0)) }}
WARNING: serverAdmissionThreshold ({{ $admission }}) is more than ten times serverLoadThreshold ({{ $load }}): nobody is refused.
Both have to be in the unit of your query{{ if eq $load 2.0 }}, and 2 is the default load's{{ end }}.
{{- end }}
{{- else }}
{{- if ge $load 20.0 }}
WARNING: serverLoadThreshold is {{ $load }}. The default load is 1 when nobody waits, so that this keeps the fleet at its
minimum.{{ if eq $load 100.0 }} 100 was for a queue's milliseconds;{{ end }} 2 lets a request wait as long as it is served.
{{- else if le $load 1.3 }}
WARNING: serverLoadThreshold is {{ $load }}. What is on the wire is in flight too, so that an idle fleet reads about 1.2: this
asks for servers that do nothing.
{{- end }}
{{- if and $gated (le $admission $load) }}
WARNING: serverAdmissionThreshold ({{ $admission }}) is not above serverLoadThreshold ({{ $load }}), near which the scaler settles the
fleet: clients are refused that it would have grown for.
{{- end }}
{{- if and .Values.keda.zeroIdleReplicas .Values.keda.enabled (ne .Values.keda.trigger "external-push") }}
WARNING: keda.zeroIdleReplicas by Prometheus: a request at zero replicas is refused by Envoy, and the fleet leaves zero only while
somebody goes on trying. keda.trigger: external-push sees it at once, and scaleFromZero lets the first call wait.
{{- end }}
{{- end }}
{{- if not .Values.keda.enabled }}
NOTE: keda.enabled is false: inflight says how many servers are needed and changes nothing.
{{- end }}
{{- end -}}
