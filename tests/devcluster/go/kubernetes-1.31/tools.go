//go:build tools

// Package kubernetes pins the API server of the oldest Kubernetes that is supported.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
