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

{{/* A Service's name is a DNS label: 63 characters. */}}
{{- define "llmservice-operator.metricsServiceName" -}}
{{- include "llmservice-operator.fullname" . | trunc 55 | trimSuffix "-" }}-metrics
{{- end }}

{{- define "llmservice-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "llmservice-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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

{{/* An image by way of `imageRegistry`: its own registry, where it names one, is replaced. Takes root and image. */}}
{{- define "llmservice-operator.fromRegistry" -}}
{{- $parts := splitList "/" .image }}
{{- $first := first $parts }}
{{- if not .root.Values.imageRegistry }}
{{- .image }}
{{- else if and (gt (len $parts) 1) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- printf "%s/%s" .root.Values.imageRegistry (join "/" (rest $parts)) }}
{{- else }}
{{- printf "%s/%s" .root.Values.imageRegistry .image }}
{{- end }}
{{- end }}

{{- define "llmservice-operator.image" -}}
{{- $image := printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- with .Values.image.digest }}
{{- $image = printf "%s@%s" $.Values.image.repository . }}
{{- end }}
{{- include "llmservice-operator.fromRegistry" (dict "root" . "image" $image) }}
{{- end }}

{{- define "llmservice-operator.engineImages" -}}
{{- $images := dict }}
{{- range $row, $image := .Values.engineImages }}
{{- $_ := set $images $row (include "llmservice-operator.fromRegistry" (dict "root" $ "image" $image)) }}
{{- end }}
{{- $images | toJson }}
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

{{/*
Two operators would fight over the same services. A cluster-wide one looks for any other; a namespaced one, whose
installer may see no more than its namespaces, for another's Role in those.
*/}}
{{- define "llmservice-operator.refuseASecond" -}}
{{- if not (include "llmservice-operator.namespaced" .) }}
{{- range (lookup "apps/v1" "Deployment" "" "").items }}
{{- $labels := default dict .metadata.labels }}
{{- if and (eq (default "" (get $labels "app.kubernetes.io/part-of")) "llmservice-operator") (not (and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name (include "llmservice-operator.fullname" $)))) }}
{{- fail (printf "Deployment %s/%s is another llmservice-operator: set watchNamespaces here and there, or uninstall it first" .metadata.namespace .metadata.name) }}
{{- end }}
{{- end }}
{{- else if .Values.rbac.create }}
{{- range $namespace := .Values.watchNamespaces }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "Role" $namespace "").items }}
{{- $said := merge (dict) (default dict .metadata.annotations) (default dict .metadata.labels) }}
{{- $name := get $said "meta.helm.sh/release-name" }}
{{- $home := get $said "meta.helm.sh/release-namespace" }}
{{- if and (eq (toString (get $said "app.kubernetes.io/part-of")) "llmservice-operator") (not (hasSuffix "-leader" .metadata.name)) (not (and (eq $name $.Release.Name) (eq $home $.Release.Namespace))) }}
{{- fail (printf "namespace %s is looked after by the release %s in namespace %s: take it out of watchNamespaces here or there" $namespace $name $home) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Whether an object of the Prometheus operator is wanted: "true", or empty. Takes root, switch (true, false or auto),
value (the switch's name) and kind. An explicit true where the kind is unknown would fail half-way: it is refused here.
*/}}
{{- define "llmservice-operator.monitored" -}}
{{- $versions := .root.Capabilities.APIVersions }}
{{- $known := $versions.Has (printf "monitoring.coreos.com/v1/%s" .kind) }}
{{- /* `helm template --api-versions` may name the group's version alone, which a cluster without that kind does too. */}}
{{- if not (or $known ($versions.Has "monitoring.coreos.com/v1/ServiceMonitor") ($versions.Has "monitoring.coreos.com/v1/PodMonitor") ($versions.Has "monitoring.coreos.com/v1/PrometheusRule")) }}
{{- $known = $versions.Has "monitoring.coreos.com/v1" }}
{{- end }}
{{- if eq (toString .switch) "true" }}
{{- if not $known }}
{{- fail (printf "%s is true, and this cluster has no %s (monitoring.coreos.com/v1): install the Prometheus operator first, or leave it at auto; `helm template` needs --api-versions monitoring.coreos.com/v1" .value .kind) }}
{{- end }}
{{- print "true" }}
{{- else if and (eq (toString .switch) "auto") $known }}
{{- print "true" }}
{{- end }}
{{- end }}

{{/* Labels of objects that Prometheus' operator or Grafana's sidecar picks up by labels of their own. */}}
{{- define "llmservice-operator.pickedUpLabels" -}}
{{ toYaml (merge (dict) .labels (include "llmservice-operator.labels" .root | fromYaml)) }}
{{- end }}

{{/* The port of a URL, its scheme's where it names none. */}}
{{- define "llmservice-operator.urlPort" -}}
{{- $url := urlParse . }}
{{- $port := regexFind ":[0-9]+$" $url.host }}
{{- if $port }}{{ trimPrefix ":" $port }}{{ else if eq $url.scheme "http" }}80{{ else }}443{{ end }}
{{- end }}

{{/* Values that contradict each other, which a schema cannot tell. */}}
{{- define "llmservice-operator.refuseContradictions" -}}
{{- if and .Values.caBundle.configMap .Values.caBundle.secret }}
{{- fail (printf "caBundle.configMap is %s and caBundle.secret is %s: name one of them" .Values.caBundle.configMap .Values.caBundle.secret) }}
{{- end }}
{{- if and .Values.prometheus.tokenSecret.name (not .Values.prometheus.url) }}
{{- fail (printf "prometheus.tokenSecret.name is %s and prometheus.url is empty: set the second, or leave the first out" .Values.prometheus.tokenSecret.name) }}
{{- end }}
{{- if and (eq (toString .Values.metrics.serviceMonitor.enabled) "true") (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled is true and metrics.service.enabled is false: a ServiceMonitor needs the Service; set the second to true" }}
{{- end }}
{{- if and .Values.metrics.service.enabled (regexMatch "^[0-9]" (include "llmservice-operator.fullname" .)) }}
{{- fail (printf "the release's name, %s, begins with a digit, and a Service's may not: set fullnameOverride" .Release.Name) }}
{{- end }}
{{- $proxies := dict "HTTP_PROXY" .Values.proxy.http "HTTPS_PROXY" .Values.proxy.https "NO_PROXY" (or .Values.proxy.http .Values.proxy.https) "SSL_CERT_FILE" (or .Values.caBundle.configMap .Values.caBundle.secret) }}
{{- range .Values.extraEnv }}
{{- if get $proxies .name }}
{{- fail (printf "extraEnv sets %s, which proxy or caBundle sets too: leave one of them out" .name) }}
{{- end }}
{{- if and .value .valueFrom }}
{{- fail (printf "extraEnv has a value and a valueFrom for %s: leave one of them out" .name) }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicies.engines.enabled (not .Values.networkPolicies.engines.namespaces) (not .Values.watchNamespaces) }}
{{- fail "networkPolicies.engines.enabled is true, and no namespace is known: name them in networkPolicies.engines.namespaces" }}
{{- end }}
{{- end }}

{{/* The fields of a schema, one path a line. Takes schema and path. */}}
{{- define "llmservice-operator.fieldPaths" -}}
{{- range $name, $field := .schema.properties }}
{{ $.path }}.{{ $name }}
{{- if $field.properties }}
{{- include "llmservice-operator.fieldPaths" (dict "schema" $field "path" (printf "%s.%s" $.path $name)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A CRD that others look after, and that is older than this release, would drop what services say. */}}
{{- define "llmservice-operator.refuseOlderCRDs" -}}
{{- if not (or .Values.crds.install (include "llmservice-operator.namespaced" .)) }}
{{- range $path, $_ := .Files.Glob "files/*.yaml" }}
{{- $ours := $.Files.Get $path | fromYaml }}
{{- $theirs := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $ours.metadata.name }}
{{- if $theirs }}
{{- $known := include "llmservice-operator.fieldPaths" (dict "schema" (first $theirs.spec.versions).schema.openAPIV3Schema "path" "") | splitList "\n" }}
{{- range include "llmservice-operator.fieldPaths" (dict "schema" (first $ours.spec.versions).schema.openAPIV3Schema "path" "") | splitList "\n" }}
{{- if not (has . $known) }}
{{- fail (printf "the CRD %s in this cluster is of an older release: it lacks %s. Apply the crds/ of this release first, or set crds.install to true" $ours.metadata.name (trimPrefix "." .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
