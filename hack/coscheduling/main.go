// Command coscheduling is a kube-scheduler with the plugin Coscheduling of scheduler-plugins, and with none of that
// project's other plugins. Its flags and configuration are those of kube-scheduler.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	// Decodes the plugin's arguments in a KubeSchedulerConfiguration.
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(coscheduling.Name, coscheduling.New))))
}
