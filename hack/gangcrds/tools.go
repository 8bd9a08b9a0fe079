//go:build tools

// Package gangcrds pins Volcano's types and the program that makes CRDs of them; nothing imports it.
package gangcrds

import (
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
	_ "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)
