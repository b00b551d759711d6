package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestAnOrderIsReceived(t *testing.T) {
	broker := exec.Command("sbpair", "broker", "--namespace", "test:0", "--queue", "test/orders", "--json")
	output, err := broker.StdoutPipe()
	check(err)
	check(broker.Start())
	defer broker.Process.Kill()
	var started struct {
		Namespaces []struct {
			ConnectionString string `json:"connection_string"`
		} `json:"namespaces"`
	}
	check(json.NewDecoder(output).Decode(&started))

	ctx := context.Background()
	client, err := azservicebus.NewClientFromConnectionString(started.Namespaces[0].ConnectionString, nil)
	check(err)
	defer client.Close(ctx)
	sender, err := client.NewSender("orders", nil)
	check(err)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("two shoes")}, nil))
	receiver, err := client.NewReceiverForQueue("orders", nil)
	check(err)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	check(err)
	if body := string(messages[0].Body); body != "two shoes" {
		t.Fatal(body)
	}
}
