package nomadtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An authority of a cluster's own, and one certificate for all of its agents and for who speaks to them.
const (
	caFile   = "ca.pem"
	certFile = "cert.pem"
	keyFile  = "key.pem"
)

// certificateFor is how long the certificates are good: longer than any test.
const certificateFor = 24 * time.Hour

// CACert is the file with the authority that signed the agents' certificates, with Options.TLS.
func (c *Cluster) CACert() string { return filepath.Join(c.dir, caFile) }

// ClientCert gives the files of a certificate that the agents accept, and of its key, with Options.TLS.
func (c *Cluster) ClientCert() (cert, key string) {
	return filepath.Join(c.dir, certFile), filepath.Join(c.dir, keyFile)
}

// WriteCA makes an authority in the folder, and a certificate that it has signed for Nomad's agents on this machine. It
// gives the authority's file.
func WriteCA(dir string) (ca string, err error) {
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "an authority for tests"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateFor),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: "nomad"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"server.global.nomad", "client.global.nomad", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make an authority: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make a certificate: %w", err)
	}
	rootRaw, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err != nil {
		return "", fmt.Errorf("make an authority: %w", err)
	}
	leafRaw, err := x509.CreateCertificate(rand.Reader, leaf, root, &leafKey.PublicKey, rootKey)
	if err != nil {
		return "", fmt.Errorf("sign a certificate: %w", err)
	}
	keyRaw, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		return "", fmt.Errorf("write a certificate's key: %w", err)
	}
	for _, f := range []struct {
		name, kind string
		raw        []byte
	}{{caFile, "CERTIFICATE", rootRaw}, {certFile, "CERTIFICATE", leafRaw}, {keyFile, "EC PRIVATE KEY", keyRaw}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.raw}), 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, caFile), nil
}
