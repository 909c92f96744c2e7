package trainer

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	ruleHead  = regexp.MustCompile(`(?m)^\*\*(\d+)\. `)
	testNames = regexp.MustCompile("((?:`Test[A-Za-z0-9]+`,?\\s+)+)\\(([a-z/0-9]+)\\)")
	testName  = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	ruleTest  = regexp.MustCompile(`^TestRule(\d+)[A-Z]`)
	citation  = regexp.MustCompile(`\b[Rr]ules? (\d+)(?:(?: |, \d+ )(?:and|to) (\d+))?`)
)

// EXACTLY_ONCE.md and the code say the same: the tests that it names exist where it says, those that are named after a rule stand there, and whoever cites a rule
// cites one of these.
func TestExactlyOnceDocument(t *testing.T) {
	raw, err := os.ReadFile("EXACTLY_ONCE.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[int]string{} // what stands under each
	text := string(raw)
	heads := ruleHead.FindAllStringSubmatchIndex(text, -1)
	for i, h := range heads {
		n, _ := strconv.Atoi(text[h[2]:h[3]])
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		if n != i+1 {
			t.Errorf("rule %d is the %dth", n, i+1)
		}
		rules[n] = text[h[0]:end]
	}
	tests, cited := repository(t)
	named := 0
	body := text[heads[0][0]:]
	for _, group := range testNames.FindAllStringSubmatch(body, -1) {
		for _, name := range testName.FindAllStringSubmatch(group[1], -1) {
			named++
			if !slices.Contains(tests[group[2]], name[1]) {
				t.Errorf("%s has no test %s", group[2], name[1])
			}
		}
	}
	if all := len(testName.FindAllString(body, -1)); named != all || named < 50 {
		t.Errorf("%d of %d tests are named with their package", named, all)
	}
	for dir, names := range tests {
		for _, name := range names {
			m := ruleTest.FindStringSubmatch(name)
			if m == nil {
				continue
			}
			if n, _ := strconv.Atoi(m[1]); !strings.Contains(rules[n], "`"+name+"`") {
				t.Errorf("rule %d does not name its test %s (%s)", n, name, dir)
			}
		}
	}
	for place, n := range cited {
		if rules[n] == "" {
			t.Errorf("%s cites rule %d, which there is not", place, n)
		}
	}
	if len(cited) < 50 {
		t.Errorf("only %d citations were found", len(cited))
	}
}

// repository reads the names of all tests, by folder, and which rules are cited where.
func repository(t *testing.T) (tests map[string][]string, cited map[string]int) {
	t.Helper()
	tests, cited = map[string][]string{}, map[string]int{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && strings.HasPrefix(e.Name(), ".") && e.Name() != ".." {
			if e != nil && e.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if e.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".proto" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(string(raw), -1) {
				tests[dir] = append(tests[dir], m[1])
			}
		}
		for i, line := range strings.Split(string(raw), "\n") {
			for _, m := range citation.FindAllStringSubmatch(line, -1) {
				for k, number := range m[1:] {
					if n, err := strconv.Atoi(number); err == nil {
						cited[path+":"+strconv.Itoa(i+1)+":"+strconv.Itoa(k)] = n
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, cited
}
