{{- define "flopwatch.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "flopwatch.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "flopwatch.labels" -}}
{{ include "flopwatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "flopwatch.metadata" -}}
name: {{ include "flopwatch.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "flopwatch.labels" . | nindent 2 }}
{{- end }}

{{- define "flopwatch.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}
{{- else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What a level and its parts need, as booleans: {{ $may := include "flopwatch.may" . | fromYaml }} */}}
{{- define "flopwatch.may" -}}
{{- $level := index (dict "base" 0 "basic" 1 "fabric" 2 "deep" 3) .Values.level }}
{{- $cos := eq .Values.gpus "gke-cos" }}
{{- $log := and (ge $level 3) .Values.kernelLog }}
podResources: {{ ge $level 1 }}
network: {{ ge $level 2 }}
processes: {{ ge $level 3 }}
kernelLog: {{ $log }}
privileged: {{ or $log $cos }}
root: {{ or (ge $level 1) $cos .Values.pushSocket .Values.podLogs .Values.hostState }}
{{- end }}

{{- define "flopwatch.priorityClass" -}}
{{- .Values.priorityClass.name | default (include "flopwatch.fullname" .) }}
{{- end }}
