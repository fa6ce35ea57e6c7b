//go:build tools

// Package kuberouter pins kube-router, whose firewall holds pods' traffic to NetworkPolicies.
package kuberouter

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
