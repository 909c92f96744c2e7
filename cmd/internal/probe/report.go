// Package probe looks at a node from inside an allocation, for kale doctor, together with probes on other nodes: whether what one writes in the
// checkpoint folder the others read, and what a trainer would meet there.
//
// Input: the job's specification as its trainers get it, and which probe of how the run is called. Output: lines of JSON on standard output, one
// for each thing that was tried, since the folder may be what is broken: a cluster's logs reach the one who asked all the same.
package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"

	"github.com/kale-sched/kale/cmd/internal/about"
)

// Line is one line of a probe's output. Run names the look that it belongs to; of the others one is set.
type Line struct {
	Run     string       `json:"kale_probe"`
	Wrote   *Wrote       `json:"wrote,omitempty"`
	Network *Network     `json:"network,omitempty"`
	Compute *about.About `json:"compute,omitempty"`
	CUDA    *CUDA        `json:"cuda,omitempty"`
	Saw     *Saw         `json:"saw,omitempty"`
}

// Wrote says what became of the probe's own file.
type Wrote struct {
	Host  string `json:"host"`
	Error string `json:"error,omitempty"`
	Free  int64  `json:"free_bytes,omitempty"` // of the folder's file system; 0 when it is not known
}

// Network says whom the node reaches.
type Network struct {
	Listen      string            `json:"listen,omitempty"` // HOST:PORT that a process of the job would have
	ListenError string            `json:"listen_error,omitempty"`
	Brokers     int               `json:"brokers"`                // that answer
	BrokerError map[string]string `json:"broker_error,omitempty"` // by address; "" is for all of them
	Meet        string            `json:"meet,omitempty"`         // what the scheduler's address answers
	MeetError   string            `json:"meet_error,omitempty"`
}

// CUDA says whether ONNX Runtime's CUDA provider can be made, where the job's workers compute with it. A probe has no GPU of its own.
type CUDA struct {
	Error string `json:"error,omitempty"` // why it cannot
}

// Saw says that the file of another probe was read.
type Saw struct {
	Index     int      `json:"index"`
	Wrong     string   `json:"wrong,omitempty"`      // what is wrong with its content
	DialError string   `json:"dial_error,omitempty"` // why the probe that wrote it cannot be called at its address
	Offset    *float64 `json:"offset_s,omitempty"`   // the other's clock less this one's, to within half of the call's time
}

// Folder is where the probes of a run write, in a checkpoint folder.
func Folder(dir, run string) string { return filepath.Join(dir, ".kale-doctor-"+run) }

// Read takes a probe's lines out of a log and gives what else is in it.
func Read(r io.Reader, run string) (lines []Line, rest []string, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l Line
		raw := bytes.TrimSpace(s.Bytes())
		if json.Unmarshal(raw, &l) == nil && l.Run == run {
			lines = append(lines, l)
		} else if len(raw) > 0 {
			rest = append(rest, string(raw))
		}
	}
	return lines, rest, s.Err()
}
