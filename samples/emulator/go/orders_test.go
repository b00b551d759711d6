package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestAnOrderIsReceived(t *testing.T) {
	broker := exec.Command(
		"sbpair", "broker", "--namespace", "test:0", "--queue", "test/orders", "--json", "--stop-with-stdin")
	broker.Stderr = os.Stderr        // what it says is shown
	input, err := broker.StdinPipe() // it closes, at the latest, when this process ends
	check(err)
	output, err := broker.StdoutPipe()
	check(err)
	check(broker.Start())
	defer broker.Wait()
	defer input.Close()
	var started struct {
		Namespaces []struct {
			ConnectionString string `json:"connection_string"`
		} `json:"namespaces"`
	}
	if json.NewDecoder(output).Decode(&started) != nil {
		t.Fatal("the broker did not start: it says why above")
	}

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
