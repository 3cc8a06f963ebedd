package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/spillway-mq/spillway/functions"
)

// config is every setting that says where things are and how to talk. Each is a
// flag, SPILLWAY_… in the environment, and a key of the YAML file, in this order
// of precedence.
type config struct {
	Stack        string `mapstructure:"stack"`
	NATS         string `mapstructure:"nats"`
	NATSCreds    string `mapstructure:"nats-creds"`
	NATSNKey     string `mapstructure:"nats-nkey"`
	NATSUser     string `mapstructure:"nats-user"`
	NATSPassword string `mapstructure:"nats-password"`
	NATSCA       string `mapstructure:"nats-tls-ca"`
	NATSCert     string `mapstructure:"nats-tls-cert"`
	NATSKey      string `mapstructure:"nats-tls-key"`
	Filer        string `mapstructure:"filer"`
	FilerGRPC    string `mapstructure:"filer-grpc"`
	FilerCA      string `mapstructure:"filer-tls-ca"`
	FilerCert    string `mapstructure:"filer-tls-cert"`
	FilerKey     string `mapstructure:"filer-tls-key"`
	FilerHTTPS   bool   `mapstructure:"filer-https"`
	S3           string `mapstructure:"s3"`
	S3Region     string `mapstructure:"s3-region"`
	S3AccessKey  string `mapstructure:"s3-access-key"`
	S3SecretKey  string `mapstructure:"s3-secret-key"`
	S3Bucket     string `mapstructure:"s3-bucket"`
	Bucket       string `mapstructure:"bucket"`
	Catalog      string `mapstructure:"catalog"`
	CatalogCred  string `mapstructure:"catalog-credential"`
	Warehouse    string `mapstructure:"warehouse"`
	Namespace    string `mapstructure:"namespace"`
	JSON         bool   `mapstructure:"json"`
	LogLevel     string `mapstructure:"log-level"`
	LogFormat    string `mapstructure:"log-format"`

	Timeout time.Duration `mapstructure:"timeout"`
}

func addGlobalFlags(f *pflag.FlagSet) {
	f.String("config", "", "YAML file with settings of the same names as these flags")
	f.String("stack", "", "folder of a development stack; says where its servers are")
	f.String("nats", "", "NATS server URL, such as nats://host:4222")
	f.String("nats-creds", "", "NATS credentials file")
	f.String("nats-nkey", "", "NATS nkey seed file")
	f.String("nats-user", "", "NATS user")
	f.String("nats-password", "", "NATS password; better in SPILLWAY_NATS_PASSWORD")
	f.String("nats-tls-ca", "", "CA certificates of the NATS server")
	f.String("nats-tls-cert", "", "client certificate for NATS")
	f.String("nats-tls-key", "", "key of the client certificate for NATS")
	f.String("filer", "", "SeaweedFS filer, host:port of its HTTP port")
	f.String("filer-grpc", "", "host:port of the filer's gRPC port (default: the HTTP port + 10000)")
	f.String("filer-tls-ca", "", "CA certificates of the filer's gRPC port")
	f.String("filer-tls-cert", "", "client certificate for the filer's gRPC port")
	f.String("filer-tls-key", "", "key of the client certificate for the filer")
	f.Bool("filer-https", false, "talk HTTPS to the filer's and the volume servers' HTTP ports")
	f.String("s3", "", "URL of the S3 endpoint that payloads lie at (default: the stack's, or AWS's of the region)")
	f.String("s3-region", "", "S3 region (default: as the AWS tools find it, or us-east-1)")
	f.String("s3-access-key", "", "S3 access key (default: as the AWS tools find it); better in SPILLWAY_S3_ACCESS_KEY")
	f.String("s3-secret-key", "", "S3 secret key; better in SPILLWAY_S3_SECRET_KEY")
	f.String("s3-bucket", "", "bucket to which values over 512 KiB are uploaded (default: they are refused)")
	f.String("bucket", "", "bucket that holds everything (default: the stack's, or spillway)")
	f.String("catalog", "", "URL of the Iceberg REST catalog that has the topics' tables, or none (default: the stack's, or none)")
	f.String("catalog-credential", "", "id:secret for the catalog (default: the S3 keys); better in SPILLWAY_CATALOG_CREDENTIAL")
	f.String("warehouse", "", "table bucket of the catalog (default: the stack's, or warehouse)")
	f.String("namespace", defaultNamespace, "namespace of the tables in the catalog")
	f.Duration("timeout", 30*time.Second, "give up when a server has not answered for so long; functions and dev do not")
	f.Bool("json", false, "machine-readable output")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
}

// loadConfig merges flags, environment and file. An unknown key in the file is
// an error: it is a setting that would silently not apply.
func loadConfig(flags *pflag.FlagSet) (config, error) {
	v := viper.New()
	v.SetEnvPrefix("SPILLWAY")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	globals := pflag.NewFlagSet("", pflag.ContinueOnError)
	addGlobalFlags(globals)
	known := map[string]bool{}
	globals.VisitAll(func(f *pflag.Flag) {
		known[f.Name] = f.Name != "config"
		v.SetDefault(f.Name, f.DefValue) // viper reads the environment of known keys only
		if set := flags.Lookup(f.Name); set != nil {
			_ = v.BindPFlag(f.Name, set) // fails for a nil flag only
		}
	})
	var c config
	if file := v.GetString("config"); file != "" {
		v.SetConfigFile(file)
		v.SetConfigType("yaml")
		if err := v.ReadInConfig(); err != nil {
			return c, &functions.ConfigError{Err: fmt.Errorf("configuration file %s: %w", file, err)}
		}
		for _, key := range v.AllKeys() {
			if !known[key] && key != "config" {
				return c, &functions.ConfigError{Err: fmt.Errorf("configuration file %s: there is no setting %q", file, key)}
			}
		}
	}
	if err := v.Unmarshal(&c); err != nil {
		return c, &functions.ConfigError{Err: fmt.Errorf("settings: %w", err)}
	}
	if c.Timeout <= 0 {
		return c, &functions.ConfigError{Err: fmt.Errorf("timeout %s: want a positive time", c.Timeout)}
	}
	return c, nil
}

// logger writes to w as the settings say.
func (c config) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, &functions.ConfigError{Err: fmt.Errorf("log-level %q: want debug, info, warn or error", c.LogLevel)}
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, &functions.ConfigError{Err: fmt.Errorf("log-format %q: want text or json", c.LogFormat)}
}
