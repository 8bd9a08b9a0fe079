//go:build tools

package main

// The controller that writes the status of PodGroups, which `make cluster-up WITH=coscheduling` runs as well.
import _ "sigs.k8s.io/scheduler-plugins/cmd/controller"
