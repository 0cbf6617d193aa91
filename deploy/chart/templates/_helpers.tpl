{{- define "interlock.name" -}}
{{- if contains "interlock" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-interlock" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "interlock.selector" -}}
app.kubernetes.io/name: interlock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "interlock.labels" -}}
{{ include "interlock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "interlock.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "interlock.config" -}}
{{- $drain := dict "delay" "5s" "calls" "30s" -}}
{{- $fixed := dict "listen" "0.0.0.0:8080" "admin" (dict "listen" "0.0.0.0:8081") -}}
{{- $asked := deepCopy .Values.config -}}
{{- $given := $asked.gateway | default dict -}}
{{- if or (hasKey $given "listen") (hasKey ($given.admin | default dict) "listen") -}}
{{- fail "config.gateway: remove listen and admin.listen, because the chart sets the addresses" -}}
{{- end -}}
{{- if hasKey $given "database" -}}
{{- fail "config.gateway: remove database; set the value database, and INTERLOCK_DATABASE in the Secret" -}}
{{- end -}}
{{- $gateway := mustMergeOverwrite (dict "drain" $drain) $given $fixed -}}
{{- set $asked "gateway" $gateway | toPrettyJson -}}
{{- end }}

{{- define "interlock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "interlock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
