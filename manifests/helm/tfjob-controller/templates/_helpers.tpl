{{- /* Labels of all objects. No selector uses them. */}}
{{- define "tfjob-controller.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The end of the names of cluster-scoped objects, which several releases with watchNamespace have. */}}
{{- define "tfjob-controller.suffix" -}}
{{- if .Values.watchNamespace }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- /* "true" if the roles of users belong to this release, and else nothing. */}}
{{- define "tfjob-controller.userRoles" -}}
{{- if kindIs "invalid" .Values.userRoles.install }}
{{- if not .Values.watchNamespace }}true{{ end }}
{{- else if .Values.userRoles.install }}true{{ end }}
{{- end }}

{{- define "tfjob-controller.tfjob-controller-image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Without a tag it is the version of the cluster, without what a provider has added. */}}
{{- define "tfjob-controller.kube-scheduler-image" -}}
{{- with .Values.gangScheduler.kubeScheduler.image -}}
{{ .repository }}
{{- if .digest }}@{{ .digest }}
{{- else }}:{{ .tag | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $.Capabilities.KubeVersion.Version) }}{{ end }}
{{- end }}
{{- end }}
