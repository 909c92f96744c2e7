package slurm

import (
	"context"
	"os/user"
	"slices"
	"strings"
	"time"
)

// names asks slurmctld what there is for the user of what an attribute names. known is false where it cannot tell: accounts and QOS are only checked,
// and only known, where the site has a database and enforces them.
func (c cli) names(ctx context.Context, attr string) (has []string, known bool, err error) {
	if attr == attrClusters {
		c.clusters = "" // sacctmgr has no such option
		out, _, err := c.run(ctx, askTimeout, "", "sacctmgr", "--parsable2", "--noheader", "show", "clusters", "format=Cluster")
		return strings.Fields(out), err == nil, err
	}
	for _, c := range c.each() { // a job may go to any of them
		some, known, err := c.namesHere(ctx, attr)
		if err != nil || !known {
			return nil, false, err
		}
		has = append(has, some...)
	}
	return has, true, nil
}

// namesHere is names for one cluster.
func (c cli) namesHere(ctx context.Context, attr string) (has []string, known bool, err error) {
	show := func(args ...string) (string, error) {
		out, _, err := c.run(ctx, askTimeout, "", "scontrol", append([]string{"--all", "--oneliner", "show"}, args...)...)
		return out, err
	}
	switch attr {
	case attrPartition:
		out, err := show("partitions")
		return fieldOf(out, "PartitionName"), err == nil, err
	case attrReservation:
		out, err := show("reservations")
		return fieldOf(out, "ReservationName"), err == nil, err
	}
	out, err := show("config")
	if err != nil || !enforces(out, attr) {
		return nil, false, err
	}
	// The controller's own list (show assoc_mgr) has no QOS of an account: the database is asked. Where it cannot be, sbatch's own refusal must do.
	me, err := user.Current()
	if err != nil {
		return nil, false, err
	}
	args := []string{"--parsable2", "--noheader", "show", "associations", "user=" + me.Username, "format=Account,QOS"}
	if cluster := configValue(out, "ClusterName"); cluster != "" {
		args = append(args, "cluster="+cluster)
	}
	c.clusters = "" // sacctmgr has no such option
	if out, _, err = c.run(ctx, askTimeout, "", "sacctmgr", args...); err != nil {
		return nil, false, err
	}
	accounts, qos := parseAssociations(out)
	if attr == attrQOS {
		accounts = qos
	}
	return accounts, len(accounts) > 0, nil
}

func (c cli) longest(ctx context.Context) (limits map[string]time.Duration, fallback string, err error) {
	limits = map[string]time.Duration{}
	for i, c := range c.each() {
		out, _, err := c.run(ctx, askTimeout, "", "scontrol", "--all", "--oneliner", "show", "partitions")
		if err != nil {
			return nil, "", err
		}
		here, standard := parseLongest(out)
		for name, limit := range here {
			limits[name] = max(limits[name], limit) // a job may go to any of them
		}
		if i > 0 && standard != fallback {
			standard = ""
		}
		fallback = standard
	}
	return limits, fallback, nil
}

func (c cli) longestOf(ctx context.Context, qos string) (limit time.Duration, known bool, err error) {
	for _, c := range c.each() {
		config, _, err := c.run(ctx, askTimeout, "", "scontrol", "--oneliner", "show", "config")
		if err != nil || !enforces(config, attrTime) {
			return 0, false, err
		}
	}
	c.clusters = "" // sacctmgr has no such option
	out, _, err := c.run(ctx, askTimeout, "", "sacctmgr", "--parsable2", "--noheader", "show", "qos", qos, "format=MaxWall")
	if err != nil {
		return 0, false, err
	}
	limit, err = parseLimit(strings.TrimSpace(out))
	return limit, err == nil && limit > 0, nil // none: the QOS has no limit
}

// parseLongest reads scontrol show partitions, one a line: how long a job may run in each, and the partition of jobs that name none.
func parseLongest(out string) (limits map[string]time.Duration, fallback string) {
	limits = map[string]time.Duration{}
	for line := range strings.Lines(out) {
		for _, name := range fieldOf(line, "PartitionName") {
			limits[name] = endless
			if limit, err := parseLimit(strings.Join(fieldOf(line, "MaxTime"), "")); err == nil { // else UNLIMITED
				limits[name] = limit
			}
			if slices.Contains(fieldOf(line, "Default"), "YES") {
				fallback = name
			}
		}
	}
	return limits, fallback
}

// fieldOf gives the values of a field, one of each line of scontrol's.
func fieldOf(out, name string) []string {
	var values []string
	for line := range strings.Lines(out) {
		for word := range strings.FieldsSeq(line) {
			if value, ok := strings.CutPrefix(word, name+"="); ok {
				values = append(values, value)
				break
			}
		}
	}
	return values
}

// configValue gives a parameter of what scontrol show config prints; "" for none.
func configValue(config, name string) string {
	for line := range strings.Lines(config) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// enforces reads whether scontrol show config says that accounts, QOS, or the limits of these, are checked.
func enforces(config, attr string) bool {
	words := strings.Split(strings.ToLower(configValue(config, "AccountingStorageEnforce")), ",")
	switch attr {
	case attrQOS:
		return slices.Contains(words, "qos")
	case attrTime:
		return slices.Contains(words, "limits") || slices.Contains(words, "safe")
	}
	return slices.Contains(words, "associations") // slurmctld adds it where limits, safe or qos imply it
}

// parseAssociations reads the user's accounts, and the QOS that these allow, from lines of account|qos,qos.
func parseAssociations(out string) (accounts, qos []string) {
	for line := range strings.Lines(out) {
		account, allowed, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok || account == "" {
			continue
		}
		accounts = append(accounts, account)
		for q := range strings.SplitSeq(allowed, ",") {
			if q != "" {
				qos = append(qos, q)
			}
		}
	}
	return accounts, qos
}
