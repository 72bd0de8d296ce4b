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

{{- /* Of the pods; podAnnotations may say otherwise. */}}
{{- define "flopwatch.annotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: "9810"
prometheus.io/path: /metrics
cluster-autoscaler.kubernetes.io/daemonset-pod: "true"
{{- if .Values.web.secretName }}
prometheus.io/scheme: https
{{- end }}
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

{{- /* A role for the daemon: the context, what its name ends in, its rule. */}}
{{- define "flopwatch.role" }}
{{- $ := index . 0 }}
{{- $name := printf "%s%s" (include "flopwatch.fullname" $) (index . 1) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "flopwatch.labels" $ | nindent 4 }}
rules:
  - {{- index . 2 | toYaml | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "flopwatch.labels" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "flopwatch.fullname" $ }}
    namespace: {{ $.Release.Namespace }}
{{- end }}

{{- /* Lets the daemon out to the API server: the context, what the policy's name ends in. */}}
{{- define "flopwatch.apiServer" }}
{{- $ := index . 0 }}
---
# The API server has no address that is the same everywhere.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "flopwatch.fullname" $ }}{{ index . 1 }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "flopwatch.labels" $ | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "flopwatch.selector" $ | nindent 6 }}
  policyTypes: [Egress]
  egress:
    - ports:
        - {protocol: TCP, port: 443}
        - {protocol: TCP, port: 6443}
{{- end }}
