//go:build tools

// Package kwok pins the stand-in for kubelets that `make bench-scale` uses; nothing imports it.
package kwok

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
