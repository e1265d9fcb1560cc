{{- define "acquit.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "acquit.selector" -}}
app.kubernetes.io/name: acquit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "acquit.labels" -}}
{{ include "acquit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "acquit.config" -}}
[[listen]]
host = "0.0.0.0"
port = 5672

[[listen]]
host = "0.0.0.0"
port = 5671
tls = "immediate"

[tls]
certificate_file = "/etc/acquit/tls/tls.crt"
key_file = "/etc/acquit/tls/tls.key"

[http]
host = "0.0.0.0"
port = 8161

[security]
users_file = "/etc/acquit/users/users.toml"

{{ .Values.config }}
{{- end -}}
