package nomad

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// envFile is the file, among those of the payload, that start.sh reads. No workload's file may have its name, nor boundFile's.
const envFile = ".env"

// payload gives what the task finds in its secrets folder: the workload's files and its environment as a shell reads it.
func (s settings) payload(w backend.Workload) (map[string][]byte, *backend.Error) {
	env := map[string]string{}
	maps.Copy(env, w.Env)
	maps.Copy(env, s.env)            // the block has the last word: paths on the nodes differ from the scheduler's
	delete(env, backend.EnvAllocDir) // start.sh sets it before it reads these
	var b strings.Builder
	b.WriteString("# the environment of the workload\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variableName.MatchString(name) {
			return nil, backend.Invalidf("env", "workload %s: environment variable %q: a shell on the node sets it, so it has letters, digits and '_' only", w.ID, name)
		}
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(env[name], "'", `'\''`))
	}
	files := map[string][]byte{envFile: []byte(b.String())}
	for name, content := range w.Files {
		if name == envFile || name == boundFile || strings.Contains(name, "${") {
			return nil, backend.Invalidf("files", "workload %s: file %q: choose another name", w.ID, name)
		}
		files[name] = content
	}
	return files, nil
}

// maxVariable is what one variable may hold, in bytes of keys and values, with room to spare below Nomad's 64 KiB.
const maxVariable = 60_000

// parcel is a payload as it lies in variables.
type parcel struct {
	variables []map[string]string
	parts     map[string][]part // by file, where its pieces are
	zipped    bool              // the files are compressed, and start.sh undoes that
}

// part is where a piece of a file lies.
type part struct {
	variable int    // which of the payload's variables
	key      string // in it
}

// parcel lays the workload's files and environment into as few variables as they need, compressed where they need more than
// there are.
func (s settings) parcel(w backend.Workload, limit int) (parcel, *backend.Error) {
	files, problem := s.payload(w)
	if problem != nil {
		return parcel{}, problem
	}
	if p, ok := pack(files, limit); ok {
		return p, nil
	}
	size := 0
	zipped := map[string][]byte{}
	for name, content := range files {
		size += len(content)
		zipped[name] = compress(content)
	}
	if p, ok := pack(zipped, limit); ok {
		p.zipped = true
		return p, nil
	}
	return parcel{}, backend.Invalidf("files", "workload %s: its files and environment (%d KB) are too large for Nomad's variables, which hold about %d KB of it once it is compressed; put large content on the shared folder and name its path",
		w.ID, size/1000, limit*maxVariable*3/4/1000)
}

func compress(content []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(content)
	if closed := z.Close(); err == nil {
		err = closed
	}
	if err != nil { // a buffer takes everything
		panic("nomad: compress a file: " + err.Error())
	}
	return out.Bytes()
}

// pack lays the files into variables, as they are; false when there are too few.
func pack(files map[string][]byte, limit int) (parcel, bool) {
	p := parcel{parts: map[string][]part{}, variables: []map[string]string{{}}}
	room := maxVariable
	for i, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		for piece := 0; len(content) > 0; piece++ {
			if room < 1000 {
				if len(p.variables) == limit {
					return parcel{}, false
				}
				p.variables, room = append(p.variables, map[string]string{}), maxVariable
			}
			n := min(len(content), (room-100)/4*3)
			key := fmt.Sprintf("f%d_%d", i, piece)
			text := base64.StdEncoding.EncodeToString(content[:n])
			content = content[n:]
			p.variables[len(p.variables)-1][key] = text
			room -= len(key) + len(text)
			p.parts[name] = append(p.parts[name], part{len(p.variables) - 1, key})
		}
	}
	return p, true
}

// The folders in a task's secrets folder that the files are written to.
const (
	filesDir  = "secrets/kale/"
	zippedDir = "secrets/kale-zipped/"
)

// addTemplates makes Nomad's client write the payload's files.
func (s settings) addTemplates(t *api.Task, nomadJob string, w backend.Workload) {
	files, problem := s.payload(w)
	if problem != nil {
		return // submit refuses the workload for the same reason
	}
	paths := payloadPaths(nomadJob)
	p, problem := s.parcel(w, len(paths))
	if problem != nil {
		return
	}
	dir := filesDir
	if p.zipped {
		dir = zippedDir
		size := 0
		for _, content := range files {
			size += len(content)
		}
		t.Resources.SecretsMB = ptr(2 + 2*size>>20) // Nomad's own is 1, in memory; they are there twice, compressed at least a little
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var text strings.Builder
		for _, piece := range p.parts[name] {
			fmt.Fprintf(&text, `{{ with nomadVar "%s" }}{{ .%s.Value | base64Decode }}{{ end }}`, paths[piece.variable], piece.key)
		}
		if text.Len() == 0 {
			text.WriteString(`{{ "" }}`) // an empty file: Nomad takes no empty template
		}
		tmpl := &api.Template{
			EmbeddedTmpl: ptr(text.String()), DestPath: ptr(dir + name), Perms: ptr("0600"), ChangeMode: ptr("noop"),
		}
		if s.driver == "exec" && s.user == "" { // Nomad runs it as nobody then
			tmpl.Uid, tmpl.Gid = ptr(65534), ptr(65534)
		}
		t.Templates = append(t.Templates, tmpl)
	}
	bound := boundTemplate(nomadJob)
	if s.driver == "exec" && s.user == "" {
		bound.Uid, bound.Gid = ptr(65534), ptr(65534)
	}
	t.Templates = append(t.Templates, bound)
}
