// The driver of the Go SDK, with its retry options at their defaults. See lines.py for the protocol.
// Every call gets its time by its context; a receive that only ran out of it found no message.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const maxText = 300

type command struct {
	Do               string  `json:"do"`
	ID               string  `json:"id"`
	Limit            float64 `json:"limit"`
	Wait             float64 `json:"wait"`
	ConnectionString string  `json:"connection_string"`
	Queue            string  `json:"queue"`
	CAFile           string  `json:"ca_file"`
	TLSPort          *int    `json:"tls_port"`
}

type answer struct {
	Outcome string  `json:"outcome"`
	ID      *string `json:"id"`
	Copies  int     `json:"copies"`
	Error   string  `json:"error,omitempty"`
	Text    string  `json:"text,omitempty"`
}

type driver struct {
	sender   *azservicebus.Sender
	receiver *azservicebus.Receiver
	held     map[string]*azservicebus.ReceivedMessage
}

func main() {
	d := &driver{held: map[string]*azservicebus.ReceivedMessage{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		id, err := d.do(asked)
		said := answer{Outcome: "ok", ID: id}
		if err != nil {
			said = answer{Outcome: "error", Error: kind(err), Text: text(err)}
		}
		out, _ := json.Marshal(said)
		fmt.Println(string(out))
	}
}

func (d *driver) do(asked command) (*string, error) {
	switch asked.Do {
	case "open":
		return nil, d.open(asked)
	case "send":
		ctx, cancel := within(asked.Limit)
		defer cancel()
		return nil, d.sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("x"), MessageID: &asked.ID}, nil)
	case "receive":
		return d.receive(asked)
	default:
		ctx, cancel := within(asked.Limit)
		defer cancel()
		message := d.held[asked.ID]
		delete(d.held, asked.ID)
		return nil, d.receiver.CompleteMessage(ctx, message, nil)
	}
}

func (d *driver) open(asked command) error {
	options := &azservicebus.ClientOptions{}
	connectionString := asked.ConnectionString
	if asked.TLSPort != nil {
		pool := x509.NewCertPool()
		certificate, err := os.ReadFile(asked.CAFile)
		if err != nil {
			return err
		}
		pool.AppendCertsFromPEM(certificate)
		// the SDK would look for the port in the certificate too
		options.TLSConfig = &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	}
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	if err != nil {
		return err
	}
	if d.sender, err = client.NewSender(asked.Queue, nil); err != nil {
		return err
	}
	d.receiver, err = client.NewReceiverForQueue(asked.Queue, nil)
	return err
}

func (d *driver) receive(asked command) (*string, error) {
	ctx, cancel := within(asked.Wait)
	defer cancel()
	messages, err := d.receiver.ReceiveMessages(ctx, 1, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	d.held[messages[0].MessageID] = messages[0]
	return &messages[0].MessageID, nil
}

func within(seconds float64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
}

func kind(err error) string {
	var known *azservicebus.Error
	if errors.As(err, &known) {
		return "azservicebus.Error " + string(known.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "context.DeadlineExceeded"
	}
	var network net.Error
	if errors.As(err, &network) {
		return "net.Error"
	}
	return fmt.Sprintf("%T", err)
}

func text(err error) string {
	words := strings.Join(strings.Fields(err.Error()), " ")
	return words[:min(len(words), maxText)]
}
