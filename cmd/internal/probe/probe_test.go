package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
)

// A probe tells whether ONNX Runtime computes and, where the job's workers do so on GPUs, whether the CUDA provider does: what it says of that depends on the
// machine, that it says it does not.
func TestCUDAIsTriedWhereWorkersNeedIt(t *testing.T) {
	lib, err := onnx.Locate()
	if err != nil {
		t.Skipf("ONNX Runtime is missing: make deps installs it (%v)", err)
	}
	t.Setenv(onnx.LibraryEnv, lib)
	for _, tt := range []struct {
		name, device, kind string
		tried              bool
	}{
		{"on GPUs", onnx.CUDA, "lr", true},
		{"on CPUs", onnx.CPU, "lr", false},
		{"a counting job", onnx.CUDA, "counting", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := &rpc.TrainSpec{CheckpointDir: t.TempDir(), Model: &rpc.ModelSpec{Kind: tt.kind}, Worker: &rpc.WorkerSpec{Device: tt.device}, Stream: &rpc.StreamSpec{Brokers: []string{"127.0.0.1:1"}}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, w := io.Pipe()
			ran := make(chan error, 1)
			go func() { ran <- Run(ctx, Options{Spec: spec, Run: "r", Out: w}); _ = w.Close() }()
			computes, tried := false, false
			var said bytes.Buffer
			for lines := bufio.NewScanner(r); lines.Scan(); {
				said.Write(lines.Bytes())
				read, _, err := Read(bytes.NewReader(lines.Bytes()), "r")
				if err != nil {
					t.Error(err)
				}
				for _, l := range read {
					computes = computes || l.Compute != nil && l.Compute.ONNX != ""
					tried = tried || l.CUDA != nil
				}
				if computes && tried == tt.tried {
					cancel() // Run waits for what it has begun: that more was tried would still be said
				}
			}
			if err := <-ran; err != nil || !computes || tried != tt.tried {
				t.Errorf("%v; computes %v, CUDA tried %v, want %v: %s", err, computes, tried, tt.tried, said.String())
			}
		})
	}
}

// Folders that the probes of a run made for it are gone when the last of them has ended, in whatever order they end; what was there before stays.
func TestTheLastProbeRemovesWhatOneMade(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		there := t.TempDir()
		checkpoints := filepath.Join(there, "deep", "checkpoints")
		probes := [2]*look{}
		for i := range probes {
			spec := &rpc.TrainSpec{CheckpointDir: checkpoints}
			probes[i] = &look{Options: Options{Spec: spec, Run: "r", Index: i, Out: io.Discard}, dir: Folder(checkpoints, "r"), seen: map[int]bool{}}
			probes[i].begin(note{Run: "r", Index: i})
		}
		probes[order[0]].clear()
		if _, err := os.Stat(file(probes[1].dir, order[1])); err != nil {
			t.Errorf("order %v: the other probe's file went with the first: %v", order, err)
		}
		probes[order[1]].clear()
		if left, err := os.ReadDir(there); err != nil || len(left) > 0 {
			t.Errorf("order %v: left are %v, %v", order, left, err)
		}
	}
}

// On a full disk folders can be made and files not written: none of them stays.
func TestNothingIsLeftOnAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("kale", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no file system can be mounted here, to fill it: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(disk, "fills"), make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	checkpoints := filepath.Join(disk, "deep", "checkpoints")
	var out bytes.Buffer
	l := &look{Options: Options{Spec: &rpc.TrainSpec{CheckpointDir: checkpoints}, Run: "r", Out: &out}, dir: Folder(checkpoints, "r"), seen: map[int]bool{}}
	l.begin(note{Run: "r"})
	l.clear()
	if _, err := os.Stat(filepath.Join(disk, "deep")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(out.String(), "no space left") {
		t.Errorf("%s/deep is left (%v); the probe says %s", disk, err, out.String())
	}
}
