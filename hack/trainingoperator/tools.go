//go:build tools

// Package trainingoperator pins Kubeflow's training-operator, with which the kinds of kubeflow.org/v1 are compared;
// nothing imports it.
package trainingoperator

import (
	_ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
)
