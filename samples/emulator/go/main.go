package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func main() {
	ctx := context.Background()
	client, err := azservicebus.NewClientFromConnectionString(os.Getenv("SBPAIR_PRIMARY"), nil)
	check(err)
	defer client.Close(ctx)

	sender, err := client.NewSender("orders", nil)
	check(err)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello from Go")}, nil))

	receiver, err := client.NewReceiverForQueue("orders", nil)
	check(err)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	check(err)
	for _, message := range messages {
		fmt.Println("received:", string(message.Body))
		check(receiver.CompleteMessage(ctx, message, nil))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
