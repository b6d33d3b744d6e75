// Command kube-server is a Kubernetes control plane in one process: kube-apiserver, kube-controller-manager and kube-scheduler,
// behind the flags and the folder layout of `k3s server`. It has no datastore, kubelet, cloud controller manager or add-ons inside.
//
//	main.go           the command line
//	plane.go          the start, the wait for ready, the stop
//	internal/flags    the k3s flags
//	internal/tlsdir   certificates and kubeconfigs
//	internal/parts    the three programs
//	internal/outside  token files, the datastore, the service manager
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

// Exit codes.
const (
	done   = 0
	failed = 1
	usage  = 2
)

// gcPercent: an idle control plane is resident with 260 MB instead of 310 MB, ready as soon, at the same idle CPU time. GOGC overrides it.
const gcPercent = 50

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

func command(args []string, out, errOut io.Writer) int {
	switch strings.Join(args[:min(len(args), 1)], "") {
	case "server":
		return server(args[1:], out, errOut)
	case "--version", "-v", "version":
		fmt.Fprintf(out, "kube-server version %s\n", version.Get().GitVersion)
		return done
	case "--help", "-h", "help":
		return server([]string{"--help"}, out, errOut)
	}
	fmt.Fprintf(errOut, "kube-server: use `kube-server server ...`, `kube-server --version` or `kube-server --help`, not %q\n", args)
	return usage
}

func server(args []string, out, errOut io.Writer) int {
	options, err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, "Usage: kube-server server [flags of k3s server]\n\n%s", flags.Usage())
		return done
	}
	if err != nil {
		fmt.Fprintf(errOut, "kube-server: %v\n", err)
		return usage
	}
	syscall.Umask(0o077)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	err = start(terminated(), options)
	klog.Flush()
	if err != nil {
		fmt.Fprintf(errOut, "kube-server: %v\n", err)
		return failed
	}
	return done
}

// terminated ends with the first SIGTERM or SIGINT; the second ends the process at once.
func terminated() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(failed)
	}()
	return ctx
}
