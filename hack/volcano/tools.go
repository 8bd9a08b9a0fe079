//go:build tools

// Package volcano pins the batch scheduler that `make cluster-up WITH=volcano` runs; nothing imports it.
package volcano

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
	_ "volcano.sh/volcano/cmd/webhook-manager"
)
