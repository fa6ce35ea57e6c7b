{{- define "llmservice-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "llmservice-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "llmservice-operator.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "llmservice-operator.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "llmservice-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "llmservice-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "llmservice-operator.labels" -}}
{{ include "llmservice-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: llmservice-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "llmservice-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "llmservice-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is empty and serviceAccount.create is false: name an account" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "llmservice-operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "llmservice-operator.namespaced" -}}
{{- if .Values.watchNamespaces }}true{{ end }}
{{- end }}

{{/* What the operator does in each namespace that it looks after. Secrets are not in it, on purpose. */}}
{{- define "llmservice-operator.namespaceRules" -}}
- apiGroups: [llmservice.dev]
  resources: [llmservices]
  verbs: [get, list, watch]
- apiGroups: [llmservice.dev]
  resources: [llmservices/status]
  verbs: [patch]
# Owner references that block the owner's deletion need this where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [llmservice.dev]
  resources: [llmservices/finalizers]
  verbs: [update]
# Old revisions are all that the operator deletes; the rest goes with its LLMService, by owner references.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [create, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, get, list, patch, watch]
- apiGroups: [""]
  resources: [services, persistentvolumeclaims]
  verbs: [create, get, list, patch, watch]
# Patched when fewer replicas are wanted: the annotation by which the emptiest goes first.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch, watch]
# spec.model.configMap: read one by one, never listed.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* A cluster-wide operator beside another one would fight it over the same services. */}}
{{- define "llmservice-operator.refuseASecond" -}}
{{- if not (include "llmservice-operator.namespaced" .) }}
{{- range (lookup "apps/v1" "Deployment" "" "").items }}
{{- $labels := default dict .metadata.labels }}
{{- if and (eq (default "" (get $labels "app.kubernetes.io/part-of")) "llmservice-operator") (not (and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name (include "llmservice-operator.fullname" $)))) }}
{{- fail (printf "Deployment %s/%s is another llmservice-operator: set watchNamespaces here and there, or uninstall it first" .metadata.namespace .metadata.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
