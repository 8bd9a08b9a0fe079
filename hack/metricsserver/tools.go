//go:build tools

// Package metricsserver pins the metrics-server that tests run; nothing imports it.
package metricsserver

import (
	_ "sigs.k8s.io/metrics-server/cmd/metrics-server"
)
