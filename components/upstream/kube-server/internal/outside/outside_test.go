package outside

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// k3s#12388: an empty token file.
func TestAMissingOrEmptyTokenIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := CheckToken(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("missing: %v", err)
	}
	for content, ok := range map[string]bool{"": false, " \n\t": false, "K10abc\n": true} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckToken(file); (err == nil) != ok {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestTheDatastoreIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kine.sock")
	waiting := make(chan error, 1)
	go func() { waiting <- WaitForDatastore(context.Background(), "unixs://"+path, time.Minute) }()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

func TestADatastoreOverTCPIsFound(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := WaitForDatastore(context.Background(), "https://"+listener.Addr().String(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestADatastoreThatNeverAnswersIsNamed(t *testing.T) {
	endpoint := "unixs://" + filepath.Join(t.TempDir(), "nobody.sock")
	err := WaitForDatastore(context.Background(), endpoint, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), endpoint) || !strings.Contains(err.Error(), "is kine running?") {
		t.Errorf("got %v", err)
	}
}

func TestAStopEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if WaitForDatastore(ctx, "unix:///nobody.sock", time.Hour) == nil {
		t.Error("a cancelled wait was reported as success")
	}
}

func TestTheManagerIsHiddenFromOthersAndTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	manager := TakeManager()
	if _, set := os.LookupEnv("NOTIFY_SOCKET"); set {
		t.Error("kube-apiserver would still find NOTIFY_SOCKET and say READY=1 too early")
	}
	if err := manager.Tell("READY=1"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := listener.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	listener.Close()
	if manager.Tell("READY=1") == nil {
		t.Error("nobody listens, and it was reported as success")
	}
}

func TestWithoutAManagerNobodyIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := TakeManager().Tell("READY=1"); err != nil {
		t.Error(err)
	}
}
