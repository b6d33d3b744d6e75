package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func call(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = command(args, &o, &e)
	return code, o.String(), e.String()
}

func TestTheVersionIsSaidTheWayK3sDoes(t *testing.T) {
	code, out, _ := call("--version")
	if code != done || !strings.HasPrefix(out, "kube-server version v") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %q", code, out)
	}
}

func TestWrongUsageIsToldFromFailure(t *testing.T) {
	for _, args := range [][]string{{}, {"agent"}, {"server", "--no-such-flag"}, {"server"}} {
		if code, out, errOut := call(args...); code != usage || out != "" || !strings.HasPrefix(errOut, "kube-server: ") {
			t.Errorf("%v: %d %q %q", args, code, out, errOut)
		}
	}
	for _, args := range [][]string{{"--help"}, {"server", "--help"}} {
		if code, out, _ := call(args...); code != done || !strings.Contains(out, "--datastore-endpoint") {
			t.Errorf("%v: %d", args, code)
		}
	}
}

// k3s#12388. Nothing is written before the token has been seen.
func TestWithAnEmptyTokenNothingStarts(t *testing.T) {
	dir := t.TempDir()
	token, data := filepath.Join(dir, "token"), filepath.Join(dir, "k3s")
	if err := os.WriteFile(token, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := call("server", "--disable-agent", "--disable-cloud-controller", "--data-dir", data, "--datastore-endpoint", "unix:///nobody.sock",
		"--advertise-address", "10.41.0.2", "--token-file", token)
	if code != failed || !strings.Contains(errOut, "the token file "+token+" is empty") {
		t.Errorf("%d %q", code, errOut)
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data folder was made: %v", err)
	}
}

func TestAPartThatEndsIsNamed(t *testing.T) {
	p := &plane{died: make(chan error, 2)}
	p.spawn("kube-scheduler", func(context.Context) error { return errors.New("lost the way") })
	if err := <-p.died; err.Error() != "kube-scheduler ended: lost the way" {
		t.Error(err)
	}
	p.spawn("kube-scheduler", func(context.Context) error { return nil })
	if err := <-p.died; err.Error() != "kube-scheduler ended: it returned without an error" {
		t.Error(err)
	}
}

func TestAPartThatDoesNotStopIsNamedAfterTheLimit(t *testing.T) {
	p := &plane{died: make(chan error, 2)}
	good := p.spawn("good", func(ctx context.Context) error { <-ctx.Done(); return nil })
	release := make(chan struct{})
	defer close(release)
	bad := p.spawn("bad", func(context.Context) error { <-release; return nil })
	if err := finish(time.Minute, good); err != nil {
		t.Error(err)
	}
	if err := finish(time.Millisecond, bad); err == nil || !strings.HasPrefix(err.Error(), "bad had not stopped") {
		t.Error(err)
	}
}

// Design 12: a bump of Kubernetes stays small work while our own part stays small. Counted without tests, comments and blank lines.
func TestOurOwnGoStaysUnder1000Lines(t *testing.T) {
	lines := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		return err
	})
	if err != nil || lines >= 1000 {
		t.Errorf("%d lines, %v", lines, err)
	}
}
