// The tests of the chart need Helm's library, and ramus does not. So they are a module of their own.
module github.com/ramus-dev/ramus/deploy/helm

go 1.26

require (
	helm.sh/helm/v3 v3.22.0
	sigs.k8s.io/yaml v1.6.0
)
