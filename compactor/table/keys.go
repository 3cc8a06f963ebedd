package table

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/apache/iceberg-go/catalog/rest"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// keys proves to a catalog who asks: S3 keys, exchanged for a token as OAuth2
// client credentials. iceberg-go can do that too, but of what goes wrong it keeps
// only the words.
type keys struct{ tokens oauth2.TokenSource }

var _ rest.ContextAuthManager = keys{}

func newKeys(s Settings, base string, transport http.RoundTripper) keys {
	config := clientcredentials.Config{
		ClientID: s.AccessKey, ClientSecret: s.SecretKey, Scopes: []string{"catalog"},
		TokenURL: base + "/v1/oauth/tokens", AuthStyle: oauth2.AuthStyleInParams,
	}
	client := &http.Client{Transport: transport, Timeout: callTimeout}
	return keys{config.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, client))}
}

// AuthHeaderWithContext implements rest.ContextAuthManager.
func (k keys) AuthHeaderWithContext(ctx context.Context) (string, string, error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	return k.AuthHeader()
}

// AuthHeader implements rest.AuthManager. It asks for a token if there is none
// that is valid.
func (k keys) AuthHeader() (string, string, error) {
	token, err := k.tokens.Token()
	if err != nil {
		return "", "", tokenError(err)
	}
	return "Authorization", token.Type() + " " + token.AccessToken, nil
}

// tokenError gives an error of asking for a token those of iceberg-go that say the same.
func tokenError(err error) error {
	var answer *oauth2.RetrieveError
	var network *url.Error
	switch {
	case errors.As(err, &answer) && answer.Response != nil:
		return fmt.Errorf("%w: %w", tokenStatus(answer.Response.StatusCode), err)
	case errors.As(err, &network):
		return err
	default: // an answer that is none
		return fmt.Errorf("%w: %w", rest.ErrRESTError, err)
	}
}

func tokenStatus(status int) error {
	switch {
	case status == http.StatusBadRequest, status == http.StatusUnauthorized:
		return rest.ErrUnauthorized
	case status == http.StatusForbidden:
		return rest.ErrForbidden
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return rest.ErrServiceUnavailable
	default:
		return rest.ErrRESTError
	}
}
