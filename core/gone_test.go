package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// stoppedAfter is a job that has trained so many records and was stopped in order, with a last snapshot.
func stoppedAfter(t *testing.T, records uint64) *rig {
	t.Helper()
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(st *rpc.JobStatus) {
		for _, sv := range st.Servers {
			sv.Metrics.TrainedRecords = records
		}
		st.TrainedRecords = records
	})
	r.beat()
	r.order("stop", 0)
	r.stops()
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// A job whose file looks for its checkpoint elsewhere than where it has one would begin a new model: that is said at the line.
func TestMovedCheckpointIsWarnedOf(t *testing.T) {
	r := stoppedAfter(t, 4000)
	was := CheckpointFolder(r.job)
	r.job.Checkpoint.Dir = t.TempDir()
	want, err := WantedAt(r.state)
	if err != nil {
		t.Fatal(err)
	}
	diags := CheckModel(r.job, want)
	if len(diags) != 1 || diags.HasErrors() || diags[0].Summary != "A new model begins here" || !strings.Contains(diags[0].Detail, was) {
		t.Errorf("%v", diags)
	}
	if diags := CheckModel(r.job, nil); len(diags) > 0 {
		t.Errorf("of a job that has never run: %v", diags)
	}
}

// A job that has trained does not begin a new model in silence where its checkpoint, or a part of it without which nothing can be restored, is gone: a run and a
// plan are refused before anything is started, with what can be done. When it is back, the job goes on; when it is given up as they say, it begins.
func TestGoneCheckpointIsNotBegunAnewInSilence(t *testing.T) {
	r := stoppedAfter(t, 4000)
	folder := CheckpointFolder(r.job)
	unknown := t.TempDir() // the state folder of another machine
	own := r.state
	for name, c := range map[string]struct {
		lose  []string // below the folder; "" is all of it
		empty bool     // an empty folder is there in its place
		state string
		says  []string
	}{
		"all of it":                       {[]string{""}, false, own, []string{"has trained 4,000 records, and there is no checkpoint in " + folder + " any more. Mount the folder", "give the model up: kale forget ctr;"}},
		"what is in it":                   {[]string{""}, true, own, []string{"there is no checkpoint in " + folder, "give the model up: kale forget ctr;"}},
		"what the model is in":            {[]string{"job", "tablets"}, false, own, []string{filepath.Join(folder, "job") + " is lost", "(chief, shape.json, token)", "remove " + folder + ", and kale forget ctr;"}},
		"the tablets":                     {[]string{"tablets"}, false, own, []string{"no snapshot is in " + filepath.Join(folder, "tablets") + " any more", "remove " + folder + ", and kale forget ctr;"}},
		"the job's state":                 {[]string{"job"}, false, unknown, []string{"It has run before, and " + filepath.Join(folder, "job") + " is lost", "(chief, shape.json, tablets, token)", "remove " + folder + ";"}},
		"the job's state and the tablets": {[]string{"job", "tablets"}, false, unknown, []string{"remove " + folder + ";"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, part := range c.lose {
				path := filepath.Join(folder, part)
				if err := os.Rename(path, path+".away"); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := errors.Join(os.RemoveAll(path), os.Rename(path+".away", path)); err != nil {
						t.Error(err)
					}
				}()
			}
			if c.empty {
				if err := os.Mkdir(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r.state = c.state
			s, diags, err := Open(t.Context(), r.options("run"))
			if err != nil || s != nil || !diags.HasErrors() {
				t.Fatalf("opened: %v, %v, %v", s, diags, err)
			}
			d := diags[0]
			if d.Subject == nil || *d.Subject != r.job.Range("checkpoint.dir") {
				t.Errorf("points at %v", d.Subject)
			}
			for _, text := range c.says {
				if !strings.Contains(d.Detail, text) {
					t.Errorf("says %q, want %q", d.Detail, text)
				}
			}
			r.wantCalls()
			if g, err := GlanceAt(t.Context(), r.state, "ctr", nil); c.state == own && (err != nil || g.State != StateStopped || g.Stuck != "its checkpoint is gone" || len(g.Problems) != 1 || g.Problems[0] != d.Summary+": "+d.Detail) {
				t.Errorf("a status says %+v, %v", g, err)
			}
			if _, diags, err := NewPreview(t.Context(), r.options("run")); err != nil || !diags.HasErrors() {
				t.Errorf("a preview does not say so: %v, %v", diags, err)
			}
		})
	}
	r.state = own
	r.open("run") // all is back
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(folder), os.RemoveAll(r.state)); err != nil { // as kale forget does
		t.Fatal(err)
	}
	r.open("run")
}

// A job's state of which no copy can be used any more is refused before anything is started, with what helps, which is not to remove the only one; one that has a copy
// left is only warned of.
func TestDamagedJobStateIsRefused(t *testing.T) {
	r := stoppedAfter(t, 4000)
	files, err := filepath.Glob(filepath.Join(CheckpointFolder(r.job), rpc.JobStateFolder, "*"+rpc.RecordEnding))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	path := files[0]
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string][]byte{"torn": sound[:10], "altered": []byte(strings.Replace(string(sound), "fingerprint", "finderprint", 1))} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, damage, 0o600); err != nil {
				t.Fatal(err)
			}
			s, diags, err := Open(t.Context(), r.options("run"))
			if err != nil || s != nil || !diags.HasErrors() {
				t.Fatalf("opened: %v, %v, %v", s, diags, err)
			}
			d := diags[0]
			if d.Summary != damagedCheckpoint || !strings.Contains(d.Detail, path) || !strings.Contains(d.Detail, "bring it back from a backup") || strings.Contains(d.Detail, "to go back") || !strings.Contains(d.Detail, "To give the model up: remove ") {
				t.Errorf("it says %s: %s", d.Summary, d.Detail)
			}
			if _, diags, err := NewPreview(t.Context(), r.options("run")); err != nil || !diags.HasErrors() {
				t.Errorf("a preview does not say so: %v, %v", diags, err)
			}
			if g, err := GlanceAt(t.Context(), r.state, "ctr", nil); err != nil || g.Stuck != "its checkpoint is damaged" || len(g.Problems) != 1 || g.Problems[0] != d.Summary+": "+d.Detail {
				t.Errorf("a status says %+v, %v", g, err)
			}
			r.wantCalls()
		})
	}
	if err := os.WriteFile(strings.TrimSuffix(path, rpc.RecordEnding)+rpc.CopyEnding, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	diags := CheckModel(r.job, r.wanted())
	if len(diags) != 1 || diags.HasErrors() || !strings.Contains(diags[0].Detail, path) || !strings.Contains(diags[0].Detail, "Its copy beside it is good") {
		t.Errorf("with a copy: %v", diags)
	}
	r.open("run")
}

// A job that is wanted still, of which nothing lives after a reboot, is refused like one that was stopped where its checkpoint is gone. While one of its servers lives
// it is taken up, with what that one has in its memory.
func TestGoneCheckpointOfAJobThatDied(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	folder := CheckpointFolder(r.job)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	ended := func(ids ...backend.ID) {
		t.Helper()
		for _, id := range ids {
			if err := r.cluster.Exit("ctr", id, 137); err != nil {
				t.Fatal(err)
			}
		}
	}
	ended(server(0, 1), worker(0, 1), worker(1, 1))
	own := r.s.want.Backend
	for _, on := range []string{job.BackendLocal, own} { // the one that it runs on decides what may be wrong with the folder
		r.s.want.Backend = on
		st, err := state.Open(r.state)
		if err == nil {
			err = errors.Join(st.Put(desiredKey, r.s.want), st.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		g, err := GlanceAt(t.Context(), r.state, "ctr", nil)
		if err != nil || len(g.Problems) == 0 || !strings.HasPrefix(g.Problems[0], "the checkpoint folder "+folder+" is gone") || strings.Contains(g.Problems[0], "nodes") != (on == own) {
			t.Errorf("without a scheduler, on %s: %v, %+v", on, err, g)
		}
	}
	r.open("run")
	r.beat()
	r.wantCalls()
	if _, err := r.problem("is gone"); err != nil {
		t.Error(err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	ended(server(1, 1))
	s, diags, err := Open(t.Context(), r.options("run"))
	if err != nil || s != nil || !diags.HasErrors() || !strings.Contains(diags[0].Detail, "It has run before, and there is no checkpoint in "+folder+" any more. Mount the folder") ||
		!strings.HasSuffix(diags[0].Detail, "To give the model up: kale stop -force ctr, and kale forget ctr; the next run begins a new one.") {
		t.Fatalf("opened: %v, %v, %v", s, diags, err)
	}
	r.wantCalls()
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	r.open("run")
	r.until("it goes on", r.settled(2))
}

// An older copy of a stopped job's checkpoint is put back: whoever takes it up is told how much of it is trained again. Under a job that runs it shows when the
// next chief has less than the one before, and knows of no loss; so it does when its servers were killed, and nobody is told that a copy was put back.
func TestOlderCheckpointIsTold(t *testing.T) {
	r := stoppedAfter(t, 4000)
	r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 2})
	has := func(records ...uint64) hcl.Diagnostics {
		t.Helper()
		for i, n := range records {
			r.chief.write(fmt.Sprintf("written/%d", i), map[string]any{"timeline": "t1", "tablets": map[int]any{i: map[string]any{"records": n}}})
		}
		return CheckModel(r.job, r.wanted())
	}
	if diags := has(4000, 4000); len(diags) > 0 {
		t.Errorf("of a whole checkpoint it says %v", diags)
	}
	want := "It had 4,000 records when it was stopped, and the snapshots in " + CheckpointFolder(r.job) + " have 3,100"
	if diags := has(4000, 3100); len(diags) != 1 || diags.HasErrors() || *diags[0].Subject != r.job.Range("checkpoint.dir") || !strings.HasPrefix(diags[0].Detail, want) {
		t.Errorf("it says %v, want %q", diags, want)
	}
	restored := func(records uint64, rollbacks ...*rpc.Rollback) {
		t.Helper()
		r.chief.stop()
		r.chief.start()
		r.chief.with(func(st *rpc.JobStatus) {
			st.TrainedRecords, st.Rollbacks = records, rollbacks
			for _, sv := range st.Servers {
				sv.Metrics.TrainedRecords = records
			}
		})
		r.beat()
	}
	r.open("run")
	told := func() (n int) {
		for _, note := range r.s.View().Notes {
			if strings.HasPrefix(note.Text, "the job was restored with 3,") {
				n++
				if want := "the job was restored with 3,100 records, and had 4,000 before: the last snapshots in its checkpoint had no more; the others are trained again"; note.Text != want {
					t.Errorf("it says %q, want %q", note.Text, want)
				}
			}
		}
		return n
	}
	restored(3100)
	r.beats(3)
	if told() != 1 {
		t.Errorf("its notes are %+v", r.s.View().Notes)
	}
	restored(3050, &rpc.Rollback{Server: 1, Incarnation: 9, UnixMs: time.Now().UnixMilli(), Offsets: 50, Remaining: 50})
	if told() != 1 {
		t.Errorf("what the chief knows to be lost is told twice: %+v", r.s.View().Notes)
	}
	// All were killed, and what the chief knows to be lost is what was kept beside the checkpoint before it.
	told29 := func() string {
		for _, note := range r.s.View().Notes {
			if strings.HasPrefix(note.Text, Restored+"2,9") {
				return note.Text
			}
		}
		return ""
	}
	lost := &rpc.Rollback{Server: 1, Incarnation: 10, UnixMs: time.Now().UnixMilli(), Offsets: 60, Remaining: 60}
	r.chief.with(func(st *rpc.JobStatus) { st.InGrace = true })
	restored(2900, lost)
	r.beats(3)
	if text := told29(); text != "" {
		t.Errorf("before the workers had told the chief what they know it says %q", text)
	}
	r.chief.with(func(st *rpc.JobStatus) { st.InGrace = false })
	r.beat()
	if want := "the job was restored with 2,900 records, and had 4,000 before: the last snapshots in its checkpoint had no more; the others are trained again"; told29() != want {
		t.Errorf("it says %q, want %q", told29(), want)
	}
	r.chief.with(func(st *rpc.JobStatus) { st.TrainedRecords = 4001 })
	r.beat()
	if most := r.s.want.Totals.Most; most != 0 {
		t.Errorf("%d records are remembered of a job that has more", most)
	}
}

// A job that was killed goes back to its snapshots, of which no person has restored any: a stop of the next run before its servers have counted
// does not make what was counted in the one before something that was written.
func TestKilledJobHasNoOlderCopy(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.with(func(st *rpc.JobStatus) { st.TrainedRecords = 4000 })
	r.beat()
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.stops()
	r.chief.stop()
	told := func() {
		t.Helper()
		r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 2})
		for i := range 2 {
			r.chief.write(fmt.Sprintf("written/%d", i), map[string]any{"timeline": "t1", "tablets": map[int]any{i: map[string]any{"records": 3100 + i}}})
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		if diags := CheckModel(r.job, r.wanted()); len(diags) > 0 {
			t.Errorf("it says %v", diags)
		}
		g, err := GlanceAt(t.Context(), r.state, "ctr", nil)
		if err != nil || !g.Past || g.Snapshots == nil || *g.Snapshots != 3100 || len(g.Problems) > 0 {
			t.Errorf("a status says %+v, %v", g, err)
		}
	}
	told()
	r.open("run")
	r.chief.with(func(st *rpc.JobStatus) {
		for _, sv := range st.Servers {
			sv.Metrics = nil // they restore still
		}
	})
	r.until("the chief is heard", func() error {
		r.joinAll()
		if r.s.seen == nil {
			return errors.New("it has not looked")
		}
		return r.s.seen.chiefErr
	})
	r.order("stop", 0)
	r.stops()
	told()
}

// Who never trained has nothing to lose: neither a job that was stopped before, nor one of which claims are left, which a server makes before it asks the brokers
// where the stream starts. Nor has one that begins a new model in another folder, whatever it had trained in the last.
func TestNothingIsGoneOfWhatNeverWas(t *testing.T) {
	r := stoppedAfter(t, 0)
	folder := CheckpointFolder(r.job)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	r.open("run")
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	claims := filepath.Join(folder, "claims")
	if err := errors.Join(os.MkdirAll(claims, 0o755), os.Mkdir(filepath.Join(folder, "job"), 0o755), os.WriteFile(filepath.Join(claims, "00000000000000000001"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	r.open("run")

	r = stoppedAfter(t, 4000)
	r.job.Checkpoint.Dir = t.TempDir()
	r.open("run")
	if err := r.s.save(); err != nil { // and it is killed before it has a chief
		t.Fatal(err)
	}
	r.reopen()
	if r.s.want.Totals != nil {
		t.Errorf("what the other checkpoint had is told as this one's: %+v", r.s.want.Totals)
	}
}

// Of a job that still runs nothing is to be given up because the files of its state are lost, or their folder: its chief writes them anew where it is.
func TestLostStateOfAJobThatRuns(t *testing.T) {
	r := stoppedAfter(t, 4000)
	dir := filepath.Join(CheckpointFolder(r.job), rpc.JobStateFolder)
	for _, c := range []struct {
		empty bool
		says  []string
	}{
		{true, []string{"the file of the job's state in " + dir + " is lost", "the parameter server 0 that had it writes it anew within seconds"}},
		{false, []string{dir + " is lost", "the parameter server 0 that had it writes it anew within seconds"}},
	} {
		err := os.RemoveAll(dir)
		if c.empty {
			err = errors.Join(err, os.Mkdir(dir, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.says {
			if got := goneWords(r.job); !strings.Contains(got, want) {
				t.Errorf("it says %q, want %q", got, want)
			}
		}
	}
}
