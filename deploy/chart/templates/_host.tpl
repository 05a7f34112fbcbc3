{{/* Services at the addresses of nodes, as both halves read it. */}}
{{- define "portcullis.host" -}}
{{- with .Values.host -}}
enabled: true
namespace: {{ $.Values.singleNode.enabled | ternary $.Release.Namespace "portcullis-nodes" }}
datapath: {{ .datapath }}
{{- if .withoutClass }}
withoutClass: true
{{- end }}
reservedPorts: {{ toJson .reservedPorts }}
managementInterfaces: {{ toJson .managementInterfaces }}
{{- with .internalInterfaces }}
internalInterfaces: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
