// Package kafka holds what every part of the trainer agrees on about the stream: how to connect to the brokers ([Opts]) and how a
// record is named in the proof that it trained once ([RecordHash]).
//
// Input: the stream section of a [rpc.TrainSpec]. Output: options for a franz-go client that reads committed records only, keeps
// control records (EXACTLY_ONCE rule 15: they move progress), and never resets an offset on its own (rule 16).
package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kale-sched/kale/core/rpc"
)

// Opts returns the options with which to reach a stream's brokers and read it. What to read is left to the caller.
func Opts(s *rpc.StreamSpec) ([]kgo.Opt, error) {
	if len(s.GetBrokers()) == 0 {
		return nil, errors.New("stream names no brokers")
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(s.GetBrokers()...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// What is known of topics is at most this old when it is asked for (the client's own default is 5 s): added partitions, new leaders and
		// re-created topics are met that much sooner.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.AlwaysRetryEOF(), // a killed broker looks like a missing SASL otherwise, which is not retried
	}
	if t := s.GetTls(); t != nil {
		cfg, err := tlsConfig(t)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if sasl := s.GetSasl(); sasl != nil {
		opt, err := saslOpt(sasl)
		if err != nil {
			return nil, err
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

func tlsConfig(t *rpc.TLSSpec) (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.GetServerName(),
		InsecureSkipVerify: t.GetInsecureSkipVerify(),
	}
	if t.GetCaFile() != "" {
		pem, err := os.ReadFile(t.GetCaFile())
		if err != nil {
			return nil, fmt.Errorf("read the brokers' certificate authority: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", t.GetCaFile())
		}
	}
	switch {
	case t.GetCertFile() != "" && t.GetKeyFile() != "":
		pair, err := tls.LoadX509KeyPair(t.GetCertFile(), t.GetKeyFile())
		if err != nil {
			return nil, fmt.Errorf("load the client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	case t.GetCertFile() != "" || t.GetKeyFile() != "":
		return nil, errors.New("a client certificate needs both cert_file and key_file")
	}
	return cfg, nil
}

func saslOpt(s *rpc.SASLSpec) (kgo.Opt, error) {
	switch m := strings.ToUpper(s.GetMechanism()); m {
	case "", "PLAIN":
		return kgo.SASL(plain.Auth{User: s.GetUsername(), Pass: s.GetPassword()}.AsMechanism()), nil
	case "SCRAM-SHA-256":
		return kgo.SASL(scram.Auth{User: s.GetUsername(), Pass: s.GetPassword()}.AsSha256Mechanism()), nil
	case "SCRAM-SHA-512":
		return kgo.SASL(scram.Auth{User: s.GetUsername(), Pass: s.GetPassword()}.AsSha512Mechanism()), nil
	default:
		return nil, fmt.Errorf("SASL mechanism %q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", s.GetMechanism())
	}
}

// RecordHash names one record in the sums of EXACTLY_ONCE rule 19: xxhash64, seed 0, of the topic's bytes, a zero byte, the partition
// (4 bytes, big-endian) and the offset (8 bytes, big-endian). Every tablet adds it up modulo 2^64, and so does whoever compares the
// sums with the broker's log.
func RecordHash(topic string, partition int32, offset int64) uint64 {
	var room [128]byte
	b := append(room[:0], topic...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	return xxhash.Sum64(b)
}
