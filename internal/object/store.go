package object

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

const (
	// Tries is how often a request is made before its error is returned, with
	// jittered waits of up to maxWait between; a store that meets many errors tries
	// less often.
	Tries   = 3
	maxWait = 2 * time.Second

	defaultTimeout = 30 * time.Second
	defaultRegion  = "us-east-1" // what servers other than AWS expect in signatures
)

// Config says where objects are and with which credentials they are reached.
type Config struct {
	// Endpoint is the URL of an S3 server, "http://127.0.0.1:8333". Empty: AWS's
	// own for the region, or what the AWS environment says.
	Endpoint string
	Region   string // empty: what the AWS environment says, else us-east-1

	// AccessKey and SecretKey, and SessionToken if the keys are temporary. Without
	// them, the AWS SDK's default chain is asked: environment, shared files, roles.
	AccessKey, SecretKey, SessionToken string
	// Anonymous: requests are not signed, and the chain is not asked.
	Anonymous bool

	// Timeout is how long one attempt may make no progress. 0: 30 s.
	Timeout time.Duration
	Logger  *slog.Logger // nil: none

	wait time.Duration // longest between tries; 0: maxWait
}

// ConfigError says which setting cannot be used.
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string { return "S3 " + e.Field + ": " + e.Reason }

// Store is one S3 endpoint. Its methods may be called concurrently. Each makes
// its requests up to [Tries] times, and returns what is definite at once; nothing
// else here repeats anything.
type Store struct {
	api   *s3.Client
	http  *http.Client
	log   *slog.Logger
	known sync.Map // buckets that were there once: they need no second look
}

// Open makes a store of an endpoint. It sends nothing to the endpoint. Settings
// that cannot be used are a *ConfigError. [Store.Close] gives its connections
// back.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.wait == 0 {
		c.wait = maxWait
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	client := newHTTP(c.Timeout)
	o := s3.Options{
		Region: c.Region, UsePathStyle: true, HTTPClient: client,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = Tries, c.wait
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
		Logger:                     logging.Nop{},
		// Whatever a bucket is called, requests go to the endpoint.
		DisableMultiRegionAccessPoints: true,
		DisableS3ExpressSessionAuth:    aws.Bool(true),
	}
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	if err := c.authenticate(ctx, &o); err != nil {
		return nil, err
	}
	return &Store{api: s3.New(o), http: client, log: c.Logger}, nil
}

// Close gives idle connections back. Requests that are under way go on.
func (s *Store) Close() { s.http.CloseIdleConnections() }

func (c *Config) check() error {
	switch {
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return &ConfigError{"keys", "access key and secret key go together, and one of them is missing"}
	case c.SessionToken != "" && c.AccessKey == "":
		return &ConfigError{"session token", "it needs an access key and a secret key"}
	case c.Anonymous && c.AccessKey != "":
		return &ConfigError{"keys", "there are keys for anonymous access"}
	case c.Timeout < 0:
		return &ConfigError{"timeout", "it is negative"}
	case c.Endpoint == "":
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return &ConfigError{"endpoint", "it is no URL"} // the error repeats it, with what may be a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return &ConfigError{"endpoint", `want "http://host:port" or "https://host"`}
	case u.User != nil:
		return &ConfigError{"endpoint", "user and password do not belong into the URL; give keys"}
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return &ConfigError{"endpoint", "want a host and a port, and nothing behind them"}
	}
	return nil
}

// authenticate fills in credentials, and what the AWS environment says beside.
func (c *Config) authenticate(ctx context.Context, o *s3.Options) error {
	switch {
	case c.Anonymous:
		o.Credentials = aws.AnonymousCredentials{}
	case c.AccessKey != "":
		o.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)
	default:
		env, err := c.environment(ctx)
		if err != nil {
			return err
		}
		o.Credentials = env.Credentials
		if o.Region == "" {
			o.Region = env.Region
		}
		if o.BaseEndpoint == nil {
			o.BaseEndpoint = env.BaseEndpoint
		}
	}
	if o.Region == "" {
		o.Region = defaultRegion
	}
	return nil
}

// environment is what the AWS environment says. For an endpoint that is not AWS's
// the role of the machine means nothing: asking for it, where there is none, takes
// 8 s and ends as if the endpoint were away. There, no credentials is a fault of
// the settings.
func (c *Config) environment(ctx context.Context) (env aws.Config, err error) {
	own := c.Endpoint != "" && !strings.Contains(c.Endpoint, ".amazonaws.com")
	role := imds.ClientDefaultEnableState
	if own {
		role = imds.ClientDisabled
	}
	if env, err = config.LoadDefaultConfig(ctx, config.WithEC2IMDSClientEnableState(role)); err != nil {
		return env, fmt.Errorf("read the AWS environment: %w", err)
	}
	if _, err := env.Credentials.Retrieve(ctx); err != nil && own && ctx.Err() == nil {
		return env, &ConfigError{"keys", "there are none: give an access key and a secret key, or set up the AWS environment (AWS_ACCESS_KEY_ID, a profile)"}
	}
	return env, nil
}
