package kubernetes

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/ramus-dev/ramus/internal/text"
)

// The fields of objects that this package uses, in the names of the API.

type meta struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
}

type pod struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   meta      `json:"metadata"`
	Spec       podSpec   `json:"spec"`
	Status     podStatus `json:"status,omitzero"`
}

type podSpec struct {
	RestartPolicy                 string       `json:"restartPolicy,omitempty"`
	AutomountServiceAccountToken  *bool        `json:"automountServiceAccountToken,omitempty"`
	EnableServiceLinks            *bool        `json:"enableServiceLinks,omitempty"`
	HostUsers                     *bool        `json:"hostUsers,omitempty"`
	HostNetwork                   bool         `json:"hostNetwork,omitempty"`
	TerminationGracePeriodSeconds *int64       `json:"terminationGracePeriodSeconds,omitempty"`
	ActiveDeadlineSeconds         *int64       `json:"activeDeadlineSeconds,omitempty"`
	Hostname                      string       `json:"hostname,omitempty"`
	NodeName                      string       `json:"nodeName,omitempty"`
	DNSPolicy                     string       `json:"dnsPolicy,omitempty"`
	DNSConfig                     *dnsConfig   `json:"dnsConfig,omitempty"`
	RuntimeClassName              string       `json:"runtimeClassName,omitempty"`
	SecurityContext               *podSecurity `json:"securityContext,omitempty"`
	Containers                    []container  `json:"containers"`
	Volumes                       []volume     `json:"volumes,omitempty"`
	Tolerations                   []any        `json:"tolerations,omitempty"`

	// The fields of the operator's PodTemplate, as they are there.
	NodeSelector              map[string]string `json:"nodeSelector,omitempty"`
	Affinity                  json.RawMessage   `json:"affinity,omitempty"`
	ImagePullSecrets          json.RawMessage   `json:"imagePullSecrets,omitempty"`
	PriorityClassName         string            `json:"priorityClassName,omitempty"`
	SchedulerName             string            `json:"schedulerName,omitempty"`
	TopologySpreadConstraints json.RawMessage   `json:"topologySpreadConstraints,omitempty"`
}

type dnsConfig struct {
	Nameservers []string `json:"nameservers"`
}

type podSecurity struct {
	SeccompProfile *seccomp `json:"seccompProfile,omitempty"`
	FSGroup        *int64   `json:"fsGroup,omitempty"`
}

type seccomp struct {
	Type string `json:"type"`
}

type container struct {
	Name            string     `json:"name"`
	Image           string     `json:"image"`
	ImagePullPolicy string     `json:"imagePullPolicy,omitempty"`
	Command         []string   `json:"command,omitempty"`
	WorkingDir      string     `json:"workingDir,omitempty"`
	Env             []variable `json:"env,omitempty"`
	Lifecycle       *lifecycle `json:"lifecycle,omitempty"`
	SecurityContext *security  `json:"securityContext,omitempty"`
	Resources       resources  `json:"resources,omitzero"`
	// TerminationMessagePolicy says where the message of a container that ended comes from.
	TerminationMessagePolicy string  `json:"terminationMessagePolicy,omitempty"`
	VolumeMounts             []mount `json:"volumeMounts,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type lifecycle struct {
	PostStart *handler `json:"postStart,omitempty"`
}

type handler struct {
	Exec execAction `json:"exec"`
}

type execAction struct {
	Command []string `json:"command"`
}

type security struct {
	RunAsUser                *int64        `json:"runAsUser,omitempty"`
	RunAsGroup               *int64        `json:"runAsGroup,omitempty"`
	AllowPrivilegeEscalation *bool         `json:"allowPrivilegeEscalation,omitempty"`
	ReadOnlyRootFilesystem   *bool         `json:"readOnlyRootFilesystem,omitempty"`
	Capabilities             *capabilities `json:"capabilities,omitempty"`
}

type capabilities struct {
	Drop []string `json:"drop,omitempty"`
	Add  []string `json:"add,omitempty"`
}

type resources struct {
	Limits   map[string]string `json:"limits,omitempty"`
	Requests map[string]string `json:"requests,omitempty"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type volume struct {
	Name     string   `json:"name"`
	EmptyDir emptyDir `json:"emptyDir"`
}

type emptyDir struct {
	Medium    string `json:"medium,omitempty"`
	SizeLimit string `json:"sizeLimit,omitempty"`
}

type podStatus struct {
	Phase             string            `json:"phase,omitempty"`
	Reason            string            `json:"reason,omitempty"`
	Message           string            `json:"message,omitempty"`
	Conditions        []condition       `json:"conditions,omitempty"`
	ContainerStatuses []containerStatus `json:"containerStatuses,omitempty"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type containerStatus struct {
	Name    string `json:"name"`
	ImageID string `json:"imageID"`
	State   struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Terminated *struct {
			ExitCode int    `json:"exitCode"`
			Reason   string `json:"reason"`
			Message  string `json:"message"`
		} `json:"terminated"`
	} `json:"state"`
}

type podList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []pod `json:"items"`
}

// podTemplate is the operator's object of that kind. Other fields of its spec are refused by name.
type podTemplate struct {
	Template struct {
		Metadata meta                       `json:"metadata"`
		Spec     map[string]json.RawMessage `json:"spec"`
	} `json:"template"`
}

// ended reports whether the containers of a pod do not run and will not run again, and why.
func (p *pod) ended() (why string, ended bool) {
	switch {
	case p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded":
		return p.why(), true
	case p.Metadata.DeletionTimestamp != nil:
		if why := p.why(); why != "" {
			return why, true
		}
		return "it is being deleted", true
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil && (c.Name == taskName || c.Name == wayName) {
			return p.why(), true
		}
	}
	return "", false
}

// why returns why a pod ended, in the words of the cluster.
func (p *pod) why() string {
	for _, c := range p.Status.Conditions {
		if c.Type == "DisruptionTarget" && c.Status == "True" {
			return join(c.Reason, c.Message)
		}
	}
	if p.Status.Reason != "" {
		return join(p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return "its container " + c.Name + " ended: " + join(t.Reason, t.Message)
		}
	}
	return ""
}

// noImage returns why a container has no image, with the image's name, and reports whether it will never have one. Returns "" if no
// container waits for its image.
func (p *pod) noImage() (why string, never bool) {
	_, ended := p.ended()
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
			"SignatureValidationFailed", "InvalidImageName":
			why = "no image for its container " + c.Name + ": " + join(p.image(c.Name)+": "+w.Reason, w.Message)
			// Without the image of the first container no container has its program, so the others end at once.
			return why, ended || w.Reason == "InvalidImageName"
		}
	}
	return "", false
}

// image returns the name of a container's image.
func (p *pod) image(name string) string {
	for _, c := range p.Spec.Containers {
		if c.Name == name {
			return c.Image
		}
	}
	return "of no name"
}

// waits returns why a pod does not run yet, and whether that needs a person.
func (p *pod) waits() (why string, stuck bool) {
	if why, _ := p.noImage(); why != "" {
		return why, true
	}
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ContainerCreating", "PodInitializing", "":
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError":
			return "container " + c.Name + ": " + join(w.Reason, w.Message), true
		default:
			why = "container " + c.Name + ": " + join(w.Reason, w.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return join(c.Reason, c.Message), false
		}
	}
	return why, false
}

// roomless reports whether no node has room for a pod.
func (p *pod) roomless() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" && c.Reason == "Unschedulable" {
			return true
		}
	}
	return false
}

const maxReason = 500 // bytes of the cluster's words in an error

// join makes one line of a reason and a message. The message may come from a hostile container.
func join(reason, message string) string {
	if message != "" {
		reason += ": " + message
	}
	words := strings.FieldsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) && r != ' ' })
	return text.Clip(strings.Join(words, " "), maxReason)
}
