// Package parts runs kube-apiserver, kube-controller-manager and kube-scheduler in this process, from their exported options:
// their commands would each install a signal handler, and only one may.
//
//	parts.go        the three option sets, New
//	args.go, args/  which arguments each is given
//	apiserver.go    the API server, /ping, the question whether it is ready
//	workers.go      the controller-manager and the scheduler
//
// They share global state (feature gates, metrics, the logger), which fixes the order in which things happen here.
package parts

import (
	"fmt"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controller "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

// The names of the parts, in messages and as checks of /readyz.
const (
	APIServer  = "kube-apiserver"
	Controller = "kube-controller-manager"
	Scheduler  = "kube-scheduler"
)

// Set is the three programs with their arguments read. A process can hold one, because of the global state.
type Set struct {
	api        *apiserver.ServerRunOptions
	controller *controller.KubeControllerManagerOptions
	scheduler  *scheduler.Options

	client                    atomic.Pointer[kubernetes.Clientset] // of the API server, once it is built
	controllerUp, schedulerUp atomic.Bool                          // observed to work; never set back, because a part that ends ends the process
}

// New reads the arguments of all three, so that a wrong one is told before anything starts.
func New(s flags.Server) (*Set, error) {
	// The controller-manager's come first: they override the default of a feature gate, which is refused once flags exist.
	controller, err := controller.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	set := &Set{controller: controller, api: apiserver.NewServerRunOptions(), scheduler: scheduler.NewOptions()}
	words := words(s)
	for _, part := range []struct {
		name  string
		flags cliflag.NamedFlagSets
		user  []string
	}{
		{Controller, controller.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()), s.ControllerArgs},
		{APIServer, set.api.Flags(), s.APIServerArgs},
		{Scheduler, *set.scheduler.Flags, s.SchedulerArgs},
	} {
		args, err := arguments(part.name, words, part.user)
		if err != nil {
			return nil, err
		}
		all := pflag.NewFlagSet(part.name, pflag.ContinueOnError)
		for _, fs := range part.flags.FlagSets {
			all.AddFlagSet(fs)
		}
		if err := all.Parse(args); err != nil {
			return nil, fmt.Errorf("an argument of %s (--%s-arg): %w", part.name, part.name, err)
		}
	}
	return set, set.applyGlobals()
}

// applyGlobals applies what exists once in a process.
func (s *Set) applyGlobals() error {
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	// Clients inside this process need no warning that they use a deprecated API.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	// One logger serves all three, and the API server's options set it up.
	return logsapi.ValidateAndApply(s.api.Logs, utilfeature.DefaultFeatureGate)
}
