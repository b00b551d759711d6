// The unmodified Go SDK against a namespace of the broker: prints what each check saw, as one JSON object.
// Arguments: the connection string, the authority's certificate (PEM), one of a policy that may only listen,
// the connection string and the certificate of a Premium namespace. Entities are there, named "go-...".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// check answers what it saw; an error is seen too.
type check func(ctx context.Context) (any, error)

func main() {
	plain := os.Args[1]
	secure := strings.Replace(plain, ";UseDevelopmentEmulator=true", "", 1)
	trusted := trust(os.Args[2])
	client := must(azservicebus.NewClientFromConnectionString(plain, options(nil)))
	overTLS := must(azservicebus.NewClientFromConnectionString(secure, options(trusted)))
	overWebSocket := must(azservicebus.NewClientFromConnectionString(secure, webSocket(trusted)))
	listening := administration(strings.Replace(os.Args[3], ";UseDevelopmentEmulator=true", "", 1), trusted)
	premium := administration(strings.Replace(os.Args[4], ";UseDevelopmentEmulator=true", "", 1), trust(os.Args[5]))
	unversioned := 0
	old := administration(secure, trusted, versionless{&unversioned})
	administration := administration(secure, trusted)

	seen := map[string]any{}
	for name, run := range map[string]check{
		"batch":               func(ctx context.Context) (any, error) { return batch(ctx, client) },
		"settle":              func(ctx context.Context) (any, error) { return settle(ctx, client) },
		"dead letter":         func(ctx context.Context) (any, error) { return deadLetter(ctx, client) },
		"defer":               func(ctx context.Context) (any, error) { return deferred(ctx, client) },
		"renew":               func(ctx context.Context) (any, error) { return renew(ctx, client) },
		"schedule":            func(ctx context.Context) (any, error) { return schedule(ctx, client) },
		"sessions":            func(ctx context.Context) (any, error) { return sessions(ctx, client) },
		"topic":               func(ctx context.Context) (any, error) { return topic(ctx, client) },
		"lost lock":           func(ctx context.Context) (any, error) { return lostLock(ctx, client) },
		"over TLS":            func(ctx context.Context) (any, error) { return toAndFro(ctx, overTLS, "go-tls") },
		"over WebSocket":      func(ctx context.Context) (any, error) { return toAndFro(ctx, overWebSocket, "go-websocket") },
		"wrong key":           func(ctx context.Context) (any, error) { return wrongKey(ctx, plain) },
		"no entity":           func(ctx context.Context) (any, error) { return toAndFro(ctx, client, "go-nowhere") },
		"admin queues":        administration.queues,
		"admin topics":        administration.topics,
		"admin subscriptions": administration.subscriptions,
		"admin rules":         administration.rules,
		"admin namespace":     administration.namespace,
		"admin missing":       administration.missing,
		"admin unmanaged":     listening.unmanaged,
		"admin described":     administration.described,
		"admin premium":       premium.premium,
		"admin versionless": func(ctx context.Context) (any, error) {
			_, err := old.client.GetQueue(ctx, "go-settle", nil)
			return unversioned, err
		},
		"failing filter": func(ctx context.Context) (any, error) { return administration.failing(ctx, client) },
		"empty state":    func(ctx context.Context) (any, error) { return emptyState(ctx, client) },
		"updated":        func(ctx context.Context) (any, error) { return administration.updated(ctx, plain) },
	} {
		seen[name] = look(run)
	}
	must(os.Stdout.Write(must(json.Marshal(seen))))
}

// look runs a check for twenty seconds at most; what it says of a failure is what it saw.
func look(run check) any {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	saw, err := run(ctx)
	if err != nil {
		return "FAILED " + words(err)
	}
	return saw
}

func words(err error) string {
	var known *azservicebus.Error
	if errors.As(err, &known) {
		return string(known.Code)
	}
	return strings.Split(err.Error(), "\n")[0]
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// trust says the name to expect: the SDK would look for the port in the certificate too.
func trust(certificate string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(certificate)))
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

func options(trusted *tls.Config) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		TLSConfig:    trusted,
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	}
}

func text(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func send(ctx context.Context, client *azservicebus.Client, queue string, messages ...*azservicebus.Message) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for _, message := range messages {
		if err := sender.SendMessage(ctx, message, nil); err != nil {
			return err
		}
	}
	return nil
}

func one(ctx context.Context, receiver *azservicebus.Receiver) (*azservicebus.ReceivedMessage, error) {
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	return messages[0], nil
}

// sent sends one message, and receives it under a lock.
func sent(ctx context.Context, client *azservicebus.Client, queue string) (*azservicebus.Receiver, *azservicebus.ReceivedMessage, error) {
	message := &azservicebus.Message{
		Body:                  []byte("hello"),
		MessageID:             to.Ptr("one"),
		Subject:               to.Ptr("greeting"),
		ApplicationProperties: map[string]any{"n": int64(7)},
	}
	if err := send(ctx, client, queue, message); err != nil {
		return nil, nil, err
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return nil, nil, err
	}
	got, err := one(ctx, receiver)
	return receiver, got, err
}

func toAndFro(ctx context.Context, client *azservicebus.Client, queue string) (any, error) {
	receiver, got, err := sent(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	return string(got.Body), receiver.CompleteMessage(ctx, got, nil)
}

func wrongKey(ctx context.Context, connectionString string) (any, error) {
	head, _, _ := strings.Cut(connectionString, "SharedAccessKey=")
	wrong := head + "SharedAccessKey=d3Jvbmc=;UseDevelopmentEmulator=true"
	return toAndFro(ctx, must(azservicebus.NewClientFromConnectionString(wrong, options(nil))), "go-settle")
}
