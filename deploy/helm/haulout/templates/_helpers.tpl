{{/* Labels of all objects. */}}
{{- define "haulout.labels" -}}
{{- include "haulout.labelsAnd" (list . dict) -}}
{{- end }}

{{/* Labels of all objects, and additional ones: (list . ADDITIONAL) */}}
{{- define "haulout.labelsAnd" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63)
  "app.kubernetes.io/name" "haulout"
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" ($root.Chart.AppVersion | toString)
  "app.kubernetes.io/managed-by" $root.Release.Service
-}}
{{- toYaml (merge (dict) $labels (index . 1) $root.Values.commonLabels) -}}
{{- end }}

{{/* Labels of pods. They include those by which users and tools select the Node Maintenance Operator. */}}
{{- define "haulout.podLabels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" "haulout"
  "app.kubernetes.io/instance" .Release.Name
  "control-plane" "controller-manager"
  "node-maintenance-operator" ""
-}}
{{- toYaml (merge (dict) $labels .Values.podLabels .Values.commonLabels) -}}
{{- end }}

{{/* Environment variables are read at the start, so a change must roll out new pods. A maintenance.yaml is reloaded. */}}
{{- define "haulout.podAnnotations" -}}
{{- toYaml (merge (dict "checksum/clouds" (include "haulout.clouds" . | sha256sum)) .Values.podAnnotations) -}}
{{- end }}

{{- define "haulout.clouds" -}}
{{- toYaml .Values.clouds.env -}}
{{- end }}

{{- define "haulout.image" -}}
{{- $image := .Values.image -}}
{{- $name := $image.repository -}}
{{- if $image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name }}{{ end -}}
{{- $tag := default .Chart.AppVersion $image.tag | toString -}}
{{- if $image.variant }}{{ $tag = printf "%s-%s" $tag $image.variant }}{{ end -}}
{{- if $image.digest }}{{ printf "%s@%s" $name $image.digest }}{{ else }}{{ printf "%s:%s" $name $tag }}{{ end -}}
{{- end }}

{{/* The argument --webhook: the source of the webhook's certificate. */}}
{{- define "haulout.webhook" -}}
{{- if not .Values.webhook.enabled }}off
{{- else if eq .Values.webhook.certificate.from "self" }}self
{{- else }}folder:/certificates
{{- end }}
{{- end }}

{{- define "haulout.issuesCertificate" -}}
{{- if eq (include "haulout.webhook" .) "self" }}true{{ end -}}
{{- end }}

{{/* Whether this release creates a namespace: (list . NAME). It does not if the namespace exists and is not its own. */}}
{{- define "haulout.createsNamespace" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- if ne $name $root.Release.Namespace -}}
{{- $there := lookup "v1" "Namespace" "" $name -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there -}}
{{- $home := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $there -}}
{{- if or (not $there) (and (eq $owner $root.Release.Name) (eq $home $root.Release.Namespace)) }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* The maintenance.yaml of the values, as text. */}}
{{- define "haulout.configuration" -}}
{{- $config := .Values.profiles.config -}}
{{- if and $config .Values.profiles.existingConfigMap -}}
{{- fail "profiles.config and profiles.existingConfigMap are both set: set one of them" -}}
{{- end -}}
{{- if kindIs "map" $config }}{{ toYaml $config }}{{ else if $config }}{{ $config }}{{ end -}}
{{- end }}

{{/* The maintenance.yaml of the values, as JSON. */}}
{{- define "haulout.file" -}}
{{- $file := include "haulout.configuration" . | fromYaml -}}
{{- if and (hasKey $file "Error") (not (hasKey $file "profiles")) -}}
{{- fail (printf "profiles.config is not valid YAML: %s; run `haulout check` for details" $file.Error) -}}
{{- end -}}
{{- toJson $file -}}
{{- end }}

{{/* The instances of a plugin in the maintenance.yaml, as JSON: (list . TYPE) */}}
{{- define "haulout.instances" -}}
{{- $type := index . 1 -}}
{{- $file := include "haulout.file" (index . 0) | fromJson -}}
{{- $found := list -}}
{{- range $family, $instances := default dict $file.instances -}}
{{- range $instance := $instances -}}
{{- if eq (toString $instance.type) $type }}{{ $found = append $found $instance }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "haulout.uses" -}}
{{- if include "haulout.instances" . | fromJsonArray }}true{{ end -}}
{{- end }}

{{- define "haulout.hasBudget" -}}
{{- if (include "haulout.file" . | fromJson).budget }}true{{ end -}}
{{- end }}

{{/* Whether to grant what most plugins need, because the configured ones are unknown or the values say so. */}}
{{- define "haulout.usualProfiles" -}}
{{- if or .Values.profiles.existingConfigMap (eq .Values.profiles.permissions "usual") }}true{{ end -}}
{{- end }}

{{/* Whether profiles or controllers evict pods, and record Events about them. The default profile does. */}}
{{- define "haulout.recordsPodEvents" -}}
{{- $drains := not (omit (include "haulout.file" . | fromJson) "budget") -}}
{{- range $instance := include "haulout.instances" (list . "eviction") | fromJsonArray -}}
{{- if eq (toString (default dict $instance.config).action) "drain" }}{{ $drains = true }}{{ end -}}
{{- end -}}
{{- if or $drains .Values.kubernikus.enabled .Values.esx.enabled (include "haulout.usualProfiles" .) }}true{{ end -}}
{{- end }}

{{/* Whether profiles cordon nodes. The default profile does. */}}
{{- define "haulout.cordonsByProfile" -}}
{{- $cordons := not (omit (include "haulout.file" . | fromJson) "budget") -}}
{{- range $instance := include "haulout.instances" (list . "eviction") | fromJsonArray -}}
{{- if ne (toString (default dict $instance.config).action) "uncordon" }}{{ $cordons = true }}{{ end -}}
{{- end -}}
{{- if $cordons }}true{{ end -}}
{{- end }}

{{/* Whether pods that cannot be evicted may be deleted: by rbac.podDeletion, or by a drain of the profiles. */}}
{{- define "haulout.deletesPods" -}}
{{- $deletes := .Values.rbac.podDeletion -}}
{{- range $instance := include "haulout.instances" (list . "eviction") | fromJsonArray -}}
{{- $config := default dict $instance.config -}}
{{- if eq (toString $config.action) "drain" -}}
{{- $drain := default dict $config.drain -}}
{{- if or $config.forceEviction $drain.disableEviction $drain.forceDelete }}{{ $deletes = true }}{{ end -}}
{{- range $limits := prepend (default list $drain.rules) $drain -}}
{{- if hasKey $limits "evictionTimeout" }}{{ $deletes = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $deletes }}true{{ end -}}
{{- end }}
