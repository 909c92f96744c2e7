package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// TestRecordHashIsTheOneThatIsWrittenDown pins the function: core/stream has the same one, and the two only meet in the summary that
// compares tablets with the log. The expected values are those of the XXH64 reference (seed 0) over the bytes in the comment.
func TestRecordHashIsTheOneThatIsWrittenDown(t *testing.T) {
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		want      uint64
	}{
		{"clicks", 0, 0, 0xd84a51ae89b8619a},
		{"clicks", 3, 1 << 40, 0xc9bf18397a6c8cd7},
		{"", 0, 0, 0xa0537b08c36938b4},
	} {
		if got := RecordHash(c.topic, c.partition, c.offset); got != c.want {
			t.Errorf("RecordHash(%q, %d, %d) = %#x, want %#x", c.topic, c.partition, c.offset, got, c.want)
		}
	}
}

func TestRecordHashTellsNeighboursApart(t *testing.T) {
	seen := map[uint64]bool{}
	for p := range int32(8) {
		for o := range int64(1000) {
			seen[RecordHash("t", p, o)] = true
		}
	}
	if len(seen) != 8000 {
		t.Errorf("8000 records have %d hashes", len(seen))
	}
}

func TestOptsSayWhatIsWrong(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(junk, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	brokers := []string{"127.0.0.1:1"}
	for _, c := range []struct {
		name string
		spec *rpc.StreamSpec
		want string
	}{
		{"no brokers", &rpc.StreamSpec{}, "no brokers"},
		{"absent ca", &rpc.StreamSpec{Brokers: brokers, Tls: &rpc.TLSSpec{CaFile: filepath.Join(t.TempDir(), "none")}}, "certificate authority"},
		{"junk ca", &rpc.StreamSpec{Brokers: brokers, Tls: &rpc.TLSSpec{CaFile: junk}}, "no PEM certificate"},
		{"half a pair", &rpc.StreamSpec{Brokers: brokers, Tls: &rpc.TLSSpec{CertFile: junk}}, "both cert_file and key_file"},
		{"mechanism", &rpc.StreamSpec{Brokers: brokers, Sasl: &rpc.SASLSpec{Mechanism: "GSSAPI"}}, "GSSAPI"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Opts(c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not mention %q", err, c.want)
			}
		})
	}
}

func TestOptsNeverResetAndReadCommitted(t *testing.T) {
	for _, mech := range []string{"", "PLAIN", "scram-sha-256", "SCRAM-SHA-512"} {
		opts, err := Opts(&rpc.StreamSpec{Brokers: []string{"127.0.0.1:1"}, Tls: &rpc.TLSSpec{}, Sasl: &rpc.SASLSpec{Mechanism: mech}})
		if err != nil {
			t.Fatal(err)
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if got := cl.OptValue(kgo.ConsumeResetOffset); got != kgo.NoResetOffset() {
			t.Errorf("reset offset is %v, want none", got)
		}
		if got := cl.OptValue(kgo.FetchIsolationLevel); got != int8(1) { // 1 is read committed on the wire
			t.Errorf("isolation level is %v, want read committed", got)
		}
		if got := cl.OptValue(kgo.KeepControlRecords); got != true {
			t.Errorf("control records are kept: %v", got)
		}
	}
}
