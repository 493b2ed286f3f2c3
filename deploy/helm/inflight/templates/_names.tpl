{{/* Names, labels, addresses. */}}

{{- define "inflight.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "inflight.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "inflight.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "inflight.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "inflight.selectorLabels" -}}
app.kubernetes.io/name: {{ include "inflight.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "inflight.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "inflight.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "inflight.serviceAccountName" -}}
{{- default (ternary (include "inflight.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* A Service's name in full: dict "root" $ "name" NAME. */}}
{{- define "inflight.host" -}}
{{- printf "%s.%s.svc.%s" .name .root.Release.Namespace .root.Values.clusterDomain -}}
{{- end -}}

{{- define "inflight.ownHost" -}}
{{- include "inflight.host" (dict "root" . "name" (include "inflight.fullname" .)) -}}
{{- end -}}

{{- define "inflight.tritonName" -}}
{{- default (printf "%s-triton" .Release.Name) .Values.triton.name -}}
{{- end -}}

{{- define "inflight.tritonHost" -}}
{{- $name := default (include "inflight.tritonName" .) .Values.triton.service.name -}}
{{- if contains "." $name -}}{{ $name }}{{- else -}}{{ include "inflight.host" (dict "root" . "name" $name) }}{{- end -}}
{{- end -}}

{{- define "inflight.envoyName" -}}
{{- printf "%s-envoy" (include "inflight.fullname" .) -}}
{{- end -}}

{{/* What tells of every Envoy. */}}
{{- define "inflight.envoyAdmin" -}}
{{- default (printf "http://%s:9901" (include "inflight.host" (dict "root" . "name" (printf "%s-admin" (include "inflight.envoyName" .))))) .Values.envoy.admin.dns -}}
{{- end -}}

{{- define "inflight.prometheusUrl" -}}
{{- with .Values.prometheus.external -}}
{{- if .enabled -}}
{{- printf "%s://%s:%v" .scheme .url .port -}}
{{- else -}}
{{- tpl $.Values.prometheus.url $ -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where it listens: dict "root" $ "port" PORT. */}}
{{- define "inflight.listen" -}}
{{- $at := .root.Values.listenAddress -}}
{{- printf "%s:%d" (ternary (printf "[%s]" $at) $at (contains ":" $at)) .port -}}
{{- end -}}
