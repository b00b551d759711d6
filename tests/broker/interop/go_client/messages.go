package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"crypto/tls"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

// webSocket is how the SDK's documentation says to go over a WebSocket, the sub-protocol too.
func webSocket(trusted *tls.Config) *azservicebus.ClientOptions {
	chosen := options(nil)
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	chosen.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		dial := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: caller}
		socket, _, err := websocket.Dial(ctx, args.Host, dial)
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
	}
	return chosen
}

func settle(ctx context.Context, client *azservicebus.Client) (any, error) {
	receiver, got, err := sent(ctx, client, "go-settle")
	if err != nil {
		return nil, err
	}
	saw := []any{string(got.Body), got.MessageID, *got.Subject, got.ApplicationProperties["n"], *got.SequenceNumber}
	if err := receiver.AbandonMessage(ctx, got, nil); err != nil {
		return nil, err
	}
	again, err := one(ctx, receiver)
	if err != nil {
		return nil, err
	}
	return append(saw, again.DeliveryCount), receiver.CompleteMessage(ctx, again, nil)
}

func deadLetter(ctx context.Context, client *azservicebus.Client) (any, error) {
	receiver, got, err := sent(ctx, client, "go-dead")
	if err != nil {
		return nil, err
	}
	reasons := &azservicebus.DeadLetterOptions{Reason: to.Ptr("because"), ErrorDescription: to.Ptr("it is bad")}
	if err := receiver.DeadLetterMessage(ctx, got, reasons); err != nil {
		return nil, err
	}
	how := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	graves, err := client.NewReceiverForQueue("go-dead", how)
	if err != nil {
		return nil, err
	}
	grave, err := one(ctx, graves)
	if err != nil {
		return nil, err
	}
	return []string{*grave.DeadLetterReason, *grave.DeadLetterErrorDescription}, graves.CompleteMessage(ctx, grave, nil)
}

func deferred(ctx context.Context, client *azservicebus.Client) (any, error) {
	receiver, got, err := sent(ctx, client, "go-defer")
	if err != nil {
		return nil, err
	}
	if err := receiver.DeferMessage(ctx, got, nil); err != nil {
		return nil, err
	}
	aside, err := receiver.ReceiveDeferredMessages(ctx, []int64{*got.SequenceNumber}, nil)
	if err != nil {
		return nil, err
	}
	return []any{bodies(aside), aside[0].State}, receiver.CompleteMessage(ctx, aside[0], nil)
}

func renew(ctx context.Context, client *azservicebus.Client) (any, error) {
	receiver, got, err := sent(ctx, client, "go-renew")
	if err != nil {
		return nil, err
	}
	before := *got.LockedUntil
	if err := receiver.RenewMessageLock(ctx, got, nil); err != nil {
		return nil, err
	}
	return !got.LockedUntil.Before(before), receiver.CompleteMessage(ctx, got, nil)
}

// lostLock settles a message twice: the second time by a lock that is gone.
func lostLock(ctx context.Context, client *azservicebus.Client) (any, error) {
	receiver, got, err := sent(ctx, client, "go-lost")
	if err != nil {
		return nil, err
	}
	if err := receiver.CompleteMessage(ctx, got, nil); err != nil {
		return nil, err
	}
	err = receiver.RenewMessageLock(ctx, got, nil)
	if err == nil {
		return "the lock of a completed message was renewed", nil
	}
	return words(err), nil
}

func batch(ctx context.Context, client *azservicebus.Client) (any, error) {
	sender, err := client.NewSender("go-batch", nil)
	if err != nil {
		return nil, err
	}
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return nil, err
	}
	for i := range 20 {
		if err := batch.AddMessage(text(fmt.Sprint(i)), nil); err != nil {
			return nil, err
		}
	}
	if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
		return nil, err
	}
	how := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	receiver, err := client.NewReceiverForQueue("go-batch", how)
	if err != nil {
		return nil, err
	}
	peeked, err := receiver.PeekMessages(ctx, 50, nil)
	if err != nil {
		return nil, err
	}
	got := 0
	for got < 20 {
		messages, err := receiver.ReceiveMessages(ctx, 20-got, nil)
		if err != nil {
			return nil, err
		}
		got += len(messages)
	}
	return []int{len(peeked), got}, nil
}

func schedule(ctx context.Context, client *azservicebus.Client) (any, error) {
	sender, err := client.NewSender("go-schedule", nil)
	if err != nil {
		return nil, err
	}
	later := time.Now().Add(365 * 24 * time.Hour)
	numbers, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{text("a"), text("b")}, later, nil)
	if err != nil {
		return nil, err
	}
	if err := sender.CancelScheduledMessages(ctx, numbers[:1], nil); err != nil {
		return nil, err
	}
	twice := sender.CancelScheduledMessages(ctx, numbers[:1], nil)
	return []any{numbers, twice != nil}, nil
}

func sessions(ctx context.Context, client *azservicebus.Client) (any, error) {
	in := func(session, body string) *azservicebus.Message {
		return &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(session)}
	}
	if err := send(ctx, client, "go-sessions", in("a", "a1"), in("b", "b1"), in("a", "a2")); err != nil {
		return nil, err
	}
	named, err := client.AcceptSessionForQueue(ctx, "go-sessions", "a", nil)
	if err != nil {
		return nil, err
	}
	var saw []any
	for range 2 {
		messages, err := named.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return nil, err
		}
		saw = append(saw, string(messages[0].Body))
		if err := named.CompleteMessage(ctx, messages[0], nil); err != nil {
			return nil, err
		}
	}
	if err := named.SetSessionState(ctx, []byte("noted"), nil); err != nil {
		return nil, err
	}
	state, err := named.GetSessionState(ctx, nil)
	if err != nil {
		return nil, err
	}
	renewed := named.RenewSessionLock(ctx, nil)
	next, err := client.AcceptNextSessionForQueue(ctx, "go-sessions", nil)
	if err != nil {
		return nil, err
	}
	_, held := client.AcceptSessionForQueue(ctx, "go-sessions", "b", nil)
	saw = append(saw, string(state), renewed == nil, next.SessionID(), held != nil)
	return saw, errors.Join(next.Close(ctx), named.Close(ctx))
}

func topic(ctx context.Context, client *azservicebus.Client) (any, error) {
	if err := send(ctx, client, "go-topic", text("paid")); err != nil {
		return nil, err
	}
	receiver, err := client.NewReceiverForSubscription("go-topic", "billing", nil)
	if err != nil {
		return nil, err
	}
	got, err := one(ctx, receiver)
	if err != nil {
		return nil, err
	}
	return string(got.Body), receiver.CompleteMessage(ctx, got, nil)
}
