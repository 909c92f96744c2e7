package kafkatest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // pom.xml and jars.sha256
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Version is the version of Apache Kafka that is run.
const Version = "4.3.0"

// ErrMissing says that this machine lacks what real Kafka needs; its message says what to install.
var ErrMissing = errors.New("real Kafka cannot be run here")

var (
	//go:embed pom.xml
	pom []byte
	//go:embed jars.sha256
	sums string
)

// The plugin's version is pinned like the jars': Maven would take the newest.
const copyJars = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// Install makes sure that Kafka's jars are in the cache folder, checked, and returns their folder. What it does is told
// to log (may be nil). Where Java or Maven is missing or too old the error is ErrMissing. Processes that install at the
// same time wait for each other.
func Install(ctx context.Context, log io.Writer) (libs string, err error) {
	if log == nil {
		log = io.Discard
	}
	if err := checkJava(ctx); err != nil {
		return "", err
	}
	want := pinned()
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	libs = filepath.Join(base, "libs")
	if check(libs, want) == nil {
		return libs, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for Kafka %s: %w", Version, err)
	}
	unlock, err := lock(filepath.Join(base, "install.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if check(libs, want) == nil { // another process was faster
		return libs, nil
	}
	if err := fetch(ctx, log, base, libs); err != nil {
		return "", err
	}
	if err := check(libs, want); err != nil {
		return "", fmt.Errorf("the jars of Kafka %s that Maven fetched are not the pinned ones: %w", Version, err)
	}
	return libs, nil
}

func fetch(ctx context.Context, log io.Writer, base, libs string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: Maven (mvn) is not installed, and Kafka %s is not in the cache: install maven (Debian: apt-get install maven)", ErrMissing, Version)
	}
	_, _ = fmt.Fprintf(log, "kafkatest: fetching Apache Kafka %s into %s\n", Version, libs)
	tmp, err := os.MkdirTemp(base, "fetch-")
	if err != nil {
		return fmt.Errorf("make the cache folder for Kafka %s: %w", Version, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what is left is of no harm
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "-B", "-q", "-f", filepath.Join(tmp, "pom.xml"), copyJars, "-DoutputDirectory="+filepath.Join(tmp, "libs"))
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Kafka %s with Maven: %w\n%s", Version, err, bytes.TrimSpace(out))
	}
	if err := os.RemoveAll(libs); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "libs"), libs)
}

func cacheDir() (string, error) {
	base := os.Getenv("KALE_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache folder for Kafka %s: %w; set KALE_CACHE to one", Version, err)
		}
		base = filepath.Join(user, "kale")
	}
	base, err := filepath.Abs(base)
	return filepath.Join(base, "kafka-"+Version), err
}

// pinned reads jars.sha256: file name → hex digest.
func pinned() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(sums) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		out[name] = digest
	}
	return out
}

// check compares a folder's jars with the pinned ones: no more, no fewer, no other.
func check(libs string, want map[string]string) error {
	files, err := os.ReadDir(libs)
	if err != nil {
		return err
	}
	have := map[string]string{}
	for _, f := range files {
		digest, err := digest(filepath.Join(libs, f.Name()))
		if err != nil {
			return err
		}
		have[f.Name()] = digest
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch have[name] {
		case want[name]:
		case "":
			return fmt.Errorf("%s is missing", name)
		default:
			return fmt.Errorf("%s has SHA-256 %s, want %s", name, have[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] == "" {
			return fmt.Errorf("%s is not among the pinned jars", name)
		}
	}
	return nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache folder for Kafka %s: %w", Version, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the cache folder for Kafka %s: %w", Version, err)
	}
	return func() { f.Close() }, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// checkJava makes sure that java is there and is 17 or newer.
func checkJava(ctx context.Context) error {
	const install = "install a Java runtime of version 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"
	out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: java is not installed: %s", ErrMissing, install)
	}
	if err != nil {
		return fmt.Errorf("%w: java -version failed (%w: %s): %s", ErrMissing, err, bytes.TrimSpace(out), install)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%w: java -version does not tell its version (%s): %s", ErrMissing, bytes.TrimSpace(out), install)
	}
	if n, _ := strconv.Atoi(string(m[1])); n < 17 {
		return fmt.Errorf("%w: java is version %d: %s", ErrMissing, n, install)
	}
	return nil
}
