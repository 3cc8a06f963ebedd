package table

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
)

// Settings say where a REST catalog is.
type Settings struct {
	URL       string // "http://127.0.0.1:8181", without /v1
	Warehouse string // the table bucket
	AccessKey string // S3 keys, which SeaweedFS's catalog takes as OAuth2 client credentials
	SecretKey string
}

func (s Settings) check() error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return fmt.Errorf("the catalog's address: %w", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("the catalog's address %q is no http or https URL", s.URL)
	case u.User != nil:
		return errors.New("the catalog's address has keys in it")
	case s.Warehouse == "" || strings.ContainsAny(s.Warehouse, "/: "):
		return fmt.Errorf("the warehouse %q is no name of a table bucket", s.Warehouse)
	case (s.AccessKey == "") != (s.SecretKey == ""):
		return errors.New("the access key and the secret key belong together")
	}
	return nil
}

// REST is a REST catalog. It may be used concurrently.
type REST struct {
	*rest.Catalog
	transport *http.Transport
}

// Connect asks a REST catalog for its configuration. *ConfigError: the settings
// are wrong. *UnavailableError: it gives no answer now; the caller retries.
func Connect(ctx context.Context, s Settings) (*REST, error) {
	const op, ask = "connect to the catalog", "ask it"
	if err := s.check(); err != nil {
		return nil, &ConfigError{op, "correct the setting", err}
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: callTimeout,
		MaxIdleConnsPerHost:   8,
		IdleConnTimeout:       time.Minute,
	}
	opts := []rest.Option{
		rest.WithWarehouseLocation("s3://" + s.Warehouse),
		rest.WithCustomTransport(transport),
		// Files are read and written by way of the filer: no keys for them are needed.
		rest.WithHeaders(map[string]string{"X-Iceberg-Access-Delegation": ""}),
	}
	base := strings.TrimSuffix(s.URL, "/")
	if s.AccessKey != "" {
		opts = append(opts, rest.WithAuthManager(newKeys(s, base, transport)))
	}
	c, err := call(ctx, ask, func(ctx context.Context) (*rest.Catalog, error) {
		c, err := rest.NewCatalog(ctx, "spillway", base, opts...)
		if err != nil {
			return nil, err
		}
		// The configuration is given to anybody. This is not.
		_, err = c.ListNamespaces(ctx, nil)
		return c, err
	})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, connectError(op, s, err)
	}
	return &REST{c, transport}, nil
}

// connectError tells what is wrong with the answers to the first questions.
func connectError(op string, s Settings, err error) error {
	var known *ConfigError
	switch {
	case errors.As(err, &known), !errors.Is(err, rest.ErrRESTError) && !isAnswer(err):
		return err
	case errors.Is(err, catalog.ErrNoSuchNamespace), errors.Is(err, rest.ErrBadRequest):
		return &ConfigError{op, fmt.Sprintf("check the warehouse: is there a table bucket %q?", s.Warehouse), err}
	case errors.Is(err, rest.ErrServerError), errors.Is(err, rest.ErrServiceUnavailable):
		return err
	default:
		return &ConfigError{op, fmt.Sprintf("check the address: %s does not answer like an Iceberg REST catalog", s.URL), err}
	}
}

// Close gives up its connections.
func (r *REST) Close() error {
	err := r.Catalog.Close()
	r.transport.CloseIdleConnections()
	return err
}
