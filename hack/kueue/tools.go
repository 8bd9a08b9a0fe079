//go:build tools

// Package kueue pins the job queue that `make cluster-up WITH=kueue` runs; nothing imports it.
package kueue

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
