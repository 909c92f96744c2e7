package nomad

import (
	"encoding/hex"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// block is what stands between the braces of backend "nomad" { … }.
type block struct {
	Address      *string           `hcl:"address,optional"`
	AddressRange hcl.Range         `hcl:"address,attr_value_range"`
	Region       *string           `hcl:"region,optional"`
	RegionRange  hcl.Range         `hcl:"region,attr_value_range"`
	Namespace    *string           `hcl:"namespace,optional"`
	NamespaceRng hcl.Range         `hcl:"namespace,attr_value_range"`
	Token        *string           `hcl:"token,optional"`
	TokenRange   hcl.Range         `hcl:"token,attr_value_range"`
	CACert       *string           `hcl:"ca_cert,optional"`
	ClientCert   *string           `hcl:"client_cert,optional"`
	ClientKey    *string           `hcl:"client_key,optional"`
	ServerName   *string           `hcl:"tls_server_name,optional"`
	Driver       *string           `hcl:"driver,optional"`
	DriverRange  hcl.Range         `hcl:"driver,attr_value_range"`
	Image        *string           `hcl:"image,optional"`
	ImageRange   hcl.Range         `hcl:"image,attr_value_range"`
	User         *string           `hcl:"user,optional"`
	Trainer      *string           `hcl:"trainer,optional"`
	TrainerRange hcl.Range         `hcl:"trainer,attr_value_range"`
	Artifact     *artifactBlock    `hcl:"artifact,block"`
	Env          map[string]string `hcl:"env,optional"`
	EnvRange     hcl.Range         `hcl:"env,attr_value_range"`
	Volumes      []volumeBlock     `hcl:"volume,block"`
	Constraints  []constraintBlock `hcl:"constraint,block"`
	Device       *string           `hcl:"device,optional"`
	DeviceRange  hcl.Range         `hcl:"device,attr_value_range"`
	MHzPerCPU    *int              `hcl:"mhz_per_cpu,optional"`
	MHzRange     hcl.Range         `hcl:"mhz_per_cpu,attr_value_range"`
	Priority     *int              `hcl:"priority,optional"`
	PriorityRng  hcl.Range         `hcl:"priority,attr_value_range"`
	Datacenters  []string          `hcl:"datacenters,optional"`
	CentersRange hcl.Range         `hcl:"datacenters,attr_value_range"`
	NodePool     *string           `hcl:"node_pool,optional"`
	PoolRange    hcl.Range         `hcl:"node_pool,attr_value_range"`
	Shared       []string          `hcl:"shared_paths,optional"`
	SharedRange  hcl.Range         `hcl:"shared_paths,attr_value_range"`
	Drift        *string           `hcl:"drift,optional"`
	DriftRange   hcl.Range         `hcl:"drift,attr_value_range"`
}

type artifactBlock struct {
	Source      string    `hcl:"source"`
	Checksum    *string   `hcl:"checksum,optional"`
	ChecksumRng hcl.Range `hcl:"checksum,attr_value_range"`
	Range       hcl.Range `hcl:",def_range"`
}

type constraintBlock struct {
	Attribute string    `hcl:"attribute"`
	Operator  *string   `hcl:"operator,optional"`
	Value     *string   `hcl:"value,optional"`
	Range     hcl.Range `hcl:",def_range"`
}

// The ways to meet changes that others make to our Nomad jobs.
const (
	driftReport  = "report"
	driftRestore = "restore"
	driftAdopt   = "adopt"
)

// settings is a job's configuration, checked.
type settings struct {
	client      *api.Client
	owner       backend.Owner
	cluster     string // address and region: what an inventory is taken of once
	region      string
	namespace   string
	hasToken    bool
	trust       *trust
	driver      string
	image       string
	user        string
	trainer     string // what runs for trainerName on the nodes; empty: what the workload says
	artifact    *api.TaskArtifact
	env         map[string]string
	volumes     []volume
	constraints []*api.Constraint
	device      string
	mhzPerCPU   int
	priority    *int
	datacenters []string
	nodePool    *string
	shared      []string
	drift       string

	begins        backend.Config       // the place of the block in its file, and no more
	places        map[string]hcl.Range // where attributes stand, those that do not with no file name
	constraintsAt []hcl.Range
}

// trainerName is the program name that the block's trainer stands for.
const trainerName = "kale-trainer"

// defaultMHz is what one CPU counts for in Nomad's unit: clusters differ, and a request that is too small places
// workloads too densely while one that is too large places none.
const defaultMHz = 1000

// variableName is what a shell can export.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// decoder collects what is wrong with a block.
type decoder struct {
	block
	diags hcl.Diagnostics
}

func (d *decoder) add(severity hcl.DiagnosticSeverity, subject hcl.Range, summary, detail string, args ...any) {
	diag := backend.Mistake(subject, summary, detail, args...)
	diag.Severity = severity
	d.diags = append(d.diags, diag)
}

func (d *decoder) fail(subject hcl.Range, summary, detail string, args ...any) {
	d.add(hcl.DiagError, subject, summary, detail, args...)
}

func decode(cfg backend.Config) (settings, backend.Diagnostics) {
	var d decoder
	d.diags = backend.DecodeBlock(cfg, &d.block)
	if !backend.OnlyUnknown(d.diags) {
		d.adviseOnAttributes()
		return settings{}, backend.FromHCL(cfg, d.diags)
	}
	s := settings{
		env: d.Env, image: value(d.Image), user: value(d.User), priority: d.Priority, datacenters: d.Datacenters, nodePool: d.NodePool, shared: d.Shared,
		owner: cfg.Owner,
	}
	s.begins = backend.Config{Filename: cfg.Filename, StartLine: cfg.StartLine, StartColumn: cfg.StartColumn, StartByte: cfg.StartByte}
	s.places = map[string]hcl.Range{
		attrAddress: d.AddressRange, attrRegion: d.RegionRange, attrNamespace: d.NamespaceRng, attrToken: d.TokenRange, attrNodePool: d.PoolRange, attrDatacenters: d.CentersRange,
		attrDriver: d.DriverRange, attrDevice: d.DeviceRange,
	}
	d.program(&s)
	d.placement(&s)
	d.mounts(&s)
	d.checkShared(s, cfg)
	s.drift = d.oneOf(d.Drift, d.DriftRange, "drift", driftReport, driftRestore, driftAdopt)
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		if !variableName.MatchString(name) || strings.ContainsRune(d.Env[name], 0) {
			d.fail(d.EnvRange, "Unsuitable environment variable", "env has the name %q; a shell on the node sets it, so it has letters, digits and '_' only.", name)
		}
	}
	if detail := backend.OwnEnv(d.Env); detail != "" {
		d.fail(d.EnvRange, "Kale's own environment variable", "%s", detail)
	}
	if !d.diags.HasErrors() {
		d.connect(&s)
	}
	return s, backend.FromHCL(cfg, d.diags)
}

// adviseOnAttributes says of what is written as a Nomad job has it, ${node.class}, how the block has it: a job file has its own variables in such braces.
func (d *decoder) adviseOnAttributes() {
	for _, diag := range d.diags {
		if diag.Expression == nil {
			continue
		}
		for _, v := range diag.Expression.Variables() {
			if root := v.RootName(); root == "node" || root == "attr" || root == "meta" {
				diag.Summary = "Nomad's own variable"
				diag.Detail = "In a constraint name a node's attribute without ${}: attribute = \"node.class\". Elsewhere write $${node.class}, which comes to Nomad as ${node.class}."
			}
		}
	}
}

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// oneOf gives the attribute's value, which must be one of those named; the first is the default.
func (d *decoder) oneOf(v *string, at hcl.Range, name string, allowed ...string) string {
	if v == nil {
		return allowed[0]
	}
	if !slices.Contains(allowed, *v) {
		d.fail(at, "Unknown value", "%s is %q; it is one of %s.", name, *v, strings.Join(allowed, ", "))
	}
	return *v
}

// program reads what is to run, and how.
func (d *decoder) program(s *settings) {
	s.driver = d.oneOf(d.Driver, d.DriverRange, "driver", "raw_exec", "exec", "docker")
	switch {
	case s.driver == "docker" && s.image == "":
		d.fail(d.DriverRange, "No image", "The docker driver runs a container image: name it with image; it holds %s and /bin/sh.", trainerName)
	case (s.driver == "raw_exec" || s.driver == "exec") && s.image != "":
		d.fail(d.ImageRange, "Image without docker", "image is for driver = \"docker\"; the driver here is %q.", s.driver)
	}
	if s.driver == "docker" || d.Artifact != nil {
		s.trainer = trainerName // in the image, or in the artifact's folder, which start.sh has in its PATH
	}
	if d.Trainer != nil {
		s.trainer = *d.Trainer
		if s.trainer == "" {
			d.fail(d.TrainerRange, "Empty program name", "trainer is the path of the program %s on the nodes; leave it out to find it in their PATH.", trainerName)
		}
	}
	if d.Artifact == nil {
		return
	}
	s.artifact = &api.TaskArtifact{GetterSource: &d.Artifact.Source, RelativeDest: ptr("local/kale")}
	if d.Artifact.Checksum != nil {
		s.artifact.GetterOptions = map[string]string{"checksum": *d.Artifact.Checksum}
		if !isChecksum(*d.Artifact.Checksum) {
			d.fail(d.Artifact.ChecksumRng, "Unsuitable checksum", "checksum is %q; it is the artifact's sum in hexadecimal digits after its kind and a colon, such as \"sha256:…\" with 64 of them; also md5, sha1 and sha512.",
				*d.Artifact.Checksum)
		}
	} else {
		d.add(hcl.DiagWarning, d.Artifact.Range, "Artifact without a checksum", "Every node runs whatever %s gives it at that moment; set checksum = \"sha256:…\".", d.Artifact.Source)
	}
}

// isChecksum says whether Nomad takes the checksum of an artifact. What each node has to fill in shows only there.
func isChecksum(checksum string) bool {
	sizes := map[string]int{"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}
	kind, sum, _ := strings.Cut(checksum, ":")
	raw, err := hex.DecodeString(sum)
	return strings.Contains(checksum, "${") || err == nil && sizes[kind] > 0 && len(raw) == sizes[kind]
}

// placement reads where it may run.
func (d *decoder) placement(s *settings) {
	s.device, s.mhzPerCPU = "nvidia/gpu", defaultMHz
	if d.Device != nil {
		s.device = *d.Device
		if s.device == "" {
			d.fail(d.DeviceRange, "Empty device name", `device is what Nomad calls a GPU, "nvidia/gpu" or "nvidia/gpu/H100".`)
		}
	}
	if d.MHzPerCPU != nil {
		s.mhzPerCPU = *d.MHzPerCPU
		if s.mhzPerCPU < 1 {
			d.fail(d.MHzRange, "Unsuitable CPU unit", "mhz_per_cpu is %d; it is how many of Nomad's MHz one CPU of the job file is, 1 or more.", s.mhzPerCPU)
		}
	}
	if p := d.Priority; p != nil && (*p < 1 || *p > 100) {
		d.fail(d.PriorityRng, "Unsuitable priority", "priority is %d; Nomad's priorities are 1 to 100.", *p)
	}
	for _, c := range d.Constraints {
		left, op := c.Attribute, "="
		if !strings.Contains(left, "${") {
			left = "${" + left + "}"
		}
		if c.Operator != nil {
			op = *c.Operator
		}
		s.constraints = append(s.constraints, api.NewConstraint(left, op, value(c.Value)))
		s.constraintsAt = append(s.constraintsAt, c.Range)
	}
}

// connect makes the client; it does not speak to the cluster.
func (d *decoder) connect(s *settings) {
	conf := api.DefaultConfig() // reads the NOMAD_… variables
	set := func(to *string, from *string) {
		if from != nil {
			*to = *from
		}
	}
	set(&conf.Address, d.Address)
	set(&conf.Region, d.Region)
	set(&conf.Namespace, d.Namespace)
	set(&conf.SecretID, d.Token)
	set(&conf.TLSConfig.CACert, d.CACert)
	set(&conf.TLSConfig.ClientCert, d.ClientCert)
	set(&conf.TLSConfig.ClientKey, d.ClientKey)
	set(&conf.TLSConfig.TLSServerName, d.ServerName)
	if !strings.Contains(conf.Address, "://") {
		d.fail(d.AddressRange, "Unsuitable address", "address is %q%s; it is the URL of a Nomad server or agent, such as \"http://nomad.example:4646\".", conf.Address, fromEnvironment(d.AddressRange, "NOMAD_ADDR"))
		return
	}
	client, err := api.NewClient(conf)
	if err != nil {
		d.fail(d.AddressRange, "No client for Nomad", "The address %q%s or the TLS files cannot be used: %v.", conf.Address, fromEnvironment(d.AddressRange, "NOMAD_ADDR"), err)
		return
	}
	s.client, s.cluster, s.region, s.namespace, s.hasToken = client, conf.Address+" "+conf.Region, conf.Region, conf.Namespace, conf.SecretID != ""
	s.trust = &trust{}
	if s.namespace == "" {
		s.namespace = api.DefaultNamespace
	}
}

// fromEnvironment says where the value of an attribute comes from that the block does not have.
func fromEnvironment(attribute hcl.Range, variable string) string {
	if attribute.Filename != "" || os.Getenv(variable) == "" {
		return ""
	}
	return " (by the environment: " + variable + ")"
}

func ptr[T any](v T) *T { return &v }
