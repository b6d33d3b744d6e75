// Package outside is what kube-server meets outside of its own folder: the token files, the datastore, the service manager.
package outside

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// CheckToken refuses a file that is missing or empty. k3s, given an empty one, makes up a token, and a later start with the right
// one is locked out of the datastore (k3s#12388). kube-server encrypts nothing with the token, but accepts nothing that k3s would
// stumble over.
func CheckToken(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the token: %w", err)
	}
	if strings.TrimSpace(string(data)) == "" {
		return fmt.Errorf("the token file %s is empty: write the cluster's token into it", file)
	}
	return nil
}

// datastoreInterval is short: the API server's own client, once refused, backs off for seconds.
const datastoreInterval = 50 * time.Millisecond

// WaitForDatastore returns when somebody accepts a connection at the endpoint.
func WaitForDatastore(ctx context.Context, endpoint string, limit time.Duration) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	network, address := "tcp", u.Host
	if strings.HasPrefix(u.Scheme, "unix") {
		network, address = "unix", u.Path
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, datastoreInterval, limit, true, func(ctx context.Context) (bool, error) {
		last = send(ctx, network, address, "")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the datastore %s did not answer within %s, is kine running? %w", endpoint, limit, last)
	}
	return nil
}

// Manager is the service manager, which listens at NOTIFY_SOCKET; with an empty path nobody does.
type Manager struct{ path string }

// TakeManager reads NOTIFY_SOCKET and removes it from the environment: kube-apiserver would send READY=1 there by itself as soon as
// it listens, which is long before it is ready.
func TakeManager() Manager {
	path := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET")
	return Manager{path}
}

// Tell sends a state such as READY=1; a leading @ of the path is the abstract namespace.
func (m Manager) Tell(state string) error {
	if m.path == "" {
		return nil
	}
	return send(context.Background(), "unixgram", m.path, state)
}

func send(ctx context.Context, network, address, text string) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(text))
	return err
}
