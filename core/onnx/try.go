package onnx

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Try proves that ONNX Runtime works here: it opens the library (empty: what Locate finds), runs a graph of one addition on the device
// (CPU, CUDA; empty means CPU), and compares the result. It answers with what it opened.
func Try(library, device string) (*Runtime, error) {
	rt, err := Open(Options{Library: library})
	if err != nil {
		return nil, err
	}
	g := NewGraph()
	x := g.Input("x", Float32, 4)
	g.Output("y", g.Add(x, x))
	file, err := g.Model(nil)
	if err != nil {
		return nil, fmt.Errorf("onnx: try ONNX Runtime: %w", err)
	}
	s, err := rt.NewSession(file, SessionOptions{Device: device})
	if err != nil {
		return nil, fmt.Errorf("onnx: try ONNX Runtime %s from %q: %w", rt.Version(), rt.Path(), err)
	}
	in := []float32{1, 2, 3, 4}
	err = s.Feed("x", []int{len(in)}, in)
	if err == nil {
		err = s.Run()
	}
	var out []float32
	if err == nil {
		out, err = s.Float32("y")
	}
	err = errors.Join(err, s.Close())
	if err != nil {
		return nil, fmt.Errorf("onnx: try ONNX Runtime %s from %q: %w", rt.Version(), rt.Path(), err)
	}
	for i := range in {
		if out[i] != in[i]+in[i] {
			return nil, fmt.Errorf("onnx: try ONNX Runtime %s from %q: it computes %v for twice %v: fetch the library again", rt.Version(), rt.Path(), out, in)
		}
	}
	return rt, nil
}

// whole says whether a library file has all its segments. The loader maps them without looking: the first touch of one that is not there
// would end the process (SIGBUS). What is no ELF file is left to the loader.
func whole(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("onnx: load ONNX Runtime: %w; correct %s", err, LibraryEnv)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("onnx: load ONNX Runtime: %w", err)
	}
	end, err := loadedBytes(f)
	if err != nil || end <= uint64(info.Size()) {
		return nil // the loader says what is wrong with it, if anything is
	}
	return fmt.Errorf("onnx: load ONNX Runtime from %q: the file is cut short: it has %d of %d bytes; fetch it again with \"make deps\", or correct %s",
		path, info.Size(), end, LibraryEnv)
}

// loadedBytes is how far the segments that are to be loaded reach into the file, which is a little-endian ELF file of 64 bits: that of every
// machine that ONNX Runtime is built for. The section table, which elf.NewFile wants to read, lies at the end and may be what is missing.
func loadedBytes(f *os.File) (end uint64, err error) {
	var h elf.Header64
	if err := binary.Read(io.NewSectionReader(f, 0, 64), binary.LittleEndian, &h); err != nil {
		return 0, err
	}
	if string(h.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG || elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return 0, errors.New("another kind of file")
	}
	progs := make([]elf.Prog64, h.Phnum)
	if err := binary.Read(io.NewSectionReader(f, int64(h.Phoff), 1<<20), binary.LittleEndian, progs); err != nil {
		return 0, err
	}
	for _, p := range progs {
		if elf.ProgType(p.Type) == elf.PT_LOAD {
			end = max(end, p.Off+p.Filesz)
		}
	}
	return end, nil
}
