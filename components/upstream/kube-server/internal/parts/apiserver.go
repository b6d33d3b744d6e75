package parts

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// readyTimeout is above the 2 s that the API server gives the datastore to answer its own check.
const readyTimeout = 5 * time.Second

// RunAPIServer binds the port, connects to the datastore and serves until ctx ends, then until the requests in flight are done.
func (s *Set) RunAPIServer(ctx context.Context) error {
	server, err := s.buildAPIServer(ctx)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(server.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return err
	}
	s.client.Store(client)
	return prepared.Run(ctx)
}

func (s *Set) buildAPIServer(ctx context.Context) (*aggregator.APIAggregator, error) {
	options, err := s.api.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := options.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(options)
	if err != nil {
		return nil, err
	}
	generic := &config.Aggregator.GenericConfig.Config
	chain := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return front(chain(api, c))
	}
	completed, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return nil, err
	}
	return server, server.GenericAPIServer.AddReadyzChecks(s.readyzChecks()...)
}

// Ready asks /readyz over the API server's own port, without the checks named in exclude.
func (s *Set) Ready(ctx context.Context, exclude ...string) error {
	client := s.client.Load()
	if client == nil {
		return errors.New("the API server is not built yet")
	}
	request := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(readyTimeout)
	for _, name := range exclude {
		request.Param("exclude", name)
	}
	return request.Do(ctx).Error()
}

// readyzChecks make /readyz the answer of the whole process.
func (s *Set) readyzChecks() []healthz.HealthChecker {
	check := func(name string, up interface{ Load() bool }) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(*http.Request) error {
			if !up.Load() {
				return errors.New("not started yet")
			}
			return nil
		})
	}
	return []healthz.HealthChecker{check(Controller, &s.controllerUp), check(Scheduler, &s.schedulerUp)}
}

// front answers /ping the way k3s does: to anybody, before authentication.
func front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/ping" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "pong") // the client went away: nothing to do
	})
}
