package parts

import (
	"context"
	"net/http"
	"sync/atomic"

	controller "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// RunController runs the controllers until ctx ends, then until they have returned.
func (s *Set) RunController(ctx context.Context) error {
	config, err := s.controller.Config(ctx, controller.KnownControllers(), controller.ControllersDisabledByDefault(), controller.ControllerAliases())
	if err != nil {
		return err
	}
	config.Kubeconfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return watchSeen{next: next, seen: &s.controllerUp}
	})
	return controller.Run(ctx, config.Complete())
}

// watchSeen notes the first watch that was accepted. With secure-port 0 the controller-manager has no health endpoint; it opens its
// watches after all controllers have been built, with the credentials of this client.
type watchSeen struct {
	next http.RoundTripper
	seen *atomic.Bool
}

func (w watchSeen) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && r.URL.Query().Get("watch") != "" {
		w.seen.Store(true)
	}
	return response, err
}

// RunScheduler runs the scheduler until ctx ends.
func (s *Set) RunScheduler(ctx context.Context) error {
	config, sched, err := scheduler.Setup(ctx, s.scheduler)
	if err != nil {
		return err
	}
	go func() {
		// All handlers have seen the first list: from here on a pod would be scheduled.
		if sched.WaitForHandlersSync(ctx) == nil {
			s.schedulerUp.Store(true)
		}
	}()
	return scheduler.Run(ctx, config, sched)
}
