{{- define "whet.container" -}}
image: {{ .Values.image | quote }}
envFrom:
  - secretRef: {name: {{ .Values.secretName | quote }}}
env:
  - {name: WHET_STORE_URL, value: {{ .Values.storeUrl | quote }}}
  - {name: WHET_MODEL_PROVIDER, value: {{ .Values.modelProvider | quote }}}
workingDir: /workspace
volumeMounts:
  - {name: workspace, mountPath: /workspace}
  - {name: home, mountPath: /home/whet/.whet}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 1000}
{{- end -}}
{{- define "whet.volumes" -}}
- name: workspace
  persistentVolumeClaim: {claimName: {{ .Values.workspaceClaim | quote }}}
- name: home
  persistentVolumeClaim: {claimName: {{ .Values.homeClaim | quote }}}
{{- end -}}
