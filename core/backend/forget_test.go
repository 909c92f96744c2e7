package backend

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// A plugin that was built before there was a Forget says that it cannot, and is not taken for one that does not answer.
func TestForgetOfAnOlderPlugin(t *testing.T) {
	older := backendpb.BackendService_ServiceDesc
	older.Methods = slices.DeleteFunc(slices.Clone(older.Methods), func(m grpc.MethodDesc) bool { return m.MethodName == "Forget" })
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	srv.RegisterService(&older, &server{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	defer func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &Client{opts: Options{}.WithDefaults(), cur: &session{stub: backendpb.NewBackendServiceClient(conn), done: context.Background()}}
	if _, err := c.Forget(t.Context(), "j", ""); err == nil || CodeOf(err) != Unsupported || !strings.Contains(err.Error(), `forget what is kept of job "j"`) {
		t.Errorf("Forget: %v; want code %q, and what was tried", err, Unsupported)
	}
}

// What lives, or may, is not forgotten, nor anything beside it; but a probe that was left on a node that is away keeps nothing else, and stays itself.
func TestForgettable(t *testing.T) {
	worker, probe := ID{RoleWorker, 0, 1}, ID{RoleProbe, 62, 17}
	over := Status{ID: worker, State: StateExited}
	for name, c := range map[string]struct {
		role    string
		all     []Status
		want    []ID
		blocked string
	}{
		"all is over":                {"", []Status{over, {ID: probe, State: StateExited}}, []ID{worker, probe}, ""},
		"a worker lives":             {"", []Status{{ID: worker, State: StateRunning}, {ID: probe, State: StateExited}}, nil, "worker-0-g1 of job \"j\" is running"},
		"a worker may live":          {"", []Status{{ID: worker, State: StateStopping, Away: true, Node: "n3"}}, nil, "worker-0-g1 of job \"j\" may still run on node n3"},
		"a probe lives":              {"", []Status{over, {ID: probe, State: StateStopping}}, nil, "doctor-62-g17 of job \"j\" is stopping"},
		"a probe is away":            {"", []Status{over, {ID: probe, State: StateUnknown, Away: true, Node: "n3"}}, nil, "doctor-62-g17 of job \"j\" may still run"},
		"a probe was left":           {"", []Status{over, {ID: probe, State: StateStopping, Away: true, Node: "n3"}}, []ID{worker}, ""},
		"a probe went with its node": {RoleProbe, []Status{over, {ID: probe, State: StateFailed, Away: true, Node: "n3"}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := Forgettable("j", c.role, c.all)
			if !slices.Equal(ids, c.want) || (err != nil) != (c.blocked != "") || err != nil && (CodeOf(err) != Blocked || !strings.HasPrefix(AsError(err).Message, c.blocked)) {
				t.Errorf("%v, %v; want %v, %q", ids, err, c.want, c.blocked)
			}
		})
	}
}

// Another process may write into a folder that is being removed: it is gone all the same, or stays whole.
func TestForgetFoldersBesideAWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	id := ID{"doctor", 0, 1}
	folder := filepath.Join(dir, id.String())
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { // ends with the test
		for {
			select {
			case <-over:
				return
			default:
				_ = WriteJSON(filepath.Join(folder, "verdict.json"), "lost") // it fails while there is no folder
			}
		}
	})
	defer writer.Wait()
	defer close(over)
	for range 200 {
		if err := WriteFolder(folder, map[string][]byte{"record.json": nil}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := ForgetFolders(dir, []ID{id}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(folder); err == nil {
			t.Fatal("something of the folder is left")
		}
	}
}

// Folders go with the last of them the job's own files, and a stranger's files stay, with the folder.
func TestForgetFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	one, two := ID{"worker", 0, 1}, ID{"probe", 0, 1}
	for _, id := range []ID{one, two} {
		if err := WriteFolder(filepath.Join(dir, id.String()), map[string][]byte{"output.log": nil}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"owner.json", "a stranger's"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, draftPrefix+"1"), 0o700); err != nil {
		t.Fatal(err)
	}
	forget := func(want string, left int, ids ...ID) {
		t.Helper()
		removed, err := ForgetFolders(dir, ids, "owner.json")
		if err != nil || strings.Join(removed, "; ") != want {
			t.Errorf("ForgetFolders(%v) = %q, %v; want %q", ids, removed, err, want)
		}
		if has, _ := os.ReadDir(dir); len(has) != left {
			t.Errorf("after ForgetFolders(%v) there is %v; want %d", ids, has, left)
		}
	}
	forget("the logs and records of 1 process in "+dir, 4, two)
	forget("the logs and records of 1 process in "+dir, 1, one)
	forget("", 1)
	if err := os.Remove(filepath.Join(dir, "a stranger's")); err != nil {
		t.Fatal(err)
	}
	forget("", 0)
	if _, err := os.Stat(dir); err == nil {
		t.Error("the job's folder is left")
	}
	forget("", 0)
}
