{{- define "ramus.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ramus.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ramus.labels" -}}
{{ include "ramus.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ramus.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{- /* The whole configuration. The chart's own keys win. The cores of the pod of ramus say nothing about the number of containers. */ -}}
{{- define "ramus.config" -}}
{{- $kubernetes := dict "namespace" .Values.containers.namespace "image" (include "ramus.image" .) "user_namespaces" .Values.containers.userNamespaces "sidecars" (int .Values.containers.sidecars) "requests" .Values.containers.requests }}
{{- if .Values.containers.podTemplate }}{{ $_ := set $kubernetes "template" (include "ramus.name" .) }}{{ end }}
{{- $own := dict "engine" "kubernetes" "image" .Values.taskImage "listen" "0.0.0.0:8080" "kubernetes" $kubernetes }}
{{- if .Values.service.sshPort }}{{ $_ := set $own "ssh_listen" "0.0.0.0:8022" }}{{ end }}
{{- if .Values.replicas.secret }}{{ $_ := set $own "replicas" (dict "group" (include "ramus.name" .) "home" (printf "%s-0" (include "ramus.name" .)) "namespace" .Release.Namespace "listen" "0.0.0.0:8443" "secret_file" "/etc/ramus-replicas/secret" "lease" .Values.replicas.lease) }}{{ end }}
{{- if .Values.nodes.provider }}{{ $_ := set $own "nodes" (merge (dict "provider" .Values.nodes.provider "token_file" "/etc/ramus-nodes/token" "programs" "/var/lib/ramus-programs") .Values.nodes.config) }}{{ end }}
{{- toYaml (merge $own .Values.config (dict "capacity" 100)) }}
{{- end }}
