package kubernetes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/runner"
)

// Names of the containers of a pod.
const (
	wayName  = "way"
	taskName = "task"
	sideName = "side" // followed by a number from 0
)

// Labels and annotations of pods. Values of labels have at most 63 characters and no colon, so labels have hashes.
const (
	labelKind        = "ramus.dev/container" // task or sidecar
	labelOwner       = "ramus.dev/owner"
	annotationOwner  = "ramus.dev/owner"
	annotationKey    = "ramus.dev/key"
	annotationLabels = "ramus.dev/labels" // JSON
	annotationImage  = "ramus.dev/image"

	poolKey = "pool:" // the beginning of the key of a container that waits in the pool
)

const (
	kindTask    = "task"
	kindSidecar = "sidecar"
)

// taskUID and taskGID are the user and the group of commands, as in the task image.
const taskUID, taskGID = 1000, 1000

// maxArgument is the kernel's limit for one argument (MAX_ARG_STRLEN).
const maxArgument = 128 << 10

// lastLines has a pod say why a container could not start: the last lines that it wrote.
const lastLines = "FallbackToLogsOnError"

// sidecarLife bounds the life of a pod of a sidecar whose ramus is gone for good.
const sidecarLife = 24 * time.Hour

// diskSpare is the least space beyond limits.disk with which Kubernetes ends the whole pod. The fleet measures every ten
// seconds if there are few containers, and ends the commands alone.
const diskSpare = 4 << 30

// diskLimit returns the space with which Kubernetes ends a pod.
func diskLimit(disk int64) int64 { return disk + max(disk/5, diskSpare) }

func hash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// podName returns a name that people recognise, and that is new. A pod's name is the label of a host name.
func podName(key string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(key) {
		if r < 'a' || r > 'z' {
			if r < '0' || r > '9' {
				r = '-'
			}
		}
		if b.Len() < 40 {
			b.WriteRune(r)
		}
	}
	return "ramus-" + strings.Trim(b.String(), "-") + "-" + strings.ToLower(rand.Text()[:10])
}

func ptr[T any](v T) *T { return &v }

// template has the operator's part of all pods.
type template struct {
	labels, annotations map[string]string
	spec                podSpec // only the fields that a template may have
}

// templateFields are the fields of a PodTemplate's spec that pods take over. A template has to have containers, which
// are ignored.
var templateFields = map[string]bool{"nodeSelector": true, "affinity": true, "tolerations": true,
	"imagePullSecrets": true,
	"runtimeClassName": true, "priorityClassName": true, "schedulerName": true, "topologySpreadConstraints": true}

// templateDefaults are fields that the API server adds to each template.
var templateDefaults = map[string]bool{"containers": true, "restartPolicy": true, "terminationGracePeriodSeconds": true,
	"dnsPolicy": true, "securityContext": true}

// newTemplate checks a PodTemplate. A field that would weaken the walls of a pod, as hostNetwork, is refused.
func newTemplate(t podTemplate) (template, error) {
	allowed := map[string]json.RawMessage{}
	for name, value := range t.Template.Spec {
		switch {
		case templateFields[name]:
			allowed[name] = value
		case !templateDefaults[name]:
			return template{}, fmt.Errorf("its field %s is not one that pods of ramus take over", name)
		}
	}
	b, err := json.Marshal(allowed)
	if err != nil {
		return template{}, err
	}
	out := template{labels: t.Template.Metadata.Labels, annotations: t.Template.Metadata.Annotations}
	return out, json.Unmarshal(b, &out.spec)
}

// hosts has a container use the file of names that the first container writes.
var hosts = mount{Name: "bin", MountPath: "/etc/hosts", SubPath: "hosts", ReadOnly: true}

// recipe makes the pod of a container. runtime is the image of the first container, sides the sidecars that stand
// ready.
type recipe struct {
	namespace string
	runtime   string
	userNS    bool
	template  template
	sides     int
	side      Side
	requests  Requests
}

// base returns a pod with its first container.
func (r recipe) base(key, kind, owner string) *pod {
	p := &pod{APIVersion: "v1", Kind: "Pod", Metadata: meta{Name: podName(key), Namespace: r.namespace,
		Labels: map[string]string{}, Annotations: map[string]string{}}, Spec: r.template.spec}
	maps.Copy(p.Metadata.Labels, r.template.labels)
	maps.Copy(p.Metadata.Annotations, r.template.annotations)
	p.Metadata.Labels[labelKind], p.Metadata.Labels[labelOwner] = kind, hash(owner)
	p.Metadata.Annotations[annotationOwner], p.Metadata.Annotations[annotationKey] = owner, key
	s := &p.Spec
	s.RestartPolicy, s.Hostname = "Never", "task"
	s.AutomountServiceAccountToken, s.EnableServiceLinks, s.HostUsers = ptr(false), ptr(false), ptr(!r.userNS)
	s.TerminationGracePeriodSeconds = ptr(int64(0))
	s.DNSPolicy, s.DNSConfig = "None", &dnsConfig{Nameservers: []string{"127.0.0.1"}}
	s.SecurityContext = &podSecurity{SeccompProfile: &seccomp{Type: "RuntimeDefault"}}
	// A node that does not answer loses its pods soon, because their work begins again elsewhere.
	for _, taint := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		s.Tolerations = append(slices.Clip(s.Tolerations),
			map[string]any{"key": taint, "operator": "Exists", "effect": "NoExecute",
				"tolerationSeconds": 30})
	}
	first := "serve"
	if kind == kindSidecar {
		first = "hold" // there is no runner
	}
	s.Containers = []container{{
		Name: wayName, Image: r.runtime, ImagePullPolicy: "IfNotPresent", Command: []string{way.Image, "way", first},
		Lifecycle:    &lifecycle{PostStart: &handler{execAction{[]string{way.Image, "way", "prepare", way.Bin}}}},
		VolumeMounts: []mount{{Name: "bin", MountPath: way.Bin}},
		SecurityContext: &security{RunAsUser: ptr(int64(0)), RunAsGroup: ptr(int64(0)),
			AllowPrivilegeEscalation: ptr(false),
			ReadOnlyRootFilesystem:   ptr(true),
			// It seals the network, and measures folders of the commands' user.
			Capabilities: &capabilities{Drop: []string{"ALL"}, Add: []string{"NET_ADMIN", "DAC_READ_SEARCH"}}},
		TerminationMessagePolicy: lastLines,
		Resources: resources{Limits: map[string]string{"memory": "64Mi"},
			Requests: map[string]string{"memory": "16Mi", "cpu": "5m"}},
	}}
	s.Volumes = []volume{{Name: "bin"}}
	return p
}

// task returns the pod of a container. image is the name in the pod.
func (r recipe) task(s containers.Spec, image string) (*pod, error) {
	l := s.Limits.WithDefaults()
	config, err := runnerConfig(s, l)
	if err != nil {
		return nil, err
	}
	labels, err := json.Marshal(s.Labels)
	if err != nil {
		return nil, err
	}
	p := r.base(s.Key, kindTask, s.Owner)
	p.Metadata.Annotations[annotationLabels], p.Metadata.Annotations[annotationImage] = string(labels), image
	shared := []mount{{Name: "run", MountPath: way.Run}, {Name: "spool", MountPath: way.Spool},
		{Name: "work", MountPath: containers.WorkDir}, {Name: "artifacts", MountPath: containers.ArtifactsDir},
		{Name: "cache", MountPath: containers.CacheDir}}
	p.Spec.Containers[0].VolumeMounts = append(append(p.Spec.Containers[0].VolumeMounts, shared...),
		mount{Name: "tmp", MountPath: way.Tmp})
	limits := map[string]string{"memory": bytesOf(l.Memory), "cpu": milli(l.CPUs)}
	requests := map[string]string{"memory": bytesOf(min(r.requests.memory(), l.Memory)),
		"cpu": milli(math.Min(r.requests.cpus(), l.CPUs))}
	disk := emptyDir{}
	if l.Disk > 0 {
		disk.SizeLimit = bytesOf(diskLimit(l.Disk))
		limits["ephemeral-storage"], requests["ephemeral-storage"] = disk.SizeLimit, "64Mi"
	}
	p.Spec.Containers = append(p.Spec.Containers, container{
		Name: taskName, Image: image, ImagePullPolicy: "IfNotPresent", WorkingDir: "/",
		Command: []string{way.Program, "runner", config},
		SecurityContext: &security{RunAsUser: ptr(int64(0)), RunAsGroup: ptr(int64(0)),
			AllowPrivilegeEscalation: ptr(false),
			ReadOnlyRootFilesystem:   ptr(true),
			// The runner needs these to become the user of commands, to end commands, and to take over its folders.
			Capabilities: &capabilities{Drop: []string{"ALL"},
				Add: []string{"SETUID", "SETGID", "KILL", "CHOWN", "SETPCAP"}}},
		TerminationMessagePolicy: lastLines,
		Resources:                resources{Limits: limits, Requests: requests},
		VolumeMounts: append([]mount{{Name: "bin", MountPath: way.Bin, ReadOnly: true},
			{Name: "bin", MountPath: containers.RunnerProgram, SubPath: "ramus-runner", ReadOnly: true},
			{Name: "bin", MountPath: containers.Program, SubPath: "ramus-runner", ReadOnly: true}, hosts,
			{Name: "tmp", MountPath: "/tmp"}}, shared...),
	})
	p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: "run",
		EmptyDir: emptyDir{Medium: "Memory", SizeLimit: "64Ki"}},
		volume{Name: "tmp", EmptyDir: emptyDir{Medium: "Memory", SizeLimit: bytesOf(l.Tmp)}},
		volume{Name: "spool", EmptyDir: disk}, volume{Name: "work", EmptyDir: disk},
		volume{Name: "artifacts", EmptyDir: disk}, volume{Name: "cache", EmptyDir: disk})
	for n := range r.sides {
		r.addSide(p, n)
	}
	return p, nil
}

// sidecar returns a pod for a sidecar that has a network of its own.
func (r recipe) sidecar(key, owner string) *pod {
	p := r.base(key, kindSidecar, owner)
	p.Spec.ActiveDeadlineSeconds = ptr(int64(sidecarLife / time.Second))
	r.addSide(p, 0)
	return p
}

// addSide adds a container in which sidecars run one after another.
func (r recipe) addSide(p *pod, n int) {
	l := containers.Sidecar{Limits: r.side.Limits}.Bounds()
	name := sideName + strconv.Itoa(n)
	p.Spec.Containers = append(p.Spec.Containers, container{
		Name: name, Image: r.side.Image, ImagePullPolicy: "IfNotPresent", WorkingDir: "/",
		Command: []string{way.Program, "way", "hold"},
		SecurityContext: &security{RunAsUser: ptr(int64(taskUID)), RunAsGroup: ptr(int64(taskGID)),
			AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
			Capabilities: &capabilities{Drop: []string{"ALL"}}},
		Resources: resources{Limits: map[string]string{"memory": bytesOf(l.Memory), "cpu": milli(l.CPUs)},
			Requests: map[string]string{"memory": "16Mi", "cpu": "5m"}},
		VolumeMounts: []mount{{Name: "bin", MountPath: way.Bin, ReadOnly: true}, hosts,
			{Name: name, MountPath: "/tmp"}},
	})
	p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: name,
		EmptyDir: emptyDir{Medium: "Memory", SizeLimit: bytesOf(l.Tmp)}})
}

// runnerConfig returns the configuration of the runner, as JSON.
func runnerConfig(s containers.Spec, l containers.Limits) (string, error) {
	b, err := json.Marshal(runner.Config{
		Listen: "unix:" + way.Socket, ClientKey: s.ClientKey, UID: taskUID, GID: taskGID,
		Spool: way.Spool, Work: containers.WorkDir, DoorFolder: containers.DoorFolder,
		Env: s.Env, Output: l.Output, FileSize: l.FileSize, DiskFree: l.DiskFree, PIDs: l.PIDs,
		UserPIDs: true, Sealed: true, Idle: way.SessionWait + time.Minute, Alive: way.Program,
		Without: []string{"KUBERNETES_"},
	})
	if err == nil && len(b) >= maxArgument {
		err = fmt.Errorf("the environment takes %d bytes; %d are possible", len(b), maxArgument)
	}
	return string(b), err
}

func bytesOf(n int64) string    { return strconv.FormatInt(n, 10) }
func milli(cpus float64) string { return strconv.FormatInt(max(1, int64(cpus*1000)), 10) + "m" }
