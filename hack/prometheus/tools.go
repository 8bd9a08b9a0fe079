//go:build tools

// Package prometheus pins the Prometheus that discovers pods in tests; nothing imports it.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
