{{- define "platform.environment" -}}
- name: PLATFORM_STORE
  valueFrom: { secretKeyRef: { name: {{ .Values.secret }}, key: store } }
- name: PLATFORM_KEY_ENCRYPTION_KEY
  valueFrom: { secretKeyRef: { name: {{ .Values.secret }}, key: key-encryption-key } }
- name: PLATFORM_PUBLIC_URL
  value: {{ required "set publicUrl" .Values.publicUrl | quote }}
- name: PLATFORM_LISTEN
  value: 0.0.0.0:8080
- name: PLATFORM_BLOBS
  value: /var/lib/platform/blobs
- name: PLATFORM_STOP_DELAY
  value: 5s
{{- range $name, $value := .Values.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
