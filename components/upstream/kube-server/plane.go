package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"socialweb.computer/upstream/kube-server/internal/flags"
	"socialweb.computer/upstream/kube-server/internal/outside"
	"socialweb.computer/upstream/kube-server/internal/parts"
	"socialweb.computer/upstream/kube-server/internal/tlsdir"
)

const (
	readyInterval = 50 * time.Millisecond
	// workersLimit: controllers and scheduler have nothing to save; after it the API server is stopped all the same.
	workersLimit = 5 * time.Second
	// apiLimit: the API server lets open exec and log streams go on for 60 s.
	apiLimit = 70 * time.Second
	// datastoreGrace is what a restart of kine takes; without it a stop would wait for requests that cannot end.
	datastoreGrace = 2 * time.Second
	// datastoreLimit is kine's own first-start cap without progress; whoever supervises starts us again.
	datastoreLimit = 60 * time.Second
	renewInterval  = 24 * time.Hour
)

// errCancelled: a stop was asked for before the API server was ready. There is nothing to drain then, and it must not be told to
// stop: it ends the process with an error when its start is interrupted.
var errCancelled = errors.New("the start was cancelled")

// start checks what can be checked, runs the control plane until ctx ends or a part does, and stops it.
func start(ctx context.Context, s flags.Server) error {
	manager := outside.TakeManager()
	for _, file := range s.TokenFiles() {
		if err := outside.CheckToken(file); err != nil {
			return err
		}
	}
	set, err := parts.New(s)
	if err != nil {
		return err
	}
	dir, err := tlsdir.Open(s, time.Now())
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, func(context.Context) { renew(dir) }, renewInterval)
	p := &plane{set: set, manager: manager, datastore: s.Datastore, died: make(chan error, 3)}
	if err := p.run(ctx); !errors.Is(err, errCancelled) {
		return err
	}
	return nil
}

// renew keeps a process that runs for a year from serving an expired certificate.
func renew(dir tlsdir.Dir) {
	renewed, err := dir.Renew(time.Now())
	if err != nil {
		klog.ErrorS(err, "Certificates cannot be renewed; trying again tomorrow")
	} else if len(renewed) > 0 {
		klog.InfoS("Renewed certificates", "names", renewed)
	}
}

// plane is the running control plane.
type plane struct {
	set       *parts.Set
	manager   outside.Manager
	datastore string
	died      chan error // from each part that returned, with its name
}

// part is one of the three. Each has a context of its own, because a stop of everything at once would leave the controllers without
// an API server to end on.
type part struct {
	name string
	stop context.CancelFunc
	done chan struct{}
}

func (p *plane) spawn(name string, run func(context.Context) error) part {
	ctx, stop := context.WithCancel(context.Background())
	started := part{name, stop, make(chan struct{})}
	go func() {
		err := run(ctx)
		close(started.done)
		if err == nil {
			err = errors.New("it returned without an error")
		}
		p.died <- fmt.Errorf("%s ended: %w", name, err)
	}()
	return started
}

// finish tells parts to stop, all at once, and waits for them.
func finish(limit time.Duration, stopping ...part) error {
	for _, s := range stopping {
		s.stop()
	}
	deadline := time.After(limit)
	for _, s := range stopping {
		select {
		case <-s.done:
			klog.InfoS("Stopped", "part", s.name)
		case <-deadline:
			return fmt.Errorf("%s had not stopped after %s", s.name, limit)
		}
	}
	return nil
}

// status tells the log and the service manager; state is empty, or a state of sd_notify with its newline.
func (p *plane) status(state, text string) {
	klog.InfoS("kube-server", "status", text)
	if err := p.manager.Tell(state + "STATUS=" + text); err != nil {
		klog.ErrorS(err, "Cannot tell the service manager")
	}
}

// run starts the API server first and the others when it is ready. When a part dies the others are not stopped gracefully: there
// is nobody left to be graceful to.
func (p *plane) run(ctx context.Context) error {
	p.status("", "waiting for the datastore")
	if err := outside.WaitForDatastore(ctx, p.datastore, datastoreLimit); ctx.Err() != nil {
		return errCancelled
	} else if err != nil {
		return err
	}
	p.status("", "starting the API server")
	api := p.spawn(parts.APIServer, p.set.RunAPIServer)
	if err := p.ready(ctx, parts.Controller, parts.Scheduler); err != nil {
		return err
	}
	p.status("", "starting the controller-manager and the scheduler")
	workers := []part{p.spawn(parts.Controller, p.set.RunController), p.spawn(parts.Scheduler, p.set.RunScheduler)}
	err := p.ready(ctx)
	if err == nil {
		p.status("READY=1\n", "ready")
		select {
		case err = <-p.died:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		return err
	}
	return p.stop(api, workers)
}

// ready asks until the answer is yes, a part dies, or a stop is asked for.
func (p *plane) ready(ctx context.Context, exclude ...string) error {
	for p.set.Ready(ctx, exclude...) != nil {
		select {
		case err := <-p.died:
			return err
		case <-ctx.Done():
			return errCancelled
		case <-time.After(readyInterval):
		}
	}
	return nil
}

// stop is the start in reverse.
func (p *plane) stop(api part, workers []part) error {
	p.status("STOPPING=1\n", "stopping")
	if err := outside.WaitForDatastore(context.Background(), p.datastore, datastoreGrace); err != nil {
		return fmt.Errorf("stopped at once, because nothing can be drained: %w", err)
	}
	if err := finish(workersLimit, workers...); err != nil {
		klog.ErrorS(err, "Stopping the API server all the same")
	}
	return finish(apiLimit, api)
}
