package job

import (
	"strings"
	"testing"
)

// A password that stands in a job file, or was given with -var, is never shown, whatever is wrong with it or beside it.
func TestNoPasswordIsShown(t *testing.T) {
	const secret = "hunter2x"
	for _, tt := range []struct{ name, sasl, variables, flag string }{
		{"without quotes", `password = hunter2x`, "", ""},
		{"with letters that HCL does not know", "password = hunter2x!@#'", "", ""},
		{"quote not closed", `password = "hunter2x`, "", ""},
		{"twice on a line", `password = "hunter2x" "more"`, "", ""},
		{"misspelt", `pasword = "hunter2x"`, "", ""},
		{"as a list", `password = ["hunter2x"]`, "", ""},
		{"as an object", `password = { is = "hunter2x" }`, "", ""},
		{"on the line of another mistake", `user = "x", password = "hunter2x"`, "", ""},
		{"in a variable of another name", `password = var.pw`, "variable \"pw\" {\n  deflt = \"hunter2x\"\n  type = string\n}\n", ""},
		{"in a variable's default of a wrong type", `password = var.pw`, "variable \"pw\" {\n  default = \"hunter2x\"\n  type = number\n}\n", ""},
		{"as the value of a flag", `password = var.password`, "variable \"password\" {\n  type = number\n}\n", secret},
		{"as the value of a flag that is a list", `password = var.password`, "variable \"password\" {\n  type = list(string)\n}\n", secret},
		{"a function that there is not", `password = decrypt("hunter2x")`, "", ""},
		{"in a function", `password = lower("hunter2x", 1)`, "", ""},
		{"in a function over several lines", "password = format(\n\"%s\",\n\"hunter2x\", 1, 2)", "", ""},
		{"as a default of the environment", `password = env("KALE_NONE", "hunter2x", 1 == 1 ? [] : [])`, "", ""},
		{"trimmed", `password = trimspace("hunter2x", "hunter2x")`, "", ""},
		{"beside a reference", `password = "hunter2x${env("KALE_NONE")}"`, "", ""},
		{"a broken reference", `password = "hunter2x${var.none}"`, "", ""},
	} {
		src := tt.variables + strings.Replace(minimal, "topic   = \"clicks\"\n", "topic   = \"clicks\"\n    sasl {\n      mechanism = \"plein\"\n      username  = \"u\"\n      "+tt.sasl+"\n    }\n", 1)
		vars := map[string]string{}
		if tt.flag != "" {
			vars["password"] = tt.flag
		}
		_, files, diags := Parse([]byte(src), "job.hcl", Options{Vars: vars, LookupEnv: func(string) (string, bool) { return "", false }})
		text := rendered(files, diags)
		if !diags.HasErrors() || strings.Contains(text, secret) {
			t.Errorf("%s:\n%s", tt.name, text)
		}
		located(t, files, diags)
	}

	// What only names where a password is to be found is shown.
	for _, shown := range []string{`password = env("KAFKA_PASSWORD")`, `password = file("no-such-password-file")`, `password = "${var.password}"`, `password = var.password`} {
		src := strings.Replace(minimal, "topic   = \"clicks\"\n", "topic   = \"clicks\"\n    sasl {\n      mechanism = \"plain\"\n      username  = \"u\"\n      "+shown+"\n    }\n", 1)
		_, files, diags := Parse([]byte(src), "job.hcl", Options{LookupEnv: func(string) (string, bool) { return "", false }})
		if text := rendered(files, diags); !strings.Contains(text, shown) {
			t.Errorf("%s is not shown:\n%s", shown, text)
		}
	}
}

// A "~" at the front of a path is this user's home folder, in each attribute that is a path, and another's is refused with advice.
func TestPathsAtHome(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	at := func(path string) string {
		return strings.NewReplacer(`dir = "cp"`, `dir = "`+path+`"`, "backend \"local\" {\n  }", "backend \"local\" {\n    dir  = \""+path+"\"\n    gpus = \"~> 1.2\"\n  }").Replace(minimal)
	}
	j, files, diags := Parse([]byte(at("~/kale/ck")), "job.hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	if j.Checkpoint.Dir != home+"/kale/ck" {
		t.Errorf("checkpoint.dir is %s", j.Checkpoint.Dir)
	}
	if got := string(j.Backend.Source); !strings.Contains(got, `"`+home+`/kale/ck"`) || !strings.Contains(got, `"~> 1.2"`) {
		t.Errorf("the backend's block is %s", got)
	}
	_, files, diags = Parse([]byte(at("~bob/ck")), "job.hcl", Options{})
	if text := rendered(files, diags); len(diags) != 2 || strings.Count(text, "the home folder of who runs kale") != 2 {
		t.Errorf("of another's home folder it is said:\n%s", text)
	}
	located(t, files, diags)
}
