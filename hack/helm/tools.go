//go:build tools

// Package helm pins the Helm that installs the chart in tests; nothing imports it.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
