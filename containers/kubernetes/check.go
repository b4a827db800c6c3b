package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
)

// permission is a right that the engine needs in its namespace.
type permission struct {
	resource, subresource string
	verbs                 []string
}

// permissions are all rights of the engine. A Role with more gives more than ramus uses.
var permissions = []permission{
	{"pods", "", []string{"create", "get", "list", "watch", "patch", "delete"}},
	// Exec by WebSocket is a GET. Newer API servers ask for create as well.
	{"pods", "exec", []string{"get", "create"}},
}

// Check reports whether the engine can start containers: the API server answers, the credential has its rights in the
// namespace, and the namespace admits a pod like those of containers. It starts none. The error names all problems at
// once.
func (e *Engine) Check(ctx context.Context) error {
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	err := e.ask(ctx, shortWait, "reach the cluster", http.MethodGet, "/version", nil, nil, &version)
	if err != nil {
		if errors.Is(err, containers.ErrUnavailable) {
			return fmt.Errorf("%w (kubernetes.kubeconfig names the cluster)", err)
		}
		return err
	}
	lacks, err := e.lackingRights(ctx)
	if err != nil {
		return fmt.Errorf("cannot start containers on Kubernetes %s: %w", version.GitVersion, err)
	}
	var problems []error
	if len(lacks) > 0 {
		problems = append(problems, fmt.Errorf(
			"the credential lacks rights in namespace %s: %s (docs/kubernetes.md has the Role)",
			e.namespace(), strings.Join(lacks, ", ")))
	} else if err := e.admitted(ctx); err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return fmt.Errorf("cannot start containers on Kubernetes %s: %w", version.GitVersion, errors.Join(problems...))
	}
	return nil
}

// lackingRights returns the rights that the credential does not have, as "create pods".
func (e *Engine) lackingRights(ctx context.Context) ([]string, error) {
	needed := permissions
	if e.Template != "" {
		needed = withTemplate()
	}
	var lacks []string
	for _, p := range needed {
		for _, verb := range p.verbs {
			allowed, err := e.may(ctx, verb, "", p.resource, p.subresource)
			if err != nil {
				return nil, err
			}
			if !allowed {
				lacks = append(lacks, verb+" "+strings.TrimSuffix(p.resource+"/"+p.subresource, "/"))
			}
		}
	}
	return lacks, nil
}

// may asks the API server whether the credential has a right in the namespace.
func (e *Engine) may(ctx context.Context, verb, group, resource, subresource string) (bool, error) {
	review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": e.namespace(), "verb": verb,
			"group":    group,
			"resource": resource, "subresource": subresource}}}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := e.ask(ctx, shortWait, "ask for the rights of the credential", http.MethodPost,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review, &answer)
	return answer.Status.Allowed, err
}

// admitted has the API server check a pod without making it.
func (e *Engine) admitted(ctx context.Context) error {
	r, err := e.recipe(ctx)
	if err != nil {
		return err
	}
	image := e.Image
	if image == "" {
		image = e.Runtime
	}
	p, err := r.task(containers.Spec{Key: "check", Owner: "check"}, image)
	if err != nil {
		return err
	}
	err = e.ask(ctx, shortWait, "start a pod in namespace "+e.namespace(), http.MethodPost, e.path("pods"),
		url.Values{"dryRun": {"All"}}, p, nil)
	switch {
	case kube.IsCode(err, http.StatusNotFound):
		return fmt.Errorf("%w (kubectl create namespace %s)", err, e.namespace())
	case kube.IsCode(err, http.StatusForbidden) && strings.Contains(err.Error(), "PodSecurity"):
		// The first container needs CAP_NET_ADMIN, to take the network of its pod away.
		return fmt.Errorf("%w (kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged)", err,
			e.namespace())
	}
	return err
}

// Walls returns which walls around containers the cluster gives, in addition to those that ramus makes, and which it
// does not give, or does not show to the credential. It is for people.
func (e *Engine) Walls(ctx context.Context) (has, lacks []string) {
	has = append(has, "each pod deletes its network interfaces, and its runner does not start while there is one")
	lack := func(format string, args ...any) { lacks = append(lacks, fmt.Sprintf(format, args...)) }

	var policies struct {
		Items []struct {
			Spec struct {
				PodSelector struct {
					MatchLabels      map[string]string `json:"matchLabels"`
					MatchExpressions []any             `json:"matchExpressions"`
				} `json:"podSelector"`
				PolicyTypes []string `json:"policyTypes"`
				Ingress     []any    `json:"ingress"`
				Egress      []any    `json:"egress"`
			} `json:"spec"`
		} `json:"items"`
	}
	err := e.ask(ctx, shortWait, "list network policies", http.MethodGet,
		"/apis/networking.k8s.io/v1/namespaces/"+url.PathEscape(e.namespace())+"/networkpolicies", nil, nil, &policies)
	denied := false
	for _, p := range policies.Items {
		s := p.Spec
		denied = denied || len(s.PodSelector.MatchLabels) == 0 && len(s.PodSelector.MatchExpressions) == 0 &&
			len(s.PolicyTypes) == 2 && len(s.Ingress) == 0 && len(s.Egress) == 0
	}
	switch {
	case err != nil:
		lack("network policies are not known: %v", err)
	case denied:
		has = append(has, "a network policy denies all connections of pods, if the cluster's network enforces policies")
	default:
		lack("no network policy denies all connections in namespace %s", e.namespace())
	}

	if !e.UserNamespaces {
		lack("root in a container is root of its node's kernel, and nothing bounds processes but the kubelet's " +
			"podPidsLimit (kubernetes.user_namespaces is off)")
		return has, lacks
	}
	var nodes struct {
		Items []struct {
			Metadata meta `json:"metadata"`
			Status   struct {
				RuntimeHandlers []struct {
					Features struct {
						UserNamespaces bool `json:"userNamespaces"`
					} `json:"features"`
				} `json:"runtimeHandlers"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := e.ask(ctx, shortWait, "list nodes", http.MethodGet, "/api/v1/nodes",
		url.Values{"limit": {fmt.Sprint(pageSize)}}, nil,
		&nodes); err != nil {
		lack("whether nodes have user namespaces is not known: %v", err)
		return has, lacks
	}
	var without []string
	for _, n := range nodes.Items {
		able := false
		for _, h := range n.Status.RuntimeHandlers {
			able = able || h.Features.UserNamespaces
		}
		if !able {
			without = append(without, n.Metadata.Name)
		}
	}
	if len(without) > 0 {
		// Such a runtime ignores hostUsers without an error.
		lack("nodes give pods no users of their own: %s", strings.Join(without[:min(len(without), 10)], ", "))
	} else {
		has = append(has, "each pod has users of its own")
	}
	return has, lacks
}

// Rules returns the rules of a Role with the rights of the engine, in the form of the API.
func Rules(template bool) []map[string]any {
	needed := permissions
	if template {
		needed = withTemplate()
	}
	var rules []map[string]any
	for _, p := range needed {
		rules = append(rules, map[string]any{"apiGroups": []string{""},
			"resources": []string{strings.TrimSuffix(p.resource+"/"+p.subresource, "/")}, "verbs": p.verbs})
	}
	return rules
}

func withTemplate() []permission {
	return append(permissions[:len(permissions):len(permissions)], permission{"podtemplates", "", []string{"get"}})
}
