package core

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kale-sched/kale/core/job"
)

// KafkaOpts are the options with which a job's stream is reached: TLS and SASL.
func KafkaOpts(j *job.Job) ([]kgo.Opt, error) {
	// A broker that is killed closes connections in ways that franz-go would take for a missing SASL, and not retry.
	opts := []kgo.Opt{kgo.ClientID("kale"), kgo.AlwaysRetryEOF()}
	if t := j.Stream.TLS; t != nil {
		cfg, err := tlsConfig(t)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if a := j.Stream.SASL; a != nil {
		switch a.Mechanism {
		case "plain":
			opts = append(opts, kgo.SASL(plain.Auth{User: a.Username, Pass: a.Password.Reveal()}.AsMechanism()))
		case "scram-sha-256":
			opts = append(opts, kgo.SASL(scram.Auth{User: a.Username, Pass: a.Password.Reveal()}.AsSha256Mechanism()))
		case "scram-sha-512":
			opts = append(opts, kgo.SASL(scram.Auth{User: a.Username, Pass: a.Password.Reveal()}.AsSha512Mechanism()))
		default:
			return nil, fmt.Errorf("sasl mechanism %q: there are plain, scram-sha-256 and scram-sha-512", a.Mechanism)
		}
	}
	return opts, nil
}

// CheckConnection says, as diagnostics of the job file, what in it keeps its brokers from being spoken to at all.
func CheckConnection(j *job.Job) hcl.Diagnostics {
	if _, err := KafkaOpts(j); err != nil {
		return hcl.Diagnostics{j.ErrorAt("stream.tls", "The brokers' encryption cannot be set up", fmt.Sprintf("%v.", err))}
	}
	return nil
}

func tlsConfig(t *job.TLS) (*tls.Config, error) {
	cfg := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the brokers' CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the brokers' CA: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate for the brokers: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
